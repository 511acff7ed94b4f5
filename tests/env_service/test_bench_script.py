"""The benchmark's arithmetic and tables, and what it plays."""

import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from benchmarks.output import figures_table, text_of
from benchmarks.service import report as bench_report
from benchmarks.service import soak
from benchmarks.service.job import Figures, Job, Script
from benchmarks.service.process import ServiceFailed, ServiceProcess, cpu_seconds, pss_bytes
from benchmarks.service.references import BEFORE_ITS_REVEAL, in_one_step, scripts_of, verdict
from benchmarks.service.report import BASE, LONG_CONTEXT, TRAINING, Latency, Row, Target, percentile
from env_service.environments.bfcl.tasks import load_tasks


def row(name: str, clients: int, wall_s: float = 2.0) -> Row:
    latency = Latency(1.0, 2.0)
    return Row(name, clients, 1, 128, 1024, wall_s, latency, latency, latency)


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([float(n) for n in range(1, 201)], 0.99) == 198.0
    assert percentile([5.0], 0.99) == 5.0
    assert math.isnan(percentile([], 0.5))


def test_columns_are_aligned() -> None:
    table = text_of(figures_table(["what", "n"], [["a", 10], ["longer", 9]]))
    head, _, *rows = table.splitlines()
    assert [head.split(), *map(str.split, rows)] == [["what", "n"], ["a", "10"], ["longer", "9"]]
    assert {len(line) for line in (head, *rows)} == {len(head)}


def test_targets_and_report() -> None:
    rows = [row(BASE, 32), row(LONG_CONTEXT, 32, 8.0), row(TRAINING, 32), row(TRAINING, 256)]
    memory = {"episodes": 10.0, "before": 1e6, "with": 2e9, "after": 1e6}
    goals = bench_report.targets(rows, memory, 0.5)
    missed = [goal.name for goal in goals if not goal.met]
    assert missed == ["long_context, 32 clients: episodes/s", "10 idle episodes: MB"]
    text = bench_report.report(rows, memory, goals)
    assert text.count("MISSED") == 2
    content = bench_report.measured(rows, memory, goals)
    assert content["rows"][0]["episodes_per_s"] == 64.0


def test_a_target_is_met_at_its_limit_only_from_the_right_side() -> None:
    assert Target("rate", 60.0, 60.0, at_least=True).met
    assert not Target("seconds", 6.0, 6.0).met


def test_scripts_end_every_turn_and_know_the_impossible_task() -> None:
    possible, impossible = scripts_of(["multi_turn_base_0", BEFORE_ITS_REVEAL])
    assert (possible.expected, impossible.expected) == (1.0, 0.0)
    assert possible.messages[-1] == "Done."
    (single,) = scripts_of(["multi_turn_base_0"], one_call=True)
    assert single.messages.count("Done.") == possible.messages.count("Done.")
    assert len(single.messages) > len(possible.messages)


def test_the_official_checker_judges_a_task_anew_each_time() -> None:
    task = load_tasks()["multi_turn_base_0"]
    for _ in range(2):
        assert verdict(task, in_one_step(task.reference))["valid"]
    assert not verdict(task, [[] for _ in task.reference])["valid"]


def test_a_job_travels_as_json_and_its_last_pass_is_whole(tmp_path: Path) -> None:
    job = Job("replay", (Script("a", ("Done.",), 1.0),), seconds=0.0, clients=3)
    (tmp_path / "job").write_text(json.dumps(dataclasses.asdict(job)))
    read = Job.read(tmp_path / "job")
    assert (read.do, read.clients, read.scripts[0].task_id) == ("replay", 3, "a")
    figures = Figures()
    assert list(figures.measured_passes(job)) == [0]
    assert (figures.passes, figures.episodes) == (1, 1)
    assert figures.wall_s > 0


def test_processes_are_measured() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process, this = psutil.Process(child.pid), psutil.Process()
    try:
        assert process in this.children()
        assert pss_bytes([process]) > 0
        assert cpu_seconds([this, process]) > 0
    finally:
        child.communicate(b"\n")
    assert pss_bytes([process]) == 0


def test_a_service_is_found_with_its_workers_and_leaves_nothing(tmp_path: Path) -> None:
    with ServiceProcess(["--env=toy", "--workers=2"], tmp_path, read_log_every_s=0.1) as service:
        known = service.processes()
        assert service.ready_s > 0 and known[0].pid == service.workers()[0].parents()[0].pid
        service.workers()[0].kill()
        seconds, left = service.stop()
    assert seconds < 10 and left == []
    assert not any(process.is_running() for process in known)
    with pytest.raises(ServiceFailed, match="unrecognized arguments"):
        ServiceProcess(["--no-such-option"]).__enter__()


@pytest.mark.slow
def test_a_short_soak_finds_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--minutes=0.04", "--clients=2", "--kill-every=1", f"--json={tmp_path / 'soak.json'}"]
    assert soak.main([*argv, "--", "--workers=2"]) == 0, capsys.readouterr()
    values = json.loads((tmp_path / "soak.json").read_text())
    assert values["violations"] == 0 and values["episodes"] > 0
    assert "slowest answer, s" in capsys.readouterr().out
