"""The example in docs/environment.md does what it says."""

import textwrap
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import running

PAGE = Path(__file__).parents[2] / "docs" / "environment.md"


def example() -> str:
    block = PAGE.read_text("utf-8").partition("Ten lines of httpx")[2].partition("    import httpx")
    return textwrap.dedent(block[1] + block[2].partition("\n\n- ")[0])


def test_the_ten_lines_play_an_episode(capsys: pytest.CaptureFixture[str]) -> None:
    code = example()
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    lamp_on = '<tool_call>\n{"name": "switch_lamp", "arguments": {"on": true}}\n</tool_call>'
    said = iter([lamp_on, "Done."])
    with running() as (_, address):
        for shown, used in (
            ("http://127.0.0.1:8082", address),
            ('"bfcl"', '"toy"'),
            ("multi_turn_base_0", "toy_lamp"),
        ):
            assert shown in code
            code = code.replace(shown, used)
        names: dict[str, Any] = {"policy": lambda messages: next(said)}
        exec(code, names)
        names["env"].close()
    assert capsys.readouterr().out == "1.0 {'released': True}\n"


def test_the_page_of_routes_needs_nothing_but_itself() -> None:
    with running() as (_, address), httpx.Client(base_url=address) as client:
        reply = client.get("/docs")
        paths = client.get("/openapi.json").json()["paths"]
    assert reply.headers["content-type"].startswith("text/html")
    assert "http://" not in reply.text and "https://" not in reply.text
    assert "<script" not in reply.text and "<link" not in reply.text
    for path in paths:
        assert f" {path}</h2>" in reply.text
    # A field of a request, of its params, and of an answer, each with what is said of it.
    for word in ("instance_id", "interface_version", "tool_format", "is_terminated", "accuracy"):
        assert f"<code>{word}</code>" in reply.text
    assert "Default: &#x27;hermes&#x27;." in reply.text
    assert "Open an episode of a task." in reply.text
