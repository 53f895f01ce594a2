"""Which reader the tasks of this process use: the compiled one (``native``) or Python's (``python``).

The environment variable SHAREGROUP_READER decides. Without it, the compiled reader is used if its module was built and
finds a suitable librdkafka. The choice is made once per process."""

from __future__ import annotations

import logging
import os
from functools import lru_cache
from importlib import import_module
from typing import NamedTuple

from share_source.errors import NativeReaderMissing, UnknownReader

logger = logging.getLogger(__name__)

VARIABLE = "SHAREGROUP_READER"
AUTO, NATIVE, PYTHON = "auto", "native", "python"
DEFAULT = AUTO


class ReaderChoice(NamedTuple):
    """A reader, and why it was chosen."""

    name: str
    why: str

    def __str__(self) -> str:
        return f"{self.name} ({self.why})"


def wanted_reader() -> str:
    """Returns the reader that SHAREGROUP_READER names, or the default. Raises UnknownReader if the value is unknown."""
    wanted = os.environ.get(VARIABLE, "").strip().lower() or DEFAULT
    if wanted not in (AUTO, NATIVE, PYTHON):
        raise UnknownReader(value=wanted)
    return wanted


@lru_cache(maxsize=1)
def reader_choice() -> ReaderChoice:
    """Returns the reader of this process.

    Raises:
        UnknownReader: SHAREGROUP_READER has an unknown value.
        NativeReaderMissing: SHAREGROUP_READER demands the compiled reader, and it can't be used here."""
    wanted = wanted_reader()
    if wanted == PYTHON:
        return ReaderChoice(PYTHON, f"{VARIABLE}=python")
    try:
        version = import_module("share_source.executor.native._drain").LIBRDKAFKA
    except ImportError as error:
        if wanted == NATIVE:
            raise NativeReaderMissing(reason=str(error)) from None
        return ReaderChoice(PYTHON, f"no compiled reader: {error}")
    return ReaderChoice(NATIVE, f"librdkafka {version}")


@lru_cache(maxsize=1)
def is_native() -> bool:
    """Whether the tasks of this process use the compiled reader. Logs the choice, once."""
    choice = reader_choice()
    logger.info("records are read by the %s reader: %s", choice.name, choice.why)
    return choice.name == NATIVE
