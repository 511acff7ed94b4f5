"""Which replica a dialogue's requests go to: verl's own client and balancer, scripted servers."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from rollouts import TRAIN, World, agent, backbone, configuration
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput
from verl.workers.rollout.router import GlobalRequestLoadBalancer

from seal.client.client import EnvironmentClient, EnvironmentFault
from seal.train import agent_loop

DIALOGUES = 8
REPLICAS = 4


class Actor:
    """An object as Ray would show it: `actor.method.remote(...)` is awaited."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._wrapped, name)

        def remote(*args: Any, **kwargs: Any) -> asyncio.Future[Any]:
            result = method(*args, **kwargs)
            if not asyncio.iscoroutine(result):
                done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                done.set_result(result)
                return done
            return asyncio.ensure_future(result)

        return type("Method", (), {"remote": staticmethod(remote)})


@dataclass
class Replica:
    """A server: says the same to all, and takes turns with the others while it does."""

    ids: list[int]
    requests: list[tuple[str, list[int]]] = field(default_factory=list)

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        self.requests.append((request_id, list(prompt_ids)))
        await asyncio.sleep(0)
        logprobs = [-0.5] * len(self.ids)
        return TokenOutput(token_ids=self.ids, log_probs=logprobs, extra_fields={"global_steps": 0})


def dialogues(replicas: list[Replica]) -> list[list[int]]:
    """Of each dialogue, the replicas of its requests in order, told apart by what they continue."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    model = backbone("smollm2")
    for number, replica in enumerate(replicas):
        for _, prompt in replica.requests:
            task = model.decode(prompt).split("light the lamp of ")[1].split("<")[0]
            found[task].append((len(prompt), number))
    return [[number for _, number in sorted(requests)] for requests in found.values()]


class NamedWorld(World):
    """Each task says which one it is; a dialogue can lose its first instance."""

    def _data(self, path: str, body: dict[str, Any]) -> Any:
        data = super()._data(path, body)
        if path == "/create":
            data["state"] = [{"role": "user", "content": f"light the lamp of {body['task_id']}"}]
        return data


def play(
    monkeypatch: pytest.MonkeyPatch, world: World, number: int, **limits: int
) -> list[Replica]:
    """As many rollouts at once."""
    model = backbone("smollm2")
    replicas = [Replica(model.encode("Done<|im_end|>")) for _ in range(REPLICAS)]
    balancer = GlobalRequestLoadBalancer({str(i): Actor(one) for i, one in enumerate(replicas)})
    config = configuration(model, **limits)

    async def run() -> None:
        client = LLMServerClient(config, Actor(balancer))
        transport = httpx.MockTransport(world)
        async with EnvironmentClient("http://service", "toy", transport=transport) as service:
            monkeypatch.setattr(agent_loop, "_client", lambda *_: service)
            rows = [{**TRAIN, "task_id": f"toy_{one}"} for one in range(number)]
            loops = [agent(model, config, client) for _ in rows]
            await asyncio.gather(
                *(
                    one.run({"temperature": 1.0}, extra_info=row, global_steps=1, session_id=0)
                    for one, row in zip(loops, rows, strict=True)
                )
            )

    asyncio.run(run())
    return replicas


def test_all_requests_of_a_dialogue_go_to_one_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    replicas = play(monkeypatch, NamedWorld(), DIALOGUES)
    found = dialogues(replicas)
    assert [len(requests) for requests in found] == [4] * DIALOGUES
    assert [len(set(requests)) for requests in found] == [1] * DIALOGUES
    # Dialogues are still spread: each takes the replica with the fewest requests under way.
    assert all(replica.requests for replica in replicas)
    # The engine sees each request under its own id: two are never alike.
    ids = [one for replica in replicas for one, _ in replica.requests]
    assert len(set(ids)) == len(ids) == 4 * DIALOGUES


def test_a_fresh_instance_stays_with_the_replica_that_knows_its_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = [("/evaluate", 500, "internal_error")] * 2
    for _ in range(5):
        replicas = play(monkeypatch, NamedWorld(faults=list(lost)), 1)
        (requests,) = dialogues(replicas)
        assert len(requests) == 3 * 4
        assert len(set(requests)) == 1


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ({}, DIALOGUES),
        ({"max_dialogues": 3}, 3),
        ({"max_dialogues": 1}, 1),
        # This worker's share of five, rounded up.
        ({"max_dialogues": 5, "num_workers": 2}, 3),
    ],
)
def test_no_more_dialogues_than_wanted_are_under_way(
    monkeypatch: pytest.MonkeyPatch, limits: dict[str, int], most: int
) -> None:
    world = NamedWorld()
    play(monkeypatch, world, DIALOGUES, **limits)
    under_way, seen, begun = 0, 0, []
    for path, body in world.requests:
        under_way += {"/create": 1, "/release": -1}.get(path, 0)
        seen = max(seen, under_way)
        if path == "/create":
            begun.append(int(body["task_id"].removeprefix("toy_")))
    assert seen == most
    # Rollouts of a group stand side by side in a batch, and are played so.
    assert sorted(begun) == list(range(DIALOGUES))
    assert all(abs(place - number) < most for place, number in enumerate(begun))


def test_a_dialogue_that_fails_leaves_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    world = NamedWorld(faults=[("/create", 500, "internal_error")] * 3)
    with pytest.raises(EnvironmentFault):
        play(monkeypatch, world, 1, max_dialogues=1)
    world = NamedWorld(faults=[("/evaluate", 500, "internal_error")])
    play(monkeypatch, world, DIALOGUES, max_dialogues=1)
    assert len(world.asked("/create")) == DIALOGUES + 1
