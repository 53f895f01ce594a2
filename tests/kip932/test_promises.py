"""Each test of a KIP's promise says where the KIP promises it, and no KIP lost its tests."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

CORE = Path(__file__).parent.parent / "unit" / "core"
SECTION = re.compile(r"KIP-(\d+), [A-Z][^:]+: ")
PROMISES = {"932": 70, "1191": 25, "1206": 12, "1222": 19, "1226": 16, "1240": 8}
"""By KIP, the least number of tests that name it."""


def promises(text: str) -> list[tuple[str, str, bool]]:
    """(name, KIP, whether a section follows: ``KIP-932, Section: ``) of each test whose docstring begins with a KIP."""
    tests = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    found = []
    for test in tests:
        docstring = " ".join((ast.get_docstring(test) or "").split())
        if test.name.startswith("test_") and (kip := re.match(r"KIP-(\d+)", docstring)):
            found.append((test.name, kip[1], SECTION.match(docstring) is not None))
    return found


ALL = [promise for path in sorted(CORE.glob("test_*.py")) for promise in promises(path.read_text("utf-8"))]


def test_each_promise_names_its_section() -> None:
    assert [name for name, _, has_section in ALL if not has_section] == []


def test_no_kip_lost_its_promises() -> None:
    counts = Counter(kip for _, kip, _ in ALL)
    assert {kip: counts[kip] for kip, fewest in PROMISES.items() if counts[kip] < fewest} == {}


def test_a_promise_without_a_section_is_found() -> None:
    text = (
        'def test_a():\n    """KIP-1, States: so."""\n\ndef test_b():\n    """KIP-1 says so."""\n\ndef test_c(): ...\n'
    )
    assert promises(text) == [("test_a", "1", True), ("test_b", "1", False)]
