"""The reader's screen: the story's lines, a live view below them, and the closing table with the checks.

Rule: the screen decides nothing. Without a terminal, it prints a plain line every few seconds instead of the live view.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from sharegroup.demo.checks import Check, Outcome, most_tasks
from sharegroup.demo.query import Bill

_PLAIN_EVERY_S = 3.0
_PLAIN_WIDTH = 100
_STYLES = {
    "starting": "yellow",
    "running": "green",
    "idle": "cyan",
    "killed": "bold red",
    "replaying": "yellow",
    "dead letters": "magenta",
    "released": "yellow",
}


class Row(NamedTuple):
    """A row of the view: a query, the dead letters, or the released orders. ``detail``: only in the live view."""

    name: str
    state: str
    text: str
    detail: str


class View(NamedTuple):
    """The story's current state. ``step``: the event that the story waits for. ``lag`` None: not known yet."""

    step: str
    orders: int
    lag: int | None
    rows: tuple[Row, ...]


class Screen:
    """The reader's screen, for the length of its ``with`` block."""

    def __init__(self) -> None:
        plain = not sys.stdout.isatty()
        self._console = Console(width=_PLAIN_WIDTH if plain else None, highlight=False)
        self._began = time.monotonic()
        self._live = Live(console=self._console, refresh_per_second=10, transient=True)
        self._spinner = Spinner("dots")
        self._printed: tuple[float, str] = (0.0, "")
        self._cleanup = ExitStack()

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._cleanup.enter_context(self._live)
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def title(self, title: str, lines: str) -> None:
        self._console.print(Text(title, style="bold"))
        self._console.print(Text(lines, style="dim"), end="\n\n")

    def say(self, text: str) -> None:
        """Print a line of the story, with the seconds since its begin. The text may have ``[bold]markup[/]``."""
        elapsed = f"{time.monotonic() - self._began:5.1f} s"
        if not self._console.is_terminal:
            self._console.print(f"{elapsed}  {text}", soft_wrap=True)
            return
        row = Table.grid(padding=(0, 2))
        row.add_column(style="dim", no_wrap=True)
        row.add_column(overflow="fold")
        row.add_row(elapsed, Text.from_markup(text))
        self._console.print(row)

    def show(self, view: View) -> None:
        if self._console.is_terminal:
            self._spinner.update(text=Text(view.step, style="dim", no_wrap=True, overflow="ellipsis"))
            self._live.update(Group(Text(), _grid(view), self._spinner))
            return
        line = "; ".join([_lag(view), *(f"{row.name} {_joined(', ', row.state, row.text)}" for row in view.rows)])
        printed_s, printed = self._printed
        if line != printed and time.monotonic() - printed_s >= _PLAIN_EVERY_S:
            self._printed = (time.monotonic(), line)
            self._console.print(f"         {line}", soft_wrap=True, markup=False)

    def close(self, outcome: Outcome, checks: Sequence[Check]) -> None:
        self._console.print("", _table(outcome), "", sep="\n")
        for check in checks:
            mark = ("✓ ", "bold green") if check.passed else ("✗ ", "bold red")
            line = Text.assemble(mark, check.promise, (f" · {check.finding}", "dim" if check.passed else "red"))
            self._console.print(line, soft_wrap=not self._console.is_terminal)
        passed, seconds = sum(check.passed for check in checks), time.monotonic() - self._began
        self._console.print(f"\n[bold]{passed} of {len(checks)} checks passed[/], after {seconds:.0f} s.")


def _grid(view: View) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    for least in (19, 20, 10):  # a long reason shortens its own column alone
        grid.add_column(no_wrap=True, overflow="ellipsis", min_width=least)
    done = 0 if view.lag is None else view.orders - view.lag
    grid.add_row("orders, partition 0", ProgressBar(total=max(view.orders, 1), completed=done, width=20), _lag(view))
    for row in view.rows:
        style = "" if row.state[:1] == "0" else _STYLES.get(row.state) or _STYLES.get(row.name, "")
        grid.add_row(row.name, Text(row.state, style=style), Text(_joined("; ", row.text, row.detail)))
    return grid


def _joined(separator: str, *texts: str) -> str:
    return separator.join(filter(None, texts))


def _lag(view: View) -> str:
    return f"{view.orders:,} orders, lag {'?' if view.lag is None else format(view.lag, ',')}"


def _table(outcome: Outcome) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title="Who billed the orders", title_justify="left", show_footer=True)
    table.add_column("", footer="together")
    headings = ("billed", "batches", "tasks a batch", "delivered once", "twice", "more often")
    together = _row(outcome.bills)
    for heading, footer in zip(headings, (*together[:2], "", *together[3:]), strict=True):
        table.add_column(heading, footer=footer, justify="right")
    for query in outcome.queries:
        table.add_row(f"query {query}", *_row(outcome.of_query(query)))
    group = outcome.group
    table.caption = (
        f"group billing: {outcome.orders:,} orders, {len(outcome.dead):,} of them dead letters, "
        f"lag {'unknown' if group.lag is None else format(group.lag, ',')}, {group.archived:,} archived"
    )
    table.caption_justify = "left"
    return table


def _row(bills: Sequence[Bill]) -> list[str]:
    counts = [bill.delivery_count for bill in bills]
    once, twice = counts.count(1), counts.count(2)
    batches = {(bill.query, bill.batch_id) for bill in bills}
    numbers = (len(bills), len(batches), most_tasks(bills), once, twice, len(bills) - once - twice)
    return [f"{number:,}" for number in numbers]
