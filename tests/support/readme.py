"""The programs of README.md and docs/, as they are printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.imports import ROOT

END = "query.awaitTermination()\n"
BY_THE_TEST = "query.processAllAvailable()\nquery.stop()\n"
"""How a printed query ends, and how it ends in a test."""


def readme_program(section: str) -> str:
    """The first program of README's section with this title."""
    return printed("README.md", section)


def printed(page: str, heading: str) -> str:
    """The first program of the page below this heading."""
    text = (ROOT / page).read_text(encoding="utf-8")
    below = re.split(rf"^#+ {re.escape(heading)}$", text, flags=re.MULTILINE)[1]
    found = re.search(r"^```python\n(.*?)^```", below, re.DOTALL | re.MULTILINE)
    assert found, f"{page} has no program below {heading}"
    assert not re.search(r"^#", below[: found.start()], re.MULTILINE), f"{page}: the program has another heading"
    return found[1]


def printed_command(page: str, begin: str, names: Mapping[str, str]) -> str:
    """The first command of the page that begins so, in one line, with these names in place of the printed ones."""
    text = (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.search(rf"^    ({re.escape(begin)} .*)$", text, re.MULTILINE)
    assert found, f"{page} has no command {begin}"
    command = found[1]
    for written, ours in names.items():
        command = command.replace(written, ours)
    return command


def run_test_files(page: str, files: Mapping[str, str], folder: Path, env: Mapping[str, str], *options: str) -> None:
    """Runs pytest in ``folder`` over programs of the page, by file and heading. Each has to pass."""
    for name, heading in files.items():
        (folder / name).write_text(printed(page, heading))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *files],
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def until_idle(program: str) -> str:
    """The program, whose query ends when it has read what there is."""
    assert program.endswith(END)
    return program.replace(END, BY_THE_TEST)
