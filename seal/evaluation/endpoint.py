"""The evaluated model behind an OpenAI-compatible endpoint, as a policy for the dialogue loop.

In: the endpoint's address, how to decode, then dialogues and tool docs. Out: assistant text, or the
assistant message with `tool_calls` if the server parses calls itself.

Messages and tool docs go to /chat/completions, and the server renders them with the model's own
chat template, as the trainer does. With one of our formats `tool_choice` is "none": the docs are
still rendered, the text comes back as the model wrote it, and the service parses it, as in
training. (vLLM leaves the docs out only with --exclude-tools-when-tool-choice-none.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
import openai

from seal.client.access_token import is_loopback
from seal.client.episode import OutOf
from seal.evaluation.faults import EndpointFault, EvaluationError, RefusedDialogue, Unreachable
from seal.evaluation.replies import checked
from seal.wire import Message, TokenLimit, ToolDoc

STRUCTURED = "structured"
"""Tool format of a server that parses the calls itself."""
RETRIES = 4
"""How often a request without an answer, or with 429 or 5xx, is sent again."""
SMALLEST_BUDGET = 16
"""No answer of fewer tokens is asked for near the end of the context."""
_ALL_TRIED = (openai.APIConnectionError, openai.InternalServerError, openai.RateLimitError)


@dataclass(frozen=True)
class Decoding:
    """The tool format, the limits and the sampling, from a recipe."""

    tool_format: str
    """One of seal.formats.FORMATS, or STRUCTURED."""
    temperature: float
    max_tokens_per_step: int
    """Tokens of one answer."""
    max_response_tokens: int
    """Tokens of answers and observations together."""
    max_context_tokens: int
    """Tokens of the whole dialogue with its prompt."""
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the backbone's chat template, e.g. {"enable_thinking": False}."""
    stop_tokens: tuple[str, ...] = ()
    """Special tokens that end an answer."""


@dataclass(frozen=True)
class Endpoint:
    """A model that answers at an address."""

    base_url: str
    """E.g. http://127.0.0.1:8000/v1."""
    model: str
    """Its name at the endpoint."""
    api_key: str | None
    is_vllm: bool
    """Whether vLLM serves it: vLLM takes parameters that OpenAI's API does not have."""
    max_model_len: int | None
    """Context length in tokens, if the server tells it."""
    root: str | None = None
    """Folder or hub name of the weights, if the server tells it, as vLLM does."""


def is_url(model: str) -> bool:
    """Whether a model is named by the address of an endpoint."""
    return model.startswith(("http://", "https://"))


def client_of(base_url: str, api_key: str | None) -> openai.AsyncOpenAI:
    """A client that repeats requests without an answer; close it after use."""
    # Requests to a server on this machine must not go to a proxy.
    own = is_loopback(urlsplit(base_url).hostname or "")
    return openai.AsyncOpenAI(
        base_url=base_url,
        api_key=api_key or "none",
        max_retries=RETRIES,
        http_client=openai.DefaultAsyncHttpxClient(
            trust_env=not own, timeout=openai.Timeout(1800.0, connect=10.0)
        ),
    )


async def find_endpoint(base_url: str, model: str | None, api_key: str | None) -> Endpoint:
    """The model that an address serves.

    Args:
        base_url: With the version, e.g. http://127.0.0.1:8000/v1.
        model: Name of the model; None if the endpoint has only one.
        api_key: Its key; None if it wants none.

    Raises:
        EvaluationError: The key is wrong, or the endpoint does not serve the model.
        EndpointFault: It does not answer.
    """
    async with client_of(base_url, api_key) as client:
        try:
            served = {entry.id: entry async for entry in client.models.list()}
        except openai.OpenAIError as error:
            raise fault_of(error, base_url) from error
    names = ", ".join(served) or "none"
    if model is None and len(served) != 1:
        raise EvaluationError(f"{base_url} serves {names}; choose one with --served-model NAME")
    name = model or next(iter(served))
    if name not in served:
        raise EvaluationError(f"{base_url} does not serve {name!r}; it serves {names}")
    extra = served[name].model_extra or {}
    length, root = extra.get("max_model_len"), extra.get("root")
    return Endpoint(
        base_url=base_url,
        model=name,
        api_key=api_key,
        is_vllm=served[name].owned_by == "vllm",
        max_model_len=length if isinstance(length, int) else None,
        root=root if isinstance(root, str) else None,
    )


async def check_calls_tools(endpoint: Endpoint) -> None:
    """Offer one tool as the official programs do, which would score a refusal as a wrong answer.

    Raises:
        EvaluationError: The endpoint refuses it.
        EndpointFault: The endpoint failed.
    """
    tool: ToolDoc = {
        "type": "function",
        "function": {
            "name": "ls",
            "description": "List the folder.",
            "parameters": {"type": "object", "properties": {}},
        },
    }
    async with client_of(endpoint.base_url, endpoint.api_key) as client:
        try:
            await client.chat.completions.create(
                model=endpoint.model,
                messages=[{"role": "user", "content": "Hello"}],
                tools=[tool],  # type: ignore[list-item]
                temperature=0.0,
            )
        except openai.BadRequestError as error:
            raise EvaluationError(
                f"{fault_of(error, endpoint.base_url)}; the official programs need an endpoint "
                "that takes tools and returns tool_calls (vLLM: --enable-auto-tool-choice "
                "--tool-call-parser NAME)"
            ) from error
        except openai.OpenAIError as error:
            raise fault_of(error, endpoint.base_url) from error


async def stop_token_ids(endpoint: Endpoint, tokens: Sequence[str]) -> list[int]:
    """Ids of special tokens, from a vLLM server.

    Raises:
        EvaluationError: A text is not a single token of the model.
    """
    stop_ids = []
    root = endpoint.base_url.rstrip("/").removesuffix("/v1")
    async with client_of(root, endpoint.api_key) as client:
        for token in tokens:
            body = {"model": endpoint.model, "prompt": token, "add_special_tokens": False}
            try:
                reply = await client.post("/tokenize", body=body, cast_to=httpx.Response)
            except openai.OpenAIError as error:
                raise fault_of(error, root) from error
            ids = reply.json()["tokens"]
            if len(ids) != 1:
                raise EvaluationError(
                    f"{token!r} (env_service.stop_tokens) is no token of {endpoint.model}; is "
                    "--backbone another model's?"
                )
            stop_ids += ids
    return stop_ids


@dataclass
class ChatPolicy:
    """One dialogue of the model; make a new one for each episode."""

    client: openai.AsyncOpenAI
    endpoint: Endpoint
    decoding: Decoding
    stop_ids: Sequence[int]
    prompt_tokens: int = 0
    """Tokens of the first request."""
    response_tokens: int = 0
    """Tokens after it, of answers and observations, as far as the endpoint has counted them."""
    cut_messages: int = 0
    """Number of answers that were cut off."""
    used_tokens: int = 0
    """Tokens of all requests and their answers, which is what an endpoint bills."""

    async def generate(
        self, messages: Sequence[Message], tools: Sequence[ToolDoc]
    ) -> str | Message | OutOf:
        """The next assistant message, or the limit that leaves no token for one.

        Raises:
            EndpointFault: The endpoint failed, or did not say how many tokens it used.
            RefusedDialogue: It refuses to go on with a dialogue that it has begun.
            EvaluationError: It refuses the first request, or the prompt alone is too long.
        """
        limits = self.decoding
        context = min(limits.max_context_tokens, self.endpoint.max_model_len or 1 << 60)
        room: dict[TokenLimit, int] = {
            "response_length": limits.max_response_tokens - self.response_tokens,
            "max_model_len": context - self.prompt_tokens - self.response_tokens,
        }
        tightest = min(room, key=lambda name: room[name])
        budget = min(room[tightest], limits.max_tokens_per_step)
        if budget <= 0:
            return OutOf(tightest)
        # The observations since the last answer have not been counted yet. If they leave less room
        # than `budget`, the endpoint refuses and is asked for a shorter answer.
        while budget >= 1:
            try:
                return await self._ask(messages, tools, budget)
            except openai.BadRequestError as error:
                if not is_about_length(str(error)):
                    fault = fault_of(error, self.endpoint.base_url)
                    # It has accepted such requests, so only this dialogue is refused.
                    raise (RefusedDialogue(str(fault)) if self.prompt_tokens else fault) from error
                budget = budget // 2 if budget >= 2 * SMALLEST_BUDGET else 0
            except openai.OpenAIError as error:
                raise fault_of(error, self.endpoint.base_url) from error
        if not self.prompt_tokens:
            raise EvaluationError(
                f"the prompt of a task does not fit the context of {self.endpoint.model}; serve it "
                "with a longer one (vLLM: --max-model-len), or leave the task out"
            )
        return OutOf("max_model_len")

    async def _ask(
        self, messages: Sequence[Message], tools: Sequence[ToolDoc], budget: int
    ) -> str | Message:
        structured = self.decoding.tool_format == STRUCTURED
        where = self.endpoint.base_url
        try:
            reply = await self.client.chat.completions.create(
                model=self.endpoint.model,
                messages=list(messages),  # type: ignore[arg-type]
                tools=list(tools) or openai.omit,  # type: ignore[arg-type]
                tool_choice=("auto" if structured else "none") if tools else openai.omit,
                temperature=self.decoding.temperature,
                max_tokens=budget,
                extra_body=self._extras(),
            )
        except ValueError as error:  # of a body that is not JSON
            raise EndpointFault(f"{where} answered with what is not JSON: {error}") from error
        reply = checked(reply, where)
        usage = reply.usage
        assert usage is not None  # `checked`
        self.prompt_tokens = self.prompt_tokens or usage.prompt_tokens
        self.response_tokens = usage.total_tokens - self.prompt_tokens
        self.used_tokens += usage.total_tokens
        self.cut_messages += reply.choices[0].finish_reason == "length"
        answer = reply.choices[0].message
        if structured and answer.tool_calls:
            calls = [
                call.model_dump(include={"id", "type", "function"}) for call in answer.tool_calls
            ]
            return {"role": "assistant", "content": answer.content or "", "tool_calls": calls}
        return answer.content or ""

    def _extras(self) -> dict[str, Any]:
        extras: dict[str, Any] = {}
        if self.decoding.chat_template_kwargs:
            extras["chat_template_kwargs"] = dict(self.decoding.chat_template_kwargs)
        if self.endpoint.is_vllm:
            # A model's generation_config.json must not change the sampling of training.
            extras |= {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
            extras["stop_token_ids"] = list(self.stop_ids)
        return extras


def fault_of(error: openai.OpenAIError, where: str) -> EvaluationError:
    """The evaluation's error for an error of the endpoint."""
    if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
        return EvaluationError(
            f"the endpoint {where} refuses the key; check the environment variable that holds it, "
            "OPENAI_API_KEY unless another is named"
        )
    reason = str(error).partition("\n")[0][:300]
    if isinstance(error, _ALL_TRIED):
        no_answer = isinstance(error, openai.APIConnectionError)
        silent = isinstance(error, openai.APITimeoutError)
        kind = Unreachable if no_answer and not silent else EndpointFault
        return kind(f"the endpoint {where} failed: {type(error).__name__}, {reason}")
    return EvaluationError(f"the endpoint {where} refuses a request: {reason}")


def is_about_length(text: str) -> bool:
    """Whether an error 400 is about the length; servers have different words for it."""
    words = ("context_length_exceeded", "context length", "context window", "max_model_len")
    return any(some in text.lower() for some in words)
