"""Each test and each story of a KIP's promise says where the KIP promises it, and no KIP lost its promises."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

from tests.scenarios.player import FILES

CORE = Path(__file__).parent.parent / "unit" / "core"
SECTION = re.compile(r"KIP-(\d+), [A-Z][^:]+: ")
STORY = re.compile(r"^# (KIP-\d+.*)", re.MULTILINE)
PROMISES = {"932": 67, "1191": 19, "1206": 13, "1222": 16, "1226": 12, "1240": 7}
"""By KIP, the least number of tests and of stories in tests/scenarios that begin with it."""


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


def test_no_kip_lost_its_promises() -> None:
    counts = Counter(kip for _, kip, _ in ALL)
    assert {kip: counts[kip] for kip, fewest in PROMISES.items() if counts[kip] < fewest} == {}
