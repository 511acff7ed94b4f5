"""Demonstrations as tokens, and the loss on them: for warm-up and the tiny policy.

In: the file of the environment's demonstrators. Out: the tokens that a rollout of the same dialogue
has, and which of them the policy is to learn.
"""

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seal import ROOT
from seal.backbone.loading import Backbone
from seal.backbone.system_note import behind_default
from seal.records.json_lines import read_json_lines
from seal.records.whole_file import whole_file

SERVICE_PYTHON = ROOT / ".venv-bfcl/bin/python"
POOL = "warm_up"
"""Name of a pool that is only demonstrated."""


class DemonstrationError(Exception):
    """Demonstrations could not be made; the message says why."""


@dataclass(frozen=True)
class TokenizedDialogue:
    """One demonstration as tokens."""

    ids: list[int]
    """Token ids."""
    learn: list[bool]
    """True where the policy is to learn the token; as many as ids."""


def demonstrate(out: Path, style: str, *options: str) -> None:
    """Have the service's environment write demonstrations to a file.

    Args:
        out: The file, JSON lines.
        style: "tempted" or "exact" (env_service/environments/bfcl/demonstrations).
        options: Of that style, e.g. "--variants=4".

    Raises:
        DemonstrationError: The service's environment is not installed, or it failed.
    """
    with whole_file(out) as unfinished:
        if _service("demonstrations", style, f"--out={unfinished}", *options) != 0:
            raise DemonstrationError("the demonstrations failed; the reason is above")


def synthesise(root: Path, *options: str) -> Path:
    """Have the service's environment make a pool of synthetic tasks; returns the file of its tasks.

    Args:
        root: Folder that its files are made in.
        options: Of env_service/environments/bfcl/synthesis, e.g. "--tasks=100".

    Raises:
        DemonstrationError: The service's environment is not installed, or it failed.
    """
    if _service("synthesis", "make", POOL, f"--root={root}", *options) != 0:
        raise DemonstrationError("making synthetic tasks failed; the reason is above")
    return root / f"env_service/environments/bfcl/bfcl_data/synthetic/{POOL}.tasks.jsonl"


def _service(module: str, *arguments: str) -> int:
    """Run a program of the service's environment; returns its exit code."""
    if not SERVICE_PYTHON.exists():
        raise DemonstrationError(f"{SERVICE_PYTHON} is missing; run: bash install.sh")
    command = [str(SERVICE_PYTHON), "-m", f"env_service.environments.bfcl.{module}", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def read_demonstrations(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a demonstrator's file."""
    return read_json_lines(path, lambda _number, demonstration: demonstration)


def tokenize(backbone: Backbone, demonstration: dict[str, Any]) -> TokenizedDialogue:
    """Tokens as a rollout has them: the prompt, then answers and observations by turns.

    Of the tokens that close an answer, the policy learns the one at which generation stops.
    """
    end = backbone.message_end
    stop = next((place for place, token in enumerate(end) if token in backbone.stop_ids), 0) + 1
    messages = [
        {key: value for key, value in message.items() if key != "learn"}
        for message in demonstration["messages"]
    ]
    shown = behind_default(messages, backbone.default_system)
    dialogue = TokenizedDialogue([], [])

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


def summed_loss(
    model: Any, batch: Sequence[TokenizedDialogue], pad: int
) -> tuple[torch.Tensor, int]:
    """Negative log-likelihood of the tokens to learn (their sum, a scalar, nats); their number.

    Args:
        model: A causal language model of transformers.
        batch: Dialogues that go through the model together, padded on the right.
        pad: Token id of the padding.
    """
    width = max(len(dialogue.ids) for dialogue in batch)
    ids = torch.tensor([d.ids + [pad] * (width - len(d.ids)) for d in batch])
    learn = torch.tensor([d.learn + [False] * (width - len(d.learn)) for d in batch])[:, 1:]
    # Causal attention with padding on the right needs no attention mask.
    hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    # Logits, the largest matrix, are computed only for tokens that are learnt.
    logits = model.get_output_embeddings()(hidden[learn])
    loss = torch.nn.functional.cross_entropy(logits.float(), ids[:, 1:][learn], reduction="sum")
    return loss, int(learn.sum())
