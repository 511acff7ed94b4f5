"""The log viewer in a real headless Chromium, served as a user starts it.

Needs Debian's packages chromium and chromium-driver; without them the tests are skipped.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from logview_material import HOSTILE, write_round, write_run, write_validation
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.browser


@dataclass(frozen=True)
class Served:
    """A viewer over a folder of runs."""

    experiments: Path
    url: str


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    experiments = tmp_path / "experiments"
    write_run(experiments)
    process = subprocess.Popen(
        [sys.executable, "-m", "seal.logview", "--experiments", str(experiments), "--port", "0"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = re.search(r"http://\S+:\d+", process.stdout.readline())
        assert url is not None
        yield Served(experiments, url[0])
    finally:
        process.terminate()
        process.communicate(timeout=20)


@pytest.fixture
def browser(chromium: webdriver.Chrome, served: Served) -> Iterator[webdriver.Chrome]:
    """The browser, which leaves before the viewer ends; what made it complain fails the test."""
    # A page of an earlier test may still ask a viewer that has ended.
    chromium.get("about:blank")
    chromium.get_log("browser")
    yield chromium
    assert chromium.get_log("browser") == []
    chromium.get("about:blank")


def text(browser: webdriver.Chrome, where: str = "main") -> str:
    # textContent, unlike what Selenium calls text, is not changed by styles. In one call: a page
    # that follows a run may put another element in the place of one that was found before.
    found = browser.execute_script("return document.querySelector(arguments[0]).textContent", where)
    return " ".join(str(found).split())


def click(browser: webdriver.Chrome, link: str) -> None:
    browser.find_element(By.LINK_TEXT, link).click()


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def is_at(browser: webdriver.Chrome, end: str) -> Callable[[], bool]:
    return lambda: browser.current_url.endswith(end)


def test_from_the_list_to_a_dialogue_and_back(browser: webdriver.Chrome, served: Served) -> None:
    browser.get(served.url)
    assert "trial" in text(browser)
    click(browser, "trial")
    assert browser.title.startswith("trial")
    # The charts are drawn, in colours that the style sheet gives.
    lines = browser.find_elements(By.CSS_SELECTOR, "svg.chart polyline")
    assert len(lines) == 2 + 3
    # There were two validations; the pass rate of the first is no metric, but in its log.
    assert [line.size["width"] > 100 for line in lines] == [True, True, True, True, True]
    colours = {line.value_of_css_property("stroke") for line in lines[2:]}
    assert len(colours) == 3
    click(browser, "step 2")
    assert "+ recovery_feedback:" in text(browser, "ul.change")
    click(browser, "line 2")
    assert "question 1" in text(browser)
    assert "missing_tool_call" in text(browser, "section:nth-of-type(3) h2")
    system = browser.find_element(By.CSS_SELECTOR, "article.system pre")
    assert not system.is_displayed()
    browser.find_element(By.CSS_SELECTOR, "article.system summary").click()
    assert system.is_displayed()
    assert system.text == "You have tools."


def test_keys_lead_through_the_dialogues(browser: webdriver.Chrome, served: Served) -> None:
    browser.get(f"{served.url}/runs/trial/steps/1/dialogues/1")
    for key, end in [("j", "/2"), ("j", "/3"), ("k", "/2"), ("u", "/steps/1")]:
        browser.find_element(By.TAG_NAME, "body").send_keys(key)
        wait_for(is_at(browser, end))
    # In a form they are letters.
    task = browser.find_element(By.NAME, "task")
    task.send_keys("juk", Keys.ENTER)
    wait_for(lambda: "task=juk" in browser.current_url)
    # The first thing that Tab reaches leads past the links at the top.
    browser.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    assert browser.switch_to.active_element.text == "To the content"


def test_a_filter_leaves_what_was_asked_for(browser: webdriver.Chrome, served: Served) -> None:
    browser.get(f"{served.url}/runs/trial/steps/1")
    Select(browser.find_element(By.NAME, "label")).select_by_visible_text("missing_tool_call")
    browser.find_element(By.CSS_SELECTOR, ".filters button").click()
    wait_for(lambda: text(browser, "#count") == "1 of 4 rollouts")
    links = browser.find_elements(By.CSS_SELECTOR, ".rollouts tbody a")
    assert [link.text for link in links] == ["line 2"]
    chosen = Select(browser.find_element(By.NAME, "label")).first_selected_option
    assert chosen.text == "missing_tool_call"
    click(browser, "Show all")
    wait_for(lambda: text(browser, "#count") == "4 of 4 rollouts")


def test_hostile_text_is_shown_and_does_nothing(browser: webdriver.Chrome, served: Served) -> None:
    write_round(served.experiments / "trial", 3, reason=HOSTILE, answer=HOSTILE)
    write_validation(served.experiments, "trial", 3, answer=HOSTILE)
    run = f"{served.url}/runs/trial"
    for address in ("steps/3", "steps/3/dialogues/2", "validation/3/dialogues/1"):
        browser.get(f"{run}/{address}")
        # A script or a failed image would act within this time.
        time.sleep(0.3)
        assert browser.title.startswith("trial")
        assert browser.find_elements(By.CSS_SELECTOR, "main script, main img") == []
        assert HOSTILE in text(browser)
    # The page that follows a run puts text in by another way.
    browser.get(f"{run}/steps/3")
    log = served.experiments / "trial" / "loop" / "rollouts.jsonl"
    log.write_text(
        log.read_text().replace(
            json.dumps(HOSTILE)[1:-1] + " 1", "new " + json.dumps(HOSTILE)[1:-1]
        )
    )
    wait_for(lambda: f"new {HOSTILE}" in text(browser))
    time.sleep(0.3)
    assert browser.title.startswith("trial")
    assert browser.find_elements(By.CSS_SELECTOR, "main script, main img") == []


def test_what_escaping_would_miss_the_policy_stops(
    chromium: webdriver.Chrome, served: Served
) -> None:
    """Markup put into the page by hand: the browser runs none of it."""
    chromium.get(served.url)
    chromium.execute_script(
        "document.querySelector('main').innerHTML = "
        "'<img src=x onerror=\"document.title=1\"><img src=http://127.0.0.1:9/>';"
        "const s = document.createElement('script'); s.textContent = 'document.title = 2';"
        "document.body.append(s);"
    )
    time.sleep(0.3)
    assert chromium.title == "Runs - SEAL log viewer"
    said = " ".join(entry["message"] for entry in chromium.get_log("browser"))
    assert "inline script" in said
    assert "inline event handler" in said
    assert "http://127.0.0.1:9/" in said


def test_a_page_follows_the_run(browser: webdriver.Chrome, served: Served) -> None:
    browser.get(f"{served.url}/runs/trial")
    browser.execute_script("window.sameDocument = true")
    browser.execute_script("document.querySelector('.rounds a[href$=\"/steps/1\"]').focus()")
    assert "step 3" not in text(browser)
    write_round(served.experiments / "trial", 3)
    wait_for(lambda: "step 3" in text(browser))
    assert browser.execute_script("return window.sameDocument") is True
    focused = browser.execute_script("return document.activeElement.getAttribute('href')")
    assert focused == "/runs/trial/steps/1"
    assert len(browser.find_elements(By.CSS_SELECTOR, ".rounds tbody tr")) == 3


def test_what_is_being_typed_is_not_taken_away(browser: webdriver.Chrome, served: Served) -> None:
    browser.get(f"{served.url}/runs/trial/steps/1")
    task = browser.find_element(By.NAME, "task")
    task.send_keys("base")
    log = served.experiments / "trial" / "loop" / "rollouts.jsonl"
    log.write_text(log.read_text().replace("because 1", "because of this"))
    time.sleep(7)
    assert task.get_property("value") == "base"
    assert "because of this" not in text(browser)
    task.send_keys(Keys.ENTER)
    wait_for(lambda: "because of this" in text(browser))


def test_dark_and_narrow(browser: webdriver.Chrome, served: Served) -> None:
    browser.get(f"{served.url}/runs/trial/steps/1")
    grounds = set()
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        body = browser.find_element(By.TAG_NAME, "body")
        grounds.add(
            (body.value_of_css_property("background-color"), body.value_of_css_property("color"))
        )
    assert len(grounds) == 2
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 420, "height": 800, "deviceScaleFactor": 1, "mobile": False},
    )
    for address in ("", "/runs/trial", "/runs/trial/steps/1", "/runs/trial/steps/1/dialogues/2"):
        browser.get(served.url + address)
        # A wide table moves within its own frame.
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 420, address
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
