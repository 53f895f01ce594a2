"""The screen of a command: tables on standard output, and progress, as a bar or a count, on standard error.

Rule: progress is shown only if standard error is a terminal, and is removed at the end. Tables are as wide as the
terminal; in a file or a pipe nothing is cut."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_BLANKS_AT_END = re.compile(r" +$", re.MULTILINE)
UNCUT = 10_000
"""The width of tables in a file or a pipe, in characters, unless COLUMNS sets another one; wider than any table."""


def console() -> Console:
    """Returns a console on standard output."""
    from rich.console import Console

    class Unpadded(Console):
        """Prints no blanks at the ends of lines: a screen shows none, and a mail or a log file is full of them."""

        def print(self, *objects: Any, **options: Any) -> None:
            with self.capture() as captured:
                super().print(*objects, **options)
            self.file.write(_BLANKS_AT_END.sub("", captured.get()))

    if sys.stdout.isatty():
        return Console(highlight=False)
    return Unpadded(width=None if "COLUMNS" in os.environ else UNCUT, highlight=False)


def plain_table(title: str, *headings: str, **more: Any) -> Table:
    """Returns a table without lines, with these columns. The column DELIVERY has numbers."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, **more)
    for heading in headings:
        right = heading == "DELIVERY"
        table.add_column(heading, justify="right" if right else "left", overflow="fold", no_wrap=heading == "STATE")
    return table


@contextmanager
def progress(what: str, total: int | None = None, *, unit: str = "") -> Iterator[Callable[[int], None]]:
    """Show progress during a ``with`` block, which gets a function to call with the amount done so far. ``total`` None:
    unknown. ``unit`` empty: nothing is counted."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns: list[ProgressColumn] = [SpinnerColumn(), TextColumn("{task.description}", markup=False)]
    if total is not None:
        columns.append(BarColumn())
    if unit:
        of_total = "" if total is None else f" of {total:,}"
        columns.append(TextColumn("{task.completed:,.0f}" + f"{of_total} {unit}"))
    shown = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True, redirect_stdout=False)
    with shown:
        task = shown.add_task(what, total=total)
        yield lambda done: shown.update(task, completed=done)
