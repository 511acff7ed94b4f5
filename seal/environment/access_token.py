"""The access token of the environment services, where they want one.

In: a file that a setting names, or the environment variable SEAL_ENV_TOKEN. Out: the token. Called
by whoever makes a client (agent loop, trainer, launcher) and by the service itself.
"""

import os
import re
from pathlib import Path

TOKEN_VARIABLE = "SEAL_ENV_TOKEN"
"""Environment variable that holds the token where a recipe names no file."""


class TokenError(Exception):
    """What should be a token is none."""


def read_token(
    token_file: str | Path | None, setting: str = "env_service.token_file="
) -> str | None:
    """The token of the file; without a file that of SEAL_ENV_TOKEN, and None where that is unset.

    Args:
        token_file: Path of a file with nothing but the token; white space around it is left out.
        setting: What named the file, for the error.

    Raises:
        TokenError: The file cannot be read, or what was found cannot be a token.
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
    # What a header can hold. The text itself may be a secret and is never shown.
    if not re.fullmatch(r"[!-~]+", token):
        found = "several words or other characters" if token else "nothing"
        raise TokenError(f"{source} holds {found}; expected one word of ASCII characters")
    return token
