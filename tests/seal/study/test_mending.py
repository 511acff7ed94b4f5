"""Copies without what the viewer needs are completed with what the runs had written."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from mend_kept_logs import main
from study_material import drawn, evolved, write_run

from seal import ROOT
from seal.records.json_lines import LineReader, json_lines
from seal.records.loop_log import ROUNDS
from seal.study.logs import keep
from seal.study.mending import mend, with_interfaces

NAME = "made-seal-s1"
EVIDENCE = ROOT / "evidence"


def write(root: Path) -> Path:
    """A run of four rounds with three validations, and its copy; returns the copy."""
    scores = {
        step: {
            "fixed": drawn([0.2, 0.5, 0.9], rollouts=4, seed=step),
            "progress": drawn([0.2, 0.5], rollouts=2, seed=step)
            | drawn([0.7], rollouts=2, seed=9, category="multi_turn_miss_func"),
        }
        for step in (0, 2, 4)
    }
    write_run(root / "all", NAME, 1, scores, rounds=4)
    keep(root / "all", NAME, root / "kept")
    return root / "kept"


def change(path: Path, gone: str) -> None:
    """Take out what older copies lack: keys of a line or of its data that begin so."""
    lines = []
    for line in LineReader(path).new():
        data = {k: v for k, v in line.get("data", {}).items() if not k.startswith(gone)}
        line = {k: v for k, v in line.items() if not k.startswith(gone)}
        # Before the first step there was nothing but a validation.
        if data or "data" not in line:
            lines.append(line | ({"data": data} if data else {}))
    path.write_text(json_lines(lines))


def files(folder: Path) -> dict[Path, Any]:
    """Every log of a folder, its lines as values."""
    return {
        path.relative_to(folder): [json.loads(line) for line in path.read_text().splitlines()]
        for path in folder.rglob("*.jsonl")
    }


def test_an_older_copy_becomes_what_is_kept_today(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = write(tmp_path)
    today = files(kept)
    experiment = kept / "experiments" / NAME
    change(experiment / "loop/rounds.jsonl", "interface_shown")
    change(experiment / "metrics.jsonl", "val-")
    older = files(kept)
    assert {path.name for path in today if today[path] != older[path]} == {
        "rounds.jsonl",
        "metrics.jsonl",
    }
    assert main([str(kept)]) == 0
    assert files(kept) == today
    assert "0 complaints" in capsys.readouterr().out
    texts = {path: path.read_bytes() for path in kept.rglob("*.jsonl")}
    assert mend(kept, NAME) == []
    assert texts == {path: path.read_bytes() for path in kept.rglob("*.jsonl")}


def test_a_round_is_not_given_an_interface_that_it_was_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = write(tmp_path)
    log = kept / "experiments" / NAME / "loop" / ROUNDS
    change(log, "interface_shown")
    lines = list(LineReader(log).new())
    del lines[1]
    log.write_text(json_lines(lines))
    assert main([str(kept)]) == 1
    said = capsys.readouterr().out
    assert f"{NAME}: round 3 was shown version 2 with 1 active parts, which no line" in said
    mended = {line["step"]: line for line in LineReader(log).new()}
    assert [step for step, line in mended.items() if "interface_shown" in line] == [1, 4]
    assert mended[4]["interface_shown"]["version"] == 3
    # Another version, and a first round that was shown parts.
    for step, metrics in ((4, {"seal/interface/version": 2}), (1, {})):
        other = [dict(line) for line in lines]
        for line in other:
            if line["step"] == step:
                line["metrics"] = {"seal/interface/active_parts": 1, **metrics}
        found, unknown = with_interfaces(other)
        assert "interface_shown" not in {line["step"]: line for line in found}[step]
        assert any(f"round {step} was shown version" in one for one in unknown)


def test_rounds_are_shown_what_the_profile_before_them_gave(tmp_path: Path) -> None:
    kept = write(tmp_path)
    log = kept / "experiments" / NAME / "loop" / ROUNDS
    change(log, "interface_shown")
    assert mend(kept, NAME) == []
    shown = {line["step"]: line["interface_shown"] for line in LineReader(log).new()}
    assert [shown[step]["version"] for step in (1, 2, 3, 4)] == [0, 1, 2, 3]
    assert {step: one["text"] for step, one in shown.items()} == {
        step: evolved(step - 1).describe() for step in (1, 2, 3, 4)
    }


def test_a_folder_without_runs_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main([str(tmp_path)])
    assert refused.value.code == 2
    assert "holds no runs: expected a folder made by compare.py --keep" in capsys.readouterr().err


@pytest.mark.parametrize("study", sorted(path.name for path in EVIDENCE.iterdir()))
def test_the_published_copies_lack_nothing_that_can_be_made_again(
    study: str, tmp_path: Path
) -> None:
    copy = tmp_path / study
    shutil.copytree(EVIDENCE / study, copy)
    assert main([str(copy)]) == 0
    for path in copy.rglob("*.jsonl"):
        assert path.read_bytes() == (EVIDENCE / study / path.relative_to(copy)).read_bytes()
