"""What the method costs beside GRPO: diagnosis, interface, profile, weights; its share of a step.

    .venv-bfcl/bin/python -m benchmarks.loop [--quick] [--json FILE]

The service's half (diagnosis of BFCL episodes, opening them, evolving the interface) runs in a
process of the service's environment, the trainer's half (weights, profile) in one of the trainer's.
Every figure is processor time of one thread, the median of repeats. The sum is compared with a step
as if everything were done one after another, though the service's processes share diagnosis and
opening while the policy generates. Half of a step's trajectories are assumed to fail: they skip the
calls of their first turn, so nearly every later turn is replayed a second time. Diagnosis is
`evaluate` as a whole. The second share leaves out the time of bfcl-eval's own checker for the bare
verdict, which plain GRPO needs as well.

Not counted: requests, the transport of advantages between verl's processes, the loop log, and the
longer prompts of an interface that shows more (tokens are the policy's time).
"""

import argparse
import dataclasses
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import SERVICE_PYTHON, TRAINER_PYTHON
from benchmarks.output import (
    BenchmarkFailed,
    command_line,
    exit_code,
    figures_table,
    machine,
    machine_line,
    publish,
    text_of,
)
from seal import ROOT
from seal.coevolution.evolution import InterfaceConfig, evolve
from seal.coevolution.interface import Interface
from seal.coevolution.profile import profile_of
from seal.coevolution.rollout import Rollout
from seal.coevolution.utilities import UtilityConfig
from seal.coevolution.weights import UTILITIES, WeightConfig, batch_weights
from seal.labels import FAILURES, Label
from seal.wire import TurnDiagnosis, from_json

PYTHONS = {"service": SERVICE_PYTHON, "trainer": TRAINER_PYTHON}

PROMPTS = 32
GROUP = 8
ROLLOUTS = PROMPTS * GROUP
TOKENS = 4096
TURNS = 4
MESSAGES_PER_TURN = 2
STEP_SECONDS = 60.0
GOAL_PERCENT = 1.0

FULL = Interface(1, True, True, True, FAILURES[:3])
"""Every component on, with the recipe's number of guidelines."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    microseconds: float
    per_step: int = 0
    """How often it happens in a training step; 0: for comparison only, not in the sum."""

    @property
    def step_ms(self) -> float:
        """Milliseconds of a training step."""
        return self.microseconds * self.per_step / 1000


def microseconds(work: Callable[[], object], repeats: int, of: int = 1) -> float:
    """Median duration of `work`, divided by the number of things it does."""
    work()  # the first call fills caches
    took = []
    for _ in range(repeats):
        started = time.process_time()
        work()
        took.append(time.process_time() - started)
    return median(took) / of * 1e6


def round_of_rollouts() -> list[Rollout]:
    """A made-up round: every label that has a weight, and failures that follow from others.

    Half of the tokens are generated, half observed.
    """
    drawn = random.Random(0)
    length = TOKENS // (TURNS * MESSAGES_PER_TURN)
    starts = range(0, TOKENS, length)
    spans = tuple((start * TURNS // TOKENS, start, start + length // 2) for start in starts)
    rollouts = []
    for index in range(ROLLOUTS):
        labels = drawn.choices([Label.PASS, Label.CORRECT_ABSTENTION, *FAILURES], k=TURNS)
        turns = tuple(
            TurnDiagnosis(turn, label, "why", None, turn > 1 and label in FAILURES)
            for turn, label in enumerate(labels)
        )
        reward = float(FAILURES[0] not in labels)  # some of each label's trajectories pass
        rollouts.append(
            Rollout(
                task_id=f"task_{index // GROUP}",
                category=f"category_{index % 4}",
                reward=reward,
                training_reward=reward,
                turns=turns,
                interface_version=1,
                interface_shown=True,
                turn_spans=spans,
            )
        )
    return rollouts


# ---- the service's half ----------------------------------------------------------------------


def measure_service(quick: bool) -> dict[str, float]:
    """Diagnosis, opening and evolving, in microseconds of one."""
    from env_service.environments.bfcl.tasks import CATEGORIES, load_tasks

    every = 50 if quick else 10
    tasks = [
        task_id
        for name in CATEGORIES
        for task_id in [known for known in load_tasks() if known.startswith(f"{name}_")][::every]
    ]
    repeats = 3 if quick else 15
    figures = _diagnosis("passing", tasks, False, repeats)
    figures |= _diagnosis("failing", tasks, True, repeats)
    profile = profile_of(1, round_of_rollouts())
    evolved = partial(evolve, FULL, profile, InterfaceConfig())
    return figures | _opening(tasks, repeats) | {"evolve": microseconds(evolved, 100 * repeats)}


def _diagnosis(name: str, tasks: Sequence[str], spoiled: bool, repeats: int) -> dict[str, float]:
    """Microseconds of an episode that follows the reference, or is spoiled: see above."""
    from benchmarks.service import references
    from env_service.environments.base import EpisodeOptions
    from env_service.environments.bfcl.episode import BfclEpisode
    from env_service.environments.bfcl.tasks import load_tasks
    from seal.coevolution.diagnosis import TurnEvidence, diagnose

    evaluations, official = [], []
    evidence: list[TurnEvidence] = []
    for script in references.scripts_of(tasks):
        task, messages = load_tasks()[script.task_id], list(script.messages)
        turns = [list(calls) for calls in task.reference]
        if spoiled:
            messages.remove(next(text for text in messages if text != "Done."))
            next(calls for calls in turns if calls).clear()
        episode = BfclEpisode(task, EpisodeOptions())
        for text in messages:
            episode.step({"role": "assistant", "content": text})
        verdict = episode.verify([tuple(steps) for steps in episode._records if steps], False)
        if verdict.accuracy != (0.0 if spoiled else script.expected):
            raise BenchmarkFailed(f"{script.task_id}, {name}: accuracy {verdict.accuracy}")
        evaluations.append(episode.evaluate)
        evidence += verdict.evidence
        official.append(partial(references.verdict, task, references.in_one_step(turns)))
    per_episode = partial(microseconds, of=len(evaluations))
    return {
        f"diagnosis_{name}": per_episode(lambda: [evaluate() for evaluate in evaluations], repeats),
        f"diagnose_{name}": per_episode(lambda: [diagnose(turn) for turn in evidence], 5 * repeats),
        f"official_{name}": per_episode(lambda: [verdict() for verdict in official], repeats),
    }


def _opening(tasks: Sequence[str], repeats: int) -> dict[str, float]:
    """Microseconds of opening an episode as the trainer does, with tool docs as data."""
    from env_service.environments.base import EpisodeOptions
    from env_service.environments.bfcl.episode import BfclEpisode
    from env_service.environments.bfcl.tasks import load_tasks

    def opened(options: EpisodeOptions) -> None:
        for task_id in tasks:
            BfclEpisode(load_tasks()[task_id], options).open()

    bare = EpisodeOptions(tools="structured")
    shown = EpisodeOptions(mode="train", interface=FULL, tools="structured")
    # Each pair is measured together, so that other work on the machine slows both alike.
    pairs = [
        [microseconds(partial(opened, options), 1, of=len(tasks)) for options in (bare, shown)]
        for _ in range(repeats)
    ]
    return {
        "open_bare": median(without for without, _ in pairs),
        "open_full": median(full for _, full in pairs),
        "interface": median(full - without for without, full in pairs),
    }


# ---- the trainer's half ----------------------------------------------------------------------


def measure_trainer(quick: bool) -> dict[str, float]:
    """Weights of a batch in both scopes, and the profile's update, in microseconds of one."""
    import torch

    from seal.train.state import LoopConfig, LoopState, after_round

    torch.set_num_threads(1)
    repeats = 10 if quick else 50
    rollouts = round_of_rollouts()
    plain = [rollout.to_json() for rollout in rollouts]
    rows = [torch.full((TOKENS,), (-1.0) ** index) for index in range(ROLLOUTS)]
    nested = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
    config = LoopConfig(
        WeightConfig(cascade_share=0.5), UtilityConfig(enabled=True), window_rounds=4
    )
    state = LoopState()
    for step in range(1, 5):
        state = after_round(state, step, rollouts, FULL, config)
    works: dict[str, Callable[[], object]] = {
        "records": lambda: [from_json(Rollout, values) for values in plain],
        "weights_trajectory": partial(_weighted, nested, rollouts, WeightConfig()),
        "weights_turn": partial(_weighted, nested, rollouts, WeightConfig(scope="turn")),
        "profile": partial(after_round, state, 5, rollouts, FULL, config),
    }
    return {name: microseconds(work, repeats) for name, work in works.items()}


def _weighted(nested: Any, rollouts: Sequence[Rollout], config: WeightConfig) -> Any:
    """A batch's advantages, weighted as the trainer does it."""
    import torch

    from seal.train.advantages import weighted

    groups = [rollout.task_id for rollout in rollouts]
    weights = batch_weights(rollouts, groups, UTILITIES, config)
    after = [
        weighted(advantage, rollout, by_turn, config)
        for advantage, rollout, by_turn in zip(nested.unbind(), rollouts, weights, strict=True)
    ]
    return torch.nested.as_nested_tensor(after, layout=torch.jagged)


# ---- both ------------------------------------------------------------------------------------


def measured(part: str, quick: bool) -> dict[str, float]:
    """The figures of one half, from a process of its environment."""
    command = [str(PYTHONS[part]), "-m", "benchmarks.loop", f"--part={part}"]
    command += ["--quick"] if quick else []
    if not PYTHONS[part].exists():
        raise BenchmarkFailed(f"{PYTHONS[part]} is missing; run install.sh")
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode != 0:
        errors = done.stderr.strip().splitlines()[-6:]
        raise BenchmarkFailed("\n".join([f"the {part}'s half failed:", *errors]))
    return dict(json.loads(done.stdout.splitlines()[-1]))


def table_rows(of: Mapping[str, float]) -> list[Row]:
    """The lines of the table, for a step of the published recipe."""
    half = ROLLOUTS // 2
    return [
        Row("diagnosis, failing trajectory", of["diagnosis_failing"], half),
        Row("  its labels alone", of["diagnose_failing"]),
        Row("  bfcl-eval's bare verdict", of["official_failing"]),
        Row("diagnosis, passing trajectory", of["diagnosis_passing"], half),
        Row("  its labels alone", of["diagnose_passing"]),
        Row("  bfcl-eval's bare verdict", of["official_passing"]),
        Row("opening without interface", of["open_bare"]),
        Row("opening with all of it", of["open_full"]),
        Row("  the interface's part", of["interface"], ROLLOUTS),
        Row("reading a batch's records", of["records"], 1),
        Row("weighting a batch, scope trajectory", of["weights_trajectory"], 1),
        Row("weighting a batch, scope turn", of["weights_turn"]),
        Row("profile and utilities of a round", of["profile"], 1),
        Row("evolving the interface", of["evolve"], 1),
    ]


def step_totals(rows: Sequence[Row], of: Mapping[str, float]) -> dict[str, float]:
    """Milliseconds of a step: all of it, and without what plain GRPO needs as well."""
    total = sum(row.step_ms for row in rows)
    verdicts = (of["official_failing"] + of["official_passing"]) * (ROLLOUTS // 2) / 1000
    return {"all of it": total, "without bfcl-eval's bare verdicts": total - verdicts}


def report(rows: Sequence[Row], totals: Mapping[str, float], step_seconds: float) -> str:
    """The table, and the shares of a step."""
    head = ["what", "us", "times a step", "ms a step"]
    cells = []
    for row in rows:
        summed = (row.per_step, f"{row.step_ms:.2f}") if row.per_step else ("", "")
        cells.append((row.name, f"{row.microseconds:.1f}", *summed))
    lines = [
        text_of(figures_table(head, cells)),
        "",
        f"{PROMPTS} prompts x {GROUP} rollouts of {TOKENS} tokens, a step of {step_seconds:g} s:",
    ]
    for name, total_ms in totals.items():
        percent = total_ms / step_seconds / 10
        verdict = "under" if percent < GOAL_PERCENT else "NOT UNDER"
        lines.append(f"  {name}: {total_ms:.0f} ms, {percent:.2f} %, {verdict} {GOAL_PERCENT:g} %")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Read the command line, measure, print."""
    args = _arguments(argv)
    return exit_code("loop", partial(_run, args) if args.part is None else partial(_part, args))


def _part(args: argparse.Namespace) -> int:
    parts = {"service": measure_service, "trainer": measure_trainer}
    print(json.dumps(parts[args.part](args.quick)))
    return 0


def _run(args: argparse.Namespace) -> int:
    about = {**machine(), "quick": args.quick}
    figures = {**measured("service", args.quick), **measured("trainer", args.quick)}
    rows = table_rows(figures)
    totals = step_totals(rows, figures)
    content = {
        **about,
        "figures_us": figures,
        "rows": [{**dataclasses.asdict(row), "step_ms": row.step_ms} for row in rows],
        "step_seconds": args.step_seconds,
        "step_ms": totals,
        "share_percent": {name: ms / args.step_seconds / 10 for name, ms in totals.items()},
    }
    text = report(rows, totals, args.step_seconds)
    publish(f"{machine_line(about)}\n{text}", content, args.json)
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = command_line("benchmarks.loop", __doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here, too")
    parser.add_argument("--quick", action="store_true", help="few tasks and repeats: seconds")
    parser.add_argument(
        "--step-seconds",
        type=float,
        default=STEP_SECONDS,
        help="duration of the training step the sum is compared with (%(default)g). The default "
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
