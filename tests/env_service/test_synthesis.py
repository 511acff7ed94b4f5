"""Pools of synthetic tasks: made the same again, worded fairly, and playable as BFCL's own."""

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from leak_search import play_all
from official_loop import Played, Policy, official_loop
from serving import Service, serve
from synthetic import made, proposer, tasks

from env_service import __main__ as service
from env_service.environments import ENVIRONMENTS
from env_service.environments.base import EpisodeOptions, SelfCheckFailed, TaskFile
from env_service.environments.bfcl.environment import BfclEnvironment
from env_service.environments.bfcl.episode import BfclEpisode
from env_service.environments.bfcl.synthesis import making
from env_service.environments.bfcl.synthesis.pool import id_of, read_tasks, sha256_of, task_file
from env_service.environments.bfcl.synthesis.proposals import Knobs
from env_service.environments.bfcl.tasks import CATEGORIES, BfclTask, load_tasks, reference_calls
from seal.formats import render_calls
from seal.labels import FAILURES

FEW = 48
POOL = "pool/x.tasks.jsonl"

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


def as_file(path: Path, pool: str = "tests") -> TaskFile:
    return TaskFile("bfcl", pool, str(path), sha256_of(path))


@pytest.fixture
def pool_file(tmp_path: Path) -> TaskFile:
    making.write(made(FEW), "tests", tmp_path)
    return as_file(task_file("tests", tmp_path))


def another_pool(root: Path) -> TaskFile:
    """A pool whose name begins like that of the first one."""
    draft = made(FEW, Knobs(seed=2))
    named = [
        replace(one, task=replace(one.task, task_id=id_of("tests_2", n, one.provenance.seed_task)))
        for n, one in enumerate(draft.candidates)
    ]
    making.write(replace(draft, candidates=named), "tests_2", root)
    return as_file(task_file("tests_2", root), "tests_2")


def test_the_service_plays_pools(pool_file: TaskFile, tmp_path: Path) -> None:
    other = another_pool(tmp_path)
    for bfcl in serve({"bfcl": ENVIRONMENTS["bfcl"]}, tasks=(pool_file, other)):
        _, health = bfcl.request("GET", "/healthz")
        hashes = {"tests": pool_file.sha256, "tests_2": other.sha256}
        assert health["data"]["tasks_sha256"] == hashes
        listed = {
            split: bfcl.ok("/get_env_profile", env_type="bfcl", params={"split": split})
            for split in ("all", "synthetic")
        }
        assert listed["all"] == [*load_tasks()]
        theirs = read_tasks(Path(other.path))
        assert listed["synthetic"] == [task.task_id for task in (*tasks(FEW), *theirs)]
        for task in (tasks(FEW)[0], theirs[0]):
            play(bfcl, task)
            assert bfcl.ok("/evaluate", instance_id=task.task_id)["accuracy"] == 1.0


def play(bfcl: Service, task: BfclTask) -> None:
    """The reference, and an answer in each turn; the task's id names the episode."""
    bfcl.ok("/create", env_type="bfcl", task_id=task.task_id, instance_id=task.task_id)
    for calls in reference_calls(task):
        if calls:
            bfcl.say(task.task_id, render_calls(calls, "hermes"))
        bfcl.say(task.task_id, "Done.")


def test_another_file_under_the_same_name_is_not_played(pool_file: TaskFile) -> None:
    with pytest.raises(SelfCheckFailed, match="is not what it was when the service started"):
        BfclEnvironment([replace(pool_file, sha256="0")])
    for name in ("test", "tests_0", "tests_000000"):
        with pytest.raises(SelfCheckFailed, match=f"is not of the pool {name}; give the file its"):
            BfclEnvironment([replace(pool_file, pool=name)])
    path = Path(pool_file.path)
    lines = path.read_text("utf-8")
    for planted, why in (
        (lines.replace('"bfcl_eval": "', '"bfcl_eval": "0', 1), "was made with bfcl-eval 0"),
        (lines.replace('"reference"', '"refrence"', 1), "tests.tasks.jsonl:1 is not a task"),
        (lines + "{\n", f"tests.tasks.jsonl:{FEW + 1} is not a task: it is no JSON object"),
    ):
        path.write_text(planted, "utf-8")
        with pytest.raises(SelfCheckFailed, match=why):
            BfclEnvironment([as_file(path)])


@pytest.mark.usefixtures("root_logger_as_it_was")
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--env", "toy", "--tasks", "x.tasks.jsonl"], "--tasks is for --env bfcl"),
        (["--tasks", "no/x.tasks.jsonl"], "cannot read --tasks no/x.tasks.jsonl: No such file"),
        (["--tasks", "x.jsonl"], "x.jsonl is no pool: a pool's file is named NAME.tasks.jsonl"),
        (["--tasks", ".tasks.jsonl"], "is no pool"),
        (["--tasks", POOL, "--tasks", POOL], "names the pool x twice, {root}/pool/x.tasks.jsonl"),
    ],
)
def test_tasks_that_cannot_be_served_are_one_sentence(
    arguments: list[str],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / POOL).parent.mkdir()
    (tmp_path / POOL).write_text("")
    assert service.main(arguments) == 1
    said = capsys.readouterr().err
    assert why.format(root=tmp_path) in said and said.count("\n") == 1


def test_a_generator_of_the_same_seed_says_the_same() -> None:
    one, other = (proposer(Knobs()).attempt(5) for _ in range(2))
    assert one == other
    random.seed(0)
    assert proposer(Knobs()).attempt(5) == one
