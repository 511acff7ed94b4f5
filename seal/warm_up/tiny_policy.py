"""The tiny policy, which replaces an instruct checkpoint if there is none: tokenizer and weights.

In: `TinyPolicy`, the settings: real training tasks to demonstrate, and the split whose training
side lends the worlds of synthetic ones. Out: a folder in Hugging Face's layout with a Qwen3-shaped
model of two million parameters, and built.json. The folder that this project ships is
data/tiny_policy: weights differ a little from machine to machine, demonstrations and tokenizer do
not.

The model first learns to copy (`copying`). Then it learns from demonstrations how to talk to the
environment, so it solves some tasks that it has not seen. It also learns a few mistakes, which it
makes often: reinforcement learning has decisions to work on, in all tasks. Its scores say nothing
about real models.
"""

import hashlib
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from seal.backbone.loading import load_backbone
from seal.launch.recipe import EXP, load_recipe
from seal.records.json_lines import json_lines
from seal.tasks import quickstart
from seal.warm_up import supervised
from seal.warm_up.copying import learn_to_copy
from seal.warm_up.supervised import TokenizedDialogue
from seal.warm_up.tiny_tokenizer import VOCABULARY, train_tokenizer
from seal.warm_up.whole_folder import BUILT, whole_folder, write_facts

RECIPE = EXP / "quickstart.yaml"
TOKENS_PER_BATCH = 4096
FIRST = 1000
"""Synthetic tasks that the tokenizer is made from."""
COPYING_RATE = 2e-3
WORLD = (
    # Another one than the pools of exp/quickstart.yaml have: GRPO trains on tasks not yet seen.
    "--seed=7",
    f"--classes={','.join(sorted(quickstart.CLASSES))}",
    "--categories=base",
    "--turns=1-2",
    "--calls=1-2",
)
"""Options of the synthesiser for the tasks to demonstrate."""


@dataclass(frozen=True)
class TinyPolicy:
    """Settings of the tiny policy; all but the folder are written into built.json."""

    out: Path
    """The folder to make."""
    task_ids: Path
    """JSON list of the real training tasks to demonstrate."""
    dialogues: int
    """Demonstrations of a real task."""
    split: Path
    """Split whose training side lends the worlds of synthetic tasks."""
    synthetic_tasks: int
    """Synthetic tasks to demonstrate."""
    synthetic_dialogues: int
    """Demonstrations of a synthetic task."""
    copy_steps: int
    """Batches of random tokens to learn to copy from."""
    epochs: int
    """Passes over the demonstrations."""
    learning_rate: float
    """At its peak."""
    max_tokens: int
    """Of the longest demonstration that is used."""
    seed: int
    """Of demonstrations and weights."""


def build(settings: TinyPolicy) -> dict[str, Any]:
    """Make the folder `settings.out`; returns the facts in its built.json.

    Raises:
        DemonstrationError: The demonstrations failed.
        BackboneError: The tokenizer does not fit the recipe.
        RecipeError: exp/quickstart.yaml cannot be used.
    """
    torch.manual_seed(settings.seed)
    with whole_folder(settings.out) as out:
        demos, digest = demonstrations(settings)
        tokenizer = train_tokenizer(demos[: first_demonstrations(settings)])
        config = model_config(tokenizer)
        tokenizer.save_pretrained(out)
        config.save_pretrained(out)
        # Loaded as a run does it, so that a demonstration has the tokens of a rollout.
        backbone = load_backbone(str(out), load_recipe(RECIPE, []))
        dialogues = [supervised.tokenize(backbone, demo) for demo in demos]
        fitting = [dialogue for dialogue in dialogues if len(dialogue.ids) <= settings.max_tokens]
        model = Qwen3ForCausalLM(config)
        copied = learn_to_copy(model, settings.copy_steps, COPYING_RATE, settings.seed)
        loss = clone_behaviour(model, fitting, settings, pad=int(tokenizer.pad_token_id))
        model.save_pretrained(out)
        facts = {
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "copied": copied,
            "demonstrations": len(fitting),
            "left_out_too_long": len(dialogues) - len(fitting),
            "demonstrations_passed": sum(demo["reward"] for demo in demos) / len(demos),
            "mean_tokens": sum(len(dialogue.ids) for dialogue in fitting) / len(fitting),
            "last_epoch_loss": loss,
            "demonstrations_sha256": digest,
            "settings": noted(settings),
        }
        write_facts(out / BUILT, facts, indent=2)
    return facts


def noted(settings: TinyPolicy) -> dict[str, Any]:
    """The settings as built.json has them: without the folder, files by their names."""
    return {
        key: value.name if isinstance(value, Path) else value
        for key, value in vars(settings).items()
        if key != "out"
    }


def first_demonstrations(settings: TinyPolicy) -> int:
    """How many demonstrations show the real tasks and the first FIRST synthetic ones."""
    real = len(json.loads(settings.task_ids.read_text("utf-8"))) * settings.dialogues
    return real + min(FIRST, settings.synthetic_tasks) * settings.synthetic_dialogues


def demonstrations(settings: TinyPolicy) -> tuple[list[dict[str, Any]], str]:
    """The demonstrations to learn from, and the SHA-256 of the first ones.

    Those of the real tasks come first. Of the synthetic tasks the first ones are the same, whatever
    their number; the tokenizer and the SHA-256 come from `first_demonstrations`, so that a test can
    make them again in seconds.

    Raises:
        DemonstrationError: The demonstrations failed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pool = supervised.synthesise(
            folder,
            f"--split={settings.split.resolve()}",
            f"--tasks={settings.synthetic_tasks}",
            *WORLD,
        )
        demos: list[dict[str, Any]] = []
        for tasks, dialogues in (
            (settings.task_ids.resolve(), settings.dialogues),
            (pool, settings.synthetic_dialogues),
        ):
            lines = folder / "demonstrations.jsonl"
            supervised.demonstrate(
                lines,
                "tempted",
                f"--task-ids={tasks}",
                f"--dialogues={dialogues}",
                f"--seed={settings.seed}",
            )
            demos += supervised.read_demonstrations(lines)
    first = json_lines(demos[: first_demonstrations(settings)])
    return demos, hashlib.sha256(first.encode()).hexdigest()


def model_config(tokenizer: PreTrainedTokenizerFast) -> Qwen3Config:
    """Shape of the model."""
    return Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def batches(
    dialogues: Sequence[TokenizedDialogue], epoch: int, seed: int
) -> list[list[TokenizedDialogue]]:
    """Batches of dialogues of similar length, each at most TOKENS_PER_BATCH tokens with padding."""
    generator = torch.Generator().manual_seed(seed * 1000 + epoch)
    order = torch.randperm(len(dialogues), generator=generator).tolist()
    noise = {index: place % 7 for place, index in enumerate(order)}
    by_length = sorted(order, key=lambda index: len(dialogues[index].ids) // 16 * 16 + noise[index])
    result: list[list[TokenizedDialogue]] = [[]]
    for index in by_length:
        longest = max(len(dialogue.ids) for dialogue in [*result[-1], dialogues[index]])
        if longest * (len(result[-1]) + 1) > TOKENS_PER_BATCH and result[-1]:
            result.append([])
        result[-1].append(dialogues[index])
    shuffled = torch.randperm(len(result), generator=generator).tolist()
    return [result[index] for index in shuffled]


def clone_behaviour(
    model: Qwen3ForCausalLM, dialogues: Sequence[TokenizedDialogue], settings: TinyPolicy, pad: int
) -> float:
    """Train on the dialogues; returns the mean loss of the last epoch.

    Args:
        model: Changed in place.
        dialogues: Demonstrations as tokens.
        settings: Epochs, learning rate and seed.
        pad: Token id of the padding.
    """
    epochs, rate = settings.epochs, settings.learning_rate
    plan = [batch for epoch in range(epochs) for batch in batches(dialogues, epoch, settings.seed)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=rate, total_steps=len(plan), pct_start=0.1
    )
    losses: list[float] = []
    model.train()
    interval = 0.5 if sys.stderr.isatty() else 15.0
    bar = tqdm(plan, desc="warming the tiny policy up", unit="batch", mininterval=interval)
    for batch in bar:
        # float32: a processor without AVX-512 multiplies bfloat16 eighty times slower.
        summed, learnt = supervised.summed_loss(model, batch, pad)
        loss = summed / learnt
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
        bar.set_postfix(loss=f"{losses[-1]:.3f}", refresh=False)
    last = losses[-max(1, len(plan) // epochs) :]
    return sum(last) / len(last)
