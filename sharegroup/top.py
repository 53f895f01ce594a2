"""``sharegroup top``: a screen of all groups that is drawn anew every few seconds: state, members, lag, rates, and the
record that is in flight for longest."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from sharegroup.admin_access import opened, print_json
from sharegroup.cluster_options import JSON_OPTION, Cluster, cluster_options
from sharegroup.durations import duration
from sharegroup.group_line import HELD, GroupLine, line_of
from sharegroup.option_types import Group, Seconds
from sharegroup.progress_bar import console

if TYPE_CHECKING:
    from rich.console import RenderableType

    from coordinator.admin.admin import Admin
    from coordinator.protocol.admin_messages import RunInFlight

RUNS_LOOKED_AT = 1_000
"""A group's oldest run is searched in up to this many runs that its members hold, from the first one on."""


@click.command(short_help="A live screen of groups: lag, rates, the oldest record in flight.")
@cluster_options
@click.option(
    "--group", "group_ids", type=Group(), multiple=True, help="A share group. Can be given several times.  [all groups]"
)
@click.option("--interval", type=Seconds(min=0.2), default=2.0, show_default=True, help="Seconds between two looks.")
@click.option("--once", is_flag=True, help="Look twice, print the second look, and end: for scripts.")
@JSON_OPTION
def top(cluster: Cluster, group_ids: tuple[str, ...], interval: float, once: bool, as_json: bool) -> None:
    """Show all groups on a screen that is drawn anew, until Ctrl-C.

    STATE: in brackets, what holds back deliveries. MEM: members with a session; in an ordered group also how many of
    them wait for partitions that others hold. HELD: records that members hold. DLQ: records that wait for their dead
    letters. ACQ/S: offsets that are acquired for the first time, per second. DONE/S: offsets that the start offsets
    pass, per second. OLDEST: how long the oldest held record has been held. --json prints the groups once.

    \b
    Example:
      sharegroup top --bootstrap-server localhost:9092 \\
          --group billing --interval 10"""
    from coordinator.protocol.errors import GroupIdNotFound

    with opened(*cluster) as admin:
        looks = Looks(admin, group_ids)
        for line in looks.look():
            if line.state == "Dead" and line.group_id in group_ids:  # one that is deleted later stays on the screen
                raise GroupIdNotFound(group_id=line.group_id)
        if once or as_json:
            time.sleep(interval)
            lines = looks.look()
            if as_json:
                print_json([{**asdict(line), "state": line.state.upper()} for line in lines])  # as groups --json
                return
            console().print(screen(lines, looks.read_from))
            return
        from rich.live import Live

        with suppress(KeyboardInterrupt), Live(screen(looks.lines, looks.read_from), screen=True) as live:
            while True:
                time.sleep(interval)
                live.update(next_screen(looks), refresh=True)


def next_screen(looks: Looks) -> RenderableType:
    """Returns the screen after another reading. If the reading fails, the lines stay, with the error below them."""
    from rich.console import Group
    from rich.text import Text

    from coordinator.protocol.errors import ShareGroupError

    try:
        return screen(looks.look(), looks.read_from)
    except ShareGroupError as error:
        told = Text(f"{type(error).__name__}: {error}", style="red")
        return Group(screen(looks.lines, looks.read_from), told)


class Looks:
    """Reads groups repeatedly. ``lines``: those of the last reading; ``read_from``: as in GroupsListed."""

    def __init__(self, admin: Admin, group_ids: tuple[str, ...] = ()) -> None:
        self._admin = admin
        self._group_ids = group_ids
        self._looked_s = 0.0
        self.lines: list[GroupLine] = []
        self.read_from = ""

    def look(self) -> list[GroupLine]:
        """Read the groups, and return their lines. A group that does not exist is Dead; one that was deleted meanwhile
        has nothing in flight. If no coordinator or store can answer, raises ShareGroupError, and ``lines`` stay
        unchanged."""
        from coordinator.protocol.errors import GroupIdNotFound

        listed = self._admin.list_groups(only_ids=True)
        self.read_from = listed.read_from
        group_ids = self._group_ids or tuple(each.group_id for each in listed.groups)
        descriptions = self._admin.describe_groups(group_ids)
        before = {line.group_id: line for line in self.lines}
        now_s = time.monotonic()
        elapsed_s = now_s - self._looked_s
        lines = []
        for group_id, description in descriptions.items():
            held: tuple[RunInFlight, ...] = ()
            now_ms = 0
            with suppress(GroupIdNotFound):
                if description.state != "DEAD":
                    page = self._admin.in_flight(group_id, only_state=HELD, limit=RUNS_LOOKED_AT)
                    held, now_ms = page.runs, page.now_ms
            lines.append(line_of(description, held, now_ms, before=before.get(group_id), elapsed_s=elapsed_s))
        self.lines, self._looked_s = lines, now_s
        return self.lines


def screen(lines: Iterable[GroupLine], read_from: str = "") -> RenderableType:
    """Returns the lines as a table of up to 80 columns, the largest lag first."""
    from rich.markup import escape
    from rich.table import Table

    title = "Share groups" + (f" (no coordinator runs: read from {escape(read_from)})" if read_from else "")
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("GROUP", overflow="fold")
    table.add_column("STATE", no_wrap=True)
    for heading in ("MEM", "LAG", "HELD", "ACQ/S", "DONE/S", "DLQ", "ARCHIVED", "OLDEST"):
        table.add_column(heading, justify="right", no_wrap=True)
    for line in sorted(lines, key=lambda each: (-(each.lag or 0), each.group_id)):
        members = short(line.members) + (f" ({short(line.waiting)} wait)" if line.waiting else "")
        cells = (line.lag, line.in_flight, line.acquired_rate, line.done_rate, line.archiving)
        oldest = "-" if line.oldest_ms is None else duration(line.oldest_ms)
        shown = (members, *map(short, cells), short(line.archived), oldest)
        table.add_row(escape(line.group_id), line.shown_state, *shown, style=_STYLES.get(line.state))
    return table


_STYLES = {"Empty": "yellow", "Dead": "red", "Unknown": "yellow"}


def short(number: float | None) -> str:
    """Returns the number in up to five characters: 9999, 12k, 3.4M; - for None."""
    if number is None:
        return "-"
    if number < 10_000:
        return f"{number:.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"
    for size, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.0f}{name}" if number >= 10 * size else f"{number / size:.1f}{name}"
    return str(number)
