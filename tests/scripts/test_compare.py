"""What --plan says before anything has run, and what is said of a bad archive."""

from pathlib import Path

import pytest
from compare import main, plan

from seal import ROOT
from seal.records.log_archive import ARCHIVE
from seal.study.definition import load_study


@pytest.mark.parametrize(
    ("name", "places", "said"),
    [
        ("paper_table3", 1, ["15 runs, 0 finished", "75.0 h left", "GPU hours: 300 left (4 GPUs"]),
        ("paper_table3", 3, ["25.0 h left", "GPU hours: 300 left (4 GPUs"]),
        ("tiny", 2, ["49 runs, 0 finished", "8 min a run (the study's estimate)"]),
    ],
)
def test_a_plan_says_what_a_study_costs(
    name: str, places: int, said: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan(load_study(ROOT / f"exp/study/{name}.yaml"), tmp_path, places)
    printed = capsys.readouterr().out
    assert all(one in printed for one in said), printed
    assert ("GPU hours" in printed) == (name != "tiny")


@pytest.mark.parametrize("only", ["--plan", "--report-only"])
def test_a_bad_archive_is_one_sentence(
    only: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ARCHIVE).write_text("half of it is missing")
    study = str(ROOT / "exp/study/smollm2.yaml")
    for logs in (tmp_path, tmp_path / ARCHIVE):
        assert main([study, only, f"--logs={logs}"]) == 1
        said = capsys.readouterr().err
        assert said.startswith(f"compare: {tmp_path / ARCHIVE} is damaged or no zip file")
        assert said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == [ARCHIVE]
