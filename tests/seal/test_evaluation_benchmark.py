"""BFCL V3 by our episodes: one line for each task, what is missing, faults that are no scores."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pyarrow
import pyarrow.parquet
import pytest
from scripted_endpoint import Answer, said, serving

from seal.client.client import EnvironmentClient
from seal.evaluation import endpoint as endpoint_module
from seal.evaluation.benchmark import (
    MOST_FAILED_TASKS,
    Outcome,
    evaluate,
    missing_tasks,
    read_tasks,
    spread,
)
from seal.evaluation.endpoint import Decoding, find_endpoint
from seal.evaluation.faults import EvaluationError
from seal.logview.lines import Dialogue, parsed
from seal.records.loop_log import group_of
from seal.validation.evaluation_file import EvaluationTask
from seal.validation.log import BadValidationFile, read_log
from seal.wire import CONVERSATION_COMPLETED

DECODING = Decoding("hermes", 0.0, 100, 300, 400)


def task(number: int, category: str = "base", suite: str = "benchmark") -> EvaluationTask:
    return EvaluationTask(f"{category}_{number}", category, suite, None)


class Environment:
    """Two steps a task; tasks in `broken` fail once they are stepped."""

    def __init__(self, broken: set[str] | None = None) -> None:
        self.broken = broken or set()
        self.created: list[str] = []
        self.live: dict[str, str] = {}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        data = self.data(request.url.path, body)
        if data is None:
            error = {"code": "environment_error", "message": "it broke"}
            return httpx.Response(500, json={"success": False, "error": error})
        return httpx.Response(200, json={"success": True, "data": data})

    def data(self, path: str, body: dict[str, Any]) -> Any:
        if path == "/create":
            assert body["params"]["mode"] == "eval"
            self.created.append(body["task_id"])
            self.live[body["instance_id"]] = body["task_id"]
            info = {"tools": [], "category": body["task_id"][:-2], "interface_version": 0}
            info |= {"instance_id": body["instance_id"], "task_id": body["task_id"], "mode": "eval"}
            return {"state": [{"role": "user", "content": "light it"}], "info": info}
        if path == "/step":
            if self.live[body["instance_id"]] in self.broken:
                return None
            last = body["params"]["step"] == 1
            after = {"role": "tool", "content": "lit"}
            if last:
                after = {"role": "user", "content": CONVERSATION_COMPLETED}
            info = {"turn": 0, "step": 0, "truncated": False}
            return {"state": [after], "is_terminated": last, "info": info}
        if path == "/evaluate":
            diagnosis = [{"turn": 0, "label": "pass", "reason": "all checks pass", "step": None}]
            progress = ("scorable", "scorable_passed", "abstention", "abstention_passed")
            return {
                "accuracy": 1.0,
                "diagnosis": diagnosis,
                "interface_version": 0,
                "truncated": False,
                "task_id": self.live[body["instance_id"]],
                "category": "toy",
                "progress": dict.fromkeys(progress, 1),
            }
        return {}


def play(
    tasks: list[EvaluationTask],
    log: Path,
    environment: Environment,
    answer: Answer = lambda _: said("Done.", 50, 10),
) -> Outcome:
    async def run(url: str) -> Outcome:
        transport = httpx.MockTransport(environment)
        async with EnvironmentClient("http://a", "toy", transport=transport) as client:
            return await evaluate(
                tasks,
                client,
                await find_endpoint(url, None, None),
                DECODING,
                log,
                attempts=2,
                concurrency=2,
                on_score=lambda _: None,
            )

    with serving(answer) as served:
        return asyncio.run(run(served.url))


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "RETRIES", 0)
    monkeypatch.setattr("tenacity.wait_exponential_jitter.__call__", lambda *_: 0.0)


def test_a_line_a_task_as_training_writes_them(tmp_path: Path) -> None:
    log = tmp_path / "0.jsonl"
    replies = iter([said("Light!", 50, 10), said("Done.", 65, 5)])
    assert play([task(1)], log, Environment(), lambda _: next(replies)) == Outcome(1, {})
    assert json.loads(log.read_text()) == {
        "uid": "benchmark_base_1_0_0",
        "step": 0,
        "suite": "benchmark",
        "task_id": "base_1",
        "category": "base",
        "score": 1.0,
        "labels": "pass",
        "turns": 1,
        "interface_version": 0,
        "truncated": 0.0,
        "exit_status": "completed",
        "cut_messages": 0,
        "prompt_tokens": 50,
        "response_tokens": 20,
        "input": "user\nlight it\nassistant\n",
        "output": "Light!\ntool\nlit\nassistant\nDone.",
    }
    [rollout] = read_log(log)
    assert (rollout.task_id, rollout.score, rollout.labels) == ("base_1", 1.0, ("pass",))


def test_what_is_there_is_not_done_again(tmp_path: Path) -> None:
    log, tasks = tmp_path / "0.jsonl", [task(number) for number in range(4)]
    play(tasks[:2], log, Environment())
    with log.open("a") as file:
        file.write('{"step": 0, "suite": "bench')  # the program was killed while it wrote
    missing = missing_tasks(tasks, log)
    assert [one.task_id for one in missing] == ["base_2", "base_3"]
    environment = Environment()
    play(missing, log, environment)
    assert sorted(environment.created) == ["base_2", "base_3"]
    assert missing_tasks(tasks, log) == []
    assert len(read_log(log)) == 4


def test_lines_that_are_there_stay_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, tasks = tmp_path / "0.jsonl", [task(1), task(2)]
    play(tasks[:1], log, Environment())
    with log.open("a") as file:
        file.write('{"step": 0')
    # A write would empty the file first, and a full disk would leave it empty.
    monkeypatch.delattr(Path, "write_bytes")
    assert missing_tasks(tasks, log) == tasks[1:]


def test_several_rollouts_of_a_task_are_counted(tmp_path: Path) -> None:
    log, tasks = tmp_path / "0.jsonl", [task(1)] * 3 + [task(1, suite="fixed")]
    play(tasks[:2], log, Environment())
    assert missing_tasks(tasks, log) == [task(1), task(1, suite="fixed")]


def test_every_line_has_a_name_of_its_own(tmp_path: Path) -> None:
    log, tasks = tmp_path / "0.jsonl", [task(1)] * 3
    play(tasks[:2], log, Environment())
    play(missing_tasks(tasks, log), log, Environment())
    names = [parsed(Dialogue, json.loads(line)).uid for line in log.read_text().splitlines()]
    assert names == [f"benchmark_base_1_{number}_0" for number in range(3)]
    # The log viewer takes rollouts of a task for a group.
    assert {group_of(name) for name in names} == {"benchmark_base_1"}


def test_dialogues_that_are_refused_do_not_keep_others_from_being_played(tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        if len(body["messages"]) > 1:
            return 400, {"error": {"message": "cannot render this"}}
        return said("Light!")

    tasks = [task(number) for number in range(MOST_FAILED_TASKS + 4)]
    outcome = play(tasks, tmp_path / "0.jsonl", Environment(), answer)
    assert outcome.finished == 0
    assert sorted(outcome.failed) == [one.task_id for one in tasks]
    assert "cannot render this" in outcome.failed["base_0"]


def test_faults_here_and_there_do_not_end_an_evaluation(tmp_path: Path) -> None:
    broken = {f"base_{number}" for number in range(0, 4 * MOST_FAILED_TASKS, 2)}
    tasks = [task(number) for number in range(4 * MOST_FAILED_TASKS)]
    outcome = play(tasks, tmp_path / "0.jsonl", Environment(broken))
    assert (outcome.finished, set(outcome.failed)) == (len(broken), broken)


def test_a_damaged_log_is_an_error(tmp_path: Path) -> None:
    log = tmp_path / "0.jsonl"
    log.write_text('{"step": 0}\n')
    with pytest.raises(BadValidationFile):
        missing_tasks([task(1)], log)


def test_a_fault_of_the_environment_is_tried_again_and_never_scored(tmp_path: Path) -> None:
    log, environment = tmp_path / "0.jsonl", Environment(broken={"base_1"})
    outcome = play([task(number) for number in range(3)], log, environment)
    assert (outcome.finished, [*outcome.failed]) == (2, ["base_1"])
    assert "environment_error" in outcome.failed["base_1"]
    assert environment.created.count("base_1") == 2
    assert {rollout.task_id for rollout in read_log(log)} == {"base_0", "base_2"}


def test_an_endpoint_that_is_down_is_not_asked_for_every_task(tmp_path: Path) -> None:
    tasks = [task(number) for number in range(40)]
    outcome = play(tasks, tmp_path / "0.jsonl", Environment(), lambda _: (503, {}))
    assert outcome.finished == 0
    assert MOST_FAILED_TASKS <= len(outcome.failed) <= MOST_FAILED_TASKS + 1
    assert not (tmp_path / "0.jsonl").exists()


def test_a_refusal_ends_the_evaluation(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="OPENAI_API_KEY"):
        play([task(1), task(2)], tmp_path / "0.jsonl", Environment(), lambda _: (401, {}))


def test_some_tasks_are_of_all_categories() -> None:
    tasks = [task(n, category) for category in ("a", "b") for n in (0, 0, 1, 2)]
    assert spread(tasks, 3) == [task(0, "a"), task(0, "a"), task(1, "a"), *[task(0, "b")] * 2]


def test_an_evaluation_file_has_evaluation_tasks(tmp_path: Path) -> None:
    path = tmp_path / "tasks.parquet"
    info = {"task_id": "t", "category": "c", "suite": "s", "mode": "eval", "temperature": 1.0}
    rows = [{"extra_info": info, "__rollout_n__": 2}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    assert read_tasks(path) == [EvaluationTask("t", "c", "s", 1.0)] * 2
    rows = [{"extra_info": {**info, "mode": "train"}}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    with pytest.raises(EvaluationError, match="training tasks"):
        read_tasks(path)
    path.write_text("no parquet")
    with pytest.raises(BadValidationFile, match="prepare_bfcl"):
        read_tasks(path)
