"""What --plan says of the project's own studies before anything has run."""

from pathlib import Path

import pytest
from compare import plan

from seal import ROOT
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
