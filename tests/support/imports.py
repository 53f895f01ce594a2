"""The imports of Python files, read from their syntax: no file is run."""

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")
"""The fields of a syntax tree's statements that hold statements."""
PACKAGES = (
    "coordinator",
    "share_consumer",
    "share_source",
    "share_sink",
    "share_spark",
    "pyspark_sharegroup",
    "sharegroup",
)


def python_path() -> str:
    """PYTHONPATH for a process that a test starts: this clone, and what the tests themselves were given, such as
    another Spark (`make test-spark`)."""
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


@dataclass(frozen=True, kw_only=True)
class Import:
    """One imported module, and where it is imported."""

    path: str
    line: int
    module: str


def imports_of(path: Path, root: Path = ROOT) -> list[Import]:
    """Every module that a file imports, at its top or inside a function. `from a import b` counts as `a.b` if that is a
    module of ours, else as `a`."""
    relative = path.relative_to(root)
    found = []
    for node in statements(path.read_text(encoding="utf-8")):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = _absolute(node, relative)
            names = {_most_precise(source, alias.name, root) for alias in node.names}
            found += [(node.lineno, name) for name in sorted(names)]
    return [Import(path=str(relative), line=line, module=module) for line, module in found]


def statements(text: str) -> Iterator[ast.AST]:
    """The module of a Python file and all its statements, those within others too. Expressions, most of the nodes, are
    left out: they hold none."""
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        yield node
        for block in reversed(BLOCKS):
            waiting.extend(reversed(getattr(node, block, ())))


def _absolute(node: ast.ImportFrom, importer: Path) -> str:
    if not node.level:
        return node.module or ""
    package = importer.parts[: -node.level]
    return ".".join([*package, *([node.module] if node.module else [])])


def _most_precise(source: str, name: str, root: Path) -> str:
    inner = root.joinpath(*source.split("."), name)
    return f"{source}.{name}" if inner.with_suffix(".py").exists() or inner.is_dir() else source


def is_within(module: str, packages: tuple[str, ...]) -> bool:
    """Whether the module is one of the packages or lies in one."""
    return any(module == package or module.startswith(package + ".") for package in packages)


def python_files(*folders: str, root: Path = ROOT) -> list[Path]:
    """The Python files below the folders, those that exist, in order."""
    return sorted(path for folder in folders for path in (root / folder).rglob("*.py"))
