"""The warm-up of a language model: from demonstrations to a folder with the model that learned.

In: `WarmUp`, the settings. Out: a folder with the model, its tokenizer, loss.jsonl, loss.png and
warm_up.json. Until all of that is there, the folder has another name and holds the demonstrations,
the settings and a state to go on from.
"""

import json
import os
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from seal.backbone.loading import Backbone, load_backbone
from seal.launch.processor import cpu_dtype
from seal.launch.recipe import load_recipe
from seal.warm_up.loss_curve import plot
from seal.warm_up.supervised import TokenizedDialogue, demonstrate, read_demonstrations, tokenize
from seal.warm_up.trainer import LOSSES, STATE, WEIGHTS, Training, in_steps, run
from seal.warm_up.whole_folder import unfinished_folder, write_facts

DEMONSTRATIONS = "demonstrations.jsonl"
SETTINGS = "settings.json"
FACTS = "warm_up.json"


class WarmUpError(Exception):
    """The warm-up cannot go on; the message says why and what to do."""


@dataclass(frozen=True)
class WarmUp:
    """Settings of a warm-up. All are written down, and one that goes on must have the same."""

    model: Path
    """Folder of the model to start from."""
    conf: Path
    """The recipe."""
    backbone: str | None
    """One of exp/backbone/; None: the recipe's."""
    split: Path
    """Its training side is demonstrated."""
    mix: dict[str, float]
    """Share of each category."""
    dialogues: int
    """Demonstrations to train on."""
    variants: int
    """Made of each task."""
    interface_share: float
    """Of the variants: they show a random learning interface."""
    mistake_share: float
    """Of the calls: they fail once first."""
    max_tokens: int
    """Of a demonstration."""
    batch: int
    """Dialogues of an optimiser step."""
    learning_rate: float
    """At its peak."""
    seed: int


def warm_up(settings: WarmUp, out: Path, processes: int) -> dict[str, Any]:
    """Make the folder `out` of a warmed-up model, or go on where that was interrupted.

    Each of the training processes has one thread.

    Returns:
        The facts in warm_up.json.

    Raises:
        WarmUpError: The settings cannot be used, or the training failed.
        RecipeError: The recipe cannot be used.
        BackboneError: The model's tokenizer cannot be used.
        DemonstrationError: The demonstrations failed.
        KeyboardInterrupt: Ctrl-C; the state was saved.
    """
    if out.exists():
        raise WarmUpError(f"{out} exists, but is no warmed-up model; name another --out")
    if not (settings.model / "config.json").is_file():
        raise WarmUpError(
            f"--model {settings.model} is no model; for SmolLM2: scripts/get_smollm2.py"
        )
    overrides = [f"backbone={settings.backbone}"] if settings.backbone else []
    backbone = load_backbone(str(settings.model), load_recipe(settings.conf, overrides))
    folder = unfinished_folder(out)
    keep_settings(folder, settings)
    demonstrations = folder / DEMONSTRATIONS
    if not demonstrations.exists():
        demonstrate(
            demonstrations,
            "exact",
            f"--task-ids={settings.split.resolve()}",
            f"--tool-format={backbone.tool_format}",
            f"--categories={','.join(settings.mix)}",
            f"--variants={settings.variants}",
            f"--interface-share={settings.interface_share}",
            f"--mistake-share={settings.mistake_share}",
            f"--seed={settings.seed}",
        )
    chosen = choose(backbone, demonstrations, settings)
    training = Training(
        model=str(settings.model),
        steps=in_steps(chosen, settings.batch, settings.seed),
        folder=folder,
        dtype=cpu_dtype(),
        learning_rate=settings.learning_rate,
        seed=settings.seed,
    )
    try:
        run(training, processes)
    except Exception as error:  # torch has a class for each way to fail, and none in common
        raise WarmUpError(f"a training process failed: {error}") from error
    backbone.tokenizer.save_pretrained(folder)
    facts = finish(training)
    os.replace(folder, out)
    return facts


def keep_settings(folder: Path, settings: WarmUp) -> None:
    """Begin a folder, or check that the folder was begun with the same settings.

    Raises:
        WarmUpError: It was begun with another setting.
    """
    wanted = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in vars(settings).items()
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
    write_facts(path, wanted)


def choose(backbone: Backbone, demonstrations: Path, settings: WarmUp) -> list[TokenizedDialogue]:
    """Demonstrations to train on, as tokens, with each category's share.

    No demonstration of a category is chosen twice before all of them are chosen once.

    Raises:
        WarmUpError: All demonstrations of a category are too long.
    """
    rng = random.Random(settings.seed)
    by_category: dict[str, list[dict[str, Any]]] = {name: [] for name in settings.mix}
    for demo in read_demonstrations(demonstrations):
        by_category[demo["task_id"].rpartition("_")[0]].append(demo)
    chosen: list[TokenizedDialogue] = []
    left_out: Counter[str] = Counter()
    bar = tqdm(total=settings.dialogues, desc="demonstrations to tokens", mininterval=5.0)
    for category, share in settings.mix.items():
        wanted = round(settings.dialogues * share / sum(settings.mix.values()))
        fitting: list[TokenizedDialogue] = []
        for demo in rng.sample(by_category[category], len(by_category[category])):
            if len(fitting) == wanted:
                break
            dialogue = tokenize(backbone, demo)
            if len(dialogue.ids) > settings.max_tokens:
                left_out[category] += 1
                continue
            fitting.append(dialogue)
            bar.update()
        if not fitting and wanted:
            raise WarmUpError(
                f"no demonstration of {category} has at most --max-tokens={settings.max_tokens}"
            )
        chosen += [fitting[place % len(fitting)] for place in range(wanted)]
    bar.close()
    tokens = sum(len(dialogue.ids) for dialogue in chosen)
    tqdm.write(f"warm_up: {len(chosen)} dialogues, {tokens:,} tokens")
    if left_out:
        counts = ", ".join(f"{name} {count}" for name, count in left_out.items())
        tqdm.write(f"warm_up: left out as longer than {settings.max_tokens} tokens: {counts}")
    return chosen


def finish(training: Training) -> dict[str, Any]:
    """Complete the folder of a training that has ended; returns the facts in warm_up.json."""
    folder = training.folder
    lines = [json.loads(line) for line in (folder / LOSSES).read_text("utf-8").splitlines()]
    plot(lines, folder / "loss.png")
    for file in (folder / WEIGHTS).iterdir():
        file.replace(folder / file.name)
    (folder / WEIGHTS).rmdir()
    for file in (folder / STATE, *folder.glob("*.unfinished")):
        file.unlink(missing_ok=True)
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
    write_facts(folder / FACTS, facts)
    return facts
