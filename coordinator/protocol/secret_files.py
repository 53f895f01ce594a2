"""The token of a standalone coordinator, and other files with secrets: read at the edge, by service and clients.

Rule: a secret is in no error, log or ``repr``, and a file that others may read is not taken. "Others" are neither the
owner nor the group: Kubernetes gives a pod its secrets by group.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from coordinator.protocol.errors import InvalidToken, TokenMissing, UnsafeFile, UnusableFile

TOKEN_VARIABLE = "SHAREGROUP_COORDINATOR_TOKEN"  # noqa: S105 - names, no secrets
TOKEN_KEY = "share.coordinator.token.file"  # noqa: S105
SHORTEST_TOKEN = 16
_TOKEN = re.compile(r"[\x21-\x7e]+")


def read_token(path: str, environ: Mapping[str, str] = os.environ) -> str:
    """From the file, or, if none is named, from the environment. TokenMissing, InvalidToken; those of read_secret."""
    if path:
        text, source = read_secret(TOKEN_KEY, path).decode("utf-8", "replace").strip(), path
    else:
        text, source = environ.get(TOKEN_VARIABLE, "").strip(), TOKEN_VARIABLE
    if not text and not path:
        raise TokenMissing()
    if not _TOKEN.fullmatch(text):
        raise InvalidToken(source=source, reason="it must be one word of visible ASCII characters.")
    if len(text) < SHORTEST_TOKEN:
        raise InvalidToken(source=source, reason=f"it has less than {SHORTEST_TOKEN} characters, and can be guessed.")
    return text


def read_secret(key: str, path: str) -> bytes:
    """The content of a file that only its user and group may touch. UnsafeFile; those of read_file."""
    content = read_file(key, path)
    mode = Path(path).stat().st_mode
    if mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
        raise UnsafeFile(path=path, what="read" if mode & stat.S_IROTH else "write")
    return content


def read_file(key: str, path: str) -> bytes:
    """The content of the file that the configuration key names. UnusableFile."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UnusableFile(key=key, path=path, reason=error.strerror or type(error).__name__) from None
