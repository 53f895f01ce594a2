"""Bounds stored times of runs that are ahead of the owner's clock.

Times in a group's log are wall times of the owner that wrote them. A later owner whose clock is behind would delay a
record by the difference of the clocks. So the first Expire after a load bounds such times, in the log: a delay ends
after its whole length at the latest, and an event of the past is now at the latest.

The time when a member was last seen is left alone: if it is ahead, the member is kept longer, which does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.core.isolation import SOLO_BACKOFF_MAX_MS
from coordinator.core.runs import Run, Segment
from coordinator.protocol.values import LONGEST_DELAY_MS


def ahead(runs: Iterable[Segment], now_ms: int) -> list[Segment]:
    """The runs that have a time ahead of ``now_ms``, with that time bounded. Runs that a ShareConsumer holds are left
    out: their deadlines are soft state."""
    bounded = []
    for first, last, run in runs:
        has_times = run.not_before_ms is not None or run.failed_alone_ms is not None or run.last_tried_ms is not None
        if has_times and run.deadline_ms is None and (after := _in_time(run, now_ms)) != run:
            bounded.append(Segment(first, last, after))
    return bounded


def _in_time(run: Run, now_ms: int) -> Run:
    longest_ms = run.delay_ms
    if longest_ms is None:
        longest_ms = SOLO_BACKOFF_MAX_MS if run.quarantined else LONGEST_DELAY_MS
    return run._replace(
        not_before_ms=_at_most(run.not_before_ms, now_ms + longest_ms),
        failed_alone_ms=_at_most(run.failed_alone_ms, now_ms),
        last_tried_ms=_at_most(run.last_tried_ms, now_ms),
    )


def _at_most(time_ms: int | None, limit_ms: int) -> int | None:
    return None if time_ms is None else min(time_ms, limit_ms)
