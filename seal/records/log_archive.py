"""A study's logs in one file, a zip archive, and how programs that read folders read it.

In: a folder, or an archive. Out: an archive, or a plain folder for as long as it is read. An
archive may come from somebody else, so `unpack` looks at all of its entries before it writes the
first one, and writes nothing outside its folder.
"""

import contextlib
import os
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from seal.records.whole_file import whole_file

ARCHIVE = "logs.zip"
"""Name of the archive in a study's folder."""
MOST_BYTES = 4 * 2**30
"""What an archive may take unpacked. The largest one of evidence/ takes 15 MB."""
MOST_FILES = 100_000
_EARLIEST = (1980, 1, 1, 0, 0, 0)
"""Time of every entry, so that equal logs make equal archives; zip knows no earlier one."""
_FILE_MODE = stat.S_IFREG | 0o644
_READ_BY_EVERY_PROGRAM = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, UnicodeDecodeError)


class BadArchive(ValueError):
    """An archive cannot be used; the message names it and says what to do."""


def pack(folder: Path, archive: Path) -> None:
    """Write all files of a folder to an archive, which is written completely or not at all.

    Equal files give equal bytes, whatever their times, modes and order on the disk. Each file is
    compressed for itself: if one changes, the others' bytes stay, so git stores little that is new.
    """
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    with whole_file(archive) as unfinished, zipfile.ZipFile(unfinished, "w") as target:
        for name in sorted(name for name, path in files.items() if path.is_file()):
            entry = zipfile.ZipInfo(name, _EARLIEST)
            entry.create_system = 3  # Unix, on every system
            entry.external_attr = _FILE_MODE << 16
            target.writestr(entry, files[name].read_bytes(), zipfile.ZIP_DEFLATED, 9)


def archive_of(path: Path) -> Path | None:
    """The archive that a path names: itself or the one in this folder; None for plain logs.

    Raises:
        BadArchive: The folder holds an archive and plain logs, so it is not clear which are meant.
    """
    if path.is_file():
        return path
    archive = path / ARCHIVE
    if not archive.is_file():
        return None
    if (path / "experiments").is_dir():
        raise BadArchive(
            f"{path} holds both {ARCHIVE} and experiments/: take one of them away, or name "
            f"{archive}"
        )
    return archive


@contextlib.contextmanager
def plain_folder(path: Path) -> Iterator[Path]:
    """The folder with the logs that a path names; an archive is unpacked until the block ends.

    Raises:
        BadArchive: The archive cannot be used.
    """
    archive = archive_of(path)
    if archive is None:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="seal-logs-") as folder:
        unpack(archive, Path(folder))
        yield Path(folder)


def unpack(archive: Path, folder: Path) -> None:
    """Write the files of an archive to an existing empty folder, with the archive's time.

    Raises:
        BadArchive: It is damaged or no archive of logs, or it cannot be written.
    """
    try:
        time = archive.stat().st_mtime
        with zipfile.ZipFile(archive) as source:
            entries = [entry for entry in source.infolist() if not entry.filename.endswith("/")]
            if wrong := _wrong(entries):
                raise BadArchive(
                    f"{archive} is no archive that compare.py --keep made: {wrong}. Nothing of it "
                    "was read; do not trust it"
                )
            for entry in entries:
                path = folder / entry.filename
                path.parent.mkdir(parents=True, exist_ok=True)
                # It reads no more than the entry says that it has, and checks the sum. No file is
                # written twice.
                with source.open(entry) as packed, path.open("xb") as plain:
                    shutil.copyfileobj(packed, plain)
                os.utime(path, (time, time))
    except _DAMAGED as error:
        raise BadArchive(
            f"{archive} is damaged or no zip file ({error}): fetch it again (git checkout), or "
            "make it again with compare.py --keep"
        ) from error
    except OSError as error:
        raise BadArchive(f"{archive} cannot be unpacked to {folder}: {error}") from error


def _wrong(entries: Sequence[zipfile.ZipInfo]) -> str | None:
    """Why entries are not written; None if all of them are files below one folder."""
    size = sum(entry.file_size for entry in entries)
    if size > MOST_BYTES or len(entries) > MOST_FILES:
        return (
            f"{len(entries)} files of {size} bytes together; at most {MOST_FILES} files and "
            f"{MOST_BYTES} bytes are unpacked"
        )
    for entry in entries:
        path, mode = PurePosixPath(entry.filename), entry.external_attr >> 16
        if path.is_absolute() or ".." in path.parts or not path.parts:
            return f"{entry.filename!r} is no path below a folder"
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            return f"{entry.filename!r} is a link or another thing that is no file"
        if entry.flag_bits & _ENCRYPTED or entry.compress_type not in _READ_BY_EVERY_PROGRAM:
            return f"{entry.filename!r} is encrypted, or compressed in an unusual way"
    return None
