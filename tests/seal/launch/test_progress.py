import io

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
