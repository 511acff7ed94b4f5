"""Verdicts, results and states of mutated trajectories equal bfcl-eval's unmodified own."""

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils
from material import Material
from mutations import DEPTH, Mutation, Trajectory, draw
from official import (
    SHARED_CARD_IDS,
    Difference,
    Observation,
    exceptions_of,
    fresh_module_state,
    frozen,
    observed,
    official,
    official_results,
    ours,
    text_of,
)

from env_service.environments.bfcl.execution import ToolExecutor
from env_service.environments.bfcl.tasks import BfclTask, load_tasks, reference_calls
from seal.formats import ToolCall

SEED = 1


def material_of(task: BfclTask) -> Material:
    known: dict[str, Sequence[Any]] = {}
    if task.long_context:
        known["card_id"] = SHARED_CARD_IDS
    if "TwitterAPI" in task.involved_classes:
        next_tweet = task.initial_config.get("TwitterAPI", {}).get("tweet_counter", 0)
        known["tweet_id"] = [next_tweet, next_tweet + 1]
    docs = task.docs_at(len(task.turns))
    # A tool that the references seldom use, more often than others: see SHARED_MENTIONS.
    often = [docs["mention"]] * len(docs) if "mention" in docs else []
    return Material([*docs.values(), *often], known)


def trajectories(tasks: Sequence[BfclTask], each: int) -> Iterator[tuple[BfclTask, Trajectory]]:
    for task in tasks:
        program = reference_calls(task)
        material = material_of(task)
        for number in range(each):
            rng = random.Random(f"{SEED}/{task.task_id}/{number}")
            yield task, draw(program, material, rng)


def first_difference(one: Observation, other: Observation) -> str | None:
    """Where two observations differ, in few words: states can be megabytes."""
    if one.valid != other.valid:
        return f"verdict: {one.valid} != {other.valid}"
    if len(one.turns) != len(other.turns):
        return f"turns: {len(one.turns)} != {len(other.turns)}"
    for index, (a, b) in enumerate(zip(one.turns, other.turns, strict=True)):
        for side in ("model", "reference"):
            results = vars(a)[f"{side}_results"], vars(b)[f"{side}_results"]
            if len(results[0]) != len(results[1]):
                return f"turn {index}, {side}: {len(results[0])} != {len(results[1])} results"
            for x, y in zip(*results, strict=True):
                if x != y:
                    return f"turn {index}, {side}: {x[:300]!r} != {y[:300]!r}"
            x, y = vars(a)[f"{side}_state"], vars(b)[f"{side}_state"]
            if x != y:
                keys = [key for key in {**x, **y} if x.get(key) != y.get(key)]
                return f"turn {index}, {side}: {keys} differ"
    return None


def compare(
    tasks: Sequence[BfclTask], each: int
) -> tuple[Counter[str], Counter[Difference], Counter[bool]]:
    """Compare trajectories; counts by mutation, by exception and by verdict."""
    kinds: Counter[str] = Counter()
    met: Counter[Difference] = Counter()
    verdicts: Counter[bool] = Counter()
    for task, trajectory in trajectories(tasks, each):
        differences = exceptions_of(task, trajectory)
        expected, got = official(task, trajectory, differences), ours(task, trajectory)
        difference = first_difference(expected, got)
        assert difference is None, (task.task_id, trajectory.mutation, difference)
        kinds.update(trajectory.mutation.split("+"))
        met.update(differences)
        verdicts[expected.valid] += 1
    return kinds, met, verdicts


def test_400_trajectories() -> None:
    kinds, met, verdicts = compare([*load_tasks().values()][::2], each=1)
    assert set(kinds) == set(Mutation)
    assert met and verdicts[True] > 80 and verdicts[False] > 200


# Exact for SEED: whoever makes an exception recognise more trajectories has to say so here.
EXCEPTIONS = {
    Difference.REWRITTEN_TEXT: 277,
    Difference.HELD_OUT_TOOL: 40,
    Difference.PYTHON_NAME: 145,
    Difference.ODD_KEYWORD: 346,
    Difference.LONG_NAME: 52,
    Difference.DEEP_VALUE: 408,
    Difference.SHARED_CARDS: 159,
    Difference.SHARED_MENTIONS: 26,
    Difference.ENDLESS_DIRECTORY: 15,
}


@pytest.mark.slow
def test_6400_trajectories(capsys: pytest.CaptureFixture[str]) -> None:
    kinds, met, verdicts = compare([*load_tasks().values()], each=8)
    with capsys.disabled():
        for title, counts in ("mutations", kinds), ("exceptions", met), ("verdicts", verdicts):
            print(f"\n{title}: " + ", ".join(f"{key} {n}" for key, n in sorted(counts.items())))  # noqa: T201
    assert verdicts.total() == 6400
    assert met == EXCEPTIONS
    assert set(EXCEPTIONS) == set(Difference)
    assert set(kinds) == set(Mutation) and min(kinds.values()) > 250
    assert verdicts[True] > 1500


@pytest.mark.slow
def test_references() -> None:
    """Every reference as bfcl-eval writes it; all but one pass, which asks for a held-out tool."""
    failed = []
    for task in load_tasks().values():
        written = [list(texts) for texts in task.reference]
        steps = [[texts] if texts else [] for texts in written]
        with fresh_module_state():
            expected = observed(task, steps, written)
        assert expected.valid, task.task_id
        turns = tuple((calls,) if calls else () for calls in reference_calls(task))
        got = ours(task, Trajectory(Mutation.UNCHANGED, turns, False))
        if not got.valid:
            failed.append(task.task_id)
            continue
        difference = first_difference(expected, got)
        assert difference is None, (task.task_id, difference)
    assert failed == ["multi_turn_miss_func_49"]
    assert len(load_tasks()) == 800


# ---- the exceptions, each in its smallest form ---------------------------------------------------

FILES = "multi_turn_base_0"  # GorillaFileSystem and TwitterAPI


def both(task_id: str, *calls: ToolCall) -> tuple[list[str], list[str], frozenset[Difference]]:
    """Results of calls made in one message: official, ours, and the exceptions they fall under."""
    task = load_tasks()[task_id]
    said = Trajectory("by hand", ((calls,),), positional=False)
    return (
        official_results(task, *(text_of(task, call) for call in calls)),
        list(ours(task, said).turns[0].model_results),
        exceptions_of(task, said),
    )


def test_text_that_looks_like_a_call_is_rewritten_officially() -> None:
    text = "cd(folder='x') and a word (or two)"
    theirs, here, met = both(FILES, ToolCall("echo", {"content": text}))
    assert "_GorillaFileSystem_instance.cd(folder='x')" in theirs[0]
    assert "a word(or two)" in theirs[0]
    assert json.loads(here[0]) == {"terminal_output": text}
    assert met == {Difference.REWRITTEN_TEXT}


def test_a_tool_can_be_called_before_its_turn_officially() -> None:
    call = ToolCall("sort", {"file_name": "final_report.pdf"})
    theirs, here, met = both("multi_turn_miss_func_0", call)
    assert theirs == ['{"error": "sort: final_report.pdf: No such file or directory"}']
    assert here == ["Error during execution: name 'sort' is not defined"]
    assert met == {Difference.HELD_OUT_TOOL}


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("str", "x"),  # the builtin
        ("json", "Error during execution: 'module' object is not callable"),
        ("func_call", "Error during execution: 'str' object is not callable"),
        ("kill", "Error during execution: Function call kill is not allowed."),
        ("no name", "Error during execution: invalid syntax (<string>, line 1)"),
    ],
)
def test_names_of_python_are_known_officially(name: str, theirs: str) -> None:
    results, here, met = both(FILES, ToolCall(name, {"object": "x"}))
    assert results == [theirs]
    assert here[0].startswith("Error during execution: ")
    assert f"name '{name}'" in here[0]
    assert met == {Difference.PYTHON_NAME}


def test_a_long_name_is_repeated_officially() -> None:
    theirs, here, met = both(FILES, ToolCall("x" * 90, {}))
    assert theirs == [f"Error during execution: name '{'x' * 90}' is not defined"]
    assert here == [f"Error during execution: name '{'x' * 80}' is not defined"]
    assert met == {Difference.LONG_NAME}


def test_an_argument_name_is_python_text_officially() -> None:
    theirs, here, met = both(FILES, ToolCall("cd", {"from": "document"}))
    assert theirs == ["Error during execution: invalid syntax (<string>, line 1)"]
    assert here[0].endswith("cd() got an unexpected keyword argument 'from'")
    assert met == {Difference.ODD_KEYWORD}
    # The ligature of f and i: Python reads "file_name".
    theirs, here, met = both(FILES, ToolCall("cat", {"\ufb01le_name": "x"}))
    assert theirs == ['{"error": "cat: \'x\': No such file or directory"}']
    assert here[0].endswith("cat() got an unexpected keyword argument '\ufb01le_name'")
    assert met == {Difference.ODD_KEYWORD}


def test_a_deep_value_is_not_read_officially() -> None:
    value: list[Any] = []
    for _ in range(DEPTH):
        value = [value]
    theirs, here, met = both(FILES, ToolCall("search_tweets", {"keyword": value}))
    assert theirs == ["Error during execution: too many nested parentheses (<string>, line 1)"]
    assert here == ["Error during execution: 'list' object has no attribute 'lower'"]
    assert met == {Difference.DEEP_VALUE}


def test_credit_cards_are_shared_officially() -> None:
    task = load_tasks()["multi_turn_long_context_150"]
    access = {"access_token": "abc123token"}
    card = {**access, "card_id": SHARED_CARD_IDS[0]}
    flight = {"travel_date": "2026-10-06", "travel_from": "RMS", "travel_to": "SBK"}
    calls = (
        ToolCall("set_budget_limit", {**access, "budget_limit": 10.0}),
        ToolCall("book_flight", {**card, **flight, "travel_class": "economy"}),
    )
    balance = ToolCall("get_credit_card_balance", card)
    steps = [[[text_of(task, call) for call in calls]]]
    with fresh_module_state():
        # The reference books nothing; nor does the next episode.
        theirs = observed(task, steps, [[text_of(task, balance)]])
        later = observed(task, [[[text_of(task, balance)]]], [[]])
    assert theirs.turns[0].reference_results == ('{"card_balance": 4780.0}',)
    assert later.turns[0].model_results == ('{"card_balance": 4780.0}',)
    model, reference = ToolExecutor(task), ToolExecutor(task)
    tools = task.docs_at(0).keys()
    assert '"booking_status": true' in [model.execute(call, tools) for call in calls][1]
    assert model.execute(balance, tools) == '{"card_balance": 4780.0}'
    assert reference.execute(balance, tools) == '{"card_balance": 5000.0}'
    met = exceptions_of(task, Trajectory("by hand", ((calls,),), positional=False))
    assert met == {Difference.SHARED_CARDS}


def test_mentions_are_shared_officially() -> None:
    login = {"username": "analyst_pro", "password": "Kj8#mP9$vL2"}
    calls = (
        ToolCall("authenticate_twitter", login),
        ToolCall("post_tweet", {"content": "one"}),
        ToolCall("mention", {"tweet_id": 3, "mentioned_usernames": ["@a"]}),
        ToolCall("post_tweet", {"content": "two"}),
    )
    theirs, here, met = both(FILES, *calls)
    assert json.loads(theirs[-1])["mentions"] == ["@a"]
    assert json.loads(here[-1])["mentions"] == []
    assert met == {Difference.SHARED_MENTIONS}
    # Nor does the next episode see them.
    _, here, met = both(FILES, *calls[:2])
    assert json.loads(here[-1])["mentions"] == []
    assert not met


def test_an_endless_directory_is_described_by_depth_officially() -> None:
    task = load_tasks()[FILES]
    calls = (
        ToolCall("cp", {"source": "workspace", "destination": "workspace"}),
        ToolCall("mkdir", {"dir_name": "a"}),
        ToolCall("cp", {"source": "a", "destination": "a"}),
        ToolCall("du", {}),
    )
    _, here, met = both(FILES, *calls)
    assert here[-1] == "Error during execution: maximum recursion depth exceeded"
    assert met == {Difference.ENDLESS_DIRECTORY}

    texts = [text_of(task, call) for call in calls]

    def deeper(frames: int) -> str:
        return deeper(frames - 1) if frames else official_results(task, *texts)[-1]

    seen = {deeper(frames) for frames in range(8)}
    assert len(seen) > 1 and all(text.startswith(here[-1]) for text in seen)
    for frames in range(8):
        assert _deep_here(task, calls, frames) == here[-1]


def _deep_here(task: BfclTask, calls: Sequence[ToolCall], frames: int) -> str:
    if frames:
        return _deep_here(task, calls, frames - 1)
    executor = ToolExecutor(task)
    return [executor.execute(call, task.docs_at(0).keys()) for call in calls][-1]


# ---- the tests' own means ------------------------------------------------------------------------


def test_frozen_states_tell_types_and_order_apart_and_do_not_change() -> None:
    values: list[object] = [1, 1.0, True, "1", None, [1], (1,), {"a": 1, "b": 2}, {"b": 2, "a": 1}]
    kept = [frozen(value) for value in values]
    assert len({repr(one) for one in kept}) == len(values)
    assert all((one == other) == (one is other) for one in kept for other in kept)
    changed = [1]
    before = frozen(changed)
    changed.append(2)
    assert before == frozen([1]) != frozen(changed)


def test_official_runs_leave_nothing_behind() -> None:
    before = {*vars(multi_turn_utils)}
    both(FILES, ToolCall("pwd", {}))
    assert {*vars(multi_turn_utils)} == before
