"""The published evidence: a report is what its logs say, the page what the reports say."""

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
from compare import REPORT, main

from seal import ROOT
from seal.records.log_archive import ARCHIVE, plain_folder
from seal.study.definition import Study, load_study
from seal.study.effects import effects
from seal.study.intervals import mean
from seal.study.launching import read_runs, report_folder
from seal.study.scores import LAST, counted, read_suite

EVIDENCE = ROOT / "evidence"
PUBLISHED = sorted(path.name for path in EVIDENCE.iterdir())
MOST_FILES = 20
"""Below this, so that the logs of studies stay out of searches and listings."""


def test_the_evidence_is_few_files() -> None:
    # Figures are drawn beside a report when somebody makes it again; git ignores them.
    files = [path for path in EVIDENCE.rglob("*") if path.is_file()]
    assert len([path for path in files if path.suffix not in (".png", ".svg")]) < MOST_FILES
    for name in PUBLISHED:
        assert {ARCHIVE, *REPORT} <= {path.name for path in (EVIDENCE / name).iterdir()}


def rounded(path: Path) -> Any:
    """A report, numbers to six digits: another processor may differ in the last ones."""
    return json.loads(path.read_text("utf-8"), parse_float=lambda text: round(float(text), 6))


def drawn(path: Path) -> str:
    """A figure, numbers to one digit for the same reason."""
    return re.sub(r"\d+\.\d+", lambda found: f"{float(found[0]):.1f}", path.read_text("utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_report_is_made_of_its_logs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = load_study(ROOT / f"exp/study/{name}.yaml")
    published, again, kept = EVIDENCE / name, tmp_path / "again", tmp_path / "kept"
    for logs in (published, published / ARCHIVE):
        assert report_folder(logs, study) == published
    command = [f"exp/study/{name}.yaml", "--report-only", f"--logs={published}"]
    monkeypatch.chdir(ROOT)
    assert main([*command, f"--out={again}", f"--keep={kept}"]) == 0
    assert rounded(again / "report.json") == rounded(published / "report.json")
    page = (again / "report.md").read_text("utf-8")
    assert page == (published / "report.md").read_text("utf-8")
    assert {figure for figure in re.findall(r"\]\((.*?)\)", page)} <= {
        path.name for path in again.iterdir()
    }
    if name == "tiny":
        assert drawn(ROOT / "docs/assets/tiny-study.svg") == drawn(again / "fixed.svg")
    # What is kept of the archive is the archive.
    assert {path.name for path in kept.iterdir()} == {ARCHIVE, *REPORT}
    assert entries(kept / ARCHIVE) == entries(published / ARCHIVE)


def entries(archive: Path) -> dict[str, int]:
    """Sums of an archive's files; another version of zlib compresses them to other bytes."""
    with zipfile.ZipFile(archive) as opened:
        return {entry.filename: entry.CRC for entry in opened.infolist()}


Table = list[list[str]]


def tables(lines: list[str]) -> list[tuple[str, Table]]:
    """Tables of a page, each with the last heading before it; cells without their marks."""
    found: list[tuple[str, Table]] = []
    heading, inside = "", False
    for line in lines:
        if line.startswith("## "):
            heading = line[3:]
        if line.startswith("|"):
            if not inside:
                found.append((heading, []))
            found[-1][1].append([cell.strip(" *`") for cell in line.strip("|").split("|")])
        inside = line.startswith("|")
    return found


def reported(name: str) -> dict[tuple[str, str, str], str]:
    """Cells of a report at the last step, by heading, column and row."""
    cells: dict[tuple[str, str, str], str] = {}
    report = (EVIDENCE / name / "report.md").read_text("utf-8")
    for heading, (header, _, *rest) in tables(report.splitlines()):
        for row, *values in rest:
            for column, value in zip(header[1:], values, strict=True):
                # The first table of a suite is that of the last step.
                cells.setdefault((heading, column, row), value)
    return cells


SECTIONS = {
    "The tiny policy": "tiny",
    "One game for all recipes": "tiny_one_game",
    "SmolLM2-135M": "smollm2",
}
"""Headings of the page, and the study that each is about."""
COLUMNS = {"passed", "failed", "with interface"}
"""Columns of the page that are about the suite with the interface."""


def place(study: Study, column: str) -> tuple[str, str]:
    """Heading and column of a report for a column of the page."""
    suite = "fixed_with_interface" if column in COLUMNS else study.suites[0]
    if column in study.suites:
        suite = column
    named = {"with interface": "mean", "difference to `vanilla": "difference"}
    return f"Suite {suite}", "mean" if column == suite else named.get(column, column)


def test_the_page_has_the_figures_of_the_reports() -> None:
    checked = set()
    page = (ROOT / "docs/evidence.md").read_text("utf-8").splitlines()
    for heading, (header, _, *rest) in tables(page):
        if SECTIONS.get(heading) not in PUBLISHED:
            continue
        name = SECTIONS[heading]
        study, cells = load_study(ROOT / f"exp/study/{name}.yaml"), reported(name)
        for row, *values in rest:
            for column, value in zip(header[1:], values, strict=True):
                if row in study.recipes:
                    told = cells[(*place(study, column), row)]
                elif row.startswith("seal/"):
                    told = cells["Training", column, row]
                else:
                    continue
                assert value == told, (heading, row, column)
                checked.add((name, row, column))
    assert {name for name, *_ in checked} == set(PUBLISHED)
    assert ("tiny", "seal", "difference to `vanilla") in checked
    assert ("tiny", "seal/entropy", "seal") in checked


EFFECTS = {
    "main effect of the interface": "main effect of interface",
    "main effect of the weights": "main effect of weights",
    "interaction": "interaction",
}
"""Columns of the page's table of the 2 x 2 design, and rows of the report's."""
TOGETHER = "fixed` and `progress` together"


def told_effects() -> dict[str, dict[str, str]]:
    """The page's table of the 2 x 2 design: cells by suite and by row of the report."""
    page = (ROOT / "docs/evidence.md").read_text("utf-8").splitlines()
    (table,) = [rows for _, rows in tables(page) if "interaction" in rows[0]]
    header, _, *rest = table
    names = [EFFECTS[column] for column in header[1:]]
    return {suite: dict(zip(names, cells, strict=True)) for suite, *cells in rest}


def test_the_page_has_the_effects_of_the_report() -> None:
    cells, suites = reported("tiny"), load_study(ROOT / "exp/study/tiny.yaml").suites
    told = told_effects()
    assert set(told) == {*suites, TOGETHER}
    for suite in suites:
        assert told[suite] == {
            effect: cells[f"Suite {suite}", "points", effect] for effect in EFFECTS.values()
        }
    assert "Looked at afterwards (post hoc)" in (ROOT / "docs/evidence.md").read_text("utf-8")


@pytest.mark.slow
def test_the_effects_in_two_suites_together_are_of_all_their_rollouts() -> None:
    study = load_study(ROOT / "exp/study/tiny.yaml")
    assert study.factorial is not None
    with plain_folder(EVIDENCE / "tiny") as logs:
        every = read_runs(logs, study)
    runs = {run: logs for run, logs in every.items() if run[0] in study.factorial.cells}
    both = [read_suite(name, runs) for name in ("fixed", "progress")]
    assert both[0].tasks == both[1].tasks
    scores = {}
    for cell in study.factorial.cells:
        found = [counted(suite, cell, LAST, runs, study) for suite in both]
        passes = [one.passes for one in found if one is not None]
        scores[cell] = (passes[0] + passes[1]) / sum(suite.rollouts for suite in both)
    scenarios = [task.rpartition("_")[2] for task in both[0].tasks]
    for effect, matrix in effects(study.factorial, scores).items():
        one = mean(matrix, both[0].categories, scenarios)
        assert one.low is not None and one.high is not None
        points = f"{100 * one.value:+.1f} ({100 * one.low:+.1f} to {100 * one.high:+.1f})"
        name = effect if effect == "interaction" else f"main effect of {effect}"
        assert told_effects()[TOGETHER][name] == points
