"""Draws the window of a share partition: a strip of its offsets, coloured by state, to scale.

Rule: a strip has a limited number of pieces, however many runs the window has. If not all runs were scanned, the strip
says so, and a piece shows the share of each state among the scanned ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from coordinator.admin.admin import Admin
from coordinator.protocol import admin_messages as messages
from coordinator.protocol.admin_messages import RunInFlight
from coordinator.protocol.messages import PartitionDescription

WIDTH, HEIGHT = 1_000, 24
"""The size of a strip in its own units."""
MOST_EXACT = 300
"""By default, a strip draws up to this many runs one by one, and more of them as shares in PIECES pieces."""
PIECES = 120
SAMPLES, RUNS_OF_A_SAMPLE = 6, 24
"""If a window has more runs than one request returns, the rest is sampled: RUNS_OF_A_SAMPLE runs at SAMPLES offsets."""
HOLDERS = 6
"""Holders are shown in up to this many colours."""
LEAST_WIDTH, LEAST_HEIGHT = 3.0, 3.0
"""A piece in flight has at least this size, so that one held record of a million is visible."""
BENEATH = ("done", "unseen")
"""Every other colour is drawn over these."""

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
    """A rectangle of the strip: offsets ``first`` to ``last`` in one state. ``y`` and ``height``: the part of the
    strip's height that the state takes. ``colour``: the CSS class."""

    x: float
    width: float
    y: float
    height: float
    colour: str
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class Strip:
    """A window of offsets ``first`` to ``last`` as pieces. ``counts``: how many scanned offsets are in each state;
    ``is_exact``: each piece has one state; ``runs``: the scanned runs."""

    first: int
    last: int
    pieces: tuple[Piece, ...]
    counts: dict[str, int]
    is_exact: bool
    runs: tuple[RunInFlight, ...] = field(default=(), repr=False)

    @property
    def is_sampled(self) -> bool:
        return self.counts["unseen"] > 0

    @property
    def paths(self) -> dict[str, str]:
        """The pieces as one SVG path for each colour, so that a page with ten strips stays small. Later paths cover
        earlier ones: done offsets are drawn first, and the rarest colour last."""
        found: dict[str, list[str]] = {}
        sizes: dict[str, int] = {}
        for p in self.pieces:
            sizes[p.colour] = sizes.get(p.colour, 0) + p.last - p.first + 1
            x, width, y, height = (f"{number:.1f}".removesuffix(".0") for number in (p.x, p.width, p.y, p.height))
            found.setdefault(p.colour, []).append(f"M{x} {y}h{width}v{height}h-{width}z")
        order = sorted(found, key=lambda colour: (colour not in BENEATH, -sizes[colour]))
        return {colour: "".join(found[colour]) for colour in order}

    @property
    def label(self) -> str:
        """The strip in words, for screen readers."""
        shown = ", ".join(f"{count:,} {WORDS[state]}" for state, count in self.counts.items() if count)
        sampled = "; a sample" if self.is_sampled else ""
        return f"offsets {self.first:,} to {self.last:,}: {shown or 'nothing'}{sampled}"


@dataclass(frozen=True, kw_only=True)
class Looked:
    """Runs of a window. ``parts``: offset ranges, ascending and disjoint, whose runs are all in ``runs``. The rest of
    the window is unknown."""

    runs: tuple[RunInFlight, ...]
    parts: tuple[tuple[int, int], ...]
    now_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class OffsetWindow:
    """Offsets ``first`` to ``last`` of a share partition."""

    partition: PartitionDescription
    first: int
    last: int


def look(
    admin: Admin,
    group_id: str,
    windows: Sequence[OffsetWindow],
    most: int = MOST_EXACT,
    samples: int = SAMPLES,
    of_a_sample: int = RUNS_OF_A_SAMPLE,
) -> list[Looked]:
    """Returns the runs of each window: all, up to ``most``. If there are more, the first ones, and ``of_a_sample`` runs
    at each of ``samples`` offsets of the rest."""
    pages = _pages(admin, group_id, [(each, each.first, most) for each in windows])
    rests = (range(page.end, each.last + 1) for each, page in zip(windows, pages, strict=True))
    places = [rest[:: max(1, len(rest) // samples)][:samples] for rest in rests]
    asked = [(each, at, of_a_sample) for each, ats in zip(windows, places, strict=True) for at in ats]
    sampled = iter(_pages(admin, group_id, asked))
    return [_joined([page, *islice(sampled, len(ats))]) for page, ats in zip(pages, places, strict=True)]


class _Page(NamedTuple):
    """One reply: the runs of a window from ``first`` to before ``end``, and perhaps some more."""

    runs: tuple[RunInFlight, ...]
    first: int
    end: int
    now_ms: int


def _joined(pages: Sequence[_Page]) -> Looked:
    """Join the pages of one window: a sample may reach beyond the place of the next one."""
    runs: list[RunInFlight] = []
    parts: list[tuple[int, int]] = []
    for page in pages:
        first = max(page.first, parts[-1][1] + 1) if parts else page.first
        if first < page.end:
            runs += [run for run in page.runs if run.last >= first and (not runs or run.first > runs[-1].last)]
            parts.append((first, page.end - 1))
    return Looked(runs=tuple(runs), parts=tuple(parts), now_ms=pages[0].now_ms)


def _pages(admin: Admin, group_id: str, asked: Sequence[tuple[OffsetWindow, int, int]]) -> list[_Page]:
    """Make one request for all windows. Returns for each a page from an offset on, with up to a number of runs."""
    if not asked:
        return []
    windows = [
        messages.Window(
            topic_id=each.partition.topic_id, partition=each.partition.partition, first=at, last=each.last, limit=most
        )
        for each, at, most in asked
    ]
    found = admin.windows_in_flight(group_id, windows)
    return [
        _Page(page.runs, at, each.last + 1 if page.cursor is None else page.cursor[2], page.now_ms)
        for (each, at, _), page in zip(asked, found, strict=True)
    ]


def state_of(run: RunInFlight, now_ms: int) -> str:
    """Returns the state of a run as a strip shows it: a key of WORDS."""
    if run.state in ("ACQUIRED", "IN_PROGRESS"):
        return "acquired"
    if run.state == "ARCHIVING":
        return "archiving"
    if run.state in ("ACKNOWLEDGED", "ARCHIVED"):
        return "done"
    if run.stage != "normal":
        return "isolated"
    return "waiting" if run.not_before_ms is not None and run.not_before_ms > now_ms else "available"


def colours_of(member_ids: Iterable[str]) -> dict[str, str]:
    """Returns the CSS class of each holder's colour on one page. Up to HOLDERS holders have different colours."""
    return {member_id: f"acquired h{number % HOLDERS}" for number, member_id in enumerate(sorted(set(member_ids)))}


def holders_of(looked: Iterable[Looked]) -> set[str]:
    """Returns the members that hold scanned runs."""
    return {run.member_id for each in looked for run in each.runs if state_of(run, each.now_ms) == "acquired"}


def draw(
    looked: Looked,
    first: int,
    last: int,
    most: int = MOST_EXACT,
    pieces: int = PIECES,
    colours: Mapping[str, str] | None = None,
) -> Strip:
    """Returns the strip of offsets ``first`` to ``last``. More than ``most`` runs are drawn as shares in ``pieces``
    pieces. ``colours``: those of the page's holders; None: the page has only this strip."""
    colours = colours_of(holders_of([looked])) if colours is None else colours
    spans = list(_spans(looked, first, last, colours))
    counts = dict.fromkeys(WORDS, 0)
    for low, high, colour in spans:
        counts[colour.split()[0]] += high - low + 1
    is_exact = len(spans) <= 2 * most + 2
    drawn = _exact(spans, first, last) if is_exact else _shares(spans, first, last, pieces)
    return Strip(first=first, last=last, pieces=tuple(drawn), counts=counts, is_exact=is_exact, runs=looked.runs)


def _spans(looked: Looked, first: int, last: int, colours: Mapping[str, str]) -> Iterator[tuple[int, int, str]]:
    """Yields the window in parts of one colour. Between scanned runs, records are done."""
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
                state = state_of(run, looked.now_ms)
                yield start, end, colours.get(run.member_id, "acquired h0") if state == "acquired" else state
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
        least = 1.0 if colour in BENEATH else LEAST_WIDTH
        width = max((high - low + 1) * scale, least)
        x = min((low - first) * scale, WIDTH - width)
        yield Piece(x=x, width=width, y=0, height=HEIGHT, colour=colour, first=low, last=high)


def _shares(spans: Sequence[tuple[int, int, str]], first: int, last: int, pieces: int) -> Iterator[Piece]:
    size = -(-(last - first + 1) // pieces)
    shares: list[dict[str, int]] = [{} for _ in range(pieces)]
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
        y = 0.0
        for state, height in _heights(seen).items():
            x, width = (low - first) * scale, (high - low + 1) * scale
            yield Piece(x=x, width=width, y=y, height=height, colour=state, first=low, last=high)
            y += height


def _heights(counts: dict[str, int]) -> dict[str, float]:
    """Returns the height of each state by its share, but at least LEAST_HEIGHT for states in flight."""
    total = sum(counts.values())
    heights = {state: HEIGHT * count / total for state, count in counts.items()}
    raised = {state for state, height in heights.items() if state not in BENEATH and height < LEAST_HEIGHT}
    rest = sum(height for state, height in heights.items() if state not in raised)
    room = HEIGHT - LEAST_HEIGHT * len(raised)
    return {state: LEAST_HEIGHT if state in raised else height * room / rest for state, height in heights.items()}
