"""scripts/explore.py with a scripted model over HTTP, and the real environment service.

The model lies, stalls, breaks JSON, refuses, fails and answers at length. What comes of it is a
file of candidates; the real synthesiser then says which of them it keeps, and why not the others.
"""

import copy
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import explore as command
import pytest
from omegaconf import DictConfig
from scripted_endpoint import Answer, ScriptedEndpoint, said, serving, too_long

from seal import ROOT
from seal.evaluation import endpoint as endpoint_module
from seal.exploration import run as run_module
from seal.exploration import seeds as seeds_module
from seal.exploration.answers import LONGEST_ANSWER, NO_JSON, TOO_LONG
from seal.exploration.faults import ExplorationError
from seal.exploration.proposer import Seed
from seal.exploration.seeds import pool_seeds, split_seeds
from seal.launch.recipe import load_recipe
from seal.records.candidates import Proposed, read_proposed

SERVICE_PYTHON = ROOT / ".venv-bfcl/bin/python"
SPLIT = ROOT / "data/bfcl_clean_split.json"
Explore = Callable[..., tuple[int, str]]
"""Runs the command on an endpoint, with more arguments: exit status and what was printed."""


def program(*arguments: str) -> list[str]:
    return [str(SERVICE_PYTHON), "-m", *arguments]


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    """The address of a real service."""
    started = program("env_service", "--env", "bfcl", "--port", "0", "--workers", "1")
    with subprocess.Popen(started, stderr=subprocess.PIPE, text=True, cwd=ROOT) as running:
        assert running.stderr is not None
        line: dict[str, Any] = {}
        while line.get("message") != "serving":
            line = json.loads(running.stderr.readline())
        # Nobody reads the rest of the log, and the service must not wait for that.
        threading.Thread(target=running.stderr.read, daemon=True).start()
        yield f"http://{line['host']}:{line['port']}"
        running.terminate()


@functools.cache
def seeds_of(path: Path, side: str) -> list[Seed]:
    """As the command reads them, once for all tests."""
    return split_seeds(path, side)


@functools.cache
def recipe() -> DictConfig:
    return load_recipe(run_module.RECIPE, [])


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "split_seeds", seeds_of)
    monkeypatch.setattr(run_module, "load_recipe", lambda *_: copy.deepcopy(recipe()))
    monkeypatch.setattr(endpoint_module, "RETRIES", 0)
    for name in ("OPENAI_API_KEY", "DASHSCOPE_API_KEY", "SEAL_ENV_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def explore(service: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Explore:
    def run(served: ScriptedEndpoint, *arguments: str) -> tuple[int, str]:
        served.model = "liar"
        own = ["--model", served.url, "--name", "liar", "--out", str(tmp_path / "c.jsonl")]
        if "--reword" not in arguments:
            own += ["--split", str(SPLIT), "--env-url", service]
        status = command.main([*own, *arguments])
        printed = capsys.readouterr()
        return status, printed.out + printed.err

    return run


def lines(folder: Path) -> list[Proposed]:
    return read_proposed(folder / "c.jsonl")


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def called(*calls: dict[str, Any]) -> tuple[int, Any]:
    """A message with tool_calls."""
    entries = [
        {
            "id": f"c{n}",
            "type": "function",
            "function": {**one, "arguments": json.dumps(one["arguments"])},
        }
        for n, one in enumerate(calls)
    ]
    return said("", tool_calls=entries)


def late(seconds: float, reply: tuple[int, Any]) -> tuple[int, Any]:
    time.sleep(seconds)
    return reply


def task(text: str, *calls: dict[str, Any]) -> dict[str, Any]:
    return {"turns": [{"text": text, "calls": list(calls)}]}


GOOD = task("Please make the folder alpha_beta here.", call("mkdir", dir_name="alpha_beta"))


def proposes(*tasks: Any) -> Answer:
    """A model that looks once and then proposes tasks."""

    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        if "tools" not in body:
            return said(json.dumps({"tasks": tasks}))
        return said("Enough.") if body["messages"][-1]["role"] == "tool" else called(call("ls"))

    return answer


# ---- seeds ---------------------------------------------------------------------------------------


def test_only_seeds_that_lend_their_worlds_are_explored() -> None:
    training = json.loads(SPLIT.read_text())["train"]
    seeds = [seed.task_id for seed in seeds_of(SPLIT, "train")]
    assert len(seeds) == 68
    assert {*seeds} < {name for name in training if name.startswith("multi_turn_base_")}
    assert {*seeds}.isdisjoint(seed.task_id for seed in seeds_of(SPLIT, "val"))


def test_a_split_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "split.json"
    with pytest.raises(ExplorationError, match="cannot read --split"):
        split_seeds(path, "train")
    path.write_text('{"train": ["multi_turn_base_900"], "val": []}')
    with pytest.raises(ExplorationError, match="^unknown task 'multi_turn_base_900'"):
        split_seeds(path, "train")


def test_without_the_synthesiser_nothing_is_explored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds_module, "PYTHON", Path("/nowhere/.venv-bfcl/bin/python"))
    with pytest.raises(ExplorationError, match=r"\.venv-bfcl is missing, which says the seeds"):
        split_seeds(SPLIT, "train")


# ---- exploring -----------------------------------------------------------------------------------


def test_a_model_explores_without_the_seeds_request(explore: Explore, tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        return called(*[call("ls")] * 3) if "tools" in body else said(json.dumps([GOOD]))

    with serving(answer) as served:
        status, text = explore(served, "--seeds", "1")
    (line,) = lines(tmp_path)
    assert (status, line.author, line.calls) == (0, "liar", 20), text
    assert line.seed_task == "multi_turn_base_0"
    assert line.candidates[0].turns[0].calls[0].arguments == {"dir_name": "alpha_beta"}
    assert line.tokens == 60 * len(served.asked)
    *walked, proposing = served.asked
    # 20 calls, three at a time: the last message is cut to two.
    assert len(walked) == 7
    users = [m["content"] for m in walked[-1]["messages"] if m["role"] == "user"]
    assert users == ["Explore the tools."]
    types = {tool["function"]["parameters"]["type"] for tool in walked[0]["tools"]}
    assert types == {"object"}
    (request,) = proposing["messages"]
    assert request["content"].count('"name": "ls"') == 20
    assert "current_directory_content" in request["content"]


def test_a_model_that_calls_nothing_is_asked_once_more(explore: Explore, tmp_path: Path) -> None:
    with serving(lambda body: said("Hello.")) as served:
        status, _ = explore(served, "--seeds", "1")
    (line,) = lines(tmp_path)
    assert (status, line.calls, line.unreadable) == (0, 0, {NO_JSON: 2})
    assert [m["content"] for m in served.asked[1]["messages"][-2:]] == ["Hello.", "Call a tool."]
    assert len(served.asked) == 4


def test_calls_in_the_text_are_read_in_their_format(explore: Explore, tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        if "tools" not in body:
            return said(json.dumps(GOOD))
        return said("[ls(), ls(a=True), broken(" if len(served.asked) == 1 else "[pwd()]")

    with serving(answer) as served:
        status, _ = explore(served, "--seeds", "1", "--tool-format", "pythonic", "--calls", "3")
    (line,) = lines(tmp_path)
    assert (status, line.calls, len(line.candidates)) == (0, 3, 1)
    assert served.asked[0]["tool_choice"] == "none"


# ---- what goes wrong with one seed ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (lambda: (429, {"error": {"message": "slower"}}), "the endpoint answered 429"),
        (lambda: (500, {"error": {"message": "broken"}}), "the endpoint answered 500"),
        (lambda: (400, {"error": {"message": "unsafe"}}), "the endpoint answered 400"),
        (lambda: (200, b"{not json"), "the endpoint's answer cannot be read"),
        (lambda: (200, {"choices": []}), "answered without choices or usage"),
        (lambda: said(None, tool_calls=["ls"]), "a message or a usage that cannot be read"),
        (lambda: said(["a", "list"]), "a message or a usage that cannot be read"),  # type: ignore[arg-type]
        (lambda: late(8, said("late")), "the endpoint did not answer in time"),
    ],
)
def test_a_seed_fails_alone(
    explore: Explore, tmp_path: Path, reply: Callable[[], tuple[int, Any]], reason: str
) -> None:
    good = proposes(GOOD)

    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        return reply() if len(served.asked) == 1 else good(body)

    limits = ("--answer-seconds", "4", "--concurrency", "1")
    with serving(answer) as served:
        status, text = explore(served, "--seeds", "2", *limits)
        assert (status, len(lines(tmp_path))) == (1, 1), text
        assert reason in text and "1 seeds failed; the same command tries them again" in text
        # The other one took three requests. The failed one is tried again, and only that.
        assert len(served.asked) == 4
        status, text = explore(served, "--seeds", "2", *limits)
        assert (status, len(lines(tmp_path)), len(served.asked)) == (0, 2, 7), text
        assert explore(served, "--seeds", "2", *limits)[0] == 0
        assert len(served.asked) == 7


def test_a_prompt_that_does_not_fit(explore: Explore) -> None:
    with serving(lambda _: too_long()) as served:
        status, text = explore(served, "--seeds", "1")
    assert status == 1 and "does not fit the context of liar" in text


def test_a_seed_may_take_only_so_long(explore: Explore, tmp_path: Path) -> None:
    with serving(lambda _: late(0.3, called(call("ls")))) as served:
        status, text = explore(served, "--seeds", "1", "--seed-seconds", "1")
    assert status == 1 and "not finished after 1 s" in text
    assert lines(tmp_path) == []


@pytest.mark.parametrize(
    ("answers", "unreadable", "candidates"),
    [
        (["{", json.dumps([GOOD])], {NO_JSON: 1}, 1),
        (["I cannot help with that."] * 2, {NO_JSON: 2}, 0),
        (["x" * (LONGEST_ANSWER + 1)] * 2, {TOO_LONG: 2}, 0),
        ([json.dumps([GOOD, task("Go.")])], {"a turn has no calls": 1}, 1),
        ([json.dumps([GOOD] * 9)], {}, 4),
    ],
)
def test_answers_that_cannot_be_read_are_counted(
    explore: Explore,
    tmp_path: Path,
    answers: list[str],
    unreadable: dict[str, int],
    candidates: int,
) -> None:
    left = iter(answers)
    with serving(lambda body: said("No.") if "tools" in body else said(next(left))) as served:
        status, text = explore(served, "--seeds", "1")
    (line,) = lines(tmp_path)
    assert (status, line.unreadable, len(line.candidates)) == (0, unreadable, candidates)
    assert all(f"no candidate: {reason}" in text for reason in unreadable)


# ---- what ends the run ---------------------------------------------------------------------------


def test_an_endpoint_that_is_not_there_ends_the_run(explore: Explore, tmp_path: Path) -> None:
    with serving(proposes(GOOD)) as served:
        pass
    status, text = explore(served)
    assert status == 1
    assert text.startswith(f"explore: the endpoint {served.url} failed: APIConnectionError")
    assert lines(tmp_path) == []


def test_an_endpoint_that_goes_away_ends_the_run(
    explore: Explore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(proposes(GOOD)) as gone:
        pass
    found = run_module._endpoint

    async def elsewhere(url: str, *rest: Any) -> Any:
        return await found(url, *rest) if url != gone.url else (await found(served.url, *rest))

    monkeypatch.setattr(run_module, "_endpoint", elsewhere)
    with serving(lambda _: said("unused")) as served:
        monkeypatch.setattr(served, "model", "liar")
        monkeypatch.setattr(
            run_module, "client_of", lambda _, key: endpoint_module.client_of(gone.url, key)
        )
        status, text = explore(served)
    assert status == 1 and "APIConnectionError" in text and "seeds failed" not in text


@pytest.mark.parametrize(
    ("status", "sentence"),
    [(401, "refuses the key; check the environment variable"), (404, "refuses a request")],
)
def test_what_every_request_meets_ends_the_run(
    explore: Explore, status: int, sentence: str
) -> None:
    with serving(lambda _: (status, {"error": {"message": "no"}})) as served:
        code, text = explore(served, "--concurrency", "1")
    assert (code, len(served.asked)) == (1, 1)
    assert sentence in text


def test_a_model_that_the_endpoint_does_not_have(explore: Explore) -> None:
    with serving(proposes(GOOD)) as served:
        code, text = explore(served, "--name", "other")
    assert (code, served.asked) == (1, [])
    assert "does not serve 'other'; it serves liar" in text


def test_a_service_that_is_not_there_ends_the_run(explore: Explore) -> None:
    with serving(proposes(GOOD)) as served:
        code, text = explore(served, "--env-url", "http://127.0.0.1:9")
    assert code == 1 and "no answer from the environment service at http://127.0.0.1:9" in text


# ---- keys ----------------------------------------------------------------------------------------


def test_a_key_goes_to_its_own_address_alone(
    explore: Explore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: str
) -> None:
    monkeypatch.setenv("DASHSCOPE_API_KEY", "of-dashscope")
    monkeypatch.setenv("MINE", "my-own")
    with serving(proposes(GOOD)) as served:
        explore(served, "--seeds", "1")
        assert {*served.keys} == {"Bearer none"}
        explore(served, "--seeds", "2", "--key-variable", "MINE")
        assert served.keys[-1] == "Bearer my-own"
        monkeypatch.setattr(run_module, "DASHSCOPE", served.url)
        own = ["--name", "qwen-plus", "--split", str(SPLIT), "--env-url", service]
        assert command.main([*own, "--seeds", "1", "--out", str(tmp_path / "d.jsonl")]) == 0
        assert served.keys[-1] == "Bearer of-dashscope"
        assert served.asked[-1]["model"] == "qwen-plus"


def test_a_key_that_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--name", "m", "--split", str(SPLIT), "--out", str(tmp_path / "c.jsonl")]
    assert command.main(own) == 1
    assert "or set DASHSCOPE_API_KEY for DashScope" in capsys.readouterr().err
    assert command.main([*own, "--model", "http://127.0.0.1:9/v1", "--key-variable", "MINE"]) == 1
    assert "--key-variable MINE: it is not set" in capsys.readouterr().err


# ---- the file ------------------------------------------------------------------------------------


def test_other_settings_do_not_go_on_in_the_file(explore: Explore) -> None:
    with serving(proposes(GOOD)) as served:
        assert explore(served, "--seeds", "1")[0] == 0
        status, text = explore(served, "--seeds", "2", "--per-seed", "2")
    assert status == 1 and "asked for in another way (per_seed: 4 there, 2 now)" in text


def test_half_a_line_is_asked_for_again(explore: Explore, tmp_path: Path) -> None:
    with serving(proposes(GOOD)) as served:
        explore(served, "--seeds", "2")
        path = tmp_path / "c.jsonl"
        whole = path.read_bytes()
        path.write_bytes(whole[:-9])
        assert explore(served, "--seeds", "2")[0] == 0
    assert len(lines(tmp_path)) == 2


def test_a_file_of_something_else_is_left_alone(explore: Explore, tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text('{"step": 1}\n')
    with serving(proposes(GOOD)) as served:
        status, text = explore(served, "--seeds", "1")
    assert status == 1 and "it is no file of candidates" in text
    assert path.read_text() == '{"step": 1}\n'


def test_no_seed_is_begun_beyond_the_runs_limits(explore: Explore, tmp_path: Path) -> None:
    with serving(proposes(GOOD)) as served:
        status, text = explore(served, "--seeds", "9", "--tokens", "300", "--concurrency", "1")
        assert (status, len(lines(tmp_path))) == (0, 2)
        assert "the limit of 300 tokens is reached" in text
        status, text = explore(served, "--seeds", "9", "--minutes", "0.0001", "--concurrency", "1")
        assert len(lines(tmp_path)) < 9 and "minutes is reached" in text


def test_ctrl_c_loses_nothing_that_is_finished(service: str, tmp_path: Path) -> None:
    good, waits = proposes(GOOD), threading.Event()

    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        if len(served.asked) > 3:
            waits.set()
            time.sleep(2)
        return good(body)

    out = tmp_path / "c.jsonl"
    with serving(answer) as served:
        served.model = "liar"
        arguments = ["--model", served.url, "--name", "liar", "--split", str(SPLIT)]
        arguments += ["--env-url", service, "--out", str(out), "--concurrency", "1"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        started = [sys.executable, command.__file__, *arguments]
        with subprocess.Popen(
            started, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        ) as child:
            try:
                assert waits.wait(300)  # it starts slowly on a busy machine
                child.send_signal(signal.SIGINT)
                _, text = child.communicate(timeout=60)
            finally:
                child.kill()
    assert child.returncode == 130, text
    assert "interrupted; the same command goes on from here" in text
    assert [line.seed_task for line in lines(tmp_path)] == ["multi_turn_base_0"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--model", "localhost:8000"],
        ["--calls", "21"],
        ["--per-seed", "0"],
        ["--reword", "x", "--with-bfcl"],
    ],
)
def test_a_wrong_command_line(arguments: list[str], tmp_path: Path) -> None:
    split = [] if "--reword" in arguments else ["--split", str(SPLIT)]
    with pytest.raises(SystemExit) as ended:
        command.main([*split, "--name", "m", "--out", str(tmp_path / "c"), *arguments])
    assert ended.value.code == 2


# ---- from the model to a pool --------------------------------------------------------------------

LIES = (
    task("Do what I want.", call("no_such_tool")),
    task("Go to the folder nowhere.", call("cd", folder="nowhere")),
    task("Make a folder.", call("mkdir", dir_name="alpha_gamma")),
    task("Use mkdir for alpha_delta.", call("mkdir", dir_name="alpha_delta")),
    task("Make the folder 5.", call("mkdir", dir_name=5)),
    task("Where am I?", call("pwd")),
)
WHY = {
    "the reference cannot be read",
    "a result reports an error",
    "a value is neither stated nor shown",
    "a message names a tool by its identifier",
    "a call is against its tool's schema",
    "harmless calls pass",
    NO_JSON,
    "its program is there already",
}


def test_the_synthesiser_keeps_what_is_good_and_counts_the_lies(
    explore: Explore, tmp_path: Path
) -> None:
    model = proposes(GOOD, *LIES)

    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        first = "tools" not in body and len(body["messages"]) == 1
        return said("Sorry?") if first else model(body)

    with serving(answer) as served:
        assert explore(served, "--seeds", "2", "--per-seed", "7", "--concurrency", "1")[0] == 0
    made = program("env_service.environments.bfcl.synthesis", "make", "told", "--split", str(SPLIT))
    made += ["--candidates", str(tmp_path / "c.jsonl"), "--root", str(tmp_path)]
    done = subprocess.run(made, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert "of liar" in done.stdout and "1 of 16" in done.stdout
    report = json.loads((tmp_path / "data/synthetic/told.report.json").read_text())
    assert report["authors"] == {"liar": 1}
    assert {*report["refused_by_author"]["liar"]} == WHY
    assert sum(report["refused"].values()) == 15


# ---- rewording -----------------------------------------------------------------------------------


def test_a_pools_tasks_are_reworded(
    explore: Explore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def turns(*texts: str) -> list[list[dict[str, str]]]:
        return [[{"role": "user", "content": text}] if text else [] for text in texts]

    rows = [
        {"task_id": "synthetic_p_000000_17", "turns": turns("Make a.", "", "List it.")},
        {"task_id": "synthetic_p_000001_18", "turns": turns("Refuse.", "Not asked.")},
    ]
    (tmp_path / "p.tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(run_module, "pool_seeds", lambda name: pool_seeds(name, tmp_path))

    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        text = body["messages"][0]["content"].split("\n")[2]
        return said("No.\nNo." if text == "Refuse." else f"{text} Now.")

    with serving(answer) as served:
        status, _ = explore(served, "--reword", "p")
        assert status == 0
        assert explore(served, "--reword", "q")[0] == 1
    by_seed = {line.seed_task: line for line in lines(tmp_path)}
    (candidate,) = by_seed["synthetic_p_000000_17"].candidates
    assert [turn.text for turn in candidate.turns] == ["Make a. Now.", "", "List it. Now."]
    assert by_seed["synthetic_p_000001_18"].unreadable == {"the answer is not one paragraph": 2}
    assert not any("Not asked." in json.dumps(body) for body in served.asked)
