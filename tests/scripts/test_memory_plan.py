"""The command line of the memory plan, and the tables that the documentation has of it."""

from pathlib import Path

import memory_plan
import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_documentation_has_the_tables() -> None:
    said = (ROOT / "docs/gpu.md").read_text("utf-8")
    for memory in memory_plan.MEMORY_GIB:
        assert memory_plan.table(memory) in said, "scripts/memory_plan.py --table makes them anew"


def test_a_plan_says_what_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert memory_plan.main(["--backbone", "qwen2.5-7b", "--gpus", "4", "--memory", "80"]) == 0
    said = capsys.readouterr().out
    for part in ("weights, float32", "gradients", "optimizer", "activations", "logits", "rollout"):
        assert part in said
    assert "largest gpu_memory_utilization: 0.68; the recipe's fits" in said
    assert memory_plan.main(["--gpus", "1", "--memory", "80"]) == 0
    assert "DOES NOT FIT: more GPUs, or offloading" in capsys.readouterr().out


def test_what_cannot_be_planned_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert memory_plan.main(["--", "+tuning=lora"]) == 1
    assert "whole weights (lora_rank 0)" in capsys.readouterr().err
    assert memory_plan.main(["--", "actor_rollout_ref.model.path=no/model"]) == 1
    assert "no/model: neither a folder" in capsys.readouterr().err
