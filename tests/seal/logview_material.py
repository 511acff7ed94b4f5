"""Folders of runs, as trainer and verl leave them, made up for the tests of the log viewer."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from labelled import rollout

from seal.coevolution.interface import INITIAL, Interface
from seal.coevolution.profile import profile_of
from seal.coevolution.rollout import Rollout
from seal.coevolution.weights import UTILITIES, WeightConfig
from seal.labels import Label
from seal.records.loop_log import LoopLog
from seal.records.round_metrics import label_counts, round_metrics
from seal.wire import TurnDiagnosis

HOSTILE = (
    "</pre></title><script>document.title='owned'</script>"
    "<img src=x onerror=\"document.title='owned'\">'{{1234*5678}}"
)
SYSTEM = "system\nYou have tools."
SHOWN = (
    INITIAL,
    replace(INITIAL, version=1, recovery_feedback=True, guidelines=(Label.MISSING_TOOL_CALL,)),
    replace(INITIAL, version=2, schema_cues=True, guidelines=(Label.MISSING_TOOL_CALL,)),
)


def write_lines(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # As verl does.
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    path.write_text(text, "utf-8")


def played(task: str, reward: float, labels: Sequence[Label], reason: str) -> Rollout:
    """A rollout with one message a turn."""
    turns = [
        TurnDiagnosis(turn, label, f"{reason} {turn}", None) for turn, label in enumerate(labels)
    ]
    return rollout(
        turns,
        reward,
        category=task.rsplit("_", 1)[0],
        shown=True,
        task_id=task,
        interface_version=1,
        environment_s=0.5,
        turn_spans=tuple((turn, 10 * turn, 10 * turn + 5) for turn in range(len(labels))),
    )


def dialogue(uid: str, step: int, reward: float, answers: Sequence[str]) -> dict[str, Any]:
    """A line as verl dumps it, one answer a turn."""
    questions = [f"question {turn}" for turn in range(len(answers))]
    rest = "".join(
        f"\nuser\n{question}\nassistant\n{answer}"
        for question, answer in zip(questions[1:], answers[1:], strict=True)
    )
    return {
        "input": f"{SYSTEM}\nuser\n{questions[0]}\nassistant\n",
        "output": answers[0] + rest,
        "gts": "",
        "score": reward,
        "step": step,
        "uid": uid,
    }


def write_round(folder: Path, step: int, reason: str = "because", answer: str = "Done.") -> None:
    """A round of four rollouts in two groups: loop log, dialogues, metrics."""
    rollouts = [
        played("multi_turn_base_1", 1.0, [Label.PASS, Label.PASS], reason),
        played("multi_turn_base_1", 0.0, [Label.PASS, Label.MISSING_TOOL_CALL], reason),
        played("multi_turn_long_context_2", 0.0, [Label.INVALID_TOOL_CALL], reason),
        played("multi_turn_long_context_2", 1.0, [Label.PASS], reason),
    ]
    uids = ["aa_0_0", "aa_1_0", "bb_0_0", "bb_1_0"]
    weights = [[1.0, 1.0], [1.25, 1.25], [2.0], [1.0]]
    log = LoopLog(folder / "loop")
    # The loop log is in the order of the batch, the dialogues are sorted by uid.
    log.rollouts(
        {"step": step, "uid": uid, "weights": by_turn, **one.to_json()}
        for uid, one, by_turn in reversed(list(zip(uids, rollouts, weights, strict=True)))
    )
    write_lines(
        folder / "rollouts" / f"{step}.jsonl",
        [
            dialogue(uid, step, one.reward, [f"{answer} {turn}" for turn in range(len(one.turns))])
            for uid, one in zip(uids, rollouts, strict=True)
        ],
    )
    metrics = round_metrics(rollouts, weights, UTILITIES, WeightConfig())
    interface = SHOWN[min(step, len(SHOWN)) - 1]
    log.round(
        {
            "step": step,
            "metrics": metrics,
            "rollouts": 4,
            "dropped_groups": 0,
            "filtered_groups": 2,
            "labels": label_counts(rollouts),
            "rates": profile_of(step, rollouts).rates(1),
            "interface_shown": shown(interface),
        }
    )
    log.phase("step_end", step)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": step, "data": {**metrics, "actor/lr": 1e-6}}) + "\n")


def shown(interface: Interface) -> dict[str, Any]:
    return {
        "version": interface.version,
        "content_hash": interface.content_hash(),
        "active": interface.active(),
        "text": interface.describe(),
    }


def write_validation(experiments: Path, name: str, step: int, answer: str = "Yes.") -> Path:
    """A validation of three tasks in two categories."""
    results = [
        ("multi_turn_base_5", 1.0, "pass,pass"),
        ("multi_turn_base_6", 0.0, "pass,state_mismatch"),
        ("multi_turn_miss_func_7", 0.0, "missing_tool_call,missing_tool_call"),
    ]
    path = experiments / "tech_synthetic" / name / "validation_log" / f"{step}.jsonl"
    write_lines(
        path,
        [
            dialogue(f"v{task}_0_0", step, score, [answer, answer])
            | {
                "reward": score,
                "task_id": task,
                "category": task.rsplit("_", 1)[0],
                "suite": "benchmark",
                "labels": labels,
                "turns": 2,
                "interface_version": 0,
                "truncated": 0.0,
                "exit_status": "completed",
                "prompt_tokens": 40,
                "response_tokens": 60,
            }
            for task, score, labels in results
        ],
    )
    return path


def write_run(experiments: Path, name: str = "trial", rounds: int = 2) -> Path:
    """A run with validations before and after."""
    folder = experiments / name
    write_validation(experiments, name, 0)
    for step in range(1, rounds + 1):
        write_round(folder, step)
    write_validation(experiments, name, rounds)
    with (folder / "metrics.jsonl").open("a") as file:
        rate = {"val-seal/benchmark/pass_rate": 1 / 3}
        file.write(json.dumps({"step": rounds, "data": rate}) + "\n")
    return folder
