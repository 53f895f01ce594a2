"""The reader's screen: the story's lines, a live view below them, and the closing table with the checks.

Rule: the screen decides nothing. Without a terminal it prints a plain line every few seconds instead of the live view.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from sharegroup.demo.checks import Check, Outcome

_PLAIN_EVERY_S = 3.0
_PLAIN_WIDTH = 100
_STATES = {"starting": "yellow", "running": "green", "idle": "cyan", "killed": "bold red", "replaying": "yellow"}


@dataclass(frozen=True, kw_only=True)
class QueryView:
    """A query's state now. ``batch``: the batch that it processes; ``tasks_done`` of its ``tasks`` have written their
    output."""

    name: str
    state: str
    batch: int | None
    tasks_done: int
    tasks: int
    committed: int


@dataclass(frozen=True, kw_only=True)
class View:
    """The story's state now. ``step``: the event that the story waits for. ``lag`` None: not known yet. ``dead``:
    orders that have a dead letter, with its reason, the newest last. ``waiting``: released records that wait.
    ``came_back``: orders that were delivered again.
    """

    step: str
    orders: int
    lag: int | None
    queries: tuple[QueryView, ...]
    dead: tuple[tuple[int, str], ...] = ()
    came_back: int = 0
    waiting: int = 0


class Screen:
    """The reader's screen, for the length of its ``with`` block."""

    def __init__(self, console: Console | None = None) -> None:
        if console is None:
            plain = not sys.stdout.isatty()
            console = Console(width=_PLAIN_WIDTH if plain else None, highlight=False)
        self._console = console
        self._began = time.monotonic()
        self._live: Live | None = None
        self._spinner = Spinner("dots")
        self._plain: tuple[float, str] = (0.0, "")

    def __repr__(self) -> str:
        return f"<Screen {self._console.width}x{self._console.height} live={self._live is not None}>"

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=10, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def title(self, title: str, lines: str) -> None:
        """Print the title and the lines below it."""
        self._console.print(Text(title, style="bold"))
        self._console.print(Text(lines, style="dim"))
        self._console.print()

    def say(self, text: str) -> None:
        """Print a line of the story, with the seconds since its begin. The text may have ``[bold]markup[/]``."""
        elapsed = f"{time.monotonic() - self._began:5.1f} s"
        if self._live is None:
            self._console.print(f"{elapsed}  {text}", soft_wrap=True)
            return
        row = Table.grid(padding=(0, 2))
        row.add_column(style="dim", no_wrap=True)
        row.add_column(overflow="fold")
        row.add_row(elapsed, Text.from_markup(text))
        self._console.print(row)

    def show(self, view: View) -> None:
        """Show the story's state in the live view."""
        if self._live is not None:
            self._spinner.update(text=Text(view.step, style="dim", no_wrap=True, overflow="ellipsis"))
            self._live.update(Group(_live_view(view), self._spinner))
            return
        printed_s, printed_line = self._plain
        line = _plain_line(view)
        if line != printed_line and time.monotonic() - printed_s >= _PLAIN_EVERY_S:
            self._plain = (time.monotonic(), line)
            self._console.print(f"         {line}", soft_wrap=True)

    def close(self, outcome: Outcome, checks: Sequence[Check]) -> None:
        """Print the closing table and the checks."""
        self._console.print()
        self._console.print(_table(outcome))
        self._console.print()
        for check in checks:
            self._console.print(_check_line(check), soft_wrap=not self._console.is_terminal)
        passed, seconds = sum(check.passed for check in checks), time.monotonic() - self._began
        self._console.print(f"\n[bold]{passed} of {len(checks)} checks passed[/], after {seconds:.0f} s.")


def _live_view(view: View) -> RenderableType:
    bar = Table.grid(padding=(0, 1))
    done = view.orders - (view.lag if view.lag is not None else view.orders)
    bar.add_row("orders, partition 0", ProgressBar(total=max(view.orders, 1), completed=done, width=24), _billed(view))
    queries = Table.grid(padding=(0, 2))
    for query in view.queries:
        queries.add_row(
            f"query {query.name}",
            Text(f"{query.state:9}", style=_STATES.get(query.state, "")),
            f"{_batches(query)} done",
            _batch(query),
        )
    return Group(Text(), bar, queries, _dead_letters_and_releases(view))


def _dead_letters_and_releases(view: View) -> Text:
    last = f"; the last one is order {view.dead[-1][0]}: {view.dead[-1][1]}" if view.dead else ""
    lines = (
        (f"dead letters  {len(view.dead)}{last}\n", "magenta" if view.dead else ""),
        (f"released      {_released(view)}", "yellow" if view.waiting else ""),
    )
    return Text.assemble(*lines, no_wrap=True, overflow="ellipsis")


def _released(view: View) -> str:
    return f"{view.waiting} waiting, {view.came_back} came back"


def _billed(view: View) -> str:
    return f"{view.orders:,} orders, lag {'?' if view.lag is None else format(view.lag, ',')}"


def _batch(query: QueryView) -> str:
    if query.batch is None:
        return ""
    if query.state == "replaying":  # the files on disk are the killed attempt's
        return f"batch {query.batch} again"
    return f"batch {query.batch}: {query.tasks_done} of {query.tasks} tasks written"


def _batches(query: QueryView) -> str:
    return "1 batch" if query.committed == 1 else f"{query.committed} batches"


def _plain_line(view: View) -> str:
    queries = "; ".join(f"query {query.name} {query.state}, {_batches(query)} done" for query in view.queries)
    return f"{_billed(view)}; dead letters: {len(view.dead)}; released: {_released(view)}; {queries}"


def _table(outcome: Outcome) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title="Who billed the orders", title_justify="left", show_footer=True)
    deliveries = [[bill.delivery_count for o in outcome.of_query(q) for bill in o.bills] for q in outcome.queries]
    every = [count for of_query in deliveries for count in of_query]
    table.add_column("", footer="together")
    for heading, footer in (
        ("billed", f"{len(every):,}"),
        ("batches", str(len(outcome.outputs))),
        ("tasks a batch", ""),
        *zip(("delivered once", "twice", "more often"), _how_often(every), strict=True),
    ):
        table.add_column(heading, footer=footer, justify="right")
    for query, counts in zip(outcome.queries, deliveries, strict=True):
        outputs = outcome.of_query(query)
        tasks = max((output.tasks for output in outputs), default=0)
        table.add_row(f"query {query}", f"{len(counts):,}", str(len(outputs)), str(tasks), *_how_often(counts))
    lag = "unknown" if outcome.lag is None else f"{outcome.lag:,}"
    table.caption = (
        f"group billing: {outcome.orders:,} orders, {len(outcome.dead()):,} of them dead letters, lag {lag}, "
        f"{outcome.archived:,} archived"
    )
    table.caption_justify = "left"
    return table


def _how_often(delivery_counts: Sequence[int]) -> tuple[str, str, str]:
    """How many records were delivered once, twice, and more often."""
    once, twice = delivery_counts.count(1), delivery_counts.count(2)
    return f"{once:,}", f"{twice:,}", f"{len(delivery_counts) - once - twice:,}"


def _check_line(check: Check) -> Text:
    mark = ("✓ ", "bold green") if check.passed else ("✗ ", "bold red")
    return Text.assemble(mark, check.promise, (f" · {check.finding}", "dim" if check.passed else "red"))
