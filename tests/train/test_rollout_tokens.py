"""Tokens of whole rollouts, with real vocabularies, real chat templates and verl's own builder.

Trained tokens are the sampled ones, and the dialogue is what the template writes; where it differs
on purpose, `expected` says in what.
"""

import itertools
from collections.abc import Callable, Sequence

import pytest
from rollouts import OVER, TASK, Backbone, Follows, RolledOut, World, backbone, roll_out

from seal.formats import ToolCall, render_calls
from seal.wire import Message

NAMES = ("qwen2.5", "smollm2", "smollm2-135m", "toolace", "qwen3.5", "qwen3.5-thinking")
LIMIT = 64
"""Tokens of one message."""
BEHIND_STOP = {"<|im_end|>": "\n", "<|eot_id|>": ""}
"""What the template writes behind the token that ends a message."""
INNER_MARK = {"<|im_end|>": "<|im_start|>", "<|eot_id|>": "<|python_tag|>"}
"""A special token at which generation does not stop."""
NO_THOUGHT = "<think>\n\n</think>\n\n"
"""How Qwen3.5's template writes an answer of the last turn, if it has no thought."""
OPENS = {"qwen3.5": NO_THOUGHT, "qwen3.5-thinking": "<think>\n"}
"""How it opens an answer that is to be generated."""
MELTING = "\U0001fae0"
"""A character of several tokens in each vocabulary."""


def call(model: Backbone, **arguments: str) -> str:
    """A call as the backbone writes it."""
    return render_calls([ToolCall("light", dict(arguments))], model.tool_format)


def stopped(model: Backbone, text: str) -> list[int]:
    """A message as the tokenizer writes it."""
    return model.encode(text + model.stop_tokens[0])


def spelled(model: Backbone, text: str) -> list[int]:
    """The same text in other tokens: each character for itself, special tokens in letters."""
    ids = list(itertools.chain.from_iterable(model.encode(one) for one in text))
    assert model.decode(ids) == text
    assert ids != model.encode(text)
    return [*ids, *model.encode(model.stop_tokens[0])]


def cut_in_a_character(model: Backbone) -> list[int]:
    assert len(model.encode(MELTING)) > 1
    return model.encode("a") * (LIMIT - 1) + model.encode(MELTING)


def with_inner_mark(model: Backbone) -> list[int]:
    return stopped(model, f"on {INNER_MARK[model.stop_tokens[0]]} off")


KINDS: dict[str, Callable[[Backbone], list[int]]] = {
    "call": lambda model: stopped(model, call(model)),
    "call in other tokens": lambda model: spelled(model, call(model)),
    "answer": lambda model: stopped(model, "Done."),
    "thought": lambda model: stopped(model, "<think>\nWhich lamp?\n</think>\n\nThis one."),
    "end of an opened thought": lambda model: stopped(model, "A lamp?\n</think>\n\nThis one."),
    "empty": lambda model: stopped(model, ""),
    "no token at all": lambda model: [],
    "blanks around": lambda model: stopped(model, " \n lit, I think \n\n"),
    "characters of several tokens": lambda model: spelled(
        model, f"caf\u00e9 {MELTING} \u4f60\u597d"
    ),
    "end token in letters": lambda model: spelled(model, f"on {model.stop_tokens[0]} off"),
    "special token inside": with_inner_mark,
    "cut in a call": lambda model: stopped(model, call(model, lamp="it is " * LIMIT)),
    "cut in a character": cut_in_a_character,
    "other stop token": lambda model: model.encode("Done." + model.stop_tokens[1]),
}
CUT = ("cut in a call", "cut in a character")
NOT_HANDED_ON = ("special token inside", "other stop token")
"""Special tokens stay in the dialogue; the service gets the text without them."""


def answers(number: int) -> Follows:
    """Replies to `number` messages, in turn: two results, the next user turn, a result, and a hint
    on an unreadable call with the next user turn."""
    results = tuple(
        {"role": "tool", "name": "light", "content": text} for text in ('{"lamp": "on"}', "")
    )
    says: Message = {"role": "user", "content": "and the next,\nplease"}
    letters: Message = {"role": "tool", "name": "light", "content": f"{MELTING} caf\u00e9"}
    hint: Message = {"role": "tool", "name": "tool_call_parser", "content": "Hint: a call"}
    replies: list[tuple[Message, ...]] = [results, (says,), (letters,), (hint, says)]
    chosen = [replies[step % 4] for step in range(number - 1)]
    turns = [sum(one[-1] == says for one in chosen[: step + 1]) for step in range(number - 1)]
    return (*zip(chosen, turns, strict=True), ((OVER,), turns[-1]))


def play(
    monkeypatch: pytest.MonkeyPatch, name: str, kinds: Sequence[str]
) -> tuple[RolledOut, World]:
    """A dialogue of these messages, in eval mode."""
    world, model = World(follows=answers(len(kinds))), backbone(name)
    script = [KINDS[kind](model) for kind in kinds]
    rollout = roll_out(
        monkeypatch, world, model, lambda step: script[step], max_tokens_per_step=LIMIT
    )
    assert rollout.policy.sampled == [ids[:LIMIT] for ids in script]
    return rollout, world


def sampled_texts(rollout: RolledOut) -> list[str]:
    """Each message as it was sampled, with special tokens, without the template's end."""
    model = rollout.backbone
    return [model.decode(ids).removesuffix(model.stop_tokens[0]) for ids in rollout.policy.sampled]


def expected(name: str, messages: Sequence[Message], texts: Sequence[str], opened: bool) -> str:
    """What the template writes for the messages; each assistant's is the next of `texts`.

    Qwen3.5's template strips blanks around an answer, reads its thought out of it, and drops the
    thought once a user's message follows. A rollout keeps what was sampled and shown.
    """
    model, left = backbone(name), iter(texts)
    said = [m["role"] == "assistant" for m in messages]
    if name not in OPENS:
        filled = [
            {**m, "content": next(left)} if own else m
            for m, own in zip(messages, said, strict=True)
        ]
        return model.render(filled, opened)
    places = [f"@{place}@" for place in range(len(messages))]
    marked = [
        {**m, "content": place} if own else m
        for m, own, place in zip(messages, said, places, strict=True)
    ]
    whole = model.render(marked, opened)
    for place, own in zip(places, said, strict=True):
        if own:
            whole = whole.replace(f"{NO_THOUGHT}{place}", place)
            whole = whole.replace(place, OPENS[name] + next(left))
    return whole


DIALOGUES = [("call", kind, "answer", kind, "answer") for kind in KINDS] + [(*KINDS, "answer")]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "kinds", DIALOGUES, ids=lambda kinds: "every" if len(kinds) > 5 else kinds[1]
)
def test_the_sampled_tokens_are_trained_and_the_dialogue_is_the_templates(
    monkeypatch: pytest.MonkeyPatch, name: str, kinds: tuple[str, ...]
) -> None:
    rollout, world = play(monkeypatch, name, kinds)
    model, output, policy = rollout.backbone, rollout.output, rollout.policy
    texts, messages = sampled_texts(rollout), world.dialogue()

    # Every request shows what the template writes for the dialogue so far.
    starts = [place for place, one in enumerate(messages) if one["role"] == "assistant"]
    for place, prompt in zip(starts, policy.prompts, strict=True):
        assert model.decode(prompt) == expected(name, messages[:place], texts, opened=True)
    for before, ids, after in zip(policy.prompts, policy.sampled, policy.prompts[1:], strict=False):
        assert after[: len(before) + len(ids)] == before + ids
    whole = model.decode(output.prompt_ids + output.response_ids)
    behind = BEHIND_STOP[model.stop_tokens[0]]
    assert whole + behind == expected(name, messages[:-1], texts, opened=False)

    # The service gets the texts of those tokens.
    for place, kind, text in zip(starts, kinds, texts, strict=True):
        handed = messages[place]["content"]
        if kind in NOT_HANDED_ON:
            assert handed == model.decode(model.encode(text), skip_special_tokens=True) != text
        else:
            assert handed == text

    # What was sampled, and that alone, is trained with its log probabilities.
    rows = list(
        zip(output.response_ids, output.response_mask, output.response_logprobs, strict=True)
    )
    assert [one for one, mask, _ in rows if mask] == list(itertools.chain(*policy.sampled))
    assert [one for _, mask, one in rows if mask] == list(itertools.chain(*policy.logprobs))
    assert {one for _, mask, one in rows if not mask} == {0.0}
    assert set(output.response_mask) == {0, 1}
    spans = rollout.record.turn_spans
    assert [output.response_ids[start:end] for _, start, end in spans] == policy.sampled
    assert [turn for turn, _, _ in spans] == [0, *(turn for _, turn in world.follows[:-1])]
    assert all(all(output.response_mask[start:end]) for _, start, end in spans)

    line = output.extra_fields["reward_extra_info"]
    assert line["cut_messages"] == sum(kind in CUT for kind in kinds)
    assert (line["exit_status"], line["response_tokens"]) == ("completed", len(output.response_ids))


def test_a_character_that_is_cut_is_the_same_mark_for_the_service_and_in_the_dialogue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in NAMES:
        rollout, world = play(monkeypatch, name, ("cut in a character", "answer"))
        said = world.dialogue()[1]["content"]
        assert said == "a" * (LIMIT - 1) + "\ufffd"
        assert (said + rollout.backbone.stop_tokens[0]) in rollout.said()


def test_qwen35_keeps_the_empty_thoughts_of_earlier_turns_and_differs_in_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rollout, world = play(monkeypatch, "qwen3.5", ("call", "answer", "call", "answer"))
    shown = rollout.backbone.decode(rollout.output.prompt_ids + rollout.output.response_ids) + "\n"
    template = rollout.backbone.render(world.dialogue()[:-1], opened=False)
    assert shown.replace(NO_THOUGHT, "") == template.replace(NO_THOUGHT, "")
    # Two of the four answers belong to the last turn.
    assert (shown.count(NO_THOUGHT), template.count(NO_THOUGHT)) == (4, 2)


# ---- the room that a message's end takes ---------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_cut_message_in_a_full_dialogue_is_the_last(
    monkeypatch: pytest.MonkeyPatch, name: str, left: int
) -> None:
    model, world = backbone(name), World(follows=answers(3))
    ids = KINDS["cut in a call"](model)[:LIMIT]
    rollout = roll_out(
        monkeypatch,
        world,
        model,
        lambda _: ids,
        max_tokens_per_step=LIMIT,
        response_length=LIMIT + left,
    )
    assert rollout.policy.sampled == [ids]
    assert len(world.steps()) == 1
    response, mask = rollout.output.response_ids, rollout.output.response_mask
    assert (response[:LIMIT], mask) == (ids, [1] * LIMIT + [0] * left)
    # What follows, as far as it has room, begins with the end of the message.
    assert model.decode(response[LIMIT : LIMIT + 1]) == (model.stop_tokens[0] if left else "")
    line = rollout.output.extra_fields["reward_extra_info"]
    assert (line["exit_status"], line["cut_messages"]) == ("response_length", 1)


@pytest.mark.parametrize("limit", ["response_length", "max_model_len"])
def test_the_end_of_a_cut_message_counts_as_part_of_the_dialogue(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    model, world = backbone("smollm2"), World(follows=answers(2))
    ids = KINDS["cut in a call"](model)[:LIMIT]
    free = roll_out(monkeypatch, world, model, lambda _: ids, max_tokens_per_step=LIMIT)
    second = len(free.policy.prompts[1])
    used = second - (len(free.output.prompt_ids) if limit == "response_length" else 0)
    for room in (1, 0):
        rollout = roll_out(
            monkeypatch,
            World(follows=answers(2)),
            model,
            lambda _: ids,
            max_tokens_per_step=LIMIT,
            **{limit: used + room},
        )
        assert [len(one) for one in rollout.policy.sampled] == [LIMIT, 1][: 1 + room]


def test_the_first_prompt_is_the_templates_with_its_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        rollout, _ = play(monkeypatch, name, ("call", "answer"))
        shown = rollout.backbone.decode(rollout.output.prompt_ids)
        assert shown == rollout.backbone.render([TASK], opened=True)
        # SmolLM2's own template has no tools, its group's one signatures of them.
        assert ("Lights a lamp." in shown) == (not name.startswith("smollm2"))
        assert ("light()" in shown) == (name == "smollm2-135m")
