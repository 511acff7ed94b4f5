"""The slow checks: what they ask, and what they make of the answers."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import httpx
import pytest
from check_material import CLUSTER, MACHINE, QWEN_7B, said
from omegaconf import DictConfig
from project_folder import ROOT

from seal.launch import pools
from seal.launch.check import all_checks, before_start
from seal.launch.check.finding import Finding, Level, error, ok
from seal.launch.check.model import Model
from seal.launch.check.programs import Answer, Program
from seal.launch.gpus import Gpus
from seal.launch.processes import Family

HUB_NAME = Model("Qwen/Qwen2.5-7B-Instruct", None)


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answer], list[Program]]:
    """Have every program answer in one way; the programs that were asked."""

    def script(answer: Answer) -> list[Program]:
        asked: list[Program] = []

        def ask(programs: dict[str, Program], patience_s: float) -> dict[str, Answer]:
            asked.extend(programs.values())
            return dict.fromkeys(programs, answer)

        monkeypatch.setattr(all_checks, "ask", ask)
        return asked

    return script


def test_gpus_that_cannot_reach_each_other(
    seal: DictConfig, answered: Callable[[Answer], list[Program]]
) -> None:
    asked = answered(Answer("", "no answer after 120 s"))
    text = said(all_checks.all_reduce(seal, MACHINE), Level.ERROR)
    assert (
        "4 GPUs cannot add a tensor" in text and "no answer" in text and "NCCL_DEBUG=INFO" in text
    )
    assert asked[0].command[1:] == ["-m", "seal.launch.check.all_reduce", "4"]
    answered(Answer("4 GPUs add up\n", ""))
    assert said(all_checks.all_reduce(seal, MACHINE), Level.OK) == "4 GPUs add up"


def test_no_all_reduce_without_the_gpus(
    seal: DictConfig, quick: DictConfig, answered: Callable[[Answer], list[Program]]
) -> None:
    asked = answered(Answer("", "asked"))
    for recipe, machine in (
        (quick, MACHINE),
        (seal, CLUSTER),
        (seal, replace(MACHINE, gpus=Gpus())),
        (seal, replace(MACHINE, torch_cuda=None)),
    ):
        assert list(all_checks.all_reduce(recipe, machine)) == []
    assert asked == []


@pytest.mark.parametrize(
    ("status", "level", "part"),
    [
        (200, Level.OK, "has Qwen/"),
        (401, Level.ERROR, "answers 401"),
        (None, Level.ERROR, "does not answer (no route); fetch it"),
    ],
)
def test_the_hub_is_asked_for_a_model_that_is_not_here(
    monkeypatch: pytest.MonkeyPatch, status: int | None, level: Level, part: str
) -> None:
    def head(url: str, **_: object) -> httpx.Response:
        assert url.endswith("/Qwen/Qwen2.5-7B-Instruct/resolve/main/config.json")
        if status is None:
            raise httpx.ConnectError("no route")
        return httpx.Response(status)

    monkeypatch.setattr(all_checks, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(httpx, "head", head)
    assert part in said(all_checks.hub(HUB_NAME), level)
    assert list(all_checks.hub(QWEN_7B)) == []
    assert list(all_checks.hub(replace(HUB_NAME, made_by=("make.py",)))) == []


def test_the_hub_is_not_asked_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_checks, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(httpx, "head", None)
    assert "HF_HUB_OFFLINE is set" in said(all_checks.hub(HUB_NAME), Level.ERROR)


def test_prompts_that_do_not_fit(
    quick: DictConfig, answered: Callable[[Answer], list[Program]]
) -> None:
    asked = answered(Answer("", "3 of 32 training prompts do not fit"))
    text = said(all_checks.prompts(quick, False, Family()), Level.ERROR)
    assert text == "3 of 32 training prompts do not fit"
    # As training has them.
    assert asked[0].environment["VERL_PLATFORM"] == "cpu"
    assert asked[0].command[-2] == "seal.backbone.prompt_budget"
    answered(Answer("the longest has 700 tokens\n", ""))
    assert (
        said(all_checks.prompts(quick, False, Family()), Level.OK) == "the longest has 700 tokens"
    )


@pytest.mark.parametrize("model", [QWEN_7B, HUB_NAME])
@pytest.mark.parametrize("there", [True, False])
def test_prompts_are_counted_where_model_and_service_are_there(
    seal: DictConfig, monkeypatch: pytest.MonkeyPatch, model: Model, there: bool
) -> None:
    level = Level.OK if there else Level.ERROR
    monkeypatch.setattr(before_start, "facts", lambda _: (CLUSTER, model))
    monkeypatch.setattr(
        before_start, "outside", lambda *_: [replace(ok("service", ""), level=level)]
    )
    monkeypatch.setattr(all_checks, "hub", lambda _: [])
    monkeypatch.setattr(all_checks, "prompts", lambda *_: [ok("prompts", "fit")])
    found = all_checks.check(seal, True, False, Family())
    assert ("prompts" in [one.subject for one in found]) is (there and model is QWEN_7B)


@pytest.mark.parametrize(
    ("finding", "lacking"), [(error(before_start.POOLS, "evaluated"), []), (ok("x", ""), ["x"])]
)
def test_prompts_are_not_counted_of_pools_that_are_not_there_or_refused(
    seal: DictConfig, monkeypatch: pytest.MonkeyPatch, finding: Finding, lacking: list[str]
) -> None:
    monkeypatch.setattr(before_start, "facts", lambda _: (CLUSTER, QWEN_7B))
    monkeypatch.setattr(before_start, "outside", lambda *_: [finding, ok("service", "")])
    monkeypatch.setattr(pools, "missing", lambda *_: lacking)
    monkeypatch.setattr(all_checks, "prompts", lambda *_: [ok("prompts", "fit")])
    found = all_checks.check(seal, True, False, Family())
    assert "prompts" not in [one.subject for one in found]


@pytest.mark.slow
def test_the_command_names_every_reason() -> None:
    """exp/SEAL.yaml on a machine without a GPU: exit code 1 and a line for each reason."""
    done = subprocess.run(
        [
            sys.executable,
            "launcher.py",
            "--conf",
            "exp/SEAL.yaml",
            "--check",
            "--",
            "env_service.env_url=http://127.0.0.1:9",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    levels = {line.split()[0]: line for line in done.stdout.splitlines() if line[:1].strip()}
    if (ROOT / ".venv/flavour").read_text().strip() == "cpu":
        assert done.returncode == 1
        assert "error" in levels["GPUs"] and "error" in levels["torch"]
        # Recipes go without it where it is not installed.
        assert "warning" in levels["flash-attn"]
    assert "this run can" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ["quickstart", "smollm2"])
def test_the_recipes_for_a_processor_can_start_here(name: str) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "launcher.py",
            "--conf",
            f"exp/{name}.yaml",
            "--with-bfcl",
            "--check",
            "--",
            "env_service.env_url=http://127.0.0.1:18471",
            f"trainer.experiment_name=check-{name}",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
