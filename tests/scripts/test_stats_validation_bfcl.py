import json
from pathlib import Path
from typing import Any

import pytest
from stats_validation_bfcl import main


def line(task: str, score: float, step: int = 0, **changes: Any) -> dict[str, Any]:
    category = task.rsplit("_", 1)[0]
    known = {"task_id": task, "category": category, "score": score, "suite": "benchmark"}
    return {**known, "step": step, **changes}


def write(folder: Path, step: int, *lines: dict[str, Any]) -> None:
    (folder / f"{step}.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in lines))


def summary(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[tuple[int, str], float]:
    assert main([f"--val-dir={folder}", "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    return {(record["step"], record["category"]): record["pass_rate"] for record in records}


def test_categories_weigh_the_same_in_the_average(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        tmp_path,
        0,
        line("multi_turn_base_1", 1.0),
        line("multi_turn_base_2", 1.0),
        line("multi_turn_base_3", 1.0),
        line("multi_turn_miss_func_1", 0.0),
    )
    write(tmp_path, 10, line("multi_turn_base_1", 0.0, step=10))
    rates = summary(tmp_path, capsys)
    assert rates[0, "multi_turn_base"] == 1.0
    assert rates[0, "average of categories"] == 0.5
    assert rates[10, "average of categories"] == 0.0


def test_suites_are_kept_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(
        tmp_path, 0, line("multi_turn_base_1", 0.0), line("multi_turn_base_1", 1.0, suite="fixed")
    )
    assert main([f"--val-dir={tmp_path}"]) == 0
    out = capsys.readouterr().out
    assert "'benchmark'" in out and "'fixed'" in out


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "is empty"),
        ([{"a": 1}], "is this a validation log"),
        ([line("multi_turn_base_1", 1.0, step=3)], "step 3 in the log of step 0"),
    ],
)
def test_a_log_that_cannot_be_used_is_one_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    lines: list[dict[str, Any]],
    words: str,
) -> None:
    write(tmp_path, 0, *lines)
    assert main([f"--val-dir={tmp_path}"]) == 2
    assert words in capsys.readouterr().err


def test_an_empty_folder_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"--val-dir={tmp_path}"]) == 2
    assert "no validation logs" in capsys.readouterr().err


def test_a_task_of_another_benchmark_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").mkdir()
    write(tmp_path / "logs", 0, line("tau_1", 1.0))
    known = tmp_path / "processed.jsonl"
    known.write_text(json.dumps({"id": "multi_turn_base_1", "category": "multi_turn_base"}) + "\n")
    assert main([f"--val-dir={tmp_path / 'logs'}", f"--bfcl-jsonl={known}"]) == 2
    assert "unknown task 'tau_1'" in capsys.readouterr().err


def test_missing_and_repeated_tasks_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, 0, line("multi_turn_base_1", 1.0), line("multi_turn_base_1", 1.0))
    parquet = Path(__file__).resolve().parents[2] / "data/bfcl_eval_400.parquet"
    assert main([f"--val-dir={tmp_path}", f"--parquet={parquet}"]) == 0
    err = capsys.readouterr().err
    assert "appear twice" in err and "evaluation tasks are missing" in err
