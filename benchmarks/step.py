r"""How long the phases of a training step take, for a recipe and for variants of it, side by side.

    .venv/bin/python -m benchmarks.step --conf exp/smollm2.yaml --steps 2 \
        "one thread: actor_rollout_ref.rollout.engine_kwargs.vllm.additional_config.threads=1" \
        "float32: actor_rollout_ref.rollout.dtype=float32"

Each variant is a run of its own with the launcher: a name, a colon, Hydra overrides. The recipe
itself runs first, as the baseline, and again last: the difference of the two shows what other work
on the machine changed. Runs neither evaluate nor save. As sampled rollouts differ in length, phases
are compared by tokens a second (prompt and response tokens of the batch). The ratio is the
baseline's mean time for a token, divided by the variant's. If there are several steps, the first
one does not count, as its caches are cold.
"""

import argparse
import json
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean

from rich.console import Console

from benchmarks.launching import launched
from benchmarks.output import BenchmarkFailed, command_line, exit_code, figures_table
from seal import ROOT
from seal.launch.listening import free_port
from seal.records.json_lines import LineReader

NAME = "bench_step"
PHASES = ("gen", "old_log_prob", "ref", "update_actor", "update_weights", "step")
"""As verl names them in its metrics, timing_s/..."""
ALWAYS = (
    f"trainer.experiment_name={NAME}",
    "trainer.val_before_train=False",
    "trainer.test_freq=-1",
    "trainer.save_freq=-1",
    "seal.checkpoints.keep_best=false",
    "seal.start_gate=null",
)
BASELINE = "as the recipe has it"


@dataclass(frozen=True)
class Timed:
    """One run."""

    name: str
    tokens: float
    """Mean of a step."""
    seconds: Mapping[str, float]
    """Mean of a step by phase; a phase that the run did not have is absent."""
    agreement: float | None
    """Correlation of rollout and actor probabilities in the last step; None: not computed."""

    def per_token(self, phase: str) -> float | None:
        """Seconds, or None if the phase did not happen."""
        return self.seconds[phase] / self.tokens if phase in self.seconds else None


def timed(name: str, metrics: Sequence[Mapping[str, float]]) -> Timed:
    """A run's figures from the metrics of its steps; of several, the first one is left out."""
    counted = metrics[1:] or metrics
    phases = [phase for phase in PHASES if all(f"timing_s/{phase}" in line for line in counted)]
    return Timed(
        name,
        fmean(line["perf/total_num_tokens"] for line in counted),
        {phase: fmean(line[f"timing_s/{phase}"] for line in counted) for phase in phases},
        counted[-1].get("training/rollout_actor_probs_pearson_corr"),
    )


def run(conf: Path, steps: int, name: str, overrides: Sequence[str]) -> Timed:
    """Train a few steps with the launcher and read what it measured.

    Raises:
        BenchmarkFailed: The run failed; the message has the end of its output.
    """
    every = [
        *ALWAYS,
        f"env_service.env_url=http://127.0.0.1:{free_port()}",
        f"trainer.total_training_steps={steps}",
        *overrides,
    ]
    with tempfile.TemporaryFile() as output:
        with launched(conf, every, output=output) as process:
            process.wait()
        if process.returncode != 0:
            output.seek(0)
            text = output.read().decode("utf-8", "replace")
            raise BenchmarkFailed(f"{name!r} failed:\n{text[-2000:]}")
    lines = LineReader(ROOT / "experiments" / NAME / "metrics.jsonl").new()
    return timed(name, [line["data"] for line in lines if "timing_s/step" in line["data"]])


def show(runs: Sequence[Timed], console: Console) -> None:
    """Seconds of each phase, its tokens a second, and the ratio to the baseline."""
    baselines = [trial for trial in runs if trial.name == BASELINE]
    rows = []
    for trial in runs:
        cells = []
        for phase in PHASES:
            taken = trial.per_token(phase)
            usual = [known for base in baselines if (known := base.per_token(phase)) is not None]
            ratio = f"; {fmean(usual) / taken:.2f}" if taken and usual else ""
            cells.append(f"{trial.seconds[phase]:.1f} ({1 / taken:.0f}{ratio})" if taken else "-")
        agreement = "-" if trial.agreement is None else f"{trial.agreement:.6f}"
        rows.append((trial.name, f"{trial.tokens:.0f}", *cells, agreement))
    title = "A step: seconds (tokens a second; times the baseline)"
    console.print(figures_table(("run", "tokens", *PHASES, "agreement"), rows, title))


def main(argv: Sequence[str] | None = None) -> int:
    """Read the command line, run the variants one after another, print the table."""
    return exit_code("step", partial(_run, _arguments(argv)))


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = command_line("benchmarks.step", __doc__)
    parser.add_argument("--conf", type=Path, required=True, help="recipe")
    parser.add_argument("--steps", type=int, default=2, help="of each run (default 2)")
    parser.add_argument(
        "--all", default="", metavar="OVERRIDES", help="of every run, the baseline included"
    )
    parser.add_argument("--json", type=Path, help="write the figures")
    parser.add_argument("variants", nargs="*", metavar="NAME: OVERRIDES")
    args = parser.parse_args(argv)
    for text in args.variants:
        if ":" not in text:
            parser.error(f"{text!r} is no variant: expected a name, a colon, Hydra overrides")
    return args


def _run(args: argparse.Namespace) -> int:
    named = [text.partition(":") for text in args.variants]
    wanted = [(name.strip(), shlex.split(overrides)) for name, _, overrides in named]
    runs: list[Timed] = []
    console = Console(width=200)
    for name, overrides in [(BASELINE, []), *wanted, *([(BASELINE, [])] if wanted else [])]:
        console.print(f"step: {name} {' '.join(overrides)}", highlight=False)
        runs.append(run(args.conf, args.steps, name, [*shlex.split(args.all), *overrides]))
        show(runs[-1:], console)
        if args.json:
            args.json.write_text(json.dumps([vars(trial) for trial in runs], indent=1) + "\n")
    show(runs, console)
    return 0


if __name__ == "__main__":
    sys.exit(main())
