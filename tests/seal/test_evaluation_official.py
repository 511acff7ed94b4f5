"""What the official programs are told, and what is read from the files that they really wrote.

official_results/ holds such files: bfcl/ made by official_recording.py, tau2/ by tau2-bench v0.2.0
in a run of two tasks with a tiny model on both sides (of its messages only the first are kept).
"""

import csv
import json
import shutil
from pathlib import Path
from statistics import fmean

import pytest
from official_recording import (
    ANSWERS,
    CATEGORIES,
    PYTHON,
    RECORDED,
    REGISTRY_NAME,
    RIGHT,
    judge,
    write_answers,
)

from seal.evaluation import official_bfcl, official_tau2
from seal.evaluation.faults import EvaluationError
from seal.evaluation.settings import SETTINGS, keep_settings
from seal.evaluation.tables import BFCL_V4, MEMORY, TABLE_1, TAU2, WEB, row_of, tables
from seal.validation_statistics import AVERAGE

CONNECTION_LOST = "Traceback\n  ...\nopenai.APIConnectionError: Connection error.\n"
TOO_LONG = "Traceback\n  ...\nopenai.BadRequestError: Error code: 400 - context length\n"


def scores_as_asked(folder: Path) -> None:
    scores = official_bfcl.read_scores(folder)
    assert {name: (score.correct, score.total) for name, score in scores.items()} == {
        name: (right, ANSWERS) for name, right in RIGHT.items()
    }
    assert scores["memory_kv"].accuracy == 0.75


def test_scores_that_bfcl_eval_wrote_are_read() -> None:
    scores_as_asked(RECORDED / "bfcl")


@pytest.mark.slow
def test_the_real_program_judges_and_is_read(tmp_path: Path) -> None:
    if not PYTHON.exists():
        pytest.skip("no official environment; make it: bash scripts/setup_official.sh bfcl")
    write_answers(tmp_path)
    judge(tmp_path)
    scores_as_asked(tmp_path)


def evaluated(folder: Path) -> Path:
    """All suites of a model: official results, and a log of BFCL V3."""
    for suite in CATEGORIES:
        keep_settings(folder / suite, {"suite": suite, "tasks": None})
        shutil.copytree(RECORDED / "bfcl/score", folder / suite / "score")
        # Each suite's folder holds the scores of its own categories alone.
        for path in (folder / suite).rglob("*_score.json"):
            if not any(f"BFCL_v4_{name}_score.json" == path.name for name in CATEGORIES[suite]):
                path.unlink()
    keep_settings(folder / "bfcl_v3", {"suite": "bfcl_v3", "tasks": None})
    lines = [
        {"step": 0, "suite": "benchmark", "task_id": f"{category}_{n}", "category": category}
        | {"score": float(n <= place)}
        for place, category in enumerate(TABLE_1[:-1])
        for n in range(4)
    ]
    log = folder / "bfcl_v3/0.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_averages_are_those_of_bfcl_eval(tmp_path: Path) -> None:
    row = row_of("SEAL", evaluated(tmp_path))
    with (RECORDED / "bfcl/score/data_agentic.csv").open() as file:
        [theirs] = csv.DictReader(file)
    for ours, name in ((WEB, "Web Search Summary"), (MEMORY, "Memory Summary")):
        assert f"{100 * row.figures[ours]:.2f}%" == theirs[name]
    assert f"{100 * row.figures[BFCL_V4]:.2f}%" == theirs["Agentic Overall Acc"]


def test_the_papers_tables(tmp_path: Path) -> None:
    folder = evaluated(tmp_path)
    row = row_of("SEAL", folder)
    assert [row.figures[column] for column in TABLE_1] == [0.25, 0.5, 0.75, 1.0, 0.625]
    assert TAU2 not in row.figures and row.notes == ()
    assert [title[:7] for title, _ in tables([row])] == ["Table 1", "Table 2"]
    # Without a category there is no average.
    (folder / "bfcl_v4_memory/score").rename(folder / "elsewhere")
    log = folder / "bfcl_v3/0.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:12]))
    row = row_of("SEAL", folder)
    assert not {MEMORY, BFCL_V4, AVERAGE} & row.figures.keys()
    assert row.notes == (
        "SEAL, bfcl_v3: no task of multi_turn_long_context",
        "SEAL, bfcl_v4_memory: not evaluated: memory_kv, memory_vector, memory_rec_sum",
    )


def test_a_folder_without_an_evaluation_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="holds no evaluation"):
        row_of("SEAL", tmp_path)


def test_other_settings_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "bfcl_v3"
    keep_settings(folder, {"model": "a", "decoding": {"stop": ("x",)}})
    keep_settings(folder, {"model": "a", "decoding": {"stop": ("x",)}})
    with pytest.raises(EvaluationError, match="model: 'a' there, 'b' now"):
        keep_settings(folder, {"model": "b", "decoding": {"stop": ("x",)}})
    (folder / SETTINGS).unlink()
    (folder / "0.jsonl").touch()
    with pytest.raises(EvaluationError, match="holds no evaluation"):
        keep_settings(folder, {})


def ids(file: Path) -> list[str]:
    return [json.loads(line)["id"] for line in file.read_text().splitlines()]


def test_questions_that_the_endpoint_failed_are_asked_again(tmp_path: Path) -> None:
    inner = tmp_path / "result" / REGISTRY_NAME / "agentic/memory/kv"
    (inner / "memory_snapshot/prereq_checkpoints").mkdir(parents=True)

    def write(name: str, entries: dict[str, str | None]) -> Path:
        path = inner / f"BFCL_v4_{name}_result.json"
        lines = [
            {"id": entry, "result": []} | ({"traceback": trace} if trace else {})
            for entry, trace in entries.items()
        ]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    prereq = write(
        "memory_kv_prereq",
        {
            "memory_kv_prereq_0-customer-0": None,
            "memory_kv_prereq_1-customer-1": CONNECTION_LOST,
            "memory_kv_prereq_2-student-0": None,
        },
    )
    asked = write(
        "memory_kv",
        {
            "memory_kv_0-customer-0": None,
            "memory_kv_1-student-1": TOO_LONG,  # the model's own: it stays, and counts as wrong
            "memory_kv_2-student-2": CONNECTION_LOST,
            "memory_kv_3-student-3": None,
        },
    )
    lost = inner / "memory_snapshot/prereq_checkpoints/memory_kv_prereq_0-customer-0.json"
    kept = inner / "memory_snapshot/student_final.json"
    lost.touch()
    kept.touch()
    faults = official_bfcl.take_out_faults(tmp_path)
    assert sorted(faults) == ["memory_kv_2-student-2", "memory_kv_prereq_1-customer-1"]
    # What was asked of the customer's memory counts on the conversation that was lost.
    assert ids(prereq) == ["memory_kv_prereq_2-student-0"]
    assert ids(asked) == ["memory_kv_1-student-1", "memory_kv_3-student-3"]
    assert kept.exists() and not lost.exists()
    assert official_bfcl.take_out_faults(tmp_path) == []
    assert official_bfcl.count_results(tmp_path) == 3


def test_keys_never_reach_a_command_line_or_a_result() -> None:
    endpoint = official_bfcl.Endpoint("http://a/v1", "m", "secret", False, None)
    command = official_tau2.command_of(
        endpoint, Path("out"), "retail", user_model="u", trials=4, tasks=None, concurrency=3
    )
    assert "secret" not in " ".join(command)
    assert command[command.index("--agent-llm") + 1] == "hosted_vllm/m"
    assert official_tau2.environment_of(endpoint)["HOSTED_VLLM_API_KEY"] == "secret"


def test_a_missing_key_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SERPAPI_API_KEY", raising=False)
    with pytest.raises(EvaluationError, match="SERPAPI_API_KEY"):
        official_bfcl.check_can_run("bfcl_v4_web", CATEGORIES["bfcl_v4_web"])
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(EvaluationError, match="OPENAI_API_KEY"):
        official_tau2.check_can_run(official_tau2.USER_MODEL)
    with pytest.raises(EvaluationError, match="--categories: bfcl_v4_web has no memory_kv"):
        official_bfcl.check_can_run("bfcl_v4_web", ["memory_kv"])


def test_results_that_tau2_wrote_are_read() -> None:
    scores = official_tau2.read_scores(RECORDED / "tau2")
    assert {name: (score.tasks, score.expected) for name, score in scores.items()} == {
        "retail": (2, 2)
    }
    document = json.loads((RECORDED / "tau2/retail.json").read_text())
    rewards = [simulation["reward_info"]["reward"] for simulation in document["simulations"]]
    assert scores["retail"].pass_1 == fmean(rewards)


def test_pass_1_is_the_mean_over_tasks_and_trials(tmp_path: Path) -> None:
    document = json.loads((RECORDED / "tau2/retail.json").read_text())
    one, other = document["simulations"]
    trials = []
    for task, rewards in ((one, (1.0, 0.0)), (other, (1.0, 1.0))):
        for reward in rewards:
            trials.append({**task, "reward_info": {**task["reward_info"], "reward": reward}})
    document["simulations"] = trials
    (tmp_path / "telecom.json").write_text(json.dumps(document))
    assert official_tau2.read_scores(tmp_path)["telecom"].pass_1 == 0.75
    (tmp_path / "retail.json").write_text("{}")
    with pytest.raises(EvaluationError, match="no result file of tau2"):
        official_tau2.read_scores(tmp_path)
