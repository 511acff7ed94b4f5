"""The viewer on this project's own runs: the archives of its studies' logs in evidence/."""

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urljoin

import pytest
from fastapi.testclient import TestClient

from seal import ROOT
from seal.logview.app import create_app
from seal.records.log_archive import ARCHIVE, plain_folder
from seal.study.definition import load_study

EVIDENCE = ROOT / "evidence"
PUBLISHED = sorted(path.name for path in EVIDENCE.iterdir())
ROW = re.compile(r"<tr>(.*?)</tr>", re.DOTALL)
TAG = re.compile(r"<[^>]*>")


@pytest.fixture(params=PUBLISHED)
def study(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(study: str) -> Iterator[TestClient]:
    with plain_folder(EVIDENCE / study) as logs:
        app = create_app(logs / "experiments")
        with TestClient(app, base_url="http://127.0.0.1") as made:
            yield made


def get(client: TestClient, url: str) -> str:
    answer = client.get(url)
    assert answer.status_code == 200, (url, answer.text)
    assert "Not everything could be read" not in answer.text, url
    return answer.text


def rows(html: str) -> dict[str, str]:
    """Text of the rows of a page's tables, by their first cell."""
    found = {}
    for row in ROW.findall(html):
        first, _, rest = row.partition("</th>")
        found[" ".join(TAG.sub(" ", first).split())] = " ".join(TAG.sub(" ", rest).split())
    return found


def published(study: str) -> dict[str, Any]:
    """The study's report."""
    return dict(json.loads((EVIDENCE / study / "report.json").read_text("utf-8")))


def finished(study: str) -> dict[str, tuple[str, int]]:
    """Recipe and seed of every run that the study's report counts, by name."""
    return {
        run["name"]: (run["recipe"], run["seed"])
        for run in published(study)["runs"]
        if run["state"] == "finished"
    }


def seed_scores(study: str, suite: str) -> dict[tuple[str, int], float]:
    """The report's score of each run at the last step."""
    return {
        (one["recipe"], seed): score
        for one in published(study)["suites"][suite]["figures"]
        if (one["tasks"], one["step_rule"]) == ("all", "last")
        for seed, score in zip(one["seeds"], one["by_seed"], strict=True)
    }


def test_the_list_has_a_pass_rate_and_validations_of_every_run(
    client: TestClient, study: str
) -> None:
    listed = rows(get(client, "/"))
    runs = finished(study)
    assert runs and set(runs) <= set(listed)
    suites = load_study(ROOT / f"exp/study/{study}.yaml").suites
    scores = {suite: seed_scores(study, suite) for suite in suites}
    last = max(step for one in published(study)["runs"] for step in [one["steps"]])
    for name, run in runs.items():
        assert re.search(rf" {last} \d+\.\d % ", listed[name]), listed[name]
        for suite in suites:
            # Suites with one category: the rate of all rollouts is the average of categories.
            rate = f"{100 * scores[suite][run]:.1f}"
            assert f"{suite} {rate} % (step {last})" in listed[name]


def test_every_run_shows_its_rounds_with_the_interface_and_its_validations(
    client: TestClient, study: str
) -> None:
    steps = {run["name"]: run["steps"] for run in published(study)["runs"]}
    with zipfile.ZipFile(EVIDENCE / study / ARCHIVE) as archive:
        kept = [PurePosixPath(path) for path in archive.namelist()]
    for name in finished(study):
        html = get(client, f"/runs/{name}")
        assert "No round is finished yet" not in html
        rounds, _, validations = html.partition('id="validations"')
        told = rows(rounds)
        for step in range(1, steps[name] + 1):
            # Pass rate, weights and version of the interface.
            shown = rf"^\d+\.\d % .* v{step - 1} (none|\+|[a-z_]+)"
            assert re.search(shown, told[f"step {step}"]), (name, told[f"step {step}"])
        folder = PurePosixPath("experiments/tech_synthetic") / name / "validation_log"
        logs = {path.stem for path in kept if path.parent == folder}
        told = rows(validations)
        assert {one.removeprefix("step ") for one in told if one.startswith("step ")} == logs
        assert all("%" in cells for one, cells in told.items() if one.startswith("step "))


@pytest.mark.slow
def test_every_page_of_every_run_is_there(client: TestClient, study: str) -> None:
    seen: set[str] = set()
    waiting = ["/"]
    while waiting:
        url = waiting.pop()
        if url not in seen:
            seen.add(url)
            links = re.findall(r'<a [^>]*href="([^"]*)"', get(client, url))
            found = [urljoin(url, link.replace("&amp;", "&")).partition("#")[0] for link in links]
            waiting += [link for link in found if link.startswith("/")]
    for run in published(study)["runs"]:
        if run["state"] == "finished":
            assert f"/runs/{run['name']}/metrics" in seen
            steps = {f"/runs/{run['name']}/steps/{step}" for step in range(1, run["steps"] + 1)}
            assert steps <= seen
    # The copies have no dialogues, so no page leads to one.
    assert not any("/dialogues/" in url for url in seen)
