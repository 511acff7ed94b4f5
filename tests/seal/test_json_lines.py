"""JSON lines: read whole, read while they are written, appended to."""

from pathlib import Path

import pytest

from seal.records.json_lines import (
    BadLine,
    LineReader,
    append_json_lines,
    json_object,
    read_json_lines,
)


def test_a_line_that_is_still_being_written_is_left_for_later(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    reader = LineReader(path)
    path.write_text('{"step": 1}\n{"step"')
    assert [line["step"] for line in reader.new()] == [1]
    path.write_text('{"step": 1}\n{"step": 2}\n')
    assert [line["step"] for line in reader.new()] == [2]


def test_a_reader_from_the_end_skips_an_earlier_run(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    path.write_text('{"step": 1}\n')
    assert list(LineReader(path, from_end=True).new()) == []


def test_what_is_appended_is_read_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    append_json_lines(path, {"n": 1}, {"n": 2})
    append_json_lines(path, {"n": 3})
    assert list(read_json_lines(path, lambda number, line: (number, line["n"]))) == [
        (1, 1),
        (2, 2),
        (3, 3),
    ]


def test_a_line_is_named_if_it_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"n": 1}\n[2]\n')
    with pytest.raises(BadLine, match=r"a.jsonl, line 2: expected a JSON object, got list"):
        list(read_json_lines(path, lambda _, line: line))


@pytest.mark.parametrize(
    ("raw", "words"),
    [(b"{", "not JSON"), (b"a\xff", r"not UTF-8 \(byte 2 is 0xff\)"), (b"[" * 10**5, "not JSON")],
)
def test_a_line_that_is_no_object(raw: bytes, words: str) -> None:
    with pytest.raises(BadLine, match=words):
        json_object(raw)
