"""The published evidence: each report is what its logs say."""

import json
from pathlib import Path
from typing import Any

import pytest
from compare import make_report

from seal import ROOT
from seal.study.definition import load_study
from seal.study.launching import study_folder

PUBLISHED = sorted(path.name for path in (ROOT / "evidence").iterdir())


def rounded(path: Path) -> Any:
    """A report, numbers to six digits: another processor may differ in the last ones."""
    return json.loads(path.read_text("utf-8"), parse_float=lambda text: round(float(text), 6))


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_report_is_made_of_its_logs(name: str, tmp_path: Path) -> None:
    study = load_study(ROOT / f"exp/study/{name}.yaml")
    logs = ROOT / "evidence" / name
    published = study_folder(logs, study)
    make_report(study, logs, tmp_path)
    assert rounded(tmp_path / "report.json") == rounded(published / "report.json")
    page = (tmp_path / "report.md").read_text("utf-8")
    assert page == (published / "report.md").read_text("utf-8")
    made = {path.name for path in tmp_path.iterdir()}
    assert made <= {path.name for path in published.iterdir()}
