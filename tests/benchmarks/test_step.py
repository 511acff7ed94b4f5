"""A benchmark of steps: what it leaves running when it is interrupted, and what it refuses."""

from pathlib import Path

import pytest

from benchmarks import launching, step

LAUNCHER = """
import os, pathlib, signal, sys, time


def end(*_):
    time.sleep(0.6)  # as the launcher takes time to end the service, Ray and vLLM
    pathlib.Path("ended").write_text(str(os.getpgid(0) == os.getpid()))
    sys.exit(143)


signal.signal(signal.SIGTERM, end)
pathlib.Path("begun").touch()
time.sleep(60)
"""


def test_an_interrupted_benchmark_lets_the_launcher_end_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    monkeypatch.setattr(launching, "ROOT", tmp_path)
    with pytest.raises(KeyboardInterrupt):
        with launching.launched(Path("exp/x.yaml"), ["a=1"]) as process:
            while not (tmp_path / "begun").exists():
                assert process.poll() is None
            raise KeyboardInterrupt
    assert (tmp_path / "ended").read_text() == "True"


def test_a_run_that_fails_ends_the_benchmark_with_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "launcher.py").write_text("import sys; print(*sys.argv[1:4]); sys.exit('no GPU')")
    monkeypatch.setattr(launching, "ROOT", tmp_path)
    assert step.main(["--conf=exp/x.yaml"]) == 1
    said = capsys.readouterr().err
    assert "step: 'as the recipe has it' failed:\n" in said
    assert "--conf=exp/x.yaml --with-bfcl --" in said and "no GPU" in said


def test_overrides_without_a_name_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        step.main(["--conf=exp/x.yaml", "data.train_batch_size=2"])
    assert "'data.train_batch_size=2' is no variant: expected a name" in capsys.readouterr().err
