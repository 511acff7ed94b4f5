import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from seal.launch.folders import RunError
from seal.launch.processes import Family
from seal.launch.training import Watch, prepare_resume, ray_address, start_fork_server, train

TRAINERS = {
    "fails": "raise ValueError('no such layer (17) here')",
    "fails_in_ray": (
        "print('\\x1b[36m(Runner pid=7)\\x1b[0m seal.client.EnvironmentFault: 3 lost')\n"
        "raise SystemExit(1)"
    ),
    # As Ray 2.60 writes it.
    "loses_an_actor": (
        "print('ray.exceptions.ActorDiedError: The actor died unexpectedly.')\n"
        "print('\\tclass_name: create_colocated_worker_cls.<locals>.WorkerDict')\n"
        "print('\\tactor_id: 84c1\\n\\tpid: 6906\\n\\tname: x:0\\n\\tip: 192.0.2.2')\n"
        "raise SystemExit(1)"
    ),
    # As Ray 2.60 writes it, where a process that waited for the dead one failed first.
    "loses_a_rank": (
        "print('\\x1b[36m(WorkerDict pid=6906)\\x1b[0m saved')\n"
        "print('\\x1b[33m(raylet)\\x1b[0m A worker died or was killed while executing a task. '"
        "'Worker IP address: 192.0.2.2 Worker port: 3 Worker PID: 6906 Worker exit type: X')\n"
        "raise RuntimeError('Connection reset by peer')"
    ),
    "hangs": "import time; time.sleep(600)",
    "faults": (
        "import pathlib, time\n"
        "log = pathlib.Path('experiments/quickstart/loop/phases.jsonl')\n"
        'line = \'{"phase": "fault", "step": 2, "said": "rollout engine 1 of 2 has died"}\\n\'\n'
        "log.write_text(line)\n"
        "time.sleep(600)\n"
    ),
    "ends": "pass",
    "logs": (
        "import os, pathlib\n"
        "loop = pathlib.Path('experiments/quickstart/loop')\n"
        "with (loop / 'rounds.jsonl').open('a') as file: file.write('{\"step\": 3}\\n')\n"
        "pathlib.Path(os.environ['VERL_FILE_LOGGER_PATH']).write_text('new')\n"
    ),
}


def run_training(
    recipe: DictConfig, root: Path, what: str, service: str | None = None
) -> list[dict[str, Any]]:
    """Run `train` with a stand-in for seal.train.main and, maybe, for the service."""
    package = root / "seal/train"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    # The training process runs in the project's folder and finds its modules there.
    (package / "main.py").write_text(TRAINERS[what])
    recipe.launcher.environment = {}
    family = Family()
    ended: subprocess.Popen[bytes] | None = None
    if service is not None:
        ended = family.start([sys.executable, "-c", service], root / "service.log", {}, root)
    rounds: list[dict[str, Any]] = []
    try:
        watch = Watch(lambda line: None, rounds.append)
        train(recipe, root / "config.yaml", family, ended, watch)
    finally:
        assert family.end() == []
        assert family.members() == []
    return rounds


def test_a_training_process_that_ends_well(recipe: DictConfig, tmp_path: Path) -> None:
    assert run_training(recipe, tmp_path, "ends") == []


def test_the_reason_of_a_failure_is_its_exception(recipe: DictConfig, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"failed: ValueError: no such layer \(17\) here"):
        run_training(recipe, tmp_path, "fails")


def test_the_reason_is_found_behind_what_ray_puts_before_a_line(
    recipe: DictConfig, tmp_path: Path
) -> None:
    with pytest.raises(RunError, match=r"failed: seal\.client\.EnvironmentFault: 3 lost"):
        run_training(recipe, tmp_path, "fails_in_ray")


@pytest.mark.parametrize(
    ("trainer", "error"),
    [("loses_an_actor", "ActorDiedError"), ("loses_a_rank", "RuntimeError: Connection reset")],
)
def test_a_process_of_the_training_that_died_is_named(
    recipe: DictConfig, tmp_path: Path, trainer: str, error: str
) -> None:
    named = r"Process 6906 on 192\.0\.2\.2 \(WorkerDict\) has died: it was killed"
    with pytest.raises(RunError, match=rf"{error}.* {named}"):
        run_training(recipe, tmp_path, trainer)


def test_a_phase_that_never_ends_is_ended(recipe: DictConfig, tmp_path: Path) -> None:
    recipe.launcher.stall_timeout_s = 1
    with pytest.raises(RunError, match="nothing happened for 1 s in the phase 'start'"):
        run_training(recipe, tmp_path, "hangs")


def test_a_fault_that_the_trainer_reports_ends_the_run(recipe: DictConfig, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"failed: rollout engine 1 of 2 has died\n\(log: "):
        run_training(recipe, tmp_path, "faults")


def test_a_service_that_dies_ends_the_run(recipe: DictConfig, tmp_path: Path) -> None:
    service = "print('disk full', flush=True); raise SystemExit(7)"
    with pytest.raises(RunError, match=r"(?s)during the run \(exit code 7\).*disk full"):
        run_training(recipe, tmp_path, "hangs", service)


def test_a_resumed_run_shows_its_rounds_and_keeps_what_was_logged(
    recipe: DictConfig, tmp_path: Path
) -> None:
    loop = tmp_path / "experiments/quickstart/loop"
    loop.mkdir(parents=True)
    # Killed in round 5, while a line was being written; its last checkpoint is step 2.
    steps = "".join(json.dumps({"step": step, "text": "x" * 99}) + "\n" for step in range(1, 5))
    (loop / "rounds.jsonl").write_text(steps + '{"step": 5, "te')
    metrics = loop.parent / "metrics.jsonl"
    metrics.write_text("old")
    prepare_resume(recipe, 2)
    assert run_training(recipe, tmp_path, "logs") == [{"step": 3}]
    lines = [json.loads(line) for line in (loop / "rounds.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert metrics.read_text() == "new"
    assert metrics.with_name("metrics.1.jsonl").read_text() == "old"
    prepare_resume(recipe, 2)
    assert metrics.with_name("metrics.2.jsonl").read_text() == "new"


def test_a_run_starts_its_own_ray_unless_a_cluster_is_named(
    recipe: DictConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ray_address(recipe) is None
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert ray_address(recipe) == "10.0.0.1:6379"
    monkeypatch.setenv("RAY_ADDRESS", "local")
    assert ray_address(recipe) is None


def test_a_fork_server_starts_where_ray_starts_without_gpus(
    recipe: DictConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "seal/train/cpu"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    (package / "fork_server.py").write_text(
        "import os, sys; print(sys.argv[1], os.environ['VERL_PLATFORM'])"
    )
    (package.parent / "main.py").write_text("import sys; print(sys.argv[1:])")
    family, log = Family(), tmp_path / "fork_server.log"
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    address = start_fork_server(recipe, family, log)
    assert family.children[0].wait() == 0
    assert log.read_text() == f"{address} cpu\n"
    config = tmp_path / "config.yaml"
    train(recipe, config, family, None, Watch(lambda line: None, lambda line: None), address)
    said = (tmp_path / "train.log").read_text()
    assert said == f"{[str(config), f'--fork-server={address}']}\n"

    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert start_fork_server(recipe, family, log) is None
    monkeypatch.delenv("RAY_ADDRESS")
    recipe.trainer.device = "cuda"
    assert start_fork_server(recipe, family, log) is None
    assert len(family.children) == 2
