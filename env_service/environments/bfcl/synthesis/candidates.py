"""Candidates of a model: the checks and filters of every task, and a few of their own.

In: lines of a file that scripts/explore.py wrote, the seeds that may be used, the evaluation side.
Out: tasks, or for each candidate why it is refused. Nothing that a model wrote is code: its calls
are parsed as references are, and only tools of the seed's classes run, through ToolExecutor, in a
process that may be ended (`confined`).

A new task has the world of its seed, unchanged: the model has seen that one. A rewording has the
world, the calls and the held-out tools of the pool's task, and other messages.
"""

import copy
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from env_service.environments.bfcl.demonstrations.variants import leaves
from env_service.environments.bfcl.execution import ToolExecutor
from env_service.environments.bfcl.synthesis.categories import Turn, with_turns
from env_service.environments.bfcl.synthesis.confined import Stopped, run_confined
from env_service.environments.bfcl.synthesis.pool import (
    BadPool,
    Provenance,
    read_rows,
    read_tasks,
    task_file,
)
from env_service.environments.bfcl.synthesis.proposals import Candidate, Proposer
from env_service.environments.bfcl.synthesis.sampler import same_state
from env_service.environments.bfcl.synthesis.sources import Leaf, content_of, values_of
from env_service.environments.bfcl.synthesis.targets import targets_of
from env_service.environments.bfcl.synthesis.verification import (
    Refused,
    parsed,
)
from env_service.environments.bfcl.synthesis.wording import fingerprint, spoken
from env_service.environments.bfcl.tasks import BfclTask, reference_calls
from seal.coevolution.schema import schema_violations
from seal.records.candidates import Candidate as Written
from seal.records.candidates import Proposed, read_proposed
from seal.records.json_lines import BadLine
from seal.wire import Message, from_json

PoolTask = tuple[BfclTask, Provenance]
"""A task of a pool, and where it comes from."""


@dataclass(frozen=True)
class Attempt:
    """What became of one candidate."""

    author: str
    """Who wrote it."""
    outcome: Candidate | Refused
    """The task, or why there is none."""


class FromFile:
    """Makes tasks of candidates.

    Args:
        lines: Of the file.
        proposer: Has the seeds, and what the tasks are compared with.
        pools: Tasks that are reworded, by id.
    """

    def __init__(
        self, lines: Sequence[Proposed], proposer: Proposer, pools: Mapping[str, PoolTask]
    ) -> None:
        self.origin = proposer.origin
        """What the report says of it."""
        self._lines = lines
        self._written = [(line, candidate) for line in lines for candidate in line.candidates]
        self._seeds = {seed.task_id: seed for seed in proposer.seeds}
        self._proposer = proposer
        self._pools = pools

    def __len__(self) -> int:
        """Number of attempts."""
        return len(self._written) + sum(sum(line.unreadable.values()) for line in self._lines)

    def attempts(self) -> Iterator[Attempt]:
        """What became of each candidate, after what was not even one, in the file's order."""
        for line in self._lines:
            for reason, times in line.unreadable.items():
                for _ in range(times):
                    yield Attempt(line.author, Refused(reason))
        outcomes = run_confined(self._attempt, len(self._written))
        for (line, _), outcome in zip(self._written, outcomes, strict=True):
            if isinstance(outcome, Stopped):
                outcome = Refused(outcome.reason)
            yield Attempt(line.author, outcome)

    def _attempt(self, number: int) -> Candidate | Refused:
        line, written = self._written[number]
        try:
            return self._explored(line, written) if not line.pool else self._reworded(line, written)
        except Refused as reason:
            return reason

    def _explored(self, line: Proposed, written: Written) -> Candidate:
        seed = self._seeds.get(line.seed_task)
        if seed is None:
            raise Refused("its seed lends no world")
        texts = [_said(turn.text) for turn in written.turns]
        task = with_turns(seed, list(map(Turn, texts, [turn.calls for turn in written.turns])))
        # As the parser reads them: a reference has one form, whoever wrote it.
        calls = [tuple(turn) for turn in parsed(task)]
        task = with_turns(seed, list(map(Turn, texts, calls)))
        _fits_the_schemas(task)
        execution = self._proposer.checked(task)
        result_calls, changing_calls = _counts(task)
        return Candidate(
            task,
            Provenance(
                author=line.author,
                seed_task=seed.task_id,
                rng_seed="",
                calls=tuple(map(len, calls)),
                indirect_share=0.0,
                indirect_values=0,
                result_calls=result_calls,
                changing_calls=changing_calls,
                targets=targets_of(task, execution),
                results_sha256=hashlib.sha256(json.dumps(execution.results).encode()).hexdigest(),
                split_sha256=self._proposer.split_sha256,
                wording_sha256=fingerprint(),
                bfcl_eval=version("bfcl_eval"),
            ),
        )

    def _reworded(self, line: Proposed, written: Written) -> Candidate:
        if line.seed_task not in self._pools:
            raise Refused("the task that it rewords is not in its pool")
        before, provenance = self._pools[line.seed_task]
        if provenance.seed_task not in self._seeds:
            raise Refused("its seed lends no world")
        texts = [turn.text for turn in written.turns]
        if [bool(text) for text in texts] != [bool(messages) for messages in before.turns]:
            raise Refused("it has other turns than the task that it rewords")
        task = replace(before, turns=tuple(_said(text) if text else () for text in texts))
        if task.turns == before.turns:
            raise Refused("it has the words of the task that it rewords")
        _gives_nothing_early(task, before)
        self._proposer.checked(task)
        return Candidate(
            task, replace(provenance, author=line.author, split_sha256=self._proposer.split_sha256)
        )


def read_candidates(
    paths: Sequence[Path], root: Path
) -> tuple[list[Proposed], dict[str, PoolTask]]:
    """The lines of files of candidates, and the tasks of the pools that they reword.

    Args:
        paths: The files.
        root: The project's folder, below which pools are kept.

    Raises:
        BadPool: A file or a pool cannot be read, or there is no line.
    """
    try:
        lines = [line for path in paths for line in read_proposed(path)]
    except (OSError, BadLine) as error:
        raise BadPool(f"cannot read --candidates: {error}") from None
    if not lines:
        named = ", ".join(map(str, paths))
        raise BadPool(f"--candidates {named} is empty; scripts/explore.py writes such a file")
    pools: dict[str, PoolTask] = {}
    for name in dict.fromkeys(line.pool for line in lines if line.pool):
        file = task_file(name, root)
        for task, row in zip(read_tasks(file), read_rows(file), strict=True):
            pools[task.task_id] = task, from_json(Provenance, row["provenance"])
    return lines, pools


def _said(text: str) -> tuple[Message, ...]:
    return ({"role": "user", "content": text},)


def _fits_the_schemas(task: BfclTask) -> None:
    """What the tool's doc does not allow, no policy should have to do."""
    docs = task.docs_at(len(task.turns))
    for turn in reference_calls(task):
        for call in turn:
            doc = docs.get(call.name)
            if doc and schema_violations(call.arguments, doc["function"]["parameters"]):
                raise Refused("a call is against its tool's schema")


def _gives_nothing_early(task: BfclTask, before: BfclTask) -> None:
    """In a turn without calls a value is missing, and other words must not give it."""
    calls = [call for turn in reference_calls(before) for call in turn]
    values = {spoken(value) for call in calls for value in leaves(call.arguments)}
    for reference, messages, earlier in zip(task.reference, task.turns, before.turns, strict=True):
        if not reference and _stated(values, messages) - _stated(values, earlier):
            raise Refused("it gives a value that is to be missing")


def _stated(values: Iterable[str], messages: Sequence[Message]) -> set[str]:
    text = "\n".join(message["content"] for message in messages)
    return {
        value
        for value in values
        if re.search(rf"(?<![\w.]){re.escape(value)}(?!\w|\.\d)", text) is not None
    }


def _counts(task: BfclTask) -> tuple[int, int]:
    """Calls with a value that an earlier result has shown, and calls that change the state."""
    executor, available = ToolExecutor(task), task.docs_at(len(task.turns)).keys()
    shown: set[Leaf] = set()
    result_calls = changing_calls = 0
    for call in (call for turn in reference_calls(task) for call in turn):
        before = copy.deepcopy(executor.instances)
        result = executor.execute(call, available)
        result_calls += not shown.isdisjoint(leaves(call.arguments))
        changing_calls += not same_state(before, executor.instances)
        shown |= values_of(content_of(result))
    return result_calls, changing_calls
