"""Labels against failures that are known by construction, and against the official checks."""

import logging
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pytest
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import (
    response_checker,
    state_checker,
)
from known_failures import (
    ANSWER,
    NOT_UNIQUE,
    UNUSABLE,
    Construction,
    KnownFailure,
    known_failures,
)
from material import Material
from mutations import Turns, draw

from env_service.environments.base import EpisodeOptions
from env_service.environments.bfcl.episode import BfclEpisode
from env_service.environments.bfcl.execution import ToolExecutor
from env_service.environments.bfcl.tasks import BfclTask, load_tasks, reference_calls
from env_service.environments.bfcl.verifier import verify
from env_service.environments.dialogue import StepRecord
from seal.coevolution.diagnosis import diagnose
from seal.formats import ToolCall, render_calls
from seal.labels import EXCLUDED, FAILURES, Label
from seal.wire import EvaluateReply, TurnDiagnosis

LOG = logging.getLogger(__name__)
FINE = {Label.PASS, Label.CORRECT_ABSTENTION}
SOME_TASKS = [*load_tasks().values()][::27]
ROOM = {
    Construction.BAD_JSON: 799,
    Construction.BAD_JSON_AMONG_OTHERS: 650,
    Construction.UNKNOWN_TOOL: 799,
    Construction.HELD_OUT_TOOL: 197,
    Construction.MISSING_ARGUMENT: 799,
    Construction.EXTRA_ARGUMENT: 799,
    Construction.ILL_TYPED: 799,
    Construction.SKIPPED: 799,
    Construction.REPEATED: 512,
    Construction.IGNORED_ERROR: 650,
    Construction.SPURIOUS: 403,
    Construction.EARLY_ANSWER: 572,
    Construction.WRONG_VALUE: 772,
    Construction.READ_ONLY_OMISSION: 506,
    Construction.WRONG_VALUE_AND_ERROR: 648,
    Construction.OMISSION_AND_ERROR: 376,
}
"""How many tasks have room for a construction."""


def episode_of(task_id: str, messages: Sequence[Sequence[str]]) -> BfclEpisode:
    episode = BfclEpisode(load_tasks()[task_id], EpisodeOptions(mode="eval"))
    for said in messages:
        for text in said:
            reply = episode.step({"role": "assistant", "content": text})
    assert reply.is_terminated and not reply.info.truncated
    return episode


def label_failures(tasks: Iterable[BfclTask]) -> Counter[Construction]:
    """Play every known failure, assert its labels, and count them by construction."""
    counts: Counter[Construction] = Counter()
    given: Counter[tuple[str, str]] = Counter()
    for task in tasks:
        for case in known_failures(task, seed=0):
            reply = episode_of(task.task_id, case.messages).evaluate()
            check_case(case, reply)
            counts[case.construction] += 1
            given[case.construction, reply.diagnosis[case.turn].label] += 1
    for (construction, label), count in sorted(given.items()):
        LOG.info("%s: %s %d", construction, label, count)
    return counts


def check_case(case: KnownFailure, reply: EvaluateReply) -> None:
    """The spoiled turn has the label it must have; all others are fine, or consequences."""
    spoiled = reply.diagnosis[case.turn]
    assert spoiled.label in case.labels and not spoiled.cascade, (case, spoiled)
    for turn in reply.diagnosis[: case.turn]:
        assert turn.label in FINE and not turn.cascade, (case, turn)
    for turn in reply.diagnosis[case.turn + 1 :]:
        assert (turn.label in FINE) != turn.cascade, (case, turn)
    check_progress(reply)


def check_progress(reply: EvaluateReply) -> None:
    """In an episode that ran to its end, progress says what the labels say."""
    labels = Counter(turn.label for turn in reply.diagnosis)
    progress = reply.progress
    assert progress.scorable + progress.abstention == len(reply.diagnosis)
    assert progress.scorable_passed == labels[Label.PASS]
    assert progress.abstention_passed == labels[Label.CORRECT_ABSTENTION]
    assert reply.accuracy == float(progress.scorable_passed == progress.scorable)


def test_labels_of_known_failures() -> None:
    counts = label_failures(SOME_TASKS)
    assert counts.keys() == {*Construction}
    assert counts.total() >= 300


@pytest.mark.slow
def test_labels_of_known_failures_of_all_tasks() -> None:
    counts = label_failures(load_tasks().values())
    assert counts == ROOM
    assert counts.total() >= 4000


def test_a_truth_is_one_label_but_where_the_list_says_why() -> None:
    for task in SOME_TASKS[::5]:
        for case in known_failures(task, seed=1):
            assert (len(case.labels) > 1) == (case.construction in NOT_UNIQUE)


@pytest.mark.slow
def test_references_carry_no_failure() -> None:
    for task in load_tasks().values():
        if task.task_id in UNUSABLE:
            continue
        said = [
            (render_calls(calls, "hermes"), ANSWER) if calls else (ANSWER,)
            for calls in reference_calls(task)
        ]
        reply = episode_of(task.task_id, said).evaluate()
        assert reply.accuracy == 1.0
        assert all(turn.label in FINE and not turn.cascade for turn in reply.diagnosis), (
            task.task_id
        )
        check_progress(reply)


def test_a_label_depends_on_its_episode_alone() -> None:
    cases = [case for task in SOME_TASKS[::3] for case in known_failures(task, seed=2)]
    episodes = [episode_of(case.task_id, case.messages) for case in cases]
    first = [episode.evaluate() for episode in episodes]
    assert [episode.evaluate() for episode in episodes] == first
    order = random.Random(0).sample(range(len(cases)), k=len(cases))
    for place in order:
        again = episode_of(cases[place].task_id, cases[place].messages).evaluate()
        assert again == first[place]


# ---- two failures ------------------------------------------------------------------------


def test_a_failure_of_its_own_is_no_cascade_whatever_went_before() -> None:
    """In these the truth does not depend on the state in which the turn begins."""
    stateless = {
        Construction.BAD_JSON,
        Construction.SKIPPED,
        Construction.SPURIOUS,
        Construction.UNKNOWN_TOOL,
        Construction.EXTRA_ARGUMENT,
    }
    seen: Counter[Construction] = Counter()
    for task in SOME_TASKS:
        cases = [*known_failures(task, seed=3)]
        for first in cases:
            for second in cases:
                if first.turn < second.turn and second.construction in stateless:
                    turns = (*first.messages[: second.turn], *second.messages[second.turn :])
                    reply = episode_of(task.task_id, turns).evaluate()
                    both = reply.diagnosis[second.turn]
                    # The first may have given the results that the second then lacks.
                    if both.label != Label.PASS:
                        assert both.label in second.labels and not both.cascade, (first, second)
                        seen[second.construction] += 1
    assert seen.keys() == stateless and min(seen.values()) > 20


def labels_with(task_id: str, changed: Mapping[int, Sequence[ToolCall]]) -> list[TurnDiagnosis]:
    """Labels of a reference with other calls in some turns."""
    task = load_tasks()[task_id]
    program = {**dict(enumerate(reference_calls(task))), **changed}
    return diagnosed(task, [[StepRecord(tuple(calls), ())] for calls in program.values()])


def test_an_error_that_the_turn_would_have_had_anyway_is_its_own() -> None:
    task_id = "multi_turn_base_0"
    first, _, _, last = reference_calls(load_tasks()[task_id])
    assert first[-1].name == "mv" and last[2] == ToolCall("cd", {"folder": "temp"})
    wrong = [*last[:2], ToolCall("cd", {"folder": "nowhere"}), last[3]]
    after = labels_with(task_id, {0: first[:-1]})[3]
    assert (after.label, after.cascade) == (Label.RECOVERY_FAILURE, True)
    both = labels_with(task_id, {0: first[:-1], 3: wrong})[3]
    assert (both.label, both.cascade) == (Label.RECOVERY_FAILURE, False)


def test_a_broken_call_is_its_own_turn_s_doing_whatever_the_state() -> None:
    """The spurious message shifts the ids of all later ones, so that results differ."""
    task_id = "multi_turn_miss_func_97"
    turns = reference_calls(load_tasks()[task_id])
    (send,) = turns[5]
    ill_typed = ToolCall(send.name, {**send.arguments, "message": 17})
    assert not turns[3] and send.name == "send_message"
    assert labels_with(task_id, {3: [send]})[5].cascade
    both = labels_with(task_id, {3: [send], 5: [ill_typed]})[5]
    assert (both.label, both.cascade) == (Label.ARGUMENT_MISMATCH, False)


def test_a_spurious_call_may_change_what_no_check_looks_at() -> None:
    """The current folder is no public attribute."""
    task_id = "multi_turn_miss_func_6"
    turns = reference_calls(load_tasks()[task_id])
    assert not turns[0] and turns[1][0] == ToolCall("cd", {"folder": "communal"})
    labels = labels_with(task_id, {0: [ToolCall("cd", {"folder": "shared"})]})
    assert [(turn.label, turn.cascade) for turn in labels[:2]] == [
        (Label.SPURIOUS_TOOL_CALL, False),
        (Label.RECOVERY_FAILURE, True),
    ]


# ---- any program at all ------------------------------------------------------------------


def accepted_turns(task: BfclTask, turns: Turns) -> list[bool]:
    """The official checks, turn by turn and not only up to the first failure."""
    model, reference = ToolExecutor(task), ToolExecutor(task)
    every_tool = task.docs_at(len(task.turns)).keys()
    so_far: list[str] = []
    accepted = []
    for index, steps in enumerate(turns):
        calls = [call for step in steps for call in step]
        so_far += [model.execute(call, task.docs_at(index).keys()) for call in calls]
        wanted = [reference.execute(call, every_tool) for call in reference_calls(task)[index]]
        state = state_checker(model.instances, reference.instances)["valid"]
        responses = response_checker(so_far, wanted, index)["valid"]
        accepted.append(bool(calls) and state and responses)
    return accepted


def check_labels(task: BfclTask, turns: Turns, labels: Sequence[TurnDiagnosis]) -> None:
    """What a label says of the official checks, and the other way round."""
    accepted = accepted_turns(task, turns)
    scored = [bool(calls) for calls in reference_calls(task)]
    spoiled = False
    for index, turn in enumerate(labels):
        assert turn.label not in EXCLUDED
        if scored[index]:
            assert (turn.label == Label.PASS) == accepted[index], (task.task_id, turns, turn)
        else:
            assert turn.label != Label.PASS and not turn.cascade
        assert not turn.cascade or (spoiled and turn.label in FAILURES), (task.task_id, turn)
        spoiled = spoiled or turn.label in FAILURES
    missed = sum(one and not good for one, good in zip(scored, accepted, strict=False))
    assert missed == sum(
        turn.label in FAILURES for turn, one in zip(labels, scored, strict=False) if one
    )


def label_programs(tasks: Iterable[BfclTask], seeds: int) -> Counter[bool]:
    """Label seeded programs; how many turns were cascades."""
    cascades: Counter[bool] = Counter()
    for task in tasks:
        for seed in range(seeds):
            rng = random.Random(f"{seed} {task.task_id}")
            material = Material([*task.docs_at(len(task.turns)).values()], {})
            turns = draw(reference_calls(task), material, rng).turns
            records = [[StepRecord(step, ()) for step in steps] for steps in turns]
            labels = diagnosed(task, records)
            check_labels(task, turns, labels)
            cascades.update(turn.cascade for turn in labels)
    return cascades


def diagnosed(task: BfclTask, records: list[list[StepRecord]]) -> list[TurnDiagnosis]:
    return [diagnose(evidence) for evidence in verify(task, records, False).evidence]


def test_pass_means_that_the_official_checks_accept_the_turn() -> None:
    assert label_programs(SOME_TASKS, seeds=8)[True] > 20


@pytest.mark.slow
def test_pass_means_that_the_official_checks_accept_the_turn_in_all_tasks() -> None:
    assert label_programs(load_tasks().values(), seeds=5)[True] > 500
