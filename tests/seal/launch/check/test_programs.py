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


def test_what_a_hanging_program_has_started_is_ended_too(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    child = f"import subprocess as s; p = s.Popen(['sleep', '600']); open({str(note)!r}, 'w')"
    ask({"a": python(f"{child}.write(str(p.pid)); p.wait()")}, 3.0)
    pid = int(note.read_text())
    assert gone_within(pid, 10.0)


def gone_within(pid: int, patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        try:
            # An orphan stays a zombie until its new parent reaps it.
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False
