"""Begins a new group where another one stands: in Kafka itself, in a checkpoint, or in another state store.

Rule: nothing that is done there is delivered here, and no record that may be undone there is left out. A record keeps
its delivery count, so that a delivery here has a higher one. Records in none of the position's runs were never
delivered; up to the last run they are AVAILABLE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from coordinator.core.commands import Decision
from coordinator.core.log_records import RunsChanged
from coordinator.core.record_state import TERMINAL, RecordState
from coordinator.core.runs import FRESH, Run, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.admin_messages import Altered, Effect, PartitionPosition
from coordinator.protocol.errors import InvalidImport
from coordinator.protocol.messages import Request

_STATES = {state.name: state for state in (RecordState.AVAILABLE, *TERMINAL)}
MOST_COUNTS = 5
"""An effect names up to this many delivery counts."""


class ImportPosition(Request[Altered], frozen=True):
    """Give these share partitions their runs, each with the topic id of this cluster. Initialize them at their start
    offsets before, unless ``execute`` is false."""

    partitions: tuple[PartitionPosition, ...]
    execute: bool


def import_position(group: ShareGroup, command: ImportPosition, now_ms: int) -> Decision[Altered]:
    """Give the share partitions their runs.

    Raises:
        InvalidImport: the runs of a partition are no position, or a partition is there twice.
    """
    runs = {(each.topic_id, each.partition): tuple(_whole(group.group_id, each)) for each in command.partitions}
    if len(runs) < len(command.partitions):
        raise InvalidImport(group_id=group.group_id, reason="a partition is there twice.")
    effects = tuple(
        Effect(
            what=f"{each.topic}-{each.partition}",
            before="",
            after=_in_words(each.start, runs[each.topic_id, each.partition]),
        )
        for each in command.partitions
    )
    reply = Altered(executed=command.execute, effects=effects)
    if not command.execute:
        return Decision((), reply)
    changed = (RunsChanged(topic_id=at[0], partition=at[1], runs=of) for at, of in runs.items() if of)
    return Decision(tuple(changed), reply)


def _whole(group_id: str, position: PartitionPosition) -> Iterator[Segment]:
    """Yield the runs from the start offset to the last one, without gaps."""
    where, reached = f"{position.topic}-{position.partition}", -1
    at = position.start
    for each in position.runs:
        if not reached < each.first <= each.last:
            reason = f"in {where}, offsets {each.first} to {each.last} come after {reached}."
            raise InvalidImport(group_id=group_id, reason=reason)
        if each.state not in _STATES:
            known = ", ".join(_STATES)
            reason = f"in {where}, {each.state} is no state of records that nobody holds: {known}."
            raise InvalidImport(group_id=group_id, reason=reason)
        reached = each.last
        if each.last < position.start:
            continue
        if at < each.first:
            yield Segment(at, each.first - 1, FRESH)
        state = _STATES[each.state]
        run = Run(state, each.delivery_count)
        if state == RecordState.AVAILABLE:
            run = Run(
                *(state, each.delivery_count, each.failures, each.releases),
                query_failures=each.query_failures,
                quarantined=each.quarantined,
            )
        yield Segment(max(at, each.first), each.last, run)
        at = each.last + 1


def _in_words(start: int, runs: tuple[Segment, ...]) -> str:
    """The position of a partition for a person: ``start 5, 3 done beyond it, 2 to deliver again (...)``."""
    counts: Counter[int] = Counter()
    done = 0
    for first, last, run in runs:
        number = last - first + 1
        if run.state in TERMINAL:
            done += number
        elif run.delivery_count:
            counts[run.delivery_count] += number
    named = [f"{number:,} after delivery {count}" for count, number in sorted(counts.items())]
    named = [*named[:MOST_COUNTS], *(["..."] if len(named) > MOST_COUNTS else [])]
    again = f" ({', '.join(named)})" if named else ""
    return f"start {start}, {done:,} done beyond it, {counts.total():,} to deliver again{again}"
