from pathlib import Path

from seal.loop_log import PHASES, ROUNDS, LineReader, LoopLog


def test_a_reader_gets_each_line_once(tmp_path: Path) -> None:
    log, reader = LoopLog(tmp_path / "loop"), LineReader(tmp_path / "loop" / PHASES)
    log.phase("rollout", 1)
    assert [line["phase"] for line in reader.new()] == ["rollout"]
    assert list(reader.new()) == []
    log.phase("update", 1)
    assert [line["phase"] for line in reader.new()] == ["update"]


def test_a_line_that_is_still_being_written_is_left_for_later(tmp_path: Path) -> None:
    path = tmp_path / ROUNDS
    reader = LineReader(path)
    path.write_text('{"step": 1}\n{"step"')
    assert [line["step"] for line in reader.new()] == [1]
    path.write_text('{"step": 1}\n{"step": 2}\n')
    assert [line["step"] for line in reader.new()] == [2]


def test_a_reader_from_the_end_skips_an_earlier_run(tmp_path: Path) -> None:
    path = tmp_path / ROUNDS
    path.write_text('{"step": 1}\n')
    assert list(LineReader(path, from_end=True).new()) == []
