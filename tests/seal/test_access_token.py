from pathlib import Path

import pytest

from seal.client.access_token import TOKEN_VARIABLE, TokenError, read_token


def test_the_file_wins_over_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "of-the-variable")
    (tmp_path / "token").write_text("  of-the-file\n")
    assert read_token(tmp_path / "token") == "of-the-file"
    assert read_token(None) == "of-the-variable"


@pytest.mark.parametrize("value", [None, "", " \n"])
def test_without_a_file_and_a_variable_there_is_no_token(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(TOKEN_VARIABLE, value)
    assert read_token(None) is None


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenError, match=r"cannot read env_service\.token_file=.*/none: .*No such"):
        read_token(tmp_path / "none")


@pytest.mark.parametrize(
    ("content", "words"),
    [(b" \n", "holds nothing"), (b"two words", "several words"), (b"\xff\xfe", "cannot read")],
)
def test_a_file_without_a_token_is_said(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(TokenError, match=rf"{words}") as caught:
        read_token(tmp_path / "token")
    assert "env_service.token_file=" in str(caught.value)


def test_what_is_no_token_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "pass phrase")
    with pytest.raises(TokenError, match=TOKEN_VARIABLE) as caught:
        read_token(None)
    assert "phrase" not in str(caught.value)
