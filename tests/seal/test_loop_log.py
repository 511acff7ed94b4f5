import json
from pathlib import Path

from seal.records.json_lines import LineReader
from seal.records.loop_log import DONE, FAILED, PHASES, LoopLog, mixed_group_share


def test_a_reader_gets_each_line_once(tmp_path: Path) -> None:
    log, reader = LoopLog(tmp_path / "loop"), LineReader(tmp_path / "loop" / PHASES)
    log.phase("rollout", 1)
    assert [line["phase"] for line in reader.new()] == ["rollout"]
    assert list(reader.new()) == []
    log.phase("update", 1)
    assert [line["phase"] for line in reader.new()] == ["update"]


def test_progress_belongs_to_the_present_phase(tmp_path: Path) -> None:
    log = LoopLog(tmp_path)
    log.phase("update", 2)
    log.phase("validate", 2)
    log.progress(3, 8)
    last = list(LineReader(tmp_path / PHASES).new())[-1]
    assert {**last, "time": 0} == {
        "time": 0,
        "phase": "validate",
        "step": 2,
        "ended": 3,
        "of": 8,
    }


def test_the_last_phase_says_how_the_run_ended(tmp_path: Path) -> None:
    log = LoopLog(tmp_path)
    log.end(FAILED)
    log.phase("update", 3)
    log.end(DONE)
    phases = [(line["phase"], line["step"]) for line in LineReader(tmp_path / PHASES).new()]
    assert phases == [("failed", 0), ("update", 3), ("done", 3)]


def test_half_a_line_of_a_killed_process_spoils_no_other(tmp_path: Path) -> None:
    log = LoopLog(tmp_path)
    log.phase("rollout", 1)
    with (tmp_path / PHASES).open("a") as file:
        file.write('{"phase": "upd')
    log.phase("done", 1)
    lines = (tmp_path / PHASES).read_text().splitlines()
    assert [json.loads(lines[0])["phase"], json.loads(lines[-1])["phase"]] == ["rollout", "done"]


def test_only_groups_with_both_outcomes_are_mixed() -> None:
    assert mixed_group_share({"a": [0.0, 1.0, 1.0], "b": [0.0, 0.0], "c": [1.0, 1.0]}) == 1 / 3
