"""The style of the project, as far as a test can check it: sizes, leftovers, docstrings, paths, names."""

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.imports import PACKAGES, ROOT, python_files, statements

FILE_LINES = 800
FUNCTION_LINES = 70
LEFTOVER = re.compile(r"\b(?:TODO|FIXME|XXX)\b")
MACHINE_PATH = re.compile(r"""["'(=\s](/(?:work|root|home|tmp)(?:/|["'\s]|$))""")
SLEEP = re.compile(r"\btime\.sleep\b|\bfrom time import .*\bsleep\b")
# A number's text says what the code does at the limit, and does not begin with its unit and a clause about that unit.
UNIT = (
    r"(?:milliseconds|seconds|bytes|kilobytes|characters|records|offsets|runs|members|partitions|plans|groups|ranges)"
)
UNIT_FIRST = re.compile(rf"(?:\w+ )?{UNIT}\b(?:[^.:;]*\b(?:which|that)\b|\.)", re.IGNORECASE)
CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*$")
# As the formatter leaves most modules; whoever begins otherwise is parsed.
BEGINS_WITH_DOCSTRING = re.compile(r'"""\s*[^\s"\\][^"\\]*"""\n')
TEST_NAME_WORDS = 12
TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
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
    for node in statements(text):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield node.lineno, f"{node.name} has {lines} lines, {FUNCTION_LINES} at most: split it"


def missing_docstring(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """A module says what its room is for."""
    is_public = not path.name.startswith("_") or path.name in ("__init__.py", "__main__.py")
    if is_public and not BEGINS_WITH_DOCSTRING.match(text):
        tree = ast.parse(text)
        if tree.body and not ast.get_docstring(tree):
            yield 1, "a public module needs a docstring: what it is for, and the rule that it keeps"


def lost_texts(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """No text is a statement of its own, but for docstrings: the rest of a sentence in a new line, without brackets."""
    for node in statements(text):
        value = node.value if isinstance(node, ast.Expr) else None
        is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
        if (is_text or isinstance(value, ast.JoinedStr)) and '"""' not in text.splitlines()[node.lineno - 1]:
            yield node.lineno, "a text that nothing uses: put it and the text before it in brackets"


def leftovers(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """What is to be done stands in an issue, not in the code."""
    yield from matches(LEFTOVER, text, "leftover {!r}: do it, or file an issue")


def machine_paths(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """No path of one machine: not of a person's home, not of a temporary folder."""
    yield from matches(MACHINE_PATH, text, "path of one machine {!r}: use tempfile, pathlib or an option")


def constants_that_begin_with_their_unit(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """The text below a constant says what the code does at the limit, then the unit and the reason."""
    for node in statements(text):
        for assigned, said in itertools.pairwise(getattr(node, "body", ())):
            if isinstance(assigned, ast.Assign) and isinstance(said, ast.Expr) and isinstance(said.value, ast.Constant):
                name = ast.unparse(assigned.targets[0]).strip("()").split(",")[0]
                if CONSTANT.match(name) and UNIT_FIRST.match(str(said.value.value)):
                    yield said.lineno, f"{name} begins with its unit: say first what the code does at the limit"


def long_test_names(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """The name of a test is its promise, in at most TEST_NAME_WORDS words; the s of a genitive is none."""
    for found in TEST.finditer(text):
        words = [word for word in found.group(1).split("_")[1:] if word != "s"]
        if len(words) > TEST_NAME_WORDS:
            line = text.count("\n", 0, found.start(1)) + 1
            yield line, f"{found.group(1)} has {len(words)} words, {TEST_NAME_WORDS} at most"


def headers_that_end_the_process(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """confluent_kafka's ``headers()`` of a record whose header's name is no text ends the process, sooner or later."""
    if ".headers()" in text:
        for node in ast.walk(ast.parse(text)):
            called = ast.unparse(node) if isinstance(node, ast.Call) else ""
            if called.endswith(".headers()") and called != "self.headers()":
                yield node.lineno, "headers of a message: coordinator.kafka.record_headers.headers_of"


def sleeps(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """A test waits for a condition, not for a time."""
    yield from matches(SLEEP, text, "{!r} in a test: wait for a condition (tests.support.waiting.wait_until)")


def endings_that_a_failure_skips(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """A context manager of tests ends what it began also when the test fails: else a service of the failed test lives
    on, and writes into the output of another one."""
    if "contextmanager" not in text:
        return
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef) and "contextmanager" in "".join(
            map(ast.unparse, function.decorator_list)
        ):
            for statement, after in _in_turn(function):
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Yield):
                    yield after.lineno, f"a failure skips this: {function.name} needs try and finally, or closing()"


def _in_turn(function: ast.FunctionDef) -> Iterator[tuple[ast.stmt, ast.stmt]]:
    """Each statement of the function with the one that follows it in the same block."""
    for node in ast.walk(function):
        for block in (getattr(node, "body", ()), getattr(node, "orelse", ())):
            if isinstance(block, list):
                yield from itertools.pairwise(block)


def matches(pattern: re.Pattern[str], text: str, message: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if found := pattern.search(line):
            yield number, message.format(found.group(found.re.groups))


PACKAGE_CHECKS = [long_files, long_functions, missing_docstring, lost_texts, headers_that_end_the_process]
ANYWHERE_CHECKS = [leftovers, machine_paths, constants_that_begin_with_their_unit]


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


def test_no_test_has_a_long_name():
    found = findings(long_test_names, "tests")
    assert not found, "\n" + "\n".join(found)


def test_no_test_sleeps():
    found = findings(sleeps, "tests")
    assert not found, "\n" + "\n".join(found)


def test_a_context_manager_of_tests_ends_what_it_began():
    found = findings(endings_that_a_failure_skips, "tests")
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (long_files, "\n" * (FILE_LINES + 1)),
        (long_functions, "def f():\n" + "    pass\n" * FUNCTION_LINES),
        (missing_docstring, "x = 1\n"),
        (lost_texts, 'what = f"{name} is "\nf"away."\n'),
        (leftovers, "x = 1  # TODO later\n"),
        (machine_paths, 'open("/tmp/x")\n'),
        (machine_paths, "cd /work/main\n"),
        (constants_that_begin_with_their_unit, 'A_S = 5\n"""Seconds after which it ends."""\n'),
        (
            constants_that_begin_with_their_unit,
            'MOST, LEAST = 5, 1\n"""Quarantined runs that are counted, at most."""\n',
        ),
        (constants_that_begin_with_their_unit, 'A_S = 5\n"""Seconds. It then ends."""\n'),
        (long_test_names, "def test_one_two_three_four_five_six_seven_eight_nine_ten_eleven_twelve_thirteen(): ...\n"),
        (headers_that_end_the_process, "first = dict(messages[0].headers() or ())\n"),
        (sleeps, "time.sleep(1)\n"),
        (sleeps, "from time import monotonic, sleep\n"),
        (endings_that_a_failure_skips, "@contextmanager\ndef serving():\n    yield 1\n    end()\n"),
    ],
)
def test_each_check_finds_a_broken_example(check, text):
    assert list(check(Path("module.py"), text))


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (missing_docstring, '"""What it is for."""\nx = 1\n'),
        (missing_docstring, ""),
        (machine_paths, 'url = "http://host/work/x"\nx = tmp_path / "work"\n'),
        (lost_texts, 'A = 5\n"""It ends after this many."""\nprint("a text")\n'),
        (leftovers, "todo = []\n"),
        (headers_that_end_the_process, "first = headers_of(messages[0]), request.headers, self.headers()\n"),
        (constants_that_begin_with_their_unit, 'A_S = 5\n"""It ends after this many seconds."""\n'),
        (constants_that_begin_with_their_unit, 'records = 5\n"""Records that were read."""\n'),
        (long_test_names, "def test_one_s_two_three_four_five_six_seven_eight_nine_ten_eleven_twelve(): ...\n"),
        (
            endings_that_a_failure_skips,
            "@contextmanager\ndef serving():\n    begin()\n    try:\n        yield 1\n    finally:\n        end()\n",
        ),
    ],
)
def test_a_check_leaves_the_rest_alone(check, text):
    assert list(check(Path("module.py"), text)) == []
