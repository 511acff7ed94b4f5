"""All seeds: several at once, each finished one written at once, the failed ones counted.

In: seeds, a proposer, the file, limits. Out: the file, and an `Outcome`. A seed that fails is left
out and counted, and the next start tries it again. What would fail every seed ends the run: an
endpoint that cannot be reached, refuses the key or has no such model, and a service that is not
healthy.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import openai

from seal.client.client import EnvironmentFault
from seal.evaluation.faults import EvaluationError, Unreachable
from seal.exploration.output import Output
from seal.exploration.proposer import Proposer, Seed
from seal.records.candidates import Proposed

HOPELESS = (openai.AuthenticationError, openai.PermissionDeniedError, openai.NotFoundError)
"""What an endpoint answers to every request alike: a wrong key, a model that it does not have."""


@dataclass(frozen=True)
class Limits:
    """How much a run may use; a seed that has begun is still finished."""

    concurrency: int
    """Seeds at once."""
    tokens: int | None
    """Tokens of prompts and answers after which no seed is begun; None: no limit."""
    seconds: float | None
    """Seconds after which no seed is begun; None: no limit."""


@dataclass
class Outcome:
    """What has happened."""

    finished: int = 0
    """Seeds."""
    candidates: int = 0
    """Candidates of them."""
    calls: int = 0
    """Calls that explored."""
    tokens: int = 0
    """Tokens of prompts and answers, also of seeds that failed."""
    unreadable: Counter[str] = field(default_factory=Counter)
    """Why something in an answer is no candidate -> how often."""
    failed: Counter[str] = field(default_factory=Counter)
    """Why a seed has failed -> how often."""
    example: dict[str, str] = field(default_factory=dict)
    """Reason -> one fault in full."""
    out_of: str | None = None
    """The limit of the run that was reached."""

    def take(self, proposed: Proposed) -> None:
        """Count a finished seed."""
        self.finished += 1
        self.candidates += len(proposed.candidates)
        self.calls += proposed.calls
        self.unreadable.update(proposed.unreadable)


async def explore(
    seeds: Sequence[Seed],
    proposer: Proposer,
    output: Output,
    limits: Limits,
    on_seed: Callable[[Outcome], None],
) -> Outcome:
    """Ask for candidates of every seed that has no line yet.

    `on_seed` is called after every seed.

    Raises:
        EvaluationError: The endpoint cannot be reached, refuses the key or has no such model.
        EnvironmentFault: The service is not healthy.
        OSError: A line cannot be written.
    """
    waiting = [seed for seed in reversed(seeds) if seed.task_id not in output.finished]
    outcome, started = Outcome(), time.monotonic()

    async def work() -> None:
        while waiting:
            if limits.tokens is not None and proposer.used_tokens >= limits.tokens:
                outcome.out_of = f"{limits.tokens} tokens"
                return
            if limits.seconds is not None and time.monotonic() - started >= limits.seconds:
                outcome.out_of = f"{limits.seconds / 60:g} minutes"
                return
            await attempt(waiting.pop())
            on_seed(outcome)

    async def attempt(seed: Seed) -> None:
        limit = proposer.settings.seed_seconds
        try:
            async with asyncio.timeout(limit):
                proposed = await proposer.propose(seed)
        except TimeoutError as error:
            _fail(outcome, f"not finished after {limit:g} s", seed, error)
        except EvaluationError as error:
            if isinstance(error, Unreachable) or isinstance(error.__cause__, HOPELESS):
                raise
            _fail(outcome, _reason_of(error), seed, error)
        except EnvironmentFault as error:
            assert proposer.client is not None
            await proposer.client.health()
            _fail(outcome, "the environment service failed", seed, error)
        else:
            output.add(proposed)
            outcome.take(proposed)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(limits.concurrency, len(waiting))):
                group.create_task(work())
    except* (EvaluationError, EnvironmentFault, OSError) as errors:
        raise errors.exceptions[0] from None
    return outcome


def _fail(outcome: Outcome, reason: str, seed: Seed, error: Exception) -> None:
    outcome.failed[reason] += 1
    outcome.example.setdefault(reason, f"{seed.task_id}: {error}".rstrip(": "))


def _reason_of(error: EvaluationError) -> str:
    """The kind of a fault, which many seeds share."""
    match error.__cause__:
        case openai.APITimeoutError():
            return "the endpoint did not answer in time"
        case openai.APIStatusError(status_code=status):
            return f"the endpoint answered {status}"
        case None:
            return str(error)
    return "the endpoint's answer cannot be read"
