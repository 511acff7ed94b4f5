"""What the loop carries over: a round's step, and a file that survives anything."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from labelled import rollout

from seal.coevolution.drawing import Drawing, Drawn
from seal.coevolution.interface import INITIAL
from seal.coevolution.rollout import Rollout
from seal.coevolution.utilities import UtilityConfig
from seal.coevolution.weights import UTILITIES, WeightConfig
from seal.labels import Label
from seal.records.checkpoint_folder import Best
from seal.train import state
from seal.train.errors import TrainingError
from seal.train.state import LoopConfig, LoopState, after_round
from seal.train.validation import scored

SHOWN = replace(INITIAL, version=4, schema_cues=True, guidelines=(Label.MISSING_TOOL_CALL,))


def failed(label: Label, times: int = 8) -> list[Rollout]:
    return [rollout([label])] * times


def rounds(config: LoopConfig, count: int) -> LoopState:
    labels = (Label.MISSING_TOOL_CALL, Label.STATE_MISMATCH, Label.ARGUMENT_MISMATCH)
    made = LoopState()
    for step in range(1, count + 1):
        made = after_round(made, step, failed(labels[step % 3]), SHOWN, config)
    return made


def config(**settings: Any) -> LoopConfig:
    return LoopConfig(WeightConfig(), UtilityConfig(enabled=True), **settings)


def test_c_t_looks_back_on_its_window_and_carries_the_rounds_number() -> None:
    made = rounds(config(window_rounds=2), 3)
    assert made.profile.version == made.step == 3
    assert made.profile.by_label.keys() == {Label.ARGUMENT_MISMATCH, Label.MISSING_TOOL_CALL}
    assert made.history.total.by_label[Label.STATE_MISMATCH].turns == 8
    assert made.shown == SHOWN
    assert made.utilities[Label.MISSING_TOOL_CALL] > UTILITIES[Label.MISSING_TOOL_CALL]


def test_a_frozen_profile_stays_and_its_version_does_not() -> None:
    frozen = rounds(config(frozen_after=1), 3)
    first = rounds(config(), 1)
    assert frozen.profile == replace(first.profile, version=3)
    assert frozen.utilities == first.utilities
    assert frozen.history.total.by_label.keys() == rounds(config(), 3).history.total.by_label.keys()


@pytest.mark.parametrize("setting", ["window_rounds", "frozen_after"])
def test_a_number_of_rounds_below_1_is_refused(setting: str) -> None:
    with pytest.raises(ValueError, match=f"{setting} must be at least 1.* got 0"):
        config(**{setting: 0})


def test_a_state_survives_the_disk(tmp_path: Path) -> None:
    made = replace(rounds(config(window_rounds=2), 5), best=Best("m", 0.25, 4))
    state.save(made, tmp_path / "global_step_5")
    assert state.load(tmp_path / "global_step_5") == made
    # Going on from it is going on.
    step = failed(Label.RESPONSE_MISMATCH)
    again = state.load(tmp_path / "global_step_5")
    later = (after_round(one, 6, step, SHOWN, config(window_rounds=2)) for one in (made, again))
    assert len({json.dumps(one.to_json()) for one in later}) == 1


def test_a_save_that_is_cut_off_leaves_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = rounds(config(), 1)
    state.save(made, tmp_path)

    def full_disk(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("seal.records.whole_file.os.fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        state.save(rounds(config(), 2), tmp_path)
    assert state.load(tmp_path) == made


def test_a_checkpoint_of_somebody_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="not saved by this trainer"):
        state.load(tmp_path)
    for broken in ("", "{", "[]", '{"step": 1}', json.dumps({**LoopState().to_json(), "best": 3})):
        (tmp_path / state.FILE).write_text(broken)
        with pytest.raises(TrainingError, match="cannot be read"):
            state.load(tmp_path)


REAL = rollout([Label.MISSING_TOOL_CALL], task_id="multi_turn_base_1")
DRAWN = rollout([Label.STATE_MISMATCH], task_id="synthetic_some_000001_1")


def test_scores_come_from_real_tasks_and_c_t_from_all() -> None:
    steered, begun = config(refresh=1), LoopState(drawing=Drawing("hash", Drawn(0, (3,))))
    made = after_round(begun, 1, [REAL, DRAWN, DRAWN], SHOWN, steered)
    assert made.drawing is not None
    assert made.drawing.scores == {Label.MISSING_TOOL_CALL: 1.0}
    assert made.drawing.drawn == Drawn(0, (3,))
    assert made.profile.by_label[Label.STATE_MISMATCH].turns == 2
    # A round without a real task has no other profile.
    made = after_round(made, 2, [DRAWN], SHOWN, steered)
    assert made.drawing is not None
    assert made.drawing.scores == {Label.STATE_MISMATCH: 1.0}
    # Without steering, and without a pool, nothing is scored.
    plain = after_round(begun, 1, [REAL], SHOWN, config())
    assert plain.drawing == begun.drawing
    assert after_round(LoopState(), 1, [REAL], SHOWN, steered).drawing is None


def test_a_frozen_profile_steers_no_more() -> None:
    begun = LoopState(drawing=Drawing("hash"))
    frozen = config(refresh=1, frozen_after=1)
    first = after_round(begun, 1, [REAL], SHOWN, frozen)
    second = after_round(first, 2, [DRAWN], SHOWN, frozen)
    assert second.drawing == first.drawing != begun.drawing


def test_a_drawing_survives_the_disk_and_older_states_have_none(tmp_path: Path) -> None:
    made = after_round(
        LoopState(drawing=Drawing("hash", Drawn(1, (3, 1)))), 1, [REAL], SHOWN, config(refresh=1)
    )
    state.save(made, tmp_path)
    assert state.load(tmp_path) == made
    older = {key: value for key, value in made.to_json().items() if key != "drawing"}
    (tmp_path / state.FILE).write_text(json.dumps(older))
    assert state.load(tmp_path) == replace(made, drawing=None)
    (tmp_path / state.FILE).write_text(json.dumps({**older, "drawing": {"passes": 1}}))
    with pytest.raises(TrainingError, match="cannot be read"):
        state.load(tmp_path)


def test_the_first_of_equal_scores_is_the_best() -> None:
    made = LoopState()
    for step, score in ((0, 0.25), (10, 0.5), (20, 0.5), (30, 0.375)):
        made = scored(made, {"m": score}, "m", step)
    assert made.best == Best("m", 0.5, 10)
