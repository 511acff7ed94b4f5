import json
import shlex
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf
from project_folder import make_checkpoint, note_latest, write_tasks

from seal.launch.folders import RunError
from seal.launch.resume import (
    check_resume,
    checkpoint_step,
    differences,
    how_to_resume,
    misses_validation,
    set_resume_mode,
)
from seal.launch.training import prepare_resume


@pytest.fixture
def begun(recipe: DictConfig, tmp_path: Path) -> DictConfig:
    """A run that was killed after checkpoint 8 of 16 steps."""
    note_latest(make_checkpoint(tmp_path, 8))
    (tmp_path / "launcher_record/quickstart").mkdir(parents=True)
    OmegaConf.save(recipe, tmp_path / "launcher_record/quickstart/config.yaml")
    return recipe


def test_the_option_alone_decides_whether_a_run_goes_on(recipe: DictConfig) -> None:
    for resume, mode in ((True, "auto"), (False, "disable")):
        set_resume_mode(recipe, [], resume)
        assert recipe.trainer.resume_mode == mode
    for override in ("trainer.resume_mode=auto", "++trainer.resume_mode=disable"):
        with pytest.raises(RunError, match="only --resume decides"):
            set_resume_mode(recipe, [override], True)


def test_a_named_checkpoint_needs_the_option(recipe: DictConfig) -> None:
    recipe.trainer.resume_from_path = "experiments/x/checkpoints/global_step_4"
    with pytest.raises(RunError, match="needs --resume"):
        set_resume_mode(recipe, [], False)
    # verl would read the slash as part of the number.
    recipe.trainer.resume_from_path += "/"
    set_resume_mode(recipe, [], True)
    assert recipe.trainer.resume_mode == "resume_path"
    assert recipe.trainer.resume_from_path == "experiments/x/checkpoints/global_step_4"


def test_a_run_goes_on_from_its_last_checkpoint(begun: DictConfig) -> None:
    assert check_resume(begun) == 8


def test_without_a_checkpoint_there_is_nothing_to_resume(recipe: DictConfig) -> None:
    with pytest.raises(RunError, match=r"nothing to resume: experiments/quickstart/checkpoints"):
        check_resume(recipe)


def test_without_its_record_a_run_is_not_resumed(begun: DictConfig, tmp_path: Path) -> None:
    (tmp_path / "launcher_record/quickstart/config.yaml").unlink()
    with pytest.raises(RunError, match=r"launcher_record/quickstart/config\.yaml does not exist"):
        check_resume(begun)


def validated(recipe: DictConfig, root: Path, step: int) -> None:
    log = root / recipe.trainer.validation_data_dir / f"{step}.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text("{}\n")


def test_a_run_that_has_all_its_steps_says_how_to_make_it_longer(
    begun: DictConfig, tmp_path: Path
) -> None:
    begun.trainer.total_training_steps = 8
    validated(begun, tmp_path, 8)
    with pytest.raises(RunError, match=r"all of its 8 steps.*total_training_steps=N"):
        check_resume(begun)


def test_a_run_that_was_interrupted_in_its_last_validation_goes_on_to_it(
    begun: DictConfig, tmp_path: Path
) -> None:
    begun.trainer.total_training_steps = 8
    begun.trainer.test_freq = 5
    assert misses_validation(begun, 8)
    assert check_resume(begun) == 8
    for change in ({"test_freq": -1}, {"validation_data_dir": None}):
        without = begun.copy()
        without.trainer.update(change)
        assert not misses_validation(without, 8)
    validated(begun, tmp_path, 8)
    assert not misses_validation(begun, 8)


def test_a_run_that_goes_on_in_its_middle_makes_up_only_for_a_validation_that_was_due(
    begun: DictConfig, tmp_path: Path
) -> None:
    begun.trainer.total_training_steps = 9
    begun.trainer.test_freq = 4
    assert misses_validation(begun, 8)
    validated(begun, tmp_path, 8)
    assert not misses_validation(begun, 8)
    begun.trainer.test_freq = 3
    assert not misses_validation(begun, 7)


def test_a_run_whose_length_is_in_epochs_is_not_gone_on_with_after_its_last_step(
    begun: DictConfig, tmp_path: Path
) -> None:
    validated(begun, tmp_path, 8)
    for number, rows in enumerate((20, 13)):
        write_tasks(
            tmp_path / f"{number}.parquet", {f"multi_turn_base_{n}": "" for n in range(rows)}
        )
    begun.data.train_files = ["0.parquet", "1.parquet"]
    begun.data.train_batch_size = 8
    begun.trainer.total_training_steps = None
    begun.trainer.total_epochs = 2
    OmegaConf.save(begun, tmp_path / "launcher_record/quickstart/config.yaml")
    with pytest.raises(RunError, match=r"all of its 8 steps.*total_epochs=N"):
        check_resume(begun)
    begun.trainer.total_epochs = 3
    assert check_resume(begun) == 8
    (tmp_path / "1.parquet").write_text("no parquet")
    with pytest.raises(RunError, match=r"1\.parquet cannot be read"):
        check_resume(begun)


def test_going_back_leaves_no_later_checkpoint_to_be_taken_for_the_new_branch(
    begun: DictConfig, tmp_path: Path
) -> None:
    older = make_checkpoint(tmp_path, 4)
    folder = older.parent
    half = make_checkpoint(tmp_path, 12)
    (half / "data.pt").unlink()
    (folder / "abandoned_global_step_8").mkdir()  # of a time before
    begun.trainer.resume_from_path = str(older.relative_to(tmp_path))
    set_resume_mode(begun, [], True)
    assert prepare_resume(begun, check_resume(begun)) == [folder / "abandoned_global_step_8.1"]
    assert (folder / "abandoned_global_step_8.1/data.pt").is_file()
    assert not half.exists() and (folder / "deleted_global_step_12").exists()
    assert (folder / "latest_checkpointed_iteration.txt").read_text() == "4"
    begun.trainer.resume_from_path = None
    assert check_resume(begun) == 4


def test_a_run_does_not_go_back_behind_its_best(begun: DictConfig, tmp_path: Path) -> None:
    older = make_checkpoint(tmp_path, 4)
    best = older.parent / "best.json"
    best.write_text(json.dumps({"metric": "m", "score": 0.5, "step": 8}))
    begun.trainer.resume_from_path = str(older.relative_to(tmp_path))
    with pytest.raises(RunError, match="goes on from step 4 loses the best .* step 8"):
        check_resume(begun)
    begun.seal.checkpoints.keep_best = False
    prepare_resume(begun, check_resume(begun))
    assert not best.exists()
    assert (older.parent / "abandoned_global_step_8").is_dir()
    best.write_text("{")
    with pytest.raises(RunError, match=r"best\.json cannot be read"):
        check_resume(begun)


def test_keys_that_change_the_run_are_named(begun: DictConfig) -> None:
    begun.seed = 7
    begun.seal.weights.w_max = 3.0
    with pytest.raises(RunError) as refused:
        check_resume(begun)
    assert "seal.weights.w_max is 3.0 (recorded: 2.0)" in str(refused.value)
    assert "seed is 7 (recorded: 1)" in str(refused.value)


def test_keys_that_do_not_change_the_run_may_differ(begun: DictConfig) -> None:
    begun.trainer.total_training_steps = 99
    begun.trainer.logger = ["console"]
    begun.env_service.env_url = ["http://a:1", "http://b:2"]
    begun.actor_rollout_ref.rollout.gpu_memory_utilization = 0.1
    begun.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu = 1
    begun.seal.run_id = "another"
    assert check_resume(begun) == 8


def test_a_key_that_came_or_went_is_a_difference(recipe: DictConfig) -> None:
    other = OmegaConf.create({**recipe, "mine": {"new": 1}})
    assert differences(recipe, other) == ["mine.new is 1 (recorded: not there)"]
    assert differences(other, recipe) == ["mine.new is not there (recorded: 1)"]


def test_a_great_difference_is_told_in_part(begun: DictConfig) -> None:
    changed = list(begun.seal.weights.utilities)
    for key in changed:
        begun.seal.weights.utilities[key] = 9.0
    with pytest.raises(RunError, match=f"and {len(changed) - 8} more"):
        check_resume(begun)


HALF = {
    "no state": lambda folder: (folder / "seal_state.json").unlink(),
    "half a state": lambda folder: (folder / "seal_state.json").write_text('{"st'),
    "no data": lambda folder: (folder / "data.pt").unlink(),
    "half the data": lambda folder: (folder / "data.pt").write_bytes(
        (folder / "data.pt").read_bytes()[:-1]
    ),
    "empty data": lambda folder: (folder / "data.pt").write_bytes(b""),
    "no actor": lambda folder: (
        (folder / "actor/model_world_size_2_rank_0.pt").unlink()
        or (folder / "actor/model_world_size_2_rank_1.pt").unlink()
    ),
    "a shard is missing": lambda folder: (folder / "actor/model_world_size_2_rank_1.pt").unlink(),
}


@pytest.mark.parametrize("what", HALF)
def test_a_checkpoint_that_was_being_written_is_passed_over(
    begun: DictConfig, tmp_path: Path, what: str
) -> None:
    half = make_checkpoint(tmp_path, 12, shards=2)
    assert checkpoint_step(begun) == 12
    HALF[what](half)
    assert check_resume(begun) == 8


@pytest.mark.parametrize("note", ["", "8", "4", "x", None])
def test_the_note_names_the_last_whole_checkpoint_afterwards(
    begun: DictConfig, tmp_path: Path, note: str | None
) -> None:
    """The kill came when the checkpoint was whole and the note not yet written, or empty."""
    path = note_latest(make_checkpoint(tmp_path, 12))
    path.unlink() if note is None else path.write_text(note)
    prepare_resume(begun, check_resume(begun))
    assert path.read_text() == "12"
    assert [entry.name for entry in path.parent.iterdir() if entry.is_file()] == [path.name]


@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.sets(st.integers(1, 10**4), min_size=1, max_size=5))
def test_the_last_checkpoint_goes_by_number(
    recipe: DictConfig, tmp_path_factory: pytest.TempPathFactory, steps: set[int]
) -> None:
    root = tmp_path_factory.mktemp("many")
    folder = make_checkpoint(root, min(steps)).parent
    for step in steps - {min(steps)}:
        make_checkpoint(root, step)
    (folder / "global_step_latest").mkdir()
    (folder / "deleted_global_step_99999").mkdir()
    recipe.trainer.default_local_dir = str(folder)
    assert checkpoint_step(recipe) == max(steps)


def test_a_named_checkpoint_has_to_be_whole(begun: DictConfig, tmp_path: Path) -> None:
    older = make_checkpoint(tmp_path, 4)
    note = older.parent / "latest_checkpointed_iteration.txt"
    begun.trainer.resume_from_path = str(older.relative_to(tmp_path))
    assert check_resume(begun) == 4
    assert note.read_text() == "8"
    (older / "data.pt").unlink()
    with pytest.raises(RunError, match="is not a whole checkpoint"):
        check_resume(begun)


def test_what_torch_saves_counts_as_whole(begun: DictConfig, tmp_path: Path) -> None:
    import torch

    torch.save({"sampler": [1, 2]}, make_checkpoint(tmp_path, 12) / "data.pt")
    assert check_resume(begun) == 12


def test_the_user_is_told_the_command(begun: DictConfig, tmp_path: Path) -> None:
    argv = ["--conf", "exp/my recipe.yaml", "--with-bfcl", "--", "seed=2"]
    text = how_to_resume(begun, argv)
    assert "up to 8 are saved" in text
    command = shlex.split(text.splitlines()[-1])
    assert command == [".venv/bin/python", "launcher.py", "--resume", *argv]
    # Interrupted again, after a checkpoint was named.
    again = ["--resume", *argv, "trainer.resume_from_path=x/global_step_4"]
    assert how_to_resume(begun, again) == text
    (tmp_path / "experiments/quickstart/checkpoints/global_step_8/data.pt").unlink()
    assert "no checkpoint has been saved yet (trainer.save_freq=16)" in how_to_resume(begun, argv)


def test_a_checkpoint_of_another_folder_stays_named_until_something_is_saved(
    recipe: DictConfig, tmp_path: Path
) -> None:
    other = make_checkpoint(tmp_path, 4, name="other")
    recipe.trainer.resume_from_path = str(other.relative_to(tmp_path))
    assert "give the same command again" in how_to_resume(recipe, ["--resume"])
    make_checkpoint(tmp_path, 6)
    assert "up to 6 are saved" in how_to_resume(recipe, ["--resume"])
