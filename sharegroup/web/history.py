"""The numbers of each group in the last hour, in memory, and their sparklines as SVG.

Rule: a group's history has a fixed size, however long the page runs and however often it reads the group."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

LONGEST_S = 3_600.0
LEAST_S = 300.0
"""A sparkline shows at least this many seconds."""
POINTS = 240
"""A group's hour has this many points, one for each 15 s. A later reading within 15 s replaces the earlier one."""
NAMES = ("lag", "in_flight", "acquired_rate", "done_rate", "failed")
"""The numbers of a point."""
DRAWN = 50
"""A sparkline draws up to this many points and the last one. If there are more, it draws the smallest and the largest
of each interval."""
WIDTH, HEIGHT = 120, 28
"""The size of a sparkline in its own units."""


class History:
    """The numbers of one group in the last hour. Unknown numbers are NaN."""

    def __init__(self) -> None:
        self._times_s = array("d")
        self._numbers = {name: array("d") for name in NAMES}

    def __len__(self) -> int:
        return len(self._times_s)

    def add(self, now_s: float, numbers: Sequence[float | None]) -> None:
        """Add a point. ``numbers`` must be in the order of NAMES."""
        times = self._times_s
        step_s = LONGEST_S / POINTS
        if times and math.floor(times[-1] / step_s) == math.floor(now_s / step_s):
            times.pop()
            for of_name in self._numbers.values():
                of_name.pop()
        times.append(now_s)
        for name, number in zip(NAMES, numbers, strict=True):
            self._numbers[name].append(math.nan if number is None else number)
        while len(times) > POINTS or now_s - times[0] > LONGEST_S:
            del times[0]
            for of_name in self._numbers.values():
                del of_name[0]

    def series(self, name: str) -> list[tuple[float, float]]:
        """Returns the known points (seconds, number) of a name."""
        pairs = zip(self._times_s, self._numbers[name], strict=True)
        return [(time_s, number) for time_s, number in pairs if not math.isnan(number)]


@dataclass(frozen=True, kw_only=True)
class Sparkline:
    """A picture of a series: ``points`` of the polyline, empty if nothing is known yet, and a text."""

    points: str
    label: str


def sparkline(what: str, series: Sequence[tuple[float, float]], now_s: float) -> Sparkline:
    """Returns the sparkline of a series, from 0 to its largest number, over at least LEAST_S."""
    if not series:
        return Sparkline(points="", label=f"{what}: nothing is known yet")
    largest = max(number for _, number in series)
    scale = (HEIGHT - 4) / largest if largest > 0 else 0.0
    span_s = max(LEAST_S, now_s - series[0][0])
    places = [
        (max(0.0, WIDTH - (now_s - time_s) / span_s * WIDTH), HEIGHT - 2 - max(0.0, number) * scale)
        for time_s, number in _thinned(series)
    ]
    if len(places) == 1:
        places.insert(0, (max(0.0, places[0][0] - 2), places[0][1]))
    first, last = series[0][1], series[-1][1]
    minutes = max(1, round((now_s - series[0][0]) / 60))
    label = f"{what} over {minutes} min: {first:,.0f} at first, {largest:,.0f} at most, {last:,.0f} now"
    return Sparkline(points=" ".join(f"{round(x * 2) / 2:g},{round(y * 2) / 2:g}" for x, y in places), label=label)


def _thinned(series: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    if len(series) <= DRAWN:
        return series
    step = -(-len(series) // (DRAWN // 2))
    found: list[tuple[float, float]] = []
    for at in range(0, len(series), step):
        piece = series[at : at + step]
        found += sorted({min(piece, key=lambda point: point[1]), max(piece, key=lambda point: point[1])})
    return found if found[-1] == series[-1] else [*found, series[-1]]
