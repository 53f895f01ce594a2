"""Each conformance test says where the KIP promises what it tests."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
FILES = sorted(TESTS.glob("test_kip*.py"))


def unnamed(text: str, kip: str) -> list[str]:
    """Tests whose docstring does not begin with the KIP: ``KIP-932, Section: promise``."""
    tests = [
        node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    return [test.name for test in tests if not (ast.get_docstring(test) or "").startswith(f"KIP-{kip}, ")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_test_names_its_section(path: Path) -> None:
    assert unnamed(path.read_text("utf-8"), path.stem.removeprefix("test_kip").split("_")[0]) == []


def test_one_without_is_found() -> None:
    assert unnamed('def test_a():\n    """KIP-1, States: so."""\n\ndef test_b():\n    """It is so."""\n', "1") == [
        "test_b"
    ]
    assert len(FILES) >= 4
