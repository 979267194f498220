"""What server and client agree on beside the form of values."""

import os

from agentr1_envs.errors import SettingError

PROTOCOL = 1
"""Version of the messages; a server refuses others."""
PATH = "/session"
ENDED = 4000
"""Code with which a server ends a connection whose session is over."""
TOKEN_VARIABLE = "AGENTR1_ENVS_TOKEN"
"""Where server and client look for the token when none is given."""


def without_module(env_id: str) -> str:
    """An id without the module that registers it: "agentr1_envs:agentr1/GSM8K-v0" is "agentr1/GSM8K-v0"."""
    return env_id.rpartition(":")[2]


def find_token(given: str | None) -> str:
    """The token given, or that of the environment variable; empty is none.

    Raises:
        SettingError: it has characters that do not fit into a header.
    """
    token = os.environ.get(TOKEN_VARIABLE, "") if given is None else given
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise SettingError("The token may have printable ASCII characters only, and no blanks.")
    return token
