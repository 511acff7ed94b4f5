import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from seal.launch.folders import (
    RunError,
    check_outputs_free,
    locked_name,
    run_name,
    set_earlier_outputs_aside,
)


@pytest.mark.parametrize("name", ["", ".", "../x", "a/b", "a b"])
def test_a_name_that_is_no_folder_is_refused(recipe: DictConfig, name: str) -> None:
    recipe.trainer.experiment_name = name
    with pytest.raises(RunError, match="cannot name a folder"):
        run_name(recipe)


@pytest.mark.parametrize(
    "name",
    ["tech_synthetic", "tiny_policy", "evaluation", "study", "gpu_smoke", "mine", "try.lock"],
)
def test_a_name_whose_folder_is_something_else_is_refused(recipe: DictConfig, name: str) -> None:
    recipe.actor_rollout_ref.model.path = "experiments/mine/model"
    recipe.trainer.experiment_name = name
    with pytest.raises(RunError, match=r"has another use|lock files end in \.lock"):
        run_name(recipe)


@pytest.mark.parametrize(
    "key",
    [
        "trainer.default_local_dir",
        "trainer.validation_data_dir",
        "trainer.rollout_data_dir",
        "seal.loop_dir",
    ],
)
def test_a_run_does_not_start_anew_into_a_foreign_folder_with_content(
    recipe: DictConfig, tmp_path: Path, key: str
) -> None:
    (tmp_path / "experiments/quickstart/checkpoints/global_step_1").mkdir(parents=True)
    check_outputs_free(recipe)  # its own folders are set aside
    OmegaConf.update(recipe, key, str(tmp_path / "scratch"))
    check_outputs_free(recipe)
    (tmp_path / "scratch").mkdir()
    check_outputs_free(recipe)
    (tmp_path / "scratch/file").touch()
    with pytest.raises(RunError, match=f"{key}=.*scratch is not empty"):
        check_outputs_free(recipe)


def test_earlier_outputs_are_set_aside_and_never_lost(recipe: DictConfig, tmp_path: Path) -> None:
    assert set_earlier_outputs_aside(recipe) is None
    for content in ("first", "second"):
        (tmp_path / "experiments/quickstart/loop").mkdir(parents=True)
        (tmp_path / "experiments/quickstart/loop/rounds.jsonl").write_text(content)
        set_earlier_outputs_aside(recipe)
        assert not (tmp_path / "experiments/quickstart").exists()
    kept = [tmp_path / f"experiments/quickstart.{n}/loop/rounds.jsonl" for n in (1, 2)]
    assert [path.read_text() for path in kept] == ["first", "second"]


def test_the_folders_of_a_run_are_set_aside_under_one_number(
    recipe: DictConfig, tmp_path: Path
) -> None:
    folders = ("experiments", "experiments/tech_synthetic", "launcher_record")
    (tmp_path / "launcher_record/quickstart.1").mkdir(parents=True)
    for folder in folders:
        (tmp_path / folder / "quickstart").mkdir(parents=True)
    assert set_earlier_outputs_aside(recipe) == tmp_path / "experiments/quickstart.2"
    assert all((tmp_path / folder / "quickstart.2").is_dir() for folder in folders)


HOLDER = """
import subprocess, sys, time
from pathlib import Path
from omegaconf import OmegaConf
from seal.launch import folders
folders.ROOT = Path(sys.argv[1])
recipe = OmegaConf.create({"trainer": {"experiment_name": "quickstart"}})
with folders.locked_name(recipe, "first"):
    # What outlives its launcher must not keep the name.
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(child.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A launcher that holds the name, with a child that outlives it."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    yield process
    os.kill(child, signal.SIGKILL)
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_name_has_one_launcher_until_it_dies_by_whatever(
    recipe: DictConfig, holder: "subprocess.Popen[str]"
) -> None:
    with pytest.raises(RunError, match=f"already being launched .* by process {holder.pid};"):
        with locked_name(recipe, "second"):
            pass
    holder.kill()
    assert holder.wait() == -signal.SIGKILL
    with locked_name(recipe, "second") as before:
        assert before == "first"
    with locked_name(recipe, "third") as before:
        assert before == "second"


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_without_locks_a_launch_that_lives_is_told_and_never_ended(
    recipe: DictConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    holder: "subprocess.Popen[str]",
    number: int,
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(RunError, match=f"already being launched .* by process {holder.pid};"):
        with locked_name(recipe, "second"):
            pass
    path = tmp_path / "launcher_record/quickstart.lock"
    assert json.loads(path.read_text())["launch_id"] == "first"
    # Another machine's process, or another process of the same id: nothing is known of it.
    written = path.read_text()
    for change in ({"host": "another"}, {"created": 1.0}):
        path.write_text(json.dumps({**json.loads(written), **change}))
        with locked_name(recipe, "second") as before:
            assert before is None
    path.write_text(written)
    holder.kill()
    holder.wait()
    with locked_name(recipe, "second") as before:
        assert before is None


def test_another_name_is_free(recipe: DictConfig) -> None:
    other = recipe.copy()
    other.trainer.experiment_name = "other"
    with locked_name(recipe, "a"), locked_name(other, "b"):
        pass


def test_a_lock_file_of_another_kind_does_no_harm(recipe: DictConfig, tmp_path: Path) -> None:
    path = tmp_path / "launcher_record/quickstart.lock"
    path.parent.mkdir()
    path.write_text("123\n")
    with locked_name(recipe, "a") as before:
        assert before is None
