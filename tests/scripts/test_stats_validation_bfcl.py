import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from stats_validation_bfcl import main

from seal.validation import files

ROOT = Path(__file__).resolve().parents[2]
PNG = b"\x89PNG\r\n\x1a\n"
TASKS = ("multi_turn_base_1", "multi_turn_base_2", "multi_turn_miss_func_1")


def info(task: str, suite: str = "benchmark") -> dict[str, str]:
    return {"task_id": task, "category": task.rpartition("_")[0], "suite": suite}


def write(folder: Path, step: int, *rollouts: tuple[str, float], suite: str = "benchmark") -> None:
    folder.mkdir(exist_ok=True)
    with (folder / f"{step}.jsonl").open("a") as file:
        for task, score in rollouts:
            file.write(json.dumps({**info(task, suite), "score": score, "step": step}) + "\n")


@pytest.fixture
def val(tmp_path: Path) -> Path:
    """Two complete validations."""
    write(tmp_path / "val", 0, *((task, 0.0) for task in TASKS))
    write(tmp_path / "val", 10, (TASKS[0], 1.0), (TASKS[1], 0.0), (TASKS[2], 1.0))
    return tmp_path / "val"


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    path = tmp_path / "eval.parquet"
    pq.write_table(pa.table({"extra_info": [info(task) for task in TASKS]}), path)
    return path


@pytest.fixture
def defective(tmp_path: Path) -> Path:
    path = tmp_path / "defective.json"
    tasks = [{"task_id": TASKS[1], "reason": "", "source": ""}]
    path.write_text(json.dumps({"note": "", "tasks": tasks}))
    return path


@pytest.fixture
def run(
    val: Path, parquet: Path, defective: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """The command with options: exit status, output, errors."""

    def command(*options: str) -> tuple[int, str, str]:
        named = [f"--val-dir={val}", f"--parquet={parquet}", f"--defective={defective}"]
        status = main([*named, *options])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return status, captured.out, captured.err

    return command


Run = Callable[..., tuple[int, str, str]]


def cells(out: str, category: str) -> list[list[str]]:
    """The figures of every row of a category, by table and step."""
    lines = [line for line in out.splitlines() if category + " " in line]
    return [line.partition(category)[2].split() for line in lines]


def test_the_tables(run: Run) -> None:
    status, out, err = run()
    assert (status, err) == (0, "")
    assert cells(out, "multi_turn_base") == [
        ["2", "0.00", "0.00-65.76"],
        ["2", "50.00", "9.45-90.55"],
        ["1", "0.00", "0.00-79.35"],
        ["1", "100.00", "20.65-100.00"],
    ]
    assert [line[:2] for line in cells(out, "average of categories")] == [
        ["3", "0.00"],
        ["3", "75.00"],
        ["2", "0.00"],
        ["2", "100.00"],
    ]
    assert "without defective tasks" in out
    assert "Defective among the evaluated tasks: multi_turn_base_2." in out


def test_a_difference_is_paired_with_the_same_step(run: Run, val: Path, tmp_path: Path) -> None:
    write(tmp_path / "base", 10, (TASKS[0], 0.0), (TASKS[1], 1.0), (TASKS[2], 0.0))
    write(tmp_path / "base", 20, *((task, 1.0) for task in TASKS))
    status, out, _ = run(f"--baseline-dir={tmp_path / 'base'}")
    assert status == 0
    assert cells(out, "multi_turn_base")[0][3:] == ["-"] * 4
    assert cells(out, "multi_turn_base")[1][3:] == ["+0.00", "1", "1", "1.000"]
    assert cells(out, "average of categories")[1][3:] == ["+50.00", "2", "1", "1.000"]
    assert "same step" in " ".join(out.split())


def test_a_single_baseline_log_is_compared_with_every_step(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "base", 60, *((task, 0.0) for task in TASKS))
    _, out, _ = run(f"--baseline-dir={tmp_path / 'base'}")
    assert [line[3] for line in cells(out, "miss_func")] == ["+0.00", "+100.00"] * 2
    assert "its step 60" in " ".join(out.split())


def test_json_csv_and_plot_hold_the_same_figures(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "base", 10, *((task, 0.0) for task in TASKS))
    made = {kind: tmp_path / f"out.{kind}" for kind in ("json", "csv", "png")}
    status, _, _ = run(
        f"--json={made['json']}",
        f"--csv={made['csv']}",
        f"--plot={made['png']}",
        f"--baseline-dir={tmp_path / 'base'}",
    )
    assert status == 0
    document = json.loads(made["json"].read_text())
    assert (document["defective_tasks"], document["incomplete"]) == ([TASKS[1]], [])
    row = next(
        row
        for row in document["rows"]
        if row["step"] == 10 and row["category"] == "average of categories"
    )
    assert (row["pass_rate"], row["difference_points"], row["better"]) == (0.75, 75.0, 2)
    with made["csv"].open(newline="") as file:
        records = list(csv.DictReader(file))
    for record, expected in zip(records, document["rows"], strict=True):
        texts = {key: "" if value is None else str(value) for key, value in expected.items()}
        assert record == texts
    assert made["png"].read_bytes().startswith(PNG)


def test_tokens_and_truncated_rollouts_stand_beside_the_rates(run: Run, val: Path) -> None:
    path = val / "10.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line, (tokens, ended) in zip(
        lines, ((100, "completed"), (400, "response_length"), (50, "completed")), strict=True
    ):
        line |= {"prompt_tokens": 10, "response_tokens": tokens, "exit_status": ended}
        line["truncated"] = float(ended != "completed")
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    status, out, _ = run(f"--json={val.parent / 'out.json'}")
    assert status == 0
    # Step 0 is of before these were noted. Averages are those of the categories.
    assert [line[3:] for line in cells(out, "multi_turn_base")[:2]] == [["-", "-"], ["250", "50.0"]]
    assert cells(out, "average of categories")[1][3:] == ["150", "25.0"]
    assert "step 10: 1 of 3 rollouts were truncated: 1 by response_length." in out
    row = json.loads((val.parent / "out.json").read_text())["rows"][-1]
    found = (row["mean_prompt_tokens"], row["mean_response_tokens"], row["truncated_share"])
    assert found == (10.0, 75.0, 0.0)  # without the defective task, which was the long one


def test_a_plot_of_one_step_and_two_suites(tmp_path: Path, parquet: Path) -> None:
    rows = {
        "extra_info": [info(TASKS[0]), info(TASKS[0], "fixed")],
        "__rollout_n__": [1, 2],
    }
    pq.write_table(pa.table(rows), parquet)
    write(tmp_path / "one", 0, (TASKS[0], 1.0))
    write(tmp_path / "one", 0, (TASKS[0], 1.0), (TASKS[0], 0.0), suite="fixed")
    plot = tmp_path / "one.png"
    assert main([f"--val-dir={tmp_path / 'one'}", f"--parquet={parquet}", f"--plot={plot}"]) == 0
    assert plot.read_bytes().startswith(PNG)


def test_suites_are_kept_apart_and_rollouts_of_a_task_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The quickstart's file: 24 tasks once, and 32 tasks with 4 rollouts each."""
    parquet = ROOT / "data/quickstart_eval.parquet"
    for row in pq.read_table(parquet).to_pylist():
        task, suite, n = row["extra_info"]["task_id"], row["extra_info"]["suite"], 0
        for n in range(row["__rollout_n__"]):
            write(tmp_path / "val", 0, (task, float(n % 4 == 1)), suite=suite)
    assert main([f"--val-dir={tmp_path / 'val'}", f"--parquet={parquet}"]) == 0
    out = capsys.readouterr().out
    assert "suite 'benchmark'" in out and "suite 'fixed'" in out
    assert ["128", "32", "25.00", "18.30-33.16"] in cells(out, "multi_turn_base")
    assert "not independent" in " ".join(out.split())


def test_missing_and_duplicate_tasks_are_summarised_and_an_error(run: Run, val: Path) -> None:
    write(val, 20, (TASKS[0], 1.0), (TASKS[0], 1.0))
    status, out, err = run()
    assert status == 1
    assert ["2", "1", "100.00", "34.24-100.00"] in cells(out, "multi_turn_base")
    first, second, third = err.splitlines()
    assert first.endswith(
        "step 20, suite 'benchmark': 2 of 3 tasks are missing: "
        "multi_turn_base_2, multi_turn_miss_func_1"
    )
    assert "1 of 3 tasks are duplicate (the mean counts): multi_turn_base_1" in second
    assert "no task of multi_turn_miss_func" in third
    assert run("--allow-incomplete")[0] == 0


def broken(folder: Path, name: str, content: bytes) -> str:
    (folder / name).write_bytes(content)
    return str(folder / name)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("20.jsonl", b"", "is empty"),
        ("20.jsonl", b'{"task_id": "multi', "line 1: not JSON"),
        ("20.jsonl", b"\xff\xfe", "line 1: not UTF-8"),
        ("20.jsonl", b'{"a": 1}', "is this a validation log"),
        ("notes.jsonl", b"{}", "not named after a step"),
        ("20.jsonl", json.dumps({**info("tau_1"), "score": 1, "step": 20}).encode(), "'tau_1'"),
    ],
)
def test_a_log_that_cannot_be_used_is_one_sentence(
    run: Run, val: Path, name: str, content: bytes, words: str
) -> None:
    broken(val, name, content)
    status, out, err = run()
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert words in err and name.partition(".")[0] in err


@pytest.mark.parametrize(
    ("option", "content", "words"),
    [
        ("--parquet", b"PAR1 no", "cannot be read as parquet"),
        ("--parquet", b"", "cannot be read as parquet"),
        ("--bfcl-jsonl", b'{"id": "multi_turn_base_1"', "not JSON"),
        ("--bfcl-jsonl", b'{"id": "tau_1", "category": "tau"}', "has no task 'multi_turn_base_1'"),
        ("--defective", b"[]", "no list of defective tasks"),
        ("--defective", b"\xff", "no list of defective tasks"),
        ("--val-dir", b"", "is no folder"),
        ("--baseline-dir", b"", "is no folder"),
    ],
)
def test_another_file_that_cannot_be_used_is_one_sentence(
    run: Run, tmp_path: Path, option: str, content: bytes, words: str
) -> None:
    status, out, err = run(f"{option}={broken(tmp_path, 'broken', content)}")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert words in err


@pytest.mark.parametrize(
    "option", ["--parquet", "--bfcl-jsonl", "--defective", "--val-dir", "--baseline-dir"]
)
def test_a_file_that_is_not_there_is_one_sentence(run: Run, tmp_path: Path, option: str) -> None:
    status, out, err = run(f"{option}={tmp_path / 'none'}")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "none" in err


@pytest.mark.parametrize("option", ["--json", "--csv", "--plot"])
def test_a_place_that_cannot_be_written_is_one_sentence(
    run: Run, tmp_path: Path, option: str
) -> None:
    status, _, err = run(f"{option}={tmp_path / 'none' / 'out.png'}")
    assert (status, err.count("\n")) == (1, 1)
    assert "out.png" in err


def test_a_parquet_of_another_kind(run: Run, tmp_path: Path) -> None:
    for columns, words in (
        ({"x": [1]}, "row 1: no extra_info"),
        ({"extra_info": [{"suite": "benchmark", "task_id": None, "category": "c"}]}, "row 1"),
        ({"extra_info": [info("multi_turn_base_1", "train")]}, "is it for training"),
    ):
        pq.write_table(pa.table(columns), tmp_path / "other.parquet")
        status, _, err = run(f"--parquet={tmp_path / 'other.parquet'}")
        assert status == 1 and words in err


def test_a_baseline_without_a_common_step(run: Run, tmp_path: Path) -> None:
    for step in (5, 15):
        write(tmp_path / "base", step, *((task, 0.0) for task in TASKS))
    status, _, err = run(f"--baseline-dir={tmp_path / 'base'}")
    assert status == 1 and "has no step of" in err


def test_bfcl_tasks_are_accepted(run: Run, tmp_path: Path) -> None:
    lines = [{"id": task, "category": info(task)["category"]} for task in TASKS]
    path = broken(tmp_path, "bfcl.jsonl", "\n".join(map(json.dumps, lines)).encode())
    assert run(f"--bfcl-jsonl={path}")[0] == 0


def test_a_missing_list_of_defective_tasks_is_said(
    val: Path,
    parquet: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(files, "DEFECTIVE", ROOT / "data/none.json")
    assert main([f"--val-dir={val}", f"--parquet={parquet}"]) == 0
    assert "no list of defective tasks (data/none.json)" in capsys.readouterr().out


def test_a_plot_is_a_png(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run("--plot=out.pdf")
    assert end.value.code == 2
    assert "expected the name of a .png file" in capsys.readouterr().err


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text: Any = capsys.readouterr().out
    for word in ("McNemar", "Wilson", "--allow-incomplete", "Exit status", "--baseline-dir"):
        assert word in text
