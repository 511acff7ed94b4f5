"""Launches of a study: what is started, gone on with, skipped, and counted as failed.

The launcher is a script that stands in for the project's: it writes a run's logs and ends as it is
told to. The real one takes minutes a run.
"""

import io
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from project_folder import make_checkpoint
from rich.console import Console
from study_material import compose, write_run

from seal.study.comparable import Compose
from seal.study.definition import Study, StudyError
from seal.study.launch_log import read_launches, run_minutes
from seal.study.launching import command, read_runs, run_all, study_folder
from seal.study.logs import ABSENT, FINISHED, UNFINISHED, RunLogs, read_run

ROOT = Path(__file__).resolve().parents[3]
STUDY = Study(
    name="made",
    conf=Path("exp/made.yaml"),
    baseline="vanilla",
    recipes={"vanilla": ("+method=vanilla",), "seal": ()},
    seeds=(1, 2),
    suites=("fixed",),
    overrides=("a=1",),
)
LAUNCHER = f"""
import os, signal, sys, time
sys.path[:0] = {[str(ROOT / path) for path in ("", "tests", "tests/seal")]!r}
from pathlib import Path
from study_material import write_run
words = dict(word.split("=", 1) for word in sys.argv[sys.argv.index("--") + 1 :])
name, seed = words["trainer.experiment_name"], int(words["seed"])
with open("started", "a") as log:
    log.write(name + " " + os.environ.get("RAY_ADDRESS", "here") + "\\n")
with open("commands", "a") as log:
    log.write(" ".join(sys.argv) + "\\n")
while Path("two").exists() and len(Path("started").read_text().splitlines()) < 2:
    time.sleep(0.05)
if Path("slow").exists():
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
    time.sleep(60)
if name in Path("fails").read_text():
    sys.exit(1)
write_run(Path("."), name, seed, {{2: {{"fixed": {{"multi_turn_base_1": [1.0]}}}}}})
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("seal.study.launching.composed", lambda conf: compose)
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    (tmp_path / "fails").write_text("")
    return tmp_path


def launched(root: Path) -> list[str]:
    path = root / "started"
    return path.read_text().splitlines() if path.exists() else []


def quiet() -> Console:
    return Console(file=io.StringIO())


def states(root: Path) -> list[str]:
    return [logs.state for logs in read_runs(root, STUDY).values()]


def test_what_is_missing_is_launched_and_what_has_finished_is_not(root: Path) -> None:
    write_run(root, "made-seal-s1", 1, {2: {"fixed": {"multi_turn_base_1": [1.0]}}})
    assert states(root) == [ABSENT, FINISHED, ABSENT, ABSENT]
    assert run_all(root, STUDY, [None], quiet()) == {}
    assert launched(root) == [f"made-{run} here" for run in ("vanilla-s1", "vanilla-s2", "seal-s2")]
    assert states(root) == [FINISHED] * 4
    assert run_all(root, STUDY, [None], quiet()) == {}
    assert len(launched(root)) == 3
    minutes = run_minutes(read_launches(study_folder(root, STUDY)))
    assert minutes is not None and 0 < minutes < 1


def test_a_failed_run_is_counted_and_tried_again_by_the_next_command(root: Path) -> None:
    (root / "fails").write_text("made-seal-s1")
    assert run_all(root, STUDY, [None], quiet()) == {"made-seal-s1": 1}
    assert states(root) == [FINISHED, ABSENT, FINISHED, FINISHED]
    (root / "fails").write_text("")
    assert run_all(root, STUDY, [None], quiet()) == {}
    assert states(root) == [FINISHED] * 4
    launches = read_launches(study_folder(root, STUDY))
    counted = {run: (one.total, one.failed, one.finished) for run, one in launches.items()}
    assert counted == {
        "made-vanilla-s1": (1, 0, True),
        "made-seal-s1": (2, 1, True),
        "made-vanilla-s2": (1, 0, True),
        "made-seal-s2": (1, 0, True),
    }


def test_clusters_take_a_run_at_a_time(root: Path) -> None:
    with pytest.raises(StudyError, match="every node asks the environment service"):
        run_all(root, STUDY, ["one:6379", "two:6379"], quiet())
    service = "env_service.env_url=http://10.0.0.1:8082"
    reachable = replace(STUDY, overrides=(service,), options=())
    assert run_all(root, reachable, ["one:6379", "two:6379"], quiet()) == {}
    places = [line.split()[1] for line in launched(root)]
    assert len(places) == 4 and set(places) == {"one:6379", "two:6379"}


def test_one_machine_takes_several_runs_at_a_time(root: Path) -> None:
    # The first launch waits until another one has started.
    (root / "two").touch()
    assert run_all(root, STUDY, [None, None], quiet()) == {}
    assert states(root) == [FINISHED] * 4
    assert all(line.endswith(" here") for line in launched(root))


def test_a_run_with_a_whole_checkpoint_is_gone_on_with(root: Path) -> None:
    fresh = command(root, STUDY, "seal", 2)
    assert "--resume" not in fresh
    start = [sys.executable, "launcher.py", "--conf=exp/made.yaml", "--with-bfcl", "--"]
    assert fresh[:-1] == [*start, "a=1", "seed=2", "trainer.experiment_name=made-seal-s2"]
    assert fresh[-1].startswith("env_service.env_url=http://127.0.0.1:")
    write_run(root, "made-seal-s2", 2, {}, done=False)
    assert "--resume" not in command(root, STUDY, "seal", 2)
    make_checkpoint(root, 1, name="made-seal-s2")
    assert "--resume" in command(root, STUDY, "seal", 2)
    assert states(root)[-1] == UNFINISHED


def test_runs_are_launched_in_the_type_of_their_seed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def types(
        _: Study, begun: Mapping[tuple[str, int], RunLogs], run: tuple[str, int], __: Compose
    ) -> list[str]:
        if run == ("vanilla", 2):
            raise StudyError("made-vanilla-s2 has to compute in bfloat16")
        return [f"begun={'+'.join(logs.name for logs in begun.values())}"]

    monkeypatch.setattr("seal.study.launching.types_of_the_seed", types)
    write_run(root, "made-vanilla-s1", 1, {2: {"fixed": {"multi_turn_base_1": [1.0]}}})
    # This one will be gone on with, the other one is started anew: nothing of it was saved.
    for name, seed in (("made-seal-s1", 1), ("made-seal-s2", 2)):
        write_run(root, name, seed, {}, done=False)
    make_checkpoint(root, 1, name="made-seal-s1")
    (root / "fails").write_text("made-seal-s1 made-seal-s2")
    said = io.StringIO()
    run_all(root, STUDY, [None], Console(file=said))
    assert "made-vanilla-s2 has to compute in bfloat16" in said.getvalue()
    first, second = (line.split() for line in (root / "commands").read_text().splitlines())
    begun = "begun=made-vanilla-s1+made-seal-s1"
    assert first[2:-1] == [
        *("--with-bfcl", "--resume", "--", "a=1", "seed=1", begun),
        "trainer.experiment_name=made-seal-s1",
    ]
    assert second[4:-2] == ["a=1", "seed=2", begun]


def test_a_run_with_a_damaged_log_keeps_its_configuration(root: Path) -> None:
    write_run(root, "made-seal-s1", 1, {}, done=False)
    with (root / "experiments/made-seal-s1/loop/rounds.jsonl").open("a") as log:
        log.write("{cut\n")
    logs = read_run(root, "made-seal-s1")
    assert (logs.state, logs.config["seed"]) == (UNFINISHED, 1)
    (root / "launcher_record/made-seal-s1/config.yaml").write_text("seed: [1,")
    logs = read_run(root, "made-seal-s1")
    assert (logs.state, logs.config) == (UNFINISHED, {})


def test_ctrl_c_ends_the_launch_under_way_and_begins_no_other(root: Path) -> None:
    (root / "slow").touch()
    code = (
        # Where tests run in the background, it is ignored.
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'tests/seal')!r}]\n"
        "from pathlib import Path\n"
        "from rich.console import Console\n"
        "from seal.study.definition import Study\n"
        "from seal.study.launching import run_all\n"
        "study = Study('made', Path('x'), 'seal', {'seal': ()}, (1, 2), ('fixed',))\n"
        "run_all(Path('.'), study, [None], Console())\n"
    )
    running = subprocess.Popen([sys.executable, "-c", code], cwd=root, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not launched(root) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode != 0 and b"KeyboardInterrupt" in said
    assert launched(root) == ["made-seal-s1 here"]
    # Interrupted is not failed.
    launches = read_launches(root / "experiments/study/made")["made-seal-s1"]
    assert (launches.total, launches.failed, launches.finished) == (1, 0, False)
