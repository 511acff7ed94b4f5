"""The environment itself: unknown ids, and a self check that notices a broken installation."""

import json
import sys
from pathlib import Path

import pytest

from env_service.environments.base import EpisodeOptions, SelfCheckFailed, UnknownSplit, UnknownTask
from env_service.environments.bfcl import environment, tool_classes
from env_service.environments.bfcl.environment import BfclEnvironment

MATH_MODULE = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code.math_api"


def forget_tool_classes() -> None:
    for cached in (tool_classes.tool_class, tool_classes.tool_names, tool_classes.parameter_names):
        cached.cache_clear()


def test_a_missing_mpmath_fails_the_self_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it bfcl_eval imports and 100 of the 800 tasks silently score 0."""
    monkeypatch.setitem(sys.modules, "mpmath", None)
    monkeypatch.delitem(sys.modules, MATH_MODULE, raising=False)
    forget_tool_classes()
    with pytest.raises(SelfCheckFailed, match="MathAPI does not import"):
        BfclEnvironment().self_check()
    monkeypatch.undo()
    forget_tool_classes()
    BfclEnvironment().self_check()


def test_a_broken_tool_fails_the_self_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, dir_name: str) -> None:
        raise ArithmeticError("broken")

    monkeypatch.setattr(tool_classes.tool_class("GorillaFileSystem"), "mkdir", broken)
    with pytest.raises(SelfCheckFailed, match="GorillaFileSystem or bfcl-eval is broken"):
        BfclEnvironment().self_check()


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(UnknownTask, match="multi_turn_base_0"):
        BfclEnvironment().create("multi_turn_base_200", EpisodeOptions())


def test_splits_are_read_from_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    split_file = tmp_path / "split.json"
    monkeypatch.setattr(environment, "SPLIT_FILE", split_file)
    with pytest.raises(UnknownSplit, match="known splits: all; split.json is missing"):
        BfclEnvironment().task_ids("train")
    split_file.write_text(json.dumps({"train": ["multi_turn_base_1"], "val": []}), "utf-8")
    assert BfclEnvironment().task_ids("train") == ("multi_turn_base_1",)
    with pytest.raises(UnknownSplit, match="known splits: all, train, val"):
        BfclEnvironment().task_ids("test")
    assert len(BfclEnvironment().task_ids("all")) == 800
