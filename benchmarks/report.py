"""Measurements: rows with a target and whether it was met; as a table on the screen, as Markdown, as JSON."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

HEADINGS = ("measured", "value", "target", "", "how")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One number. ``at_least`` and ``at_most`` are its target, if it has one; ``how`` has further details."""

    name: str
    value: float
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None
    how: str = ""

    @property
    def met(self) -> bool | None:
        """Return whether the target is met; None without a target."""
        if self.at_least is not None:
            return self.value >= self.at_least
        return None if self.at_most is None else self.value <= self.at_most

    @property
    def cells(self) -> tuple[str, str, str, str, str]:
        target = "" if self.met is None else f"≥ {self.at_least:g}" if self.at_least is not None else ""
        target = target or ("" if self.at_most is None else f"≤ {self.at_most:g}")
        sign = {None: "", True: "✓", False: "✗"}[self.met]
        unit = f" {self.unit}" if self.unit else ""
        return self.name, f"{_short(self.value)}{unit}", f"{target}{unit}" if target else "", sign, self.how


def _short(value: float) -> str:
    if abs(value) >= 1e6:
        return f"{value / 1e6:.2f} M"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def print_table(rows: Sequence[Row], console: Console) -> None:
    """Print the table, coloured by whether each target was met."""
    table = Table(title="sharegroup against its peers")
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading in ("value", "target") else "left")
    for row in rows:
        style = {None: None, True: "green", False: "red"}[row.met]
        table.add_row(*row.cells, style=style)
    console.print(table)


def markdown(rows: Sequence[Row]) -> str:
    """Return the table for the docs."""
    lines = ["| " + " | ".join(HEADINGS) + " |", "|---|---:|---:|---|---|"]
    return "\n".join([*lines, *("| " + " | ".join(row.cells) + " |" for row in rows)]) + "\n"


def machine() -> dict[str, Any]:
    """Describe the kind of machine, without its name."""
    return {
        "cores": psutil.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "architecture": platform.machine(),
        "python": platform.python_version(),
    }


def write_json(path: Path, rows: Sequence[Row], details: dict[str, Any]) -> None:
    """Write the rows, and every run behind them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = [{**asdict(row), "met": row.met} for row in rows]
    path.write_text(json.dumps({"machine": machine(), "rows": found, "details": details}, indent=1) + "\n")
