"""Demonstrations as tokens, and the loss on them: for warm-up and the tiny policy.

In: what the environment's demonstrators wrote. Out: the tokens that a rollout of the same dialogue
has, with a mark on those that the policy is to learn.
"""

import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seal.train.backbone import Backbone
from seal.train.system_note import behind_default

ROOT = Path(__file__).resolve().parents[2]
SERVICE_PYTHON = ROOT / ".venv-bfcl/bin/python"


class DemonstrationError(Exception):
    """There are no demonstrations; the message says why."""


@dataclass(frozen=True)
class Dialogue:
    """One demonstration as tokens."""

    ids: list[int]
    """Token ids."""
    learn: list[bool]
    """True where the policy is to learn the token; as many as ids."""


def demonstrate(out: Path, style: str, *options: str) -> None:
    """Have the service's environment write demonstrations.

    Args:
        out: JSON lines file.
        style: "tempted" or "exact" (env_service/environments/bfcl/demonstrations).
        options: Of that style, e.g. "--variants=4".

    Raises:
        DemonstrationError: The service's environment is not installed, or it failed.
    """
    if not SERVICE_PYTHON.exists():
        raise DemonstrationError(f"{SERVICE_PYTHON} is missing; run: bash install.sh")
    module = "env_service.environments.bfcl.demonstrations"
    unfinished = out.with_name(out.name + ".unfinished")
    command = [str(SERVICE_PYTHON), "-m", module, style, f"--out={unfinished}", *options]
    if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
        raise DemonstrationError("the demonstrations failed; the reason stands above")
    unfinished.replace(out)


def read_demonstrations(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a demonstrator's file."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def tokenize(backbone: Backbone, demonstration: dict[str, Any]) -> Dialogue:
    """Tokens as a rollout has them: prompt, then answers and observations in turn.

    Of what closes an answer the policy learns the token at which generation stops.
    """
    end = backbone.message_end
    stop = next((place for place, one in enumerate(end) if one in backbone.stop_ids), 0) + 1
    messages = [
        {key: value for key, value in message.items() if key != "learn"}
        for message in demonstration["messages"]
    ]
    shown = behind_default(messages, backbone.default_system)
    dialogue = Dialogue([], [])

    def add(ids: Sequence[int], learn: bool) -> None:
        dialogue.ids.extend(ids)
        dialogue.learn.extend([learn] * len(ids))

    seen = 0
    for place, message in enumerate(demonstration["messages"]):
        if message["role"] != "assistant":
            continue
        if seen:
            context = backbone.builder.tokenize_context_incremental_messages(
                shown[:seen], shown[:place]
            )
        else:
            context = backbone.builder.build_initial_tokens(
                shown[:place], tools=demonstration["tools"]
            )
        add(context, False)
        answer = backbone.tokenizer.encode(message["content"], add_special_tokens=False)
        add([*answer, *end[:stop]], message["learn"])
        add(end[stop:], False)
        seen = place + 1
    return dialogue


def summed_loss(model: Any, batch: Sequence[Dialogue], pad: int) -> tuple[torch.Tensor, int]:
    """Negative log-likelihood of the tokens to learn (a scalar, nats, summed), and how many.

    Args:
        model: A causal language model of transformers.
        batch: Dialogues that go through the model together, padded on the right.
        pad: Id to pad with.
    """
    width = max(len(dialogue.ids) for dialogue in batch)
    ids = torch.tensor([d.ids + [pad] * (width - len(d.ids)) for d in batch])
    learn = torch.tensor([d.learn + [False] * (width - len(d.learn)) for d in batch])[:, 1:]
    # Causal attention with padding on the right needs no attention mask.
    hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    # The largest matrix, of the whole vocabulary, only where something is learnt.
    logits = model.get_output_embeddings()(hidden[learn])
    loss = torch.nn.functional.cross_entropy(logits.float(), ids[:, 1:][learn], reduction="sum")
    return loss, int(learn.sum())
