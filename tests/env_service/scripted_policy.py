"""Scripted assistants: what one says at each step of each turn, right or with seeded faults.

In: a task, what else belongs to it and a `random.Random`. Out: a `Script`: a text for each step of
each turn, calls written as the Qwen chat templates write them. Called by tests that play the same
texts in two dialogues. The calls are those of mutations.py; what is added here is what only a
dialogue can show: loops up to the step limit and beyond, broken and unclosed calls, words instead
of calls, empty messages, thinking. The same seed gives the same scripts on every machine.

All broken texts that are drawn are read alike by bfcl-eval's QwenFCHandler and by `seal.formats`.

>>> Script((Twist.PROSE,), (("a", "b"),)).said(0, 1), Script((), ()).said(3, 0)
('b', 'Done.')
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from material import Material, NothingToMutate, held_out, plausible_call
from mutations import Mutation, mutate

from env_service.environments.bfcl.tasks import BfclTask, reference_calls
from seal.formats import ToolCall, render_calls

STEP_COUNTS = (19, 20, 21, 22, 30)
"""Steps with calls in a turn with a loop; the limit is 20."""

LEFT_OUT = frozenset(
    {Mutation.DEEP_VALUE, Mutation.ODD_KEYWORD, Mutation.CALL_LIKE_TEXT, Mutation.POSITIONAL}
)
"""Mutations that are not drawn: official execution is at fault there (see official.py), or JSON has
no way to write them."""


class Twist(StrEnum):
    """What is done to the texts of a program."""

    LOOP_BEHIND = "loop_behind"
    """A turn's own calls, then one call again and again."""
    LOOP_BEFORE = "loop_before"
    """One call again and again, then the turn's own calls."""
    ANSWER_AT_ONCE = "answer_at_once"
    """A turn begins with a message without a call: what was to come is said in no turn."""
    EMPTY_MESSAGE = "empty_message"
    WORDS_INSTEAD = "words_instead"
    """A message speaks of a call and makes none."""
    CUT_JSON = "cut_json"
    """A call's JSON breaks off; its tags are there."""
    UNCLOSED_TAG = "unclosed_tag"
    ODD_TAGS = "odd_tags"
    """Tags that do not stand on lines of their own, or one that is opened twice."""
    BROKEN_BESIDE = "broken_beside"
    """A broken call stands in one message with readable ones."""
    THINKING = "thinking"
    """Every message begins with a thinking block."""
    CALL_IN_THINKING = "call_in_thinking"
    """A thinking block holds a call that is not meant."""
    PROSE = "prose"
    """Words before and behind the calls."""
    EARLY_HELD_OUT = "early_held_out"
    """A function of a miss_func task is called before it is revealed."""


LOOPS = (Twist.LOOP_BEHIND, Twist.LOOP_BEFORE)

Texts = list[list[str]]
"""Texts of each step of each turn."""


@dataclass(frozen=True)
class Script:
    """What a policy says."""

    twists: tuple[str, ...]
    """What was done to the reference: a mutation, twists."""
    turns: tuple[tuple[str, ...], ...]
    """Texts of each step of each turn."""

    def said(self, turn: int, step: int) -> str:
        """The text at a step of a turn; a plain answer where the script has no more."""
        steps = self.turns[turn] if turn < len(self.turns) else ()
        return steps[step] if step < len(steps) else "Done."


def draw_script(task: BfclTask, material: Material, rng: random.Random) -> Script:
    """One script: the reference, or one time in two a mutation of it, with up to two twists."""
    while True:
        mutation = rng.choice([one for one in Mutation if one not in LEFT_OUT])
        if rng.random() < 0.5:
            mutation = Mutation.UNCHANGED
        twists = rng.sample(list(Twist), k=rng.choice([0, 1, 1, 2]))
        if rng.random() < 0.4:
            twists = [rng.choice(LOOPS)]
        try:
            turns = mutate(reference_calls(task), material, rng, mutation).turns
            texts = [[_written(calls) for calls in steps] for steps in turns]
            for twist in twists:
                texts = _TWISTS[twist](texts, task, material, rng)
        except NothingToMutate:
            continue
        return Script((mutation, *twists), tuple(map(tuple, texts)))


def _written(calls: Sequence[ToolCall]) -> str:
    return render_calls(calls, "hermes") if calls else "Done."


# ---- loops ---------------------------------------------------------------------------------------


def _loop_behind(texts: Texts, task: BfclTask, material: Material, rng: random.Random) -> Texts:
    turn, again, count = _loop(texts, task, material, rng)
    own = [text for text in texts[turn] if text != "Done."]
    return _with_turn(texts, turn, own + again * (count - len(own)))


def _loop_before(texts: Texts, task: BfclTask, material: Material, rng: random.Random) -> Texts:
    turn, again, count = _loop(texts, task, material, rng)
    return _with_turn(texts, turn, again * (count - len(texts[turn])) + texts[turn])


def _loop(
    texts: Texts, task: BfclTask, material: Material, rng: random.Random
) -> tuple[int, list[str], int]:
    """Which turn (half of the time the task's last), what is said again, steps of the turn."""
    turn = rng.choice([len(texts) - 1, rng.randrange(len(texts))])
    reference = [calls for calls in reference_calls(task)[: turn + 1] if calls]
    harmless = [doc for doc in material.tools if not doc["function"]["parameters"]["required"]]
    choices = [ToolCall("no_such_tool", {})]
    choices += [reference[-1][-1]] if reference else []
    choices += [ToolCall(rng.choice(harmless)["function"]["name"], {})] if harmless else []
    choices += [plausible_call(rng.choice(material.tools), [], material, rng)]
    return turn, [_written([rng.choice(choices)])], rng.choice(STEP_COUNTS)


# ---- single messages -----------------------------------------------------------------------------


def _answer_at_once(texts: Texts, task: BfclTask, material: Material, rng: random.Random) -> Texts:
    turn = rng.randrange(len(texts))
    answer = rng.choice(["What do you mean?", "Done.", "Here you are:\n- a\n- b"])
    return _with_turn(texts, turn, [answer, *texts[turn]])


def _empty_message(texts: Texts, task: BfclTask, material: Material, rng: random.Random) -> Texts:
    turn = rng.randrange(len(texts))
    steps = list(texts[turn])
    steps.insert(rng.randint(0, len(steps)), rng.choice(["", " ", "\n\n"]))
    return _with_turn(texts, turn, steps)


def _words_instead(texts: Texts, task: BfclTask, material: Material, rng: random.Random) -> Texts:
    def words(text: str) -> str:
        plain = text.replace("<tool_call>\n", "").replace("\n</tool_call>", "")
        return rng.choice([f"I would call {plain}", f"```json\n{plain}\n```", plain])

    return _reworded_step(texts, rng, words)


def _cut_json(texts: Texts, task: BfclTask, material: Material, rng: random.Random) -> Texts:
    def cut(text: str) -> str:
        start = text.index('{"name"')
        end = text.index("\n</tool_call>")
        return text[: rng.randrange(start + 1, end)] + text[end:]

    return _reworded_step(texts, rng, cut)


def _unclosed_tag(texts: Texts, task: BfclTask, material: Material, rng: random.Random) -> Texts:
    def unclosed(text: str) -> str:
        last = text.rindex("<tool_call>")
        return text[: rng.randrange(last + len("<tool_call>"), len(text))]

    return _reworded_step(texts, rng, unclosed)


def _odd_tags(texts: Texts, task: BfclTask, material: Material, rng: random.Random) -> Texts:
    def odd(text: str) -> str:
        one_line = text.replace("<tool_call>\n", "<tool_call>")
        return rng.choice(
            [
                one_line,
                one_line.replace("\n</tool_call>", "</tool_call>"),
                text.replace("\n</tool_call>", "</tool_call>"),
                text.replace("\n", "\r\n"),
                text.replace("<tool_call>", "<tool_call> "),
                f'<tool_call>\n{{"name": "ls",\n{text}',
            ]
        )

    return _reworded_step(texts, rng, odd)


def _broken_beside(texts: Texts, task: BfclTask, material: Material, rng: random.Random) -> Texts:
    def beside(text: str) -> str:
        broken = '<tool_call>\n{"name": "ls", "arguments": {\n</tool_call>'
        return "\n".join(rng.choice([(text, broken), (broken, text), (broken, text, broken)]))

    return _reworded_step(texts, rng, beside)


def _thinking(texts: Texts, task: BfclTask, material: Material, rng: random.Random) -> Texts:
    block = rng.choice(["<think>\nFirst, I look.\n</think>\n\n", "<think>\n\n</think>\n\n"])
    return [[block + text for text in steps] for steps in texts]


def _call_in_thinking(
    texts: Texts, task: BfclTask, material: Material, rng: random.Random
) -> Texts:
    call = _written([plausible_call(rng.choice(material.tools), [], material, rng)])
    opening = rng.choice(["<think>\n", ""])  # a prompt may have opened the block
    return _reworded_step(texts, rng, lambda text: f"{opening}{call}\n</think>\n\n{text}")


def _prose(texts: Texts, task: BfclTask, material: Material, rng: random.Random) -> Texts:
    return _reworded_step(texts, rng, lambda text: f"I look.\n{text}\nThen I see {{more}}.")


def _early_held_out(texts: Texts, task: BfclTask, material: Material, rng: random.Random) -> Texts:
    early = [
        (turn, name)
        for reveal, names in held_out(task).items()
        for turn in range(min(reveal, len(texts)))
        for name in names
    ]
    if not early:
        raise NothingToMutate("no function is held out")
    turn, name = rng.choice(early)
    (doc,) = (one for one in material.tools if one["function"]["name"] == name)
    steps = list(texts[turn])
    text = _written([plausible_call(doc, [], material, rng)])
    steps.insert(rng.randint(0, len(steps)), text)
    return _with_turn(texts, turn, steps)


def _reworded_step(texts: Texts, rng: random.Random, reword: Callable[[str], str]) -> Texts:
    """The texts with one message that has a call said in another way."""
    places = [
        (turn, step)
        for turn, steps in enumerate(texts)
        for step, text in enumerate(steps)
        if text.endswith("\n</tool_call>")  # not if it was reworded before
    ]
    if not places:
        raise NothingToMutate("no message has a call")
    turn, step = rng.choice(places)
    steps = texts[turn]
    return _with_turn(texts, turn, [*steps[:step], reword(steps[step]), *steps[step + 1 :]])


def _with_turn(texts: Texts, turn: int, steps: list[str]) -> Texts:
    return [*texts[:turn], steps, *texts[turn + 1 :]]


_TWISTS: Mapping[Twist, Callable[[Texts, BfclTask, Material, random.Random], Texts]] = {
    Twist.LOOP_BEHIND: _loop_behind,
    Twist.LOOP_BEFORE: _loop_before,
    Twist.ANSWER_AT_ONCE: _answer_at_once,
    Twist.EMPTY_MESSAGE: _empty_message,
    Twist.WORDS_INSTEAD: _words_instead,
    Twist.CUT_JSON: _cut_json,
    Twist.UNCLOSED_TAG: _unclosed_tag,
    Twist.ODD_TAGS: _odd_tags,
    Twist.BROKEN_BESIDE: _broken_beside,
    Twist.THINKING: _thinking,
    Twist.CALL_IN_THINKING: _call_in_thinking,
    Twist.PROSE: _prose,
    Twist.EARLY_HELD_OUT: _early_held_out,
}
