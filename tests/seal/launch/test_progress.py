import io
from typing import Any

from rich.console import Console

from seal.launch.progress import RunProgress


def test_a_long_phase_shows_how_many_prompts_have_ended() -> None:
    progress = RunProgress(Console(file=io.StringIO(), force_terminal=True), 3)
    shown = []
    for line in (
        {"phase": "validate", "step": 0},
        {"phase": "validate", "step": 0, "ended": 3, "of": 8},
        {"phase": "rollout", "step": 1},
    ):
        progress.on_phase(line)
        shown.append(progress.bar.tasks[0].description)
    assert shown == ["evaluating", "evaluating: 3 of 8 prompts", "rolling out"]


def test_progress_in_a_phase_prints_no_lines_into_a_file() -> None:
    printed = io.StringIO()
    progress = RunProgress(Console(file=printed), 3)
    progress.on_phase({"phase": "validate", "step": 0})
    progress.on_phase({"phase": "validate", "step": 0, "ended": 3, "of": 8})
    assert printed.getvalue() == "evaluating (step 0)\n"


def test_a_rounds_line_has_real_and_synthetic_tasks_apart() -> None:
    line: dict[str, Any] = {
        "step": 2,
        "metrics": {
            "seal/pass_rate": 0.5,
            "seal/mixed_group_share": 1.0,
            "seal/weight/mean": 1.0,
        },
        "interface": {"version": 2},
        "labels": {"multi_turn_base": {"pass": 1}},
    }
    real = {"groups": 3, "pass_rate": 0.25, "mixed_group_share": 1.0, "labels": {}}
    printed = io.StringIO()
    progress = RunProgress(Console(file=printed, width=200), 3)
    progress.on_round(line)  # as in older logs
    progress.on_round({**line, "sources": {"real": real, "synthetic": {**real, "groups": 5}}})
    old, new = printed.getvalue().splitlines()
    assert (
        old == "step   2/3  pass 50%  mixed groups 100%  weight 1.00  next interface v2  pass 100%"
    )
    sources = "real (3) pass 25% mixed 100%, synthetic (5) pass 25% mixed 100%"
    assert new == old.replace("v2  ", f"v2  {sources}  ")
