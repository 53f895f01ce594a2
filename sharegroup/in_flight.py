"""``sharegroup in-flight``: the runs in flight of a group, with state, holder, since when, delivery count and stage of
isolation; and the history of one record. ``sharegroup groups --describe --in-flight`` prints the runs as well."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from sharegroup.admin_access import described, opened, plain, print_json, tell_source
from sharegroup.cluster_options import JSON_OPTION, Cluster, cluster_options
from sharegroup.dlq_list import clean
from sharegroup.durations import duration, time_of
from sharegroup.group_actions import topics_of
from sharegroup.group_line import flow_in_words, who
from sharegroup.option_types import Group, Whole
from sharegroup.progress_bar import console, plain_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from coordinator.admin.admin import Admin
    from coordinator.protocol.admin_messages import HistoryRead, InFlightPage, RunInFlight

MOST_SHOWN = 100
"""A table has up to this many runs, unless --limit says otherwise."""
STALE = "STALE"
RECORD_STATES = ("AVAILABLE", "ACQUIRED", "ACKNOWLEDGED", "ARCHIVING", "ARCHIVED", "IN_PROGRESS")
"""The names in coordinator.core.record_state.RecordState, which only the coordinator's process imports."""


@click.command("in-flight", short_help="Show the records that are in flight: who holds them, and since when.")
@cluster_options
@click.option("--group", type=Group(), required=True, help="The share group.")
@click.option("--state", "states", help="Only runs in these states, separated by commas, for example ACQUIRED.")
@click.option("--held-longer-than-ms", type=Whole("milliseconds", min=0), help="Only runs that are held for longer.")
@click.option(
    "--progress-stale-longer-than-ms",
    type=Whole("milliseconds", min=0),
    help=f"Only runs whose holder has reported no progress for longer; they are marked {STALE}.",
)
@click.option("--member", "member_id", default="", help="Only records that this member holds.")
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC:PARTITION",
    help="With --history: the topic and partition of the record, as orders:0.",
)  # fmt: skip
@click.option("--history", type=Whole(min=0), metavar="OFFSET", help="Who had this record, and how it ended.")
@click.option("--limit", type=Whole("rows", min=1), default=MOST_SHOWN, show_default=True, help="Rows, at most.")
@JSON_OPTION
def in_flight(
    cluster: Cluster,
    group: str,
    states: str | None,
    held_longer_than_ms: int | None,
    progress_stale_longer_than_ms: int | None,
    member_id: str,
    topics: tuple[str, ...],
    history: int | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show the records of a group that are in flight, as runs of offsets in one state; or what became of one record,
    as far back as the state log goes.

    A record in progress is marked STALE if its holder has reported no progress for longer than the group's
    group.share.in.progress.staleness.threshold.ms.

    \b
    Examples:
      sharegroup in-flight --bootstrap-server localhost:9092 --group billing \\
          --state ACQUIRED --held-longer-than-ms 300000
      sharegroup in-flight --bootstrap-server localhost:9092 --group billing \\
          --topic orders:0 --history 1207"""
    place = _place_of(topics, history)
    filtered = states, held_longer_than_ms, progress_stale_longer_than_ms, member_id or None
    if place is not None and any(each is not None for each in filtered):
        raise click.UsageError("--history shows one record: leave out the options that select records.")
    filters = {
        "only_state": record_states(states),
        "held_longer_than_ms": held_longer_than_ms,
        "progress_staleness_ms": progress_stale_longer_than_ms,
        "member_id": member_id,
    }
    with opened(*cluster) as admin:
        if place is not None:
            show_history(admin, group, *place, limit, as_json=as_json)
            return
        found = look(admin, group, filters, limit)
        if as_json:
            print_json(found.plain())
        else:
            found.print("--limit shows more")
        tell_source(found.page.read_from)


def split_states(text: str | None) -> tuple[str, ...]:
    """Split a text of states at its commas."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def record_states(text: str | None) -> tuple[str, ...]:
    """Split a text of record states, in any case, at its commas. Raises UsageError if a state is unknown."""
    states = tuple(state.upper() for state in split_states(text))
    if unknown := [state for state in states if state not in RECORD_STATES]:
        raise click.UsageError(f"Invalid state list '{unknown[0]}'. Valid states are: {', '.join(RECORD_STATES)}")
    return states


@dataclass(frozen=True, kw_only=True)
class Found:
    """Runs in flight of a group. ``is_cut``: there are more. ``page`` has the time, the threshold of STALE, and what
    was read. ``all_stale``: a filter selected stale runs only. ``flow``: what holds back deliveries now, in
    sentences."""

    group_id: str
    runs: tuple[RunInFlight, ...]
    is_cut: bool
    all_stale: bool
    page: InFlightPage
    flow: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Returns the runs as for JSON."""
        runs = [{**plain(run), "stale": self.all_stale or is_stale(run, self.page)} for run in self.runs]
        page = {"now_ms": self.page.now_ms, "read_from": self.page.read_from}
        return {"group_id": self.group_id, **page, "runs": runs, "more": self.is_cut}

    def print(self, more: str) -> None:
        """Print the runs as a table. ``more``: how to see the rest."""
        screen = console()
        for told in self.flow:
            click.echo(f"{told}\n", err=True)
        screen.print(table(self.group_id, self.runs, self.page, all_stale=self.all_stale))
        if self.is_cut:
            screen.print(f"… and more: {more}", markup=False, soft_wrap=True)


def look(admin: Admin, group_id: str, filters: Mapping[str, Any], limit: int) -> Found:
    """Returns the group's runs that match the filters, up to ``limit``. Raises GroupIdNotFound if there is none."""
    page = admin.in_flight(group_id, limit=1)
    runs = tuple(itertools.islice(admin.all_in_flight(group_id, **filters), limit + 1))
    all_stale = filters.get("progress_staleness_ms") is not None  # the filter has chosen them
    flow = tuple(flow_in_words(described(admin, group_id)))
    is_cut = len(runs) > limit
    return Found(group_id=group_id, runs=runs[:limit], is_cut=is_cut, all_stale=all_stale, page=page, flow=flow)


def _place_of(topics: tuple[str, ...], offset: int | None) -> tuple[str, int, int] | None:
    """Returns topic, partition and offset for --history; None without it. Raises UsageError if only one of --history
    and its partition is given."""
    named = [(topic, index) for topic, indexes in topics_of(topics).items() for index in indexes]
    if offset is None and not topics:
        return None
    if offset is None or len(topics) != 1 or len(named) != 1:
        raise click.UsageError("--history OFFSET needs one --topic TOPIC:PARTITION, and --topic needs --history.")
    return (*named[0], offset)


def show_history(
    admin: Admin, group_id: str, topic: str, partition: int, offset: int, limit: int, *, as_json: bool
) -> None:
    """Print the newest ``limit`` entries of the record's history. Raises GroupIdNotFound or UnknownSharePartition if
    the group or the partition does not exist."""
    found = admin.history(group_id, topic, partition, offset, limit=limit)
    if as_json:
        print_json({"group_id": group_id, "topic": topic, "partition": partition, "offset": offset, **plain(found)})
        return
    screen = console()
    screen.print(history_table(f"{topic}-{partition}@{offset} in {group_id}", found))
    screen.print(begins(found))
    tell_source(found.read_from)


def begins(found: HistoryRead) -> str:
    """Returns a sentence about where the history begins."""
    if found.more:
        return f"{found.more} earlier entries are not shown."
    if found.is_whole:
        return "The history is whole." if found.entries else "The record was not delivered yet."
    if found.is_cut:
        return "The state log has more: so far back it was not read."
    return "What was before is not known: the state log does not hold it any more."


def history_table(title: str, found: HistoryRead) -> RenderableType:
    """Returns the entries as a table of up to 80 columns."""
    from rich.markup import escape

    shown = plain_table(escape(title), "WHEN", "WHAT", "DELIVERY", "BY", "NOTE", title_style="bold")
    for entry in found.entries:
        by = " ".join(part for part in (who(entry), entry.client_host) if part)
        notes = [f"query {entry.query_id}"] if entry.query_id else []
        notes += [clean(entry.reason)] if entry.reason else []
        cells = (time_of(entry.at_ms), entry.event, str(entry.delivery_count or ""), by, ", ".join(notes))
        shown.add_row(*map(escape, cells))
    return shown


def is_stale(run: RunInFlight, page: InFlightPage) -> bool:
    """Whether a record is in progress, and its holder's last signal is older than the group's threshold."""
    signal_ms = page.now_ms if run.last_signal_ms is None else run.last_signal_ms
    return run.state == "IN_PROGRESS" and page.now_ms - signal_ms > page.staleness_threshold_ms


def table(group_id: str, runs: Iterable[RunInFlight], page: InFlightPage, *, all_stale: bool = False) -> RenderableType:
    """Returns the runs as a table of up to 80 columns. ``page`` has the time and the threshold of STALE; ``all_stale``:
    a filter selected stale runs only."""
    headings = ("PARTITION", "OFFSETS", "STATE", "DELIVERY", "HELD BY", "FOR", "NOTE")
    shown = plain_table(f"In flight in {group_id}", *headings, title_style="bold")
    for run in runs:
        shown.add_row(*row(run, page, all_stale=all_stale), style=_STYLES.get(run.state))
    return shown if shown.row_count else f"Nothing of {group_id} is in flight as asked."


_STYLES = {"ACQUIRED": "cyan", "IN_PROGRESS": "cyan", "ARCHIVING": "magenta"}


def row(run: RunInFlight, page: InFlightPage, *, all_stale: bool) -> Iterator[str]:
    """Yields the cells of a run."""
    from rich.markup import escape

    is_held = run.state in ("ACQUIRED", "IN_PROGRESS")
    yield f"{escape(run.topic)}-{run.partition}"
    yield str(run.first) if run.first == run.last else f"{run.first}-{run.last}"
    yield run.state
    yield str(run.delivery_count)
    yield escape(" ".join(filter(None, (who(run), run.client_host)))) if is_held else ""
    yield duration(page.now_ms - run.since_ms) if is_held and run.since_ms is not None else ""
    yield escape(", ".join(_notes(run, page, all_stale=all_stale)))


def _notes(run: RunInFlight, page: InFlightPage, *, all_stale: bool) -> Iterator[str]:
    now_ms = page.now_ms
    if all_stale or is_stale(run, page):
        yield STALE
    if run.stage != "normal":
        yield run.stage
    if run.failures:
        yield f"{run.failures} failed"
    if run.not_before_ms is not None and run.not_before_ms > now_ms:
        yield f"waits {duration(run.not_before_ms - now_ms)}"
    if run.last_signal_ms is not None:
        yield f"signal {duration(now_ms - run.last_signal_ms)} ago{': ' if run.hint else ''}{clean(run.hint)}"
    if run.behind is not None:
        yield f"waits for {run.behind}"
    if run.reason:
        yield run.reason
