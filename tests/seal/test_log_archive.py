"""An archive holds what a folder held, and a bad one is refused with nothing written."""

import io
import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seal import ROOT
from seal.records import log_archive
from seal.records.log_archive import ARCHIVE, BadArchive, archive_of, pack, plain_folder, unpack

parts = st.text("ab.-_ \u00e4", min_size=1, max_size=4).filter(lambda part: part not in (".", ".."))
names = st.lists(parts, min_size=1, max_size=3).map("/".join)
trees = st.dictionaries(names, st.binary(max_size=200), max_size=6).filter(
    lambda files: not any(name.startswith(f"{other}/") for name in files for other in files)
)
"""Files by name, none below another one."""


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def read(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@given(trees)
def test_what_is_packed_is_unpacked(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]
) -> None:
    root = tmp_path_factory.mktemp("round")
    (root / "plain").mkdir()
    pack(write(root / "plain", files), root / "any.zip")
    with plain_folder(root / "any.zip") as folder:
        assert read(folder) == files
    assert not folder.exists()


@given(trees, st.randoms())
def test_equal_files_make_equal_archives(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], random: object
) -> None:
    root = tmp_path_factory.mktemp("equal")
    for folder in ("one", "two"):
        (root / folder).mkdir()
    write(root / "one", files)
    write(root / "two", dict(reversed(files.items())))
    for number, path in enumerate((root / "two").rglob("*")):
        os.utime(path, (number, 10**9 + number))
        path.chmod(0o755)
    pack(root / "one", root / "one.zip")
    pack(root / "two", root / "two.zip")
    assert (root / "one.zip").read_bytes() == (root / "two.zip").read_bytes()


LOGS = {"experiments/a/metrics.jsonl": b'{"step": 1}\n' * 99, "launcher_record/a/config.yaml": b""}


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study's folder with an archive, as `--keep` makes it."""
    (tmp_path / "study").mkdir()
    pack(write(tmp_path / "plain", LOGS), tmp_path / "study" / ARCHIVE)
    return tmp_path / "study"


def test_a_folder_an_archive_and_the_folder_with_it_are_read_alike(study: Path) -> None:
    plain = study.parent / "plain"
    with plain_folder(plain) as folder:
        assert folder == plain
    for path in (study, study / ARCHIVE):
        assert archive_of(path) == study / ARCHIVE
        with plain_folder(path) as folder:
            assert read(folder) == LOGS
            # The viewer takes a run for one under way while its files are young.
            log = folder / "experiments/a/metrics.jsonl"
            assert log.stat().st_mtime == (study / ARCHIVE).stat().st_mtime
    assert archive_of(study.parent / "none") is None


def test_a_folder_with_an_archive_and_plain_logs_is_refused(study: Path) -> None:
    write(study, LOGS)
    with pytest.raises(BadArchive, match="holds both logs.zip and experiments/: take one"):
        archive_of(study)
    with plain_folder(study / ARCHIVE) as folder:
        assert read(folder) == LOGS


def test_an_error_while_it_is_packed_leaves_the_earlier_archive(
    study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = (study / ARCHIVE).read_bytes()

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", full)
    with pytest.raises(OSError, match="no space left"):
        pack(study.parent / "plain", study / ARCHIVE)
    assert read(study) == {ARCHIVE: earlier}


Entries = Sequence[tuple[str, bytes]]


def made(entries: Entries, kind: int = zipfile.ZIP_DEFLATED, mode: int = stat.S_IFREG) -> bytes:
    """An archive by any program."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", kind) as target:
        for name, content in entries:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (mode | 0o644) << 16
            entry.compress_type = kind
            target.writestr(entry, content)
    return file.getvalue()


FINE = ("experiments/a/metrics.jsonl", b"{}\n")


@pytest.mark.parametrize(
    ("archive", "said"),
    [
        (([FINE, ("../outside", b"x")],), "'../outside' is no path below a folder"),
        (([FINE, ("a/../../outside", b"x")],), "'a/../../outside' is no path below a folder"),
        (([FINE, ("/tmp/outside", b"x")],), "'/tmp/outside' is no path below a folder"),
        (([(".", b"x")],), "'.' is no path below a folder"),
        (([FINE, ("", b"x")],), "'' is no path below a folder"),
        (([("link", b"/etc")], zipfile.ZIP_STORED, stat.S_IFLNK), "'link' is a link"),
        (([("pipe", b"")], zipfile.ZIP_STORED, stat.S_IFIFO), "'pipe' is a link or another thing"),
        (([FINE], zipfile.ZIP_BZIP2), "compressed in an unusual way"),
        (([("big", b"0" * 5001)],), "1 files of 5001 bytes together"),
        (([(str(n), b"") for n in range(51)],), "51 files of 0 bytes together; at most 50"),
    ],
)
def test_an_archive_that_would_write_elsewhere_or_too_much_is_refused(
    archive: tuple[Any, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_archive, "MOST_BYTES", 5000)
    monkeypatch.setattr(log_archive, "MOST_FILES", 50)
    path, folder = tmp_path / "bad.zip", tmp_path / "in/folder"
    path.write_bytes(made(*archive))
    folder.mkdir(parents=True)
    with pytest.raises(BadArchive, match="bad.zip is no archive that compare.py") as refused:
        unpack(path, folder)
    assert said in str(refused.value)
    assert set(read(tmp_path)) == {"bad.zip"}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("names", [("a", "a"), ("a", "a/b"), ("a/b", "a"), ("a//b", "a/b")])
def test_entries_of_one_place_are_refused(names: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / ARCHIVE).write_bytes(made([(name, b"x") for name in names]))
    with pytest.raises(BadArchive, match=r"logs\.zip cannot be unpacked"), plain_folder(tmp_path):
        pass


def test_an_entry_that_is_longer_than_it_says_is_not_read_to_its_end(tmp_path: Path) -> None:
    bomb = made([("big", b"0" * 10**6)])
    size = (10**6).to_bytes(4, "little")
    assert bomb.count(size) == 2  # before the data and in the directory
    (tmp_path / "bomb.zip").write_bytes(bomb.replace(size, (7).to_bytes(4, "little")))
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadArchive, match="bomb.zip is damaged"):
        unpack(tmp_path / "bomb.zip", tmp_path / "folder")
    assert sum(map(len, read(tmp_path / "folder").values())) <= 7


@pytest.fixture(scope="module")
def whole() -> bytes:
    return made([*LOGS.items(), ("m\u00e4re", bytes(range(256)))])


@given(data=st.data())
def test_a_damaged_archive_is_refused_or_gives_what_was_packed(
    whole: bytes, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.just(len(whole)) | st.integers(0, len(whole) - 1)) :]
    path = tmp_path_factory.mktemp("damaged") / "logs.zip"
    path.write_bytes(damaged)
    try:
        with plain_folder(path) as folder:
            found = read(folder)
    except BadArchive as error:
        assert str(path) in str(error)
        assert list(path.parent.iterdir()) == [path]
    else:
        # Names have no sum; contents have.
        assert set(found.values()) <= {*LOGS.values(), bytes(range(256))}


NO_UTF8 = made([("\u00e4", b"x")]).replace("\u00e4".encode(), b"\xff\xff")


@pytest.mark.parametrize("content", [b"", b"version https://git-lfs.github.com/spec/v1\n", NO_UTF8])
def test_a_file_that_is_no_archive_is_an_error_that_says_what_to_do(
    content: bytes, tmp_path: Path
) -> None:
    (tmp_path / ARCHIVE).write_bytes(content)
    with (
        pytest.raises(BadArchive, match=r"logs\.zip is damaged or no zip file .*fetch it again"),
        plain_folder(tmp_path),
    ):
        pass


READ = """
import sys
from pathlib import Path
from seal.records.log_archive import plain_folder
with plain_folder(Path(sys.argv[1])) as folder:
    print(folder, flush=True)
    sys.stdin.readline()
    print(len((folder / "experiments/a/metrics.jsonl").read_bytes()))
"""


def test_processes_read_one_archive_at_the_same_time_and_leave_nothing(study: Path) -> None:
    command = [sys.executable, "-c", READ, str(study)]
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) for _ in range(2)
    ]
    folders = []
    for process in processes:
        assert process.stdout is not None
        folders.append(Path(process.stdout.readline().strip()))
    assert len(set(folders)) == 2 and all(folder.is_dir() for folder in folders)
    # The archive is replaced while it is read.
    pack(write(study.parent / "other", {"experiments/a/metrics.jsonl": b""}), study / ARCHIVE)
    for process, folder in zip(processes, folders, strict=True):
        said, _ = process.communicate("\n")
        assert said.strip() == str(len(LOGS["experiments/a/metrics.jsonl"]))
        assert not folder.exists()
