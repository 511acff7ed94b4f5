"""Completes copies of a study's logs that were made before `keep` kept what the viewer needs.

In: a folder that `scripts/compare.py --keep` made. Out: the same files with the interface that each
round was shown, and with the metrics of each validation. Both follow from what the copy has:

* Round t + 1 was shown the interface that round t's profile gave, and the first round the original
  benchmark. The round's own metrics say the version that it was shown, so a round whose
  predecessor is missing is not given a wrong one.
* The metrics of a validation are counted from its log.

What was never copied cannot be made again: the rollouts of training (`loop/rollouts.jsonl`), the
labels of validations, verl's own metrics of them (`val-core/`, `val-aux/`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from seal.coevolution.interface import INITIAL
from seal.records.json_lines import LineReader, json_lines
from seal.records.loop_log import ROUNDS
from seal.records.whole_file import write_whole
from seal.study.logs import places
from seal.validation.log import Rollout, read_folder
from seal.validation.metrics import metrics_of_log


def mend(root: Path, name: str) -> list[str]:
    """Complete the copy of a run in place; a file that lacks nothing is left as it is.

    Returns:
        A sentence for each round whose interface is not known.

    Raises:
        BadLine: A line of a log holds no object.
        BadValidationFile: A validation log cannot be used, or there is none.
    """
    _, experiment, validation = places(root, name)
    rounds = list(LineReader(experiment / "loop" / ROUNDS).new())
    mended, unknown = with_interfaces(rounds)
    if mended != rounds:
        write_whole(experiment / "loop" / ROUNDS, json_lines(mended))
    metrics = list(LineReader(experiment / "metrics.jsonl").new())
    complete = with_validations(metrics, read_folder(validation))
    if complete != metrics:
        write_whole(experiment / "metrics.jsonl", json_lines(complete))
    return [f"{name}: {one}" for one in unknown]


def with_interfaces(
    rounds: Sequence[Mapping[str, Any]],
) -> tuple[list[dict[str, Any]], list[str]]:
    """Rounds with the interface that each was shown, and sentences on those where it is not known.

    Args:
        rounds: Lines of loop/rounds.jsonl, ascending by step.
    """
    replies = {0: asdict(INITIAL.to_reply())}
    replies |= {int(one["step"]): one["interface"] for one in rounds}
    found, unknown = [], []
    for line in rounds:
        if "interface_shown" in line:
            found.append(dict(line))
            continue
        step, shown = int(line["step"]), replies.get(int(line["step"]) - 1)
        said = (
            line["metrics"].get("seal/interface/version"),
            line["metrics"].get("seal/interface/active_parts"),
        )
        if shown is None or said != (shown["version"], len(shown["active"])):
            unknown.append(
                f"round {step} was shown version {said[0]} with {said[1]} active parts, which no "
                f"line of {ROUNDS} for round {step - 1} holds; its interface stays unknown"
            )
            found.append(dict(line))
            continue
        # Where `keep` puts it.
        rest = {key: value for key, value in line.items() if key != "interface"}
        found.append({**rest, "interface_shown": shown, "interface": line["interface"]})
    return found, unknown


def with_validations(
    metrics: Sequence[Mapping[str, Any]], validations: Mapping[int, Sequence[Rollout]]
) -> list[dict[str, Any]]:
    """Lines of metrics.jsonl by step, with the metrics of each validation; none is replaced."""
    by_step: dict[int, dict[str, Any]] = {int(line["step"]): dict(line["data"]) for line in metrics}
    for step, rollouts in validations.items():
        by_step[step] = {**metrics_of_log(rollouts), **by_step.get(step, {})}
    return [{"step": step, "data": data} for step, data in sorted(by_step.items())]
