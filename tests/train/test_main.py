import sys
from pathlib import Path
from typing import Any

import pytest
import ray
from omegaconf import DictConfig, OmegaConf
from typed import sections_with

from seal import ROOT
from seal.backbone.prompt_budget import PromptBudgetError
from seal.records.json_lines import LineReader
from seal.records.loop_log import PHASES
from seal.train import main
from seal.train.cpu.fork_server import worker_command
from seal.train.errors import TrainingError
from seal.train.node import enter_project_folder


def config(**ray_init: Any) -> DictConfig:
    return OmegaConf.create(
        {
            "ray_kwargs": {"ray_init": {"num_cpus": 12, "runtime_env": {}, **ray_init}},
            "launcher": {"environment": {"VERL_PLATFORM": "cpu"}},
        }
    )


def test_a_ray_of_its_own_is_started_as_the_recipe_says() -> None:
    settings = main.ray_settings(config(num_gpus=1), {})
    assert settings["address"] == "local"
    assert (settings["num_cpus"], settings["num_gpus"]) == (12, 1)


@pytest.mark.parametrize(
    ("environment", "ray_init"),
    [
        ({"RAY_ADDRESS": "head:6379"}, {}),
        ({}, {"address": "head:6379"}),
        ({"RAY_ADDRESS": "head:6379"}, {"address": "other:6379"}),
    ],
)
def test_a_running_cluster_is_not_told_what_it_has(
    environment: dict[str, str], ray_init: dict[str, str]
) -> None:
    sizes = {"num_gpus": 1, "object_store_memory": 10**9, "include_dashboard": False}
    settings = main.ray_settings(config(**ray_init, **sizes, log_to_driver=True), environment)
    assert settings.pop("runtime_env")
    assert settings == {"address": "head:6379", "log_to_driver": True}


def test_what_workers_of_every_node_need_goes_with_the_job_and_no_secret() -> None:
    given = {
        "VERL_PLATFORM": "cpu",
        "TENSORBOARD_DIR": "there",
        "PYTHONPATH": "mine",
        "SEAL_ENV_TOKEN": "secret",
        "HOME": "/home",
    }
    runtime = main.ray_settings(config(), given)["runtime_env"]
    assert runtime["env_vars"] == {
        "VERL_PLATFORM": "cpu",
        "TENSORBOARD_DIR": "there",
        "PYTHONPATH": f"{ROOT}:mine",
    }
    assert runtime["worker_process_setup_hook"] == "seal.train.node.enter_project_folder"


def test_a_user_can_add_to_what_workers_get() -> None:
    mine = {"py_executable": "python3", "env_vars": {"NCCL_DEBUG": "INFO"}}
    runtime = main.ray_settings(config(runtime_env=mine), {"PYTHONPATH": ""})["runtime_env"]
    assert runtime["py_executable"] == "python3"
    assert runtime["env_vars"] == {"NCCL_DEBUG": "INFO", "PYTHONPATH": str(ROOT)}


def test_every_setting_is_one_that_verl_can_pass_on() -> None:
    settings = main.ray_settings(config(), {"RAY_ADDRESS": "head:6379"})
    passed = OmegaConf.to_container(OmegaConf.create(settings))
    assert isinstance(passed, dict)
    assert passed["runtime_env"]["env_vars"] == {"PYTHONPATH": str(ROOT)}


def test_a_worker_works_in_the_projects_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    enter_project_folder()
    assert Path.cwd() == ROOT
    assert (ROOT / "launcher.py").exists()


def test_a_cluster_that_another_run_uses_is_waited_for_and_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Against a real Ray: tests/e2e/test_ray_cluster.py."""
    answers = iter(["there", "there", None])

    def get_actor(name: str, namespace: str) -> Any:
        assert (name, namespace) == ("TransferQueueController", "transfer_queue")
        answer = next(answers, "there")
        if answer is None:
            raise ValueError("no such actor")
        return answer

    monkeypatch.setattr(ray, "get_actor", get_actor)
    monkeypatch.setattr("seal.train.main.time.sleep", lambda seconds: None)
    main.wait_for_queue(60.0)
    with pytest.raises(TrainingError, match="takes one run at a time"):
        main.wait_for_queue(-1.0)


def start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line of a run whose configuration verl accepts."""
    made = config()
    own = sections_with({"seal.loop_dir": str(folder / "loop")})
    OmegaConf.save(OmegaConf.merge(own, made), folder / "config.yaml")
    for name in ("validate_config", "need_reference_policy", "need_critic"):
        monkeypatch.setattr(main, name, lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["main", str(folder / "config.yaml")])


@pytest.mark.parametrize("connected", [False, True])
def test_a_cluster_that_refuses_the_connection_is_said_with_the_usual_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connected: bool
) -> None:
    def refuse(*_: Any) -> None:
        raise ConnectionError("Failed to connect to Ray cluster at head:6379")

    monkeypatch.setattr(main, "run_ppo", refuse)
    monkeypatch.setattr(main, "check_prompts", lambda _: None)
    monkeypatch.setattr(ray, "is_initialized", lambda: connected)
    start(tmp_path, monkeypatch)
    with pytest.raises(ConnectionError) as failed:
        main.main()
    # A connection that is lost during training has other reasons.
    assert ("RAY_AUTH_MODE=token" in str(failed.value)) is not connected


def test_prompts_are_counted_before_ray_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Any) -> None:
        raise PromptBudgetError("3 of 400 training prompts do not fit")

    monkeypatch.setattr(main, "check_prompts", refuse)
    monkeypatch.setattr(main, "run_ppo", lambda *_: pytest.fail("workers were started"))
    start(tmp_path, monkeypatch)
    with pytest.raises(PromptBudgetError):
        main.main()
    phases = [line["phase"] for line in LineReader(tmp_path / "loop" / PHASES).new()]
    assert phases == ["prompts"]


@pytest.mark.parametrize("own", [None, "python3"])
def test_workers_are_forks_unless_the_recipe_names_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str | None
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(main, "run_ppo", lambda config, _: started.append(config))
    monkeypatch.setattr(main, "check_prompts", lambda _: None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    start(tmp_path, monkeypatch)
    written = OmegaConf.load(tmp_path / "config.yaml")
    written.ray_kwargs.ray_init.runtime_env.py_executable = own  # verl's own value is null
    OmegaConf.save(written, tmp_path / "config.yaml")
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--fork-server=there"])
    main.main()
    runtime = started[0].ray_kwargs.ray_init.runtime_env
    assert runtime.py_executable == (own or worker_command("there"))
