"""What one seed brings: a walk and the tasks that the model makes of it, or other words for a task.

In: a seed and the model behind its endpoint. Out: a `Proposed`, one line of the file of candidates.
An answer that nothing can be made of is asked for once more; what stays unreadable is counted.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from seal.client.client import EnvironmentClient
from seal.client.episode import Generate, OutOf
from seal.evaluation.endpoint import STRUCTURED, ChatPolicy
from seal.exploration import prompts
from seal.exploration.answers import Read, Reading, message_in, tasks_in
from seal.exploration.settings import Settings
from seal.exploration.tool_docs import for_endpoint
from seal.exploration.walk import walk
from seal.records.candidates import Candidate, CandidateTurn, Proposed
from seal.wire import Message, ToolDoc

ATTEMPTS = 2
"""Answers that are asked for."""
NO_ROOM = "the request does not fit the model's context"


@dataclass(frozen=True)
class Seed:
    """What candidates are made of."""

    task_id: str
    """A training task, or the task of a pool."""
    texts: tuple[str, ...] | None = None
    """Of a pool's task: by turn what the user says, empty for a turn without a message. None: a
    training task."""


@dataclass
class Proposer:
    """Asks one model.

    Args:
        settings: What is asked for.
        client: Of the environment service; None if nothing is to be explored.
        dialogue: Makes the policy of a new dialogue.
    """

    settings: Settings
    client: EnvironmentClient | None
    dialogue: Callable[[], ChatPolicy]
    used_tokens: int = 0
    """Tokens of all dialogues that have ended, also of seeds that failed."""

    async def propose(self, seed: Seed) -> Proposed:
        """Make candidates of a seed.

        Raises:
            EvaluationError: The endpoint failed or refused a request.
            EnvironmentFault: The service failed.
        """
        if seed.texts is None:
            return await self._explored(seed.task_id)
        return await self._reworded(seed.task_id, seed.texts)

    async def _explored(self, task_id: str) -> Proposed:
        assert self.client is not None
        settings = self.settings
        async with self._dialogue() as policy:
            explored = await walk(
                self.client,
                task_id,
                prompts.exploring(settings.calls),
                self._generate(policy),
                settings.tool_format,
                settings.calls,
            )
        request = prompts.proposing(explored.tools, explored.seen, settings.per_seed)
        reading, tokens = await self._asked(request, lambda text: tasks_in(text, settings.per_seed))
        return Proposed(
            author=settings.author,
            seed_task=task_id,
            candidates=tuple(reading.values),
            unreadable=dict(reading.unreadable),
            calls=len(explored.seen),
            tokens=tokens + policy.used_tokens,
            settings=settings.of_exploring(),
        )

    async def _reworded(self, task_id: str, texts: tuple[str, ...]) -> Proposed:
        """One message at a time: a small model can do that, too. All of them, or no candidate."""
        unreadable, turns, used = Counter[str](), list[CandidateTurn](), 0
        for text in texts:
            said = [""]
            if text:
                reading, tokens = await self._asked(prompts.rewording(text), message_in)
                said, used = reading.values, used + tokens
                unreadable += reading.unreadable
            if not said:
                break  # the other messages would be in vain
            turns.append(CandidateTurn(said[0], ()))
        whole = len(turns) == len(texts)
        return Proposed(
            author=self.settings.author,
            seed_task=task_id,
            candidates=(Candidate(tuple(turns)),) if whole else (),
            unreadable=dict(unreadable),
            tokens=used,
            settings=self.settings.of_rewording(),
        )

    async def _asked(
        self, request: list[Message], read: Callable[[str], Reading[Read]]
    ) -> tuple[Reading[Read], int]:
        """Ask until something can be read, at most ATTEMPTS times; what it was, and the tokens."""
        reading, unreadable = Reading[Read](), Counter[str]()
        async with self._dialogue() as policy:
            for _ in range(ATTEMPTS):
                reply = await policy.generate(request, ())
                if isinstance(reply, OutOf):
                    unreadable[NO_ROOM] += 1
                    break
                text = reply if isinstance(reply, str) else str(reply.get("content") or "")
                reading = read(text)
                unreadable += reading.unreadable
                if reading.values:
                    break
                request = [*request, *prompts.once_more(text, [*reading.unreadable])]
        return Reading(reading.values, unreadable), policy.used_tokens

    def _generate(self, policy: ChatPolicy) -> Generate:
        """The policy; a server that reads calls itself gets docs that every server accepts."""
        if self.settings.tool_format != STRUCTURED:
            return policy.generate

        async def generate(
            messages: Sequence[Message], tools: Sequence[ToolDoc]
        ) -> str | Message | OutOf:
            return await policy.generate(messages, [for_endpoint(doc) for doc in tools])

        return generate

    @asynccontextmanager
    async def _dialogue(self) -> AsyncIterator[ChatPolicy]:
        """A new dialogue; its tokens count, however it ends."""
        policy = self.dialogue()
        try:
            yield policy
        finally:
            self.used_tokens += policy.used_tokens
