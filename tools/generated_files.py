"""Write generated files into the repository, or compare them with the files there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def write_or_check(files: Mapping[str, str], arguments: list[str], verb: str) -> int:
    """``files``: path under the root -> text. Writes those that differ, or with ``--check`` only names them and returns
    exit status 1. ``verb`` says what was done: drawn, written."""
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
