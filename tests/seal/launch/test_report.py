import io
import json
from pathlib import Path

from omegaconf import OmegaConf
from rich.console import Console

from seal.launch import report
from seal.launch.report import Finished


def rollout(suite: str, category: str, score: float, labels: str, step: int = 0) -> str:
    line = {"suite": suite, "category": category, "score": score, "labels": labels}
    return json.dumps({**line, "task_id": f"{category}_1", "step": step}) + "\n"


def test_a_validation_log_is_split_by_suite_and_category(tmp_path: Path) -> None:
    log = tmp_path / "0.jsonl"
    log.write_text(
        # A dialogue may hold what Unicode takes for a line end, unescaped.
        rollout("fixed", "multi_turn_base", 1.0, "pass,pass").replace("}", ', "x": "a\u2028b"}')
        + rollout("fixed", "multi_turn_base", 0.0, "pass,state_mismatch")
        + rollout("benchmark", "multi_turn_miss_func", 0.0, "")
    )
    suites = report.read_validation(log)
    assert report.scores(suites["fixed"]) == [1.0, 0.0]
    assert report.turn_shares(suites["fixed"]) == {"pass": 0.75, "state_mismatch": 0.25}
    assert report.scores(suites["benchmark"], "multi_turn_miss_func") == [0.0]
    assert report.turn_shares(suites["benchmark"]) == {}


def test_first_and_last_go_by_step_not_by_name(tmp_path: Path) -> None:
    (tmp_path / "9.jsonl").touch()
    assert report.first_and_last(tmp_path) is None
    for step in (10, 0):
        (tmp_path / f"{step}.jsonl").touch()
    assert [log.stem for log in report.first_and_last(tmp_path) or ()] == ["0", "10"]


def printed(folder: Path) -> str:
    recipe = OmegaConf.create(
        {
            "trainer": {
                "validation_data_dir": str(folder / "val"),
                "experiment_name": "quickstart",
            },
            "seal": {"loop_dir": str(folder / "loop")},
        }
    )
    out = io.StringIO()
    finished = Finished(
        wall_s=500.0, policy_s=170.0, first_step_s=90.0, service_cpu_s=5.0, peak_bytes=8 * 1024**3
    )
    report.print_report(Console(file=out, width=120), recipe, finished)
    return out.getvalue()


def test_the_report_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "val").mkdir()
    for step, score, label in ((0, 0.0, "missing_tool_call"), (20, 1.0, "pass")):
        line = rollout("fixed", "multi_turn_base", score, label, step)
        (tmp_path / "val" / f"{step}.jsonl").write_text(line)
    (tmp_path / "loop").mkdir()
    guideline = "guideline:missing_tool_call"
    # The run was resumed two hours after step 2.
    seconds = {1: 10.0, 2: 20.0, 3: 7220.0, 4: 7230.0}
    for step, active in ((1, [guideline]), (2, []), (3, []), (4, [])):
        text = f"{guideline}: Call a tool." if active else ""
        interface = {"version": step, "content_hash": str(active), "active": active, "text": text}
        with (tmp_path / "loop/rounds.jsonl").open("a") as file:
            file.write(json.dumps({"time": seconds[step], "step": step, "interface": interface}))
            file.write("\n")
    text = printed(tmp_path)
    assert "+100.0" in text
    assert "100.0% -> 0.0%" in text  # missing_tool_call
    assert "after step 2: nothing (the original benchmark)" in text
    assert "-guideline:missing_tool_call: Call a tool." in text
    assert "1.0% of the wall time" in text
    assert "10.0 s a training step" in text
    assert "8.0 GiB" in text


def test_a_broken_log_leaves_the_rest_of_the_report(tmp_path: Path) -> None:
    (tmp_path / "val").mkdir()
    for step in (0, 20):
        (tmp_path / "val" / f"{step}.jsonl").write_text('{"suite": "fix')
    text = printed(tmp_path)
    assert "no pass rates: " in text and "line 1: not JSON" in text
    assert "1.0% of the wall time" in text
