"""Writes generated files into the repository, or compares them with the files there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def write_or_check(files: Mapping[str, str], arguments: list[str], verb: str) -> int:
    """``files``: the text of each path. Write the files that differ; with ``--check`` only name them, and return 1."""
    check = "--check" in arguments
    stale = []
    for name, text in files.items():
        path = ROOT / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    print(f"{'stale' if check else verb}: {', '.join(stale) or 'nothing'}")
    return 1 if stale and check else 0


def table_in(page: str, begin: str, end: str) -> list[list[str]]:
    """Returns the cells of the table between the two lines of a page, without the line below its head."""
    _, _, rest = (ROOT / page).read_text(encoding="utf-8").partition(begin)
    lines = [line for line in rest.partition(end)[0].splitlines() if line.startswith("|")]
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return [head, *rows]


def page_with(page: str, begin: str, table: str, end: str) -> dict[str, str]:
    """Returns the page, by its path, with this table between the two lines."""
    before, _, rest = (ROOT / page).read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(end)
    return {page: f"{before}{begin}\n\n{table}\n\n{end}{after}"}
