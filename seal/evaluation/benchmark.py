"""BFCL V3 multi-turn by our own episodes: training's validation, on a model behind an endpoint.

In: evaluation tasks, an `Endpoint`, the environment service. Out: a validation log
(`seal.validation.log`), `0.jsonl`. A task's line is written as soon as the task is
finished, and a task with a line is not played again. If the environment or the endpoint fails, the
task is tried again and then reported, never scored.
"""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import tenacity

from seal.client.client import EnvironmentClient, EnvironmentFault, Task
from seal.client.episode import Episode, run_episode
from seal.evaluation.endpoint import (
    STRUCTURED,
    ChatPolicy,
    Decoding,
    Endpoint,
    client_of,
    stop_token_ids,
)
from seal.evaluation.faults import EndpointFault, EvaluationError, RefusedDialogue
from seal.records.json_lines import append_json_lines
from seal.validation.evaluation_file import EvaluationTask, read_evaluation_file
from seal.validation.log import read_log
from seal.wire import CONVERSATION_COMPLETED

LOG = "0.jsonl"
"""The log's name: a validation of no training step."""
MOST_FAILED_TASKS = 5
"""After so many failed tasks in a row the evaluation stops."""


def read_tasks(parquet: Path, count: int | None = None) -> list[EvaluationTask]:
    """The tasks of an evaluation file; with a `count` only so many, of all categories alike.

    Raises:
        EvaluationError: It is no evaluation file, or holds training tasks.
    """
    tasks = read_evaluation_file(parquet)
    if any(task.mode != "eval" for task in tasks):
        raise EvaluationError(f"--parquet {parquet} holds training tasks")
    return spread(tasks, count) if count else tasks


def spread(tasks: Sequence[EvaluationTask], count: int) -> list[EvaluationTask]:
    """The rows of the first `count` tasks, taking one of each category in turn."""
    seen: Counter[str] = Counter()
    places: dict[EvaluationTask, tuple[int, int]] = {}
    for task in tasks:
        if task not in places:
            places[task] = (seen[task.category], len(places))
            seen[task.category] += 1
    kept = set(sorted(places, key=lambda task: places[task])[:count])
    return [task for task in tasks if task in kept]


def chosen_rows(parquet: Path, tasks: Sequence[EvaluationTask], folder: Path) -> Path:
    """Write the rows of some tasks as an evaluation file of their own, beside their log."""
    wanted = {(task.suite, task.task_id) for task in tasks}
    rows = pyarrow.parquet.ParquetFile(parquet).read()
    infos = rows.column("extra_info").to_pylist()
    kept = pyarrow.array([(info["suite"], info["task_id"]) in wanted for info in infos])
    path = folder / "tasks.parquet"
    pyarrow.parquet.write_table(rows.filter(kept), path)
    return path


def missing_tasks(tasks: Sequence[EvaluationTask], log: Path) -> list[EvaluationTask]:
    """Tasks that a log does not hold; an incomplete last line is removed from the log.

    Raises:
        BadValidationFile: The log is damaged in another way.
    """
    if log.exists():
        # A line without its line end was cut off while it was written. The lines before it stay on
        # the disk all the time: they may be days of work.
        os.truncate(log, log.read_bytes().rfind(b"\n") + 1)
    done = _written(log)
    missing = []
    for task in tasks:
        key = (task.suite, task.task_id)
        if done[key]:
            done[key] -= 1
        else:
            missing.append(task)
    return missing


def _written(log: Path) -> Counter[tuple[str, str]]:
    """Number of lines of each task in a log, by suite and task id."""
    if not (log.exists() and log.stat().st_size):
        return Counter()
    return Counter((line.suite, line.task_id) for line in read_log(log))


@dataclass(frozen=True)
class Outcome:
    """What happened to the tasks that were missing."""

    finished: int
    failed: dict[str, str]
    """The fault of each task that was not scored, by task id."""


async def evaluate(
    tasks: Sequence[EvaluationTask],
    environment: EnvironmentClient,
    endpoint: Endpoint,
    decoding: Decoding,
    log: Path,
    *,
    attempts: int,
    concurrency: int,
    on_score: Callable[[float], None],
) -> Outcome:
    """Play the tasks that a validation log does not hold, and append their lines to it.

    `attempts` are episodes of a task before a fault counts as its failure, `concurrency` are
    episodes at once. `on_score` is called with the score of every finished task.

    Raises:
        EvaluationError: The endpoint refuses what it is asked, so every task would fail.
    """
    stop_ids = await stop_token_ids(endpoint, decoding.stop_tokens) if endpoint.is_vllm else []
    waiting = list(reversed(tasks))
    failed: dict[str, str] = {}
    finished = in_a_row = 0
    rollouts = _written(log)

    async def play(task: EvaluationTask) -> dict[str, Any]:
        sampled = decoding
        if task.temperature is not None:
            sampled = replace(decoding, temperature=task.temperature)
        policy = ChatPolicy(client, endpoint, sampled, stop_ids)
        # The service parses structured calls whatever its format is.
        ours = "hermes" if decoding.tool_format == STRUCTURED else decoding.tool_format
        wanted = Task(task.task_id, "eval", "evaluation", None, ours)
        return line_of(task, await run_episode(environment, wanted, policy.generate), policy)

    async def work() -> None:
        nonlocal finished, in_a_row
        while waiting and in_a_row < MOST_FAILED_TASKS:
            task = waiting.pop()
            try:
                line: dict[str, Any] = await retrying.copy()(play, task)
            except (EnvironmentFault, EndpointFault) as fault:
                failed[task.task_id] = str(fault)
                # An endpoint that refuses a dialogue still works, and may accept the next one.
                in_a_row += not isinstance(fault, RefusedDialogue)
                continue
            key = (task.suite, task.task_id)
            # The log viewer takes uids that differ only in the last two numbers for a group.
            uid = f"{task.suite}_{task.task_id}_{rollouts[key]}_0"
            append_json_lines(log, {"uid": uid, **line})
            rollouts[key] += 1
            finished, in_a_row = finished + 1, 0
            on_score(line["score"])

    retrying = tenacity.AsyncRetrying(
        stop=tenacity.stop_after_attempt(attempts),
        wait=tenacity.wait_exponential_jitter(multiplier=0.5, max=10.0),
        retry=tenacity.retry_if_exception_type((EnvironmentFault, EndpointFault)),
        sleep=asyncio.sleep,
        reraise=True,
    )
    async with client_of(endpoint.base_url, endpoint.api_key) as client:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(max(1, min(concurrency, len(waiting)))):
                    group.create_task(work())
        except* EvaluationError as errors:
            raise errors.exceptions[0] from None
    return Outcome(finished, failed)


def line_of(task: EvaluationTask, episode: Episode, policy: ChatPolicy) -> dict[str, Any]:
    """A line of a validation log, with the keys that training writes except the `uid`."""
    opening = next(
        (i for i, message in enumerate(episode.messages) if message["role"] == "assistant"),
        len(episode.messages),
    )
    return {
        "step": 0,
        "suite": task.suite,
        "task_id": task.task_id,
        "category": episode.category,
        "score": episode.reward,
        "labels": ",".join(turn.label for turn in episode.turns),
        "turns": len(episode.turns),
        "interface_version": episode.interface_version,
        "truncated": float(episode.truncated),
        "exit_status": episode.exit_status,
        "cut_messages": policy.cut_messages,
        "prompt_tokens": policy.prompt_tokens,
        "response_tokens": policy.response_tokens,
        # As in training's log: the prompt up to the first answer, then all the rest.
        "input": f"{_text(episode.messages[:opening])}\nassistant\n",
        "output": _text(_seen(episode.messages[opening:])).removeprefix("assistant\n"),
    }


def _seen(messages: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Without the message of the end, which the model is not shown."""
    ended = bool(messages) and messages[-1]["content"] == CONVERSATION_COMPLETED
    return messages[:-1] if ended else messages


def _text(messages: Sequence[dict[str, Any]]) -> str:
    """Messages as a chat template writes them without its special tokens."""
    parts = []
    for message in messages:
        content = message["content"]
        if message.get("tool_calls"):
            content = f"{content}\n{json.dumps(message['tool_calls'])}".strip()
        parts.append(f"{message['role']}\n{content}")
    return "\n".join(parts)
