"""Files that are still written: what is complete is read once, the rest waits."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seal.logview import growing
from seal.logview.growing import Contents, Files, GrowingFile, object_at, writable_object
from seal.records.json_lines import BadLine


def keep_n(number: int, line: dict[str, Any]) -> Any:
    if "n" not in line:
        raise BadLine("no n")
    return line["n"]


def kept(file: GrowingFile[Any]) -> list[Any]:
    return [line.kept for line in file.contents().lines]


def test_a_line_counts_when_it_has_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    file = GrowingFile(path, keep_n)
    assert file.contents() == Contents()
    path.write_text('{"n": 1}\n{"n": 2')
    assert kept(file) == [1]
    assert file.contents().faults == ()
    with path.open("a") as more:
        more.write('0}\n{"n"')
    assert kept(file) == [1, 20]
    assert [object_at(path, line.offset)["n"] for line in file.contents().lines] == [1, 20]


LINE = st.one_of(
    st.integers().map(lambda n: json.dumps({"n": n}).encode()),
    st.text().map(
        lambda text: json.dumps({"n": text}, ensure_ascii=False).encode("utf-8", "replace")
    ),
    st.binary(max_size=30).map(lambda raw: raw.replace(b"\n", b"")),
)


@given(st.lists(LINE, max_size=12), st.lists(st.integers(0, 200), max_size=6), st.booleans())
def test_however_a_file_grows_it_reads_the_same(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], cuts: list[int], ended: bool
) -> None:
    path = tmp_path_factory.mktemp("growing") / "a.jsonl"
    whole = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    path.write_bytes(b"")
    file = GrowingFile(path, keep_n)
    written = 0
    for cut in [*sorted(min(cut, len(whole)) for cut in cuts), len(whole)]:
        with path.open("ab") as more:
            more.write(whole[written:cut])
        written = cut
        file.contents()
    assert file.contents() == GrowingFile(path, keep_n).contents()
    complete = whole.split(b"\n")[:-1]
    assert [line.number for line in file.contents().lines] == [
        number for number, raw in enumerate(complete, 1) if _is_readable(raw)
    ]


def _is_readable(raw: bytes) -> bool:
    try:
        line = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError):
        return False
    return isinstance(line, dict) and "n" in line


@pytest.mark.parametrize("after", ['{"n": 7}\n', '{"n": 7}\n' * 9], ids=["shorter", "longer"])
@pytest.mark.parametrize("in_place", [True, False])
def test_a_file_that_was_written_anew_is_read_anew(
    tmp_path: Path, after: str, in_place: bool
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": 1}\n{"n": 2}\n')
    file = GrowingFile(path, keep_n)
    second = file.contents().lines[1]
    if in_place:
        path.write_text(after)
    else:
        (tmp_path / "b").write_text(after)
        os.replace(tmp_path / "b", path)
    assert kept(file) == [7] * after.count("\n")
    path.write_text('{"number": 123456}\n')
    with pytest.raises(BadLine, match="written anew"):
        object_at(path, second.offset)
    path.unlink()
    assert kept(file) == []


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"{", "line 2: not JSON"),
        (b"\xff", "line 2: not UTF-8 (byte 1 is 0xff)"),
        (b"[1]", "line 2: expected a JSON object, got list"),
        (b"[" * 100_000, "line 2: not JSON"),
        (b'{"n": ' + b"9" * 5000 + b"}", "line 2: not JSON"),
        (b'{"m": 1}', "line 2: no n"),
        (b"", "line 2: not JSON"),
    ],
)
def test_a_garbled_line_is_a_sentence(tmp_path: Path, raw: bytes, words: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"n": 1}\n' + raw + b'\n{"n": 3}\n')
    contents = GrowingFile(path, keep_n).contents()
    assert [(line.number, line.kept) for line in contents.lines] == [(1, 1), (3, 3)]
    assert [fault[: len("a.jsonl, ") + len(words)] for fault in contents.faults] == [
        f"a.jsonl, {words}"
    ]


def test_a_foreign_file_gives_few_sentences(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"x\n" * 1000)
    faults = GrowingFile(path, keep_n).contents().faults
    assert len(faults) == 21
    assert faults[-1] == "a.jsonl: 1000 such lines in all"


def test_a_line_that_would_take_all_memory_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing, "LONGEST_LINE", 1 << 20)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"n": "' + b"x" * (5 << 20) + b'"}\n{"n": 2}\n' + b"y" * (3 << 20))
    file = GrowingFile(path, keep_n)
    assert kept(file) == [2]
    assert file.contents().faults == ("a.jsonl, line 1: longer than 1 MiB",)


def test_half_a_surrogate_pair_becomes_its_escape() -> None:
    line = writable_object(rb'{"output": ["a \uD83D\uDE00 \ud800"], "\udfff": 1}')
    assert line == {"output": ["a \U0001f600 \\ud800"], "\\udfff": 1}
    str(line).encode("utf-8")


def test_a_folder_in_the_place_of_a_file_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").mkdir()
    contents = GrowingFile(tmp_path / "a.jsonl", keep_n).contents()
    assert contents.faults == ("a.jsonl cannot be read: Is a directory",)


def test_few_indexes_are_kept(tmp_path: Path) -> None:
    files = Files(most=2)
    read: list[str] = []

    def keep(number: int, line: dict[str, Any]) -> None:
        read.append(line["n"])

    for name in ("a", "b", "a", "c", "a", "b"):
        (tmp_path / name).write_text(f'{{"n": "{name}"}}\n')
        files.contents(tmp_path / name, keep)
    # b was dropped for c, and read once more; a was in use all the time.
    assert read == ["a", "b", "c", "b"]
