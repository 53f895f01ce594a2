"""The screen of a command: its tables on standard output, and its progress, a bar or a count on standard error.

Rule: no progress is shown where standard error is no terminal, and nothing of it is left on the screen. Tables are as
wide as the terminal; in a file or a pipe nothing is cut.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_BLANKS_AT_END = re.compile(r" +$", re.MULTILINE)
UNCUT = 10_000
"""The columns of a file or a pipe, wider than any table, unless COLUMNS names another number."""


def console() -> Console:
    """A console on standard output."""
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


@contextmanager
def progress(what: str, total: int | None = None, *, unit: str = "") -> Iterator[Callable[[int], None]]:
    """Shows progress for the length of a ``with`` block, which gets a function that takes how much has been done so far
    in all. ``total`` None: it is not known how much there is to do. ``unit`` empty: nothing is counted."""
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
