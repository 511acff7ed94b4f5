"""The back edge: profiles in, immutable interface snapshots out, episodes pinned to one."""

from collections.abc import Iterator
from typing import Any

import pytest
from labelled import rollout
from serving import Clock, Service, serve

from env_service import runs
from env_service.environments import ENVIRONMENTS
from env_service.errors import ServiceError
from env_service.runs import Runs
from seal.coevolution.evolution import InterfaceConfig, evolve
from seal.coevolution.interface import INITIAL
from seal.coevolution.profile import EMPTY, profile_of
from seal.coevolution.rollout import Rollout
from seal.labels import Label

FAILING = [
    rollout([label], category="toy")
    for label in (Label.ARGUMENT_MISMATCH, Label.MISSING_TOOL_CALL, Label.RECOVERY_FAILURE)
    for _ in range(20)
]


@pytest.fixture
def toy() -> Iterator[Service]:
    """A service that has heard of no run."""
    yield from serve({"toy": ENVIRONMENTS["toy"]})


def body(version: int, rollouts: list[Rollout], **config: Any) -> dict[str, Any]:
    return {"profile": profile_of(version, rollouts).to_json(), "config": config}


def put(
    service: Service,
    run_id: str,
    version: int,
    rollouts: list[Rollout],
    **config: Any,
) -> Any:
    sent = body(version, rollouts, **config)
    status, reply = service.request("PUT", f"/runs/{run_id}/profile", sent)
    assert status == 200, reply
    return reply["data"]


def newest(service: Service, run_id: str) -> Any:
    status, reply = service.request("GET", f"/runs/{run_id}/interface")
    assert status == 200
    return reply["data"]


def test_a_run_never_heard_of_has_the_benchmark(toy: Service) -> None:
    assert newest(toy, "r") == {
        "version": 0,
        "content_hash": INITIAL.content_hash(),
        "active": [],
        "text": INITIAL.describe(),
        "interface": INITIAL.to_json(),
    }
    params = {"mode": "train", "run_id": "r"}
    created = toy.ok("/create", env_type="toy", task_id="toy_lamp", params=params)
    assert created["info"]["interface_version"] == 0


def test_a_profile_is_answered_by_the_interface_it_evolves_to(toy: Service) -> None:
    expected = evolve(INITIAL, profile_of(1, FAILING), InterfaceConfig())
    data = put(toy, "r", 1, FAILING)
    assert data == {
        "version": 1,
        "content_hash": expected.content_hash(),
        "active": list(expected.active()),
        "text": expected.describe(),
        "interface": expected.to_json(),
    }
    assert len(data["active"]) > 1
    assert newest(toy, "r") == data
    assert newest(toy, "other run")["version"] == 0


def test_an_episode_is_pinned_and_mode_eval_is_untouched(toy: Service) -> None:
    train = {"mode": "train", "run_id": "r"}
    before = toy.ok("/create", env_type="toy", task_id="toy_lamp", instance_id="a", params=train)
    put(toy, "r", 1, FAILING)
    after = toy.ok("/create", env_type="toy", task_id="toy_lamp", instance_id="b", params=train)
    plain = toy.ok(
        "/create", env_type="toy", task_id="toy_lamp", instance_id="c", params={"run_id": "r"}
    )
    assert (before["info"]["interface_version"], after["info"]["interface_version"]) == (0, 1)
    assert before["state"] == plain["state"] != after["state"]
    assert plain["info"]["interface_version"] == 0
    for instance_id, version in (("a", 0), ("b", 1), ("c", 0)):
        judged = toy.ok("/evaluate", instance_id=instance_id)
        assert judged["interface_version"] == version
    broken = '<tool_call>\n{"name": \n</tool_call>'
    # The same game for all three, with and without an interface.
    assert all(toy.say(instance_id, broken)["is_terminated"] for instance_id in "abc")


def test_a_rollout_that_is_shown_no_interface_plays_by_the_rules_of_training(toy: Service) -> None:
    put(toy, "r", 1, FAILING)
    broken = '<tool_call>\n{"name": \n</tool_call>'
    shared = {"mode": "train", "run_id": "r", "unreadable_message": "retry"}
    opened, said = {}, {}
    for shown in (True, False):
        params = {**shared, "show_interface": shown}
        name = str(shown)
        opened[shown] = toy.ok(
            "/create", env_type="toy", task_id="toy_lamp", instance_id=name, params=params
        )
        said[shown] = toy.say(name, broken)
    plain = toy.ok("/create", env_type="toy", task_id="toy_lamp", instance_id="c")
    assert opened[False]["state"] == plain["state"] != opened[True]["state"]
    assert (opened[True]["info"]["interface_version"], opened[False]["info"]["mode"]) == (
        1,
        "train",
    )
    assert opened[False]["info"]["interface_version"] == 0
    assert not said[True]["is_terminated"] and not said[False]["is_terminated"]
    (hinted,), (told,) = said[True]["state"], said[False]["state"]
    assert hinted["content"].startswith(f"{told['content']}\nHint: ")


def test_an_evaluation_plays_no_other_game_than_the_benchmark(toy: Service) -> None:
    params = {"mode": "eval", "unreadable_message": "retry"}
    status, code, message = toy.refused(
        "/create", env_type="toy", task_id="toy_lamp", instance_id="a", params=params
    )
    assert (status, code) == (422, "not_the_benchmark") and "unreadable_message" in message


def test_a_repeated_profile_changes_nothing(toy: Service) -> None:
    first = put(toy, "r", 1, FAILING)
    assert put(toy, "r", 1, FAILING) == first


def test_a_snapshot_never_changes(toy: Service) -> None:
    first = put(toy, "r", 1, FAILING)
    status, reply = toy.request("PUT", "/runs/r/profile", body(1, FAILING[:10]))
    assert (status, reply["error"]["code"]) == (409, "version_exists")
    assert newest(toy, "r") == first


def test_a_run_that_goes_back_to_a_checkpoint_goes_on_from_there(toy: Service) -> None:
    first = put(toy, "r", 1, FAILING)
    put(toy, "r", 2, FAILING[:40])
    assert put(toy, "r", 1, FAILING) == first
    assert newest(toy, "r") == first
    assert put(toy, "r", 2, FAILING[:20])["version"] == 2


def test_an_interface_evolves_from_the_one_that_was_shown(toy: Service) -> None:
    """A service that was restarted goes on as if it had not been."""
    easier = {"hysteresis": 0.2}
    calm = [rollout([Label.PASS], 1.0, "toy")] * 90
    mild = calm + FAILING[:7]  # under the thresholds for coming, over those for staying
    put(toy, "r", 1, FAILING)
    stays = put(toy, "r", 2, mild, **easier)
    shown = newest(toy, "r")["interface"] | {"version": 1}
    sent = body(2, mild, **easier)
    status, reply = toy.request("PUT", "/runs/other/profile", {**sent, "interface": shown})
    assert status == 200
    assert reply["data"] == stays
    fresh = put(toy, "fresh", 2, mild, **easier)
    assert fresh["content_hash"] == INITIAL.content_hash()
    assert stays["content_hash"] != INITIAL.content_hash()


def test_an_episode_may_ask_for_a_version(toy: Service) -> None:
    put(toy, "r", 1, FAILING)
    put(toy, "r", 2, FAILING)
    train = {"mode": "train", "run_id": "r"}
    created = toy.ok(
        "/create", env_type="toy", task_id="toy_lamp", params={**train, "interface_version": 1}
    )
    assert created["info"]["interface_version"] == 1
    for run_id in ("r", "never heard of"):
        refused = toy.refused(
            "/create",
            env_type="toy",
            task_id="toy_lamp",
            params={**train, "run_id": run_id, "interface_version": 3},
        )
        assert refused[:2] == (409, "unknown_interface")


def test_static_marks_are_there_before_the_first_round(toy: Service) -> None:
    sent = {"profile": EMPTY.to_json(), "config": {"static_schema_cues": True}}
    status, reply = toy.request("PUT", "/runs/r/profile", sent)
    assert (status, reply["data"]["active"]) == (200, ["schema_cues"])
    assert reply["data"]["version"] == 0


def test_a_wrong_profile_or_setting_is_refused_by_name(toy: Service) -> None:
    good = {**EMPTY.to_json(), "version": 1}
    many = {"turns": 10**400, "trajectories": 10**400, "reward_sum": 0.0, "successes": 0.0}
    rich = {"turns": 5.0, "trajectories": 5.0, "reward_sum": 500.0, "successes": 0.0}
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"profile": {}}, "profile"),
        ({"profile": {**good, "version": -1}}, "version"),
        ({"profile": good, "interface": {"version": 1}}, "interface"),
        ({"profile": {**good, "by_label": {"pass": many}}}, "turns"),
        ({"profile": {**good, "by_label": {"pass": rich}}}, "reward_sum"),
        ({"profile": good, "config": {"scheme_cues": True}}, "schema_cues"),
        ({"profile": good, "config": {"min_prevalence": "x"}}, "min_prevalence"),
        ({"config": {}}, "profile"),
        ({"profile": good, "extra": 1}, "extra"),
    )
    for sent, word in wrong:
        status, reply = toy.request("PUT", "/runs/r/profile", sent)
        assert (status, reply["error"]["code"]) == (422, "invalid_request"), sent
        assert word in reply["error"]["message"]


# ---- bounds --------------------------------------------------------------------------------


class Known:
    """Runs, with a clock and live episodes that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int = 3) -> None:
        monkeypatch.setattr(runs, "MOST_RUNS", most)
        self.busy: set[str] = set()
        self.clock = Clock()
        self.runs = Runs(lambda: self.busy, self.clock)

    def hear_of(self, *names: str) -> None:
        for name in names:
            self.runs.update(name, profile_of(1, FAILING), InterfaceConfig())
            self.clock.now += 1


def test_the_run_that_was_not_heard_of_for_longest_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = Known(monkeypatch)
    known.hear_of("a", "b", "c")
    known.clock.now += runs.RECENT_S
    known.runs.newest("a")  # an episode was created
    known.hear_of("d")
    assert known.runs.newest("a").version == known.runs.newest("c").version == 1
    for version in (None, 1):
        with pytest.raises(ServiceError) as gone:
            known.runs.pinned("b", version)
        assert (gone.value.status, gone.value.code) == (409, "unknown_interface")
    # Its next profile makes it known again.
    known.clock.now += runs.RECENT_S
    known.hear_of("b")
    assert known.runs.newest("b").version == 1


def test_a_run_at_work_makes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Known(monkeypatch)
    known.hear_of("a", "b", "c")
    with pytest.raises(ServiceError) as refused:
        known.hear_of("d")
    assert (refused.value.status, refused.value.code) == (429, "too_many_runs")
    assert {known.runs.newest(name).version for name in ("a", "b", "c")} == {1}
    known.clock.now += runs.RECENT_S
    known.busy = {"a", "b", "c"}  # live episodes
    with pytest.raises(ServiceError):
        known.hear_of("d")
    known.busy = {"a", "c"}
    known.hear_of("d")
    with pytest.raises(ServiceError):
        known.runs.newest("b")


def test_live_episodes_hold_their_run(toy: Service) -> None:
    put(toy, "r", 1, FAILING)
    assert toy.live.runs() == set()
    params = {"mode": "train", "run_id": "r"}
    toy.ok("/create", env_type="toy", task_id="toy_lamp", instance_id="a", params=params)
    toy.ok("/create", env_type="toy", task_id="toy_lamp", instance_id="b")
    assert toy.live.runs() == {"r"}
    toy.ok("/release", instance_id="a")
    assert toy.live.runs() == set()


def test_a_profile_has_a_size(toy: Service) -> None:
    sent = {**body(1, FAILING), "config": {"x" * 70_000: 1}}
    status, reply = toy.request("PUT", "/runs/r/profile", sent)
    assert (status, reply["error"]["code"]) == (413, "too_large")
    assert "65536 bytes" in reply["error"]["message"]
    # The largest that a trainer sends: every label in every category, with what was shown.
    every = [
        rollout([label], 0.3, f"multi_turn_category_{number}")
        for label in Label
        for number in range(8)
    ]
    interface = newest(toy, "r")["interface"]
    status, _ = toy.request("PUT", "/runs/r/profile", {**body(1, every), "interface": interface})
    assert status == 200
