"""Which checkpoints stay: whole runs with verl's saves replaced by small files, killed anywhere."""

import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig
from typed import sections_with
from verl.trainer.ppo.v1 import PPOTrainerSync

from seal.records.checkpoint_folder import (
    BEST_FILE,
    NOTE,
    Best,
    CheckpointError,
    checkpoint,
    is_complete,
    read_best,
)
from seal.records.loop_log import LoopLog
from seal.settings.reading import SettingsError
from seal.settings.rules import keeps_best
from seal.settings.sections import read_settings
from seal.train import checkpoints, state
from seal.train.checkpoints import CheckpointKeeper
from seal.train.errors import TrainingError
from seal.train.state import LoopState
from seal.train.trainer import SealTrainer

METRIC = "val-seal/benchmark/category_average"
RMTREE = "seal.train.checkpoints.shutil.rmtree"


def recipe(folder: Path, **keys: Any) -> DictConfig:
    """A recipe's keys of checkpoints; `keys` are those of `trainer` and of `seal.checkpoints`."""
    kept = {"keep_best": True, "keep_last": 1}
    trainer = {
        "default_local_dir": str(folder),
        "resume_mode": "auto",
        "resume_from_path": None,
        "save_freq": 1,
        "test_freq": 1,
        "max_actor_ckpt_to_keep": None,
        "remove_previous_ckpt_in_save": False,
    }
    kept |= {key: value for key, value in keys.items() if key in kept}
    trainer |= {key: value for key, value in keys.items() if key not in kept}
    changes = {f"trainer.{key}": value for key, value in trainer.items()}
    seal = {"seal.best_metric": METRIC, "seal.checkpoints": kept, "seal.start_gate": None}
    return sections_with({**changes, **seal})


class Killed(Exception):
    """The process is gone."""


class Replicas:
    """The rollout engine, which must sleep while verl saves after a validation."""

    def __init__(self) -> None:
        self.asleep = False
        self.transfers = 0

    def sleep_replicas(self) -> None:
        self.asleep = True

    def update_weights(self, step: int) -> None:
        self.asleep = False
        self.transfers += 1


class Run:
    """A trainer whose verl saves what a checkpoint needs and no weights."""

    def __init__(self, patch: pytest.MonkeyPatch, config: DictConfig) -> None:
        self.config = config
        self.folder = Path(config.trainer.default_local_dir)
        self.trainer = made = SealTrainer.__new__(SealTrainer)
        made.config = config
        made._settings = read_settings(config)
        made._checkpoints = CheckpointKeeper(made._settings)
        made._state = LoopState()
        made._log = LoopLog(self.folder.parent / "loop")
        made.checkpoint_manager = Replicas()
        self.kill_at: int | None = None
        """Step whose save is cut off."""
        self.asleep: list[bool] = []
        """Whether the rollout engine slept, at each save."""
        patch.setattr(PPOTrainerSync, "_save_checkpoint", lambda _: self._verl_saves())
        patch.setattr(PPOTrainerSync, "_load_checkpoint", lambda _: self._verl_loads())
        patch.setattr(PPOTrainerSync, "_val_metrics_update", lambda *_: {"val-core/x": 0.2})
        made._load_checkpoint()

    def _verl_saves(self) -> None:
        step = self.trainer.global_steps
        self.asleep.append(self.trainer.checkpoint_manager.asleep)
        path = checkpoint(self.folder, step)
        (path / "actor").mkdir(parents=True, exist_ok=True)
        (path / "actor/model_world_size_1_rank_0.pt").write_text(str(step))
        if self.kill_at == step:
            raise Killed
        with zipfile.ZipFile(path / "data.pt", "w") as archive:
            archive.writestr("data", "place in the data")
        (self.folder / NOTE).write_text(str(step))

    def _verl_loads(self) -> None:
        mode, path = self.config.trainer.resume_mode, self.config.trainer.resume_from_path
        last = checkpoints.latest(self.folder) if mode == "auto" else None
        self.trainer.global_steps = int(path.rpartition("_")[2]) if path else last or 0

    def go(self, scores: dict[int, float], steps: int) -> None:
        """Train up to a step, in the order of verl's fit; scores by step are the validations'."""
        for step in range(self.trainer.global_steps + 1, steps + 1):
            self.trainer.global_steps = step
            if step % self.config.trainer.save_freq == 0 or step == steps:
                self.trainer._save_checkpoint()
            if step in scores:
                self.validate(scores[step])

    def validate(self, score: float, suite: str = "benchmark") -> dict[str, float]:
        """A validation of one rollout, in the order of verl's fit; returns its metrics."""
        infos: dict[str, list[Any]] = {
            "suite": [suite],
            "category": ["base"],
            "reward": [score],
            "exit_status": ["completed"],
        }
        metrics = self.trainer._val_metrics_update([], ["group"], infos)
        self.trainer.on_validate_end()
        return metrics

    def kept(self) -> list[int]:
        return sorted(int(path.name.split("_")[-1]) for path in self.folder.glob("global_step_*"))

    def best(self) -> int | None:
        found = read_best(self.folder)
        return found.step if found else None


def test_the_best_stays_beside_the_last_and_ties_keep_the_earlier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(monkeypatch, recipe(tmp_path / "c"))
    run.go({1: 0.25, 2: 0.5, 3: 0.5, 4: 0.25}, 4)
    assert (run.kept(), run.best()) == ([2, 4], 2)
    assert read_best(tmp_path / "c") == Best(METRIC, 0.5, 2)
    assert state.load(tmp_path / "c/global_step_4").best == Best(METRIC, 0.5, 2)
    # Saved in the step already: nothing is saved or sent twice.
    assert run.trainer.checkpoint_manager.transfers == 0


def test_a_best_policy_between_two_saves_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(monkeypatch, recipe(tmp_path / "c", save_freq=4))
    run.go({2: 0.5, 3: 0.25}, 3)
    assert (run.kept(), run.best()) == ([2, 3], 2)  # 3 is the last step, which verl saves
    manager = run.trainer.checkpoint_manager
    assert run.asleep == [True, False]  # the second is verl's own, which this verl does awake
    assert (manager.transfers, manager.asleep) == (1, False)
    assert checkpoints.latest(tmp_path / "c") == 3


def test_the_best_alone_is_what_a_run_is_resumed_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = recipe(tmp_path / "c", keep_last=0)
    run = Run(monkeypatch, config)
    run.go({1: 0.5, 2: 0.25, 3: 0.75, 4: 0.5}, 4)
    assert (run.kept(), run.best(), checkpoints.latest(run.folder)) == ([3], 3, 3)
    again = Run(monkeypatch, config)
    assert again.trainer.global_steps == 3
    again.go({4: 0.5}, 4)
    assert (again.kept(), again.best()) == ([3], 3)


def test_a_resumed_run_knows_the_best_score_and_keeps_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = recipe(tmp_path / "c")
    Run(monkeypatch, config).go({1: 0.25, 2: 0.75, 3: 0.5}, 3)
    resumed = Run(monkeypatch, config)
    assert resumed.trainer.global_steps == 3
    resumed.go({4: 0.5, 5: 0.625}, 5)
    assert (resumed.kept(), resumed.best()) == ([2, 5], 2)
    metrics = resumed.validate(0.5)
    assert (metrics["val-seal/best/score"], metrics["val-seal/best/step"]) == (0.75, 2)


def test_a_validation_of_a_resumed_step_saves_no_weights_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = recipe(tmp_path / "c")
    Run(monkeypatch, config).go({1: 0.5, 2: 0.25}, 2)
    # Before training goes on, step 2 is validated again, and samples may fall out better.
    resumed = Run(monkeypatch, config)
    resumed.validate(0.75)
    assert (resumed.asleep, resumed.kept(), resumed.best()) == ([], [2], 2)
    assert state.load(tmp_path / "c/global_step_2").best == Best(METRIC, 0.75, 2)


def test_without_a_best_the_score_is_still_known_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = recipe(tmp_path / "c", keep_best=False, keep_last=2)
    run = Run(monkeypatch, config)
    run.go({1: 0.75, 2: 0.5, 3: 0.25}, 3)
    assert (run.kept(), run.best()) == ([2, 3], None)
    assert Run(monkeypatch, config).trainer._state.best == Best(METRIC, 0.75, 1)


def test_a_best_checkpoint_that_somebody_deleted_is_no_bar_for_those_to_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = recipe(tmp_path / "c")
    Run(monkeypatch, config).go({1: 0.75, 2: 0.25}, 2)
    checkpoint(tmp_path / "c", 1).rename(tmp_path / "elsewhere")
    resumed = Run(monkeypatch, config)
    assert "of step 1" in caplog.text
    resumed.go({3: 0.5}, 3)
    assert (resumed.kept(), resumed.best()) == ([3], 3)


def test_a_run_that_goes_back_behind_the_best_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "c"
    Run(monkeypatch, recipe(folder, keep_last=None)).go({1: 0.25, 2: 0.5, 3: 0.25}, 3)
    back = {"resume_mode": "resume_path", "resume_from_path": str(folder / "global_step_1")}
    with pytest.raises(CheckpointError, match="from step 1 on would overwrite .* of step 2"):
        Run(monkeypatch, recipe(folder, **back))
    # Elsewhere it is a run of its own, with a best checkpoint of its own.
    fork = Run(monkeypatch, recipe(tmp_path / "fork", **back))
    fork.validate(0.25)
    assert (fork.kept(), fork.best()) == ([1], 1)
    assert sorted(path.name for path in folder.glob("global_step_*"))[-1] == "global_step_3"


def test_the_model_that_training_starts_from_is_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(monkeypatch, recipe(tmp_path / "c"))
    run.validate(1.0)
    assert run.trainer._state.best is None
    run.go({1: 0.25}, 1)
    assert run.best() == 1


@pytest.mark.parametrize("step", [0, 3])
def test_a_missing_metric_names_those_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    run = Run(monkeypatch, recipe(tmp_path / "c"))
    run.trainer.global_steps = step
    with pytest.raises(TrainingError, match="there are: val-seal/other/category_average, val"):
        run.validate(0.1, suite="other")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"test_freq": -1}, "trainer.test_freq=-1 makes none"),
        ({"max_actor_ckpt_to_keep": 3}, "set seal.checkpoints.keep_last instead"),
        ({"remove_previous_ckpt_in_save": True}, "set seal.checkpoints.keep_last instead"),
        ({"keep_best": False, "keep_last": 0}, "trainer.save_freq=-1"),
        ({"keep_last": -1}, "keep_last=-1: expected a whole number of at least 0"),
    ],
)
def test_what_cannot_be_kept_is_refused_at_the_start(
    tmp_path: Path, keys: dict[str, Any], words: str
) -> None:
    with pytest.raises(SettingsError, match=words):
        keeps_best(read_settings(recipe(tmp_path, **keys)))


def test_a_run_without_checkpoints_needs_no_validation(tmp_path: Path) -> None:
    assert not keeps_best(read_settings(recipe(tmp_path, save_freq=-1, test_freq=-1)))


# ---- anything may happen -------------------------------------------------------------------


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    scores=st.dictionaries(st.integers(1, 12), st.sampled_from([0.0, 0.25, 0.5, 0.75]), min_size=1),
    keep_last=st.sampled_from([0, 1, 2, None]),
    save_freq=st.integers(1, 4),
    kills=st.lists(st.integers(1, 12), max_size=3),
)
def test_the_best_and_the_last_survive_every_kill(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    scores: dict[int, float],
    keep_last: int | None,
    save_freq: int,
    kills: list[int],
) -> None:
    config = recipe(tmp_path_factory.mktemp("run") / "c", keep_last=keep_last, save_freq=save_freq)
    for kill in [*kills, None]:
        run = Run(monkeypatch, config)
        run.kill_at = kill
        try:
            run.go(scores, 12)
        except Killed:
            # At every moment: the best that was named, and the one to resume from, are whole.
            named = read_best(run.folder)
            if named is not None:
                assert is_complete(checkpoint(run.folder, named.step))
            last = checkpoints.latest(run.folder)
            assert last is None or is_complete(run.folder / f"global_step_{last}")
    # In the end everything is as if nothing had happened.
    best = min(scores, key=lambda step: (-scores[step], step))
    assert run.best() == best
    assert is_complete(run.folder / f"global_step_{best}")
    saved = {*range(save_freq, 13, save_freq), 12} if keep_last != 0 else set()
    if keep_last is not None:
        # Saves that a validation asked for count among the last ones, too.
        assert len(run.kept()) <= keep_last + 1
        assert max(saved | {best}) in run.kept()
    else:
        assert saved | {best} <= set(run.kept())
    assert not list(run.folder.glob("deleted_*"))
    assert not [step for step in run.kept() if not is_complete(checkpoint(run.folder, step))]


def test_what_is_left_of_a_save_that_was_cut_off_is_none_of_the_last_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = Run(monkeypatch, recipe(tmp_path / "c", keep_best=False, keep_last=2))
    killed.kill_at = 2
    with pytest.raises(Killed):
        killed.go({}, 3)
    assert killed.kept() == [1, 2]
    resumed = Run(monkeypatch, recipe(tmp_path / "c", keep_best=False, keep_last=2, save_freq=3))
    resumed.go({}, 3)
    assert resumed.kept() == [1, 3]


def test_a_deletion_that_was_cut_off_leaves_nothing_that_looks_like_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = recipe(tmp_path / "c", keep_best=False)
    run = Run(monkeypatch, config)
    with monkeypatch.context() as patch:
        patch.setattr(RMTREE, lambda path: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            run.go({}, 2)
    assert run.kept() == [2]
    assert [path.name for path in run.folder.glob("deleted_*")] == ["deleted_global_step_1"]
    Run(monkeypatch, config).go({}, 3)
    assert not list(run.folder.glob("deleted_*"))


def test_a_save_over_a_whole_checkpoint_that_is_cut_off_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(monkeypatch, recipe(tmp_path / "c", keep_last=None))
    run.go({}, 2)
    run.trainer.global_steps = 1
    run.kill_at = 2
    with pytest.raises(Killed):
        run.go({}, 2)
    assert is_complete(tmp_path / "c/global_step_1")
    assert not is_complete(tmp_path / "c/global_step_2")


def test_a_folder_that_cannot_be_deleted_ends_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def busy(path: Path) -> None:
        raise OSError(16, "Device or resource busy", ".nfs0001")

    run = Run(monkeypatch, recipe(tmp_path / "c", keep_best=False))
    with monkeypatch.context() as patch:
        patch.setattr(RMTREE, busy)
        run.go({}, 3)
        assert run.kept() == [3]
        assert len(list(run.folder.glob("deleted_*"))) == 2
    assert "cannot be deleted yet" in caplog.text
    run.go({}, 4)
    assert not list(run.folder.glob("deleted_*"))


def test_without_keep_best_no_checkpoint_is_named_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Run(monkeypatch, recipe(tmp_path / "c")).go({1: 0.75, 2: 0.5}, 2)
    resumed = Run(monkeypatch, recipe(tmp_path / "c", keep_best=False))
    resumed.go({}, 3)
    assert (resumed.kept(), resumed.best()) == ([3], None)


# ---- finding one ---------------------------------------------------------------------------


def test_best_and_last_are_found_from_an_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Run(monkeypatch, recipe(tmp_path / "checkpoints")).go({1: 0.5, 2: 0.25}, 2)
    for path in (tmp_path, tmp_path / "checkpoints"):
        assert checkpoints.find(path, "best").name == "global_step_1"
        assert checkpoints.find(path, "last").name == "global_step_2"
    # A kill may come before verl's note.
    (tmp_path / "checkpoints" / NOTE).unlink()
    assert checkpoints.find(tmp_path, "best").name == "global_step_1"
    assert checkpoints.find(tmp_path, "last").name == "global_step_2"
    named = tmp_path / "checkpoints/global_step_2"
    assert checkpoints.find(named, "best") == named


def test_what_is_not_found_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, words in ((tmp_path / "none", "is no folder"), (tmp_path, "no complete checkpoint")):
        with pytest.raises(CheckpointError, match=words):
            checkpoints.find(path, "last")
    run = Run(monkeypatch, recipe(tmp_path / "c", keep_best=False, save_freq=1))
    run.go({}, 1)
    with pytest.raises(CheckpointError, match="--which last"):
        checkpoints.find(tmp_path / "c", "best")
    (tmp_path / "c/global_step_1/data.pt").unlink()
    with pytest.raises(CheckpointError, match="is not complete"):
        checkpoints.find(tmp_path / "c/global_step_1", "last")
    (tmp_path / "c/global_step_1").rename(tmp_path / "c/elsewhere")
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        checkpoints.find(tmp_path / "c", "last")
    (tmp_path / "c" / BEST_FILE).write_text("{")
    with pytest.raises(CheckpointError, match=r"best.json cannot be read"):
        checkpoints.find(tmp_path / "c", "best")
    (tmp_path / "c" / BEST_FILE).unlink()
    (tmp_path / "c" / NOTE).write_text("soon")
    with pytest.raises(CheckpointError, match="holds no step"):
        checkpoints.latest(tmp_path / "c")
