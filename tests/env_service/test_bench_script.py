"""The benchmark's arithmetic and tables, and what it plays."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.service import report as bench_report
from benchmarks.service.bench import BEFORE_ITS_REVEAL, scripts_of
from benchmarks.service.process import cpu_seconds, descendants, pss_bytes, text_table
from benchmarks.service.report import BASE, LONG_CONTEXT, TRAINING, Latency, Row, Target, percentile

ROOT = Path(__file__).resolve().parents[2]


def row(name: str, clients: int, wall_s: float = 2.0) -> Row:
    latency = Latency(1.0, 2.0)
    return Row(name, clients, 1, 128, 1024, wall_s, latency, latency, latency)


def test_percentiles_are_values_that_were_measured() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([float(n) for n in range(1, 201)], 0.99) == 198.0
    assert percentile([5.0], 0.99) == 5.0
    assert math.isnan(percentile([], 0.5))


def test_columns_are_aligned() -> None:
    table = text_table(["what", "n"], [["a", 10], ["longer", 9]])
    assert table.splitlines() == ["what     n", "------  --", "a       10", "longer   9"]


def test_targets_and_report() -> None:
    rows = [row(BASE, 32), row(LONG_CONTEXT, 32, 8.0), row(TRAINING, 32), row(TRAINING, 256)]
    memory = {"episodes": 10.0, "before": 1e6, "with": 2e9, "after": 1e6}
    goals = bench_report.targets(rows, memory, 0.5)
    missed = [goal.name for goal in goals if not goal.met]
    assert missed == ["long_context, 32 clients: episodes/s", "10 idle episodes: MB"]
    text = bench_report.report(rows, memory, goals)
    assert text.count("MISSED") == 2
    content = json.loads(bench_report.as_json(rows, memory, goals, {"cores": 2}))
    assert content["rows"][0]["episodes_per_s"] == 64.0
    assert content["cores"] == 2


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


def test_processes_are_measured() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert child.pid in descendants(os.getpid())
        assert pss_bytes([child.pid]) > 0
        assert cpu_seconds([os.getpid(), child.pid]) > 0
    finally:
        child.communicate(b"\n")
    assert child.pid not in descendants(os.getpid())
    assert pss_bytes([child.pid]) == 0
