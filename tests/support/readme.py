"""The programs of README.md and docs/, as they are printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.support.imports import ROOT

PROGRAM = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
END = "query.awaitTermination()\n"
BY_THE_TEST = "query.processAllAvailable()\nquery.stop()\n"
ENDS = {END: BY_THE_TEST, "keep_running(writer.start)\n": f"query = writer.start()\n{BY_THE_TEST}"}
"""How a printed query ends, and how it ends in a test."""
PYTEST = (os.path.join(sysconfig.get_path("scripts"), "pytest"), "-q", "-p", "no:cacheprovider")
"""The command, as a person runs it: other than with ``python -m pytest``, the folder's modules come after Python's."""


class Program(NamedTuple):
    """A program, and the page and the heading that it is below."""

    page: str
    heading: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}: {self.heading}"


def programs() -> list[Program]:
    """All programs of README.md and docs/."""
    found = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = path.read_text(encoding="utf-8")
        for each in PROGRAM.finditer(text):
            *_, heading = HEADING.findall(text, 0, each.start())
            found.append(Program(str(path.relative_to(ROOT)), heading, each[1]))
    return found


def with_names(program: str, names: Mapping[str, str]) -> str:
    """The program with these names in place of the printed ones, where these stand alone in quotes."""
    for written, ours in names.items():
        program = program.replace(f'"{written}"', f'"{ours}"')
    return program


def readme_program(section: str) -> str:
    """The first program of README's section with this title."""
    return printed("README.md", section)


def printed(page: str, heading: str) -> str:
    """The first program of the page below this heading."""
    for program in programs():
        if (program.page, program.heading) == (page, heading):
            return program.text
    raise AssertionError(f"{page} has no program below {heading}")


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
        [sys.executable, *PYTEST, *options, *files],
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def until_idle(program: str) -> str:
    """The program, whose query ends when it has read what there is."""
    (end,) = filter(program.endswith, ENDS)
    return program.replace(end, ENDS[end])
