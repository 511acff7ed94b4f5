"""Build the tiny policy that stands in for an instruct checkpoint where there is none.

A Qwen3-shaped model of a few million parameters with its own tokenizer and chat template, warmed
up on demonstrations: reference programs of training tasks, played through the environment with
one plausible mistake here and there, some of them repaired. What it learns is how to talk to the
environment, and a few decisions near even odds for reinforcement learning to work on. It knows
nothing else, and its scores say nothing about real models.
"""

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from tqdm import tqdm
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from seal.launch.recipe import RecipeError, load_recipe
from seal.train.backbone import BackboneError, load_backbone
from seal.warm_up import supervised
from seal.warm_up.supervised import Dialogue

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "exp/quickstart.yaml"
VOCABULARY = 4096
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# Kept by skip_special_tokens=True, because the service parses them.
MARKS = ["<tool_call>", "</tool_call>"]
TOKENS_PER_BATCH = 2048
FINISHED = "built.json"


def train_tokenizer(demonstrations: list[dict[str, Any]]) -> PreTrainedTokenizerFast:
    """A byte-level BPE over the demonstrations as the chat template renders them."""
    tokenizer = Tokenizer(models.BPE())
    # Pieces end at white space only: a tool's whole signature can become one token, which makes
    # dialogues three times shorter than with a tokenizer for general text.
    pieces = pre_tokenizers.Split(Regex(r" ?[^\s]+|\s"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pieces, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = (ROOT / "seal/warm_up/tiny_policy_chat_template.jinja").read_text("utf-8")
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(MARKS),
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    rendered = (
        fast.apply_chat_template(demo["messages"], tools=demo["tools"], tokenize=False)
        for demo in demonstrations
    )
    marks = re.compile("|".join(map(re.escape, [*SPECIAL, *MARKS])))
    lines = (line for text in rendered for line in marks.sub("", text).splitlines(keepends=True))
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.add_tokens([AddedToken(mark, normalized=False, special=False) for mark in MARKS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template=fast.chat_template,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
    )


def batches(dialogues: list[Dialogue], epoch: int, seed: int) -> list[list[Dialogue]]:
    """Dialogues of like length together, at most TOKENS_PER_BATCH tokens with padding."""
    generator = torch.Generator().manual_seed(seed * 1000 + epoch)
    order = torch.randperm(len(dialogues), generator=generator).tolist()
    noise = {index: place % 7 for place, index in enumerate(order)}
    by_length = sorted(order, key=lambda index: len(dialogues[index].ids) // 16 * 16 + noise[index])
    result: list[list[Dialogue]] = [[]]
    for index in by_length:
        longest = max(len(dialogue.ids) for dialogue in [*result[-1], dialogues[index]])
        if longest * (len(result[-1]) + 1) > TOKENS_PER_BATCH and result[-1]:
            result.append([])
        result[-1].append(dialogues[index])
    shuffled = torch.randperm(len(result), generator=generator).tolist()
    return [result[index] for index in shuffled]


def warm_up(
    model: Qwen3ForCausalLM,
    dialogues: list[Dialogue],
    *,
    epochs: int,
    learning_rate: float,
    pad: int,
    seed: int,
) -> float:
    """Behaviour cloning; returns the mean loss of the last epoch."""
    plan = [batch for epoch in range(epochs) for batch in batches(dialogues, epoch, seed)]
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.01
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=learning_rate, total_steps=len(plan), pct_start=0.1
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


def build(out: Path, args: argparse.Namespace) -> None:
    """Make everything in `out` and write FINISHED last."""
    started = time.perf_counter()
    torch.manual_seed(args.seed)
    out.mkdir(parents=True, exist_ok=True)
    lines = out / "demonstrations.jsonl"
    supervised.demonstrate(
        lines,
        "tempted",
        f"--task-ids={args.task_ids.resolve()}",
        f"--dialogues={args.dialogues}",
        f"--seed={args.seed}",
    )
    demos = list(supervised.read_demonstrations(lines))
    tokenizer = train_tokenizer(demos)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    tokenizer.save_pretrained(out)
    config.save_pretrained(out)
    # From here on as a run has it, so that a demonstration has the tokens of a rollout.
    backbone = load_backbone(str(out), load_recipe(RECIPE, []))
    dialogues = [supervised.tokenize(backbone, demo) for demo in demos]
    fitting = [dialogue for dialogue in dialogues if len(dialogue.ids) <= args.max_tokens]
    model = Qwen3ForCausalLM(config)
    loss = warm_up(
        model,
        fitting,
        epochs=args.epochs,
        learning_rate=args.learning_rate,
        pad=int(tokenizer.pad_token_id),
        seed=args.seed,
    )
    model.save_pretrained(out)
    facts = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "demonstrations": len(fitting),
        "left_out_too_long": len(dialogues) - len(fitting),
        "demonstrations_passed": sum(demo["reward"] for demo in demos) / len(demos),
        "mean_tokens": sum(len(dialogue.ids) for dialogue in fitting) / len(fitting),
        "last_epoch_loss": loss,
        "seconds": time.perf_counter() - started,
        "settings": {key: str(value) for key, value in vars(args).items()},
    }
    (out / FINISHED).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(facts, indent=2))


def main() -> None:
    """Read the command line and build, unless the policy is there already."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for weights and tokenizer")
    parser.add_argument(
        "--task-ids",
        type=Path,
        default=ROOT / "data/quickstart_tasks.json",
        help="JSON list of the training tasks to demonstrate",
    )
    parser.add_argument("--dialogues", type=int, default=48, help="demonstrations a task")
    parser.add_argument("--epochs", type=int, default=2, help="passes over the demonstrations")
    parser.add_argument("--learning-rate", type=float, default=3e-3, help="peak learning rate")
    parser.add_argument("--max-tokens", type=int, default=1536, help="longest demonstration used")
    parser.add_argument("--seed", type=int, default=1, help="seed of demonstrations and weights")
    args = parser.parse_args()
    if (args.out / FINISHED).exists():
        print(f"{args.out}: built already")
        return
    unfinished = args.out.with_name(args.out.name + ".unfinished")
    try:
        build(unfinished, args)
    except (supervised.DemonstrationError, BackboneError, RecipeError) as error:
        raise SystemExit(f"make_tiny_policy: {error}") from error
    os.replace(unfinished, args.out)


if __name__ == "__main__":
    main()
