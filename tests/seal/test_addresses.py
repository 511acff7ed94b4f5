from dataclasses import dataclass

import pytest

from seal.client.addresses import COOL_DOWN_S, Addresses, url_list

A, B, C = "http://a:1", "http://b:1", "http://c:1"


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def placed(addresses: Addresses, *instance_ids: str) -> list[str | None]:
    return [addresses.place(instance_id) for instance_id in instance_ids]


@pytest.mark.parametrize(("value", "urls"), [(A, (A,)), ([A, B, A], (A, B)), ([], ())])
def test_one_address_or_a_list_each_once(value: str | list[str], urls: tuple[str, ...]) -> None:
    assert url_list(value) == urls


def test_no_address_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match=r"env_service\.env_url"):
        Addresses([])


def test_ties_go_round_from_the_first_one_named() -> None:
    assert placed(Addresses([A, B, C], first=1), *"123456") == [B, C, A, B, C, A]


def test_a_tie_is_not_always_won_by_the_same_address_when_episodes_are_short() -> None:
    addresses, seen = Addresses([A, B], first=0), []
    for instance_id in "1234":
        seen += placed(addresses, instance_id)
        addresses.forget(instance_id)
    assert seen == [A, B, A, B]


def test_clients_begin_at_different_addresses() -> None:
    assert {Addresses([A, B]).place("1") for _ in range(64)} == {A, B}


def test_the_address_with_the_fewest_live_episodes_is_chosen() -> None:
    addresses = Addresses([A, B], first=0)
    assert placed(addresses, *"1234") == [A, B, A, B]
    addresses.forget("2")
    addresses.forget("4")
    assert placed(addresses, *"56") == [B, B]


def test_an_episode_keeps_its_address_until_it_is_forgotten() -> None:
    addresses = Addresses([A, B], first=0)
    placed(addresses, "1", "2")
    assert [addresses.home("1"), addresses.home("2")] == [A, B]
    addresses.forget("1")
    assert addresses.home("1") is None


def test_a_refused_episode_moves_and_counts_once() -> None:
    addresses = Addresses([A, B], first=0)
    assert addresses.place("1") == A
    assert addresses.place("1", {A}) == B
    assert addresses.place("1", {A, B}) is None
    assert addresses.home("1") is None
    assert placed(addresses, *"23") == [A, B]


def test_an_address_is_left_out_for_its_cool_down_then_tried_by_one_episode() -> None:
    clock = Clock()
    addresses = Addresses([A, B], first=0, clock=clock)
    assert addresses.leave_out(A) is True
    clock.now += COOL_DOWN_S - 0.1
    assert placed(addresses, *"123") == [B, B, B]
    clock.now += 0.1
    assert placed(addresses, *"456") == [A, B, B]


def test_an_address_that_still_does_not_answer_stays_left_out_and_is_nothing_new() -> None:
    clock = Clock()
    addresses = Addresses([A, B], first=0, clock=clock)
    addresses.leave_out(A)
    clock.now += COOL_DOWN_S
    assert addresses.leave_out(A) is False
    clock.now += COOL_DOWN_S - 0.1
    assert placed(addresses, *"12") == [B, B]


def test_an_address_that_answers_is_taken_back_at_once() -> None:
    addresses = Addresses([A, B], first=0, clock=Clock())
    addresses.leave_out(A)
    assert addresses.take_back(A) is True
    assert addresses.take_back(A) is False
    assert placed(addresses, *"12") == [A, B]


def test_where_all_are_left_out_they_are_tried_all_the_same() -> None:
    addresses = Addresses([A, B], first=0, clock=Clock())
    addresses.leave_out(A)
    addresses.leave_out(B)
    assert addresses.place("1") == A
    assert addresses.place("1", {A}) == B
    assert addresses.place("1", {A, B}) is None


def test_an_address_left_out_is_no_way_out_of_a_full_one() -> None:
    addresses = Addresses([A, B], first=0, clock=Clock())
    addresses.leave_out(A)
    assert addresses.place("1", {B}) is None
