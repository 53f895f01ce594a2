"""Order by partition in the naive model (docs/learn/order.md): a queue for each partition.

Nothing is delivered from a queue while a member holds any of its records. A delivered record has no earlier record in
its queue but those of the same delivery. What leaves a delivery without being done takes along what follows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.model.state import AVAILABLE, HELD, Key, Partition, Plan, Record

WAITS_MS = 10_000
"""A member that found everything held counts as waiting for this many milliseconds."""


def in_line(partition: Partition) -> list[tuple[int, Record]]:
    """What is not done, in offset order; a record that waits for its dead letter is done."""
    return sorted((o, r) for o, r in partition.records.items() if r.state == AVAILABLE or r.state in HELD)


def is_held(partition: Partition) -> bool:
    return any(record.state in HELD for record in partition.records.values())


def due_in_line(partition: Partition, now_ms: int) -> list[int]:
    """The offsets at the front of the queue that may be delivered together now; empty if somebody holds a record."""
    due: list[int] = []
    for offset, record in in_line(partition):
        if record.state in HELD:
            return []
        if record.quarantined or (record.not_before_ms or 0) > now_ms:
            break
        due.append(offset)
    return due


def has_work(partition: Partition, end: int, now_ms: int) -> bool:
    """Whether the first record of the queue may be delivered now, be it alone."""
    line = in_line(partition)
    if not line:
        return end > partition.end
    first, record = line[0]
    return not is_held(partition) and first < end and (record.not_before_ms or 0) <= now_ms


def check_delivery(partition: Partition, chosen: Iterable[int]) -> None:
    """The oracle of order: called before the delivery."""
    chosen = set(chosen)
    for offset, record in in_line(partition):
        assert record.state not in HELD, f"{offset} is held, and {sorted(chosen)} are delivered"
        if offset not in chosen:
            assert offset > max(chosen), f"{offset} is not done, and {sorted(chosen)} are delivered"


def without_plans(partition: Partition, chosen: Iterable[int]) -> int:
    """An acquisition ends all earlier plans in its partition; the number of records that lose theirs."""
    ended = [r for o, r in in_line(partition) if r.plan_id is not None and o not in set(chosen)]
    for record in ended:
        record.plan_id = None
    return len(ended)


def first_left(carried: Iterable[tuple[Key, Record]]) -> dict[int, int]:
    """By partition, the first of these records, which a plan carried, that has left it without being done."""
    left: dict[int, int] = {}
    for (index, offset), record in carried:
        if record.state == AVAILABLE and record.plan_id is None:
            left[index] = min(offset, left.get(index, offset))
    return left


def give_back(record: Record) -> None:
    """Without a try, and without a failure."""
    record.state, record.plan_id, record.progress = AVAILABLE, None, None
    record.deadline_ms = record.logged_ms = None


def take_along(carried: Mapping[Key, Record], plan: Plan) -> int:
    """What a plan carried and has left it without being done takes along what follows it; how many records."""
    left = first_left(carried.items())
    along = [r for (i, o), r in carried.items() if i in left and o > left[i] and r.plan_id == plan.plan_id]
    for record in along:
        give_back(record)
    return len(along)


def give_back_after(partition: Partition, offset: int, named: Iterable[int] = ()) -> int:
    """All that is held after this offset goes back, but for ``named``; how many records."""
    later = [r for o, r in in_line(partition) if o > offset and r.state in HELD and o not in set(named)]
    for record in later:
        give_back(record)
    return len(later)
