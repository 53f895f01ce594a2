"""The name and the process of the application or program that a member works for, to show to people.

Spark tells a query's reader neither the query's name nor the application's. The reader is a child of the driver's Java
process, whose command line names the application (docs/trust/facts.md, S13). Rule: nothing fails because of a name; a
name that is not found is empty."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_NAME = "spark.app.name"


class Application(NamedTuple):
    """``name`` may be empty. ``pid``: the driver's Java process if it is found, else this process."""

    name: str
    pid: int


def application() -> Application:
    """Returns the application whose query this process reads for."""
    parent = os.getppid()
    with suppress(OSError):
        words = Path(f"/proc/{parent}/cmdline").read_text(encoding="utf-8", errors="replace").rstrip("\0").split("\0")
        if Path(words[0]).name == "java":
            return Application(name_in(words), parent)
    return Application("", os.getpid())


def name_in(words: Sequence[str]) -> str:
    """Returns the application's name from the words of a driver's command line; the program's file if the program sets
    the name later; empty if neither is found."""
    for word in words:
        if word.startswith((f"{_NAME}=", f"-D{_NAME}=")):
            return word.partition("=")[2]
    for option, read in (("--name", str), ("--properties-file", _name_in_file)):
        if option in words[:-1] and (name := read(words[words.index(option) + 1])):
            return name
    pairs = zip(("", *words), words, strict=False)
    return next((Path(word).name for before, word in pairs if word.endswith(".py") and before != "--py-files"), "")


def _name_in_file(path: str) -> str:
    with suppress(OSError):
        for line in Path(path).read_text(encoding="utf-8", errors="replace").splitlines():
            key, found, value = line.partition("=")
            if found and key.strip() == _NAME:
                return value.strip()
    return ""


def program_name() -> str:
    """Returns the file of the program that runs in this process; empty in a shell."""
    return Path(sys.argv[0]).name if sys.argv and sys.argv[0] != "-c" else ""
