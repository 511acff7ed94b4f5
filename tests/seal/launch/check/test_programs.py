import sys
import time
from pathlib import Path

from seal.launch.check.programs import Program, ask


def python(code: str) -> Program:
    return Program([sys.executable, "-c", code], Path("/"), {"GREETING": "good day"})


def test_programs_answer_side_by_side() -> None:
    answers = ask(
        {
            "says": python("import os; print(os.environ['GREETING'], os.getcwd())"),
            "fails": python("import nothing_of_this_name"),
            "ends": python("raise SystemExit(3)"),
            "refuses": python("raise SystemExit('no GPU')"),
        },
        60.0,
    )
    assert answers["says"].printed == "good day /\n" and not answers["says"].failure
    assert answers["fails"].failure.startswith("ModuleNotFoundError: No module named")
    assert answers["ends"].failure == "it ended with exit code 3"
    assert answers["refuses"].failure == "no GPU"


def test_a_program_that_hangs_is_ended() -> None:
    started = time.monotonic()
    answers = ask({"a": python("import time; time.sleep(600)"), "b": python("")}, 1.0)
    assert "no answer after 1 s" in answers["a"].failure
    assert time.monotonic() - started < 30
