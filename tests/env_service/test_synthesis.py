"""Pools of synthetic tasks: made the same again, worded fairly, and playable as BFCL's own."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from leak_search import play_all
from official_loop import Played, Policy, official_loop
from serving import serve
from synthetic import ROOT, SPLIT, made, proposer, tasks
from test_main import children, is_running

from env_service import __main__ as service
from env_service.environments import ENVIRONMENTS
from env_service.environments.base import EpisodeOptions, SelfCheckFailed, TaskFile
from env_service.environments.bfcl.environment import BfclEnvironment
from env_service.environments.bfcl.episode import BfclEpisode
from env_service.environments.bfcl.synthesis import __main__ as command_line
from env_service.environments.bfcl.synthesis import making
from env_service.environments.bfcl.synthesis.pool import BadPool, read_tasks, sha256_of, task_file
from env_service.environments.bfcl.synthesis.proposals import Knobs
from env_service.environments.bfcl.synthesis.verification import Refused
from env_service.environments.bfcl.tasks import CATEGORIES, BfclTask, load_tasks, reference_calls
from seal.formats import render_calls
from seal.labels import FAILURES

FEW = 48

# ---- a pool ------------------------------------------------------------------------------------


def test_a_pool_has_all_categories_and_many_tools() -> None:
    pool = tasks(FEW)
    assert Counter(task.category for task in pool).keys() == {*CATEGORIES}
    assert len({task.task_id for task in pool}) == FEW
    for number, one in enumerate(made(FEW).candidates):
        scenario = one.provenance.seed_task.rpartition("_")[2]
        assert one.task.task_id == f"synthetic_tests_{number:06d}_{scenario}"
        assert {*one.provenance.targets} <= {*FAILURES}
        assert sum(one.provenance.calls) == sum(map(len, one.task.reference))
    used = {call.name for task in pool for turn in reference_calls(task) for call in turn}
    assert len(used) > 50


def test_knobs_shape_the_tasks() -> None:
    two = ("GorillaFileSystem", "MathAPI")
    knobs = Knobs(classes=two, turns=(2, 2), calls=(1, 2), categories=CATEGORIES[:1])
    for task in tasks(12, knobs):
        assert len(task.turns) == 2 and task.category == CATEGORIES[0]
        assert {*task.involved_classes} <= {*two}
        assert all(1 <= len(calls) <= 2 for calls in task.reference)
    said = {share: made(12, replace(knobs, indirect_share=share)) for share in (0.0, 1.0)}
    counts = {
        share: sum(one.provenance.indirect_values for one in pool.candidates)
        for share, pool in said.items()
    }
    assert counts[0.0] == 0 < counts[1.0]


def test_what_is_held_back_is_given_in_the_next_turn() -> None:
    found = Counter[str]()
    for task in tasks(FEW):
        empty = [number for number, calls in enumerate(task.reference) if not calls]
        assert len(empty) == (task.category in CATEGORIES[1:3])
        for asked in empty:
            found[task.category] += 1
            assert task.reference[asked + 1]
            if task.category == "multi_turn_miss_func":
                (held_out,) = task.held_out_docs[asked + 1]
                assert held_out["function"]["name"] not in task.docs_at(asked)
                assert held_out["function"]["name"] in task.docs_at(asked + 1)
                assert task.turns[asked + 1] == ()
            else:
                assert "a certain " in task.turns[asked][0]["content"]
    assert len(found) == 2


def test_a_pool_is_the_same_again_whatever_the_number_of_processes(tmp_path: Path) -> None:
    for processes in (1, 2):
        pool = making.make(proposer(Knobs(seed=7)), "same", 16, processes)
        making.write(pool, tmp_path / str(processes), "same")
    one, two = (sorted((tmp_path / str(count)).iterdir()) for count in (1, 2))
    assert [path.name for path in one] == ["same.report.json", "same.tasks.jsonl"]
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]
    other = making.make(proposer(Knobs(seed=8)), "same", 16, 1)
    assert other.candidates[0].task.turns != pool.candidates[0].task.turns
    assert read_tasks(one[1]) == [kept.task for kept in pool.candidates]


# ---- played ------------------------------------------------------------------------------------


def policy_of(task: BfclTask) -> Policy:
    """Makes the calls of a turn in one message, then answers."""
    program = reference_calls(task)
    return lambda turn, step: "" if step else render_calls(program[turn], "hermes")


def live(task: BfclTask, policy: Policy) -> Played:
    episode = BfclEpisode(task, EpisodeOptions(tools="structured"))
    messages, asked, turn, over = [*episode.open().state], [0], 0, False
    while not over:
        said = {"role": "assistant", "content": policy(turn, asked[turn])}
        asked[turn] += 1
        reply = episode.step(said)
        messages += [{"role": "assistant", "content": ""}, *reply.state]
        if reply.info.turn != turn:
            turn = reply.info.turn
            asked.append(0)
        over = reply.is_terminated
    dialogue = tuple((one["role"], one["content"]) for one in messages[:-1])
    return Played(dialogue, tuple(asked), False, episode.evaluate().accuracy == 1.0)


def plays_officially(pool: list[BfclTask], scratch: Path) -> Counter[str]:
    """Play references in bfcl-eval's own loop and here; count the accepted by category."""
    # bfcl-eval reads the category from the id.
    named = [
        replace(task, task_id=f"{task.category}_{900_000 + number}")
        for number, task in enumerate(pool)
    ]
    counts = Counter[str]()
    with official_loop(scratch, named) as loop:
        for task in named:
            policy = policy_of(task)
            played = live(task, policy)
            # Only in long_context do episodes share cards in bfcl-eval (Difference.SHARED_CARDS).
            assert loop.play(task.task_id, policy, own_cards=task.long_context) == played
            assert played.valid
            silent = [[""]] * len(task.turns)
            assert not loop.valid(task.task_id, silent, own_cards=task.long_context)
            counts[task.category] += 1
    return counts


def test_references_pass_in_the_official_loop(tmp_path: Path) -> None:
    assert min(plays_officially(tasks(FEW)[:16], tmp_path)[name] for name in CATEGORIES) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("category", CATEGORIES)
def test_200_references_of_a_category_pass_in_the_official_loop(
    category: str, tmp_path: Path
) -> None:
    pool = tasks(200, Knobs(categories=(category,)))
    assert plays_officially(pool, tmp_path) == {category: 200}


def test_the_interface_tells_nothing_of_synthetic_references() -> None:
    tally = play_all(tasks(FEW)[::8], every=12, drawn=1)
    assert tally.episodes > 6 and tally.added["note"] == tally.episodes


@pytest.mark.slow
def test_the_interface_tells_nothing_of_many_synthetic_references() -> None:
    tally = play_all(tasks(400)[::2], every=8, drawn=1)
    assert len(tally.hidden) == 200 and sum(tally.hidden.values()) > 100


@pytest.mark.slow
def test_a_large_pool_reaches_nearly_every_tool() -> None:
    pool = made(400)
    called = {
        call.name for one in pool.candidates for turn in reference_calls(one.task) for call in turn
    }
    assert len(called) >= 120
    assert len(pool.candidates) >= 0.85 * pool.attempts


# ---- in the service ----------------------------------------------------------------------------


@pytest.fixture
def pool_file(tmp_path: Path) -> TaskFile:
    making.write(made(FEW), tmp_path, "tests")
    path = task_file(tmp_path, "tests")
    return TaskFile("bfcl", str(path), sha256_of(path))


def test_the_service_plays_a_pool(pool_file: TaskFile) -> None:
    for bfcl in serve({"bfcl": ENVIRONMENTS["bfcl"]}, tasks=pool_file):
        _, health = bfcl.request("GET", "/healthz")
        assert health["data"]["tasks_sha256"] == pool_file.sha256
        listed = {
            split: bfcl.ok("/get_env_profile", env_type="bfcl", params={"split": split})
            for split in ("all", "synthetic")
        }
        assert listed["all"] == [*load_tasks()]
        assert listed["synthetic"] == [task.task_id for task in tasks(FEW)]
        task = tasks(FEW)[0]
        bfcl.ok("/create", env_type="bfcl", task_id=task.task_id, instance_id="a")
        for calls in reference_calls(task):
            if calls:
                bfcl.say("a", render_calls(calls, "hermes"))
            bfcl.say("a", "Done.")
        assert bfcl.ok("/evaluate", instance_id="a")["accuracy"] == 1.0


def test_another_file_under_the_same_name_is_not_played(pool_file: TaskFile) -> None:
    with pytest.raises(SelfCheckFailed, match="is not what it was when the service started"):
        BfclEnvironment(replace(pool_file, sha256="0"))
    path = Path(pool_file.path)
    lines = path.read_text("utf-8")
    for planted, why in (
        (lines.replace('"bfcl_eval": "', '"bfcl_eval": "0', 1), "was made with bfcl-eval 0"),
        (lines.replace('"reference"', '"refrence"', 1), "tests.tasks.jsonl:1 is not a task"),
        (lines + "{\n", f"tests.tasks.jsonl:{FEW + 1} is not a task: it is no JSON object"),
    ):
        path.write_text(planted, "utf-8")
        with pytest.raises(SelfCheckFailed, match=why):
            BfclEnvironment(TaskFile("bfcl", str(path), sha256_of(path)))


@pytest.mark.usefixtures("root_logger_as_it_was")
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--env", "toy", "--tasks", "x"], "--tasks is for --env bfcl"),
        (["--env", "bfcl", "--tasks", "no/such"], "cannot read --tasks no/such: No such file"),
    ],
)
def test_tasks_that_cannot_be_served_are_one_sentence(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert service.main(arguments) == 1
    said = capsys.readouterr().err
    assert why in said and said.count("\n") == 1


# ---- the command line --------------------------------------------------------------------------


def test_make_and_report_say_what_is_in_a_pool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ["few", "--folder", str(tmp_path)]
    knobs = ["--tasks", "4", "--processes", "1", "--categories", "base", "--turns", "2"]
    assert command_line.main(["make", *folder, "--split", str(SPLIT), *knobs]) == 0
    made_text = capsys.readouterr().out
    assert command_line.main(["report", *folder]) == 0
    assert capsys.readouterr().out == made_text
    assert "multi_turn_base" in made_text and "4 of" in made_text
    report = json.loads((tmp_path / "few.report.json").read_text())
    assert report["tasks"] == 4 and report["turns_with_calls_mean"] == 2
    assert report["split_sha256"] == sha256_of(SPLIT)
    task_file(tmp_path, "few").write_text("")
    assert command_line.main(["report", *folder]) == 1
    assert "is not the report of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot read --split"),
        ("{", "cannot read --split"),
        ('["multi_turn_base_0"]', "is no split: it needs the lists 'train' and 'val'"),
        ('{"train": ["x"], "val": []}', "unknown task 'x'"),
        ('{"train": [], "val": []}', "no training task has one of these tool classes"),
    ],
)
def test_a_split_that_cannot_be_used_is_one_sentence(
    content: str | None, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    split = tmp_path / "split.json"
    if content is not None:
        split.write_text(content)
    arguments = ["make", "x", "--split", str(split), "--folder", str(tmp_path / "pools")]
    assert command_line.main(arguments) == 1
    said = capsys.readouterr().err
    assert why in said and said.count("\n") == 1
    assert not (tmp_path / "pools").exists()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--tasks", "0"),
        ("--turns", "3-2"),
        ("--calls", "0-1"),
        ("--classes", "Math"),
        ("--categories", "base,miss"),
        ("--indirect", "2"),
    ],
)
def test_a_knob_that_cannot_be_is_refused(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.main(["make", "x", "--split", str(SPLIT), option, value])
    assert ended.value.code == 2
    assert f"argument {option}: " in capsys.readouterr().err


def test_there_is_no_report_without_a_pool(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["report", "none", "--folder", "no/such"]) == 1
    assert "there is no pool none" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command_line.main(["report", "../x"])


def test_too_few_tasks_are_an_error_that_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    few = proposer(Knobs())
    monkeypatch.setattr(few, "attempt", lambda number: Refused("it rains"))
    with pytest.raises(BadPool, match=r"only 0 of 2 tasks in 60 attempts.*60 times: it rains"):
        making.make(few, "x", 2, processes=1)


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "tests.report.json").mkdir()
    with pytest.raises(BadPool, match="cannot write the pool"):
        making.write(made(FEW), tmp_path, "tests")
    assert [path.name for path in tmp_path.iterdir()] == ["tests.report.json"]


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    module = "env_service.environments.bfcl.synthesis"
    command = [sys.executable, "-m", module, "make", "x", "--split", str(SPLIT), "--processes", "2"]
    making_it = subprocess.Popen(
        [*command, "--folder", str(tmp_path), "--tasks", "100000"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while len(workers := children(making_it.pid)) < 2:
        assert time.monotonic() < deadline and making_it.poll() is None
        time.sleep(0.05)
    time.sleep(0.5)
    os.killpg(making_it.pid, signal.SIGINT)
    _, said = making_it.communicate(timeout=30)
    assert making_it.returncode == 130
    assert said == "synthesis: interrupted; nothing was written\n"
    assert not any(map(is_running, workers)) and not [*tmp_path.iterdir()]


def test_a_generator_of_the_same_seed_says_the_same() -> None:
    one, other = (proposer(Knobs()).attempt(5) for _ in range(2))
    assert one == other
    random.seed(0)
    assert proposer(Knobs()).attempt(5) == one
