"""scripts/evaluate.py: what it refuses, and that a sentence says why."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import evaluate as command
import pytest
from scripted_endpoint import said, serving

from seal import ROOT
from seal.evaluation.settings import keep_settings
from seal.evaluation.tables import TABLE_1
from seal.launch.recipe import load_recipe

ENDPOINT = ("--model", "http://127.0.0.1:9/v1")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SERPAPI_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def evaluate(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str]:
    """Exit status and what is said of it."""
    status = command.main([*map(str, arguments)])
    return status, capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--suite", "bfcl_v4_web"), "SERPAPI_API_KEY"),
        (("--suite", "tau2"), "OPENAI_API_KEY"),
        (("--suite", "bfcl_v3", "--backbone", "qwen1"), "qwen1"),
    ],
)
def test_what_is_missing_is_named_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], named: str
) -> None:
    out = tmp_path / "out"
    status, text = evaluate(capsys, *ENDPOINT, *arguments, "--out", out)
    assert (status, named in text) == (1, True), text
    assert not out.exists()


def test_a_folder_that_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--model", tmp_path, "--suite", "bfcl_v3", "--out", tmp_path / "out")
    status, text = evaluate(capsys, *arguments)
    assert status == 1
    assert "no folder with config.json and *.safetensors" in text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_closed_terminal_ends_an_evaluation_as_ctrl_c_does(tmp_path: Path, number: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        program = [sys.executable, command.__file__, "--suite", "bfcl_v3", "--model", url]
        with subprocess.Popen([*program, "--out", str(tmp_path)], stderr=subprocess.PIPE) as child:
            asking, _ = silent.accept()
            with asking:  # the endpoint does not answer
                child.send_signal(number)
                child.wait(60)
            assert child.stderr is not None
            assert b"interrupted; the same command goes on" in child.stderr.read()
        assert child.returncode == 130


def test_a_service_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(lambda _: said("Done.")) as served:
        status, text = evaluate(
            capsys,
            *("--model", served.url, "--suite", "bfcl_v3", "--out", tmp_path / "out"),
            *("--env-url", "http://127.0.0.1:9"),
        )
    assert status == 1
    assert "no answer from the environment service at http://127.0.0.1:9" in text


def test_another_model_in_the_same_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep_settings(tmp_path / "bfcl_v3", {"suite": "bfcl_v3", "model": "another"})
    with serving(lambda _: said("Done.")) as served:
        arguments = ("--model", served.url, "--suite", "bfcl_v3", "--out", tmp_path)
        status, text = evaluate(capsys, *arguments)
    assert status == 1
    assert f"model: 'another' there, '{served.url}' now" in text


def test_another_model_at_the_same_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(lambda _: said("Done."), "vllm") as served:
        arguments = ("--model", served.url, "--suite", "bfcl_v3", "--out", tmp_path)
        evaluate(capsys, *arguments, "--env-url", "http://127.0.0.1:9")
        served.model = "n"
        status, text = evaluate(capsys, *arguments, "--env-url", "http://127.0.0.1:9")
    kept = json.loads((tmp_path / "bfcl_v3/settings.json").read_text())
    assert kept["served"] == {"id": "m", "root": "weights", "max_model_len": 1000}
    assert status == 1
    assert "is the evaluation of something else (served: {'id': 'm'" in text


def test_a_folder_is_named_after_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, tasks = ROOT / "exp/SEAL.yaml", ROOT / "data/bfcl_eval_400.parquet"
    monkeypatch.setattr("seal.evaluation.evaluate.OUT", tmp_path)
    with serving(lambda _: said("Done.")) as served:
        served.model = "/models/seal"
        arguments = ("--model", served.url, "--suite", "bfcl_v3", "--env-url", "http://127.0.0.1:9")
        evaluate(capsys, *arguments, "--conf", recipe, "--parquet", tasks)
    kept = tmp_path / "models_seal/bfcl_v3/settings.json"
    settings = json.loads(kept.read_text())
    assert settings["parquet"][0] == "bfcl_eval_400.parquet"
    assert settings["expected"] == dict.fromkeys(TABLE_1[:-1], 100)


def test_a_context_that_the_recipe_leaves_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(lambda _: said("Done.")) as served:
        _, text = evaluate(
            capsys,
            *("--model", served.url, "--suite", "bfcl_v3", "--out", tmp_path),
            *("--override", "actor_rollout_ref.rollout.max_model_len=null"),
            *("--env-url", "http://127.0.0.1:9"),
        )
    assert "no answer from the environment service" in text
    settings = json.loads((tmp_path / "bfcl_v3/settings.json").read_text())
    recipe = load_recipe(ROOT / "exp/SEAL.yaml", []).data
    lengths = recipe.max_prompt_length + recipe.max_response_length
    assert settings["decoding"]["max_context_tokens"] == lengths
    # The start failed, and its folder is no reason for tables to.
    assert command.main(["--table", f"SEAL={tmp_path}"]) == 0
    assert "SEAL, bfcl_v3: not evaluated" in capsys.readouterr().out


def test_a_wrong_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (
        ["--suite", "bfcl_v3"],
        [*ENDPOINT, "--suite", "bfcl_v3", "--", "--dtype", "float32"],
        [*ENDPOINT, "--suite", "bfcl_v3", "--tasks", "0"],
        ["--model", "folder", "--suite", "tau2", "--tool-format", "structured"],
    ):
        with pytest.raises(SystemExit) as ended:
            command.main(wrong)
        assert ended.value.code == 2
    with pytest.raises(SystemExit):
        command.main([*ENDPOINT, "--suite", "bfcl_v3", "--trials", "many"])
    expected = "--trials: 'many', expected a whole number of at least 1"
    assert expected in capsys.readouterr().err
