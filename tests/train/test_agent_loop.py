"""A rollout's reward, lost instances and limits, with SmolLM2's tokenizer and template.

What its tokens are is held by test_rollout_tokens.py.
"""

import asyncio
from collections import Counter
from typing import Any

import pytest
from rollouts import EVAL, TRAIN, RolledOut, World, agent, backbone, configuration
from rollouts import roll_out as play

from seal.backbone.prompt_budget import PromptBudgetError
from seal.client.client import EnvironmentFault

ANSWERS = ("call", "Done", "call", "Done")
"""What the policy says: two turns of a call, which is observed, and an answer, which ends them."""
SAID = 4
"""Tokens of each: the word, " instance", its number and the end."""
BETWEEN = 11
"""Tokens of the first result, with the line break before it and the opening of the next answer."""
PROMPT = 33
"""Tokens of the prompt."""

LOSSES = [
    ("/create", 409, "unknown_interface"),
    ("/step", 404, "unknown_instance"),
    ("/step", 500, "internal_error"),
    ("/evaluate", 500, "internal_error"),
]


def roll_out(
    monkeypatch: pytest.MonkeyPatch,
    world: World,
    row: dict[str, Any] = TRAIN,
    /,
    **limits: int | None,
) -> RolledOut:
    """Play the row; each answer names the instance that it is said to."""
    model = backbone("smollm2")

    def script(step: int) -> list[int]:
        instance = f"instance{len(world.asked('/create'))}"
        return model.encode(f"{ANSWERS[step]} {instance}<|im_end|>")

    return play(monkeypatch, world, model, script, row, **limits)


# ---- lost instances ------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "status", "code"), LOSSES)
def test_a_lost_instance_is_tried_again_on_a_fresh_one_and_leaves_no_tokens(
    monkeypatch: pytest.MonkeyPatch, path: str, status: int, code: str
) -> None:
    world = World(faults=[(path, status, code)])
    rollout = roll_out(monkeypatch, world)
    assert world.faults == []
    first, second = (body["instance_id"] for body in world.asked("/create"))
    assert first != second
    assert "instance1" not in rollout.said()
    assert rollout.said().count("instance2") == len(ANSWERS)
    # The fresh one begins at its first step and is the one that is judged.
    steps = [b["params"]["step"] for b in world.asked("/step") if b["instance_id"] == second]
    assert steps == [0, 1, 2, 3]
    assert world.asked("/evaluate")[-1]["instance_id"] == second
    undisturbed = roll_out(monkeypatch, World())
    assert rollout.output.response_mask == undisturbed.output.response_mask
    assert rollout.record.turn_spans == undisturbed.record.turn_spans


@pytest.mark.parametrize(("path", "status", "code"), LOSSES)
@pytest.mark.parametrize("row", [TRAIN, EVAL], ids=["train", "eval"])
def test_a_rollout_that_lost_every_instance_is_a_fault_and_no_output(
    monkeypatch: pytest.MonkeyPatch, row: dict[str, Any], path: str, status: int, code: str
) -> None:
    world = World(faults=[(path, status, code)] * 5)
    with pytest.raises(EnvironmentFault, match=f"{path} answered {status} .{code}"):
        roll_out(monkeypatch, world, row)
    created = [body["instance_id"] for body in world.asked("/create")]
    assert len(set(created)) == len(created) == 3  # env_service.attempts
    assert len(world.faults) == 2
    # What was created is released, so that failures do not fill the service.
    released = [body["instance_id"] for body in world.asked("/release")]
    assert released == ([] if path == "/create" else created)


# ---- what is asked for, and what it earns ----------------------------------------------------


def test_training_asks_for_the_interface_of_the_last_step_and_validation_for_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for row, version, temperature in ((TRAIN, 3, 1.0), ({**EVAL, "temperature": 0.5}, None, 0.5)):
        world = World()
        rollout = roll_out(monkeypatch, world, row)
        (created,) = world.asked("/create")
        assert created["params"]["interface_version"] == version
        assert created["params"]["mode"] == row["mode"]
        assert created["params"]["run_id"] == "run"
        assert {params["temperature"] for params in rollout.policy.sampling_params} == {temperature}
        ends = rollout.backbone.encode("<|im_end|><|endoftext|>")
        assert all(one["stop_token_ids"] == ends for one in rollout.policy.sampling_params)


def test_a_share_of_a_groups_rollouts_is_shown_the_interface() -> None:
    model = backbone("smollm2")
    config = configuration(model)
    config.seal.exposure.share = 0.5

    async def asked(row: dict[str, Any], step: int) -> list[tuple[str, int | None, bool]]:
        made = agent(model, config, None)
        tasks = [made._task(row, step, session) for session in range(4)]
        return [(task.mode, task.interface_version, task.show_interface) for task in tasks]

    half = [("train", 6, True)] * 2 + [("train", 6, False)] * 2
    assert asyncio.run(asked(TRAIN, 7)) == half
    # A suite of a validation that shows the interface shows it to all, the newest before step 1.
    shown = {**EVAL, "mode": "train"}
    assert asyncio.run(asked(shown, 7)) == [("train", 6, True)] * 4
    assert asyncio.run(asked(shown, 0)) == [("train", None, True)] * 4
    assert asyncio.run(asked(EVAL, 7)) == [("eval", None, True)] * 4


@pytest.mark.parametrize("rule", ["ends_turn", "retry"])
def test_all_rollouts_of_training_play_by_one_rule_and_a_validation_by_the_benchmarks(
    rule: str,
) -> None:
    model = backbone("smollm2")
    config = configuration(model)
    config.seal.exposure.share = 0.5
    config.env_service.unreadable_message = rule

    async def rules(row: dict[str, Any]) -> set[str]:
        made = agent(model, config, None)
        return {made._task(row, 7, session).unreadable_message for session in range(4)}

    assert asyncio.run(rules(TRAIN)) == {rule}
    for row in (EVAL, {**EVAL, "mode": "train"}):
        assert asyncio.run(rules(row)) == {"ends_turn"}


@pytest.mark.parametrize(
    ("row", "accuracy", "passed", "reward"),
    [
        (TRAIN, 0.0, 1, 0.5),
        (TRAIN, 0.0, 2, 0.99),
        (TRAIN, 1.0, 2, 1.0),
        (EVAL, 0.0, 1, 0.0),
        # A suite of a validation that shows the interface.
        ({**EVAL, "mode": "train"}, 0.0, 1, 0.0),
    ],
)
def test_training_earns_the_shaped_reward_and_the_record_keeps_the_official_one(
    monkeypatch: pytest.MonkeyPatch,
    row: dict[str, Any],
    accuracy: float,
    passed: int,
    reward: float,
) -> None:
    rollout = roll_out(monkeypatch, World(accuracy=accuracy, passed=passed), row)
    assert rollout.output.reward_score == rollout.record.training_reward == reward
    assert rollout.record.reward == accuracy


# ---- tokens --------------------------------------------------------------------------------


def test_turn_spans_are_the_generated_tokens_and_name_their_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rollout = roll_out(monkeypatch, World())
    output, spans = rollout.output, rollout.record.turn_spans
    assert rollout.backbone.decode(output.prompt_ids).endswith(
        "<|im_start|>user\nlight the lamp<|im_end|>\n<|im_start|>assistant\n"
    )
    opening = "<|im_end|>\n<|im_start|>assistant\n"
    assert rollout.said() == (
        f"call instance1<|im_end|>\n<|im_start|>tool\nlit{opening}Done instance1<|im_end|>\n"
        f"<|im_start|>user\nand out again{opening}"
        f"call instance1<|im_end|>\n<|im_start|>tool\nout{opening}Done instance1<|im_end|>"
    )
    assert [turn for turn, _, _ in spans] == [0, 0, 1, 1]
    assert [rollout.said(start, end) for _, start, end in spans] == [
        f"{answer} instance1<|im_end|>" for answer in ANSWERS
    ]
    covered = Counter(place for _, start, end in spans for place in range(start, end))
    assert [covered[place] for place in range(len(output.response_ids))] == output.response_mask
    assert [one < 0 for one in output.response_logprobs] == [bool(m) for m in output.response_mask]
    # The weights behind the first and the last generation.
    fields = output.extra_fields
    assert (fields["min_global_steps"], fields["max_global_steps"]) == (0, 3)


def test_a_prompt_that_fills_its_room_is_an_error_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokens = len(roll_out(monkeypatch, World()).output.prompt_ids)
    roll_out(monkeypatch, World(), prompt_length=tokens + 1)
    world = World()
    said = f"has {tokens} tokens or more, but was counted to fit data.max_prompt_length={tokens}:"
    with pytest.raises(PromptBudgetError, match=said):
        roll_out(monkeypatch, world, prompt_length=tokens)
    # The task itself is at fault: another instance would not help.
    assert [path for path, _ in world.requests] == ["/create", "/release"]


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        # The room ends with the second answer, within it, and within the observation before it.
        ({"response_length": SAID + BETWEEN + SAID}, [SAID, SAID]),
        ({"response_length": SAID + BETWEEN + 2}, [SAID, 2]),
        ({"response_length": SAID + 5}, [SAID]),
        ({"max_model_len": PROMPT + SAID + BETWEEN + SAID}, [SAID, SAID]),
    ],
)
def test_a_dialogue_out_of_tokens_is_truncated_and_still_judged(
    monkeypatch: pytest.MonkeyPatch, limits: dict[str, int], said: list[int]
) -> None:
    world = World(accuracy=0.0, passed=1)
    rollout = roll_out(monkeypatch, world, **limits)
    assert len(rollout.output.prompt_ids) == PROMPT
    assert rollout.record.truncated
    line = rollout.output.extra_fields["reward_extra_info"]
    assert (line["truncated"], line["exit_status"]) == (1.0, next(iter(limits)))
    assert line["cut_messages"] == (said[-1] == 2)
    assert line["response_tokens"] == len(rollout.output.response_ids)
    assert [path for path, _ in world.requests[-2:]] == ["/evaluate", "/release"]
    assert world.asked("/evaluate")[-1]["params"]["exit_status"] == next(iter(limits))
    assert rollout.record.exit_status == next(iter(limits))
    assert rollout.output.reward_score == 0.5
    # Tokens beyond the room are observations only: no generated one is cut off.
    spans = rollout.record.turn_spans
    assert [end - start for _, start, end in spans] == said
    room = limits.get("response_length", 2048)
    assert len(rollout.output.response_ids) == len(rollout.output.response_mask) <= room
    assert sum(rollout.output.response_mask) == sum(said)


def test_without_a_model_length_the_response_length_is_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rollout = roll_out(monkeypatch, World(), max_model_len=None, response_length=SAID + 5)
    line = rollout.output.extra_fields["reward_extra_info"]
    assert line["exit_status"] == "response_length"


def test_a_validation_line_says_how_long_a_dialogue_was_and_what_ended_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rollout = roll_out(monkeypatch, World(), EVAL)
    line = rollout.output.extra_fields["reward_extra_info"]
    assert (line["task_id"], line["category"], line["labels"]) == ("toy_1", "toy", "pass,pass")
    assert (line["exit_status"], line["truncated"], line["cut_messages"]) == ("completed", 0.0, 0)
    assert line["prompt_tokens"] == len(rollout.output.prompt_ids)
    assert line["response_tokens"] == len(rollout.output.response_ids)
    limited = roll_out(monkeypatch, World(step_limit=1), EVAL)
    line = limited.output.extra_fields["reward_extra_info"]
    assert (line["exit_status"], line["truncated"]) == ("step_limit", 1.0)


@pytest.mark.parametrize(("tokens", "cut"), [(SAID, 0), (SAID - 1, 4)])
def test_a_message_that_its_limit_cuts_is_counted_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, tokens: int, cut: int
) -> None:
    rollout = roll_out(monkeypatch, World(), EVAL, max_tokens_per_step=tokens)
    line = rollout.output.extra_fields["reward_extra_info"]
    assert (line["exit_status"], line["truncated"], line["cut_messages"]) == ("completed", 0.0, cut)
