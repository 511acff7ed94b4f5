"""The start gate: what it lets pass, and when it cannot be asked."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from typed import settings_with

from seal.records.checkpoint_folder import NOTE
from seal.settings.reading import SettingsError
from seal.settings.sections import Settings, StartGate
from seal.train import gate
from seal.train.gate import StartGateError

GATE = StartGate("fixed", min_pass_rate=0.2, min_mixed_group_share=0.6)


@pytest.mark.parametrize(
    ("pass_rate", "mixed", "words"),
    [(0.1, 0.9, "pass_rate 0.10"), (0.9, 0.1, "mixed_group_share 0.10")],
)
def test_too_little_is_refused_with_its_figure(pass_rate: float, mixed: float, words: str) -> None:
    metrics = {"val-seal/fixed/pass_rate": pass_rate, "val-seal/fixed/mixed_group_share": mixed}
    with pytest.raises(StartGateError, match=words):
        gate.check(GATE, metrics)
    gate.check(None, metrics)


def test_enough_passes() -> None:
    gate.check(GATE, {"val-seal/fixed/pass_rate": 0.2, "val-seal/fixed/mixed_group_share": 0.6})


def test_a_gate_on_no_suite_is_said() -> None:
    with pytest.raises(StartGateError, match="'fixed' is no suite"):
        gate.check(GATE, {"val-seal/benchmark/pass_rate": 1.0})


def recipe(folder: Path, **keys: Any) -> Settings:
    trainer = {
        "default_local_dir": str(folder),
        "resume_mode": "auto",
        "val_before_train": False,
        **keys,
    }
    gated = {"seal.start_gate": asdict(GATE)}
    return settings_with({**{f"trainer.{key}": value for key, value in trainer.items()}, **gated})


def test_a_gate_without_a_validation_before_training_is_refused(tmp_path: Path) -> None:
    for keys in ({}, {"resume_mode": "disable"}):
        with pytest.raises(SettingsError, match="val_before_train=false"):
            gate.check_possible(recipe(tmp_path, **keys))
    gate.check_possible(recipe(tmp_path, val_before_train=True))
    gated = recipe(tmp_path)
    gate.check_possible(replace(gated, seal=replace(gated.seal, start_gate=None)))


def test_a_resumed_run_has_passed_its_gate(tmp_path: Path) -> None:
    (tmp_path / NOTE).write_text("3")
    gate.check_possible(recipe(tmp_path))
    gate.check_possible(recipe(tmp_path / "new", resume_mode="resume_path"))
    with pytest.raises(SettingsError):
        gate.check_possible(recipe(tmp_path, resume_mode="disable"))
