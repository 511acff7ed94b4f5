"""Checks that every prompt of a run fits its token budget, before the first worker starts.

In: the resolved recipe and the running service. Out: a sentence, or `PromptBudgetError`. A task
whose prompt does not fit cannot be rolled out. Recipes with a learning interface would lose more
tasks than others, so recipes would be compared on different tasks. Training prompts are counted
under the longest interface that the recipe can show, evaluation prompts without one. The tasks of
the pool that the recipe names are training tasks; if all prompts come from it, those of
data.train_files are not counted. As a program:
`python -m seal.backbone.prompt_budget CONFIG.yaml`.
"""

import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import jinja2
import pyarrow
import pyarrow.json
import pyarrow.parquet
from omegaconf import DictConfig, OmegaConf
from verl.utils.fs import copy_to_local

from seal import ROOT
from seal.backbone.loading import Backbone, BackboneError, load_backbone
from seal.backbone.prompts import Prompt, count_tokens, fetch_prompts, in_batches, in_training
from seal.backbone.system_note import SystemNoteError
from seal.client.access_token import read_token
from seal.client.client import EnvironmentClient, EnvironmentFault
from seal.coevolution.evolution import largest
from seal.coevolution.interface import Interface
from seal.settings.sections import Data, read_settings
from seal.tasks.pools import read_pool
from seal.tasks.splits import BadData

CACHE = Path("experiments/prompt_tokens")
"""Counts of earlier runs, by a hash of tokenizer, template and prompts."""

logger = logging.getLogger(__name__)


class PromptBudgetError(Exception):
    """Prompts do not fit the recipe's token budget, so the recipe must be changed."""


def prompt_limit(config: DictConfig) -> int:
    """A prompt must have fewer tokens than this, so that the policy can answer it."""
    rollout = config.actor_rollout_ref.rollout
    limits = (config.data.max_prompt_length, rollout.prompt_length, rollout.max_model_len)
    return min(int(limit) for limit in limits if limit is not None)


def largest_interface(backbone: Backbone, config: DictConfig) -> Interface:
    """The interface of a recipe with the most tokens."""

    def length(text: str) -> int:
        return len(backbone.tokenizer.encode(text, add_special_tokens=False))

    return largest(read_settings(config).seal.interface, length)


def check_prompts(config: DictConfig) -> str:
    """Count the prompts of the run's data files; returns the longest of each kind, as a sentence.

    Raises:
        PromptBudgetError: A prompt does not fit; the message says how many of each kind do not, and
            what to set.
        BackboneError: The tokenizer cannot be loaded, or its chat template cannot carry a rollout.
        EnvironmentFault: The service fails, or does not know a task.
    """
    backbone = load_backbone(copy_to_local(config.actor_rollout_ref.model.path), config)
    # A rollout needs these of the template; an error there would count as the environment's.
    try:
        _ = (backbone.message_end, backbone.default_system)
    except (jinja2.TemplateError, SystemNoteError, TypeError, ValueError) as error:
        raise BackboneError(
            f"the chat template cannot carry a rollout ({error}); "
            "set actor_rollout_ref.model.custom_chat_template"
        ) from error
    data = read_settings(config).data
    tasks = {mode: tasks_of_mode(data, mode) for mode in ("train", "eval")}
    opened = asyncio.run(_opened(config, sorted({*tasks["train"], *tasks["eval"]})))
    shown = largest_interface(backbone, config)
    kinds = {
        "training": [in_training(opened[task], shown) for task in tasks["train"]],
        "evaluation": [opened[task] for task in tasks["eval"]],
    }
    # A file may have rows of one kind only.
    counted = [judged(config, backbone, some, kind) for kind, some in kinds.items() if some]
    refused = [sentence for fits, sentence in counted if not fits]
    if refused:
        raise PromptBudgetError("; ".join(refused))
    return "; ".join(sentence for _, sentence in counted)


def judged(
    config: DictConfig, backbone: Backbone, prompts: Sequence[Prompt], kind: str
) -> tuple[bool, str]:
    """Whether all prompts of one kind (at least one) fit, and a sentence about them."""
    counts = count_tokens(backbone, prompts, CACHE)
    longest = max(counts)
    limit = prompt_limit(config)
    overlong = sum(count >= limit for count in counts)
    if not overlong:
        opening = f"the longest of {len(counts)} {kind} prompts has {longest} tokens, fewer than "
        logger.info("%s%d", opening, limit)
        return True, f"{opening}{limit}"
    under = " under the largest learning interface of the recipe" if kind == "training" else ""
    return False, (
        f"{overlong} of {len(counts)} {kind} prompts do not fit{under}: "
        f"{prompts[counts.index(longest)].task_id} has {longest} tokens, the limit is {limit}. "
        f"Remedy: {remedy(longest)}; or remove the tasks from the data file"
    )


def remedy(longest: int) -> str:
    """What to do if the longest prompt, in tokens, does not fit."""
    return (
        f"set data.max_prompt_length above {longest}, and data.max_response_length so that both "
        "fit actor_rollout_ref.rollout.max_model_len"
    )


def tasks_of_mode(data: Data, mode: str) -> list[str]:
    """Tasks of a run that are rolled out in a mode, each once; those of a pool come last.

    Raises:
        PromptBudgetError: A file cannot be read as tasks, or there is no such pool.
    """
    training = data.train_files if data.synthetic_share < 1 else ()
    files = (*training, *data.val_files)
    tasks = [task for file in files for task in _tasks_of_file(Path(file), mode)]
    if data.synthetic_tasks is not None and mode == "train":
        try:
            tasks += [task.task_id for task in read_pool(data.synthetic_tasks, ROOT).rows]
        except BadData as error:
            raise PromptBudgetError(str(error)) from error
    return list(dict.fromkeys(tasks))


def _tasks_of_file(path: Path, mode: str) -> list[str]:
    """The tasks of one of verl's data files: parquet, or JSON with one row on each line."""
    try:
        if path.suffix == ".parquet":
            table = pyarrow.parquet.read_table(path, columns=["extra_info"])
        else:
            table = pyarrow.json.read_json(path)
        rows = [row["extra_info"] for row in table.to_pylist()]
        return [str(row["task_id"]) for row in rows if row["mode"] == mode]
    except (OSError, KeyError, TypeError, pyarrow.ArrowException) as error:
        raise PromptBudgetError(
            f"{path} cannot be read as tasks: each row needs extra_info with task_id and mode, "
            f"see data/bfcl_train.parquet ({type(error).__name__}: {error})"
        ) from error


async def _opened(config: DictConfig, ids: Sequence[str]) -> dict[str, Prompt]:
    settings = read_settings(config).env_service
    token = read_token(settings.token_file)
    async with EnvironmentClient(settings.env_url, settings.env_type, token=token) as client:
        prompts = await fetch_prompts(client, in_batches(ids), settings.tool_format)
    return {prompt.task_id: prompt for prompt in prompts}


if __name__ == "__main__":
    recipe = OmegaConf.load(sys.argv[1])
    assert isinstance(recipe, DictConfig)
    try:
        sys.stdout.write(f"{check_prompts(recipe)}\n")
    except (PromptBudgetError, BackboneError, EnvironmentFault) as error:
        sys.exit(str(error))
