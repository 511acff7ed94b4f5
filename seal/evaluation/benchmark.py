"""BFCL V3 multi-turn by our own episodes: training's validation, on a model behind an endpoint.

In: evaluation tasks, an `Endpoint`, the environment service. Out: a validation log
(`seal.records.validation_log`), `0.jsonl`, a line a task, written as soon as it is finished: what
is there is not done again. A task whose environment or endpoint failed is tried anew and then
reported, never scored.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import tenacity

from seal.environment.client import EnvironmentClient, EnvironmentFault
from seal.environment.episode import Episode, Task, run_episode
from seal.evaluation.endpoint import (
    STRUCTURED,
    ChatPolicy,
    Decoding,
    Endpoint,
    client_of,
    stop_token_ids,
)
from seal.evaluation.faults import EndpointFault, EvaluationError, RefusedDialogue
from seal.records.validation_log import read_log
from seal.wire import CONVERSATION_COMPLETED

LOG = "0.jsonl"
"""The log's name: a validation of no training step."""
EVALUATION_FILE = "bfcl_eval_400.parquet"
BENCHMARK = "benchmark"
"""The suite of an evaluation file's rows that are BFCL's own."""
MOST_FAILED_TASKS = 5
"""Tasks that may fail in a row before the evaluation stops to ask for more of the same."""


@dataclass(frozen=True)
class EvaluationTask:
    """A row of an evaluation file."""

    task_id: str
    category: str
    suite: str
    temperature: float | None
    """Where the row has its own."""


def read_tasks(parquet: Path) -> list[EvaluationTask]:
    """The rows of an evaluation file.

    Raises:
        EvaluationError: It is none.
    """
    try:
        rows = pyarrow.parquet.ParquetFile(parquet).read().to_pylist()
        tasks = []
        for row in rows:
            info = row["extra_info"]
            if info["mode"] != "eval":
                raise EvaluationError(f"--parquet {parquet} holds training tasks")
            task = EvaluationTask(
                info["task_id"], info["category"], info["suite"], info.get("temperature")
            )
            tasks += [task] * int(row.get("__rollout_n__", 1))
    except (OSError, pyarrow.ArrowException, KeyError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise EvaluationError(
            f"--parquet {parquet} is no evaluation file of scripts/prepare_bfcl.py: {reason}"
        ) from None
    return tasks


def spread(tasks: Sequence[EvaluationTask], count: int) -> list[EvaluationTask]:
    """The rows of the first so many tasks, taking one of each category in turn."""
    seen: Counter[str] = Counter()
    places: dict[EvaluationTask, tuple[int, int]] = {}
    for task in tasks:
        if task not in places:
            places[task] = (seen[task.category], len(places))
            seen[task.category] += 1
    kept = set(sorted(places, key=lambda task: places[task])[:count])
    return [task for task in tasks if task in kept]


def chosen_rows(parquet: Path, tasks: Sequence[EvaluationTask], folder: Path) -> Path:
    """The rows of some tasks as an evaluation file of their own, beside their log."""
    wanted = {(task.suite, task.task_id) for task in tasks}
    rows = pyarrow.parquet.ParquetFile(parquet).read()
    infos = rows.column("extra_info").to_pylist()
    kept = pyarrow.array([(info["suite"], info["task_id"]) in wanted for info in infos])
    path = folder / "tasks.parquet"
    pyarrow.parquet.write_table(rows.filter(kept), path)
    return path


def missing_tasks(tasks: Sequence[EvaluationTask], log: Path) -> list[EvaluationTask]:
    """Tasks that a log does not hold; a last line that was cut off is taken out of it.

    Raises:
        BadValidationLog: The log is damaged in another way.
    """
    if log.exists():
        whole = log.read_bytes().rpartition(b"\n")[0]
        # A line is written with its end; what has none was cut off while writing.
        log.write_bytes(whole + b"\n" if whole else b"")
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
    """Lines of each task that a log holds, by suite and task id."""
    if not (log.exists() and log.stat().st_size):
        return Counter()
    return Counter((line.suite, line.task_id) for line in read_log(log))


@dataclass(frozen=True)
class Outcome:
    """What became of the missing tasks."""

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
    """Play tasks and append their lines to the log.

    Args:
        tasks: What is missing.
        environment: Client of the service.
        endpoint: The model.
        decoding: How it is sampled.
        log: The validation log.
        attempts: Episodes tried for a task that faults end.
        concurrency: Episodes at once.
        on_score: Told of every finished task.

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
                # Who refuses a dialogue is there, and may take the next one.
                in_a_row += not isinstance(fault, RefusedDialogue)
                continue
            key = (task.suite, task.task_id)
            # Dialogues whose names differ in the last two numbers alone are read as a group.
            named = {"uid": f"{task.suite}_{task.task_id}_{rollouts[key]}_0", **line}
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(named) + "\n")
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
    """A line of a validation log, with the keys that training writes, all but the `uid`."""
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
        "ended": policy.out_of or ("step_limit" if episode.truncated else "completed"),
        "cut_messages": policy.cut_messages,
        "prompt_tokens": policy.prompt_tokens,
        "response_tokens": policy.response_tokens,
        # As training's log has them: the prompt up to where the model goes on, then all the rest.
        "input": f"{_text(episode.messages[:opening])}\nassistant\n",
        "output": _text(_seen(episode.messages[opening:])).removeprefix("assistant\n"),
    }


def _seen(messages: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Without the mark of the end, which the model is not shown."""
    ended = bool(messages) and messages[-1]["content"] == CONVERSATION_COMPLETED
    return messages[:-1] if ended else messages


def _text(messages: Sequence[dict[str, Any]]) -> str:
    """Messages as a chat template writes them without its special tokens."""
    parts = []
    for message in messages:
        said = message["content"]
        if message.get("tool_calls"):
            said = f"{said}\n{json.dumps(message['tool_calls'])}".strip()
        parts.append(f"{message['role']}\n{said}")
    return "\n".join(parts)
