"""The house's style, as far as a test can hold it: sizes, leftovers, docstrings, paths of somebody's machine."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.imports import PACKAGES, ROOT, python_files

FILE_LINES = 500
FUNCTION_LINES = 70
LEFTOVER = re.compile(r"\b(?:TODO|FIXME|XXX)\b")
MACHINE_PATH = re.compile(r"""["'(=\s](/(?:work|root|home|tmp)(?:/|["'\s]|$))""")
SLEEP = re.compile(r"\btime\.sleep\b|\bfrom time import .*\bsleep\b")
# These name what they forbid.
THIS_FILE = Path(__file__)
OURS = (*PACKAGES, "benchmarks", "tools")


def long_files(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """No file is longer than FILE_LINES."""
    count = text.count("\n")
    if count > FILE_LINES:
        yield 1, f"{count} lines, {FILE_LINES} at most: split it"


def long_functions(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """No function is longer than FUNCTION_LINES, its docstring included."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield node.lineno, f"{node.name} has {lines} lines, {FUNCTION_LINES} at most: split it"


def missing_docstring(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """A module says what its room is for."""
    if not path.name.startswith("_") or path.name in ("__init__.py", "__main__.py"):
        tree = ast.parse(text)
        if tree.body and not ast.get_docstring(tree):
            yield 1, "a public module needs a docstring: what it is for, and the rule that it keeps"


def leftovers(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """What is to be done stands in an issue, not in the code."""
    yield from matches(LEFTOVER, text, "leftover {!r}: do it, or file an issue")


def machine_paths(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """No path of one machine: not of a person's home, not of a temporary folder."""
    yield from matches(MACHINE_PATH, text, "path of one machine {!r}: use tempfile, pathlib or an option")


def sleeps(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """A test waits for a condition, not for a time."""
    yield from matches(SLEEP, text, "{!r} in a test: wait for a condition (tests.support.waiting.wait_until)")


def matches(pattern: re.Pattern[str], text: str, message: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if found := pattern.search(line):
            yield number, message.format(found.group(found.re.groups))


PACKAGE_CHECKS = [long_files, long_functions, missing_docstring]
ANYWHERE_CHECKS = [leftovers, machine_paths]


def findings(check, *folders: str) -> list[str]:
    """What a check says about the files of the folders, as file:line: message."""
    return [
        f"{path.relative_to(ROOT)}:{line}: {message}"
        for path in python_files(*folders)
        if path != THIS_FILE
        for line, message in check(path, path.read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize("check", PACKAGE_CHECKS, ids=lambda check: check.__name__)
def test_packages(check):
    found = findings(check, *OURS)
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("check", ANYWHERE_CHECKS, ids=lambda check: check.__name__)
def test_everywhere(check):
    found = findings(check, *OURS, "tests", "conf")
    assert not found, "\n" + "\n".join(found)


def test_no_test_sleeps():
    found = findings(sleeps, "tests")
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (long_files, "\n" * (FILE_LINES + 1)),
        (long_functions, "def f():\n" + "    pass\n" * FUNCTION_LINES),
        (missing_docstring, "x = 1\n"),
        (leftovers, "x = 1  # TODO later\n"),
        (machine_paths, 'open("/tmp/x")\n'),
        (machine_paths, "cd /work/main\n"),
        (sleeps, "time.sleep(1)\n"),
        (sleeps, "from time import monotonic, sleep\n"),
    ],
)
def test_each_check_finds_what_it_is_for(check, text):
    assert list(check(Path("module.py"), text))


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (missing_docstring, '"""What it is for."""\nx = 1\n'),
        (missing_docstring, ""),
        (machine_paths, 'url = "http://host/work/x"\nx = tmp_path / "work"\n'),
        (leftovers, "todo = []\n"),
    ],
)
def test_a_check_leaves_the_rest_alone(check, text):
    assert list(check(Path("module.py"), text)) == []
