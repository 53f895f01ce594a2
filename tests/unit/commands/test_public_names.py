"""Programs import from ``sharegroup`` alone: lazily, and the names that the docs list."""

from __future__ import annotations

import ast
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import confluent_kafka

import sharegroup
from tests.support.imports import PACKAGES, ROOT, python_path

NAMES = set(sharegroup._MODULES)
CONFLUENTS = {name for name in NAMES if sharegroup._MODULES[name] == "confluent_kafka"}
INSIDE = [package for package in PACKAGES if package not in ("sharegroup", "pyspark_sharegroup")]
HEAVY = ("confluent_kafka", "pyarrow", "pyspark", *INSIDE)
READ_BY_USERS = [
    ROOT / "README.md",
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "deploy").rglob("*.*"),
    *(ROOT / "notebooks").glob("*.*"),
    *(ROOT / "sharegroup" / "demo").glob("*.txt"),
    ROOT / "sharegroup" / "demo" / "query_program.py",
]


def test_every_name_loads() -> None:
    for name in sorted(NAMES):
        value = getattr(sharegroup, name)
        assert value is getattr(confluent_kafka, name) if name in CONFLUENTS else value is not None
        assert name in dir(sharegroup) and vars(sharegroup)[name] is value


def test_no_name_is_that_of_a_module_of_the_command_line() -> None:
    """A module takes the name's place when it is imported."""
    assert NAMES & {module.name for module in pkgutil.iter_modules(sharegroup.__path__)} == set()


def test_type_checkers_see_every_name_with_its_module() -> None:
    tree = ast.parse(Path(sharegroup.__file__).read_text(encoding="utf-8"))
    seen = {}
    for block in [node for node in tree.body if isinstance(node, ast.If)]:
        for node in [node for node in block.body if isinstance(node, ast.ImportFrom)]:
            for alias in node.names:
                assert alias.asname == alias.name
                package = f"{node.module}.{alias.name}" if alias.name in sharegroup._PACKAGES else node.module
                seen[alias.name] = package
    assert seen == sharegroup._MODULES


def test_importing_it_loads_nothing_heavy() -> None:
    program = f"import json, sys, sharegroup; print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": python_path()}, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == []


def test_a_star_imports_every_name() -> None:
    assert {*sharegroup.__all__} == NAMES


def test_the_docs_list_every_name() -> None:
    (listed,) = re.findall(
        r"Programs import from `sharegroup` alone:(.*?)confluent's names\.",
        (ROOT / "docs" / "README.md").read_text(encoding="utf-8"),
        re.DOTALL,
    )
    assert re.findall(r"`(\w+)`", listed) == sorted(NAMES - CONFLUENTS)


def inside_imports(text: str) -> list[str]:
    """The imports and names of the inside in a text."""
    inside = "|".join(INSIDE)
    imports = re.findall(rf"(?:\bfrom|\bimport) (?:{inside})\b(?!\.properties)[\w.]*", text)
    return imports + re.findall(r"\b(?:share_source|share_sink)\.[A-Za-z_]\w*\b", text)


def test_what_users_read_imports_nothing_of_the_inside() -> None:
    found = {
        str(path.relative_to(ROOT)): inside_imports(path.read_text(encoding="utf-8"))
        for path in READ_BY_USERS
        if path.suffix not in (".png", ".pyc")
    }
    assert len(found) > 60
    assert {path: lines for path, lines in found.items() if lines} == {}
