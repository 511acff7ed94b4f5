r"""Warm a language model up: teach it, by demonstrations, how to talk to the environment.

A model that never calls a tool leaves GRPO nothing to compare. This trains it, before, on reference
programs of training tasks, played through the environment call by call: each task, and variants of
it in which names, words, files and numbers are others, kept only if the official checker passes
them. A share of the variants shows a random learning interface, so that its cues mean something; a
share of the calls fails once first, which is not learnt, while the repair is.

    .venv/bin/python scripts/get_smollm2.py
    .venv/bin/python scripts/warm_up.py --model models/smollm2-135m --backbone smollm2-135m \
        --out models/smollm2-135m-warm --report

Works for any causal model of transformers whose backbone has a group in exp/backbone/. Ctrl-C keeps
what was learnt, and the same command goes on. OUT holds the model, loss.jsonl, loss.png and
warm_up.json; --report evaluates the model before and after, on --parquet, with the real vLLM.
"""

import argparse
import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch.multiprocessing as multiprocessing
from tqdm import tqdm

from seal.evaluation.local_model import free_port
from seal.launch.processor import cpu_dtype
from seal.launch.recipe import RecipeError, load_recipe
from seal.train.backbone import Backbone, BackboneError, load_backbone
from seal.warm_up.supervised import (
    DemonstrationError,
    Dialogue,
    demonstrate,
    read_demonstrations,
    tokenize,
)
from seal.warm_up.trainer import LOSSES, STATE, WEIGHTS, Training, train

ROOT = Path(__file__).resolve().parents[1]
DEMONSTRATIONS = "demonstrations.jsonl"
SETTINGS = "settings.json"
FACTS = "warm_up.json"
MIX = "base=0.55,miss_param=0.2,miss_func=0.2,long_context=0.05"


class WarmUpError(Exception):
    """The warm-up cannot go on; the message says why and what to do."""


def main(argv: list[str]) -> int:
    """Read the command line, warm the model up and report."""
    args = parse_arguments(argv)
    try:
        if (args.out / FACTS).exists():
            print(f"{args.out}: warmed up already")
        else:
            warm_up(args)
        return report(args) if args.report else 0
    except (WarmUpError, DemonstrationError, BackboneError, RecipeError, OSError) as error:
        print(f"warm_up: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("warm_up: interrupted; the same command goes on from here", file=sys.stderr)
        return 130


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("--model", type=Path, required=True, help="folder of the model to start from")
    option("--out", type=Path, required=True, help="folder of the warmed-up model")
    option(
        "--conf", type=Path, default=ROOT / "exp/SEAL.yaml", help="recipe (default exp/SEAL.yaml)"
    )
    option("--backbone", metavar="NAME", help="one of exp/backbone/, if not the recipe's")
    option(
        "--split",
        type=Path,
        default=ROOT / "data/bfcl_scenario_split.json",
        help="its training side is demonstrated (default data/bfcl_scenario_split.json)",
    )
    option("--mix", default=MIX, help=f"share of each category (default {MIX})")
    option("--dialogues", type=int, default=900, help="demonstrations to train on (default 900)")
    option("--variants", type=int, default=12, help="made of each task (default 12)")
    option("--interface-share", type=float, default=0.25, help="of the variants (default 0.25)")
    option("--mistake-share", type=float, default=0.1, help="of the calls (default 0.1)")
    option("--max-tokens", type=int, default=1300, help="of a demonstration (default 1300)")
    option("--batch", type=int, default=4, help="dialogues of an optimiser step (default 4)")
    option("--learning-rate", type=float, default=5e-4, help="at its peak (default 5e-4)")
    option("--processes", type=int, default=2, help="of one thread each (default 2)")
    option("--seed", type=int, default=1, help="of demonstrations and their order (default 1)")
    option("--report", action="store_true", help="evaluate both models afterwards")
    option(
        "--parquet",
        type=Path,
        default=ROOT / "data/smollm2_eval.parquet",
        help="what --report evaluates (default data/smollm2_eval.parquet)",
    )
    args = parser.parse_args(argv)
    try:
        args.mix = {
            f"multi_turn_{name}": float(share)
            for name, share in (one.split("=") for one in args.mix.split(","))
        }
    except ValueError:
        parser.error(f"--mix {args.mix!r}, expected e.g. {MIX}")
    return args


def warm_up(args: argparse.Namespace) -> None:
    """Make everything beside `--out` and put it there last."""
    if args.out.exists():
        raise WarmUpError(f"{args.out} exists, but is no warmed-up model; name another --out")
    if not (args.model / "config.json").is_file():
        raise WarmUpError(f"--model {args.model} is no model; for SmolLM2: scripts/get_smollm2.py")
    overrides = [f"backbone={args.backbone}"] if args.backbone else []
    backbone = load_backbone(str(args.model), load_recipe(args.conf, overrides))
    unfinished = args.out.with_name(args.out.name + ".unfinished")
    _keep_settings(unfinished, args)
    demonstrations = unfinished / DEMONSTRATIONS
    if not demonstrations.exists():
        demonstrate(
            demonstrations,
            "exact",
            f"--task-ids={args.split.resolve()}",
            f"--tool-format={backbone.tool_format}",
            f"--categories={','.join(args.mix)}",
            f"--variants={args.variants}",
            f"--interface-share={args.interface_share}",
            f"--mistake-share={args.mistake_share}",
            f"--seed={args.seed}",
        )
    chosen = choose(backbone, demonstrations, args)
    training = Training(
        model=str(args.model),
        steps=in_steps(chosen, args.batch, args.seed),
        folder=unfinished,
        dtype=cpu_dtype(),
        learning_rate=args.learning_rate,
        seed=args.seed,
    )
    run(training, args.processes)
    finish(args, backbone, training)


def choose(backbone: Backbone, demonstrations: Path, args: argparse.Namespace) -> list[Dialogue]:
    """Demonstrations to train on, as tokens: each category's share, none twice before all once."""
    rng = random.Random(args.seed)
    by_category: dict[str, list[dict[str, Any]]] = {name: [] for name in args.mix}
    for demo in read_demonstrations(demonstrations):
        by_category[demo["task_id"].rpartition("_")[0]].append(demo)
    chosen: list[Dialogue] = []
    left_out: Counter[str] = Counter()
    bar = tqdm(total=args.dialogues, desc="demonstrations to tokens", mininterval=5.0)
    for category, share in args.mix.items():
        wanted = round(args.dialogues * share / sum(args.mix.values()))
        fitting: list[Dialogue] = []
        pool = rng.sample(by_category[category], len(by_category[category]))
        for demo in pool:
            if len(fitting) == wanted:
                break
            dialogue = tokenize(backbone, demo)
            if len(dialogue.ids) > args.max_tokens:
                left_out[category] += 1
                continue
            fitting.append(dialogue)
            bar.update()
        if not fitting and wanted:
            raise WarmUpError(
                f"no demonstration of {category} has at most --max-tokens={args.max_tokens}"
            )
        chosen += [fitting[place % len(fitting)] for place in range(wanted)]
    bar.close()
    print(f"warm_up: {len(chosen)} dialogues, {sum(len(one.ids) for one in chosen):,} tokens")
    if left_out:
        said = ", ".join(f"{name} {count}" for name, count in left_out.items())
        print(f"warm_up: left out as longer than {args.max_tokens} tokens: {said}")
    return chosen


def in_steps(
    dialogues: Sequence[Dialogue], batch: int, seed: int
) -> tuple[tuple[Dialogue, ...], ...]:
    """Optimiser steps of `batch` dialogues in random order."""
    order = random.Random(seed).sample(dialogues, len(dialogues))
    return tuple(tuple(order[start : start + batch]) for start in range(0, len(order), batch))


def run(training: Training, processes: int) -> None:
    """Train in processes of their own.

    Raises:
        KeyboardInterrupt: Ctrl-C; the state was saved.
        WarmUpError: A process failed.
    """
    stop = multiprocessing.get_context("spawn").Event()
    with _ignoring_interrupts():
        running = multiprocessing.start_processes(
            train,
            args=(processes, free_port(), training, stop),
            nprocs=processes,
            join=False,
            start_method="spawn",
        )
    interrupted = False
    while True:
        try:
            if running.join(timeout=1.0):
                break
        except KeyboardInterrupt:
            print("warm_up: keeping what was learnt", file=sys.stderr, flush=True)
            stop.set()
            interrupted = True
        except Exception as error:  # torch has classes for each way of dying, none in common
            raise WarmUpError(f"a training process failed: {error}") from error
    if interrupted:
        raise KeyboardInterrupt


@contextlib.contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Children started inside do not see the terminal's Ctrl-C: the parent tells them to stop."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def finish(args: argparse.Namespace, backbone: Backbone, training: Training) -> None:
    """Put model, tokenizer, loss curve and facts into `--out`."""
    folder = training.folder
    weights = folder / WEIGHTS
    lines = [json.loads(line) for line in (folder / LOSSES).read_text("utf-8").splitlines()]
    plot(lines, folder / "loss.png")
    backbone.tokenizer.save_pretrained(folder)
    for file in weights.iterdir():
        file.replace(folder / file.name)
    weights.rmdir()
    (folder / STATE).unlink(missing_ok=True)
    tokens, seconds = (sum(line[name] for line in lines) for name in ("tokens", "seconds"))
    facts = {
        "dialogues": sum(len(step) for step in training.steps),
        "tokens": tokens,
        "learnt_tokens": sum(line["learnt_tokens"] for line in lines),
        "steps": len(lines),
        "seconds": round(seconds),
        "tokens_per_second": round(tokens / seconds),
        "first_loss": lines[0]["loss"],
        "last_loss": sum(line["loss"] for line in lines[-10:]) / len(lines[-10:]),
        "computed_in": training.dtype,
        "settings": json.loads((folder / SETTINGS).read_text("utf-8")),
    }
    (folder / FACTS).write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
    os.replace(folder, args.out)
    print(json.dumps(facts, indent=1))


def plot(lines: Sequence[dict[str, Any]], path: Path) -> None:
    """The loss of every step, and its running mean, against the tokens seen."""
    # Imported here: it takes a second, which --help need not wait for.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    tokens = list(itertools.accumulate(line["tokens"] for line in lines))
    losses = [line["loss"] for line in lines]
    windows = [losses[max(0, place - 9) : place + 1] for place in range(len(losses))]
    axes.plot(tokens, losses, color="#56B4E9", alpha=0.5, label="step")
    axes.plot(tokens, [sum(w) / len(w) for w in windows], color="#0072B2", label="mean of 10")
    axes.set(xlabel="tokens", ylabel="loss of a learnt token (nats)", ylim=(0, None))
    axes.legend()
    FigureCanvasAgg(figure)
    figure.savefig(path)


def report(args: argparse.Namespace) -> int:
    """Evaluate both models with scripts/evaluate.py; its results go on where they were left."""
    for model in (args.model, args.out):
        print(f"\nwarm_up: evaluating {model} on {args.parquet}", flush=True)
        command = [
            *(sys.executable, "scripts/evaluate.py", "--suite", "bfcl_v3", "--with-bfcl"),
            *("--model", str(model), "--conf", str(args.conf), "--parquet", str(args.parquet)),
            *(("--backbone", args.backbone) if args.backbone else ()),
        ]
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        if status != 0:
            return status
    return 0


def _keep_settings(folder: Path, args: argparse.Namespace) -> None:
    """Begin a folder, or check that the one to go on in was begun in the same way."""
    later = ("report", "parquet", "out", "processes")
    wanted = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in vars(args).items()
        if name not in later
    }
    path = folder / SETTINGS
    if path.exists():
        kept = json.loads(path.read_text("utf-8"))
        other = [name for name in {**kept, **wanted} if kept.get(name) != wanted.get(name)]
        if other:
            raise WarmUpError(
                f"{folder} was begun with another --{other[0].replace('_', '-')} "
                f"({kept.get(other[0])!r}, now {wanted.get(other[0])!r}); repeat that, or delete it"
            )
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(wanted, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
