"""Writes generated files into the repository, or compares them with the files there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def write_or_check(files: Mapping[str, str], arguments: list[str], verb: str) -> int:
    """``files``: the text of each path. Write the files that differ; with ``--check`` only name them, and return exit
    status 1."""
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
