"""The files of a pool, and the command that makes them."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import ROOT, SPLIT, made, proposer, sides
from test_main import children, is_running

from env_service.environments.bfcl.synthesis import __main__ as command_line
from env_service.environments.bfcl.synthesis import making
from env_service.environments.bfcl.synthesis.filters import EarlierPools, program_of
from env_service.environments.bfcl.synthesis.pool import (
    BadPool,
    read_tasks,
    report_file,
    sha256_of,
    table_file,
    task_file,
)
from env_service.environments.bfcl.synthesis.proposals import Candidate, Knobs, Proposer
from env_service.environments.bfcl.synthesis.verification import Refused
from env_service.environments.bfcl.tasks import BfclTask, reference_calls
from seal.records.whole_file import whole_file

FEW = 48


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


# ---- files -------------------------------------------------------------------------------------


def test_a_pool_is_the_same_again_whatever_the_number_of_processes(tmp_path: Path) -> None:
    for processes in (1, 2):
        pool = making.make(proposer(Knobs(seed=7)), "same", 16, processes)
        making.write(pool, "same", tmp_path / str(processes))
    one, two = (files_below(tmp_path / str(count)) for count in (1, 2))
    assert [path.name for path in one] == ["same.jsonl", "same.report.json", "same.tasks.jsonl"]
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]
    other = making.make(proposer(Knobs(seed=8)), "same", 16, 1)
    assert other.candidates[0].task.turns != pool.candidates[0].task.turns
    assert read_tasks(one[2]) == [kept.task for kept in pool.candidates]


def test_the_table_of_the_trainer_has_no_reference(tmp_path: Path) -> None:
    making.write(made(FEW), "tests", tmp_path)
    lines = table_file("tests", tmp_path).read_text("utf-8").splitlines()
    assert len(lines) == FEW
    for line, one in zip(lines, made(FEW).candidates, strict=True):
        row = json.loads(line)
        assert [*row] == ["task_id", "category", "prompt", "targets", "seed_task"]
        assert row["prompt"] == [*one.task.turns[0]] and row["prompt"]
        assert row["task_id"] == one.task.task_id and row["category"] == one.task.category
        assert tuple(row["targets"]) == one.provenance.targets
        assert row["seed_task"] == one.provenance.seed_task
        for calls, parsed in zip(one.task.reference, reference_calls(one.task), strict=True):
            assert not any(text in line for text in calls)
            # Nor a tool by its name with its arguments, however it is written.
            assert not any(f"{call.name}(" in line or f'"{call.name}"' in line for call in parsed)


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    for number, blocked in enumerate((task_file, table_file, report_file)):
        root = tmp_path / str(number)
        blocked("tests", root).mkdir(parents=True)
        with pytest.raises(BadPool, match="cannot write the pool"):
            making.write(made(FEW), "tests", root)
        assert not files_below(root)


def test_an_earlier_pool_stays_as_it_was_if_a_file_cannot_be_begun(tmp_path: Path) -> None:
    making.write(made(FEW), "tests", tmp_path)
    before = {path: path.read_bytes() for path in files_below(tmp_path)}
    folder = table_file("tests", tmp_path).parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            making,
            "whole_file",
            lambda path: whole_file(path / "x" if path.parent == folder else path),
        )
        with pytest.raises(BadPool, match="cannot write the pool"):
            making.write(made(12), "tests", tmp_path)
    assert {path: path.read_bytes() for path in files_below(tmp_path)} == before


# ---- sides, and other pools --------------------------------------------------------------------


def scenario(task: BfclTask) -> str:
    return task.task_id.rpartition("_")[2]


def test_a_pool_of_another_side_shares_no_scenario_and_no_world_with_it() -> None:
    for side in ("development", "val"):
        seeds = Proposer(sides(side), Knobs()).seeds
        lending = {task.task_id for task in sides(side).lending}
        assert seeds and {task.task_id for task in seeds} <= lending
        for other in {"train", "development", "val"} - {side}:
            assert not set(map(scenario, sides(other).lending)) & set(map(scenario, seeds))
        states = [state for task in sides(side).others for state in task.initial_config.values()]
        assert not any(
            state in states for task in seeds for state in task.initial_config.values() if state
        )


def changed(candidate: Candidate, turns: int) -> BfclTask:
    """The first turns of a task with other words."""
    task = candidate.task
    texts = tuple(({"role": "user", "content": f"Say {n}."},) for n in range(turns))
    return replace(task, turns=texts, reference=task.reference[:turns])


def test_a_pool_is_kept_apart_from_an_earlier_one() -> None:
    earlier = made(FEW).candidates
    pools = EarlierPools([one.task for one in earlier] * 2)
    task = next(one.task for one in earlier if len(program_of(one.task)) > 4)
    with pytest.raises(Refused, match="it has a run of an earlier pool's program"):
        pools.check(task)
    short = next(one for one in earlier if 1 <= len(program_of(one.task)) < 3)
    with pytest.raises(Refused, match="in an earlier pool: its program is there already"):
        pools.check(changed(short, len(short.task.turns)))
    assert program_of(changed(short, 0)) == ()
    pools.check(changed(short, 0))


def test_make_keeps_a_pool_apart_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = ["--split", str(SPLIT), "--root", str(tmp_path), "--processes", "1"]
    few = [*usual, "--categories", "base", "--turns", "1", "--calls", "1"]
    assert command_line.main(["make", "first", *few, "--tasks", "40"]) == 0
    assert command_line.main(["make", "again", *few, "--tasks", "20"]) == 0
    # Without the option the second pool begins as the first one did.
    first, again = (read_tasks(task_file(name, tmp_path)) for name in ("first", "again"))
    assert [task.turns for task in again] == [task.turns for task in first[:20]]
    apart = ["--apart-from", "first"]
    assert command_line.main(["make", "other", *few, "--tasks", "20", *apart]) == 0
    other = read_tasks(task_file("other", tmp_path))
    assert not {*map(program_of, other)} & {*map(program_of, first)}
    report = json.loads(report_file("other", tmp_path).read_text())
    assert report["apart_from"] == {"first": sha256_of(task_file("first", tmp_path))}
    assert report["refused"]["in an earlier pool: its program is there already"] > 0
    assert "kept apart from pool" in capsys.readouterr().out
    for name, why in (("none", "cannot read the pool"), ("last", "apart from itself")):
        assert command_line.main(["make", "last", *few, "--apart-from", name]) == 1
        assert why in capsys.readouterr().err


# ---- the command line --------------------------------------------------------------------------


def test_make_and_report_say_what_is_in_a_pool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ["few", "--root", str(tmp_path)]
    knobs = ["--tasks", "4", "--processes", "1", "--categories", "base", "--turns", "2"]
    assert command_line.main(["make", *folder, "--split", str(SPLIT), *knobs]) == 0
    made_text = capsys.readouterr().out
    assert command_line.main(["report", *folder]) == 0
    assert capsys.readouterr().out == made_text
    assert "multi_turn_base" in made_text and "4 of" in made_text
    report = json.loads(report_file("few", tmp_path).read_text())
    assert report["tasks"] == 4 and report["turns_with_calls_mean"] == 2
    assert report["split_sha256"] == sha256_of(SPLIT)
    assert report["side"] == "train" and report["apart_from"] == {}
    for damaged in (table_file, task_file):
        damaged("few", tmp_path).write_text("")
        assert command_line.main(["report", *folder]) == 1
        assert f"is not the report of {damaged('few', tmp_path)}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot read --split"),
        ("{", "cannot read --split"),
        ('["multi_turn_base_0"]', "is no split: it needs the lists 'train' and 'val'"),
        ('{"train": ["x"], "val": []}', "unknown task 'x'"),
        ('{"train": [], "val": []}', "has no tasks on side 'train'; it has train, val"),
        ('{"train": ["multi_turn_base_0"], "val": ["multi_turn_base_0"]}', "is on two sides"),
        (
            '{"train": ["multi_turn_miss_func_1"], "val": ["multi_turn_base_0"]}',
            "no base task of side train has one of these tool classes",
        ),
    ],
)
def test_a_split_that_cannot_be_used_is_one_sentence(
    content: str | None, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    split = tmp_path / "split.json"
    if content is not None:
        split.write_text(content)
    arguments = ["make", "x", "--split", str(split), "--root", str(tmp_path / "pools")]
    assert command_line.main(arguments) == 1
    said = capsys.readouterr().err
    assert why in said and said.count("\n") == 1
    assert not (tmp_path / "pools").exists()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--tasks", "0"),
        ("--side", "test"),
        ("--apart-from", "../x"),
        ("--turns", "3-2"),
        ("--calls", "0-1"),
        ("--classes", "Math"),
        ("--categories", "base,miss"),
        ("--indirect", "2"),
    ],
)
def test_a_knob_that_cannot_be_is_refused(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.main(["make", "x", "--split", str(SPLIT), option, value])
    assert ended.value.code == 2
    assert f"argument {option}: " in capsys.readouterr().err


def test_there_is_no_report_without_a_pool(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["report", "none", "--root", "no/such"]) == 1
    assert "there is no pool none" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command_line.main(["report", "../x"])


def test_too_few_tasks_are_an_error_that_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    few = proposer(Knobs())
    monkeypatch.setattr(few, "attempt", lambda number: Refused("it rains"))
    with pytest.raises(BadPool, match=r"only 0 of 2 tasks in 60 attempts.*60 times: it rains"):
        making.make(few, "x", 2, processes=1)


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    module = "env_service.environments.bfcl.synthesis"
    command = [sys.executable, "-m", module, "make", "x", "--split", str(SPLIT), "--processes", "2"]
    making_it = subprocess.Popen(
        [*command, "--root", str(tmp_path), "--tasks", "100000"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while len(workers := children(making_it.pid)) < 2:
        assert time.monotonic() < deadline and making_it.poll() is None
        time.sleep(0.05)
    time.sleep(0.5)
    os.killpg(making_it.pid, signal.SIGINT)
    _, said = making_it.communicate(timeout=30)
    assert making_it.returncode == 130
    assert said == "synthesis: interrupted; nothing was written\n"
    assert not any(map(is_running, workers)) and not [*tmp_path.iterdir()]
