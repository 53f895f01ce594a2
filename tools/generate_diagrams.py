"""Write the state diagrams of the docs (Mermaid) from the transition tables of the core.

python tools/generate_diagrams.py            writes them into the pages
python tools/generate_diagrams.py --check    exit 1 if one is stale"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from coordinator.core import record_state  # noqa: E402
from tools.generated_files import write_or_check  # noqa: E402

TABLES: dict[tuple[str, str], Mapping[tuple[Any, Any], Any]] = {
    ("docs/learn/concepts.md", "records"): record_state.TRANSITIONS,
}
"""For each diagram its page, its name there, and the table to draw."""


def diagram(transitions: Mapping[tuple[Any, Any], Any]) -> str:
    """Returns a Mermaid state diagram: a line for each pair of states, with the events between them."""
    events: dict[tuple[Enum, Enum], list[str]] = {}
    for (before, event), after in transitions.items():
        events.setdefault((before, after), []).append(event.value)
    moves = [f"    {before.name} --> {after.name}: {', '.join(names)}" for (before, after), names in events.items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", *moves, "```"])


def render() -> dict[str, str]:
    """Returns the text of each page by its path under the root, with the diagrams of the current tables. Raises
    ValueError if a page has no place for its diagram."""
    pages: dict[str, str] = {}
    for (page, name), transitions in TABLES.items():
        text = pages.get(page) or (ROOT / page).read_text(encoding="utf-8")
        place = re.compile(
            rf"(?<=<!-- diagram: {name}, by tools/generate_diagrams.py -->\n\n)```mermaid\n.*?\n```", re.DOTALL
        )
        parts = place.split(text)
        if len(parts) != 2:
            raise ValueError(f"{page} needs one place for the diagram {name}, and has {len(parts) - 1}")
        pages[page] = diagram(transitions).join(parts)
    return pages


if __name__ == "__main__":
    sys.exit(write_or_check(render(), sys.argv[1:], "written"))
