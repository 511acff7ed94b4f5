"""Verdicts equal bfcl-eval's unmodified checker; evidence tells failures from consequences."""

import itertools
from collections.abc import Callable, Sequence

import pytest
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker

from env_service.environments.base import CallStopped, Stop
from env_service.environments.bfcl import verifier
from env_service.environments.bfcl.execution import ToolExecutor
from env_service.environments.bfcl.tasks import BfclTask, load_tasks, reference_calls
from env_service.environments.bfcl.verifier import verify
from env_service.environments.dialogue import StepRecord, Verdict
from seal.formats import ParseFault, ToolCall
from seal.wire import TurnProgress

Program = list[list[ToolCall]]
"""Calls of each turn."""

_NUMBERS = itertools.count()


def official_verdict(task: BfclTask, program: Program) -> bool:
    """The unmodified checker, on instances of its own (it keeps them by model name)."""
    steps = [[[_text(call) for call in turn]] if turn else [] for turn in program]
    entry = {
        "id": task.task_id,
        "initial_config": dict(task.initial_config),
        "involved_classes": list(task.involved_classes),
    }
    reference = [list(turn) for turn in task.reference]
    model = f"program_{next(_NUMBERS)}"
    return bool(multi_turn_checker(steps, reference, entry, task.category, model)["valid"])


def judge(
    task: BfclTask, program: Sequence[Sequence[ToolCall]], truncated: bool = False
) -> Verdict:
    return verify(task, [[StepRecord(tuple(turn), ())] for turn in program], truncated)


def _text(call: ToolCall) -> str:
    return f"{call.name}({','.join(f'{key}={value!r}' for key, value in call.arguments.items())})"


def drop_last_call(program: Program) -> Program:
    busy = [index for index, turn in enumerate(program) if turn]
    return [turn[:-1] if index == busy[-1] else turn for index, turn in enumerate(program)]


def drop_first_call(program: Program) -> Program:
    busy = [index for index, turn in enumerate(program) if turn]
    return [turn[1:] if index == busy[0] else turn for index, turn in enumerate(program)]


def wrong_value(program: Program) -> Program:
    def spoil(call: ToolCall) -> ToolCall:
        spoiled = {
            key: value + "x" if isinstance(value, str) else value
            for key, value in call.arguments.items()
        }
        return ToolCall(call.name, spoiled)

    return [[spoil(call) for call in turn] for turn in program]


def missing_argument(program: Program) -> Program:
    return [
        [ToolCall(call.name, dict([*call.arguments.items()][1:])) for call in turn]
        for turn in program
    ]


def repeated_calls(program: Program) -> Program:
    return [turn + turn for turn in program]


def first_turn_says_all(program: Program) -> Program:
    return [[call for turn in program for call in turn], *([] for _ in program[1:])]


def reversed_calls(program: Program) -> Program:
    return [turn[::-1] for turn in program]


def second_turn_in_the_first(program: Program) -> Program:
    return [program[0] + program[1], [], *program[2:]] if len(program) > 1 else program


MUTATIONS: tuple[Callable[[Program], Program], ...] = (
    lambda program: program,
    drop_last_call,
    drop_first_call,
    wrong_value,
    missing_argument,
    repeated_calls,
    first_turn_says_all,
    second_turn_in_the_first,
    reversed_calls,
)


def test_verdicts_equal_the_official_ones() -> None:
    passed = failed = 0
    for task in [*load_tasks().values()][::20]:
        program = [list(turn) for turn in reference_calls(task)]
        for mutate in MUTATIONS:
            mutated = mutate(program)
            if _calls_a_held_out_tool(task, mutated):
                continue  # bfcl-eval executes tools that it has not shown yet
            expected = official_verdict(task, mutated)
            assert judge(task, mutated).accuracy == float(expected), (task.task_id, mutate)
            passed += expected
            failed += not expected
    assert passed > 40 and failed > 100


def _calls_a_held_out_tool(task: BfclTask, program: Program) -> bool:
    return any(
        call.name not in task.docs_at(index) for index, turn in enumerate(program) for call in turn
    )


def test_a_last_turn_that_the_step_limit_cut_is_judged_by_what_it_did() -> None:
    task = load_tasks()["multi_turn_base_0"]
    program = [list(turn) for turn in reference_calls(task)]
    cut = judge(task, program, truncated=True)
    assert cut == judge(task, program)
    assert cut.accuracy == 1.0
    assert cut.progress == TurnProgress(4, 4, 0, 0)
    program[3] = [ToolCall("pwd", {})]
    assert judge(task, program, truncated=True).accuracy == 0.0


def test_a_step_limit_before_the_last_turn_or_an_unreached_turn_fails_the_task() -> None:
    task = load_tasks()["multi_turn_base_0"]
    program = reference_calls(task)
    truncated = judge(task, program[:-1], truncated=True)
    assert truncated.accuracy == 0.0
    assert [turn.truncated for turn in truncated.evidence] == [False, False, True]
    assert truncated.progress == TurnProgress(4, 2, 0, 0)
    assert judge(task, program[:1]).progress == TurnProgress(4, 1, 0, 0)
    assert judge(task, program[:-1]).accuracy == 0.0
    scorable = sum(bool(calls) for calls in program)
    nothing = TurnProgress(scorable, 0, len(program) - scorable, 0)
    assert judge(task, []) == Verdict(0.0, (), nothing)


def test_a_state_failure_is_not_charged_to_later_turns() -> None:
    task = load_tasks()["multi_turn_base_0"]
    program = [list(turn) for turn in reference_calls(task)]
    assert program[0][-1].name == "mv"
    program[0] = program[0][:-1]
    verdict = judge(task, program)
    assert verdict.accuracy == 0.0
    assert verdict.evidence[0].state_differences == ("GorillaFileSystem.root",)
    assert verdict.evidence[0].missing_responses == ("mv",)
    # The later turns make the reference's own calls: what they lack is the first turn's doing.
    for turn in verdict.evidence[1:]:
        assert turn.state_differences == ()
        assert turn.missing_responses == ()
        assert turn.carried_differences == ("GorillaFileSystem.root",)
        assert turn.calls
    carried = [turn.carried_missing for turn in verdict.evidence]
    assert carried == [(), ("grep",), ("sort",), ("diff",)]


def test_of_calls_that_give_the_same_text_the_one_that_was_not_made_is_missing() -> None:
    """One text was seen and one is missing: it is the skipped tool's."""
    task = load_tasks()["multi_turn_base_133"]
    program = [list(turn) for turn in reference_calls(task)]
    executor = ToolExecutor(task)
    results = {executor.execute(call, task.docs_at(0).keys()) for call in program[0]}
    assert [call.name for call in program[0]] == ["add_to_watchlist", "get_watchlist"]
    assert len(results) == 1
    program[0] = program[0][:1]
    assert judge(task, program).evidence[0].missing_responses == ("get_watchlist",)


def test_a_wrong_call_of_a_later_turn_is_still_seen() -> None:
    task = load_tasks()["multi_turn_base_0"]
    program = [list(turn) for turn in reference_calls(task)]
    program[0] = program[0][:-1]
    program[2] = [ToolCall("pwd", {})]
    assert judge(task, program).evidence[2].missing_responses == ("sort",)


def test_a_turn_that_no_earlier_failure_reached_fails_by_itself() -> None:
    """Only pwd, in every turn: what it says does not depend on the files that are wrong by now."""
    task = load_tasks()["multi_turn_base_1"]
    verdict = judge(task, [[ToolCall("pwd", {})] for _ in task.turns])
    assert all(turn.state_differences or turn.missing_responses for turn in verdict.evidence)


def test_a_replay_that_a_limit_stops_leaves_the_attributes_to_say_what_is_carried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = load_tasks()["multi_turn_base_0"]
    program = [list(turn) for turn in reference_calls(task)]
    program[0] = program[0][:-1]
    plain = judge(task, program)
    turn = verifier._Walk.turn

    def stopped(
        walk: verifier._Walk, index: int, steps: Sequence[StepRecord], truncated: bool
    ) -> object:
        if index and not walk._failed:  # not the episode's walk: that has failed in turn 0
            raise CallStopped(Stop(0, "as it took too much memory"))
        return turn(walk, index, steps, truncated)

    monkeypatch.setattr(verifier._Walk, "turn", stopped)
    assert judge(task, program) == plain


def test_abstention_is_counted_apart_and_only_where_a_turn_was_begun() -> None:
    task = load_tasks()["multi_turn_miss_func_0"]
    program = [list(turn) for turn in reference_calls(task)]
    (empty,) = (index for index, turn in enumerate(program) if not turn)
    assert judge(task, program).progress == TurnProgress(4, 4, 1, 1)
    assert judge(task, program[:empty]).progress.abstention_passed == 0
    program[empty] = [ToolCall("pwd", {})]
    spurious = judge(task, program)
    assert spurious.accuracy == 1.0  # the official checks do not look at such a turn
    assert spurious.progress == TurnProgress(4, 4, 1, 0)
    steps = [[StepRecord(tuple(turn), ())] for turn in program]
    steps[empty] = [StepRecord((), (ParseFault(0, "no JSON", "pwd"),))]
    assert verify(task, steps, False).progress == TurnProgress(4, 4, 1, 0)


def test_a_call_that_the_reference_makes_breaks_no_schema() -> None:
    """This one gives a ticket's id as a string, as the scenario has it; the doc wants a number."""
    task = load_tasks()["multi_turn_base_173"]
    program = [list(turn) for turn in reference_calls(task)]
    evidence = judge(task, program).evidence[3]
    assert evidence.calls[0].tool == "close_ticket"
    assert evidence.calls[0].violations == ()
    program[3] = [ToolCall("close_ticket", {"ticket_id": "another"})]
    assert judge(task, program).evidence[3].calls[0].violations


def test_true_is_not_the_reference_s_one() -> None:
    task = load_tasks()["multi_turn_base_106"]
    program = [list(turn) for turn in reference_calls(task)]
    assert program[3][0].arguments["ticket_id"] == 1
    true = ToolCall(program[3][0].name, {**program[3][0].arguments, "ticket_id": True})
    program[3] = [true, *program[3][1:]]
    assert judge(task, program).evidence[3].calls[0].violations


def test_evidence_of_calls() -> None:
    task = load_tasks()["multi_turn_base_0"]
    calls = (ToolCall("cd", {}), ToolCall("no_such_tool", {}), ToolCall("pwd", {}))
    (turn,) = verify(task, [[StepRecord(calls[:1], ()), StepRecord(calls[1:], ())]], False).evidence
    assert [(call.step, call.tool, call.available) for call in turn.calls] == [
        (0, "cd", True),
        (1, "no_such_tool", False),
        (1, "pwd", True),
    ]
    assert [bool(call.violations) for call in turn.calls] == [True, False, False]
    assert [call.error is None for call in turn.calls] == [False, False, True]
    assert turn.model_classes == turn.reference_classes == {"GorillaFileSystem"}


@pytest.mark.parametrize("task_id", ["multi_turn_base_0", "multi_turn_long_context_100"])
def test_judging_twice_gives_the_same(task_id: str) -> None:
    task = load_tasks()[task_id]
    program = reference_calls(task)
    assert judge(task, program) == judge(task, program)
