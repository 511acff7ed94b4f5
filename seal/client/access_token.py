"""The access token of the environment services, if they need one.

In: a file that a setting names, or the environment variable SEAL_ENV_TOKEN. Out: the token.
"""

import ipaddress
import os
import re
from pathlib import Path

TOKEN_VARIABLE = "SEAL_ENV_TOKEN"
"""Environment variable that holds the token if a recipe names no file."""


class TokenError(Exception):
    """There is no valid token where one is expected."""


def read_token(
    token_file: str | Path | None, setting: str = "env_service.token_file="
) -> str | None:
    """The token in the file; without a file that of SEAL_ENV_TOKEN, or None if that is unset.

    Args:
        token_file: Path of a file that holds only the token; white space around it is ignored.
        setting: The setting that names the file, for the error.

    Raises:
        TokenError: The file cannot be read, or its content cannot be a token.
    """
    if token_file is None:
        source, token = TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE, "").strip()
        if not token:
            return None
    else:
        source = f"{setting}{token_file}"
        try:
            token = Path(token_file).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise TokenError(f"cannot read {source}: {error}") from error
    # The characters of a header. The text may be a secret, so no error shows it.
    if not re.fullmatch(r"[!-~]+", token):
        content = "several words or other characters" if token else "nothing"
        raise TokenError(f"{source} holds {content}; expected one word of ASCII characters")
    return token


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address; a service at any other needs a token."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
