"""scripts/evaluate.py: what it refuses, and that a sentence says why."""

from pathlib import Path

import evaluate as command
import pytest
from scripted_endpoint import said, serving

from seal.evaluation.settings import keep_settings

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
    status, text = evaluate(capsys, *ENDPOINT, "--suite", "bfcl_v3", "--out", tmp_path)
    assert status == 1
    assert "model: 'another' there, 'http://127.0.0.1:9/v1' now" in text


def test_a_wrong_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (
        ["--suite", "bfcl_v3"],
        [*ENDPOINT, "--suite", "bfcl_v3", "--", "--dtype", "float32"],
        [*ENDPOINT, "--suite", "bfcl_v3", "--tasks", "0"],
    ):
        with pytest.raises(SystemExit) as ended:
            command.main(wrong)
        assert ended.value.code == 2
