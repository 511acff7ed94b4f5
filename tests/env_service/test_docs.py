"""The example in docs/environment.md does what it says."""

import textwrap
from pathlib import Path

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
        names = {"policy": lambda messages: next(said)}
        exec(code, names)
        names["env"].close()  # type: ignore[attr-defined]
    assert capsys.readouterr().out == "1.0 {'released': True}\n"
