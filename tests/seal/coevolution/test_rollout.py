"""The record of a rollout: its JSON in verl's queue and in the loop log, and how it is read."""

import json

import pytest

from seal.coevolution.rollout import Rollout
from seal.labels import Label
from seal.records.json_lines import json_lines
from seal.wire import TurnDiagnosis, from_json

PLAYED = Rollout(
    task_id="multi_turn_base_91",
    category="multi_turn_base",
    reward=0.0,
    training_reward=0.25,
    turns=(
        TurnDiagnosis(0, Label.PASS, "state and responses are what the verifier expects", None),
        TurnDiagnosis(1, Label.STATE_MISMATCH, "the state differs", 2, cascade=True),
    ),
    interface_version=3,
    interface_shown=True,
    exit_status="max_model_len",
    environment_s=1.5,
    turn_spans=((0, 0, 40), (1, 90, 110)),
)
LINE = (
    '{"task_id": "multi_turn_base_91", "category": "multi_turn_base", "reward": 0.0, '
    '"training_reward": 0.25, "turns": [{"turn": 0, "label": "pass", "reason": "state and '
    'responses are what the verifier expects", "step": null, "cascade": false}, {"turn": 1, '
    '"label": "state_mismatch", "reason": "the state differs", "step": 2, "cascade": true}], '
    '"interface_version": 3, "interface_shown": true, "exit_status": "max_model_len", '
    '"environment_s": 1.5, "turn_spans": [[0, 0, 40], [1, 90, 110]], "truncated": true}\n'
)
"""As the loop log had it when labels were plain text."""


def test_a_line_of_the_loop_log_is_what_it_was_and_gives_the_same_rollout() -> None:
    assert json_lines([PLAYED.to_json()]) == LINE
    line = json.loads(LINE)
    # A line has more fields, of the round and of the tokens.
    read = from_json(Rollout, {"step": 7, "uid": "a_0_0", "weights": [1.0, 1.0], **line})
    assert read == PLAYED and hash(read) == hash(PLAYED)
    assert all(type(label) is Label for label in read.labels)


def test_whatever_the_policy_did_not_end_itself_is_truncated() -> None:
    ends = ("completed", "step_limit", "response_length", "max_model_len")
    rollouts = [from_json(Rollout, {**PLAYED.to_json(), "exit_status": end}) for end in ends]
    assert [rollout.truncated for rollout in rollouts] == [False, True, True, True]


def test_a_label_that_is_none_is_refused_by_its_name() -> None:
    line = json.loads(LINE.replace("state_mismatch", "state_missmatch"))
    with pytest.raises(ValueError, match="label 'state_missmatch'; known labels: invalid_"):
        from_json(Rollout, line)
