import contextlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from benchmarks.gpu_smoke import kept, loops
from benchmarks.gpu_smoke.kept import SmokeError


def test_prompts_are_one_a_group_in_the_order_of_the_steps(tmp_path: Path) -> None:
    # Two rollouts a group; the groups a and b are different tasks with the same prompt.
    for step, uids in ((1, ("a_0", "a_1", "b_0", "b_1")), (2, ("c_1", "c_0"))):
        prompts = {"a": "x", "b": "x", "c": "y"}
        lines = [json.dumps({"uid": uid, "input": prompts[uid[0]]}) for uid in uids]
        (tmp_path / f"{step}.jsonl").write_text("\n".join(lines) + "\n")
    loops.write_prompts(tmp_path, 2, tmp_path / "p.parquet")
    prompts = pq.read_table(tmp_path / "p.parquet").column("prompt").to_pylist()
    assert [prompt[0]["content"] for prompt in prompts] == ["x", "x", "y"]
    assert {prompt[0]["role"] for prompt in prompts} == {"user"}


def test_metrics_are_read_as_they_come_and_a_stall_is_an_error(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    writes = (
        "import sys, time; f = open(sys.argv[1], 'w', buffering=1)\n"
        'for n in (1, 2):\n    print(\'{"step": %d, "data": {"n": %d}}\' % (n, n), file=f)\n'
        "    time.sleep(0.4)\n"
        "time.sleep(float(sys.argv[2]))"
    )
    with subprocess.Popen([sys.executable, "-c", writes, str(metrics), "0"]) as process:
        found = loops.follow(process, metrics, 60.0, lambda line: None)
    assert [step["n"] for step in found.lines] == [1, 2]
    assert found.seen[1] - found.seen[0] >= 0.2
    with subprocess.Popen([sys.executable, "-c", writes, str(metrics), "60"]) as process:
        with contextlib.ExitStack() as ended:
            ended.callback(process.send_signal, signal.SIGKILL)
            with pytest.raises(SmokeError, match="no step ended"):
                loops.follow(process, metrics, 1.0, lambda line: None)


def test_a_loop_that_was_measured_is_not_run_again(tmp_path: Path) -> None:
    calls: list[int] = []

    def measure() -> dict[str, Any]:
        calls.append(1)
        return {"figures": {}}

    for _ in range(2):
        assert kept.once(tmp_path / "seal.json", measure) == {"figures": {}}
    assert calls == [1]
    kept.same_settings(tmp_path / "overrides.json", ["a=1"])
    kept.same_settings(tmp_path / "overrides.json", ["a=1"])
    with pytest.raises(SmokeError, match="other settings"):
        kept.same_settings(tmp_path / "overrides.json", ["a=2"])
