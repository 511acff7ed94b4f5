"""Worker processes: limits, deaths, and that neither costs anybody else an episode."""

import asyncio
import errno
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import faulty
import pytest
from serving import FAST, Service, serve

from env_service.environments.base import SelfCheckFailed
from env_service.workers import worker_handle
from env_service.workers.pool import Limits
from seal.formats import ToolCall, render_calls

STOPPED = "Error during execution: the call was stopped, "
ADD = ToolCall("add", {"amount": 1})


@pytest.fixture
def service() -> Iterator[Service]:
    yield from serve({"toy": "faulty:Faulty"}, limits=FAST)


def create(service: Service, instance_id: str) -> None:
    service.ok("/create", env_type="toy", task_id="toy_mixed", instance_id=instance_id)


def texts(service: Service, instance_id: str, *calls: ToolCall) -> list[str]:
    reply = service.say(instance_id, render_calls(calls, "hermes"))
    return [message["content"] for message in reply["state"]]


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments)


def counted(service: Service, name: str) -> float:
    lines = service.metrics.text().decode().splitlines()
    (value,) = (line.split()[1] for line in lines if line.startswith(f"env_service_{name} "))
    return float(value)


def wait_until(service: Service, holds: Callable[[], bool], at_most_s: float = 10.0) -> None:
    """Let the service go on until something holds."""

    async def watch() -> None:
        async with asyncio.timeout(at_most_s):
            while not holds():
                await asyncio.sleep(0.02)

    service.runner.run(watch())


@pytest.mark.parametrize(
    ("over", "why"),
    [
        (call("wait", seconds=60), "as it took longer than 0.5 s"),
        (call("compute"), "as it took longer than 0.5 s"),
        (call("grow"), "as it took too much memory"),
        (call("shout"), "as the results of the message have over 1000000 characters"),
        (call("die"), "as it ended the process that ran it"),
    ],
)
def test_a_call_over_a_limit_is_an_error_observation(
    service: Service, over: ToolCall, why: str
) -> None:
    create(service, "a")
    assert texts(service, "a", ADD) == ['{"total": 1}']
    assert texts(service, "a", ADD, over, ADD) == [
        '{"total": 2}',
        STOPPED + why,
        "Error during execution: not run, as an earlier call of the message was stopped",
    ]
    assert texts(service, "a", ADD) == ['{"total": 3}']
    # The verdict replays the episode; what was stopped is not run again.
    started = time.monotonic()
    assert service.ok("/evaluate", instance_id="a")["accuracy"] == 3.0
    assert time.monotonic() - started < 0.5
    assert counted(service, "calls_stopped_total") == 1


def test_slow_calls_of_one_message_share_a_limit(service: Service) -> None:
    create(service, "a")
    got = texts(service, "a", *[call("wait", seconds=0.4)] * 8)
    done = got.count("wait: done")
    assert 1 <= done <= 3 and got[done].startswith(STOPPED)


def test_a_slow_call_delays_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker, and limits long enough to tell waiting from being stopped."""
    mark = tmp_path / "mark"
    monkeypatch.setenv(faulty.MARK, str(mark))
    patient = Service({"toy": "faulty:Faulty"}, limits=Limits(workers=1, call_time_s=20.0))
    for instance_id in ("slow", "other"):
        create(patient, instance_id)
    texts(patient, "other", ADD)

    async def play() -> tuple[float, str]:
        message = {
            "role": "assistant",
            "content": render_calls([call("hold")], "hermes"),
        }
        slow = asyncio.ensure_future(
            patient.send("POST", "/step", {"instance_id": "slow", "messages": message})
        )
        await asyncio.sleep(0.1)
        started = time.monotonic()
        message = {"role": "assistant", "content": render_calls([ADD], "hermes")}
        _, reply = await patient.send(
            "POST", "/step", {"instance_id": "other", "messages": message}
        )
        waited = time.monotonic() - started
        assert not slow.done()
        mark.touch()
        assert (await slow)[0] == 200
        return waited, reply["data"]["state"][0]["content"]

    waited, text = patient.runner.run(play())
    assert text == '{"total": 2}'
    assert waited < 5
    # Two are at work again, of whom one is let go.
    wait_until(patient, lambda: len(patient.pool.pids) == 1)
    assert texts(patient, "slow", ADD) == ['{"total": 1}']
    patient.close()


def test_slow_calls_of_a_run_do_not_stop_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More slow calls than there may be processes; one worker is wanted, four there may be."""
    mark = tmp_path / "mark"
    monkeypatch.setenv(faulty.MARK, str(mark))
    patient = Service({"toy": "faulty:Faulty"}, limits=Limits(workers=1, call_time_s=30.0))
    slow = [f"slow {number}" for number in range(6)]
    for instance_id in [*slow, "other"]:
        run = {"mode": "train", "run_id": instance_id.split()[0]}
        spec = {"env_type": "toy", "task_id": "toy_mixed", "instance_id": instance_id}
        patient.ok("/create", **spec, params=run)

    def step(instance_id: str, made: ToolCall) -> asyncio.Task[tuple[int, Any]]:
        message = {"role": "assistant", "content": render_calls([made], "hermes")}
        body = {"instance_id": instance_id, "messages": message}
        return asyncio.create_task(patient.send("POST", "/step", body))

    async def play() -> list[float]:
        holding = [step(instance_id, call("hold")) for instance_id in slow]
        await asyncio.sleep(3.0)  # as many as may have got a process
        waits = []
        for _ in range(3):
            started = time.monotonic()
            async with asyncio.timeout(15):
                assert (await step("other", ADD))[0] == 200
            waits.append(time.monotonic() - started)
        assert not any(one.done() for one in holding)
        assert len(patient.pool.pids) <= 4
        mark.touch()
        async with asyncio.timeout(60):
            assert [(await one)[0] for one in holding] == [200] * len(slow)
        return waits

    waits = patient.runner.run(play())
    assert max(waits) < 10
    patient.close()


def test_an_episode_at_work_is_not_idle(service: Service) -> None:
    for instance_id in ("at work", "idle"):
        create(service, instance_id)

    async def play() -> int:
        message = {
            "role": "assistant",
            "content": render_calls([call("wait", seconds=0.2)], "hermes"),
        }
        body = {"instance_id": "at work", "messages": message}
        step = asyncio.ensure_future(service.send("POST", "/step", body))
        await asyncio.sleep(0.05)
        service.clock.now += 2 * FAST.idle_timeout_s
        service.live.expire()
        return (await step)[0]

    assert service.runner.run(play()) == 200
    assert texts(service, "at work", ADD) == ['{"total": 1}']
    assert service.refused("/get_info", instance_id="idle")[:2] == (410, "instance_expired")


def test_a_killed_worker_costs_no_episode(service: Service) -> None:
    for instance_id in ("a", "b"):
        create(service, instance_id)
        texts(service, instance_id, ADD)
    for total in (2, 3):
        for pid in service.pool.pids:
            os.kill(pid, signal.SIGKILL)
        for instance_id in ("a", "b"):
            assert texts(service, instance_id, ADD) == [f'{{"total": {total}}}']
    assert service.ok("/evaluate", instance_id="a")["accuracy"] == 3.0
    assert service.request("GET", "/healthz")[0] == 200


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "unseen"])
@pytest.mark.parametrize("path", ["/step", "/evaluate"])
def test_a_request_whose_worker_is_stopped_is_answered_by_another(
    service: Service, monkeypatch: pytest.MonkeyPatch, path: str, seen: bool
) -> None:
    """Where the system does not tell that the process is stopped, its time limit does."""
    if seen:
        monkeypatch.setattr(worker_handle, "MARGIN_S", 1000.0)
    else:
        monkeypatch.setattr(worker_handle, "MARGIN_S", 0.2)
        monkeypatch.setattr(worker_handle.WorkerHandle, "stopped", False)
    create(service, "a")
    texts(service, "a", ADD)
    # What a stopped process is asked may take longer by the replay that verifying is.
    monkeypatch.setattr(worker_handle, "replay_limit_s", lambda call_time_s, taken_s: call_time_s)
    (stopped,) = service.pool.pids
    os.kill(stopped, signal.SIGSTOP)

    async def ask() -> tuple[int, Any]:
        message = {"role": "assistant", "content": render_calls([ADD], "hermes")}
        body = {"instance_id": "a", **({"messages": message} if path == "/step" else {})}
        async with asyncio.timeout(30):
            asked = asyncio.create_task(service.send("POST", path, body))
            await asyncio.sleep(0.1)
            # A client that has given up and tries again is told to wait, and not for ever.
            meanwhile = await service.send("POST", "/evaluate", {"instance_id": "a"})
            assert meanwhile[1]["error"]["code"] == "instance_busy"
            return await asked

    status, reply = service.runner.run(ask())
    assert status == 200, reply
    if path == "/step":
        assert reply["data"]["state"][0]["content"] == '{"total": 2}'
    wait_until(service, lambda: stopped not in service.pool.pids)
    assert counted(service, "workers_ended_total") == 1
    assert texts(service, "a", ADD)


def test_a_process_that_is_stopped_before_it_is_ready_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_handle, "START_S", 3.0)
    patched = Service({"toy": "faulty:Faulty"})
    (first,) = patched.pool.pids
    os.kill(first, signal.SIGKILL)
    wait_until(patched, lambda: bool(patched.pool.pids) and patched.pool.pids != (first,))
    (second,) = patched.pool.pids
    os.kill(second, signal.SIGSTOP)
    wait_until(patched, lambda: bool(patched.pool.pids) and second not in patched.pool.pids, 20)
    create(patched, "a")
    assert texts(patched, "a", ADD) == ['{"total": 1}']
    patched.close()


def test_a_request_whose_worker_dies_is_answered_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(faulty.MARK, str(tmp_path / "mark"))
    patched = Service({"toy": "faulty:Faulty"})
    create(patched, "a")
    texts(patched, "a", ADD)
    assert texts(patched, "a", ADD, call("die_once"), ADD) == [
        '{"total": 2}',
        "die_once: done",
        '{"total": 3}',
    ]
    assert counted(patched, "workers_ended_total") == 1
    assert counted(patched, "calls_stopped_total") == 0
    patched.close()


def test_a_failure_of_the_environment_is_a_status_and_final(service: Service) -> None:
    create(service, "a")
    message = {"role": "assistant", "content": render_calls([call("raise")], "hermes")}
    status, code, text = service.refused("/step", instance_id="a", messages=message)
    assert (status, code) == (500, "environment_error")
    assert "OSError" in text and "secret" not in text
    broken = (409, "episode_broken")
    assert service.refused("/step", instance_id="a", messages=message)[:2] == broken
    assert service.refused("/evaluate", instance_id="a")[:2] == broken
    service.ok("/release", instance_id="a")
    assert counted(service, "environment_errors_total") == 1


def test_without_workers_the_service_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    monkeypatch.setenv(faulty.MARK, str(mark))
    service = Service({"toy": "faulty:BreaksLater"})
    create(service, "a")
    mark.touch()
    (pid,) = service.pool.pids
    os.kill(pid, signal.SIGKILL)
    message = {"role": "assistant", "content": render_calls([ADD], "hermes")}
    refused = service.refused("/step", instance_id="a", messages=message, params={"step": 0})
    assert refused[:2] == (503, "no_worker")
    assert service.request("GET", "/healthz")[0] == 503
    mark.unlink()
    wait_until(service, lambda: service.pool.healthy)
    assert service.request("GET", "/healthz")[0] == 200
    assert texts(service, "a", ADD) == ['{"total": 1}']
    service.close()


def test_memory_that_is_short_in_a_replay_is_not_blamed_on_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    monkeypatch.setenv(faulty.MARK, str(mark))
    service = Service({"toy": "faulty:Faulty"})
    create(service, "a")
    assert texts(service, "a", ADD, call("tight")) == ['{"total": 1}', "tight: done"]
    (pid,) = service.pool.pids
    os.kill(pid, signal.SIGKILL)
    mark.touch()
    assert texts(service, "a", ADD) == ['{"total": 2}']
    assert not mark.exists()
    # A call that runs for the first time is tried again, too: others may have used the memory up.
    mark.touch()
    assert texts(service, "a", call("tight")) == ["tight: done"]
    assert counted(service, "calls_stopped_total") == 0
    service.close()


def test_an_episode_that_is_not_resident_is_rebuilt_and_counted() -> None:
    small = Service({"toy": "faulty:Faulty"}, replace(FAST, resident_episodes=2))
    names = ("a", "b", "c")
    for instance_id in names:
        create(small, instance_id)
    assert counted(small, "episodes_rebuilt_total") == 0
    for total in (1, 2):
        for instance_id in names:
            assert texts(small, instance_id, ADD) == [f'{{"total": {total}}}']
    # Each is forgotten before its next step.
    assert counted(small, "episodes_rebuilt_total") == 6
    small.close()


def test_every_worker_lists_a_set_in_the_same_order(service: Service) -> None:
    create(service, "a")
    said = texts(service, "a", call("set"))
    for _ in range(3):
        (pid,) = service.pool.pids
        os.kill(pid, signal.SIGKILL)
        assert texts(service, "a", call("set")) == said


def test_a_process_that_cannot_be_started_is_tried_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(service, "a")
    monkeypatch.setattr("env_service.workers.worker_handle.subprocess.Popen", no_process)
    (pid,) = service.pool.pids
    os.kill(pid, signal.SIGKILL)
    message = {"role": "assistant", "content": render_calls([ADD], "hermes")}
    body = {"instance_id": "a", "messages": message, "params": {"step": 0}}
    refused = service.refused("/step", **body)
    assert refused[:2] == (503, "no_worker")
    monkeypatch.undo()
    wait_until(service, lambda: service.pool.healthy)
    assert texts(service, "a", ADD) == ['{"total": 1}']


def test_after_a_lost_step_agentevolver_gets_no_reward(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its AgentFlow swallows what /step raises, and takes what /evaluate then says for a reward."""
    body = {"env_type": "toy", "task_id": "toy_mixed", "instance_id": "a"}
    service.ok("/agentevolver/create", **body)
    monkeypatch.setattr("env_service.workers.worker_handle.subprocess.Popen", no_process)
    (pid,) = service.pool.pids
    os.kill(pid, signal.SIGKILL)
    message = {"role": "assistant", "content": render_calls([ADD], "hermes")}
    step = {"instance_id": "a", "messages": message}
    assert service.refused("/agentevolver/step", **step)[:2] == (503, "no_worker")
    monkeypatch.undo()
    wait_until(service, lambda: service.pool.healthy)
    for sparse in (True, False):
        refused = service.refused(
            "/agentevolver/evaluate", instance_id="a", params={"sparse": sparse}
        )
        assert refused[:2] == (409, "step_lost")
    # One that sends the step again goes on as if nothing had been: one call has run.
    assert '{"total": 1}' in service.ok("/agentevolver/step", **step)["state"][0]["content"]
    assert service.ok("/agentevolver/evaluate", instance_id="a", params={"sparse": True}) == 1.0


def no_process(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOMEM, "Cannot allocate memory")


def test_no_service_without_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("env_service.workers.worker_handle.subprocess.Popen", no_process)
    with pytest.raises(SelfCheckFailed, match="Cannot allocate memory"):
        Service({"toy": "faulty:Faulty"})


def test_closing_waits_for_nobody(service: Service) -> None:
    for instance_id in ("a", "b", "c"):
        create(service, instance_id)

    async def stop() -> float:
        message = {
            "role": "assistant",
            "content": render_calls([call("wait", seconds=60)], "hermes"),
        }
        bodies = [{"instance_id": one, "messages": message} for one in ("a", "b", "c")]
        asked = [asyncio.ensure_future(service.send("POST", "/step", body)) for body in bodies]
        await asyncio.sleep(0.2)
        for one in asked[1:]:
            one.cancel()
        started = time.monotonic()
        await service.pool.close()
        await asyncio.gather(*asked, return_exceptions=True)
        return time.monotonic() - started

    assert service.runner.run(stop()) < 3.0


def test_a_broken_episode_is_not_created_again_under_its_name(service: Service) -> None:
    create(service, "a")
    message = {"role": "assistant", "content": render_calls([call("raise")], "hermes")}
    service.refused("/step", instance_id="a", messages=message)
    body = {"env_type": "toy", "task_id": "toy_mixed", "instance_id": "a"}
    assert service.refused("/create", **body)[:2] == (409, "instance_exists")
    service.ok("/release", instance_id="a")
    create(service, "a")
    assert texts(service, "a", ADD) == ['{"total": 1}']
