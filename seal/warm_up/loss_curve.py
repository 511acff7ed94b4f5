"""The loss of a warm-up as a picture."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def plot(lines: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw the loss of every step, and its running mean, over the tokens seen.

    `lines` are those of loss.jsonl; the suffix of `path` says which format the picture has.
    """
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
