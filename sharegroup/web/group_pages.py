"""The pages of a group, with the doctor's findings and a strip of each partition, and of one partition down to single
offsets.

Rule: a page makes a limited number of calls, however many partitions, members and runs the group has."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from starlette.responses import Response

from coordinator.admin.admin import Admin
from coordinator.config.group_keys import GROUP_KEYS, PAUSED
from coordinator.config.resolved import GroupConfig
from coordinator.protocol.admin_messages import InFlightPage, PlanInFlight, RunInFlight
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.messages import GroupDescription, MemberDescription, PartitionDescription
from sharegroup.admin_access import described
from sharegroup.doctor.findings import GroupFacts
from sharegroup.doctor.rules import query_keeps_ending
from sharegroup.group_line import HELD, awaited_in_words, ending_queries, flow_in_words, waits_of
from sharegroup.web import forms, strip
from sharegroup.web.examinations import Findings
from sharegroup.web.groups_page import WORDS
from sharegroup.web.history import LEAST_S, Sparkline, sparkline
from sharegroup.web.site import Handler, Instead, Visit, status_of
from sharegroup.web.ways import ways_of
from sharegroup.web.words import told

ON_A_PAGE = 10
"""A group's page has up to this many partitions."""
RUNS_OF_A_STRIP, PIECES_OF_A_STRIP = 60, 60
"""On a group's page a strip draws up to RUNS_OF_A_STRIP runs one by one. If there are more, PIECES_OF_A_STRIP pieces
show their shares. So ten strips fit into a page of 100 kB."""
SAMPLES_OF_A_STRIP, RUNS_OF_A_SAMPLE = 3, 8
"""If a partition has more runs, the rest is sampled at SAMPLES_OF_A_STRIP offsets, RUNS_OF_A_SAMPLE runs each."""
MOST_HELD = 250
"""A group's page lists up to this many held runs by holder. Each run takes the coordinator some 8 µs, while
acknowledgements of other groups wait."""
MOST_MEMBERS, MOST_FINDINGS = 25, 5
"""A group's page lists up to MOST_MEMBERS members, and the MOST_FINDINGS worst findings of the doctor."""
MOST_TOPICS = 100
"""The form of a reset proposes up to this many topics."""
MOST_RUNS = 60
"""A partition's page lists up to this many runs."""
CALL_THREADS = 16
"""All pages together make up to this many calls at once, so that they never fill a coordinator's round."""
_calls = ThreadPoolExecutor(CALL_THREADS, thread_name_prefix="web-calls")
_HELD_TOO_LONG = "member-holds-too-long"
MOST_OFFSETS = 200
"""A window of up to this many offsets is shown offset by offset."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A partition with the strip of its window; None if the window is empty. ``counts``: what became of its records, as
    words and numbers that are not 0."""

    partition: PartitionDescription
    strip: strip.Strip | None
    counts: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Holding:
    """A member, its newest plan (if it is a query), and what it holds: how many records, and since when. ``colour``: in
    strips; empty if it holds none of the scanned runs."""

    member: MemberDescription
    plan: PlanInFlight | None
    records: int
    since_ms: int | None
    colour: str


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A number over the last hour: as a line, its value now, its maximum, and the length of the line in minutes."""

    name: str
    line: Sparkline
    now: float
    most: float
    minutes: int


def show_group(visit: Visit) -> Response:
    """The page of a group."""
    group_id = visit.group_id
    admin = visit.admin
    visit.site.watch.opened([group_id])
    calls: list[Future[Any]] = [
        _calls.submit(described, admin, group_id),
        _calls.submit(admin.in_flight, group_id, only_state=HELD, limit=MOST_HELD),
        _calls.submit(admin.plans, group_id),
    ]
    wait(calls)
    description, held, plans = (call.result() for call in calls)
    return _group_page(visit, description, held, plans, is_live=True)


def show_last_known(visit: Visit, error: ShareGroupError) -> Response | None:
    """In an outage, a group's page as last scanned; None if there is no outage, or the group was not scanned."""
    if status_of(error) != 503:
        return None
    visit.caller.check_group(visit.text("group"))
    seen = visit.site.watch.snapshot.groups.get(visit.text("group"))
    if seen is None or seen.description is None or seen.held is None:
        return None
    return _group_page(visit, seen.description, seen.held, (), is_live=False, as_of_s=seen.at_s, error=error)


def _group_page(
    visit: Visit,
    description: GroupDescription,
    held: InFlightPage,
    plans: Sequence[PlanInFlight],
    *,
    is_live: bool,
    as_of_s: float = 0.0,
    error: ShareGroupError | None = None,
) -> Response:
    """``is_live``: ask coordinators for the windows of the partitions."""
    admin, group_id = visit.admin, description.group_id
    partitions = description.partitions
    waiting = {(p.topic_id, p.partition) for p, _ in waits_of(description)}

    def place(p: PartitionDescription) -> tuple[Any, ...]:
        is_waiting = (p.topic_id, p.partition) in waiting
        return not is_waiting, -p.archiving, p.start_offset - p.end_offset, p.topic, p.partition

    on_page, paging = visit.paged(sorted(partitions, key=place), ON_A_PAGE)
    windows, looked = _looked(admin, group_id, on_page if is_live else ())
    colours = strip.colours_of({run.member_id for run in held.runs} | strip.holders_of(looked))
    held_now = sum(p.acquired for p in partitions)
    numbers = {"lag": description.lag, "held": held_now, "given_up": description.records.given_up}
    said = {"findings": _findings(visit, description, held), "most_findings": MOST_FINDINGS, "ways": ways_of}
    fixed = {"words": strip.WORDS, "keys": sorted(GROUP_KEYS), "acts": forms.ACTS}
    values: dict[str, Any] = {**numbers, **said, **fixed, **paging}
    return visit.page(
        "group.html",
        **values,
        is_live=is_live,
        as_of_s=as_of_s,
        error=error and told(error),
        group_id=group_id,
        description=description,
        seen=visit.site.watch.snapshot.groups.get(group_id),
        partitions=_drawn(on_page, windows, looked, colours),
        partitions_total=len(partitions),
        archiving=sum(p.archiving for p in partitions),
        holdings=_holdings(description.members, plans, held.runs, colours),
        is_part=held.cursor is not None,
        now_ms=held.now_ms,
        charts=_charts(visit, group_id, {"lag": description.lag, "in_flight": held_now} if is_live else {}),
        awaited=partial(awaited_in_words, limit=GroupConfig.parse(description.all_configs).share_delivery_count_limit),
        topics=sorted({p.topic for p in partitions})[:MOST_TOPICS],
        flow=flow_in_words(description),
        is_paused=bool(description.configs.get(PAUSED)),
        has_dead_letters=bool(description.configs.get("errors.deadletterqueue.topic.name")),
    )


def _findings(visit: Visit, description: GroupDescription, held: InFlightPage) -> Findings:
    """Returns what the doctor found, none of it older than the last end of a query. Until the doctor has finished, how
    queries ended is taken from this description. A member that holds nothing now is not reported for holding records
    too long."""
    since = tuple((member.member_id, ending) for member, ending in ending_queries(description))
    findings = visit.site.examinations.of(description.group_id, since)
    if not findings.is_known:
        facts = GroupFacts(description=description, now_ms=held.now_ms)
        return replace(findings, found=tuple(query_keeps_ending(facts)))
    if held.cursor is not None:
        return findings
    holders = {run.member_id for run in held.runs}
    told = (each for each in findings.found if each.rule != _HELD_TOO_LONG or each.about["member"] in holders)
    return replace(findings, found=tuple(told))


def _looked(
    admin: Admin, group_id: str, partitions: Sequence[PartitionDescription]
) -> tuple[list[strip.OffsetWindow], list[strip.Looked]]:
    windows = [
        strip.OffsetWindow(partition=p, first=p.start_offset, last=p.end_offset - 1)
        for p in partitions
        if p.end_offset > p.start_offset
    ]
    return windows, strip.look(admin, group_id, windows, RUNS_OF_A_STRIP, SAMPLES_OF_A_STRIP, RUNS_OF_A_SAMPLE)


def _drawn(
    partitions: Sequence[PartitionDescription],
    windows: Sequence[strip.OffsetWindow],
    looked: Sequence[strip.Looked],
    colours: Mapping[str, str],
) -> list[Drawn]:
    strips = {
        (window.partition.topic_id, window.partition.partition): strip.draw(
            each, window.first, window.last, RUNS_OF_A_STRIP, PIECES_OF_A_STRIP, colours
        )
        for window, each in zip(windows, looked, strict=True)
    }
    return [Drawn(partition=p, strip=strips.get((p.topic_id, p.partition)), counts=_counts(p)) for p in partitions]


def _counts(p: PartitionDescription) -> tuple[tuple[str, int], ...]:
    removed = (("removed by Kafka", p.removed), ("deleted with the topic", p.deleted))
    counts = (("accepted", p.accepted), ("given up", p.given_up), *removed, ("skipped", p.skipped))
    return tuple(each for each in (*counts, ("repeated", p.repeated)) if each[1])


def _charts(visit: Visit, group_id: str, now: Mapping[str, int | None]) -> list[Chart]:
    """Returns the known numbers of the group's last hour. ``now``: what the page just read, so that a chart ends with
    the number above it."""
    history, now_s = visit.site.watch.history(group_id), time.time()
    series = {name: history.series(name) for name in WORDS}
    for name, number in now.items():
        if number is not None:
            series[name].append((now_s, float(number)))
    return [
        Chart(
            name=WORDS[name],
            line=sparkline(WORDS[name], points, now_s),
            now=points[-1][1],
            most=max(number for _, number in points),
            minutes=round(max(LEAST_S, now_s - points[0][0]) / 60),
        )
        for name, points in series.items()
        if points
    ]


def _holdings(
    members: Iterable[MemberDescription],
    plans: Iterable[PlanInFlight],
    held: Iterable[RunInFlight],
    colours: Mapping[str, str],
) -> list[Holding]:
    of_member = {plan.member_id: plan for plan in plans}
    records: dict[str, int] = defaultdict(int)
    since: dict[str, int] = {}
    for run in held:
        records[run.member_id] += run.last - run.first + 1
        if run.since_ms is not None:
            since[run.member_id] = min(run.since_ms, since.get(run.member_id, run.since_ms))
    found = [
        Holding(
            member=member,
            plan=of_member.get(member.member_id),
            records=records[member.member_id],
            since_ms=since.get(member.member_id),
            colour=colours.get(member.member_id, ""),
        )
        for member in members
    ]
    found.sort(key=lambda each: (not each.member.active, -each.records, each.member.member_id))
    return found[:MOST_MEMBERS]


# --- one partition


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One offset. ``colour``: as of a strip's piece; ``state``: in words."""

    offset: int
    colour: str
    state: str


def partition_of(visit: Visit) -> PartitionDescription:
    """Returns the share partition in the address. Raises BadRequest if it names no group, and
    GroupIdNotFound or UnknownSharePartition if that does not exist."""
    group_id, topic, index = visit.group_id, visit.text("topic"), visit.number("partition")
    return visit.admin.list_offsets(group_id, [topic], partitions=[index]).partitions[0]


def show_partition(visit: Visit) -> Response:
    """The page of a partition: the offsets ``first`` to ``last``, by default the whole window."""
    partition = partition_of(visit)
    start, end = partition.start_offset, max(partition.end_offset, partition.start_offset + 1)
    first = min(max(visit.number("first", start), start), end - 1)
    last = min(max(visit.number("last", end - 1), first), end - 1)
    window = strip.OffsetWindow(partition=partition, first=first, last=last)
    (looked,) = strip.look(visit.admin, visit.group_id, [window])
    colours = strip.colours_of(strip.holders_of([looked]))
    drawn = strip.draw(looked, first, last, colours=colours)
    flow = flow_in_words(described(visit.admin, visit.group_id))
    place = {"group_id": visit.group_id, "partition": partition, "first": first, "last": last, "flow": flow}
    drawing = {"strip": drawn, "colours": colours, "words": strip.WORDS, "state_of": strip.state_of}
    values: dict[str, Any] = {**place, "start": start, "end": end, **drawing, "now_ms": looked.now_ms}
    return visit.page(
        "partition.html",
        **values,
        windows=_windows(first, last, start, end),
        cells=_cells(drawn, looked, first, last) if last - first < MOST_OFFSETS else [],
        runs=looked.runs[:MOST_RUNS],
        more=len(looked.runs) > MOST_RUNS or drawn.is_sampled,
    )


def _windows(first: int, last: int, start: int, end: int) -> dict[str, tuple[int, int] | None]:
    """Returns the windows beside this one, by the text of the link; None if there is no such window."""
    size = last - first + 1
    wider = size * 10
    at = max(start, first - (wider - size) // 2)
    return {
        "Earlier": (max(start, first - size), first - 1) if first > start else None,
        "Later": (last + 1, min(end - 1, last + size)) if last < end - 1 else None,
        "Wider": (at, min(end - 1, at + wider - 1)) if size < end - start else None,
        "Whole window": (start, end - 1) if size < end - start else None,
    }


def _cells(drawn: strip.Strip, looked: strip.Looked, first: int, last: int) -> list[Cell]:
    cells = []
    pieces = iter(drawn.pieces)
    piece = next(pieces)
    for offset in range(first, last + 1):
        while piece.last < offset:
            piece = next(pieces)
        cells.append(Cell(offset=offset, colour=piece.colour, state=strip.WORDS[piece.colour.split()[0]]))
    return cells


INSTEAD: dict[str, Instead] = {"/group": show_last_known}
LOOKS: dict[str, Handler] = {"/group": show_group, "/partition": show_partition}
"""The handlers by their addresses."""
