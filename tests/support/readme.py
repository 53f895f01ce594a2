"""The programs of README.md, as they stand."""

from __future__ import annotations

import re

from tests.support.imports import ROOT


def readme_program(section: str) -> str:
    """The first program of the section with this title."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(section)}\n.*?^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert found, f"README.md has no program below {section}"
    return found[1]
