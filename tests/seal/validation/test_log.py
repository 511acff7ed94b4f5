import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seal.validation.log import BadValidationFile, log_files, read_folder, read_log

LINE = {
    "task_id": "multi_turn_base_1",
    "category": "multi_turn_base",
    "suite": "benchmark",
    "score": 1.0,
    "step": 10,
    "labels": "pass,state_mismatch",
}


def log(folder: Path, *lines: dict[str, Any], name: str = "10.jsonl") -> Path:
    path = folder / name
    texts = [json.dumps(line, ensure_ascii=False) + "\n" for line in lines]
    path.write_text("".join(texts), encoding="utf-8")
    return path


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in LINE.items() if name != key}


def test_a_line_becomes_a_rollout(tmp_path: Path) -> None:
    # A dialogue may hold what Unicode takes for a line end, unescaped.
    (first, second) = read_log(
        log(tmp_path, {**LINE, "output": "a\u2028b\x85c"}, without("labels"))
    )
    assert (first.line, first.step, first.score) == (1, 10, 1.0)
    assert (first.suite, first.task_id) == ("benchmark", "multi_turn_base_1")
    assert first.labels == ("pass", "state_mismatch")
    assert (second.line, second.labels) == (2, ())


def test_what_ended_a_rollout_and_how_long_it_was(tmp_path: Path) -> None:
    noted = {"truncated": 1.0, "prompt_tokens": 7, "response_tokens": 9}
    lines = [{**LINE, **noted, key: "max_model_len"} for key in ("exit_status", "ended")]
    (new, earlier, old) = read_log(log(tmp_path, *lines, {**LINE, "truncated": 0.0}))
    assert (new.exit_status, new.truncated) == ("max_model_len", True)
    assert replace(earlier, line=1) == new  # under the name of older logs
    assert (new.prompt_tokens, new.response_tokens) == (7, 9)
    assert (old.exit_status, old.truncated, old.prompt_tokens, old.response_tokens) == (
        None,
        False,
        None,
        None,
    )


def test_a_last_line_without_a_line_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "10.jsonl"
    path.write_text(json.dumps(LINE))
    assert len(read_log(path)) == 1


def test_logs_go_by_step_not_by_name(tmp_path: Path) -> None:
    for step in (9, 10, 0):
        log(tmp_path, {**LINE, "step": step}, name=f"{step}.jsonl")
    assert list(read_folder(tmp_path)) == [0, 9, 10]
    assert log_files(tmp_path / "none") == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (without("suite"), "line 1: no 'suite'"),
        (without("task_id"), "line 1: no 'task_id'"),
        ({**LINE, "category": None}, "'category' is NoneType, expected str"),
        ({**LINE, "response_tokens": "9"}, "'response_tokens' is str, expected int"),
        ({**LINE, "step": 10.0}, "'step' is float, expected int"),
        ({**LINE, "score": "1"}, "'score' is str, expected int or float"),
        ({**LINE, "score": True}, "'score' is bool"),
        ({**LINE, "score": 1.5}, "score 1.5, expected a number from 0 to 1"),
        ({**LINE, "score": float("nan")}, "score nan"),
        ({**LINE, "labels": ["pass"]}, "'labels' is list"),
        ({**LINE, "step": 3}, "of step 3 in the log of step 10"),
    ],
)
def test_a_line_that_is_no_rollout(tmp_path: Path, line: dict[str, Any], words: str) -> None:
    with pytest.raises(BadValidationFile, match=words):
        read_log(log(tmp_path, line))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (json.dumps(LINE).encode() + b"\n" + json.dumps(LINE).encode()[:40], "line 2: not JSON"),
        (b'{"a": "\xff"}\n', r"line 1: not UTF-8 \(byte 8 is 0xff\)"),
        (b"[1]\n", "expected a JSON object, got list"),
        (b"[" * 100_000, "not JSON"),
        (b"PAR1\x15\x04\x15\x80", "not UTF-8"),
    ],
)
def test_a_broken_file(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "10.jsonl").write_bytes(content)
    with pytest.raises(BadValidationFile, match=words):
        read_folder(tmp_path)


def test_a_folder_without_usable_logs(tmp_path: Path) -> None:
    with pytest.raises(BadValidationFile, match="no validation logs"):
        read_folder(tmp_path)
    with pytest.raises(BadValidationFile, match="does not exist"):
        read_folder(tmp_path / "none")
    with pytest.raises(BadValidationFile, match="is no folder"):
        read_folder(log(tmp_path, LINE))
    log(tmp_path, LINE, name="010.jsonl")
    with pytest.raises(BadValidationFile, match="of the same step"):
        read_folder(tmp_path)
    log(tmp_path, LINE, name="00.notes.jsonl")
    with pytest.raises(BadValidationFile, match="not named after a step"):
        read_folder(tmp_path)


def test_a_log_that_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "0.jsonl").mkdir()
    with pytest.raises(BadValidationFile, match="cannot read .*directory"):
        read_folder(tmp_path)
