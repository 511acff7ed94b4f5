"""verl's agent loop around `seal.client.episode`: token in, token out.

In: a row of the data set, which names a task and a mode. Out: verl's output of the rollout. The
model's own chat template renders the prompt once. Every observation is appended as tokens (verl's
continuous tokens), so the policy is trained on the tokens that it saw. A message that is cut, or
that another stop token ends, is closed as the template closes it. `agent_loop.yaml` names the
class.
"""

import asyncio
import contextlib
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput
from verl.utils.profiler import simple_timer

from seal.backbone.message_end import message_end, stop_token_ids, unwritten_end
from seal.backbone.prompt_budget import PromptBudgetError
from seal.backbone.system_note import behind_default, default_system
from seal.client.access_token import read_token
from seal.client.client import EnvironmentClient, EnvironmentFault, Task
from seal.client.episode import Episode, OutOf, run_episode
from seal.coevolution.rollout import Rollout
from seal.coevolution.shaping import shaped_reward
from seal.settings.sections import Settings, settings_of
from seal.wire import Message, TokenLimit, ToolDoc, UnreadableMessage

TRAINING_SUITE = "train"
"""The suite of the rows of a training file."""


@functools.cache
def _client(urls: tuple[str, ...], env_type: str, token_file: str | None) -> EnvironmentClient:
    """One client for each worker process; all of its rollouts share the connections."""
    return EnvironmentClient(urls, env_type, token=read_token(token_file))


@functools.cache
def _places(loop: asyncio.AbstractEventLoop, number: int) -> asyncio.Semaphore:
    """Places for the dialogues that a worker process plays at the same time."""
    return asyncio.Semaphore(number)


@dataclass
class _TokenStream:
    """Tokens of one dialogue so far. The lists grow together; `ids` starts with the prompt."""

    request_id: str
    """One for the whole rollout. verl's balancer sends equal ids to the same replica, whose prefix
    cache holds the dialogue. verl's client gives vLLM a new id for each generation."""
    message_end: Sequence[int]
    """Tokens that the template writes behind the text of an assistant message."""
    default_system: str
    """The template's system message for a dialogue without one."""
    ids: list[int] = field(default_factory=list)
    """Prompt, generated and observation token ids."""
    mask: list[int] = field(default_factory=list)
    """1 for generated tokens, 0 for all others; starts after the prompt."""
    logprobs: list[float] = field(default_factory=list)
    """Log probability under the rollout policy, 0.0 where mask is 0."""
    seen: list[Message] = field(default_factory=list)
    """Messages whose tokens are in `ids`."""
    weights_versions: list[int] = field(default_factory=list)
    """verl's step number of the weights of each generation."""
    generated: list[tuple[int, int]] = field(default_factory=list)
    """Start and end of each generation among the response tokens."""
    cut_messages: int = 0
    """Generations that used all of their tokens and did not end by themselves."""

    def close_message(self) -> None:
        """Append the part of the template's end that the last message lacks, with mask 0.

        Another stop token stays, with mask 1, and the end follows it. The policy chose to stop
        there, and only a sampled token can be trained for this choice. Without the token, the
        choice would not be trained. With the template's token in its place, a token that was not
        sampled would be trained with the log probability of another one.
        """
        start, stop = self.generated[-1]
        sampled = self.ids[len(self.ids) - (stop - start) :]
        missing = unwritten_end(sampled, self.message_end)
        self.ids += missing
        self.mask += [0] * len(missing)
        self.logprobs += [0.0] * len(missing)


class SealAgentLoop(AgentLoopBase):
    """Rolls out one task against the environment service."""

    @property
    def _settings(self) -> Settings:
        return settings_of(self.config)  # verl makes a loop for each rollout, all with one object

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        """Roll out the row's task, once there is a place; the reward is the service's verdict.

        Raises:
            EnvironmentFault: The service failed on `env_service.attempts` new instances. Then verl
                marks the group as failed and `seal.train.replay` drops it whole.
            PromptBudgetError: The prompt does not fit, although the count before the run said so.
        """
        # verl starts all rollouts of a batch at once. They wait here in their order, so the
        # rollouts of a group, which share their prompt, are played at the same time.
        async with self._place():
            return await self._roll_out(sampling_params, **kwargs)

    def _place(self) -> contextlib.AbstractAsyncContextManager[Any]:
        """One of this worker's places; together all workers have `env_service.max_dialogues`."""
        most = self._settings.env_service.max_dialogues
        if most is None:
            return contextlib.nullcontext()
        workers = self.config.actor_rollout_ref.rollout.agent.num_workers
        return _places(asyncio.get_running_loop(), math.ceil(most / workers))

    async def _roll_out(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        settings = self._settings.env_service
        row = kwargs["extra_info"]
        task = self._task(row, kwargs["global_steps"], kwargs["session_id"])
        params = dict(sampling_params)
        params["stop_token_ids"] = stop_token_ids(self.tokenizer, settings.stop_tokens)
        if row.get("temperature") is not None:
            params["temperature"] = row["temperature"]
        builder = self.continuous_token_builder
        end = await self.loop.run_in_executor(None, message_end, builder)
        default = await self.loop.run_in_executor(None, default_system, builder, self.tokenizer)
        # A new instance has the same prompt, so it keeps the replica that has it in its cache.
        request_id = uuid4().hex
        client = _client(settings.env_url, settings.env_type, settings.token_file)
        for attempt in range(1, settings.attempts + 1):
            metrics: dict[str, Any] = {}
            stream = _TokenStream(request_id, end, default)
            generate = functools.partial(self._generate, stream, params, metrics)
            try:
                episode = await run_episode(client, task, generate)
            except EnvironmentFault:
                if attempt == settings.attempts:
                    raise
                continue
            return self._output(row, task, episode, stream, metrics)
        raise AssertionError("env_service.attempts is at least 1")

    def _task(self, row: dict[str, Any], step: int, session: int) -> Task:
        """The task of a rollout; `session` is its index in the group."""
        settings = self._settings.env_service
        mode, version, shown = row["mode"], None, True
        unreadable: UnreadableMessage = "ends_turn"
        if row["suite"] == TRAINING_SUITE:
            shown = session < self._settings.seal.exposure.shown(step, self.rollout_config.n)
            # A validation plays the benchmark, whatever the recipe trains on.
            unreadable = settings.unreadable_message
        if mode == "train" and step > 0:
            version = step - 1  # step t shows the interface that was evolved after step t - 1
        return Task(
            task_id=row["task_id"],
            mode=mode,
            run_id=self._settings.seal.run_id,
            interface_version=version,
            tool_format=settings.tool_format,
            show_interface=shown,
            unreadable_message=unreadable,
        )

    async def _generate(
        self,
        stream: _TokenStream,
        params: dict[str, Any],
        metrics: dict[str, Any],
        messages: Sequence[Message],
        tools: Sequence[ToolDoc],
    ) -> str | OutOf:
        """One assistant message, or the limit that leaves no token for one."""
        messages = behind_default(messages, stream.default_system)
        if not stream.seen:
            stream.ids = await self.ct_build_initial_tokens(messages, tools=list(tools))
            # verl cuts a longer prompt on the left, so the interface and the tool docs would be
            # lost. All prompts were counted before the first step (seal.backbone.prompt_budget).
            if len(stream.ids) >= self.rollout_config.prompt_length:
                raise PromptBudgetError(
                    f"a prompt has {len(stream.ids)} tokens or more, but was counted to fit "
                    f"data.max_prompt_length={self.rollout_config.prompt_length}: has the "
                    "environment service changed since?"
                )
        else:
            # Not earlier: a message that ends the dialogue, or uses all tokens, needs no end.
            stream.close_message()
            # The prompt has the tool docs already; later messages are rendered without them.
            merged, stream.mask, stream.logprobs = await self.ct_merge_context_msg(
                stream.seen, messages, stream.ids, stream.mask, stream.logprobs
            )
            stream.ids = merged.token_ids
        stream.seen = messages
        room: dict[TokenLimit, int] = {
            "response_length": self.rollout_config.response_length - len(stream.mask)
        }
        if self.rollout_config.max_model_len is not None:
            room["max_model_len"] = self.rollout_config.max_model_len - len(stream.ids)
        tightest = min(room, key=lambda name: room[name])
        if room[tightest] <= 0:
            return OutOf(tightest)
        budget = min(room[tightest], self._settings.env_service.max_tokens_per_step)
        with simple_timer("generate_sequences", metrics):
            output = await self.server_manager.generate(
                request_id=stream.request_id,
                prompt_ids=stream.ids,
                sampling_params={**params, "max_tokens": budget},
            )
        start = len(stream.mask)
        merged, stream.mask, stream.logprobs = await self.ct_merge_assistant_token(
            stream.ids,
            output.token_ids,
            stream.mask,
            stream.logprobs,
            assistant_logprobs=output.log_probs,
        )
        stream.ids = merged.token_ids
        stream.generated.append((start, len(stream.mask)))
        stopped = bool(output.token_ids) and output.token_ids[-1] in params["stop_token_ids"]
        stream.cut_messages += len(output.token_ids) >= budget and not stopped
        stream.weights_versions.append(output.extra_fields["global_steps"])
        text = self.tokenizer.decode(output.token_ids, skip_special_tokens=True)
        stream.seen = [*messages, {"role": "assistant", "content": text}]
        return text

    def _output(
        self,
        row: dict[str, Any],
        task: Task,
        episode: Episode,
        stream: _TokenStream,
        metrics: dict[str, Any],
    ) -> AgentLoopOutput:
        """Split the stream into verl's prompt and response, and add the `Rollout`."""
        limit = self.rollout_config.response_length
        prompt_length = len(stream.ids) - len(stream.mask)
        reward = episode.reward
        if row["suite"] == TRAINING_SUITE:  # a validation with the interface is judged as any
            shaping = self._settings.seal.reward
            reward = shaped_reward(episode.reward, episode.progress, shaping)
        spans = zip(episode.step_turns, stream.generated, strict=True)
        rollout = Rollout(
            task_id=row["task_id"],
            category=episode.category,
            reward=episode.reward,
            training_reward=reward,
            turns=episode.turns,
            interface_version=episode.interface_version,
            interface_shown=task.show_interface and task.mode == "train",
            exit_status=episode.exit_status,
            environment_s=episode.environment_s,
            turn_spans=tuple((turn, start, end) for turn, (start, end) in spans),
        )
        return AgentLoopOutput(
            prompt_ids=stream.ids[:prompt_length],
            response_ids=stream.ids[prompt_length:][:limit],
            response_mask=stream.mask[:limit],
            response_logprobs=stream.logprobs[:limit],
            num_turns=len(episode.turns),
            reward_score=reward,
            metrics=metrics,
            extra_fields={
                "seal": rollout.to_json(),
                # Fields of the validation log; text if verl should not compute an average.
                "reward_extra_info": {
                    "task_id": row["task_id"],
                    "category": episode.category,
                    "suite": row["suite"],
                    "labels": ",".join(rollout.labels),
                    "turns": len(episode.turns),
                    "interface_version": episode.interface_version,
                    "truncated": float(episode.truncated),
                    "exit_status": episode.exit_status,
                    "cut_messages": stream.cut_messages,
                    "prompt_tokens": prompt_length,
                    "response_tokens": len(stream.mask[:limit]),
                },
                "min_global_steps": min(stream.weights_versions),
                "max_global_steps": max(stream.weights_versions),
            },
        )
