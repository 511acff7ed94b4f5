"""check_backbone on real BFCL tasks, with the chat templates that the backbones' models ship.

Tokenizers and templates of models are those of tests/real_tokenizers.py. Where a template made up
for a test is to fail, a token is a byte: the text matters alone.
"""

import copy
import functools
import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import check_backbone
import pytest
import real_tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig
from rich.console import Console
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from seal.backbone import checks
from seal.backbone.loading import load_backbone
from seal.backbone.prompts import Prompt, prompt_ids
from seal.formats import ToolCall, parse
from seal.launch.recipe import EXP, load_recipe

TASKS = ["multi_turn_base_0", "multi_turn_base_100", "multi_turn_miss_func_150"]
"""The last two share no tool class."""

SPECIAL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
FAMILY = {
    "qwen2.5-3b": ("qwen2.5", "qwen2", "qwen2_5"),
    "qwen2.5-7b": ("qwen2.5", "qwen2", "qwen2_5"),
    "qwen3.5-4b": ("qwen2.5", "qwen3_5", "qwen3_5_think"),
    "toolace-2-8b": ("llama3.1", "llama", "llama3_1"),
}
"""Of each group: vocabulary, model_type and the template that its model ships."""
ROOMY = ["data.max_prompt_length=60000", "actor_rollout_ref.rollout.max_model_len=90000"]


def real_folder(folder: Path, vocabulary: str, model_type: str, template: str) -> str:
    """A real tokenizer with a chat template."""
    shutil.copytree(real_tokenizers.folder(vocabulary), folder, dirs_exist_ok=True)
    (folder / "chat_template.jinja").write_text(template)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": model_type}))
    return str(folder)


def model_folder(folder: Path, template: str | None) -> str:
    """A folder as a model has one, without weights; a token is a byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(one, normalized=False) for one in SPECIAL])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=template,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)
    (folder / "config.json").write_text(
        json.dumps({"model_type": "qwen2", "transformers_version": "4.43.1"})
    )
    return str(folder)


@functools.cache
def recipe_of(*overrides: str) -> DictConfig:
    return load_recipe(EXP / "SEAL.yaml", overrides)


@pytest.fixture(scope="module")
def prompts(url: str) -> list[Prompt]:
    recipe = load_recipe(EXP / "SEAL.yaml", [f"env_service.env_url={url}"])
    return check_backbone.opened(recipe, TASKS, Console(quiet=True))


def shipped(name: str) -> str:
    return real_tokenizers.template(FAMILY[name][2])


def findings(
    folder: Path, template: str, name: str, prompt: Prompt, *overrides: str
) -> dict[str, checks.TemplateCheck]:
    real = template == shipped(name)
    path = (
        real_folder(folder, *FAMILY[name][:2], template) if real else model_folder(folder, template)
    )
    recipe = recipe_of(f"backbone={name}", *overrides)
    found = checks.check(load_backbone(path, recipe), prompt)
    return {one.name: one for one in found}


def failed(found: dict[str, checks.TemplateCheck]) -> dict[str, str]:
    return {name: one.detail for name, one in found.items() if not one.passed}


# ---- the templates that models ship ------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILY)
def test_a_backbones_template_and_format_fit_each_other(
    name: str, tmp_path: Path, prompts: list[Prompt]
) -> None:
    path = real_folder(tmp_path, *FAMILY[name][:2], shipped(name))
    backbone = load_backbone(path, recipe_of(f"backbone={name}"))
    for prompt in prompts[1:]:
        found = {one.name: one for one in checks.check(backbone, prompt)}
        assert failed(found) == {}
        # The template wrote the calls that were read, not seal.formats.
        assert {found[key].detail for key in found if "read back" in key} == {""}


def test_thinking_is_off_for_qwen35(tmp_path: Path, prompts: list[Prompt]) -> None:
    path = real_folder(tmp_path, "qwen2.5", "qwen3_5", shipped("qwen3.5-4b"))
    for overrides, end in (
        ([], "<think>\n\n</think>\n\n"),
        (["~data.apply_chat_template_kwargs.enable_thinking"], "<think>\n"),
    ):
        recipe = recipe_of("backbone=qwen3.5-4b", *overrides)
        backbone = load_backbone(path, recipe)
        shown = backbone.tokenizer.decode(prompt_ids(backbone, prompts[0]))
        assert shown.endswith("<|im_start|>assistant\n" + end)


def test_llama_31s_own_template_does_not_do_for_several_calls(
    tmp_path: Path, prompts: list[Prompt]
) -> None:
    own = (
        "actor_rollout_ref.model.custom_chat_template=null",
        "env_service.tool_format=llama3_json",
    )
    template = shipped("toolace-2-8b")
    broken = failed(findings(tmp_path, template, "toolace-2-8b", prompts[1], *own))
    assert "single tool-calls" in broken["several results are appended"]
    assert "one call is read back" not in broken


@pytest.mark.parametrize(
    ("name", "other"), [("qwen2.5-3b", "qwen3_coder"), ("qwen3.5-4b", "hermes")]
)
def test_another_format_than_the_templates_is_found(
    name: str, other: str, tmp_path: Path, prompts: list[Prompt]
) -> None:
    template = shipped(name)
    broken = failed(
        findings(tmp_path, template, name, prompts[1], f"env_service.tool_format={other}")
    )
    assert {"one call is read back", "several calls are read back"} <= broken.keys()


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="<>"), max_size=8)
SIMPLE = st.none() | st.booleans() | st.integers() | TEXT
KEYS = st.text("ab\u00fc ", max_size=3)
JSON = st.recursive(
    SIMPLE | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=5,
)
CALLS = st.lists(st.dictionaries(st.sampled_from(["a", "b_2"]), JSON), min_size=1, max_size=3)


@pytest.fixture(scope="module")
def writers() -> dict[str, Any]:
    toolace = recipe_of("backbone=toolace-2-8b")
    pythonic = copy.copy(real_tokenizers.load("llama3.1"))
    pythonic.chat_template = toolace.actor_rollout_ref.model.custom_chat_template
    return {"pythonic": pythonic, "hermes": real_tokenizers.load("qwen2.5")}


@settings(max_examples=60, deadline=None)
@given(CALLS)
def test_what_a_template_writes_is_read_back(
    writers: dict[str, Any], arguments: list[dict[str, Any]]
) -> None:
    calls = tuple(ToolCall("f", one) for one in arguments)
    entries = [{"function": {"name": "f", "arguments": one}} for one in arguments]
    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "", "tool_calls": entries},
    ]
    for tool_format, tokenizer in writers.items():
        text = tokenizer.apply_chat_template(messages, tokenize=False)
        text = text.rpartition("assistant")[2].rpartition("<|")[0]
        text = text.removeprefix("<|end_header_id|>")
        assert parse(text, tool_format).calls == calls


# ---- the command -------------------------------------------------------------------------------

GOOD = """{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif -%}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

RESULTS_LOST = ("{{ message.content }}", "{{ message.content if message.role != 'tool' }}")
BROKEN = {
    "drops results": (*RESULTS_LOST, "the template changes it"),
    "drops tools": ("{{ tool | tojson }}", "", "leaves tools out"),
    "no end": ("{% endfor %}<|im_end|>\n{% endfor -%}", "{% endfor %}{% endfor -%}", "no stop"),
    "opens nothing": ("if add_generation_prompt", "if false", "does not open an assistant"),
    "forgets": ("in messages %}", "in messages[-2:] %}", "suffix diff failed"),
    "other calls": ('{"name": ', '{"tool": ', "the call has no tool name"),
    "raises": ("{%- if tools", "{{ raise_exception('no tools') }}{%- if tools", "no tools"),
    "is no template": ("{% endif %}", "", "the chat template fails"),
}


def test_a_plain_template_is_fine(tmp_path: Path, prompts: list[Prompt]) -> None:
    assert failed(findings(tmp_path, GOOD, "qwen2.5-3b", prompts[1])) == {}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_in_a_template_is_said(
    case: str, tmp_path: Path, prompts: list[Prompt]
) -> None:
    old, new, said = BROKEN[case]
    assert old in GOOD
    broken = failed(findings(tmp_path, GOOD.replace(old, new), "qwen2.5-3b", prompts[1]))
    assert any(said in detail for detail in broken.values()), broken


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Verl's level is the command's own affair."""
    yield
    logging.getLogger("verl").setLevel(logging.NOTSET)


def test_a_broken_template_fails_the_command(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    path = model_folder(tmp_path, GOOD.replace(*RESULTS_LOST))
    assert check_backbone.main([path, "--env-url", url, "--tasks", "2", "--", *ROOMY]) == 1
    printed = capsys.readouterr().out
    assert "FAILS" in printed and "the template changes it" in printed
    assert "something does not hold" in printed and "do not fit" not in printed


def test_prompts_that_do_not_fit_fail_the_command(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = model_folder(tmp_path, GOOD)
    assert check_backbone.main([path, "--env-url", url, "--tasks", "2"]) == 1
    printed = capsys.readouterr().out
    assert "tasks do not fit" in printed and "no token is left" in printed


def test_the_tiny_policys_tokenizer_fits_the_quickstart(
    tmp_path: Path, url: str, prompts: list[Prompt], capsys: pytest.CaptureFixture[str]
) -> None:
    from seal.warm_up.tiny_tokenizer import train_tokenizer

    demonstrations = [
        {"messages": list(prompt.messages), "tools": list(prompt.tools)} for prompt in prompts
    ]
    train_tokenizer(demonstrations).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    conf = ["--conf", str(EXP / "quickstart.yaml"), "--task", TASKS[1]]
    code = check_backbone.main([str(tmp_path), *conf, "--env-url", url, "--tasks", "2"])
    assert "everything holds" in capsys.readouterr().out
    assert code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{}/nothing"], "cannot load the tokenizer"),
        (["{}/no_template"], "no chat template"),
        (["{}/good", "--backbone", "toolace-2-8b"], "stop_tokens names <|eot_id|>"),
        (["{}/good", "--backbone", "qwen9"], "there is no backbone/qwen9"),
        (["{}/good", "--env-url", "http://127.0.0.1:9"], "check_backbone: "),
        (["{}/good", "--env-url", "URL", "--task", "multi_turn_base_999"], "multi_turn_base_999"),
    ],
)
def test_what_cannot_be_checked_is_one_sentence(
    arguments: list[str], said: str, tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model_folder(tmp_path / "good", GOOD)
    model_folder(tmp_path / "no_template", None)
    given = [one.format(tmp_path).replace("URL", url) for one in arguments]
    assert check_backbone.main(given) == 1
    complaint = capsys.readouterr().err
    assert said in complaint and complaint.count("\n") == 1
