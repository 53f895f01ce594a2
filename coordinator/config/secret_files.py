"""Reads the token of a standalone coordinator, and other files with secrets, and checks directories for them. Service
and clients use this module.

Rule: a secret is in no error, log or ``repr``, and a file that others may read is refused. "Others" are neither the
owner nor the group: Kubernetes gives a pod its secrets by group. A coordinator reads its tokens once, at its start, in
:mod:`coordinator.service.standalone`."""

from __future__ import annotations

import os
import re
import secrets
import ssl
import stat
from collections.abc import Mapping
from pathlib import Path

from coordinator.protocol.errors import InvalidToken, TokenMissing, UnsafeDirectory, UnsafeFile, UnusableFile
from coordinator.protocol.rights import Right, Tokens

TOKEN_VARIABLE = "SHAREGROUP_COORDINATOR_TOKEN"  # noqa: S105 - names, no secrets
TOKEN_KEY = "share.coordinator.token.file"  # noqa: S105
RUNTIME_VARIABLE = "SHAREGROUP_RUNTIME_DIR"
TOKEN_BYTES = 32
"""make_token makes tokens of this many random bytes."""


def read_token(path: str, environ: Mapping[str, str] = os.environ, rights: tuple[Right, ...] = (Right.MEMBER,)) -> str:
    """The token in the file, or, without a path, in the environment. If there are several tokens, ``rights`` is
    searched in order, and the first token that has the right is returned.

    Raises:
        TokenMissing: there is no token.
        InvalidToken: a token is too short, or not one word of visible ASCII characters; or no token has the rights.
        UnsafeFile, UnusableFile: see :func:`read_secret`."""
    tokens = read_tokens(path, environ)
    for right in rights:
        for token, caller in tokens.holders:
            if right in caller.rights:
                return token
    named = " or ".join(f"`{right.value}`" for right in rights)
    raise InvalidToken(source=path or TOKEN_VARIABLE, reason=f"none of its tokens has the right {named}.")


def read_tokens(path: str, environ: Mapping[str, str] = os.environ) -> Tokens:
    """Returns all tokens of the file, or, without a path, of the environment. Raises as :func:`read_token`."""
    if path:
        text, source = read_secret(TOKEN_KEY, path).decode("utf-8", "replace").strip(), path
    else:
        text, source = environ.get(TOKEN_VARIABLE, "").strip(), TOKEN_VARIABLE
    if not text and not path:
        raise TokenMissing()
    return Tokens.parse(text, source)


def make_token(key: str, path: str) -> None:
    """Write a new token to a new file that only its user can read. ``key``: the option that names the file, for errors.
    Raises UnusableFile if the file exists, or can't be created."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UnusableFile(key=key, path=path, reason="it exists, and is not overwritten: name another file") from None
    except OSError as error:
        raise UnusableFile(key=key, path=path, reason=error.strerror or type(error).__name__) from None
    except ValueError:
        raise UnusableFile(key=key, path=path, reason="a path can't contain a NUL character") from None
    with os.fdopen(number, "w", encoding="ascii") as file:
        file.write(secrets.token_urlsafe(TOKEN_BYTES) + "\n")


def read_secret(key: str, path: str) -> bytes:
    """The content of a file that only its user and group may read.

    Raises:
        UnsafeFile: others may read or write the file.
        UnusableFile: see :func:`read_file`."""
    content = read_file(key, path)
    mode = Path(path).stat().st_mode
    if mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
        raise UnsafeFile(path=path, what="read" if mode & stat.S_IROTH else "write")
    return content


def read_file(key: str, path: str) -> bytes:
    """The content of the file that the configuration key names. Raises UnusableFile if the file can't be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        reason = (error.strerror or type(error).__name__) + _no_path(path)
        raise UnusableFile(key=key, path=path, reason=reason) from None
    except ValueError:
        raise UnusableFile(key=key, path=path, reason="a path can't contain a NUL character") from None


_URL = re.compile(r"[A-Za-z][\w+.-]+:/")


def _no_path(path: str) -> str:
    """After a semicolon, why the text is no path; empty if it may be one."""
    if path.startswith("~"):
        return "; nothing replaces ~ here: write the whole path"
    return "; it is a URL: write a path of this host" if _URL.match(path) else ""


def read_certificates(key: str, path: str) -> bytes:
    """The certificates, in PEM, of the file that the configuration key names. Raises UnusableFile if the file can't be
    read, or holds no certificate."""
    content = read_file(key, path)
    try:
        ssl.create_default_context(cadata=content.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise UnusableFile(key=key, path=path, reason="it holds no certificate in PEM") from None
    return content


def own_dir(path: Path, *, named: bool) -> Path:
    """The directory, which is created with mode 0700 if it is missing. ``named``: a person chose the directory, so its
    links and parents are trusted. Otherwise it must not be a link, and no part of its path may belong to another user:
    nobody may replace the directory after the check. Raises UnsafeDirectory if the directory is not safe, or can't be
    made."""
    path = path.absolute()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        reason = "" if named else next((why for part in path.parents if (why := _of_parent(part))), "")
        found = path.stat() if named else path.lstat()
    except OSError as error:
        reason = f"it can't be made ({error.strerror})"
        raise UnsafeDirectory(path=path, reason=reason, variable=RUNTIME_VARIABLE) from None
    if not stat.S_ISDIR(found.st_mode):
        reason = reason or f"it is a symbolic link of user {found.st_uid}"
    elif found.st_uid != os.getuid():
        reason = reason or f"it belongs to user {found.st_uid}"
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        reason = reason or "others may write to it"
    elif not os.access(path, os.W_OK | os.X_OK):
        reason = reason or "this user may not write to it, or its file system is read-only"
    if reason:
        raise UnsafeDirectory(path=path, reason=reason, variable=RUNTIME_VARIABLE)
    return path


def _of_parent(path: Path) -> str:
    """The reason why another user could replace a directory in this one; empty if nobody can."""
    found = path.lstat()
    if found.st_uid not in (0, os.getuid()):
        return f"{path} belongs to user {found.st_uid}"
    if stat.S_ISLNK(found.st_mode):
        return _of_parent(Path(os.path.realpath(path)))  # the link is the user's own, or the system's
    open_to_all = found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX
    return f"others may replace what is in {path}" if open_to_all else ""
