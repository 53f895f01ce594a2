"""``sharegroup top``: a screen of all groups that is drawn anew every few seconds: state, members, lag, rates, and the
record that is in flight for longest."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from sharegroup.admin_access import opened, print_json
from sharegroup.cluster_options import JSON_OPTION, cluster_options
from sharegroup.durations import duration

if TYPE_CHECKING:
    from rich.console import RenderableType

    from coordinator.admin.admin import Admin
    from coordinator.protocol.admin_messages import RunInFlight
    from coordinator.protocol.messages import GroupDescription, MemberDescription

HELD = ("ACQUIRED", "IN_PROGRESS")
RUNS_LOOKED_AT = 1_000
"""A group's oldest run is searched in up to this many: those that its members hold, from the first on."""


@dataclass(frozen=True, kw_only=True)
class GroupLine:
    """A group at one moment. ``done`` and ``acquired_offsets``: the sums of start and end offsets, from which rates
    come; rates are per second, None in the first reading. ``without_dead_letter``: of
    :func:`given_up_without_dead_letter`. ``slowed``: of :func:`slowed_queries`. ``oldest_ms``: how long the record that
    is held for longest has been held."""

    group_id: str
    state: str
    members: int
    lag: int | None
    in_flight: int
    archiving: int
    archived: int
    done: int
    acquired_offsets: int
    oldest_ms: int | None = None
    acquired_rate: float | None = None
    done_rate: float | None = None
    without_dead_letter: int = 0
    slowed: int = 0


def slowed_queries(description: GroupDescription) -> list[MemberDescription]:
    """The queries with a session whose breaker on releases is open; none once nothing is in flight: a breaker stays
    open until its query has a batch to judge by."""
    if all(p.start_offset == p.end_offset for p in description.partitions):
        return []
    return [member for member in description.members if member.active and member.breaker is not None]


def given_up_without_dead_letter(description: GroupDescription) -> int:
    """The records that the group gave up without a dead letter, those of deleted topics among them; 0 once it has a
    dead letter topic."""
    if description.configs.get("errors.deadletterqueue.topic.name"):
        return 0
    of_partitions = sum(sum(p.without_dead_letter.values()) for p in description.partitions)
    return max(of_partitions, sum(description.records.without_dead_letter.values()))


def line_of(
    description: GroupDescription,
    held: Iterable[RunInFlight],
    now_ms: int,
    *,
    before: GroupLine | None = None,
    elapsed_s: float = 0.0,
) -> GroupLine:
    """The line of a group; ``before``: its line ``elapsed_s`` ago. A start offset that was set back has no rate."""
    partitions = description.partitions
    lags = [p.lag for p in partitions if p.lag is not None]
    sinces = [run.since_ms for run in held if run.since_ms is not None]
    done, acquired = sum(p.start_offset for p in partitions), sum(p.end_offset for p in partitions)
    rates: list[float | None] = [None, None]
    if before is not None and elapsed_s > 0:
        changes = (acquired - before.acquired_offsets, done - before.done)
        rates = [change / elapsed_s if change >= 0 else None for change in changes]
    return GroupLine(
        group_id=description.group_id,
        state=description.state.capitalize(),
        members=sum(member.active for member in description.members),
        lag=sum(lags) if len(lags) == len(partitions) else None,
        in_flight=sum(p.acquired for p in partitions),
        archiving=sum(p.archiving for p in partitions),
        archived=sum(p.archived_total for p in partitions),
        without_dead_letter=given_up_without_dead_letter(description),
        slowed=len(slowed_queries(description)),
        done=done,
        acquired_offsets=acquired,
        oldest_ms=now_ms - min(sinces) if sinces else None,
        acquired_rate=rates[0],
        done_rate=rates[1],
    )


@click.command(short_help="A live screen of groups: lag, rates, the oldest record in flight.")
@cluster_options
@click.option("--group", "group_ids", multiple=True, help="A share group. Can be given several times.  [all groups]")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.2),
    default=2.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option("--once", is_flag=True, help="Look twice, print the second look, and end: for scripts.")
@JSON_OPTION
def top(
    bootstrap_server: str,
    config_path: str | None,
    properties: Mapping[str, str],
    group_ids: tuple[str, ...],
    interval: float,
    once: bool,
    as_json: bool,
) -> None:
    """Show all groups on a screen that is drawn anew, until Ctrl-C.

    HELD: records that members hold. DLQ: records that wait for their dead letters. ACQ/S: offsets that are acquired for
    the first time, per second. DONE/S: offsets that the start offsets pass, per second. OLDEST: for how long the record
    that is held for longest has been held. --json prints one look as JSON. Groups that are named have to exist.

    \b
    Examples:
      sharegroup top --bootstrap-server localhost:9092
      sharegroup top --bootstrap-server localhost:9092 \\
          --group billing --interval 10
      sharegroup top --bootstrap-server localhost:9092 --once
    """
    with opened(bootstrap_server, config_path, properties) as admin:
        looks = Looks(admin, group_ids)
        _check_exist(looks.look(), group_ids)
        if once or as_json:
            time.sleep(interval)
            lines = looks.look()
            if as_json:
                print_json([{**asdict(line), "state": line.state.upper()} for line in lines])  # as groups --json
                return
            from rich.console import Console

            Console(highlight=False).print(screen(lines, looks.read_from))
            return
        _draw(looks, interval)


def _check_exist(lines: Iterable[GroupLine], named: Container[str]) -> None:
    """Check in the first reading that the named groups exist. A group that is deleted later stays on the screen as
    Dead.

    Raises:
        GroupIdNotFound: a named group does not exist.
    """
    from coordinator.protocol.errors import GroupIdNotFound

    for line in lines:
        if line.state == "Dead" and line.group_id in named:
            raise GroupIdNotFound(group_id=line.group_id)


def _draw(looks: Looks, interval_s: float) -> None:
    from rich.live import Live

    with suppress(KeyboardInterrupt), Live(screen(looks.lines, looks.read_from), screen=True) as live:
        while True:
            time.sleep(interval_s)
            live.update(next_screen(looks), refresh=True)


def next_screen(looks: Looks) -> RenderableType:
    """Returns the screen after another reading. A reading that fails leaves the lines as they are, with the error below
    them."""
    from rich.console import Group
    from rich.text import Text

    from coordinator.protocol.errors import ShareGroupError

    try:
        return screen(looks.look(), looks.read_from)
    except ShareGroupError as error:
        told = Text(f"{type(error).__name__}: {error}", style="red")
        return Group(screen(looks.lines, looks.read_from), told)


class Looks:
    """Reads groups again and again. ``lines``: those of the last reading; ``read_from``: as in GroupsListed."""

    def __init__(self, admin: Admin, group_ids: tuple[str, ...] = ()) -> None:
        self._admin = admin
        self._group_ids = group_ids
        self._looked_s = 0.0
        self.lines: list[GroupLine] = []
        self.read_from = ""

    def look(self) -> list[GroupLine]:
        """Returns the lines of the groups now. Groups that do not exist are Dead; one that is deleted meanwhile has
        nothing in flight.

        Raises:
            ShareGroupError: a coordinator, or the store, can't answer; ``lines`` stay as they were.
        """
        from coordinator.protocol.errors import GroupIdNotFound

        listed = self._admin.list_groups()
        self.read_from = listed.read_from
        group_ids = self._group_ids or tuple(each.group_id for each in listed.groups)
        descriptions = self._admin.describe_groups(group_ids, most_runs=0)
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
            line = line_of(description, held, now_ms, before=before.get(group_id), elapsed_s=elapsed_s)
            lines.append(line)
        self.lines, self._looked_s = lines, now_s
        return self.lines


def screen(lines: Iterable[GroupLine], read_from: str = "") -> RenderableType:
    """The lines as a table of up to 80 columns, those with the largest lag first."""
    from rich.markup import escape
    from rich.table import Table

    title = "Share groups" + (f" (no coordinator runs: read from {escape(read_from)})" if read_from else "")
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("GROUP", overflow="fold")
    table.add_column("STATE", no_wrap=True)
    for heading in ("MEM", "LAG", "HELD", "ACQ/S", "DONE/S", "DLQ", "ARCHIVED", "OLDEST"):
        table.add_column(heading, justify="right", no_wrap=True)
    for line in sorted(lines, key=lambda each: (-(each.lag or 0), each.group_id)):
        cells = (line.members, line.lag, line.in_flight, line.acquired_rate, line.done_rate, line.archiving)
        oldest = "-" if line.oldest_ms is None else duration(line.oldest_ms)
        shown = (*map(short, cells), short(line.archived), oldest)
        table.add_row(escape(line.group_id), line.state, *shown, style=_STYLES.get(line.state))
    return table


_STYLES = {"Empty": "yellow", "Dead": "red", "Unknown": "yellow"}


def short(number: float | None) -> str:
    """The number in up to five characters: 9999, 12k, 3.4M; - for None."""
    if number is None:
        return "-"
    if number < 10_000:
        return f"{number:.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"
    for size, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.0f}{name}" if number >= 10 * size else f"{number / size:.1f}{name}"
    return str(number)
