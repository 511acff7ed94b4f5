#!/usr/bin/env python3
r"""Compare recipes over seeds: run what is missing of a study, and report what it shows.

    .venv/bin/python scripts/compare.py exp/study/tiny.yaml --plan
    .venv/bin/python scripts/compare.py exp/study/tiny.yaml
    .venv/bin/python scripts/compare.py exp/study/tiny.yaml --report-only

Each recipe and seed is an ordinary launch. A finished run is not repeated. A run that was
interrupted, by Ctrl-C or a lost machine, goes on from its last checkpoint with the same command. A
run that fails is reported as failed, and the others go on. The report goes to
experiments/study/NAME/: report.md, report.json and figures. Exit code: 0 done, 1 a run failed or
nothing can be reported, 2 bad command line or study, 130 interrupted.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from seal import ROOT
from seal.launch.processes import interrupt_once
from seal.launch.processor import FLOAT32
from seal.records.log_archive import BadArchive, plain_folder
from seal.study import figures, pages
from seal.study.comparable import composed
from seal.study.definition import Study, StudyError, load_study
from seal.study.launch_log import read_launches, run_minutes
from seal.study.launching import keep_study, read_runs, report_folder, run_all, study_folder
from seal.study.logs import FINISHED, gpus
from seal.study.power import POWER, detectable, spread, sureness
from seal.study.report import report, sibling_tasks, training_tasks
from seal.study.scores import LAST, Runs, counted, read_suite
from seal.validation.files import defective_tasks

DEFECTIVE = ROOT / "data/bfcl_defective_tasks.json"
SEED_COUNTS = (2, 3, 5, 10)
"""Numbers of seeds for which --plan says the power, besides the study's own."""
REPORT = ("report.md", "report.json")
"""What stands beside an archive; figures are drawn from it again."""
SUCCESS, FAILED, BAD_COMMAND_LINE, INTERRUPTED = 0, 1, 2, 130

console = Console(soft_wrap=True, highlight=False)


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", type=Path, help="study file, e.g. exp/study/tiny.yaml")
    only = parser.add_mutually_exclusive_group()
    only.add_argument(
        "--plan",
        action="store_true",
        help="run nothing; say how long the study takes and which difference it could find",
    )
    only.add_argument(
        "--report-only", action="store_true", help="run nothing; report from the existing logs"
    )
    parser.add_argument(
        "--logs",
        type=Path,
        default=ROOT,
        metavar="PATH",
        help="with --report-only or --plan: read the runs below this folder, or those of an "
        "archive that --keep made, e.g. evidence/tiny",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the report there")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="also write an archive of the logs that the report is made of, without dialogues, "
        "for --logs, and the report beside it",
    )
    places = parser.add_mutually_exclusive_group()
    places.add_argument(
        "--ray-address",
        action="append",
        metavar="HOST:PORT",
        help="a Ray cluster for one run at a time; repeat it for several runs at a time "
        "(default: one run after the other, on this machine)",
    )
    places.add_argument(
        "--at-once",
        type=int,
        default=1,
        choices=range(1, 9),
        metavar="N",
        help="runs at the same time on this machine, 1 to 8 (default: 1); small runs leave cores "
        "idle, but each needs its memory",
    )
    args = parser.parse_args(argv)
    if args.logs != ROOT and not (args.plan or args.report_only):
        parser.error("--logs is for --report-only and --plan; runs are made below the project")
    return args


def plan(study: Study, logs: Path, places: int) -> None:
    """Print what the study costs and what it could show."""
    runs = study.runs()
    states = read_runs(logs, study)
    finished = {key: run for key, run in states.items() if run.state == FINISHED}
    console.print(
        f"{study.name}: {len(study.recipes)} recipes, {len(runs)} runs, {len(finished)} finished"
    )
    timed = run_minutes(read_launches(study_folder(logs, study)))
    minutes = timed or study.minutes
    if minutes is None:
        console.print("time: not known before the first run has finished (or `minutes` is set)")
    else:
        source = "measured" if timed else "the study's estimate"
        left = (len(runs) - len(finished)) * minutes / places / 60
        console.print(f"time: {minutes:.0f} min a run ({source}), {left:.1f} h left")
        each = gpus(composed(study.conf)(study.overrides, FLOAT32))
        if each:
            console.print(f"GPU hours: {left * places * each:.0f} left ({each} GPUs a run)")
    baseline = {key: run for key, run in finished.items() if key[0] == study.baseline}
    if len(baseline) < 2:
        console.print(
            f"power: not known before two runs of {study.baseline} have finished: their spread "
            "says which difference can be found"
        )
        return
    for name in study.suites:
        _plan_suite(study, name, baseline)


def _plan_suite(study: Study, name: str, baseline: Runs) -> None:
    suite = read_suite(name, baseline)
    last = counted(suite, study.baseline, LAST, baseline, study)
    if last is None or len(suite.tasks) < 2:
        console.print(f"power, suite {name}: no validation after training")
        return
    measured = spread(last.passes / suite.rollouts)
    # Only the main suite has a primary comparison; elsewhere an interval that excludes 0 is meant.
    comparisons = len(study.primary()) if name == study.suites[0] else 1
    differences = []
    for number in sorted({len(study.seeds), *SEED_COUNTS}):
        least = detectable(measured, number, len(suite.tasks), comparisons)
        what = "none below 50" if least is None else f"{100 * least:.0f} or more"
        differences.append(f"{number} seeds {what}")
    console.print(
        f"power, suite {name}: difference in points that is significant {POWER:.0%} of the time"
        f"{f' as one of {comparisons}' if comparisons > 1 else ''}, or more if a recipe helps on "
        f"some tasks more than on others: {', '.join(differences)}"
    )
    low, high = sureness(len(last.seeds))
    console.print(
        f"  from {len(last.seeds)} runs: standard deviation of a task in a run "
        f"{100 * measured.noise:.1f} points, of a run's mean {100 * measured.runs:.1f} (95 %: "
        f"{100 * low * measured.runs:.1f} to {100 * high * measured.runs:.1f})"
    )


def make_report(study: Study, logs: Path, out: Path) -> bool:
    """Write the report; returns whether all runs have finished."""
    runs = read_runs(logs, study)
    first = next((run for run in runs.values() if run.state == FINISHED), None)
    left_out = {}
    if first is not None:
        tasks = [rollout.task_id for log in first.validations.values() for rollout in log]
        left_out = {
            "without defective tasks": defective_tasks(DEFECTIVE),
            "without tasks that have a sibling in training": sibling_tasks(
                tasks, training_tasks(ROOT, first.config)
            ),
        }
    document = report(study, runs, left_out, read_launches(study_folder(logs, study)))
    out.mkdir(parents=True, exist_ok=True)
    (out / "report.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    (out / "report.md").write_text(pages.page(document), "utf-8")
    figures.draw(document, out)
    console.print(pages.page(document), markup=False)
    console.print(f"written to {out}: report.md, report.json, figures")
    return bool(document["complete"])


def main(argv: Sequence[str]) -> int:
    """Run the command; returns the exit code."""
    args = parse_arguments(argv)
    interrupt_once()
    complaints = Console(stderr=True, soft_wrap=True, style="red", highlight=False, markup=False)
    try:
        study = load_study(args.study)
    except StudyError as error:
        complaints.print(f"compare: {error}")
        return BAD_COMMAND_LINE
    places = args.ray_address or [None] * args.at_once
    try:
        out = args.out or report_folder(args.logs, study)
        with plain_folder(args.logs) as logs:
            if args.plan:
                plan(study, logs, len(places))
                return SUCCESS
            failed = {} if args.report_only else run_all(ROOT, study, places, console)
            complete = make_report(study, logs, out)
            if args.keep:
                keep_study(logs, study, args.keep)
                for name in REPORT:
                    (args.keep / name).write_bytes((out / name).read_bytes())
    except (StudyError, BadArchive) as error:
        complaints.print(f"compare: {error}")
        return FAILED
    except KeyboardInterrupt:
        complaints.print("compare: interrupted; the same command goes on")
        return INTERRUPTED
    for name, code in failed.items():
        complaints.print(f"compare: {name} failed (exit code {code}); the same command tries again")
    return SUCCESS if complete or args.report_only else FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
