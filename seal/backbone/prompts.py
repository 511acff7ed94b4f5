"""Prompts of tasks, as a rollout sees them, and how many tokens they have.

In: the first messages of tasks, as the environment service gives them in mode "eval". Out: the same
under a learning interface, as mode "train" shows them, and token counts. A test compares
`in_training` with the service.
"""

import asyncio
import hashlib
import json
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from seal.backbone.loading import Backbone
from seal.backbone.system_note import behind_default
from seal.client.client import EnvironmentClient, Task
from seal.coevolution.interface import Interface
from seal.records.whole_file import write_whole
from seal.wire import Message, ToolDoc

AT_ONCE = 8
"""Tasks that are opened at the same time."""


@dataclass(frozen=True)
class Prompt:
    """The first messages of a task, and its tools."""

    task_id: str
    category: str
    messages: tuple[Message, ...]
    tools: tuple[ToolDoc, ...]


def in_batches(ids: Sequence[str]) -> list[Sequence[str]]:
    """Task ids in batches that are asked for at the same time."""
    return [ids[start : start + AT_ONCE] for start in range(0, len(ids), AT_ONCE)]


async def fetch_prompts(
    client: EnvironmentClient, batches: Iterable[Sequence[str]], tool_format: str
) -> list[Prompt]:
    """The prompts of tasks in evaluation.

    `batches` are those of `in_batches`; the iterable may show progress.

    Raises:
        EnvironmentFault: The service fails, or does not know a task.
    """

    async def fetch(task_id: str) -> Prompt:
        instance = uuid.uuid4().hex
        task = Task(task_id, "eval", "prompts", None, tool_format)
        opened = await client.create(instance, task)
        await client.release(instance)
        return Prompt(task_id, opened.info.category, opened.state, opened.info.tools)

    prompts: list[Prompt] = []
    for ids in batches:
        prompts += await asyncio.gather(*map(fetch, ids))
    return prompts


def in_training(prompt: Prompt, interface: Interface) -> Prompt:
    """The prompt as mode "train" shows it under an interface."""
    note = interface.system_note()
    system: list[Message] = [] if note is None else [{"role": "system", "content": note}]
    tools = tuple(interface.tool_docs(prompt.tools))
    return replace(prompt, messages=(*system, *prompt.messages), tools=tools)


def prompt_ids(backbone: Backbone, prompt: Prompt) -> list[int]:
    """The prompt's tokens as the agent loop renders them."""
    messages = list(prompt.messages)
    if messages[0]["role"] == "system":  # the default takes time to find out
        messages = behind_default(messages, backbone.default_system)
    return list(backbone.builder.build_initial_tokens(messages, tools=list(prompt.tools)))


def count_tokens(
    backbone: Backbone,
    prompts: Sequence[Prompt],
    cache: Path | None = None,
    watch: Callable[[Sequence[Prompt]], Iterable[Prompt]] = iter,
) -> list[int]:
    """Tokens of each prompt, in order.

    `cache` is a folder of earlier counts; without it all prompts are counted. `watch` wraps the
    prompts to show progress.
    """
    known = None if cache is None else cache / f"{_key(backbone, prompts)}.json"
    if known is not None and (kept := _kept(known, len(prompts))) is not None:
        return kept
    counts = [len(prompt_ids(backbone, prompt)) for prompt in watch(prompts)]
    if known is not None:
        known.parent.mkdir(parents=True, exist_ok=True)
        write_whole(known, json.dumps(counts))
    return counts


def _kept(known: Path, length: int) -> list[int] | None:
    """Earlier counts; None if there are none, or the file is damaged."""
    try:
        counts = json.loads(known.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    whole = isinstance(counts, list) and len(counts) == length
    return counts if whole and all(isinstance(count, int) for count in counts) else None


def _key(backbone: Backbone, prompts: Sequence[Prompt]) -> str:
    """A hash of everything that the counts depend on."""
    tokenizer: Any = backbone.tokenizer
    fast = tokenizer.is_fast  # a tokenizer in Python does not give its merges as text
    facts = [
        tokenizer.backend_tokenizer.to_str() if fast else sorted(tokenizer.get_vocab().items()),
        tokenizer.chat_template,
        backbone.builder.chat_template_kwargs,
        type(backbone.builder).__name__,
        [asdict(prompt) for prompt in prompts],
    ]
    return hashlib.sha256(json.dumps(facts).encode("utf-8")).hexdigest()[:32]
