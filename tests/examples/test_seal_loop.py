"""The method in one file: it runs as a newcomer runs it, and shows what it says."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from architecture_picture import imports

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "examples/seal_loop.py"
ROW = re.compile(
    r" *(\d+) +(\d+)% +(\d+)% +(\d\.\d\d)  ((?:[a-z]+ \d+(?:, )?)*) *([a-z+ ]*)", re.ASCII
)


class Round(NamedTuple):
    """A row of the program's table; pass rates in percent."""

    t: int
    shown: int
    untouched: int
    weight: float
    failures: dict[str, int]
    parts: frozenset[str]


def run(*arguments: str, script: Path = FILE) -> subprocess.CompletedProcess[str]:
    # In another folder and without the variables of this process, as after a plain clone.
    command = [sys.executable, "-W", "error", str(script), *arguments]
    return subprocess.run(
        command, cwd="/", env={}, capture_output=True, text=True, timeout=120, check=False
    )


@cache
def output(seed: int, rounds: int = 20) -> str:
    done = run("--seed", str(seed), "--rounds", str(rounds))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def table(text: str) -> list[Round]:
    rows = [ROW.fullmatch(line) for line in text.split("interface\n")[1].splitlines()]
    return [read(*row.groups()) for row in rows if row] if all(rows) else pytest.fail(text)


def read(t: str, shown: str, untouched: str, weight: str, failures: str, parts: str) -> Round:
    counts = dict(one.split() for one in failures.split(", ") if one)
    return Round(
        *(int(t), int(shown), int(untouched), float(weight)),
        {name: int(count) for name, count in counts.items()},
        frozenset(parts.split()),
    )


def test_it_is_one_short_file_without_the_trainer() -> None:
    assert len(FILE.read_text("utf-8").splitlines()) <= 250
    others = {name.split(".")[0] for name in imports(FILE)} - sys.stdlib_module_names
    assert others == {"env_service", "numpy", "seal"}


def test_running_it_loads_no_package_of_trainer_or_service() -> None:
    code = (
        "import runpy, sys; sys.argv = ['seal_loop.py', '--rounds', '1']; "
        f"runpy.run_path({str(FILE)!r}, run_name='__main__'); print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stderr.split()}
    assert "numpy" in loaded
    heavy = {"bfcl_eval", "fastapi", "omegaconf", "pydantic", "ray", "torch", "verl", "vllm"}
    assert loaded & heavy == set()


def test_a_seed_decides_every_draw() -> None:
    again = run("--seed", "3", "--rounds", "4").stdout
    assert again == output(3, 4)
    assert again != output(4, 4)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_policy_learns_to_do_without_the_interface(seed: int) -> None:
    rounds = table(output(seed))
    assert [one.t for one in rounds] == list(range(1, 21))
    assert rounds[0].untouched < 40
    assert rounds[-1].untouched > 75


@pytest.mark.parametrize("seed", [1, 2])
def test_failures_switch_parts_on_and_mastered_ones_switch_them_off(seed: int) -> None:
    rounds = table(output(seed))
    assert rounds[0].parts == frozenset(), "the original benchmark, before any failure is known"
    assert {"schema", "recovery", "+invalid"} <= rounds[1].parts
    assert len({one.parts for one in rounds}) > 3
    assert len(rounds[-1].parts) < len(rounds[1].parts)
    assert sum(rounds[-1].failures.values()) < sum(rounds[0].failures.values()) / 3
    assert {"invalid", "argument", "spurious", "missing"} <= set(rounds[0].failures)


def test_weights_follow_the_labels() -> None:
    rounds = table(output(1))
    assert all(0.5 <= one.weight <= 2.0 for one in rounds)
    assert rounds[0].weight > rounds[-1].weight, "there are fewer failures of high utility"


def changed(tmp_path: Path, before: str, after: str) -> list[Round]:
    """Rounds of a copy of the file with one change, beside the packages that it imports."""
    text = FILE.read_text("utf-8")
    assert text.count(before) == 1
    for package in ("seal", "env_service"):
        (tmp_path / package).symlink_to(ROOT / package)
    script = tmp_path / "examples/seal_loop.py"
    script.parent.mkdir()
    script.write_text(text.replace(before, after), "utf-8")
    done = run(script=script)
    assert (done.returncode, done.stderr) == (0, "")
    return table(done.stdout)


def test_the_policy_heeds_the_interface(tmp_path: Path) -> None:
    deaf = changed(tmp_path, "HEED = 1.5", "HEED = 0.0")
    heeding = table(output(1))
    assert heeding[0] == deaf[0], "there is nothing to heed yet"
    assert heeding[1].parts == deaf[1].parts
    assert heeding[1].failures["invalid"] < deaf[1].failures["invalid"] / 2


def test_the_weights_reach_the_policy(tmp_path: Path) -> None:
    off = changed(
        tmp_path, "UTILITIES, WeightConfig()", "UTILITIES, WeightConfig(w_min=1, w_max=1)"
    )
    rounds = table(output(1))
    assert {one.weight for one in off} == {1.0}
    assert off[0] == rounds[0]._replace(weight=1.0), "the first batch is drawn before any update"
    assert off[1].failures != rounds[1].failures


@pytest.mark.parametrize("wrong", [("--seed", "-1"), ("--rounds", "0"), ("--rounds", "many")])
def test_a_wrong_option_is_a_sentence(wrong: tuple[str, str]) -> None:
    done = run(*wrong)
    assert done.returncode == 2
    assert wrong[1] in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_help_says_what_is_a_toy() -> None:
    text = run("--help").stdout
    for part in ("What is real", "What is a toy", "What to change first", "--seed", "--rounds"):
        assert part in text
