"""The end of a message, read off real templates, and what a sampled message lacks of it."""

import copy
from typing import Any

import pytest
from rollouts import TASK, TOOL, Backbone, backbone
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from seal.backbone.checks import check
from seal.backbone.loading import Backbone as LoadedBackbone
from seal.backbone.message_end import message_end, unwritten_end
from seal.backbone.prompts import Prompt


def builder_of(model: Backbone) -> Any:
    return create_continuous_token_builder(
        model.tokenizer,
        hf_model_type=model.model_type,
        chat_template_kwargs=model.template_kwargs,
    )


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("qwen2.5", "<|im_end|>\n"),
        ("qwen3.5", "<|im_end|>\n"),
        ("qwen3.5-thinking", "<|im_end|>\n"),
        ("smollm2", "<|im_end|>\n"),
        ("smollm2-135m", "<|im_end|>\n"),
        ("toolace", "<|eot_id|>"),
    ],
)
def test_the_end_is_what_the_template_writes_behind_an_answer(name: str, end: str) -> None:
    model = backbone(name)
    assert message_end(builder_of(model)) == model.encode(end)


def templated(template: str) -> Backbone:
    """SmolLM2's tokenizer with another template."""
    model = backbone("smollm2")
    tokenizer = copy.copy(model.tokenizer)
    tokenizer.chat_template = template
    return Backbone(tokenizer, model.model_type, {}, model.stop_tokens)


def test_an_end_of_ordinary_tokens_and_no_end_at_all() -> None:
    opening = "{% if add_generation_prompt %}[assistant]{% endif %}"
    messages = "{% for m in messages %}[{{ m.role }}]{{ m.content }}END{% endfor %}" + opening
    model = templated(messages.replace("END", " --\n"))
    assert model.decode(message_end(builder_of(model))) == " --\n"
    assert message_end(builder_of(templated(messages.replace("END", "")))) == []


def test_a_template_that_the_builder_does_not_suit_is_an_error_that_says_so() -> None:
    model = templated(
        "{% for m in messages %}<|im_start|>{{ m.role }} "
        "after {{ loop.previtem.role if loop.previtem }}\n"
        "{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}>{% endif %}"
    )
    with pytest.raises(ValueError, match="does not suit ContinuousTokenBuilder, verl's token"):
        message_end(builder_of(model))


@pytest.mark.parametrize(
    ("sampled", "missing"),
    [
        ([5, 1], [2]),
        ([5, 1, 2], []),
        ([5], [1, 2]),
        ([5, 2], [1, 2]),
        ([1, 5], [1, 2]),
        ([], [1, 2]),
        ([1], [2]),
    ],
)
def test_what_is_missing_of_an_end(sampled: list[int], missing: list[int]) -> None:
    assert unwritten_end(sampled, [1, 2]) == missing
    assert unwritten_end(sampled, []) == []


def test_check_backbone_appends_behind_a_closed_message_as_a_rollout_does() -> None:
    model = backbone("smollm2")
    stops = frozenset(model.encode("<|im_end|>"))
    loaded = LoadedBackbone(model.tokenizer, builder_of(model), "hermes", stops)
    found = {one.name: one for one in check(loaded, Prompt("t", "c", (TASK,), (TOOL,)))}
    for name in (
        "a result is appended",
        "several results are appended",
        "the next turn is appended",
    ):
        assert (found[name].passed, found[name].detail) == (True, "as in the whole dialogue")
