"""A rollout's tokens, reward and lost instances: verl's own token merging, a word for a token."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.utils.tokenizer.continuous_token import ContinuousTokenBuilder
from verl.workers.rollout.replica import TokenOutput

from seal.client import EnvironmentClient, EnvironmentFault
from seal.train import agent_loop
from seal.train.agent_loop import SealAgentLoop
from seal.train.round import RolloutRecord
from seal.wire import CONVERSATION_COMPLETED, Message

TRAIN = {"task_id": "toy_1", "mode": "train", "suite": "train"}
EVAL = {"task_id": "toy_1", "mode": "eval", "suite": "benchmark"}
TOOL = {"type": "function", "function": {"name": "light", "parameters": {}}}
ANSWERS = ("call", "Done.", "call", "Done.")
"""What the policy says: two turns of a call, which is observed, and an answer, which ends them."""
FOLLOWS: tuple[tuple[Message, int], ...] = (
    ({"role": "tool", "name": "light", "content": "lit"}, 0),
    ({"role": "user", "content": "and out again"}, 1),
    ({"role": "tool", "name": "light", "content": "out"}, 1),
    ({"role": "user", "content": CONVERSATION_COMPLETED}, 1),
)
"""What the service answers to each of them, and the turn that comes next."""

LOSSES = [
    ("/create", 409, "unknown_interface"),
    ("/step", 404, "unknown_instance"),
    ("/step", 500, "internal_error"),
    ("/evaluate", 500, "internal_error"),
]


@dataclass
class World:
    """The service: a toy task of two turns, and the faults that it is told to have."""

    faults: list[tuple[str, int, str]] = field(default_factory=list)
    """(path, status, code) of the refusals to come; at /step the second step is refused."""
    accuracy: float = 1.0
    passed: int = 2
    """Turns of the two that passed."""
    step_limit: int | None = None
    """The step that is one too many."""
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path, body = request.url.path, json.loads(request.content)
        self.requests.append((path, body))
        refused = bool(self.faults) and self.faults[0][0] == path
        if refused and not (path == "/step" and body["params"]["step"] == 0):
            _, status, code = self.faults.pop(0)
            error = {"code": code, "message": "it is gone"}
            return httpx.Response(status, json={"success": False, "error": error})
        return httpx.Response(200, json={"success": True, "data": self._data(path, body)})

    def asked(self, path: str) -> list[dict[str, Any]]:
        """Bodies of the requests to a path."""
        return [body for asked, body in self.requests if asked == path]

    def _data(self, path: str, body: dict[str, Any]) -> Any:
        match path:
            case "/create":
                info = {"tools": [TOOL], "category": "toy", "interface_version": 3}
                return {"state": [{"role": "user", "content": "light the lamp"}], "info": info}
            case "/step":
                message, turn = FOLLOWS[body["params"]["step"]]
                over = message["content"] == CONVERSATION_COMPLETED
                cut = self.step_limit == body["params"]["step"]
                info, over = {"turn": turn, "truncated": cut}, over or cut
                return {"state": [message], "is_terminated": over, "info": info}
            case "/evaluate":
                turns = [
                    {"turn": turn, "label": "pass", "reason": "why", "step": None}
                    for turn in range(2)
                ]
                progress = {"scorable": 2, "scorable_passed": self.passed}
                return {
                    "accuracy": self.accuracy,
                    "diagnosis": turns,
                    "interface_version": 3,
                    "truncated": False,
                    "progress": {**progress, "abstention": 0, "abstention_passed": 0},
                }
            case _:
                return None


class Words(ContinuousTokenBuilder):  # type: ignore[misc]
    """verl's tokens of a dialogue with a chat template of words; is its own tokenizer."""

    def __init__(self) -> None:
        super().__init__(self)
        self._known: list[str] = []

    unk_token = unk_token_id = None

    def convert_tokens_to_ids(self, token: str) -> int:
        return self.encode([token])[0]

    def encode(self, words: Sequence[str]) -> list[int]:
        self._known += [word for word in dict.fromkeys(words) if word not in self._known]
        return [self._known.index(word) for word in words]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        words = [self._known[one] for one in ids]
        return " ".join(word for word in words if not (skip_special_tokens and word[0] == "<"))

    def _render_tokens(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool,
        tools: Sequence[Any] | None = None,
    ) -> list[int]:
        words = [f"<tool:{doc['function']['name']}>" for doc in tools or ()]
        for message in messages:
            words += [f"<{message['role']}>", *message["content"].split(), "<end>"]
        return self.encode([*words, "<assistant>"] if add_generation_prompt else words)


class Policy:
    """The rollout engine: says ANSWERS and which instance it says them to."""

    def __init__(self, world: World, words: Words) -> None:
        self._world = world
        self._words = words
        self.sampling_params: list[dict[str, Any]] = []

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> TokenOutput:
        self.sampling_params.append(sampling_params)
        said = self._words.decode(prompt_ids).split().count("<assistant>") - 1
        instance = f"instance{len(self._world.asked('/create'))}"
        ids = self._words.encode([ANSWERS[said], instance, "<end>"])[
            : sampling_params["max_tokens"]
        ]
        logprobs = [-0.5] * len(ids)
        return TokenOutput(token_ids=ids, log_probs=logprobs, extra_fields={"global_steps": said})


@dataclass(frozen=True)
class Rollout:
    output: AgentLoopOutput
    record: RolloutRecord
    words: Words
    sampling_params: list[dict[str, Any]]

    def said(self, start: int = 0, end: int | None = None) -> str:
        return self.words.decode(self.output.response_ids[start:end])


def roll_out(
    monkeypatch: pytest.MonkeyPatch, world: World, row: dict[str, Any] = TRAIN, **limits: int
) -> Rollout:
    """Play the row; `limits` are verl's lengths of a rollout, and max_tokens_per_step."""
    words = Words()
    policy = Policy(world, words)

    async def run() -> AgentLoopOutput:
        made = SealAgentLoop.__new__(SealAgentLoop)
        made.loop = asyncio.get_running_loop()
        made.tokenizer = made.continuous_token_builder = words
        made.server_manager = policy
        made.config = OmegaConf.create(
            {
                "env_service": {
                    "env_url": "http://service",
                    "env_type": "toy",
                    "token_file": None,
                    "tool_format": "hermes",
                    "stop_tokens": ["<end>"],
                    "attempts": 3,
                    "max_tokens_per_step": limits.pop("max_tokens_per_step", 8),
                },
                "seal": {
                    "run_id": "run",
                    "reward": {"mode": "t3rl", "cap": 0.0, "abstention_weight": 0.5},
                },
            }
        )
        lengths = {"prompt_length": 64, "response_length": 64, "max_model_len": 128}
        made.rollout_config = OmegaConf.create({**lengths, **limits})
        transport = httpx.MockTransport(world)
        async with EnvironmentClient("http://service", "toy", transport=transport) as client:
            monkeypatch.setattr(agent_loop, "_client", lambda *_: client)
            return await made.run({"temperature": 1.0}, extra_info=row, global_steps=4)

    output = asyncio.run(run())
    record = RolloutRecord.from_json(output.extra_fields["seal"])
    return Rollout(output, record, words, policy.sampling_params)


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
    assert rollout.said().split().count("instance2") == len(ANSWERS)
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
        assert {params["temperature"] for params in rollout.sampling_params} == {temperature}
        ends = rollout.words.encode(["<end>"])
        assert all(params["stop_token_ids"] == ends for params in rollout.sampling_params)


@pytest.mark.parametrize(
    ("row", "accuracy", "passed", "reward"),
    [(TRAIN, 0.0, 1, 0.5), (TRAIN, 0.0, 2, 0.99), (TRAIN, 1.0, 2, 1.0), (EVAL, 0.0, 1, 0.0)],
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
    assert rollout.words.decode(output.prompt_ids) == (
        "<tool:light> <user> light the lamp <end> <assistant>"
    )
    assert rollout.said() == (
        "call instance1 <end> <tool> lit <end> <assistant> Done. instance1 <end> "
        "<user> and out again <end> <assistant> "
        "call instance1 <end> <tool> out <end> <assistant> Done. instance1 <end>"
    )
    assert [turn for turn, _, _ in spans] == [0, 0, 1, 1]
    assert [rollout.said(start, end) for _, start, end in spans] == [
        f"{answer} instance1 <end>" for answer in ANSWERS
    ]
    covered = Counter(place for _, start, end in spans for place in range(start, end))
    assert [covered[place] for place in range(len(output.response_ids))] == output.response_mask
    assert output.response_logprobs == [-0.5 * one for one in output.response_mask]
    # The weights behind the first and the last generation.
    fields = output.extra_fields
    assert (fields["min_global_steps"], fields["max_global_steps"]) == (0, 3)


def test_a_prompt_that_fills_its_room_is_an_error_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokens = len(roll_out(monkeypatch, World()).output.prompt_ids)
    roll_out(monkeypatch, World(), prompt_length=tokens + 1)
    world = World()
    with pytest.raises(ValueError, match=f"data.max_prompt_length={tokens} tokens; raise it"):
        roll_out(monkeypatch, world, prompt_length=tokens)
    # The task itself is at fault: another instance would not help.
    assert [path for path, _ in world.requests] == ["/create", "/release"]


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        # The room ends with the second answer, within it, and within the observation before it.
        ({"response_length": 10}, [3, 3]),
        ({"response_length": 9}, [3, 2]),
        ({"response_length": 5}, [3]),
        ({"max_model_len": 7 + 10}, [3, 3]),
    ],
)
def test_a_dialogue_out_of_tokens_is_truncated_and_still_judged(
    monkeypatch: pytest.MonkeyPatch, limits: dict[str, int], said: list[int]
) -> None:
    world = World(accuracy=0.0, passed=1)
    rollout = roll_out(monkeypatch, world, **limits)
    assert len(rollout.output.prompt_ids) == 7
    assert rollout.record.truncated
    line = rollout.output.extra_fields["reward_extra_info"]
    assert (line["truncated"], line["ended"]) == (1.0, next(iter(limits)))
    assert line["cut_messages"] == (said[-1] == 2)
    assert line["response_tokens"] == len(rollout.output.response_ids)
    assert [path for path, _ in world.requests[-2:]] == ["/evaluate", "/release"]
    assert rollout.output.reward_score == 0.5
    # Tokens beyond the room are observations only: no generated one is cut off.
    spans = rollout.record.turn_spans
    assert [end - start for _, start, end in spans] == said
    room = limits.get("response_length", 64)
    assert len(rollout.output.response_ids) == len(rollout.output.response_mask) <= room
    assert sum(rollout.output.response_mask) == sum(said)


def test_a_validation_line_says_how_long_a_dialogue_was_and_what_ended_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rollout = roll_out(monkeypatch, World(), EVAL)
    line = rollout.output.extra_fields["reward_extra_info"]
    assert (line["task_id"], line["category"], line["labels"]) == ("toy_1", "toy", "pass,pass")
    assert (line["ended"], line["truncated"], line["cut_messages"]) == ("completed", 0.0, 0)
    assert line["prompt_tokens"] == len(rollout.output.prompt_ids)
    assert line["response_tokens"] == len(rollout.output.response_ids)
    limited = roll_out(monkeypatch, World(step_limit=1), EVAL)
    line = limited.output.extra_fields["reward_extra_info"]
    assert (line["ended"], line["truncated"]) == ("step_limit", 1.0)


@pytest.mark.parametrize(("tokens", "cut"), [(3, 0), (2, 4)])
def test_a_message_that_its_limit_cuts_is_counted_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, tokens: int, cut: int
) -> None:
    rollout = roll_out(monkeypatch, World(), EVAL, max_tokens_per_step=tokens)
    line = rollout.output.extra_fields["reward_extra_info"]
    assert (line["ended"], line["truncated"], line["cut_messages"]) == ("completed", 0.0, cut)
