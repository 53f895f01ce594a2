"""The command `sharegroup`, run in the test's own process."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sharegroup.__main__ import run


def mistake(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What the command says of a mistake: one line, status 1, and nothing else."""
    assert run(list(arguments)) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("sharegroup: ")
    assert told.err.count("\n") == 1
    return told.err
