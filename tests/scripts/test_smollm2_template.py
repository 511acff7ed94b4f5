"""SmolLM2's compact chat template on all tasks: nothing of a tool or of the interface is lost.

A tool's line is read back as what it says of each parameter, and compared with the tool's doc.
"""

import asyncio
import copy
import json
import keyword
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import check_backbone
import pytest
import real_tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig

from seal.backbone import checks, prompt_budget
from seal.backbone.loading import Backbone, load_backbone
from seal.backbone.prompt_budget import (
    PromptBudgetError,
    check_prompts,
    largest_interface,
    prompt_limit,
)
from seal.backbone.prompts import (
    Prompt,
    count_tokens,
    fetch_prompts,
    in_batches,
    in_training,
    prompt_ids,
)
from seal.client.client import EnvironmentClient
from seal.coevolution import texts
from seal.coevolution.evolution import InterfaceConfig, largest
from seal.coevolution.interface import INITIAL, Interface
from seal.formats import ToolCall, parse
from seal.labels import FAILURES
from seal.launch.recipe import EXP, load_recipe
from seal.wire import ToolDoc

LONGEST = "multi_turn_base_198"
"""Its prompt is the longest under the largest interface."""
EVERYTHING = replace(largest(InterfaceConfig(), len), guidelines=FAILURES)
ASKS = "Answer in words, or with nothing but calls: [name(argument='value')]. Tools:"


@pytest.fixture(scope="module")
def recipe() -> DictConfig:
    return load_recipe(EXP / "smollm2.yaml", [])


@pytest.fixture(scope="module")
def backbone(recipe: DictConfig) -> Backbone:
    return load_backbone(real_tokenizers.folder("smollm2"), recipe)


@pytest.fixture(scope="module")
def every(url: str) -> list[Prompt]:
    """All tasks as they open in evaluation."""
    ids = check_backbone.task_ids(800, LONGEST)

    async def fetch() -> list[Prompt]:
        async with EnvironmentClient(url, "bfcl") as client:
            return await fetch_prompts(client, in_batches(ids), "pythonic")

    found = asyncio.run(fetch())
    assert len({prompt.task_id for prompt in found}) == 800
    return found


@pytest.fixture(scope="module")
def lists(every: list[Prompt]) -> list[Prompt]:
    """A task of each list of tools that a task has: what is said of tools depends on it alone."""
    return list({json.dumps(prompt.tools): prompt for prompt in every}.values())


# ---- what a prompt says of its tools -----------------------------------------------------------


@dataclass(frozen=True)
class Shown:
    """What a prompt says of a parameter."""

    optional: bool
    """A question mark is behind its name."""
    kind: str | None
    """Type or values, as they are without the interface."""
    mark: str | None
    """"required" or "optional", as the interface marks it."""
    cues: str | None
    """What follows the mark."""
    fields: Mapping[str, "Shown"]
    """Of an object."""


FIELD = re.compile(r"(\w+)(\??)(?:: (.+?))?(?: \((required|optional)(?:: ([^()]*))?\))?")


def parameters(text: str) -> dict[str, Shown]:
    """The parameters in a signature's brackets, in order."""
    found: dict[str, Shown] = {}
    for one in parts(text):
        match = FIELD.fullmatch(one)
        assert match is not None, one
        name, asked, kind, mark, cues = match.groups()
        assert name not in found, text
        fields = parameters(kind[1:-1]) if kind is not None and kind.startswith("{") else {}
        found[name] = Shown(asked == "?", kind, mark, cues, fields)
    return found


def parts(text: str) -> Iterator[str]:
    """What commas part that stand in no bracket."""
    start = depth = 0
    for place, one in enumerate(text):
        depth += (one in "([{") - (one in ")]}")
        if depth == 0 and text.startswith(", ", place):
            yield text[start:place]
            start = place + len(", ")
    if text:
        yield text[start:]


def system(backbone: Backbone, prompt: Prompt) -> tuple[str, dict[str, dict[str, Shown]]]:
    """The system message: what stands before the tools, and the tools."""
    shown = backbone.tokenizer.decode(prompt_ids(backbone, prompt))
    message, _, rest = shown.partition("<|im_end|>\n")
    assert message.startswith("<|im_start|>system\n")
    for said in prompt.messages:
        assert said["content"] in shown
    assert rest.endswith("<|im_start|>assistant\n")
    note, asks, lines = message.removeprefix("<|im_start|>system\n").partition(ASKS)
    assert asks == ASKS and note.endswith("\n") == bool(note)
    tools: dict[str, dict[str, Shown]] = {}
    for line in lines.removeprefix("\n").split("\n"):
        name, bracket, inner = line.partition("(")
        assert bracket and inner.endswith(")") and name not in tools
        tools[name] = parameters(inner[:-1])
    assert list(tools) == [doc["function"]["name"] for doc in prompt.tools]
    return note.removesuffix("\n"), tools


Parameter = tuple[str, str, dict[str, Any], bool, Shown]
"""Tool, name, the doc's schema of it, whether that is required, and what the prompt says."""


def compared(docs: tuple[ToolDoc, ...], tools: dict[str, dict[str, Shown]]) -> Iterator[Parameter]:
    """Every parameter, nested ones too, beside what is shown of it; nothing more is shown."""
    for doc in docs:
        name = doc["function"]["name"]
        yield from _compared(name, doc["function"]["parameters"], tools[name])


def _compared(tool: str, schema: dict[str, Any], shown: Mapping[str, Shown]) -> Iterator[Parameter]:
    assert list(shown) == list(schema.get("properties", {}))
    for name, field in schema.get("properties", {}).items():
        yield tool, name, field, name in schema.get("required", []), shown[name]
        yield from _compared(tool, field, shown[name].fields)


def listed(field: dict[str, Any]) -> list[str] | None:
    """The values that a parameter's description lists, in brackets or not."""
    _, listing, values = field["description"].partition("[Enum]: ")
    if not listing:
        return None
    read: list[str] = json.loads(values) if values.startswith("[") else values.split(", ")
    return read


def test_every_tool_and_parameter_is_shown_with_its_type_and_values(
    backbone: Backbone, lists: list[Prompt]
) -> None:
    kinds: set[str] = set()
    for prompt in lists:
        note, tools = system(backbone, prompt)
        assert note == ""
        for tool, name, field, required, shown in compared(prompt.tools, tools):
            assert shown.optional is not required, (tool, name)
            # In evaluation nothing is marked.
            assert (shown.mark, shown.cues) == (None, None), (tool, name)
            values, declared = listed(field), field["type"]
            kinds.add(declared)
            several = declared == "array"
            if values is not None:
                said = "|".join(values)
                assert shown.kind == (f"[{said}]" if several else said), (tool, name)
                continue
            if field.get("properties"):
                assert shown.fields
            else:
                inner = f"[{field['items']['type']}]" if several else declared
                assert shown.kind == (None if declared == "string" else inner), (tool, name)
    assert kinds == {"string", "integer", "float", "boolean", "array", "dict"}


def test_no_prompt_of_an_evaluation_has_a_mark(backbone: Backbone, lists: list[Prompt]) -> None:
    for prompt in lists:
        shown = backbone.tokenizer.decode(prompt_ids(backbone, prompt))
        before = shown.partition("<|im_end|>")[0]
        assert "(required" not in before and "(optional" not in before


CUES = re.compile(r" ?\((required|optional)\)(?: Type: ([^.]+)\.)?(?: Allowed values: (.+)\.)?")


def cued(original: dict[str, Any], marked: dict[str, Any]) -> tuple[str, str | None]:
    """The mark that the interface has put behind a description, and its cues."""
    match = CUES.fullmatch(marked["description"].removeprefix(original.get("description", "")))
    assert match is not None, marked
    mark, declared, values = match.groups()
    allowed = None if values is None else f"Allowed values: {values}"
    return mark, ". ".join(one for one in (declared, allowed) if one is not None) or None


def test_under_schema_cues_every_parameter_shows_its_mark_and_its_type_in_words(
    backbone: Backbone, lists: list[Prompt]
) -> None:
    words: set[str | None] = set()
    for prompt in lists:
        training = in_training(prompt, EVERYTHING)
        plain = system(backbone, prompt)[1]
        tools = system(backbone, training)[1]
        originals, marked = compared(prompt.tools, plain), compared(training.tools, tools)
        for before, after in zip(originals, marked, strict=True):
            tool, name, original, required, unmarked = before
            mark, cues = cued(original, after[2])
            shown = after[4]
            assert mark == ("required" if required else "optional")
            assert (shown.mark, shown.cues) == (mark, cues), (tool, name)
            words.add(cues)
            # What else is said stays; a type is not said twice.
            assert shown.optional == unmarked.optional
            if listed(original) is not None:
                assert shown.kind == unmarked.kind
            assert (shown.kind is None) == (listed(original) is None and not shown.fields)
    assert words == {
        *("a string", "an integer", "a number", "a boolean", "an object"),
        *("an array, each item a string", "an array, each item a number"),
    }


MADE_UP: ToolDoc = {
    "type": "function",
    "function": {
        "name": "heat",
        "description": "Heats a room.",
        "parameters": {
            "type": "dict",
            "properties": {
                "unit": {"type": "string", "description": "Of it.", "enum": ["celsius", "kelvin"]},
                "level": {"type": "integer", "description": "How much.", "enum": [1, 2]},
                "what": {"type": "any", "description": "Anything."},
                "which": {"type": "any", "description": "One of two.", "enum": ["a", None]},
                "bare": {"type": "string"},
                "mode": {
                    "type": "string",
                    "description": 'How. [Enum]: ["slow", "fast"]',
                    "enum": ["slow", "fast"],
                },
                "rooms": {
                    "type": "dict",
                    "description": "Where.",
                    "properties": {
                        "floor": {"type": "string", "description": "Up?", "enum": ["up", "down"]},
                        "number": {"type": "integer", "description": "Of the door."},
                    },
                    "required": ["number"],
                },
            },
            "required": ["unit", "rooms"],
        },
    },
}


def test_allowed_values_stand_behind_the_mark_where_a_cue_lists_them(backbone: Backbone) -> None:
    prompt = Prompt("made_up", "toy", ({"role": "user", "content": "warm it"},), (MADE_UP,))
    marked = in_training(prompt, replace(INITIAL, schema_cues=True))
    lines = backbone.tokenizer.decode(prompt_ids(backbone, marked)).split("\n")
    (line,) = (one for one in lines if one.startswith("heat("))
    assert line.removesuffix("<|im_end|>") == (
        "heat(unit (required: a string. Allowed values: 'celsius', 'kelvin'), "
        "level? (optional: an integer. Allowed values: 1, 2), "
        "what? (optional), "
        "which? (optional: Allowed values: 'a', None), "
        "bare? (optional: a string), "
        "mode?: slow|fast (optional: a string. Allowed values: 'slow', 'fast'), "
        "rooms: {"
        "floor? (optional: a string. Allowed values: 'up', 'down'), "
        "number (required: an integer)"
        "} (required: an object))"
    )
    # And so they are read here, too.
    tools = system(backbone, marked)[1]
    pairs = zip(
        compared(prompt.tools, tools), compared(marked.tools, tools), strict=True
    )  # both beside what is shown under cues
    for (_, name, original, _, shown), (_, _, field, _, _) in pairs:
        assert (shown.mark, shown.cues) == cued(original, field), name


# ---- the interface's note ----------------------------------------------------------------------


def test_the_interfaces_note_stands_before_the_tools_word_by_word(
    backbone: Backbone, lists: list[Prompt]
) -> None:
    guidelines = [f"- {texts.GUIDELINES[label]}" for label in FAILURES]
    for prompt in lists:
        note = system(backbone, in_training(prompt, EVERYTHING))[0]
        assert note == EVERYTHING.system_note()
        lines = note.split("\n")
        said = [texts.SCHEMA_NOTE, texts.AFFORDANCE_NOTE, texts.GUIDELINES_HEAD, *guidelines]
        assert [lines.count(one) for one in said] == [1] * len(said)


SINGLE = {
    texts.SCHEMA_NOTE: replace(INITIAL, schema_cues=True),
    texts.AFFORDANCE_NOTE: replace(INITIAL, affordance_cues=True),
} | {
    f"{texts.GUIDELINES_HEAD}\n- {texts.GUIDELINES[label]}": replace(INITIAL, guidelines=(label,))
    for label in FAILURES
}


@pytest.mark.parametrize("note", [*SINGLE, None])
def test_a_part_of_the_note_alone(
    note: str | None, backbone: Backbone, lists: list[Prompt]
) -> None:
    interface = INITIAL if note is None else SINGLE[note]
    shown, tools = system(backbone, in_training(lists[0], interface))
    assert shown == (note or "")
    marks = {one.mark for tool in tools.values() for one in tool.values()}
    assert marks <= ({"required", "optional"} if interface.schema_cues else {None})


# ---- the budget --------------------------------------------------------------------------------


def test_no_task_is_lost_with_the_recipes_budget(
    recipe: DictConfig, backbone: Backbone, every: list[Prompt]
) -> None:
    shown: Interface = largest_interface(backbone, recipe)
    assert len(shown.active()) == 6
    counts = count_tokens(backbone, [in_training(prompt, shown) for prompt in every])
    assert len(counts) == 800
    assert max(counts) < prompt_limit(recipe) == recipe.data.max_prompt_length
    assert every[counts.index(max(counts))].task_id == LONGEST
    # Behind the longest prompt there is room for all that may follow one.
    data, rollout = recipe.data, recipe.actor_rollout_ref.rollout
    assert data.max_prompt_length + data.max_response_length <= rollout.max_model_len


def test_the_check_before_a_run_passes_and_would_not_with_less(
    recipe: DictConfig,
    backbone: Backbone,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prompt_budget, "CACHE", tmp_path / "counts")
    monkeypatch.setattr(prompt_budget, "load_backbone", lambda *_: backbone)
    config = copy.deepcopy(recipe)
    config.env_service.env_url = url
    config.actor_rollout_ref.model.path = real_tokenizers.folder("smollm2")
    for key in ("train_files", "val_files"):
        config.data[key] = str(EXP.parent / config.data[key])
    check_prompts(config)
    config.data.max_prompt_length = 1000
    with pytest.raises(PromptBudgetError, match="of 80 training prompts do not fit under the larg"):
        check_prompts(config)


# ---- calls -------------------------------------------------------------------------------------


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,15}", fullmatch=True).filter(
    lambda name: not keyword.iskeyword(name)
)
HARD = "\"'\\`\n\r\t,=:()[]{}<> n\u00e9\u4f60\U0001fae0\u2028\x00\x7f\x85"
TEXTS = st.text(st.sampled_from(HARD) | st.characters(codec="utf-8"), max_size=20)
PLAIN = st.one_of(
    TEXTS,
    st.none() | st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=False, allow_infinity=False),
)
NESTED = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(NAMES, PLAIN | NESTED, max_size=4)
CALLS = st.lists(st.builds(ToolCall, NAMES, ARGUMENTS), min_size=1, max_size=3)


@settings(max_examples=200, deadline=None)
@given(calls=CALLS, content=st.sampled_from(["", None]))
def test_structured_calls_are_written_so_that_they_are_read(
    backbone: Backbone, calls: list[ToolCall], content: str | None
) -> None:
    entries = [
        {
            "type": "function",
            "id": f"call{place}",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for place, call in enumerate(calls)
    ]
    dialogue = [
        {"role": "user", "content": "do it"},
        {"role": "assistant", "content": content, "tool_calls": entries},
    ]
    written = backbone.tokenizer.apply_chat_template(dialogue, tokenize=False)
    said = written.partition("<|im_start|>assistant\n")[2].removesuffix("<|im_end|>\n")
    message = parse(said, "pythonic")
    assert message.faults == ()
    # Types as well: True is no 1, and 1 no 1.0.
    assert repr(list(message.calls)) == repr(calls)


def test_the_template_carries_a_rollout(backbone: Backbone, lists: list[Prompt]) -> None:
    for prompt in (lists[0], lists[-1]):
        found = checks.check(backbone, prompt)
        assert [one for one in found if not one.passed] == []
        assert "written as seal.formats does" not in {one.detail for one in found}


def test_a_start_token_may_open_every_message_but_not_stand_twice(
    recipe: DictConfig, backbone: Backbone, lists: list[Prompt]
) -> None:
    def found(one: Backbone) -> checks.TemplateCheck:
        findings = {check.name: check for check in checks.check(one, lists[0])}
        return findings["a start token at most once"]

    assert (found(backbone).passed, found(backbone).detail) == (
        True,
        "<|im_start|> opens every message",
    )
    doubled = copy.deepcopy(recipe)
    doubled.actor_rollout_ref.model.custom_chat_template = (
        "{{- bos_token -}}" + recipe.actor_rollout_ref.model.custom_chat_template
    )
    twice = found(load_backbone(real_tokenizers.folder("smollm2"), doubled))
    assert (twice.passed, twice.detail) == (False, "<|im_start|> stands 4 times in the prompt")
