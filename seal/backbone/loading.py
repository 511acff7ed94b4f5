"""The tokenizer of a backbone, loaded as verl loads it, with the tokens that end its messages.

In: a model's folder or hub name and the recipe. Out: a `Backbone`. Weights are not needed.
"""

import functools
import warnings
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf
from transformers import GenerationConfig, PretrainedConfig
from verl.utils import hf_processor, hf_tokenizer
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from seal.backbone.message_end import message_end, stop_token_ids
from seal.backbone.system_note import default_system
from seal.settings.sections import read_settings


class BackboneError(Exception):
    """The model's folder cannot be used at all."""


@dataclass(frozen=True)
class Backbone:
    """A tokenizer as a run has it."""

    tokenizer: Any
    builder: Any
    """verl's builder of rollout tokens; the type of the model decides which."""
    tool_format: str
    """Format of calls (seal.formats)."""
    stop_ids: frozenset[int]
    """Tokens at which generation stops: the recipe's, the tokenizer's, the model's own."""

    @functools.cached_property
    def default_system(self) -> str:
        """The template's system message for a dialogue without one."""
        return default_system(self.builder, self.tokenizer)

    @functools.cached_property
    def message_end(self) -> list[int]:
        """Token ids that the template writes behind an assistant message's text."""
        return message_end(self.builder)


def load_backbone(path: str, recipe: DictConfig) -> Backbone:
    """Load the tokenizer the way verl does for a run of the recipe.

    Raises:
        BackboneError: There is no tokenizer or no config.json, the tokenizer has no chat template,
            or it lacks a stop token of the recipe.
    """
    model = recipe.actor_rollout_ref.model
    words = path if model.tokenizer_path is None else str(model.tokenizer_path)
    trust = {"trust_remote_code": bool(model.trust_remote_code)}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # verl warns where a model has no processor
            tokenizer = hf_tokenizer(words, **trust)
            processor = hf_processor(words, **trust)
            config, _ = PretrainedConfig.get_config_dict(path)
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        first = str(error).strip().splitlines()[0]
        raise BackboneError(f"cannot load the tokenizer of {words}: {first}") from error
    if "model_type" not in config:
        raise BackboneError(f"{path} has no config.json with a model_type, which verl needs")
    if model.custom_chat_template is not None:
        tokenizer.chat_template = model.custom_chat_template
        if processor is not None:
            processor.chat_template = model.custom_chat_template
    if not tokenizer.chat_template:
        raise BackboneError(
            f"the tokenizer of {words} has no chat template: a base model? Name an instruct model, "
            "or set actor_rollout_ref.model.custom_chat_template"
        )
    settings = read_settings(recipe).env_service
    try:
        stops = set(stop_token_ids(tokenizer, settings.stop_tokens))
    except ValueError as error:
        raise BackboneError(str(error)) from error
    builder = create_continuous_token_builder(
        tokenizer,
        hf_model_type=config["model_type"],
        chat_template_kwargs=OmegaConf.to_container(recipe.data.apply_chat_template_kwargs),
        processor=processor,
    )
    stops |= _own_stop_ids(path, tokenizer)
    return Backbone(tokenizer, builder, settings.tool_format, frozenset(stops))


def _own_stop_ids(path: str, tokenizer: Any) -> set[int]:
    """Tokens at which vLLM stops by itself: those of the tokenizer and generation_config.json."""
    try:
        ends = GenerationConfig.from_pretrained(path).eos_token_id
    except OSError:  # the file is optional
        ends = None
    ids = [tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])]
    return {token for token in ids if token is not None}
