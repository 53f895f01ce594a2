"""Staged outcomes: outcomes that sinks decided for a plan's records, kept until the plan completes
(docs/trust/protocol.md, "Outcomes of a sink").

An attempt is one delivery of the plan, known by its delivery count. These rules give a record its outcome:

- The last attempt's outcome counts. If the last attempt did not mention the record, it is accepted in implicit mode,
  and released in explicit mode.
- An older attempt can only veto: if two attempts disagree, the record is released. An older attempt in explicit mode
  that did not mention the record vetoes as well, since its output does not hold the record.
- If the sinks of the last attempt say that their target replaces its output of the batch, older attempts have no veto:
  nothing of them is left in the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple, TypeVar

from coordinator.core.runs import Segment
from coordinator.protocol.values import AcknowledgeType, Int64, Offset

Outcome = Literal[0, 1, 2, 3, 5]
"""An AcknowledgeType, apart from RENEW."""


class Verdict(NamedTuple):
    """The outcome that sinks decided for a record at ``delivery_count``.

    not_before_ms, delay_ms: the end and the length of the own delay of a release or a deferral.
    dead_letter: the record's dead letter is written.
    disagrees: an earlier attempt decided otherwise, or did not mention the record in explicit mode.
    divided: another sink of the same attempt, or another row of the same commit, decided otherwise.
    unreadable: the driver found that the record can't be read; no sink decided it, and no attempt has a veto.
    """

    delivery_count: Offset
    outcome: Outcome
    not_before_ms: Int64 | None = None
    dead_letter: bool = False
    reason: str = ""
    disagrees: bool = False
    divided: bool = False
    delay_ms: Int64 | None = None
    unreadable: bool = False

    def settled(self, *, replaces: bool) -> int:
        """The outcome that takes effect if this attempt is the last. ``replaces``: the attempt's output replaced any
        earlier output."""
        vetoed = not self.unreadable and (self.divided if replaces else self.disagrees)
        return AcknowledgeType.RELEASE if vetoed else self.outcome


StagedRun = tuple[Offset, Offset, Verdict]
"""Offsets first to last, and the verdict on them."""

GAP = Verdict(0, 0)
"""The verdict on offsets that the log does not hold and that no sink decided."""


def later(before: Verdict, now: Verdict) -> Verdict:
    """The verdict on a record after a later commit's verdict ``now``. A dead letter that was written before, for the
    same outcome, counts as written."""
    differs = before.outcome != now.outcome
    disagrees = before.disagrees or now.disagrees or differs
    divided = now.divided or (before.delivery_count == now.delivery_count and (before.divided or differs))
    dead_letter = now.dead_letter or (before.dead_letter and not differs)
    if (disagrees, divided, dead_letter) == (now.disagrees, now.divided, now.dead_letter):
        return now
    return now._replace(disagrees=disagrees, divided=divided, dead_letter=dead_letter)


def overlaid(
    below: list[StagedRun], above: list[StagedRun], both: Callable[[Verdict, Verdict], Verdict]
) -> list[StagedRun]:
    """Both lists, which must be ascending and disjoint, as one; ``both`` gives the verdict where they overlap."""
    if not below or not above:
        return above or below
    if below[-1][1] < above[0][0]:
        return below + above
    merged: list[StagedRun] = []
    lower, upper = iter(below), iter(above)
    low, up = next(lower, None), next(upper, None)
    while low is not None and up is not None:
        if low[1] < up[0]:
            merged.append(low)
            low = next(lower, None)
        elif up[1] < low[0]:
            merged.append(up)
            up = next(upper, None)
        elif low[0] < up[0]:
            merged.append((low[0], up[0] - 1, low[2]))
            low = (up[0], low[1], low[2])
        elif up[0] < low[0]:
            merged.append((up[0], low[0] - 1, up[2]))
            up = (low[0], up[1], up[2])
        else:
            last = min(low[1], up[1])
            merged.append((low[0], last, both(low[2], up[2])))
            low = (last + 1, low[1], low[2]) if last < low[1] else next(lower, None)
            up = (last + 1, up[1], up[2]) if last < up[1] else next(upper, None)
    for rest, others in ((low, lower), (up, upper)):
        if rest is not None:
            merged.append(rest)
            merged.extend(others)
    return merged


def staged_with(before: list[StagedRun], now: list[StagedRun]) -> list[StagedRun]:
    """The staged runs of a partition after one more commit of a sink."""
    return overlaid(before, now, later)


def contradicted(before: list[StagedRun], now: list[StagedRun]) -> int:
    """The number of records about which an earlier commit of the same attempt decided otherwise. Records that an
    earlier commit, or the sink itself, has counted are left out."""
    return sum(
        last - first + 1
        for first, last, verdict, earlier in pieces(now, before)
        if earlier is not None and not (earlier.divided or verdict.divided) and later(earlier, verdict).divided
    )


def with_gaps(gaps: list[StagedRun], staged: list[StagedRun]) -> list[StagedRun]:
    """The staged runs, and the gaps of the log where nothing is staged."""
    return overlaid(gaps, staged, lambda gap, verdict: verdict)


Held = TypeVar("Held")


def pieces(
    segments: Iterable[tuple[int, int, Held]], staged: list[StagedRun]
) -> Iterator[tuple[int, int, Held, Verdict | None]]:
    """Yield the segments, which must be ascending, cut where the verdict changes; None where nothing is staged."""
    verdicts = iter(staged)
    at = next(verdicts, None)
    for first, last, run in segments:
        while at is not None and at[1] < first:
            at = next(verdicts, None)
        while at is not None and at[0] <= last:
            if first < at[0]:
                yield first, at[0] - 1, run, None
                first = at[0]
            end = min(last, at[1])
            yield first, end, run, at[2]
            first = end + 1
            if at[1] > last:
                break
            at = next(verdicts, None)
        if first <= last:
            yield first, last, run, None


def against_silence(before: list[StagedRun], now: list[StagedRun], attempt: int, last_explicit: int) -> list[StagedRun]:
    """This attempt's verdicts, where sinks wrote in an earlier attempt in explicit mode. That attempt released the
    records that it did not mention. So a verdict other than release disagrees, unless an attempt has named the record
    since. ``last_explicit``: the last such earlier attempt."""
    merged = []
    for first, last, verdict, earlier in pieces(now, before):
        named = -1 if earlier is None else attempt - (verdict.delivery_count - earlier.delivery_count)
        if named < last_explicit and AcknowledgeType(verdict.outcome) != AcknowledgeType.RELEASE:
            verdict = verdict._replace(disagrees=True)
        merged.append((first, last, verdict))
    return merged


def undecided(segments: Iterable[Segment], staged: list[StagedRun]) -> Iterator[tuple[int, int]]:
    """Yield the offsets that no sink has decided at any delivery."""
    return ((first, last) for first, last, _, verdict in pieces(segments, staged) if verdict is None)
