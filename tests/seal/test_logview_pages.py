"""The pages over made up runs: what they show, and that nothing in a file breaks them."""

import itertools
import json
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from logview_material import HOSTILE, write_lines, write_round, write_run, write_validation

from seal.labels import Label
from seal.logview.app import create_app
from seal.logview.charts import style_of
from seal.records.loop_log import LoopLog

OWN = {"/static/style.css", "/static/live.js", "/static/icon.svg"}


class Page(HTMLParser):
    """A page as a browser reads it: its tags and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.pieces: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.pieces).split())

    def links(self) -> list[str]:
        return [attrs["href"] or "" for tag, attrs in self.tags if tag == "a"]


@pytest.fixture
def experiments(tmp_path: Path) -> Path:
    folder = tmp_path / "experiments"
    folder.mkdir()
    return folder


@pytest.fixture
def client(experiments: Path) -> Iterator[TestClient]:
    with TestClient(create_app(experiments), base_url="http://127.0.0.1") as made:
        yield made


def get(client: TestClient, url: str, status: int = 200) -> Page:
    answer = client.get(url)
    assert answer.status_code == status, (url, answer.status_code)
    return Page(answer.text)


def every_page(client: TestClient) -> dict[str, Page]:
    """Each page that a link leads to, from the list of runs on."""
    seen: dict[str, Page] = {}
    waiting = ["/"]
    while waiting:
        url = waiting.pop()
        if url not in seen:
            answer = client.get(url)
            assert answer.status_code in (200, 404), (url, answer.status_code)
            seen[url] = Page(answer.text)
            found = [urljoin(url, link).split("#")[0] for link in seen[url].links()]
            waiting += [link for link in found if link.startswith("/")]
    return seen


def test_every_page_is_reached_from_the_list(client: TestClient, experiments: Path) -> None:
    write_run(experiments)
    pages = every_page(client)
    assert {url for url in pages if "?" not in url} == {
        "/",
        "/runs/trial",
        "/runs/trial/metrics",
        *(f"/runs/trial/steps/{step}" for step in (1, 2)),
        *(f"/runs/trial/steps/{step}/dialogues/{n}" for step in (1, 2) for n in (1, 2, 3, 4)),
        *(f"/runs/trial/validation/{step}" for step in (0, 2)),
        *(f"/runs/trial/validation/{step}/dialogues/{n}" for step in (0, 2) for n in (1, 2, 3)),
    }
    assert not any("Not everything could be read" in page.text for page in pages.values())


def test_the_list_of_runs(client: TestClient, experiments: Path) -> None:
    assert "No run has written anything" in get(client, "/").text
    (experiments / "tiny_policy").mkdir()
    write_run(experiments)
    write_validation(experiments, "evaluated only", 0)
    page = get(client, "/")
    assert "running step_end, step 2" in page.text
    assert "2 50.0 % benchmark 33.3 % (step 2)" in page.text
    runs = [link for link in page.links() if link.startswith("/runs/")]
    assert sorted(runs) == ["/runs/evaluated%20only", "/runs/trial"]
    assert "No round is finished yet" in get(client, "/runs/evaluated%20only").text


def test_a_run_that_has_not_written_for_long(client: TestClient, experiments: Path) -> None:
    import os

    folder = write_run(experiments)
    for path in [*folder.rglob("*"), *(experiments / "tech_synthetic").rglob("*")]:
        os.utime(path, (1_000_000_000, 1_000_000_000))
    assert "trial not running 2001-09-09" in get(client, "/").text


@pytest.mark.parametrize("how", ["done", "failed", "interrupted"])
def test_a_run_that_has_ended_is_not_running(
    client: TestClient, experiments: Path, how: str
) -> None:
    log = LoopLog(write_run(experiments) / "loop")
    assert "trial running" in get(client, "/").text
    log.end(how)
    for url, said in (("/", f"trial {how} 20"), ("/runs/trial", f"trial {how}; last written")):
        page = get(client, url)
        assert said in page.text
        assert not any(attrs.get("class") == "running" for _, attrs in page.tags)
    # It is resumed.
    (experiments / "trial/loop/phases.jsonl").unlink()
    log.phase("rollout", 3)
    assert "trial running rollout, step 3" in get(client, "/").text
    log.progress(5, 8)
    assert "trial running rollout, step 3: 5 of 8 prompts" in get(client, "/").text
    assert "running , rollout of step 3: 5 of 8 prompts" in get(client, "/runs/trial").text


def test_a_run_shows_its_rounds(client: TestClient, experiments: Path) -> None:
    write_run(experiments, rounds=3)
    page = get(client, "/runs/trial")
    # Six turns: four pass.
    assert "step 3 50.0 % " in page.text
    assert "pass 66.7 %" in page.text
    assert "1 / 1.312 / 2 v2" in page.text
    assert "+ schema_cues guideline:missing_tool_call - recovery_feedback" in page.text
    charts = [attrs["aria-label"] for tag, attrs in page.tags if attrs.get("class") == "chart"]
    assert charts == ["Pass rate by step", "Labels, share of turns by step"]
    assert "training, step 2: 50.0 %" in page.text
    assert "validation, benchmark, step 3: 33.3 %" in page.text
    assert "missing_tool_call, step 1: 16.7 %" in page.text


def test_a_step_shows_what_the_interface_said_and_what_changed(
    client: TestClient, experiments: Path
) -> None:
    write_run(experiments, rounds=3)
    assert "the policy saw the untouched benchmark" in get(client, "/runs/trial/steps/1").text
    html = client.get("/runs/trial/steps/3").text
    changes = Page(html[html.index('<ul class="change">') :].split("</ul>")[0]).text
    assert changes.startswith("- recovery_feedback: ")
    assert "+ schema_cues: " in changes
    assert changes.count("+") == changes.count(" - ") + 1 == 1
    assert "guideline:missing_tool_call: Say that" in changes


def test_real_and_synthetic_tasks_are_shown_apart(client: TestClient, experiments: Path) -> None:
    folder = write_run(experiments)
    for url in ("/runs/trial", "/runs/trial/steps/2"):
        assert "ynthetic" not in get(client, url).text
    log = folder / "loop/rounds.jsonl"
    first, second = (json.loads(line) for line in log.read_text("utf-8").splitlines())
    real = {
        "groups": 1,
        "pass_rate": 0.25,
        "mixed_group_share": 1.0,
        "labels": {"pass": 1, "state_mismatch": 3},
    }
    drawn = {**real, "groups": 3, "pass_rate": 0.75, "labels": {"missing_tool_call": 2}}
    first |= {"sources": {"real": real, "synthetic": drawn}, "scores": {}}
    second |= {"sources": {"synthetic": drawn}, "scores": {"state_mismatch": 0.625}}
    write_lines(log, [first, second])
    text = get(client, "/runs/trial/steps/1").text
    shown = text.split("Real and synthetic tasks")[1].split("What the interface said")[0]
    assert "real 1 25.0 % 100.0 %" in shown and "state_mismatch 3" in shown
    assert "synthetic 3 75.0 % 100.0 %" in shown and "missing_tool_call 2" in shown
    assert "were drawn alike" in shown
    text = get(client, "/runs/trial/steps/2").text
    shown = text.split("Real and synthetic tasks")[1].split("What the interface said")[0]
    assert "real 1" not in shown and "with the scores state_mismatch 0.625" in shown
    page = get(client, "/runs/trial")
    charts = [attrs["aria-label"] for tag, attrs in page.tags if attrs.get("class") == "chart"]
    assert charts[2:] == ["Scores that synthetic tasks were drawn with by step"]
    assert "training, real, step 1: 25.0 %" in page.text
    assert "training, synthetic, step 2: 75.0 %" in page.text
    assert "state_mismatch, step 2: 62.5 %" in page.text


def rows(page: Page) -> str:
    return page.text.split("turns: label")[1].split("Pages follow")[0]


def test_a_step_shows_both_measures_of_how_frequent_its_failures_are(
    client: TestClient, experiments: Path
) -> None:
    """Of six turns two failed, each of another kind; two groups were left out."""
    folder = write_run(experiments)
    text = get(client, "/runs/trial/steps/1").text
    shown = text.split("How frequent the failures are")[1].split("Rollouts")[0]
    for label in ("invalid_tool_call", "missing_tool_call"):
        assert " ".join(shown.split(label)[1].split()[:4]) == "50.0 % 16.7 %"
    assert "filtered groups 2" in " ".join(text.split())
    without(folder / "loop/rounds.jsonl", "rates", "filtered_groups")  # as in older logs
    text = get(client, "/runs/trial/steps/1").text
    assert "How frequent" not in text and "filtered groups" not in text


def test_labels_and_dialogues_meet_by_their_uid(client: TestClient, experiments: Path) -> None:
    write_run(experiments)
    page = get(client, "/runs/trial/steps/1")
    assert "line 2 multi_turn_base_1 0 1.25 pass because 0 missing_tool_call because 1" in rows(
        page
    )
    shown = get(client, "/runs/trial/steps/1/dialogues/2")
    assert "Turn 2 missing_tool_call weight 1.25 because 1 user question 1 assistant Done. 1" in (
        shown.text
    )
    assert "reward 0 weight 1.25 interface v1 exit status completed group 1 0" in shown.text
    assert "header" not in shown.text
    # In the loop log they stand the other way round.
    assert (
        "Turn 1 invalid_tool_call weight 2" in get(client, "/runs/trial/steps/1/dialogues/3").text
    )


@pytest.mark.parametrize(
    ("logged", "listed", "fact"),
    [
        ({"exit_status": "max_model_len", "truncated": True}, "max_model_len", "exit status max_"),
        ({"truncated": True}, "truncated", "truncated yes"),  # a log of an older run
        ({"truncated": False}, "", "truncated no"),
    ],
)
def test_the_limit_that_ended_a_rollout_is_named_where_the_log_names_it(
    client: TestClient, experiments: Path, logged: dict[str, Any], listed: str, fact: str
) -> None:
    write_run(experiments)
    log = experiments / "trial/loop/rollouts.jsonl"
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    kept = [{k: v for k, v in line.items() if k != "exit_status"} | logged for line in lines]
    log.write_text("".join(json.dumps(line) + "\n" for line in kept))
    page = rows(get(client, "/runs/trial/steps/1"))
    assert f"line 2 multi_turn_base_1 {listed} 0 1.25".replace("  ", " ") in page
    assert fact in get(client, "/runs/trial/steps/1/dialogues/2").text


@pytest.mark.parametrize(
    ("query", "lines"),
    [
        ("", [1, 2, 3, 4]),
        ("label=pass", [1, 2, 4]),
        ("label=missing_tool_call", [2]),
        ("reward=0", [2, 3]),
        ("category=multi_turn_base&reward=1", [1]),
        ("task=context", [3, 4]),
        ("label=no_such_label", []),
        ("page=999999999999", [1, 2, 3, 4]),
        ("page=x&color=red", [1, 2, 3, 4]),
    ],
)
def test_filters_leave_the_rollouts_that_match(
    client: TestClient, experiments: Path, query: str, lines: list[int]
) -> None:
    write_run(experiments)
    page = get(client, f"/runs/trial/steps/2?{query}")
    assert [link for link in page.links() if "/dialogues/" in link] == [
        f"/runs/trial/steps/2/dialogues/{line}" for line in lines
    ]
    assert f"{len(lines)} of 4 rollouts" in page.text


def test_a_long_list_has_pages(client: TestClient, experiments: Path) -> None:
    folder = write_run(experiments)
    one = json.loads((folder / "rollouts" / "2.jsonl").read_text().splitlines()[0])
    write_lines(folder / "rollouts" / "2.jsonl", [one | {"uid": f"z_{n}_0"} for n in range(450)])
    first = get(client, "/runs/trial/steps/2?reward=1")
    links = [link for link in first.links() if "page=" in link]
    assert [link.split("page=")[1] for link in links] == ["1", "2", "3"]
    third = get(client, f"/runs/trial/steps/2{links[2]}")
    assert "dialogues/450" in "".join(third.links())
    # Two rollouts of the loop log passed whose dialogues are not there.
    assert third.text.count("no dialogue") == 2


def test_a_validation_by_category(client: TestClient, experiments: Path) -> None:
    write_run(experiments)
    page = get(client, "/runs/trial/validation/2")
    assert "multi_turn_base 50.0 % 9.5 % to 90.5 % 2 2" in page.text
    assert "multi_turn_miss_func 0.0 %" in page.text
    assert "average of categories 25.0 %" in page.text
    only = get(client, "/runs/trial/validation/2?label=state_mismatch")
    assert "1 of 3 rollouts" in only.text
    shown = get(client, "/runs/trial/validation/2/dialogues/2")
    assert "Turn 2 state_mismatch user question 1 assistant Yes." in shown.text
    assert "exit status completed tokens, prompt + response 40 + 60" in shown.text


def test_a_log_without_uids_is_said_to_be_one(client: TestClient, experiments: Path) -> None:
    folder = write_run(experiments)
    path = folder / "loop" / "rollouts.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    write_lines(path, [{k: v for k, v in line.items() if k != "uid"} for line in lines])
    page = get(client, "/runs/trial/steps/1")
    assert "does not name its dialogues" in page.text
    assert "8 of 8 rollouts" in page.text
    assert "labels and weight are not known" in get(client, "/runs/trial/steps/1/dialogues/1").text


def without(path: Path, *names: str) -> None:
    """Take fields out of every line of a file, as older logs and kept copies lack them."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    write_lines(path, [{k: v for k, v in line.items() if k not in names} for line in lines])


def test_rounds_without_some_fields_are_shown_with_the_others(
    client: TestClient, experiments: Path
) -> None:
    folder = write_run(experiments, rounds=3)
    without(folder / "loop/rounds.jsonl", "interface_shown", "dropped_groups", "filtered_groups")
    page = get(client, "/runs/trial")
    assert "step 3 50.0 % " in page.text and "1 / 1.312 / 2 - not logged" in page.text
    assert "Not everything could be read" not in page.text
    step = get(client, "/runs/trial/steps/3")
    assert "rollouts 4 dropped groups - weights" in step.text
    assert "this round's line in loop/rounds.jsonl has no interface_shown" in step.text
    assert "the policy saw the untouched benchmark" not in step.text
    without(folder / "loop/rounds.jsonl", "labels", "metrics", "rollouts")
    page = get(client, "/runs/trial")
    assert "step 3 - - / - / - - not logged" in page.text
    assert "Labels, share of turns" not in page.text
    assert "rollouts - dropped" in get(client, "/runs/trial/steps/3").text


def test_an_interface_is_compared_with_the_last_one_that_is_known(
    client: TestClient, experiments: Path
) -> None:
    folder = write_run(experiments, rounds=3)
    path = folder / "loop/rounds.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    del lines[1]["interface_shown"]
    write_lines(path, lines)
    # The second round's would have had recovery_feedback, which is gone in the third.
    assert "+ schema_cues + guideline:missing_tool_call" in get(client, "/runs/trial").text
    assert "Against step 1: + is new" in get(client, "/runs/trial/steps/3").text


def test_pass_rates_that_are_no_metrics_are_counted_from_the_logs(
    client: TestClient, experiments: Path
) -> None:
    folder = write_run(experiments)
    # The metrics have step 2 alone.
    assert "step 0 33.3 %" in get(client, "/runs/trial").text
    write_lines(folder / "metrics.jsonl", [{"step": 2, "data": {"actor/lr": 1e-6}}])
    assert "2 50.0 % benchmark 33.3 % (step 2)" in get(client, "/").text
    page = get(client, "/runs/trial")
    assert "validation, benchmark, step 2: 33.3 %" in page.text
    # What the metrics say comes first.
    rate = {"val-seal/benchmark/pass_rate": 0.75}
    write_lines(folder / "metrics.jsonl", [{"step": 2, "data": rate}])
    assert "benchmark 75.0 % (step 2)" in get(client, "/").text


def test_logs_without_dialogues_lead_to_none(client: TestClient, experiments: Path) -> None:
    folder = write_run(experiments, rounds=1)
    for log in (experiments / "tech_synthetic/trial/validation_log").iterdir():
        without(log, "input", "output", "uid", "prompt_tokens")
    (folder / "rollouts/1.jsonl").unlink()
    kept = ("turn_spans", "environment_s", "training_reward", "time")
    without(folder / "loop/rollouts.jsonl", *kept)
    pages = every_page(client)
    assert not any("/dialogues/" in url for url in pages)
    assert "multi_turn_base 50.0 %" in pages["/runs/trial/validation/0"].text
    assert "no dialogue multi_turn_base_6 benchmark 0 pass state_mismatch" in (
        pages["/runs/trial/validation/0"].text
    )
    step = pages["/runs/trial/steps/1"].text
    assert "no dialogue multi_turn_long_context_2 0 2 invalid_tool_call because 0" in step
    assert "the copy of a study's logs leaves dialogues out" in step
    (folder / "loop/rollouts.jsonl").unlink()
    assert "No rollout of this step is logged" in get(client, "/runs/trial/steps/1").text


def test_a_round_under_way_and_a_line_half_written(client: TestClient, experiments: Path) -> None:
    folder = write_run(experiments)
    dialogues = (folder / "rollouts" / "2.jsonl").read_bytes()
    for cut in (0, 1, 100, len(dialogues) // 2, len(dialogues) - 1):
        (folder / "rollouts" / "3.jsonl").write_bytes(dialogues[:cut])
        rounds = (folder / "loop" / "rounds.jsonl").read_bytes()
        (folder / "loop" / "rounds.jsonl").write_bytes(rounds + b'{"step": 3, "met')
        page = get(client, "/runs/trial/steps/3")
        assert "This round is not finished" in page.text
        assert f"{dialogues[:cut].count(10)} of " in page.text
        assert "step 3" in get(client, "/runs/trial").text
        (folder / "loop" / "rounds.jsonl").write_bytes(rounds)
    write_round(folder, 3)
    assert "4 of 4 rollouts" in get(client, "/runs/trial/steps/3").text


GARBAGE = [
    b"",
    b"\x00\xff\xfe\n",
    b"{}\n",
    b"[]\nnull\n1\n",
    b'{"step": "one", "data": [], "metrics": 1, "turns": 7}\n',
    b'{"step": -1}\n{"step": 1e400}\n{"step": ' + b"9" * 400 + b"}\n",
]


@pytest.mark.parametrize(
    "name",
    [
        "trial/loop/rounds.jsonl",
        "trial/loop/rollouts.jsonl",
        "trial/loop/phases.jsonl",
        "trial/metrics.jsonl",
        "trial/rollouts/1.jsonl",
        "tech_synthetic/trial/validation_log/0.jsonl",
    ],
)
def test_no_file_breaks_a_page(client: TestClient, experiments: Path, name: str) -> None:
    """Every page stays a page with any file garbled, mixed with good lines, missing or a folder."""
    write_run(experiments, rounds=1)
    path = experiments / name
    good = path.read_bytes()
    for garbage in GARBAGE:
        path.write_bytes(garbage)
        every_page(client)
        path.write_bytes(good + garbage + good)
        pages = every_page(client)
        told = any("Not everything could be read" in page.text for page in pages.values())
        # Of the phases only the last one is shown.
        assert told == bool(garbage) or name.endswith("phases.jsonl")
    path.unlink()
    every_page(client)
    path.mkdir()
    every_page(client)


def test_every_field_may_be_of_the_wrong_kind(client: TestClient, experiments: Path) -> None:
    folder = write_run(experiments, rounds=1)
    numbers = (-1, 1.5, float("nan"), float("inf"), 10**400)
    wrong: list[object] = [None, True, *numbers, "", HOSTILE, [], [[]], {}]
    urls = {
        "loop/rounds.jsonl": ("/runs/trial", "/runs/trial/steps/1"),
        "loop/rollouts.jsonl": ("/runs/trial/steps/1", "/runs/trial/steps/1/dialogues/4"),
        "rollouts/1.jsonl": ("/runs/trial/steps/1", "/runs/trial/steps/1/dialogues/1"),
        "loop/phases.jsonl": ("/",),
        "metrics.jsonl": ("/runs/trial", "/runs/trial/metrics"),
    }
    for name in urls:
        path = folder / name
        good = path.read_text()
        line = json.loads(good.splitlines()[0])
        for key, value in itertools.product(line, wrong):
            path.write_text(json.dumps({**line, key: value}) + "\n")
            for url in urls[name]:
                assert client.get(url).status_code in (200, 404)
        path.write_text(good)


def test_hostile_text_stays_text_on_every_page(client: TestClient, experiments: Path) -> None:
    name = HOSTILE.replace("/", "")
    folder = write_run(experiments, name)
    path = write_validation(experiments, name, 1, answer=HOSTILE)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    texts = ("suite", "labels", "task_id", "category")
    write_lines(path, [line | {key: line[key] + HOSTILE for key in texts} for line in lines])
    write_round(folder, 3, reason=HOSTILE, answer=HOSTILE)
    # No writer would log these; a file can hold them.
    for log in ("rounds", "rollouts"):
        path = folder / "loop" / f"{log}.jsonl"
        text = path.read_text()
        for word in ("missing_tool_call", "multi_turn_base", "schema_cues", "aa_0_0"):
            text = text.replace(word, word + json.dumps(HOSTILE)[1:-1])
        path.write_text(text)
    LoopLog(folder / "loop").phase(HOSTILE, 3)
    (folder / "metrics.jsonl").write_text(
        json.dumps({"step": 1, "data": {HOSTILE: 1, f"val-seal/{HOSTILE}/pass_rate": 0.5}}) + "\n"
    )
    pages = every_page(client)
    assert len(pages) > 20
    for url, page in pages.items():
        scripts = [attrs.get("src") for tag, attrs in page.tags if tag == "script"]
        assert scripts == ["/static/live.js"], url
        for tag, attrs in page.tags:
            assert tag != "img", url
            assert not any(key.startswith("on") or key == "style" for key in attrs), url
            for address in (attrs.get("href"), attrs.get("src"), attrs.get("action")):
                assert not address or address in OWN or address.startswith(("/", "?", "#")), url
        assert str(1234 * 5678) not in page.text, url
    assert sum(HOSTILE in page.text for page in pages.values()) > 10


@pytest.mark.parametrize(
    "url",
    [
        "/runs/..",
        "/runs/%2e%2e",
        "/runs/%2e%2e%2fsecret",
        "/runs/..%2f..%2fsecret",
        "/runs/%2fetc",
        "/runs/tech_synthetic",
        "/runs/trial%00",
        "/runs/%ff",
        "/runs/.",
        "/runs/trial/steps/..%2fsecret",
        "/runs/trial/steps/99",
        "/runs/trial/steps/-1",
        "/runs/trial/steps/1.5",
        "/runs/trial/steps/" + "9" * 5000,
        "/runs/trial/steps/1/dialogues/0",
        "/runs/trial/steps/1/dialogues/-1",
        "/runs/trial/steps/1/dialogues/99",
        "/runs/trial/validation/1",
        "/runs/trial/validation/0/dialogues/99",
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/%2e%2e%2fapp.py",
        "/docs",
        "/openapi.json",
    ],
)
def test_an_address_reaches_nothing_else(client: TestClient, experiments: Path, url: str) -> None:
    write_run(experiments)
    secret = write_run(experiments.parent, "secret")
    for path in secret.rglob("*.jsonl"):
        path.write_text(path.read_text().replace("because", "hidden"))
    answer = client.get(url, follow_redirects=False)
    if url in ("/runs/..", "/runs/."):
        # The client, as a browser, makes these / and /runs before it asks.
        assert answer.url.path in ("/", "/runs")
    else:
        assert answer.status_code == 404
    assert "hidden" not in answer.text
    assert "import" not in answer.text


def test_files_that_are_named_after_no_step(client: TestClient, experiments: Path) -> None:
    folder = write_run(experiments, rounds=1)
    for name in ("007", "\u0663", "1e3", "-1", "9" * 40, "x"):
        (folder / "rollouts" / f"{name}.jsonl").write_text("{}\n")
    (experiments / "trial\udcff").mkdir()
    page = get(client, "/runs/trial")
    steps = [link for link in page.links() if "/steps/" in link]
    assert steps == ["/runs/trial/steps/1"]


def test_looking_changes_nothing(client: TestClient, experiments: Path) -> None:
    write_run(experiments)

    def everything() -> dict[Path, tuple[bytes, int]]:
        files = [path for path in experiments.rglob("*") if path.is_file()]
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}

    before = everything()
    every_page(client)
    assert everything() == before
    app = create_app(experiments)
    routes = [route for route in app.routes if isinstance(route, APIRoute)]
    assert len(routes) == 8
    assert all(route.methods == {"GET"} for route in routes)
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert client.request(method, "/runs/trial").status_code == 405


def test_every_answer_forbids_what_is_not_ours(client: TestClient, experiments: Path) -> None:
    write_run(experiments)
    for url in ("/", "/runs/nobody", "/static/live.js", "/healthz", "/nowhere"):
        headers = client.get(url).headers
        policy = dict(
            part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";")
        )
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == "'self'"
        assert headers["x-content-type-options"] == "nosniff"


def test_a_name_elsewhere_that_resolves_to_this_machine_is_refused(client: TestClient) -> None:
    for host, status in [
        ("127.0.0.1:8090", 200),
        ("localhost:8090", 200),
        ("[::1]:8090", 200),
        ("rebound.example:8090", 400),
    ]:
        assert client.get("/", headers={"Host": host}).status_code == status, host


def test_an_unchanged_page_is_not_sent_again(client: TestClient, experiments: Path) -> None:
    folder = write_run(experiments)
    first = client.get("/runs/trial")
    again = {"If-None-Match": first.headers["etag"]}
    assert client.get("/runs/trial", headers=again).status_code == 304
    write_round(folder, 3)
    changed = client.get("/runs/trial", headers=again)
    assert (changed.status_code, "step 3" in changed.text) == (200, True)


def test_the_launcher_learns_that_it_serves(client: TestClient) -> None:
    assert client.get("/healthz").json()["status"] == "ok"


def test_every_label_has_a_colour(client: TestClient) -> None:
    css = client.get("/static/style.css").text
    assert [name for name in [*Label, "other"] if f".label-{name} {{ color: " not in css] == []
    assert style_of("pass") == "label-pass" and style_of("no label") == "label-other"
