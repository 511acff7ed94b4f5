"""Reads what a study's runs left on the disk, and copies the part that a report needs.

In: a folder that holds `launcher_record/` and `experiments/`, as the project's own folder does.
Out: a `RunLogs` for each run. `keep` copies a run's logs without dialogues into another such
folder, from which the same report is made, and which the viewer shows. `launching.keep_study` makes
an archive of it.
"""

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seal.launch.resume import flat
from seal.records.json_lines import LineReader, json_lines, read_json_lines
from seal.records.loop_log import DONE, PHASES, ROLLOUTS, ROUNDS
from seal.study.definition import StudyError
from seal.validation.log import BadValidationFile, Rollout, read_folder

FINISHED, UNFINISHED, ABSENT = "finished", "unfinished", "absent"
_LEFT_OUT_OF_A_RECORD = ("command_line", "ray_address", "host")
"""What a report does not need and a published log need not tell: folders and names of machines."""
_KEPT_OF_A_ROUND = (
    "time",
    "step",
    "metrics",
    "rollouts",
    "dropped_groups",
    "labels",
    "interface_shown",
    "rates",
    "interface",
)
_KEPT_OF_A_TRAINED_ROLLOUT = (
    "step",
    "uid",
    "group",
    "task_id",
    "category",
    "reward",
    "training_reward",
    "weights",
    "turns",
    "interface_version",
    "interface_shown",
    "exit_status",
    "truncated",
    "policy_tokens",
    "response_tokens",
)
_KEPT_OF_A_TURN = ("label", "cascade")
"""Not its reason, which can quote what the policy wrote."""
_KEPT_OF_A_ROLLOUT = (
    "step",
    "suite",
    "task_id",
    "category",
    "score",
    "labels",
    "truncated",
    "exit_status",
    "ended",  # exit_status in older logs
    "response_tokens",
)
_KEPT_OF_METRICS = ("timing_s/step", "timing_s/testing", "perf/total_num_tokens")
_KEPT_PREFIX = "val-"
"""Metrics of validations are kept, too: the viewer shows their pass rates."""


@dataclass(frozen=True)
class RunLogs:
    """One run as it is on the disk."""

    name: str
    state: str
    """FINISHED, UNFINISHED or ABSENT."""
    config: dict[str, Any]
    """The configuration of its last launch, by key with dots."""
    records: tuple[dict[str, Any], ...]
    """The records of its launches, the first one first."""
    rounds: tuple[dict[str, Any], ...]
    """A line of the loop log for each training step."""
    metrics: dict[int, dict[str, float]]
    """verl's metrics by step."""
    validations: dict[int, tuple[Rollout, ...]]
    """Rollouts of each validation, by step."""


def gpus(config: Mapping[str, Any]) -> int:
    """Number of a run's GPUs on all its nodes, by its configuration (keys with dots)."""
    if config["trainer.device"] != "cuda":
        return 0
    return int(config["trainer.nnodes"]) * int(config["trainer.n_gpus_per_node"])


def read_run(root: Path, name: str) -> RunLogs:
    """Read a run.

    Raises:
        StudyError: It has finished, but a file is damaged.
    """
    record, experiment, validation = places(root, name)
    if not (record / "config.yaml").is_file():
        return RunLogs(name, ABSENT, {}, (), (), {}, {})
    config = _read_config(_launches(record)[-1])
    unfinished = RunLogs(name, UNFINISHED, config, (), (), {}, {})
    if not config:
        return unfinished
    try:
        rounds = tuple(LineReader(experiment / "loop" / ROUNDS).new())
        phases = list(LineReader(experiment / "loop" / PHASES).new())
        ended = bool(phases) and phases[-1]["phase"] == DONE
    except (OSError, ValueError, KeyError):  # killed while it wrote
        return unfinished
    unfinished = replace(unfinished, rounds=rounds)
    # A launcher that was killed at the very end has not noted the end.
    total = config.get("trainer.total_training_steps")
    if not ended and not (rounds and rounds[-1]["step"] == total):
        return unfinished
    try:
        logs, metrics = read_folder(validation), _metrics(experiment)
        if not ended and total not in logs:
            return unfinished
        if not rounds or not metrics:
            raise ValueError(f"{ROUNDS} or metrics.jsonl is missing or empty")
        return RunLogs(
            name=name,
            state=FINISHED,
            config=config,
            records=tuple(json.loads(path.read_text("utf-8")) for path in _records(record)),
            rounds=rounds,
            metrics=metrics,
            validations=logs,
        )
    except (OSError, ValueError, KeyError, BadValidationFile) as error:
        if not ended:
            return unfinished
        raise StudyError(f"the logs of {name} cannot be read: {error}") from error


def keep(root: Path, name: str, to: Path) -> None:
    """Copy what a report or the viewer needs of a run, and no dialogue.

    That is its configuration, records, rounds, rollouts that were trained on (labels, weights,
    lengths, group), metrics, and rollouts of validations. An earlier copy is replaced.
    """
    record, experiment, validation = places(root, name)
    new_record, new_experiment, new_validation = places(to, name)
    for earlier in (new_record, new_experiment, new_validation):
        shutil.rmtree(earlier, ignore_errors=True)
    for path in filter(Path.is_file, _launches(record)):
        _write(new_record / path.relative_to(record), path.read_text("utf-8"))
    for path in filter(Path.is_file, _records(record)):
        text = json.dumps(_publishable(json.loads(path.read_text("utf-8"))), indent=2)
        _write(new_record / path.relative_to(record), text + "\n")
    for name_of_log, kept in ((ROUNDS, _KEPT_OF_A_ROUND), (PHASES, ("time", "phase", "step"))):
        lines = LineReader(experiment / "loop" / name_of_log).new()
        _write_lines(new_experiment / "loop" / name_of_log, lines, kept)
    trained = experiment / "loop" / ROLLOUTS
    if trained.is_file():  # a copy that was made before rollouts were kept has none
        rollouts = (_without_reasons(line) for line in LineReader(trained).new())
        _write_lines(new_experiment / "loop" / ROLLOUTS, rollouts, _KEPT_OF_A_TRAINED_ROLLOUT)
    steps = (
        {
            "step": step,
            "data": {
                key: value
                for key, value in metrics.items()
                if key in _KEPT_OF_METRICS or key.startswith(_KEPT_PREFIX)
            },
        }
        for step, metrics in _metrics(experiment).items()
    )
    _write_lines(new_experiment / "metrics.jsonl", steps, ("step", "data"))
    for path in sorted(validation.glob("*.jsonl")):
        lines = read_json_lines(path, lambda _, line: line)
        _write_lines(new_validation / path.name, lines, _KEPT_OF_A_ROLLOUT)


def places(root: Path, name: str) -> tuple[Path, Path, Path]:
    """A run's folders: launcher's record, loop log and metrics, validation logs."""
    experiments = root / "experiments"
    validation = experiments / "tech_synthetic" / name / "validation_log"
    return root / "launcher_record" / name, experiments / name, validation


def _launches(folder: Path) -> list[Path]:
    """Configurations of the first launch and of those that resumed it, in that order."""
    resumed = folder.glob("resumed_*/config.yaml")
    ordered = sorted(resumed, key=lambda path: int(path.parent.name.rpartition("_")[2]))
    return [folder / "config.yaml", *ordered]


def _read_config(path: Path) -> dict[str, Any]:
    """A configuration by key with dots; empty if the launch was killed while it wrote it."""
    try:
        return dict(flat(OmegaConf.to_container(OmegaConf.load(path))))
    except (OSError, ValueError, yaml.YAMLError, OmegaConfBaseException):
        return {}


def _records(folder: Path) -> list[Path]:
    """Their records."""
    return [path.with_name("record.json") for path in _launches(folder)]


def _publishable(record: dict[str, Any]) -> dict[str, Any]:
    """A launch's record without what `_LEFT_OUT_OF_A_RECORD` names."""
    return {
        key: _publishable(value) if isinstance(value, dict) else value
        for key, value in record.items()
        if key not in _LEFT_OUT_OF_A_RECORD
    }


def _without_reasons(rollout: dict[str, Any]) -> dict[str, Any]:
    """A line of a trained rollout whose turns have only what is kept of them."""
    turns = [
        {name: turn[name] for name in _KEPT_OF_A_TURN if name in turn} for turn in rollout["turns"]
    ]
    return {**rollout, "turns": turns}


def _metrics(experiment: Path) -> dict[int, dict[str, float]]:
    """By step; if a resumed run made a step again, the later values count."""
    earlier = sorted(experiment.glob("metrics.*.jsonl"), key=lambda path: int(path.suffixes[0][1:]))
    by_step: dict[int, dict[str, float]] = {}
    for path in [*earlier, experiment / "metrics.jsonl"]:
        for line in LineReader(path).new():
            by_step.setdefault(int(line["step"]), {}).update(line["data"])
    return by_step


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def _write_lines(path: Path, lines: Iterable[dict[str, Any]], kept: Sequence[str]) -> None:
    """Write the kept fields of each line."""
    _write(path, json_lines({name: line[name] for name in kept if name in line} for line in lines))
