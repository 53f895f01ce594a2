"""Each test and each story of a KIP's promise says where the KIP promises it, and each KIP has some."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.scenarios.player import FILES

CORE = Path(__file__).parent.parent / "unit" / "core"
SECTION = re.compile(r"KIP-(\d+), [A-Z][^:]+: ")
STORY = re.compile(r"^# (KIP-\d+.*)", re.MULTILINE)
KIPS = {"932", "1191", "1206", "1222", "1226", "1240"}
"""The KIPs of which tests, and stories in tests/scenarios, say what they promise."""


def promises(text: str) -> list[tuple[str, str, bool]]:
    """(name, KIP, whether a section follows: ``KIP-932, Section: ``) of each test whose docstring begins with a KIP."""
    tests = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    found = []
    for test in tests:
        docstring = " ".join((ast.get_docstring(test) or "").split())
        if test.name.startswith("test_") and (kip := re.match(r"KIP-(\d+)", docstring)):
            found.append((test.name, kip[1], SECTION.match(docstring) is not None))
    return found


def told(text: str) -> list[tuple[str, str, bool]]:
    """The same of a file of stories, whose comments begin with a KIP."""
    stories = [story[1] for story in STORY.finditer(text)]
    return [(story, story[4:].partition(",")[0], SECTION.match(story) is not None) for story in stories]


ALL = [
    *(promise for path in sorted(CORE.glob("test_*.py")) for promise in promises(path.read_text("utf-8"))),
    *(promise for path in FILES for promise in told(path.read_text("utf-8"))),
]


def test_each_promise_names_its_section() -> None:
    assert [name for name, _, has_section in ALL if not has_section] == []


def test_each_kip_has_promises() -> None:
    assert {kip for _, kip, _ in ALL} == KIPS
