"""Teaches an untrained model to copy, before it sees a dialogue.

In: an untrained causal language model. Out: the model, changed: it continues a sequence that it has
read before. Names and values of a task are in its prompt, so a policy that cannot copy can only
learn its training tasks by heart.

A transformer copies with an induction head: one layer writes at each place which token came before,
and a head of the next layer looks for the present token among these, and takes over what follows
there (Olsson et al. 2022, arXiv 2209.11895). A model of two million parameters does not find this
in ten million tokens on a processor. So the head is laid out in the first weights, and the model is
shown which place to look at for "the token before" until it does. The rest takes a minute of
repeated random tokens.
"""

import sys

import torch
from tqdm import tqdm
from transformers import Qwen3ForCausalLM

SEQUENCES = 16
"""In a batch."""
LENGTHS = (6, 30)
"""Fewest tokens that are repeated, and one more than the most."""
OTHERS = 30
"""Tokens before a sequence, and before its repetition: fewer than this."""
WARM_UP_STEPS = 50
SHOWN_STEPS = 300
"""So long the model is shown where "the token before" is."""
WRITTEN = 0.5
"""How strongly the head writes, relative to a token's embedding."""
SHARPNESS = 2.0
"""Of the head's attention: initial weight of the norm of its queries."""
LAST = 50
"""Batches whose share of copied tokens is reported."""


def learn_to_copy(model: Qwen3ForCausalLM, steps: int, rate: float, seed: int) -> float:
    """Train a model on repeated random tokens; returns the share that it copies at the end.

    Args:
        model: Changed in place; it must compute its attention "eagerly" until SHOWN_STEPS.
        steps: Batches.
        rate: Learning rate.
        seed: Of the tokens, and of the directions that the head uses.
    """
    generator = torch.Generator().manual_seed(seed)
    lay_out_induction_head(model, generator)
    model.set_attn_implementation("eager")  # the only one that returns attention
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / WARM_UP_STEPS)
    )
    model.train()
    copied: list[float] = []
    interval = 0.5 if sys.stderr.isatty() else 15.0
    bar = tqdm(range(steps), desc="learning to copy", unit="batch", mininterval=interval)
    for step in bar:
        ids, start = repeated_tokens(int(model.config.vocab_size), generator)
        shown = step < SHOWN_STEPS
        output = model(input_ids=ids, use_cache=False, output_attentions=shown)
        # The first token of the repetition cannot be known.
        logits, targets = output.logits[:, start:-1], ids[:, start + 1 :]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        if shown:
            loss = loss + _looks_elsewhere(output.attentions[0][:, 0])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        copied.append(float((logits.argmax(-1) == targets).float().mean()))
        bar.set_postfix(copied=f"{copied[-1]:.2f}", refresh=False)
    model.set_attn_implementation("sdpa")
    return sum(copied[-LAST:]) / len(copied[-LAST:])


def repeated_tokens(vocabulary: int, generator: torch.Generator) -> tuple[torch.Tensor, int]:
    """Random tokens, then x, others, and x again; all of random length.

    Returns:
        Token ids, shape (SEQUENCES, tokens); the place where x begins again.
    """

    def draw(count: int) -> torch.Tensor:
        return torch.randint(vocabulary, (SEQUENCES, count), generator=generator)

    before, between = torch.randint(OTHERS, (2,), generator=generator).tolist()
    repeated = draw(int(torch.randint(*LENGTHS, (1,), generator=generator)))
    parts = [draw(before), repeated, draw(between), repeated]
    tokens = torch.cat(parts, dim=1)
    return tokens, tokens.shape[1] - repeated.shape[1]


def lay_out_induction_head(model: Qwen3ForCausalLM, generator: torch.Generator) -> None:
    """Give the first head of two layers the weights of an induction head, up to its attention.

    Three orthogonal subspaces of the embedding are used. The first layer reads a token in one
    subspace and writes it, one place later, to another one. The second layer compares the present
    token with what was written, and writes the token that it finds in the third one.
    """
    width, size = model.config.hidden_size, model.config.head_dim
    first, second = (layer.self_attn for layer in model.model.layers[:2])
    basis = torch.linalg.qr(torch.randn(width, width, generator=generator))[0]
    present, earlier, found = basis[:size], basis[size : 2 * size], basis[2 * size : 3 * size]
    with torch.no_grad():
        embedding = model.get_input_embeddings().weight
        embedding.copy_(torch.randn(embedding.shape, generator=generator) / width**0.5)
        first.v_proj.weight[:size] = present
        first.o_proj.weight[:, :size] = WRITTEN * earlier.T
        second.q_proj.weight[:size] = present
        second.k_proj.weight[:size] = earlier
        second.v_proj.weight[:size] = found
        second.o_proj.weight[:, :size] = WRITTEN * found.T
        second.q_norm.weight.fill_(SHARPNESS)


def _looks_elsewhere(attention: torch.Tensor) -> torch.Tensor:
    """Cross entropy, in nats, of a head's attention with "the token before".

    Args:
        attention: Shape (sequences, tokens, tokens).
    """
    before = attention.diagonal(offset=-1, dim1=1, dim2=2)
    return -(before + 1e-6).log().mean()
