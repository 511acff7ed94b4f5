"""check_backbone on real BFCL tasks, with the chat templates that the backbones' models ship.

The templates are those of tests/real_tokenizers.py. Where only texts matter, a token is a byte, which
takes any text, or one of the model's special tokens.
"""

import asyncio
import functools
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import backbone_checks as checks
import check_backbone
import pytest
import real_tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig
from rich.console import Console
from service_process import SERVICE_PYTHON, ServiceProcess
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from seal.formats import ToolCall, parse
from seal.launch.recipe import EXP, load_recipe

TASKS = ["multi_turn_base_0", "multi_turn_base_100", "multi_turn_miss_func_150"]
"""The last two share no tool class."""

QWEN = ("qwen2", ["<|im_start|>", "<|im_end|>", "<|endoftext|>"], None, "<|im_end|>")
LLAMA = (
    "llama",
    ["<|begin_of_text|>", "<|end_of_text|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"]
    + ["<|start_header_id|>", "<|end_header_id|>"],
    "<|begin_of_text|>",
    "<|eot_id|>",
)
QWEN_MARKS = ["tool_call", "think", "tool_response"]
FAMILY = {
    "qwen2.5-3b": ("qwen2_5", QWEN),
    "qwen2.5-7b": ("qwen2_5", QWEN),
    "qwen3.5-4b": ("qwen3_5_think", ("qwen3_5", *QWEN[1:])),
    "toolace-2-8b": ("llama3_1", LLAMA),
}
ROOMY = ["data.max_prompt_length=60000", "actor_rollout_ref.rollout.max_model_len=90000"]


def shipped_template(name: str) -> str:
    return real_tokenizers.template(name)


def model_folder(folder: Path, template: str | None, family: tuple[Any, ...] = QWEN) -> str:
    """A folder as a model has one, without weights."""
    model_type, special, start, end = family
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(one, normalized=False) for one in special])
    marks = [f"<{slash}{mark}>" for mark in QWEN_MARKS for slash in ("", "/")]
    if start is None:
        tokenizer.add_tokens([AddedToken(mark, normalized=False) for mark in marks])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=start,
        eos_token=end,
        pad_token=special[1],
        chat_template=template,
        clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return str(folder)


@functools.cache
def recipe_of(*overrides: str) -> DictConfig:
    return load_recipe(EXP / "SEAL.yaml", overrides)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    if not SERVICE_PYTHON.exists():
        pytest.skip("no service: bash install.sh")
    with ServiceProcess(["--workers=1"]) as service:
        yield service.url


@pytest.fixture(scope="module")
def prompts(url: str) -> list[checks.Prompt]:
    recipe = recipe_of()
    return asyncio.run(check_backbone.fetch_prompts(url, None, recipe, TASKS, Console(quiet=True)))


def findings(
    folder: Path, template: str, name: str, prompt: checks.Prompt, *overrides: str
) -> dict[str, checks.Finding]:
    path = model_folder(folder, template, FAMILY[name][1])
    recipe = recipe_of(f"backbone={name}", *overrides)
    found = checks.check(checks.load_backbone(path, recipe), prompt)
    return {one.name: one for one in found}


def failed(found: dict[str, checks.Finding]) -> dict[str, str]:
    return {name: one.detail for name, one in found.items() if not one.passed}


# ---- the templates that models ship ------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILY)
def test_a_backbones_template_and_format_fit_each_other(
    name: str, tmp_path: Path, prompts: list[checks.Prompt]
) -> None:
    template = shipped_template(FAMILY[name][0])
    for number, prompt in enumerate(prompts[1:]):
        found = findings(tmp_path / str(number), template, name, prompt)
        assert failed(found) == {}
        # The template wrote the calls that were read, not seal.formats.
        assert {found[key].detail for key in found if "read back" in key} == {""}


def test_thinking_is_off_for_qwen35(tmp_path: Path, prompts: list[checks.Prompt]) -> None:
    template = shipped_template("qwen3_5_think")
    path = model_folder(tmp_path, template, FAMILY["qwen3.5-4b"][1])
    for overrides, end in (
        ([], "<think>\n\n</think>\n\n"),
        (["~data.apply_chat_template_kwargs.enable_thinking"], "<think>\n"),
    ):
        recipe = recipe_of("backbone=qwen3.5-4b", *overrides)
        backbone = checks.load_backbone(path, recipe)
        shown = backbone.tokenizer.decode(checks.prompt_ids(backbone, prompts[0]))
        assert shown.endswith("<|im_start|>assistant\n" + end)


def test_llama_31s_own_template_does_not_do_for_several_calls(
    tmp_path: Path, prompts: list[checks.Prompt]
) -> None:
    own = (
        "actor_rollout_ref.model.custom_chat_template=null",
        "env_service.tool_format=llama3_json",
    )
    template = shipped_template("llama3_1")
    broken = failed(findings(tmp_path, template, "toolace-2-8b", prompts[1], *own))
    assert "single tool-calls" in broken["several results are appended"]
    assert "one call is read back" not in broken


@pytest.mark.parametrize(
    ("name", "other"), [("qwen2.5-3b", "qwen3_coder"), ("qwen3.5-4b", "hermes")]
)
def test_another_format_than_the_templates_is_found(
    name: str, other: str, tmp_path: Path, prompts: list[checks.Prompt]
) -> None:
    template = shipped_template(FAMILY[name][0])
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
def writers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    toolace = recipe_of("backbone=toolace-2-8b")
    templates = {
        "pythonic": toolace.actor_rollout_ref.model.custom_chat_template,
        "hermes": shipped_template("qwen2_5"),
    }
    folder = tmp_path_factory.mktemp("writers")
    family = {"pythonic": LLAMA, "hermes": QWEN}
    return {
        tool_format: PreTrainedTokenizerFast.from_pretrained(
            model_folder(folder / tool_format, template, family[tool_format])
        )
        for tool_format, template in templates.items()
    }


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


def test_a_plain_template_is_fine(tmp_path: Path, prompts: list[checks.Prompt]) -> None:
    assert failed(findings(tmp_path, GOOD, "qwen2.5-3b", prompts[1])) == {}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_in_a_template_is_said(
    case: str, tmp_path: Path, prompts: list[checks.Prompt]
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
    assert "prompts do not fit" in printed and "no token is left" in printed


def test_the_tiny_policys_tokenizer_fits_the_quickstart(
    tmp_path: Path, url: str, prompts: list[checks.Prompt], capsys: pytest.CaptureFixture[str]
) -> None:
    from make_tiny_policy import train_tokenizer

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
