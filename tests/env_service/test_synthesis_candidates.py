"""Candidates of a model: what is kept plays like any task, and each lie has its reason.

Every candidate that is refused here differs from one that is kept in a single thing.
"""

import json
import os
import re
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from synthetic import SPLIT, made, proposer, sides

from env_service.environments.base import EpisodeOptions, TaskFile
from env_service.environments.bfcl.environment import BfclEnvironment
from env_service.environments.bfcl.synthesis import __main__ as command_line
from env_service.environments.bfcl.synthesis import candidates as module
from env_service.environments.bfcl.synthesis.candidates import FromFile
from env_service.environments.bfcl.synthesis.confined import Stopped, run_confined
from env_service.environments.bfcl.synthesis.pool import read_tasks, sha256_of, task_file
from env_service.environments.bfcl.synthesis.proposals import Candidate, Knobs
from env_service.environments.bfcl.tasks import CATEGORIES, reference_calls
from env_service.environments.bfcl.tool_classes import tool_names
from seal.coevolution.interface import INITIAL
from seal.formats import ToolCall, render_calls
from seal.records.candidates import Candidate as Written
from seal.records.candidates import CandidateTurn, Proposed
from seal.records.json_lines import append_json_lines

AUTHOR = "a model"
BASE, MISS_FUNC, MISS_PARAM, _ = CATEGORIES
TRAINING, OTHERS = sides().lending, sides().others
PROPOSER = proposer(Knobs())
SEEDS = PROPOSER.seeds
FILES = next(seed for seed in SEEDS if "GorillaFileSystem" in seed.involved_classes)
MATH = next(seed for seed in SEEDS if "MathAPI" in seed.involved_classes)

Turns = list[tuple[str, list[ToolCall]]]


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments)


ALPHA = ("Please make the folder alpha_beta here.", [call("mkdir", dir_name="alpha_beta")])
GAMMA = (
    "Now create notes.txt and write 'Hello there' into it.",
    [
        call("touch", file_name="notes.txt"),
        call("echo", content="Hello there", file_name="notes.txt"),
    ],
)
GOOD: Turns = [ALPHA, GAMMA]


def proposed(*tasks: Turns, seed: str = FILES.task_id, **more: Any) -> Proposed:
    written = tuple(
        Written(tuple(CandidateTurn(text, tuple(calls)) for text, calls in turns))
        for turns in tasks
    )
    return Proposed(AUTHOR, seed, written, **more)


def outcome(line: Proposed, **pools: Any) -> Candidate | str:
    """The task, or why there is none."""
    (attempt,) = FromFile([line], PROPOSER, pools).attempts()
    assert attempt.author == AUTHOR
    return attempt.outcome if isinstance(attempt.outcome, Candidate) else str(attempt.outcome)


def write(path: Path, *lines: Proposed) -> Path:
    append_json_lines(path, *(line.to_json() for line in lines))
    return path


def make(folder: Path, name: str, *arguments: str) -> int:
    own = ["make", name, "--split", str(SPLIT), "--root", str(folder)]
    return command_line.main([*own, *arguments])


# ---- what is kept --------------------------------------------------------------------------------


def test_a_candidate_that_is_kept_plays_in_an_episode(tmp_path: Path) -> None:
    file = write(tmp_path / "c.jsonl", proposed(GOOD))
    assert make(tmp_path, "told", "--candidates", str(file)) == 0
    path = task_file("told", tmp_path)
    (task,) = read_tasks(path)
    scenario = FILES.task_id.rpartition("_")[2]
    assert task.task_id == f"synthetic_told_000000_{scenario}"
    environment = BfclEnvironment([TaskFile("bfcl", "told", str(path), sha256_of(path))])
    for calls, reward in ((reference_calls(task), 1.0), ([[GOOD[0][1][0]], []], 0.0)):
        options = EpisodeOptions("eval", INITIAL, "hermes", "structured")
        episode = environment.create(task.task_id, options)
        assert episode.open().state[-1]["content"] == ALPHA[0]
        for turn in calls:
            for one in turn:
                text = render_calls([one], "hermes")
                episode.step({"role": "assistant", "content": text})
            reply = episode.step({"role": "assistant", "content": "Done."})
        assert reply.is_terminated
        assert episode.evaluate().accuracy == reward


def test_what_a_line_says_of_a_task() -> None:
    kept = outcome(proposed(GOOD))
    assert isinstance(kept, Candidate)
    assert kept.task.initial_config == FILES.initial_config
    assert kept.provenance.author == AUTHOR
    assert kept.provenance.calls == (1, 2)
    assert (kept.provenance.changing_calls, kept.provenance.result_calls) == (3, 0)
    assert "state_mismatch" in kept.provenance.targets


def test_a_pool_is_made_the_same_again_and_counts_by_author(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (
        proposed(GOOD, [ALPHA], GOOD, unreadable={"the answer holds no JSON": 2}),
        replace(proposed([("Go.", [call("fly")])], seed=MATH.task_id), author="another"),
    )
    files = [str(write(tmp_path / f"{n}.jsonl", line)) for n, line in enumerate(lines)]
    contents = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        assert make(folder, "told", "--candidates", *files) == 0
        contents.append({p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()})
    assert contents[0] == contents[1]
    report = json.loads(contents[0]["told.report.json"])
    assert report["refused_by_author"] == {
        AUTHOR: {"the answer holds no JSON": 2, "its program is there already": 1},
        "another": {"the reference cannot be read": 1},
    }
    assert report["authors"] == {AUTHOR: 2}
    shown = capsys.readouterr().out
    assert "of a model" in shown and "2 of 5" in shown and "0 of 1" in shown


def test_a_file_of_which_nothing_is_kept_makes_no_pool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "c.jsonl", proposed([("Go.", [call("fly")])]))
    assert make(tmp_path, "told", "--candidates", str(file)) == 1
    assert "none of 1 candidates was kept (a model: the reference cannot be read, 1 times)" in (
        capsys.readouterr().err
    )
    assert not task_file("told", tmp_path).exists()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot read --candidates: "),
        ("", "is empty"),
        ("{\n", "line 1: not JSON"),
        ('{"author": "a"}\n', "line 1: expected the texts 'author' and 'seed_task'"),
    ],
)
def test_a_file_that_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, sentence: str
) -> None:
    file = tmp_path / "c.jsonl"
    if content is not None:
        file.write_text(content)
    assert make(tmp_path, "told", "--candidates", str(file)) == 1
    assert sentence in capsys.readouterr().err


def test_options_of_drawn_tasks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        make(tmp_path, "told", "--candidates", "c.jsonl", "--tasks", "5")


# ---- what is refused -----------------------------------------------------------------------------

_EVALUATED = next(
    task for task in OTHERS if task.category == BASE and sum(map(len, task.reference)) > 1
)
_SHARED = next(task for task in TRAINING if task.category == BASE and task not in SEEDS)
"""A training task in whose state an evaluation or development task begins."""


@pytest.mark.parametrize(
    ("turns", "why"),
    [
        ([*GOOD, ("Fly to the moon.", [call("fly", to="moon")])], "the reference cannot be read"),
        (
            [*GOOD, ("Import.", [call("__import__", module="os")])],
            "the reference cannot be read",
        ),
        (
            [*GOOD, ("Write 5 into five.txt.", [call("echo", content=5, file_name="five.txt")])],
            "a call is against its tool's schema",
        ),
        (
            [*GOOD, ("Make the folder z, mode 7.", [call("mkdir", dir_name="z", mode=7)])],
            "a call is against its tool's schema",
        ),
        (
            [*GOOD, ("Go to the folder nowhere.", [call("cd", folder="nowhere")])],
            "a result reports an error",
        ),
        ([ALPHA, ("And now make another one.", GAMMA[1])], "a value is neither stated nor shown"),
        ([("Use mkdir to make alpha_beta.", ALPHA[1])], "a message names a tool by its identifier"),
        (
            [("Where am I?", [call("pwd")]), (f"{ALPHA[0]} And where?", [*ALPHA[1], call("pwd")])],
            "a call can be left out",
        ),
        ([("Where am I?", [call("pwd")])], "harmless calls pass"),
    ],
)
def test_a_lie_has_its_reason(turns: Turns, why: str) -> None:
    assert outcome(proposed(turns)) == why


@pytest.mark.parametrize("seed", [_EVALUATED.task_id, _SHARED.task_id, "multi_turn_base_999"])
def test_only_seeds_that_lend_their_worlds_are_used(seed: str) -> None:
    assert outcome(proposed(GOOD, seed=seed)) == "its seed lends no world"


def test_a_program_or_a_message_of_the_evaluation_side_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = [turn[0]["content"] for turn in _EVALUATED.turns]
    turns = list(zip(texts, map(list, reference_calls(_EVALUATED)), strict=True))
    monkeypatch.setattr(PROPOSER, "seeds", [_EVALUATED])  # were it a seed
    assert outcome(proposed(turns, seed=_EVALUATED.task_id)) == "it contains an evaluation program"
    monkeypatch.undo()
    assert isinstance(outcome(proposed([ALPHA])), Candidate)
    names = {name for owner in FILES.involved_classes for name in tool_names(owner)}
    words = next(
        text
        for task in OTHERS
        for turn in task.turns
        for text in [turn[0]["content"] if turn else ""]
        if len(text.split()) > 12 and not names & {*re.findall(r"\w+", text)}
    )
    long = [(f"{ALPHA[0]} {words}", ALPHA[1])]
    assert outcome(proposed(long)) == "it has words of an evaluation message"


def test_a_call_that_never_returns_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        module,
        "run_confined",
        lambda attempt, count: run_confined(attempt, count, seconds=2.0),
    )
    endless = [("Compute 9 to the 999999999.", [call("power", base=9, exponent=999999999)])]
    started = time.monotonic()
    line = proposed(endless, [ALPHA], seed=MATH.task_id)
    first, second = FromFile([line], PROPOSER, {}).attempts()
    assert str(first.outcome) in ("it takes too long", "it takes too much memory")
    assert time.monotonic() - started < 30
    # The next one runs in a new process.
    assert str(second.outcome) != str(first.outcome)


# ---- rewording -----------------------------------------------------------------------------------


def pool_task(category: str) -> tuple[str, Candidate, dict[str, Any]]:
    """A task of a pool, its id, and the pool as it is looked up."""
    (one, *_) = made(4, Knobs(seed=3, categories=(category,), indirect_share=0.0)).candidates
    name = "synthetic_tests_000000_" + one.provenance.seed_task.rpartition("_")[2]
    return name, one, {name: (one.task, one.provenance)}


def texts_of(one: Candidate) -> list[str]:
    return [messages[0]["content"] if messages else "" for messages in one.task.turns]


def reworded(name: str, texts: list[str]) -> Proposed:
    return proposed([(text, []) for text in texts], seed=name)


@pytest.mark.parametrize("category", CATEGORIES)
def test_other_words_for_a_task_are_kept(category: str) -> None:
    name, one, pool = pool_task(category)
    texts = [text and f"Well then: {text}" for text in texts_of(one)]
    kept = outcome(reworded(name, texts), **pool)
    assert isinstance(kept, Candidate), kept
    assert texts_of(kept) == texts
    assert kept.task.reference == one.task.reference
    assert kept.task.held_out_docs == one.task.held_out_docs
    assert kept.task.category == category
    want = {**asdict(one.provenance), "author": AUTHOR, "split_sha256": PROPOSER.split_sha256}
    assert asdict(kept.provenance) == want


def test_a_rewording_that_is_none() -> None:
    name, one, pool = pool_task(BASE)
    texts = texts_of(one)
    assert outcome(reworded(name, texts), **pool) == "it has the words of the task that it rewords"
    assert outcome(reworded(name, ["Hello.", *texts]), **pool) == (
        "it has other turns than the task that it rewords"
    )
    silent = ["Do something."] * len(texts)
    assert outcome(reworded(name, silent), **pool) == "a value is neither stated nor shown"
    other = {name: (one.task, replace(one.provenance, seed_task=_EVALUATED.task_id))}
    assert outcome(reworded(name, ["Well, " + texts[0], *texts[1:]]), **other) == (
        "its seed lends no world"
    )
    assert outcome(reworded(name, texts)) == "the task that it rewords is not in its pool"


def test_a_value_that_is_to_be_missing_is_not_given() -> None:
    name, one, pool = pool_task(MISS_PARAM)
    texts = texts_of(one)
    place = one.task.reference.index(())
    texts[place] += " " + texts[place + 1]
    assert outcome(reworded(name, texts), **pool) == "it gives a value that is to be missing"


def test_a_pool_is_reworded_from_its_file(tmp_path: Path) -> None:
    knobs = ("--tasks", "3", "--categories", "base", "--indirect", "0", "--processes", "1")
    assert make(tmp_path, "drawn", *knobs) == 0
    tasks = read_tasks(task_file("drawn", tmp_path))
    lines = [
        reworded(task.task_id, [f"Well then: {turn[0]['content']}" for turn in task.turns])
        for task in tasks
    ]
    file = write(tmp_path / "c.jsonl", *lines)
    assert make(tmp_path, "told", "--candidates", str(file)) == 0
    again = read_tasks(task_file("told", tmp_path))
    assert [task.reference for task in again] == [task.reference for task in tasks]
    assert [task.task_id.replace("drawn", "told") for task in tasks] == [
        task.task_id for task in again
    ]


# ---- processes -----------------------------------------------------------------------------------


def test_an_attempt_that_harms_its_process_harms_nothing_else() -> None:
    def attempt(number: int) -> int:
        match number:
            case 1:
                time.sleep(60)
            case 2:
                return len(bytearray(1 << 40))
            case 3:
                os._exit(1)
        return os.getpid()

    first, slow, large, ended, last = run_confined(attempt, 5, seconds=1.0, memory=1 << 28)
    assert slow == Stopped("it takes too long")
    assert large == Stopped("it takes too much memory")
    assert ended == Stopped("it ends the process that runs it")
    assert isinstance(first, int) and isinstance(last, int)
    assert len({first, last, os.getpid()}) == 3
    for pid in (first, last):
        assert not Path(f"/proc/{pid}").exists()


def test_the_tools_of_the_seed_are_the_only_ones() -> None:
    other = next(
        tool
        for name, tool in (("TradingBot", "get_stock_info"), ("TravelAPI", "list_all_airports"))
        if name not in FILES.involved_classes
    )
    turns = [*GOOD, ("Tell me more.", [call(other)])]
    assert outcome(proposed(turns)) == "the reference cannot be read"
