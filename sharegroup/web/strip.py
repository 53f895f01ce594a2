"""Draws the window of a share partition: a strip of its offsets, coloured by state, to scale.

Rule: a strip has a bounded number of pieces, however many runs the window has. Where not all runs were looked at, the
strip says so, and a piece shows the share of each state among those that were.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from coordinator.client.admin import ShareAdmin
from coordinator.protocol.admin_messages import Cursor, RunInFlight
from coordinator.protocol.messages import PartitionDescription

WIDTH, HEIGHT = 1_000, 24
"""Size of a strip in its own units."""
MOST_EXACT = 300
"""Runs that a strip draws one by one; of more it draws shares in PIECES pieces."""
PIECES = 120
SAMPLES, RUNS_OF_A_SAMPLE = 6, 24
"""Places at which the rest of a window is looked at that has more runs than were asked for, and runs at each."""
HOLDERS = 6
"""Colours of holders."""

WORDS = {
    "done": "done",
    "acquired": "held by a member",
    "waiting": "released, waits for its time",
    "available": "available again",
    "isolated": "in isolation",
    "archiving": "waits for its dead letter",
    "unseen": "not looked at",
}
"""The states of a strip in words, in the order in which a piece shows them."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A rectangle of the strip: offsets ``first`` to ``last`` in one state; ``y`` and ``height`` are the part of the
    strip's height that the state has. ``colour``: the class of its colour."""

    x: float
    width: float
    y: float
    height: float
    colour: str
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class Strip:
    """A window of offsets ``first`` to ``last`` as pieces. ``counts``: offsets in each state among those that were
    looked at; ``is_exact``: each piece is in one state. ``runs``: the runs that were looked at."""

    first: int
    last: int
    pieces: tuple[Piece, ...]
    counts: dict[str, int]
    is_exact: bool
    is_sampled: bool
    runs: tuple[RunInFlight, ...] = field(default=(), repr=False)

    @property
    def label(self) -> str:
        """The strip in words, for who does not see it."""
        shown = ", ".join(f"{count:,} {WORDS[state]}" for state, count in self.counts.items() if count)
        sampled = "; a sample" if self.is_sampled else ""
        return f"offsets {self.first:,} to {self.last:,}: {shown or 'nothing'}{sampled}"


@dataclass(frozen=True, kw_only=True)
class Looked:
    """Runs of a window, and the parts of the window, ascending and apart, that they are all of."""

    runs: tuple[RunInFlight, ...]
    parts: tuple[tuple[int, int], ...]
    now_ms: int = 0


def look(
    admin: ShareAdmin, group_id: str, partition: PartitionDescription, first: int, last: int, most: int = MOST_EXACT
) -> Looked:
    """The runs of offsets ``first`` to ``last``: all if there are at most ``most``, else the first, and samples."""
    page = _page(admin, group_id, partition, first, last, most)
    if page.parts[-1][1] >= last:
        return page
    runs, parts = list(page.runs), list(page.parts)
    rest = parts[-1][1] + 1
    step = max(1, (last - rest + 1) // SAMPLES)
    for number in range(SAMPLES):
        at = max(rest + number * step, parts[-1][1] + 1)
        if at > last:
            break
        more = _page(admin, group_id, partition, at, last, RUNS_OF_A_SAMPLE)
        runs += [run for run in more.runs if not runs or run.first > runs[-1].last]
        parts += more.parts
    return Looked(runs=tuple(runs), parts=tuple(parts), now_ms=page.now_ms)


def _page(
    admin: ShareAdmin, group_id: str, partition: PartitionDescription, first: int, last: int, most: int
) -> Looked:
    cursor: Cursor = (partition.topic_id, partition.partition, first)
    page = admin.in_flight(group_id, cursor=cursor, limit=most)
    here = (partition.topic_id, partition.partition)
    runs = tuple(r for r in page.runs if (r.topic_id, r.partition) == here and r.first <= last and r.last >= first)
    end = last
    if page.cursor is not None and page.cursor[:2] == here:
        end = min(last, max(first, page.cursor[2] - 1))
    return Looked(runs=runs, parts=((first, end),), now_ms=page.now_ms)


def state_of(run: RunInFlight, now_ms: int) -> str:
    """The state of a run as a strip shows it, a key of WORDS."""
    if run.state in ("ACQUIRED", "IN_PROGRESS"):
        return "acquired"
    if run.state == "ARCHIVING":
        return "archiving"
    if run.state in ("ACKNOWLEDGED", "ARCHIVED"):
        return "done"
    if run.stage != "normal":
        return "isolated"
    return "waiting" if run.not_before_ms is not None and run.not_before_ms > now_ms else "available"


def colour_of(run: RunInFlight, now_ms: int) -> str:
    """The class of a run's colour: its state, and of a held one its holder."""
    state = state_of(run, now_ms)
    if state != "acquired":
        return state
    return f"acquired h{zlib.crc32(run.member_id.encode()) % HOLDERS}"


def draw(looked: Looked, first: int, last: int) -> Strip:
    """The strip of offsets ``first`` to ``last``."""
    spans = list(_spans(looked, first, last))
    counts = dict.fromkeys(WORDS, 0)
    for low, high, colour in spans:
        counts[colour.split()[0]] += high - low + 1
    is_exact = len(spans) <= 2 * MOST_EXACT + 2
    pieces = _exact(spans, first, last) if is_exact else _shares(spans, first, last)
    return Strip(
        first=first,
        last=last,
        pieces=tuple(pieces),
        counts=counts,
        is_exact=is_exact,
        is_sampled=counts["unseen"] > 0,
        runs=looked.runs,
    )


def _spans(looked: Looked, first: int, last: int) -> Iterator[tuple[int, int, str]]:
    """The window cut into neighbouring offsets of one colour: between runs that were looked at, records are done."""
    at = first
    runs = iter(looked.runs)
    run = next(runs, None)
    for low, high in looked.parts:
        if low > at:
            yield at, low - 1, "unseen"
            at = low
        while run is not None and run.first <= high:
            if run.first > at:
                yield at, run.first - 1, "done"
            start, end = max(run.first, at), min(run.last, last)
            if end >= start:
                yield start, end, colour_of(run, looked.now_ms)
                at = end + 1
            run = next(runs, None)
        if high >= at:
            yield at, high, "done"
            at = high + 1
    if at <= last:
        yield at, last, "unseen"


def _exact(spans: Iterable[tuple[int, int, str]], first: int, last: int) -> Iterator[Piece]:
    scale = WIDTH / (last - first + 1)
    for low, high, colour in spans:
        x, width = (low - first) * scale, max((high - low + 1) * scale, 1.0)
        yield Piece(x=x, width=width, y=0, height=HEIGHT, colour=colour, first=low, last=high)


def _shares(spans: Sequence[tuple[int, int, str]], first: int, last: int) -> Iterator[Piece]:
    size = -(-(last - first + 1) // PIECES)
    shares: list[dict[str, int]] = [{} for _ in range(PIECES)]
    for low, high, colour in spans:
        at = low
        while at <= high:
            number = (at - first) // size
            end = min(high, first + (number + 1) * size - 1)
            state = colour.split()[0]
            shares[number][state] = shares[number].get(state, 0) + end - at + 1
            at = end + 1
    scale = WIDTH / (last - first + 1)
    for number, of_piece in enumerate(shares):
        low, high = first + number * size, min(last, first + (number + 1) * size - 1)
        seen = {state: of_piece[state] for state in WORDS if state in of_piece and state != "unseen"}
        if not seen and of_piece:
            seen = {"unseen": 1}
        y, total = 0.0, sum(seen.values())
        for state, count in seen.items():
            height = HEIGHT * count / total
            x, width = (low - first) * scale, (high - low + 1) * scale
            yield Piece(x=x, width=width, y=y, height=height, colour=state, first=low, last=high)
            y += height
