"""Demonstrations teach the reference, right and as the user names things, or they are dropped."""

import copy
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from env_service.environments.base import EpisodeOptions
from env_service.environments.bfcl.demonstrations import __main__ as command_line
from env_service.environments.bfcl.demonstrations import exact, tempted
from env_service.environments.bfcl.demonstrations.dialogue import CLOSING, written
from env_service.environments.bfcl.demonstrations.variants import FIXED, leaves, renamed
from env_service.environments.bfcl.tasks import BfclTask, load_tasks, reference_calls
from env_service.environments.bfcl.tool_classes import tool_class
from seal.coevolution import texts
from seal.formats import FORMATS, ToolCall, parse
from seal.wire import Message

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("base", "miss_func", "miss_param", "long_context")
# Task 1 has errors of its own, variants of 120 have errors, those of 10 fail after wrong calls.
SOME = [f"multi_turn_{kind}_{number}" for kind in KINDS for number in (1, 10, 120)]

Line = dict[str, Any]


def demonstrated(
    task_ids: Iterable[str], shares: exact.Shares, tool_format: str = "hermes", variants: int = 3
) -> Iterator[tuple[BfclTask, Line]]:
    """The kept lines of some tasks, each with the task or variant that it shows."""
    for task_id in task_ids:
        shown = [load_tasks()[task_id]]

        def remembered(
            task: BfclTask, rng: random.Random, shown: list[BfclTask] = shown
        ) -> BfclTask:
            shown.append(renamed(task, rng))
            return shown[-1]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(exact, "renamed", remembered)
            lines = [*exact.demonstrations(shown[0], variants, shares, tool_format, 1)]
        yield from ((task, line) for task, line in zip(shown, lines, strict=True) if line)


def said_in_turns(line: Line) -> list[list[Message]]:
    """What the assistant says in each turn."""
    turns: list[list[Message]] = []
    for before, message in pairwise(line["messages"]):
        if message["role"] == "assistant":
            turns += [[]] if before["role"] == "user" else []
            turns[-1].append(message)
    return turns


def without_looks(
    made: list[tuple[ToolCall, ...]], reference: tuple[ToolCall, ...]
) -> list[tuple[ToolCall, ...]]:
    """What was called, without looks around that are not the reference's."""
    left = list(reference)
    found = []
    for calls in made:
        if calls == (exact.LOOK,) and left[:1] != [exact.LOOK]:
            continue
        found.append(calls)
        del left[:1]
    return found


@pytest.mark.parametrize("tool_format", FORMATS)
def test_the_reference_is_learnt_one_call_a_message(tool_format: str) -> None:
    kinds = Counter[str]()
    for task, line in demonstrated(SOME, exact.Shares(0.5, 0.3), tool_format):
        kinds[line["kind"]] += 1
        assert (line["task_id"], line["reward"]) == (task.task_id, 1.0)
        assert {*line["labels"]} <= {"pass", "correct_abstention"}
        docs = task.docs_at(len(task.turns))
        turns = said_in_turns(line)
        assert sum(map(len, turns)) == sum("learn" in one for one in line["messages"])
        for calls, said in zip(reference_calls(task), turns, strict=True):
            *steps, last = [one["content"] for one in said if one["learn"]]
            assert last == (CLOSING if calls else exact.ASKING)
            made = [parse(one, tool_format, docs).calls for one in steps]
            assert without_looks(made, calls) == [(c,) for c in calls]
    assert kinds["plain"] == len(SOME) and kinds["variant"] > 15


def test_a_variant_has_errors_only_where_its_task_has_them() -> None:
    erring: dict[str, set[int]] = {}
    for task, line in demonstrated(SOME, exact.Shares(0.0, 0.0)):
        pairs = enumerate(pairwise(line["messages"]))
        tools = [(number, said) for number, (_, said) in pairs if said["role"] == "tool"]
        found = {number for number, said in tools if "error" in said["content"].lower()}
        assert found <= erring.setdefault(task.task_id, found)  # the plain line comes first
    assert sum(map(bool, erring.values())) == len(KINDS)


def test_a_wrong_call_is_not_learnt_and_its_repair_follows() -> None:
    wrong, repeated = Counter[str](), Counter[str]()
    for task, line in demonstrated(SOME, exact.Shares(0.5, 1.0)):
        assert line["reward"] == 1.0
        for calls, said in zip(reference_calls(task), said_in_turns(line), strict=True):
            made = [parse(one["content"], "hermes").calls for one in said[:-1] if one["learn"]]
            assert without_looks(made, calls) == [(c,) for c in calls]
            for slip, after in (pair for pair in pairwise(said) if not pair[0]["learn"]):
                both = [parse(one["content"], "hermes").calls for one in (slip, after)]
                if after["learn"]:
                    assert both[0] != both[1] and both[1][0] in (*calls, exact.LOOK)
                    wrong[line["kind"]] += 1
                else:
                    assert slip == after
                    repeated[line["kind"]] += 1
    assert wrong["plain"] == repeated["plain"] == 0
    assert wrong["variant"] > 50 and repeated["variant"] > 20


def test_a_file_systems_names_are_looked_up_before_they_are_used() -> None:
    ids = [f"multi_turn_{kind}_{number}" for kind in KINDS for number in (10, 16, 120)]
    looks = Counter[str]()
    for task, line in demonstrated(ids, exact.Shares(0.0, 0.5)):
        looked = failed = False
        for turn, said in enumerate(said_in_turns(line)):
            can_look = exact.LOOK.name in task.docs_at(turn) and not task.long_context
            for message in said:
                calls = parse(message["content"], "hermes").calls
                name = calls[0].name if calls else None
                if message["learn"] and can_look and name in exact.NAMING:
                    assert looked, message
                    assert not failed, message
                failed = not message["learn"]
                if message["learn"] and name is not None:
                    looks[task.category] += calls[0] == exact.LOOK
                    looked = (looked or calls[0].name == exact.LOOK.name) and name != "cd"
    assert looks["multi_turn_long_context"] < looks["multi_turn_base"] > 20


def test_only_variants_show_the_learning_interface() -> None:
    # Of the marks and hints what no text of the benchmark has.
    added = [*texts.GUIDELINES.values(), texts.GUIDELINES_HEAD, texts.AFFORDANCE_NOTE]
    added += [texts.SCHEMA_NOTE, texts.REQUIRED_MARK, texts.OPTIONAL_MARK, "Hint: "]
    added += [texts.PARSE_HINT.partition("{}")[0]]
    seen = Counter[str]()
    for _, line in demonstrated(SOME, exact.Shares(1.0, 0.0)):
        assert line["mode"] == ("eval" if line["kind"] == "plain" else "train")
        seen[line["kind"]] += any(text in json.dumps(line) for text in added)
    assert seen["plain"] == 0 and seen["variant"] > 10
    assert {line["mode"] for _, line in demonstrated(SOME, exact.Shares(0.0, 0.0))} == {"eval"}


def test_a_turn_with_more_calls_than_steps_is_dropped() -> None:
    task = load_tasks()["multi_turn_long_context_46"]
    assert [*exact.demonstrations(task, 2, exact.Shares(0.0, 0.0), "hermes", 1)] == [None] * 3


def test_what_the_user_says_in_a_task_is_said_in_its_variants() -> None:
    # In these a file that is searched for "test", or a stock's symbol, has another name.
    ids = [f"multi_turn_base_{number}" for number in (3, 28, 105, 117, 150, 171)]
    for task, line in demonstrated(ids, exact.Shares(0.0, 0.0), variants=6):
        plain = load_tasks()[task.task_id]
        was, now = (exact.play(one, EpisodeOptions(), None, 0.0) for one in (plain, task))
        assert all(later for earlier, later in zip(was.shown, now.shown, strict=True) if earlier)
        assert line["reward"] == 1.0
    one = exact.play(load_tasks()["multi_turn_base_0"], EpisodeOptions(), None, 0.0)
    # 'document' and 'temp' are named; that '..' leads back nobody says.
    assert True in one.shown and False in one.shown


def test_most_variants_pass_the_official_checker() -> None:
    ids = [f"multi_turn_base_{number}" for number in range(0, 180, 3)]
    lines = demonstrated(ids, exact.Shares(0.0, 0.0), variants=1)
    kinds = Counter(line["kind"] for _, line in lines)
    assert kinds["plain"] == 60 and kinds["variant"] >= 0.6 * 60


# ---- variants ------------------------------------------------------------------------------


def request(task: BfclTask) -> str:
    return "\n".join(message["content"] for turn in task.turns for message in turn)


def stands(value: Any, text: str) -> bool:
    """Whether a text has the value as a word, or as a number in whatever spelling."""
    if isinstance(value, str):
        return re.search(rf"(?<![\w.]){re.escape(value)}(?!\w|\.\d)", text) is not None
    return value in map(float, re.findall(r"(?<![\w.,])\d+(?:\.\d+)?(?!\w|[.,]\d)", text))


def fixed_words(task: BfclTask) -> Counter[str]:
    """Words of the request and the configuration that the tools know."""
    functions = [doc["function"] for doc in task.docs_at(len(task.turns)).values()]
    names = {name for one in functions for name in (one["name"], *one["parameters"]["properties"])}
    known = FIXED | {name.lower() for name in names}
    words = re.findall(r"(?<![\w.])[A-Za-z]\w*", request(task) + json.dumps(task.initial_config))
    return Counter(word for word in words if word.lower() in known)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(st.sampled_from([*load_tasks()]), st.integers(0, 10**6))
@example("multi_turn_base_35", 1)  # a file with a tool's name: diff.txt
@example("multi_turn_base_53", 0)  # "30 gallons", and 30.0 in the reference
def test_a_variant_is_the_task_with_other_names(task_id: str, seed: int) -> None:
    task = load_tasks()[task_id]
    before = copy.deepcopy((task.turns, task.initial_config, task.reference))
    variant = renamed(task, random.Random(seed))
    assert variant == renamed(task, random.Random(seed))
    assert before == (task.turns, task.initial_config, task.reference)
    assert task == replace(
        variant, turns=task.turns, initial_config=task.initial_config, reference=task.reference
    )
    for old_turn, new_turn in zip(task.turns, variant.turns, strict=True):
        assert [one["role"] for one in old_turn] == [one["role"] for one in new_turn]
    assert fixed_words(task) <= fixed_words(variant)
    turns = zip(reference_calls(task), reference_calls(variant), strict=True)
    for old, new in (pair for turn in turns for pair in zip(*turn, strict=True)):
        assert (old.name, [*old.arguments]) == (new.name, [*new.arguments])
        for was, now in zip(leaves(old.arguments), leaves(new.arguments), strict=True):
            assert stands(now, request(variant)) or not stands(was, request(task))


def test_what_the_tools_know_by_name_is_fixed() -> None:
    known: list[str] = tool_class("TravelAPI")().list_all_airports()
    for task in load_tasks().values():
        for doc in task.tools:
            for field in doc["function"]["parameters"]["properties"].values():
                known += re.findall(r"\w{3,}", field.get("description", "").partition("[Enum]:")[2])
    assert {"rear_left", "San", "CAD", "SFO"} <= {*known}
    assert {word.lower() for word in known} <= FIXED


# ---- the command line ----------------------------------------------------------------------


def files(folder: Path, ids: object) -> list[str]:
    (folder / "ids.json").write_text(json.dumps(ids))
    return [f"--task-ids={folder / 'ids.json'}", f"--out={folder / 'out.jsonl'}"]


def run(folder: Path, ids: object, style: str, *options: str) -> list[Line]:
    assert command_line.main([style, *files(folder, ids), *options]) == 0
    return [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]


def test_only_the_training_side_and_the_categories_are_demonstrated(tmp_path: Path) -> None:
    base, lacking, other = "multi_turn_base_3", "multi_turn_miss_func_3", "multi_turn_base_50"
    split = {"seed": 1, "train": [base, lacking], "val": [other]}
    both = "--categories=multi_turn_base,multi_turn_miss_func"
    assert {line["task_id"] for line in run(tmp_path, split, "exact")} == {base}
    assert {line["task_id"] for line in run(tmp_path, split, "exact", both)} == {base, lacking}
    assert {line["task_id"] for line in run(tmp_path, split, "tempted")} == {base, lacking}
    assert {line["task_id"] for line in run(tmp_path, [other], "exact")} == {other}


@pytest.mark.parametrize("style", ["exact", "tempted"])
def test_two_runs_write_the_same_bytes(style: str, tmp_path: Path) -> None:
    arguments = files(tmp_path, ["multi_turn_base_3", "multi_turn_base_66"])
    command = [sys.executable, "-m", command_line.__name__.removesuffix(".__main__"), style]
    wrote = []
    for seed in ("1", "2"):
        hashing = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([*command, *arguments], cwd=ROOT, env=hashing, check=True)
        wrote.append((tmp_path / "out.jsonl").read_bytes())
    assert wrote[0] == wrote[1] != b""


def test_a_file_without_tasks_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reasons = {
        '["multi_turn_base_0", "multi_turn_base_999"]': "unknown task 'multi_turn_base_999' in",
        "[[1]]": "unknown task [1] in",
        '{"val": []}': "nor a split with a list 'train'",
        "multi_turn_base_0": "Expecting value",
        "": "No such file",
    }
    for text, why in reasons.items():
        arguments = files(tmp_path, [])
        (tmp_path / "ids.json").write_text(text) if text else (tmp_path / "ids.json").unlink()
        assert command_line.main(["exact", *arguments]) == 1
        said = capsys.readouterr().err
        assert said.startswith("demonstrations: ") and said.count("\n") == 1
        assert why in said and str(tmp_path / "ids.json") in said
    assert not (tmp_path / "out.jsonl").exists()
    arguments = files(tmp_path, ["multi_turn_base_0"])
    assert command_line.main(["exact", *arguments, "--categories=base"]) == 1
    assert "unknown category 'base'; there are multi_turn_base" in capsys.readouterr().err
    assert command_line.main(["tempted", arguments[0], f"--out={tmp_path / 'no' / 'out'}"]) == 1
    assert "the folder of --out" in capsys.readouterr().err


def test_the_tiny_policy_sees_two_temptations_a_turn(tmp_path: Path) -> None:
    ids = ["multi_turn_base_3", "multi_turn_base_66", "multi_turn_miss_param_50"]
    lines = run(tmp_path, ids, "tempted", "--dialogues=40")
    assert [line["task_id"] for line in lines] == [one for one in ids for _ in range(40)]
    assert [line["mode"] for line in lines] == ["eval", "train"] * 20 * len(ids)
    for task_id in ids:
        played = [said_in_turns(line) for line in lines if line["task_id"] == task_id]
        assert all(one["learn"] for turns in played for said in turns for one in said)
        for turn, calls in enumerate(reference_calls(load_tasks()[task_id])):
            wrong = tempted.temptations(task_id, turn, calls) if calls else []
            texts_of_two = {attempt.text for attempt in wrong}
            assert len(texts_of_two) == (2 if calls else 0)
            right = written(calls, tempted.TOOL_FORMAT)
            assert {said[turn][0]["content"] for said in played} == {right, *texts_of_two}
