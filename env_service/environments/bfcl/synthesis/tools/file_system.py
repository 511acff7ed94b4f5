"""GorillaFileSystem: files and folders of the current folder."""

import re
from typing import Any

from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.gorilla_file_system import (
    Directory,
    File,
)

from env_service.environments.bfcl.synthesis.sources import Arguments, Source, Tool

_FILE = {"file_name": "file"}
_UNITS = {"mode": {"l": "lines", "w": "words", "c": "characters"}}


def _here(x: Any, kind: type) -> list[str]:
    contents = x._current_dir.contents.items()
    return sorted(name for name, item in contents if isinstance(item, kind))


def _a_file(s: Source, x: Any) -> Arguments | None:
    files = _here(x, File)
    return {"file_name": s.old("file", files)} if files else None


def _two_files(s: Source, x: Any) -> Arguments | None:
    files = _here(x, File)
    return (
        dict(zip(("file_name1", "file_name2"), s.two(files), strict=True))
        if len(files) > 1
        else None
    )


def _a_folder(s: Source, x: Any) -> Arguments | None:
    folders = _here(x, Directory)
    return {"folder": s.old("folder", folders)} if folders else None


def _an_empty_folder(s: Source, x: Any) -> Arguments | None:
    empty = [name for name in _here(x, Directory) if not x._current_dir.contents[name].contents]
    return {"dir_name": s.old("folder", empty)} if empty else None


def _a_new_name(s: Source, x: Any) -> Arguments | None:
    return {"file_name": f"{s.word()}.{s.pick(('txt', 'md', 'csv', 'log'))}"}


def _a_text(s: Source, x: Any) -> Arguments | None:
    there = _a_file(s, x)
    return there and {"content": s.sentence(), **there}


def _a_pattern(s: Source, x: Any) -> Arguments | None:
    there = _a_file(s, x)
    content = x._current_dir.contents[there["file_name"]].content if there else ""
    words = sorted({*re.findall(r"(?<![\w.])[A-Za-z]{4,}(?![\w.])", content)})
    return there and {**there, "pattern": s.pick(words)} if words else None


def _a_name_part(s: Source, x: Any) -> Arguments | None:
    names = [*_here(x, File), *_here(x, Directory)]
    parts = [part for name in names if (part := name.split(".")[0])]  # not of ".hidden"
    return {"path": ".", "name": s.pick(parts)} if parts else None


def _a_move(s: Source, x: Any) -> Arguments | None:
    files, folders = _here(x, File), _here(x, Directory)
    if not files:
        return None
    to = s.old("folder", folders) if folders and s.rng.random() < 0.6 else f"{s.word()}.txt"
    return {"source": s.old("file", files), "destination": to}


TOOLS = {
    "cat": Tool(
        _a_file,
        (
            "show me what is in {file_name}",
            "print the content of {file_name}",
            "open {file_name} and read it to me",
        ),
        kinds=_FILE,
    ),
    "cd": Tool(
        _a_folder,
        ("go into {folder}", "change to {folder}", "step into {folder}"),
        kinds={"folder": "folder"},
    ),
    "cp": Tool(
        _a_move,
        (
            "copy {source} to {destination}",
            "make a copy of {source} at {destination}",
            "duplicate {source} as {destination}",
        ),
        kinds={"source": "file"},
    ),
    "diff": Tool(
        _two_files,
        (
            "compare {file_name1} with {file_name2}",
            "tell me where {file_name1} and {file_name2} differ",
            "list the differences between {file_name1} and {file_name2}",
        ),
    ),
    "du": Tool(
        lambda s, x: {"human_readable": True},
        (
            "tell me {human_readable} how much space this folder takes",
            "say how large everything here is, {human_readable}",
            "report the disk usage here {human_readable}",
        ),
        phrases={"human_readable": {"True": "in readable units"}},
    ),
    "echo": Tool(
        _a_text,
        (
            "write '{content}' into {file_name}",
            "put the text '{content}' in {file_name}",
            "replace what is in {file_name} by '{content}'",
        ),
        kinds=_FILE,
    ),
    "find": Tool(
        _a_name_part,
        (
            "look {path} for everything with '{name}' in its name",
            "search {path} for names that contain '{name}'",
            "list all files and folders {path} whose names have '{name}' in them",
        ),
        phrases={"path": {".": "from here downwards"}},
    ),
    "grep": Tool(
        _a_pattern,
        (
            "show the lines of {file_name} that have '{pattern}' in them",
            "search {file_name} for '{pattern}'",
            "give me every line with '{pattern}' from {file_name}",
        ),
        kinds=_FILE,
    ),
    "ls": Tool(
        lambda s, x: {"a": True},
        (
            "list everything here, {a}",
            "tell me what this folder contains, {a}",
            "show all files of the current folder, {a}",
        ),
        phrases={"a": {"True": "hidden files too"}},
    ),
    "mkdir": Tool(
        lambda s, x: {"dir_name": f"{s.word()}_{s.word()}"},
        (
            "make {dir_name} here",
            "create {dir_name}",
            "set up {dir_name}, which is new",
        ),
        kinds={"dir_name": "folder"},
    ),
    "mv": Tool(
        _a_move,
        (
            "move {source} to {destination}",
            "put {source} where it belongs now: {destination}",
            "transfer {source} to {destination}",
        ),
        kinds={"source": "file"},
    ),
    "pwd": Tool(
        lambda s, x: {},
        (
            "tell me where I am",
            "show the path of the current folder",
            "say which directory we are in",
        ),
    ),
    "rm": Tool(
        lambda s, x: _a_file(s, x) if s.rng.random() < 0.4 else None,
        ("delete {file_name}", "remove {file_name} for good", "get rid of {file_name}"),
        kinds=_FILE,
    ),
    "rmdir": Tool(
        _an_empty_folder,
        (
            "remove {dir_name}, which is empty",
            "delete {dir_name}, as nothing is in it",
            "get rid of {dir_name}, an empty one",
        ),
        kinds={"dir_name": "folder"},
    ),
    "sort": Tool(
        _a_file,
        (
            "show the lines of {file_name} in alphabetical order",
            "order the lines of {file_name}",
            "arrange the content of {file_name} line by line",
        ),
        kinds=_FILE,
    ),
    "tail": Tool(
        lambda s, x: (there := _a_file(s, x)) and {**there, "lines": s.number(2, 5)},
        (
            "show the last {lines} lines of {file_name}",
            "print the final {lines} lines of {file_name}",
            "read me the {lines} lines at the end of {file_name}",
        ),
        kinds=_FILE,
    ),
    "touch": Tool(
        _a_new_name,
        (
            "create an empty file {file_name}",
            "make a new file named {file_name}",
            "start a blank file called {file_name}",
        ),
        kinds=_FILE,
    ),
    "wc": Tool(
        lambda s, x: (there := _a_file(s, x)) and {**there, "mode": s.pick("lwc")},
        (
            "count the {mode} of {file_name}",
            "tell me how many {mode} {file_name} has",
            "give me the number of {mode} in {file_name}",
        ),
        phrases=_UNITS,
        kinds=_FILE,
    ),
}
"""By the tool's name."""
