"""A file is written whole or not at all."""

from pathlib import Path

import pytest

from seal.records.whole_file import whole_file, write_whole


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "best.json"
    write_whole(path, "old")
    write_whole(path, "new \u00e4")
    assert path.read_text("utf-8") == "new \u00e4"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_the_earlier_file(tmp_path: Path) -> None:
    path = tmp_path / "best.json"
    write_whole(path, "old")
    with pytest.raises(RuntimeError, match="no more"), whole_file(path) as unfinished:
        unfinished.write_text("half")
        assert path.read_text() == "old"
        raise RuntimeError("no more")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "none" / "best.json", "text")
