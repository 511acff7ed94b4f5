import json
import sys
from pathlib import Path

import gpu_smoke
import pytest

from benchmarks.gpu_smoke import configuration, models, update


def test_without_a_gpu_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # an import of it fails
    out = tmp_path / "out"
    assert gpu_smoke.main([f"--out={out}"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("gpu_smoke: no GPU found (") and "try: --cpu" in said
    assert not out.exists()


def test_the_choices_are_the_shapes() -> None:
    assert set(gpu_smoke.SIZES) == {*models.MODELS, configuration.REAL, "tiny"}


def test_a_misspelt_override_is_one_sentence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    argv = ["--cpu", f"--out={tmp_path / 'o'}", "--", "trainer.total_epoch=1"]
    assert gpu_smoke.main(argv) == 1
    assert "did you mean: trainer.total_epochs" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        ["--sizes", "tiny"],
        ["--cpu", "--sizes", "3b"],
        ["--steps=1"],
        ["--gpus=3"],
        ["--sizes", "14b"],
        ["--trainer-only", "--sizes", "smollm2"],
    ],
)
def test_options_that_do_not_go_together(argv: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        gpu_smoke.parse_arguments(argv)


def test_the_recorded_dialogues_are_whole_rollouts() -> None:
    made = update.recorded(100, 1000, "cpu")
    assert len(made) == 48 and max(len(one.ids) for one in made) <= 16384
    for one in made:
        assert 0 < one.own[0] and one.own[-1] < len(one.ids) - 1
        assert len(one.own.unique()) == len(one.own) < len(one.ids) / 4


def test_an_update_is_measured_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On two short dialogues; the figures that need no GPU are there."""
    few = tmp_path / "few.json"
    few.write_text(json.dumps({"dialogues": [[40, 6, 5, 3], [30, 4]]}))
    monkeypatch.setattr(update, "RECORDED", few)
    argv = ["--cpu", "--trainer-only", "--steps=2", f"--out={tmp_path}/out"]
    assert gpu_smoke.main(argv) == 0
    found = json.loads((tmp_path / "out/tiny/update.json").read_text())
    assert (found["tokens"], found["own_tokens"]) == (88, 13)
    # Each dialogue's ratio is 1, and their advantages are opposite.
    assert found["loss"] == 0.0 and found["peak_gb"] is None
    assert 0 < found["rounding"] < 0.1 and found["planned_gb"] > 0
    assert "| their tokens | 88 |" in (tmp_path / "out/update.md").read_text()
    # What is measured already is shown again.
    monkeypatch.delattr(update, "measure")
    assert gpu_smoke.main(argv) == 0
    assert "their tokens" in capsys.readouterr().out


def test_an_update_needs_a_gpu_unless_told_otherwise(tmp_path: Path) -> None:
    assert gpu_smoke.main(["--trainer-only", f"--out={tmp_path}/out"]) == 2
    with pytest.raises(SystemExit):
        gpu_smoke.parse_arguments(["--trainer-only", "--", "data.train_batch_size=2"])
