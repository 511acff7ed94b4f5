"""The environment service as a browser sees it: its page of routes, and other people's pages."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

ROOT = Path(__file__).resolve().parents[2]
SERVICE_PYTHON = ROOT / ".venv-bfcl/bin/python"
CREATE = """
const done = arguments[arguments.length - 1];
const body = JSON.stringify({env_type: "toy", task_id: "toy_lamp"});
fetch("/create", {method: "POST", headers: {"content-type": "application/json"}, body: body})
    .then(reply => reply.json().then(data => done([reply.status, data])));
"""

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    command = [str(SERVICE_PYTHON), "-m", "env_service", "--env", "toy", "--port", "0"]
    service = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        assert service.stderr is not None
        for line in service.stderr:
            said = json.loads(line)
            if said["message"] == "serving":
                break
        yield said["port"]
    finally:
        service.terminate()
        service.communicate(timeout=20)


def test_the_page_of_routes_shows_itself_without_the_internet(
    chromium: webdriver.Chrome, port: int
) -> None:
    chromium.get(f"http://127.0.0.1:{port}/docs")
    heads = [one.text for one in chromium.find_elements(By.TAG_NAME, "h2")]
    assert "POST /create" in heads and "POST /agentevolver/step" in heads
    asked = chromium.execute_script("return performance.getEntriesByType('resource')")
    assert [one["name"] for one in asked if not one["name"].endswith("/favicon.ico")] == []
    assert [one for one in chromium.get_log("browser") if "favicon" not in one["message"]] == []


def test_a_page_of_another_name_reaches_nothing(chromium: webdriver.Chrome, port: int) -> None:
    """DNS rebinding: the page's own name leads to this machine, so the browser lets it ask."""
    chromium.get(f"http://127.0.0.1:{port}/docs")
    status, reply = chromium.execute_async_script(CREATE)
    assert (status, reply["success"]) == (200, True)
    chromium.get(f"http://evil.example:{port}/docs")
    assert "wrong_host" in chromium.page_source
    status, reply = chromium.execute_async_script(CREATE)
    assert (status, reply["error"]["code"]) == (421, "wrong_host")
