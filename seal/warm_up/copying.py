"""Teaches an untrained model to copy, before it sees a dialogue.

In: a causal language model. Out: the model, changed, which continues a sequence that it has read
before. Names and values of a task are in its prompt, so a policy that cannot copy can only learn
its training tasks by heart. A model of two million parameters does not find this out from a few
million tokens of dialogues; from random tokens that are repeated it does, within minutes.
"""

import sys

import torch
from tqdm import tqdm
from transformers import PreTrainedModel

SEQUENCES = 16
"""In a batch."""
LENGTHS = (6, 40)
"""Fewest tokens that are repeated, and one more than the most."""
GAPS = 30
"""Tokens between a sequence and its repetition: fewer than this."""
WARM_UP_STEPS = 200
ENOUGH = 0.98
"""Share of the repeated tokens that ends the lesson: half a second of them, CHECKED steps."""
CHECKED = 50


def learn_to_copy(model: PreTrainedModel, steps: int, rate: float, seed: int) -> float:
    """Train a model on random tokens that come three times; returns the share that it copies.

    Args:
        model: Changed in place.
        steps: At most so many; it ends when ENOUGH tokens were copied in the last CHECKED steps.
        rate: Learning rate.
        seed: Of the tokens.
    """
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / WARM_UP_STEPS)
    )
    model.train()
    copied: list[float] = []
    interval = 0.5 if sys.stderr.isatty() else 15.0
    bar = tqdm(range(steps), desc="learning to copy", unit="batch", mininterval=interval)
    for _ in bar:
        ids, first = repeated_tokens(int(model.config.vocab_size), generator)
        # Logits of the last token of the first copy predict the first one of the second.
        logits = model(input_ids=ids).logits[:, first - 1 : -1]
        targets = ids[:, first:]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        copied.append(float((logits.argmax(-1) == targets).float().mean()))
        bar.set_postfix(copied=f"{copied[-1]:.2f}", refresh=False)
        if len(copied) >= CHECKED and sum(copied[-CHECKED:]) / CHECKED >= ENOUGH:
            break
    return sum(copied[-CHECKED:]) / len(copied[-CHECKED:])


def repeated_tokens(vocabulary: int, generator: torch.Generator) -> tuple[torch.Tensor, int]:
    """Random tokens x, others between, then x and x again; and where the first repetition begins.

    Returns:
        Token ids, shape (SEQUENCES, tokens); the place of the second token of the first repetition,
        the first one that can be known.
    """

    def draw(count: int) -> torch.Tensor:
        return torch.randint(vocabulary, (SEQUENCES, count), generator=generator)

    length = int(torch.randint(*LENGTHS, (1,), generator=generator))
    gap = int(torch.randint(GAPS, (1,), generator=generator))
    tokens = draw(length)
    return torch.cat([tokens, draw(gap), tokens, tokens], dim=1), length + gap + 1
