"""The published evidence: a report is what its logs say, the page what the reports say."""

import json
from pathlib import Path
from typing import Any

import pytest
from compare import make_report

from seal import ROOT
from seal.study.definition import load_study
from seal.study.launching import study_folder

EVIDENCE = ROOT / "evidence"
PUBLISHED = sorted(path.name for path in EVIDENCE.iterdir())
REPORTS = {name: EVIDENCE / name / "experiments/study" / name for name in PUBLISHED}


def rounded(path: Path) -> Any:
    """A report, numbers to six digits: another processor may differ in the last ones."""
    return json.loads(path.read_text("utf-8"), parse_float=lambda text: round(float(text), 6))


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_report_is_made_of_its_logs(name: str, tmp_path: Path) -> None:
    study = load_study(ROOT / f"exp/study/{name}.yaml")
    logs, published = EVIDENCE / name, REPORTS[name]
    assert study_folder(logs, study) == published
    make_report(study, logs, tmp_path)
    assert rounded(tmp_path / "report.json") == rounded(published / "report.json")
    page = (tmp_path / "report.md").read_text("utf-8")
    assert page == (published / "report.md").read_text("utf-8")
    made = {path.name for path in tmp_path.iterdir()}
    assert made <= {path.name for path in published.iterdir()}


def rows(page: Path) -> list[list[str]]:
    """The cells of all tables of a page, without their marks."""
    lines = page.read_text("utf-8").splitlines()
    return [
        [cell.strip(" *`") for cell in line.strip("|").split("|")]
        for line in lines
        if line.startswith("|")
    ]


def test_the_page_has_the_figures_of_the_reports() -> None:
    reported = [row for folder in REPORTS.values() for row in rows(folder / "report.md")]
    named = {row[0] for row in reported} - {"recipe"}
    told = [row for row in rows(ROOT / "docs/evidence.md") if row[0] in named]
    assert {"vanilla", "seal", "seal/entropy"} <= {row[0] for row in told}
    for name, *cells in told:
        known = {cell for row in reported if row[0] == name for cell in row}
        assert set(cells) <= known
    drawn = (ROOT / "docs/assets/tiny-study.svg").read_bytes()
    assert drawn == (REPORTS["tiny"] / "fixed.svg").read_bytes()
