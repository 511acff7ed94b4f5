#!/usr/bin/env python3
"""What the method costs beside GRPO: diagnosis, interface, profile, weights; its share of a step.

Run with either Python of the project:

    .venv-bfcl/bin/python scripts/bench_loop.py [--quick] [--json FILE]

The service's half (diagnosis of BFCL episodes, opening them, evolving the interface) runs in a
process of the service's environment, the trainer's half (weights, profile) in one of the trainer's.
Every figure is the median of repeats on one thread. A step is counted as if all of it were done
one after another, so the sum is an upper bound: diagnosis and interface are in truth spread over
the service's processes while the policy still generates. Diagnosis is `evaluate` as a whole, though
plain GRPO would need its verdict as well.

Not counted: requests, the transport of advantages between verl's processes, the loop log, and the
longer prompts of an interface that shows more (tokens are the policy's time, not the method's).
"""

import argparse
import dataclasses
import json
import os
import platform
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.service_process import ROOT, SERVICE_PYTHON, text_table
from seal.coevolution.interface import INITIAL, Interface, InterfaceConfig, evolve
from seal.coevolution.labels import FAILURES, Label
from seal.coevolution.utilities import UtilityConfig
from seal.coevolution.weights import UTILITIES, Scope, WeightConfig, applies, batch_weights
from seal.train.round import RolloutRecord, token_weights
from seal.train.state import LoopConfig, LoopState, after_round
from seal.wire import TurnDiagnosis

TRAINER_PYTHON = ROOT / ".venv/bin/python"

PROMPTS = 32
GROUP = 8
ROLLOUTS = PROMPTS * GROUP
TOKENS = 4096
TURNS = 4
MESSAGES_PER_TURN = 2

STEP_SECONDS = 60.0
GOAL_PERCENT = 1.0

FULL = Interface(1, True, True, True, FAILURES[:3])
"""Every component on, with as many guidelines as the recipe shows."""


class BenchmarkFailed(Exception):
    """A part could not be measured, or what it measured gave a wrong result."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    microseconds: float
    """Median of one."""
    per_step: int = 0
    """How often a training step has it; 0 is shown for comparison and not summed."""

    @property
    def step_ms(self) -> float:
        """Milliseconds of a training step."""
        return self.microseconds * self.per_step / 1000


def microseconds(work: Callable[[], object], repeats: int, of: int = 1) -> float:
    """Median duration of `work`, divided by the number of things it does."""
    work()  # first calls fill caches
    took = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        took.append(time.perf_counter() - started)
    return median(took) / of * 1e6


def round_records() -> list[RolloutRecord]:
    """A made-up round: every label that counts, cascades, turns of calls and observations."""
    drawn = random.Random(0)
    length = TOKENS // (TURNS * MESSAGES_PER_TURN)
    spans = tuple(
        # The first half of each stretch is generated, the second half observed.
        (place // MESSAGES_PER_TURN, place * length, place * length + length // 2)
        for place in range(TURNS * MESSAGES_PER_TURN)
    )
    records = []
    for rollout in range(ROLLOUTS):
        labels = [drawn.choice([Label.PASS, Label.CORRECT_ABSTENTION, *FAILURES])] * TURNS
        turns = tuple(
            TurnDiagnosis(turn, label.value, "why", 0, cascade=turn > 1 and label in FAILURES)
            for turn, label in enumerate(labels)
        )
        reward = float(not any(label in FAILURES for label in labels))
        records.append(
            RolloutRecord(
                task_id=f"task_{rollout // GROUP}",
                category=f"category_{rollout // GROUP % 4}",
                reward=reward,
                training_reward=reward,
                turns=turns,
                interface_version=1,
                truncated=False,
                environment_s=0.0,
                turn_spans=spans,
            )
        )
    return records


# ---- the service's half ----------------------------------------------------------------------


def measure_service(quick: bool) -> dict[str, float]:
    """Diagnosis, opening and evolving, in microseconds of one."""
    from env_service.environments.bfcl.tasks import CATEGORIES, load_tasks

    every = 50 if quick else 10
    tasks = [
        task_id
        for name in CATEGORIES
        for task_id in [one for one in load_tasks() if one.startswith(f"{name}_")][::every]
    ]
    repeats = 3 if quick else 15
    figures = {"tasks": float(len(tasks))}
    for name, spoiled in (("passing", False), ("failing", True)):
        figures |= _diagnosis(name, tasks, spoiled, repeats)
    return {**figures, **_opening(tasks, repeats), "evolve": _evolving(200 if quick else 2000)}


def _diagnosis(name: str, tasks: Sequence[str], spoiled: bool, repeats: int) -> dict[str, float]:
    """Of episodes that follow the reference, or skip the calls of their first turn with any."""
    from env_service.environments.base import EpisodeOptions
    from env_service.environments.bfcl.episode import BfclEpisode
    from env_service.environments.bfcl.tasks import load_tasks
    from scripts.bench_service import scripts_of
    from seal.coevolution.diagnosis import TurnEvidence, diagnose

    episodes, evidence = [], list[TurnEvidence]()
    for script in scripts_of(tasks):
        messages = list(script.messages)
        if spoiled:
            messages.remove(next(text for text in messages if text != "Done."))
        episode = BfclEpisode(load_tasks()[script.task_id], EpisodeOptions())
        for text in messages:
            episode.step({"role": "assistant", "content": text})
        verdict = episode.verify([tuple(steps) for steps in episode._records if steps], False)
        if verdict.accuracy != (0.0 if spoiled else script.expected):
            raise BenchmarkFailed(f"{script.task_id}, {name}: accuracy {verdict.accuracy}")
        episodes.append(episode)
        evidence += verdict.evidence
    count = len(episodes)
    return {
        f"diagnosis_{name}": microseconds(
            lambda: [episode.evaluate() for episode in episodes], repeats, of=count
        ),
        f"diagnose_{name}": microseconds(
            lambda: [diagnose(turn) for turn in evidence], 5 * repeats, of=count
        ),
    }


def _opening(tasks: Sequence[str], repeats: int) -> dict[str, float]:
    """Opening episodes as the trainer has them opened: tool docs structured."""
    from env_service.environments.base import EpisodeOptions
    from env_service.environments.bfcl.episode import BfclEpisode
    from env_service.environments.bfcl.tasks import load_tasks

    def opened(options: EpisodeOptions) -> None:
        for task_id in tasks:
            BfclEpisode(load_tasks()[task_id], options).open()

    bare = EpisodeOptions(tools="structured")
    shown = EpisodeOptions(mode="train", interface=FULL, tools="structured")
    # Each pair is measured side by side, so that a busy machine slows both alike.
    pairs = [
        tuple(microseconds(lambda o=options: opened(o), 1, of=len(tasks)) for options in both)
        for both in [(bare, shown)] * repeats
    ]
    return {
        "open_bare": median(pair[0] for pair in pairs),
        "open_full": median(pair[1] for pair in pairs),
        "interface": median(pair[1] - pair[0] for pair in pairs),
    }


def _evolving(repeats: int) -> float:
    labeled = [record.labeled() for record in round_records()]
    config = LoopConfig(WeightConfig(), UtilityConfig())
    profile = after_round(LoopState(), 1, labeled, INITIAL, config).profile
    if evolve(INITIAL, profile, InterfaceConfig()).active() == ():
        raise BenchmarkFailed("a round of failures evolved nothing")
    return microseconds(lambda: evolve(FULL, profile, InterfaceConfig()), repeats)


# ---- the trainer's half ----------------------------------------------------------------------


def measure_trainer(quick: bool) -> dict[str, float]:
    """Weights of a batch in both scopes, and the profile's update, in microseconds of one."""
    import torch

    torch.set_num_threads(1)
    repeats = 10 if quick else 50
    records = round_records()
    rows = [torch.full((TOKENS,), (-1.0) ** index) for index in range(ROLLOUTS)]
    nested = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
    plain = [record.to_json() for record in records]
    scopes: tuple[Scope, ...] = ("trajectory", "turn")
    figures = {
        f"weights_{scope}": microseconds(
            lambda scope=scope: _weighted(nested, records, WeightConfig(scope=scope)), repeats
        )
        for scope in scopes
    }
    config = LoopConfig(WeightConfig(cascade_share=0.5), UtilityConfig(dynamic=True), 4)
    state, labeled = LoopState(), [record.labeled() for record in records]
    for step in range(1, 5):
        state = after_round(state, step, labeled, FULL, config)
    return figures | {
        "records": microseconds(lambda: [RolloutRecord.from_json(one) for one in plain], repeats),
        "profile": microseconds(lambda: after_round(state, 5, labeled, FULL, config), repeats),
    }


def _weighted(nested: Any, records: Sequence[RolloutRecord], config: WeightConfig) -> Any:
    """A batch's advantages, weighted as the trainer does it; importing verl would take longer."""
    import torch

    weights = batch_weights(
        [record.labeled().turns for record in records],
        [record.task_id for record in records],
        UTILITIES,
        config,
    )
    after = []
    for advantage, record, by_turn in zip(nested.unbind(), records, weights, strict=True):
        if not applies(float(advantage.sum()), config):
            after.append(advantage)
        elif config.scope == "trajectory":
            after.append(advantage * by_turn[0])
        else:
            tokens = token_weights(record.turn_spans, by_turn, len(advantage))
            after.append(advantage * torch.tensor(tokens, dtype=advantage.dtype))
    return torch.nested.as_nested_tensor(after, layout=torch.jagged)


# ---- both ------------------------------------------------------------------------------------


def measured(part: str, python: Path, quick: bool) -> dict[str, float]:
    """The figures of one half, from a process of its environment."""
    command = [str(python), __file__, f"--part={part}", *(["--quick"] if quick else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    except FileNotFoundError:
        raise BenchmarkFailed(f"{python} is missing; run install.sh") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()[-6:]
        raise BenchmarkFailed("\n".join([f"the {part}'s half failed:", *said]))
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def table_rows(of: Mapping[str, float]) -> list[Row]:
    """The lines of the table; of two ways to do a thing, the dearer one is summed."""
    failing_is_dearer = of["diagnosis_failing"] >= of["diagnosis_passing"]
    turn_is_dearer = of["weights_turn"] >= of["weights_trajectory"]
    return [
        Row(
            "diagnosis of a failing trajectory",
            of["diagnosis_failing"],
            ROLLOUTS * failing_is_dearer,
        ),
        Row("  its labels alone", of["diagnose_failing"]),
        Row(
            "diagnosis of a passing trajectory",
            of["diagnosis_passing"],
            ROLLOUTS * (not failing_is_dearer),
        ),
        Row("  its labels alone", of["diagnose_passing"]),
        Row("opening without interface", of["open_bare"]),
        Row("opening with all of it", of["open_full"]),
        Row("  the interface's part", of["interface"], ROLLOUTS),
        Row("reading a batch's records", of["records"], 1),
        Row("weighting a batch, per trajectory", of["weights_trajectory"], 1 - turn_is_dearer),
        Row("weighting a batch, per turn", of["weights_turn"], int(turn_is_dearer)),
        Row("profile and utilities of a round", of["profile"], 1),
        Row("evolving the interface", of["evolve"], 1),
    ]


def report(rows: Sequence[Row], step_seconds: float) -> str:
    """The table, and the share of a step."""
    total_ms = sum(row.step_ms for row in rows)
    cells = [
        [
            row.name,
            f"{row.microseconds:.1f}",
            row.per_step or "",
            f"{row.step_ms:.2f}" if row.per_step else "",
        ]
        for row in rows
    ]
    head = ["what", "us", "a step", "ms a step"]
    table = text_table(head, [*cells, ["sum", "", "", f"{total_ms:.2f}"]])
    percent = share_percent(rows, step_seconds)
    verdict = "under" if percent < GOAL_PERCENT else "NOT UNDER"
    return (
        f"{table}\n\n{PROMPTS} prompts x {GROUP} rollouts of {TOKENS} tokens: {percent:.3f} % of a "
        f"step of {step_seconds:g} s, {verdict} {GOAL_PERCENT:g} %"
    )


def share_percent(rows: Sequence[Row], step_seconds: float) -> float:
    """Share of a training step in percent."""
    return sum(row.step_ms for row in rows) / (step_seconds * 1000) * 100


def main(argv: Sequence[str] | None = None) -> int:
    """Read the command line, measure, print."""
    args = _arguments(argv)
    if args.part is not None:
        parts = {"service": measure_service, "trainer": measure_trainer}
        print(json.dumps(parts[args.part](args.quick)))
        return 0
    about = {
        "cores": len(os.sched_getaffinity(0)),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "quick": args.quick,
    }
    try:
        figures = {
            **measured("service", SERVICE_PYTHON, args.quick),
            **measured("trainer", TRAINER_PYTHON, args.quick),
        }
    except BenchmarkFailed as error:
        print(f"bench_loop: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench_loop: interrupted", file=sys.stderr)
        return 130
    rows = table_rows(figures)
    print(f"{about['cores']} cores, load {about['load_before']:.1f} before the benchmark\n")
    print(report(rows, args.step_seconds))
    if args.json:
        content = {
            **about,
            "figures_us": figures,
            "rows": [{**dataclasses.asdict(row), "step_ms": row.step_ms} for row in rows],
            "step_seconds": args.step_seconds,
            "share_percent": share_percent(rows, args.step_seconds),
        }
        args.json.write_text(json.dumps(content, indent=2), "utf-8")
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    parser.add_argument("--quick", action="store_true", help="few tasks and repeats: seconds")
    parser.add_argument(
        "--step-seconds",
        type=float,
        default=STEP_SECONDS,
        help="duration of a training step that the sum is held against (%(default)g). The default "
        "is an assumption, not a measurement: a lower bound for the published recipe (7B, 32 "
        "prompts x 8 rollouts, 4 GPUs). With 8192 tokens a rollout, prompt included, the update "
        "with gradient checkpointing and two passes for log probabilities take 12 x 7.6e9 x "
        "256 x 8192 = 1.9e17 operations: 48 s at the peak of four H100 (989e12/s each), "
        "which training does not reach, and before any generation",
    )
    parser.add_argument("--part", choices=("service", "trainer"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if not args.step_seconds > 0:
        parser.error("--step-seconds must be more than 0")
    return args


if __name__ == "__main__":
    sys.exit(main())
