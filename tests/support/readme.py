"""The programs of README.md and docs/, as they are printed."""

from __future__ import annotations

import re

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
    found = re.search(rf"^#+ {re.escape(heading)}\n(?:(?!#).*\n)*?```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert found, f"{page} has no program below {heading}"
    return found[1]


def until_idle(program: str) -> str:
    """The program, whose query ends when it has read what there is."""
    assert program.endswith(END)
    return program.replace(END, BY_THE_TEST)
