"""Prompts of real tasks under the learning interface, with real tokenizers and a real service."""

import asyncio
import functools
import json
import re
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import check_backbone
import pyarrow.parquet
import pytest
import real_tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf
from pool_files import pool_rows, write_pool
from typed import settings_with

from seal.backbone import prompt_budget, prompts
from seal.backbone.loading import Backbone, load_backbone
from seal.backbone.prompt_budget import PromptBudgetError, check_prompts, largest_interface
from seal.backbone.prompts import Prompt, count_tokens, fetch_prompts, in_training, prompt_ids
from seal.client.client import EnvironmentClient, Task
from seal.coevolution.evolution import InterfaceConfig, largest
from seal.coevolution.interface import INITIAL, Interface
from seal.coevolution.profile import FailureProfile, LabelStatistic
from seal.labels import FAILURES, Label
from seal.launch.recipe import EXP, load_recipe

TASKS = ["multi_turn_base_0", "multi_turn_base_100", "multi_turn_miss_func_150"]
MODELS = {
    # group, vocabulary, chat template where it is not the vocabulary's own
    "qwen2.5": ("qwen2.5-7b", "qwen2.5", None),
    "qwen3.5": ("qwen3.5-4b", "qwen2.5", "qwen3_5_think"),
    "toolace": ("toolace-2-8b", "llama3.1", None),
    "llama3.1": ("toolace-2-8b", "llama3.1", "llama3_1"),
    "smollm2": ("qwen2.5-7b", "smollm2", None),
}


@functools.cache
def recipe_of(*overrides: str) -> DictConfig:
    return load_recipe(EXP / "SEAL.yaml", overrides)


@functools.cache
def backbone_of(model: str) -> Backbone:
    group, vocabulary, template = MODELS[model]
    stops = ['env_service.stop_tokens=["<|im_end|>"]'] if model == "smollm2" else []
    loaded = load_backbone(
        real_tokenizers.folder(vocabulary), recipe_of(f"backbone={group}", *stops)
    )
    if template is not None:
        loaded.tokenizer.chat_template = real_tokenizers.template(template)
    return loaded


def opened(url: str, ids: list[str]) -> list[Prompt]:
    async def fetch() -> list[Prompt]:
        async with EnvironmentClient(url, "bfcl") as client:
            return await fetch_prompts(client, [ids], "hermes")

    return asyncio.run(fetch())


@pytest.fixture(scope="module")
def tasks(url: str) -> list[Prompt]:
    return opened(url, TASKS)


PRESSING = (Label.INVALID_TOOL_CALL, Label.MISSING_TOOL_CALL, Label.RECOVERY_FAILURE)


def test_what_is_counted_is_what_training_is_shown(url: str, tasks: list[Prompt]) -> None:
    unsolved = {label: LabelStatistic(30.0, 30.0, 0.0, 0.0) for label in PRESSING}
    profile = FailureProfile(1, unsolved, {}, {})

    async def shown() -> tuple[Interface, list[Prompt]]:
        async with EnvironmentClient(url, "bfcl") as client:
            reply = await client.put_profile(
                "counted", profile.to_json(), asdict(InterfaceConfig()), INITIAL.to_json()
            )
            replies = [
                await client.create(
                    f"counted-{task_id}", Task(task_id, "train", "counted", 1, "hermes")
                )
                for task_id in TASKS
            ]
        return Interface.from_json(reply.interface), [
            Prompt(task_id, one.info.category, one.state, one.info.tools)
            for task_id, one in zip(TASKS, replies, strict=True)
        ]

    interface, in_service = asyncio.run(shown())
    assert len(interface.active()) == 6  # everything is on
    assert [in_training(task, interface) for task in tasks] == in_service


# ---- the note goes behind what the template says anyway ----------------------------------------

EVERYTHING = replace(largest(InterfaceConfig(), len), guidelines=FAILURES)
DEFAULTS = {
    "qwen2.5": "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
    "smollm2": "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
}


@pytest.mark.parametrize("model", MODELS)
def test_a_training_prompt_without_its_cues_is_the_evaluation_prompt(
    model: str, tasks: list[Prompt]
) -> None:
    backbone = backbone_of(model)
    for task in tasks:
        original = backbone.tokenizer.decode(prompt_ids(backbone, task))
        shown = backbone.tokenizer.decode(prompt_ids(backbone, in_training(task, EVERYTHING)))
        assert shown != original and DEFAULTS.get(model, "") in shown
        if model != "smollm2":  # its template shows no tools
            assert shown.count("(required)") > 10
        assert without_cues(shown, original) == original


MARKS = re.compile(
    r" ?\((?:required|optional)\)"
    r"(?: Type: (?:an? \w+|null)(?:, each item an? \w+)?\.)?(?: Allowed values: [^\"]*?\.)?"
)


def without_cues(shown: str, original: str) -> str:
    """Takes the note out where it stands, and the marks out of the tool docs."""
    note = EVERYTHING.system_note()
    assert note is not None and shown.count(note) == 1
    before, after = shown.split(note)
    # The note brings one blank line along, in front of it or behind it.
    stripped = [before.removesuffix("\n\n") + after, before + after.removeprefix("\n\n")]
    plain = [MARKS.sub("", one) for one in (*stripped, before + after)]
    return original if original in plain else plain[0]


# ---- the budget --------------------------------------------------------------------------------

INTERFACES = st.builds(
    Interface,
    version=st.just(1),
    schema_cues=st.booleans(),
    affordance_cues=st.booleans(),
    recovery_feedback=st.booleans(),
    guidelines=st.lists(st.sampled_from(FAILURES), unique=True, max_size=3).map(tuple),
)


@settings(max_examples=25, deadline=None)
@given(interface=INTERFACES)
def test_no_interface_takes_more_than_the_largest(
    interface: Interface, tasks: list[Prompt]
) -> None:
    backbone = backbone_of("qwen2.5")
    most = largest_interface(backbone, recipe_of())
    assert most.active()[:3] == ("schema_cues", "affordance_cues", "recovery_feedback")
    counts = [
        count_tokens(backbone, [in_training(task, one) for task in tasks[:1]])[0]
        for one in (interface, most)
    ]
    assert counts[0] <= counts[1]


def run_of(url: str, folder: Path, rows: list[tuple[str, str]], *overrides: str) -> DictConfig:
    """A recipe whose data files hold rows of (task, mode)."""
    made = [{"extra_info": {"task_id": task_id, "mode": mode}} for task_id, mode in rows]
    table = pyarrow.Table.from_pylist(made)
    pyarrow.parquet.write_table(table, folder / "rows.parquet")
    model = f"actor_rollout_ref.model.path={real_tokenizers.folder('qwen2.5')}"
    data = f"data.train_files={folder}/rows.parquet"
    found = OmegaConf.create(OmegaConf.to_container(recipe_of(model, data, *overrides)))
    found.env_service.env_url = url
    found.data.val_files = found.data.train_files
    assert isinstance(found, DictConfig)
    return found


LONGEST = "multi_turn_base_65"
"""Its prompt is the longest of multi_turn_base."""


def test_an_overlong_prompt_is_refused_before_the_first_step(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompt_budget, "CACHE", tmp_path / "counts")
    rows = [(LONGEST, "train"), ("multi_turn_base_0", "train"), (LONGEST, "eval")]
    published = ("data.max_prompt_length=8192",)
    with pytest.raises(PromptBudgetError) as refused:
        check_prompts(run_of(url, tmp_path, rows, *published))
    assert "1 of 2 training prompts do not fit under the largest" in str(refused.value)
    assert f"{LONGEST} has " in str(refused.value)
    # Loaded once is enough: from here on the same tokenizer.
    monkeypatch.setattr(prompt_budget, "load_backbone", lambda *_: backbone_of("qwen2.5"))
    # Without interface, and in evaluation, the same task fits the published limit.
    plain = [f"seal.interface.{part}=false" for part in ("schema_cues", "guidelines")]
    check_prompts(run_of(url, tmp_path, rows, *published, *plain))
    check_prompts(run_of(url, tmp_path, rows[1:], *published))
    with pytest.raises(PromptBudgetError, match="1 of 1 evaluation prompts do not fit: multi"):
        check_prompts(run_of(url, tmp_path, rows[2:], "data.max_prompt_length=7000"))
    assert check_prompts(run_of(url, tmp_path, rows)).startswith(
        "the longest of 2 training prompts has "
    )


@pytest.mark.slow
def test_the_check_as_a_program_says_what_does_not_fit(url: str, tmp_path: Path) -> None:
    rows = [(LONGEST, "train"), (LONGEST, "eval")]
    recipe = run_of(url, tmp_path, rows, "data.max_prompt_length=7000")
    OmegaConf.save(recipe, tmp_path / "config.yaml")
    command = [sys.executable, "-W", "ignore", "-m", "seal.backbone.prompt_budget"]
    done = subprocess.run(
        [*command, str(tmp_path / "config.yaml")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    # Both kinds are named, and the number to set.
    assert "1 of 1 training prompts do not fit" in last
    assert "1 of 1 evaluation prompts do not fit" in last
    assert "set data.max_prompt_length above " in last


def test_prompts_are_counted_once(
    tasks: list[Prompt], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []

    def count(backbone: Any, prompt: Prompt) -> list[int]:
        counted.append(prompt.task_id)
        return prompt_ids(backbone, prompt)

    monkeypatch.setattr(prompts, "prompt_ids", count)
    qwen, llama = backbone_of("qwen2.5"), backbone_of("toolace")
    first = count_tokens(qwen, tasks, tmp_path)
    assert count_tokens(qwen, tasks, tmp_path) == first and counted == TASKS
    # Another prompt or another tokenizer is another count.
    assert count_tokens(qwen, tasks[:1], tmp_path) == first[:1]
    assert count_tokens(llama, tasks, tmp_path) != first
    assert counted == [*TASKS, TASKS[0], *TASKS]


def test_a_damaged_count_is_counted_anew(tasks: list[Prompt], tmp_path: Path) -> None:
    qwen = backbone_of("qwen2.5")
    first = count_tokens(qwen, tasks, tmp_path)
    (kept,) = tmp_path.iterdir()
    for damaged in ("", "[1]", '["a", "b", "c"]'):
        kept.write_text(damaged)
        assert count_tokens(qwen, tasks, tmp_path) == first


@pytest.mark.parametrize("rows", [[{"prompt": "x"}], [{"extra_info": {"mode": "train"}}]])
def test_a_data_file_without_tasks_is_named(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for name in ("rows.parquet", "rows.jsonl"):
        files = {f"data.{key}": str(tmp_path / name) for key in ("train_files", "val_files")}
        with pytest.raises(PromptBudgetError, match=f"{name} cannot be read as tasks"):
            prompt_budget.tasks_of_mode(settings_with(files).data, "train")


def test_json_lines_are_data_files_too(tmp_path: Path) -> None:
    rows = [{"extra_info": {"task_id": f"t{mode}", "mode": mode}} for mode in ("train", "eval")]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    files = [str(tmp_path / "rows.jsonl")]
    data = settings_with({"data.train_files": files, "data.val_files": files}).data
    assert prompt_budget.tasks_of_mode(data, "train") == ["ttrain"]


def test_the_tasks_of_a_pool_are_training_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompt_budget, "ROOT", tmp_path)
    write_pool(tmp_path, "some", pool_rows("some", 2))
    rows = [{"extra_info": {"task_id": f"t{mode}", "mode": mode}} for mode in ("train", "eval")]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "eval.jsonl").write_text(json.dumps(rows[1]))
    files: dict[str, Any] = {
        "data.train_files": str(tmp_path / "rows.jsonl"),
        "data.val_files": str(tmp_path / "eval.jsonl"),
        "data.synthetic_tasks": "some",
    }
    drawn = ["synthetic_some_000000_7", "synthetic_some_000001_17"]
    data = settings_with({**files, "data.synthetic_share": 0.5}).data
    assert prompt_budget.tasks_of_mode(data, "train") == ["ttrain", *drawn]
    assert prompt_budget.tasks_of_mode(data, "eval") == ["teval"]
    # With share 1 no real task is rolled out in training.
    data = settings_with({**files, "data.synthetic_share": 1.0}).data
    assert prompt_budget.tasks_of_mode(data, "train") == drawn
    data = settings_with({**files, "data.synthetic_tasks": "other"}).data
    with pytest.raises(PromptBudgetError, match="no pool 'other'.*synthesis make other"):
        prompt_budget.tasks_of_mode(data, "train")


@pytest.mark.slow
def test_no_task_is_lost_with_the_recipes_own_budget(url: str) -> None:
    every = check_backbone.task_ids(800, LONGEST)
    recipe, backbone = recipe_of(), backbone_of("qwen2.5")
    found = opened(url, every)
    shown = largest_interface(backbone, recipe)
    counts = count_tokens(backbone, [in_training(prompt, shown) for prompt in found])
    assert len(counts) == 800
    assert sum(count >= prompt_budget.prompt_limit(recipe) for count in counts) == 0
    # The table of docs/backbones.md.
    assert (max(counts), sum(count >= 8192 for count in counts)) == (8374, 62)
