"""Rollouts of the real agent loop: a scripted service and policy, real tokenizers and templates.

In: a backbone, a `World` and what the policy samples. Out: verl's output and what was asked for on
the way. Tokens go through verl's own builder. Imported by tests/train.
"""

import asyncio
import copy
import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import real_tokenizers
from omegaconf import DictConfig, OmegaConf
from typed import sections_with
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, DictConfigWrap
from verl.workers.rollout.replica import TokenOutput

from seal.client.client import EnvironmentClient
from seal.coevolution.rollout import Rollout
from seal.launch.recipe import EXP, load_recipe
from seal.train import agent_loop
from seal.train.agent_loop import SealAgentLoop
from seal.wire import CONVERSATION_COMPLETED, Message, from_json

TRAIN = {"task_id": "toy_1", "mode": "train", "suite": "train"}
CALL = {"global_steps": 4, "session_id": 0}
"""What verl tells the agent loop besides the row."""
EVAL = {"task_id": "toy_1", "mode": "eval", "suite": "benchmark"}
TOOL = {
    "type": "function",
    "function": {
        "name": "light",
        "description": "Lights a lamp.",
        "parameters": {"type": "object", "properties": {}},
    },
}
TASK: Message = {"role": "user", "content": "light the lamp"}
OVER: Message = {"role": "user", "content": CONVERSATION_COMPLETED}
Follows = tuple[tuple[tuple[Message, ...], int], ...]
"""What the service answers to each message, and the turn that comes next."""
TWO_TURNS: Follows = (
    (({"role": "tool", "name": "light", "content": "lit"},), 0),
    (({"role": "user", "content": "and out again"},), 1),
    (({"role": "tool", "name": "light", "content": "out"},), 1),
    ((OVER,), 1),
)
"""Two turns of a call, which is observed, and an answer, which ends them."""


@dataclass
class World:
    """The service: a toy task, and the faults that it is told to have."""

    faults: list[tuple[str, int, str]] = field(default_factory=list)
    """(path, status, code) of the refusals to come; at /step the second step is refused."""
    accuracy: float = 1.0
    passed: int = 2
    """Turns of the two that passed."""
    step_limit: int | None = None
    """The step that is one too many."""
    follows: Follows = TWO_TURNS
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

    def steps(self) -> list[dict[str, Any]]:
        """Bodies of the steps of the newest instance."""
        newest = self.asked("/create")[-1]["instance_id"]
        return [body for body in self.asked("/step") if body["instance_id"] == newest]

    def dialogue(self) -> list[Message]:
        """The newest instance's messages up to the answer to its last step."""
        messages = [TASK]
        for body, (observed, _) in zip(self.steps(), self.follows, strict=False):
            messages += [body["messages"], *observed]
        return messages

    def _data(self, path: str, body: dict[str, Any]) -> Any:
        match path:
            case "/create":
                info = {"tools": [TOOL], "category": "toy", "interface_version": 3}
                info |= {"instance_id": body["instance_id"], "task_id": body["task_id"]}
                return {"state": [TASK], "info": {**info, "mode": body["params"]["mode"]}}
            case "/step":
                messages, turn = self.follows[body["params"]["step"]]
                cut = self.step_limit == body["params"]["step"]
                info = {"turn": turn, "step": body["params"]["step"], "truncated": cut}
                return {"state": messages, "is_terminated": cut or OVER in messages, "info": info}
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
                    "task_id": "toy_1",
                    "category": "toy",
                    "progress": {**progress, "abstention": 0, "abstention_passed": 0},
                }
            case _:
                return None


# ---- tokenizers and templates ----------------------------------------------------------------


@dataclass(frozen=True)
class Backbone:
    """A tokenizer with its chat template, as a run has them."""

    tokenizer: Any
    model_type: str
    template_kwargs: dict[str, Any]
    stop_tokens: tuple[str, str]
    """The template's own and another."""
    tool_format: str = "hermes"
    """How the policy writes calls (seal.formats)."""

    def encode(self, text: str) -> list[int]:
        """Tokens of a text without a start token."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def decode(self, ids: Sequence[int], **options: bool) -> str:
        """Text of tokens, special ones with it."""
        return str(self.tokenizer.decode(ids, **options))

    def render(self, messages: Sequence[Message], opened: bool) -> str:
        """What the template writes for a whole dialogue; `opened` for the next answer."""
        return str(
            self.tokenizer.apply_chat_template(
                list(messages),
                tools=[TOOL],
                tokenize=False,
                add_generation_prompt=opened,
                **self.template_kwargs,
            )
        )


CHATML = ("<|im_end|>", "<|endoftext|>")
LLAMA = ("<|eot_id|>", "<|eom_id|>")


@functools.cache
def backbone(name: str) -> Backbone:
    """One of qwen2.5, smollm2, smollm2-135m, toolace, qwen3.5 and qwen3.5-thinking.

    ToolACE's group puts its own template on Llama 3.1's vocabulary, and the group smollm2-135m one
    on SmolLM2's, whose own template is smollm2's. Qwen3.5's vocabulary is in no package, so its
    template is put on Qwen2.5's.
    """
    if name == "smollm2":
        return Backbone(real_tokenizers.load("smollm2"), "llama", {}, CHATML)
    if name == "qwen2.5":
        return Backbone(real_tokenizers.load("qwen2.5"), "qwen2", {}, CHATML)
    group, vocabulary = {
        "smollm2-135m": ("smollm2-135m", "smollm2"),
        "toolace": ("toolace-2-8b", "llama3.1"),
        "qwen3.5": ("qwen3.5-4b", "qwen2.5"),
        "qwen3.5-thinking": ("qwen3.5-4b", "qwen2.5"),
    }[name]
    recipe = load_recipe(EXP / "SEAL.yaml", [f"backbone={group}"])
    tokenizer = copy.copy(real_tokenizers.load(vocabulary))
    kwargs: Any = OmegaConf.to_container(recipe.data.apply_chat_template_kwargs)
    tool_format = recipe.env_service.tool_format
    if group == "qwen3.5-4b":
        if name == "qwen3.5-thinking":
            del kwargs["enable_thinking"]
        tokenizer.chat_template = real_tokenizers.template("qwen3_5_think")
        return Backbone(tokenizer, "qwen3_5", kwargs, CHATML, tool_format)
    tokenizer.chat_template = recipe.actor_rollout_ref.model.custom_chat_template
    stops = LLAMA if vocabulary == "llama3.1" else CHATML
    return Backbone(tokenizer, "llama", kwargs, stops, tool_format)


# ---- the rollout -------------------------------------------------------------------------------


class Policy:
    """The rollout engine: samples a script's tokens and keeps what it was asked and said."""

    def __init__(self, world: World, script: Callable[[int], Sequence[int]]) -> None:
        self._world = world
        self._script = script
        self.prompts: list[list[int]] = []
        self.sampling_params: list[dict[str, Any]] = []
        self.sampled: list[list[int]] = []
        self.logprobs: list[list[float]] = []

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]
    ) -> TokenOutput:
        said = len(self._world.steps())
        ids = list(self._script(said))[: sampling_params["max_tokens"]]
        # No two are alike, so that an exchange shows.
        before = sum(map(len, self.logprobs))
        self.logprobs.append([-(before + place + 1) / 1024 for place in range(len(ids))])
        self.prompts.append(list(prompt_ids))
        self.sampling_params.append(sampling_params)
        self.sampled.append(ids)
        return TokenOutput(
            token_ids=ids, log_probs=self.logprobs[-1], extra_fields={"global_steps": said}
        )


@dataclass(frozen=True)
class RolledOut:
    """What verl gets, and how it came about."""

    output: AgentLoopOutput
    record: Rollout
    backbone: Backbone
    policy: Policy

    def said(self, start: int = 0, end: int | None = None) -> str:
        """Text of response tokens, special ones with it."""
        return self.backbone.decode(self.output.response_ids[start:end])


def configuration(backbone: Backbone, **limits: int | None) -> DictConfig:
    """The parts of a recipe that the loop reads; `limits` as in `roll_out`."""
    per_step = limits.pop("max_tokens_per_step", 64)
    lengths = {"prompt_length": 1024, "response_length": 2048, "max_model_len": 4096}
    service = {
        "env_url": "http://service:80",
        "env_type": "toy",
        "token_file": None,
        "tool_format": backbone.tool_format,
        "stop_tokens": list(backbone.stop_tokens),
        "attempts": 3,
        "unreadable_message": "ends_turn",
        "max_tokens_per_step": per_step,
        "max_dialogues": limits.pop("max_dialogues", None),
    }
    own = {
        "env_service": service,
        "seal.run_id": "run",
        "seal.reward": {"mode": "t3rl", "cap": 0.0, "abstention_weight": 0.5},
        "seal.exposure": {"share": 1.0, "gone_at": None},
    }
    rollout = {
        "name": "vllm",
        "n": 4,
        "agent": {"num_workers": limits.pop("num_workers", 1)},
        **lengths,
        **limits,
    }
    return sections_with({**own, "actor_rollout_ref": {"rollout": rollout}})


def agent(backbone: Backbone, config: DictConfig, server_manager: Any) -> SealAgentLoop:
    """A loop as verl makes one for each rollout; to be called where an event loop runs."""
    data = OmegaConf.create({"apply_chat_template_kwargs": backbone.template_kwargs})
    return SealAgentLoop(
        trainer_config=DictConfigWrap(config),
        server_manager=server_manager,
        tokenizer=backbone.tokenizer,
        processor=None,
        dataset_cls=None,
        data_config=DictConfigWrap(data),
        hf_model_type=backbone.model_type,
    )


def roll_out(
    monkeypatch: pytest.MonkeyPatch,
    world: World,
    backbone: Backbone,
    script: Callable[[int], Sequence[int]],
    row: dict[str, Any] = TRAIN,
    /,
    **limits: int | None,
) -> RolledOut:
    """Play the row; `script` gives the tokens that are sampled for a step of an instance.

    `limits` are verl's lengths of a rollout, and max_tokens_per_step.
    """
    policy = Policy(world, script)

    async def run() -> AgentLoopOutput:
        made = agent(backbone, configuration(backbone, **limits), policy)
        transport = httpx.MockTransport(world)
        async with EnvironmentClient("http://service", "toy", transport=transport) as client:
            monkeypatch.setattr(agent_loop, "_client", lambda *_: client)
            return await made.run({"temperature": 1.0}, extra_info=row, **CALL)

    output = asyncio.run(run())
    record = from_json(Rollout, output.extra_fields["seal"])
    return RolledOut(output, record, backbone, policy)
