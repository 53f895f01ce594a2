"""Queries that acquire from all partitions against queries that acquire from assigned ones: time until a backlog is
done, and how evenly the work falls (docs/adr/0025-who-acquires-from-where.md).

The core decides, on a simulated clock: ``python -m benchmarks.assigned_queries``. A query takes a batch, works for a
second and a millisecond a record, and takes the next one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any, NamedTuple

from coordinator.core.assignor import assign
from coordinator.core.commands import AcquirePlan
from coordinator.core.replay import replay
from tests.support.group_driver import TOPIC_ID, GroupDriver

BATCH = 1_000
STALL_MS = 60_000


class Scene(NamedTuple):
    """Queries and the backlog of each partition. ``stalls``: the first query's first batch takes a minute longer."""

    name: str
    queries: int
    backlog: tuple[int, ...]
    stalls: bool = False


SCENES = (
    Scene("fewer queries than partitions", 4, (10_000,) * 8),
    Scene("more queries than partitions", 12, (10_000,) * 8),
    Scene("one partition has four fifths", 4, (64_000, *(2_286,) * 7)),
    Scene("more queries, one partition has four fifths", 12, (64_000, *(2_286,) * 7)),
    Scene("one query stalls", 4, (10_000,) * 8, stalls=True),
    Scene("little work", 12, (100,) * 8),
)


class Group(GroupDriver):
    """The core, without the checks of a test."""

    def append(self, records: Iterable[Any]) -> None:
        for record in records:
            replay(self.group, record)


def drained(scene: Scene, *, assigned: bool) -> tuple[float, int, int, int]:
    """Seconds until all is done, the records of the busiest and of the idlest query, and the number of batches."""
    group = Group(records=0, partitions=len(scene.backlog))
    group.ends = dict(enumerate(scene.backlog))
    names = [f"q{number}" for number in range(scene.queries)]
    for name in names:
        group.join(name)
    parts = assign({name: frozenset({TOPIC_ID}) for name in names}, {TOPIC_ID: range(len(scene.backlog))}, {})
    done, batches, last_ms = dict.fromkeys(names, 0), 0, 0
    queue = [(number, name, "") for number, name in enumerate(names)]
    while queue:
        at_ms, name, start = heapq.heappop(queue)
        group.now_ms = 1_000_000 + at_ms
        if start:
            group.complete(start, name)
        own = {key.partition for key in parts[name]}
        bounds = tuple(b for b in group.bounds() if not assigned or b.partition in own)
        epoch = group.epochs[name]
        plan = group.run(
            AcquirePlan(
                group_id="billing", member_id=name, member_epoch=epoch, start=start, max_records=BATCH, bounds=bounds
            )
        ).plan
        records = sum(last - first + 1 for part in plan.partitions for first, last, _ in part.ranges)
        if not records:
            last_ms = max(last_ms, at_ms if start else 0)
            continue
        group.start(plan.plan_id, name)
        stall_ms = STALL_MS if scene.stalls and name == names[0] and not start else 0
        done[name] += records
        batches += 1
        heapq.heappush(queue, (at_ms + 1_000 + records + stall_ms, name, plan.plan_id))
    assert sum(done.values()) == sum(scene.backlog)
    return last_ms / 1_000, max(done.values()), min(done.values()), batches


def main() -> None:
    """Prints a table in Markdown."""
    print("| | all: s | busiest, idlest | batches | assigned: s | busiest, idlest | batches |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for scene in SCENES:
        cells = [f"{s:,.0f} | {most:,}, {least:,} | {n}" for s, most, least, n in _both(scene)]
        print(f"| {scene.name} | {' | '.join(cells)} |")


def _both(scene: Scene) -> list[tuple[float, int, int, int]]:
    return [drained(scene, assigned=assigned) for assigned in (False, True)]


if __name__ == "__main__":
    main()
