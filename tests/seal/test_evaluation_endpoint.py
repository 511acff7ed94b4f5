"""The evaluated model: what its endpoint is asked, its token budgets, its faults."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted_endpoint import Answer, said, serving, too_long

from seal.client.episode import OutOf
from seal.evaluation import endpoint as module
from seal.evaluation.endpoint import (
    STRUCTURED,
    ChatPolicy,
    Decoding,
    Endpoint,
    check_calls_tools,
    client_of,
    find_endpoint,
    stop_token_ids,
)
from seal.evaluation.faults import EndpointFault, EvaluationError, RefusedDialogue
from seal.evaluation.local_model import serving_command
from seal.evaluation.settings import folder_settings
from seal.launch.recipe import load_recipe
from seal.wire import Message, ToolDoc

ROOT = Path(__file__).resolve().parents[2]
LS: ToolDoc = {"type": "function", "function": {"name": "ls", "parameters": {}}}
USER: Message = {"role": "user", "content": "list it"}
DECODING = Decoding(
    tool_format="hermes",
    temperature=0.0,
    max_tokens_per_step=100,
    max_response_tokens=300,
    max_context_tokens=400,
    chat_template_kwargs={"enable_thinking": False},
    stop_tokens=("<end>",),
)


@pytest.fixture(autouse=True)
def no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRIES", 0)


def ask(
    answer: Answer, decoding: Decoding = DECODING, owner: str = "vllm", times: int = 1
) -> tuple[list[Any], list[dict[str, Any]], ChatPolicy]:
    """What a policy says, what its endpoint was asked, and the policy."""

    async def run(found: Endpoint) -> tuple[list[Any], ChatPolicy]:
        async with client_of(found.base_url, None) as client:
            policy = ChatPolicy(client, found, decoding, [7])
            return [await policy.generate([USER], [LS]) for _ in range(times)], policy

    with serving(answer, owner) as served:
        found = asyncio.run(find_endpoint(served.url, None, None))
        answers, policy = asyncio.run(run(found))
    return answers, served.asked, policy


def test_the_server_renders_the_tool_docs_and_the_text_comes_back_as_written() -> None:
    text = "<tool_call>\n{}\n</tool_call>"
    answers, [asked], policy = ask(lambda _: said(text))
    assert answers == [text]
    assert asked["tools"] == [LS] and asked["tool_choice"] == "none"
    assert asked["messages"] == [USER] and asked["model"] == "m"
    assert (asked["temperature"], asked["max_tokens"]) == (0.0, 100)
    assert asked["chat_template_kwargs"] == {"enable_thinking": False}
    assert (asked["repetition_penalty"], asked["top_k"], asked["stop_token_ids"]) == (1.0, -1, [7])
    assert (policy.prompt_tokens, policy.response_tokens) == (50, 10)


def test_another_server_gets_no_parameters_of_vllm() -> None:
    _, [asked], _ = ask(lambda _: said("Done."), owner="openai")
    assert not {"repetition_penalty", "top_k", "stop_token_ids"} & asked.keys()


def test_a_server_that_reads_calls_itself() -> None:
    function = {"name": "ls", "arguments": "{}"}
    call = {"id": "c1", "type": "function", "function": function}
    decoding = replace(DECODING, tool_format=STRUCTURED)
    answers, [asked], _ = ask(lambda _: said(None, tool_calls=[call]), decoding)
    assert answers == [{"role": "assistant", "content": "", "tool_calls": [call]}]
    assert asked["tool_choice"] == "auto"


def test_a_dialogue_ends_when_its_tokens_are_used_up() -> None:
    replies = iter([said("a", 50, 100), said("b", 200, 90), said("c", 310, 40)])
    answers, asked, policy = ask(lambda _: next(replies), times=4)
    assert answers == ["a", "b", "c", OutOf("response_length")]
    # 300 for the response: 240 of it are used after the second answer.
    assert [request["max_tokens"] for request in asked] == [100, 100, 60]
    assert policy.response_tokens == 300


def test_an_answer_that_no_longer_fits_the_context_is_asked_for_shorter() -> None:
    replies = iter([said("a", 50, 10), too_long(), too_long(), said("b", 380, 20)])
    answers, asked, _ = ask(lambda _: next(replies), times=2)
    assert answers == ["a", "b"]
    assert [request["max_tokens"] for request in asked] == [100, 100, 50, 25]


def test_where_nothing_fits_the_dialogue_is_over() -> None:
    replies = iter([said("a", 50, 10), *[too_long()] * 9])
    answers, asked, _ = ask(lambda _: next(replies), times=2)
    assert answers == ["a", OutOf("max_model_len")]
    assert len(asked) == 4


def test_a_prompt_that_does_not_fit_is_no_score() -> None:
    with pytest.raises(EvaluationError, match="--max-model-len"):
        ask(lambda _: too_long())


def test_what_the_endpoint_does_wrong_is_a_fault() -> None:
    with pytest.raises(EndpointFault, match="failed"):
        ask(lambda _: (503, {"error": {"message": "busy"}}))
    with pytest.raises(EndpointFault, match="without choices or usage"):
        ask(lambda _: (200, {**said("a")[1], "usage": None}))
    with pytest.raises(EvaluationError, match="OPENAI_API_KEY"):
        ask(lambda _: (401, {"error": {"message": "no"}}))
    with pytest.raises(EvaluationError, match="refuses a request") as caught:
        ask(lambda _: (400, {"error": {"message": "no such parameter"}}))
    assert not isinstance(caught.value, EndpointFault)


def test_a_refusal_within_a_dialogue_is_of_that_dialogue() -> None:
    replies = iter([said("a"), (400, {"error": {"message": "no such role"}})])
    with pytest.raises(RefusedDialogue, match="no such role"):
        ask(lambda _: next(replies), times=2)


def test_an_endpoint_that_takes_no_tools_is_told_apart() -> None:
    def check(answer: Answer) -> list[dict[str, Any]]:
        with serving(answer) as served:
            asyncio.run(check_calls_tools(asyncio.run(find_endpoint(served.url, None, None))))
        return served.asked

    [asked] = check(lambda _: said("Hello."))
    assert len(asked["tools"]) == 1 and "tool_choice" not in asked
    refused = {"error": {"message": '"auto" tool choice requires --enable-auto-tool-choice'}}
    with pytest.raises(EvaluationError, match="needs? an endpoint that takes tools"):
        check(lambda _: (400, refused))


def test_the_model_is_the_only_one_or_is_named() -> None:
    with serving(lambda _: said("")) as served:
        found = asyncio.run(find_endpoint(served.url, None, None))
        assert (found.model, found.is_vllm, found.max_model_len) == ("m", False, 1000)
        with pytest.raises(EvaluationError, match="does not serve 'other'; it serves m"):
            asyncio.run(find_endpoint(served.url, "other", None))
    with pytest.raises(EndpointFault):
        asyncio.run(find_endpoint(served.url, None, None))


def test_stop_tokens_are_asked_of_the_server() -> None:
    with serving(lambda _: said(""), "vllm") as served:
        found = asyncio.run(find_endpoint(served.url, None, None))
        assert asyncio.run(stop_token_ids(found, ["<end>"])) == [7]
        with pytest.raises(EvaluationError, match="'<other>'"):
            asyncio.run(stop_token_ids(found, ["<other>"]))


def test_a_folder_is_served_as_its_recipe_rolls_out(tmp_path: Path) -> None:
    recipe = load_recipe(ROOT / "exp/SEAL.yaml", ["backbone=toolace-2-8b"])
    command = serving_command(Path("m"), 9, recipe, "pythonic", tmp_path, ["--seed", "5"])
    options = dict(zip(command, command[1:], strict=False))
    assert command[1:3] == ["serve", "m"] and command[-2:] == ["--seed", "5"]
    assert "--max-model-len" not in options
    assert options["--dtype"] == "bfloat16"
    assert options["--tool-call-parser"] == "pythonic"
    template = Path(options["--chat-template"]).read_text()
    assert template == recipe.actor_rollout_ref.model.custom_chat_template
    assert options["--generation-config"] == "vllm"
    # Our own episodes want the text as it is.
    plain = serving_command(Path("m"), 9, recipe, "", tmp_path, [])
    assert not {"--tool-call-parser", "--enable-auto-tool-choice"} & set(plain)
    assert plain[plain.index("--max-model-len") + 1] == "16384"


def test_the_templates_settings_are_the_servers_too(tmp_path: Path) -> None:
    recipe = load_recipe(
        ROOT / "exp/SEAL.yaml", ["+data.apply_chat_template_kwargs.enable_thinking=false"]
    )
    command = serving_command(Path("m"), 9, recipe, "hermes", tmp_path, [])
    options = dict(zip(command, command[1:], strict=False))
    assert options["--default-chat-template-kwargs"] == '{"enable_thinking": false}'


def test_settings_hold_what_changes_a_folders_answers(tmp_path: Path) -> None:
    loaded = load_recipe(ROOT / "exp/SEAL.yaml", [])

    def settings(tool_format: str, **changes: Any) -> dict[str, Any]:
        recipe = loaded.copy()
        recipe.actor_rollout_ref.rollout = {**recipe.actor_rollout_ref.rollout, **changes}
        return folder_settings(tmp_path, recipe, tool_format, ["--quantization", "fp8"])

    plain = settings("hermes")
    assert settings("hermes") == plain  # no port in it
    assert plain["vllm"][-2:] == ["--quantization", "fp8"]
    for other in (
        settings("pythonic"),
        settings("hermes", dtype="float16"),
        settings("hermes", tensor_model_parallel_size=2),
        settings("hermes", seed=7),
    ):
        assert other["vllm"] != plain["vllm"]
    assert settings("", max_model_len=9000)["vllm"] != settings("")["vllm"]
