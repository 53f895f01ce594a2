"""A member in a process of its own, which may be killed at any point: what a query and Spark do, on files.

It logs a plan before it uses it, defers some of the plan's records as a sink, writes the others, and logs that it has
them; after a restart it reclaims the plans that it had logged and not finished, as Spark does. Each line of its journal
is on the disk before it goes on.

    plan N    logged, not yet used            done N    its records are written
    acked N   the coordinator answered that N is completed

Run as ``python -m tests.chaos.member_program SETTINGS`` (JSON: see :class:`Settings`), until the stop file is there and
nothing is left. Exit status 3: it failed by name, as a query does that its owner then starts again.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from coordinator.client.client import CoordinatorClient
from coordinator.client.session import MemberSession
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.messages import NextPlan, PartitionPlan, Plan, PlanReply, StageOutcomes, StartPlan
from coordinator.protocol.outcome_rows import SCHEMA
from coordinator.protocol.values import AcknowledgeType

FAILED_BY_NAME = 3
DEFERS = 0.2
"""The program defers a record in this share of a plan's partitions; in order, also those behind the record."""
WORKS_S = 1.0
"""The program works on a batch for at most this many seconds, while it holds the locks."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a member. ``endpoints``: host:port, separated by commas; empty: a coordinator on demand.
    ``coordinator``: the configs of one on demand, or where a standalone one's token is."""

    bootstrap: str
    endpoints: str
    coordinator: dict[str, str]
    group: str
    member: str
    topic: str
    folder: str
    configs: dict[str, str]


class Journal:
    """The member's own log: JSON lines, each with the time (ms)."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a+", encoding="utf-8")
        self._file.seek(0)
        whole, _, torn = self._file.read().rpartition("\n")
        self.lines: list[dict[str, Any]] = [json.loads(line) for line in whole.splitlines()]
        if torn:
            self._file.truncate(len(whole.encode()) + bool(whole))

    def add(self, what: str, number: str, **fields: Any) -> None:
        line = {"what": what, "plan_id": number, "at_ms": time.time_ns() // 1_000_000, **fields}
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.lines.append(line)

    def last(self, what: str) -> str:
        return next((str(line["plan_id"]) for line in reversed(self.lines) if line["what"] == what), "")


class Member:
    """One life of it."""

    def __init__(self, settings: Settings) -> None:
        folder = Path(settings.folder)
        self.journal = Journal(folder / f"{settings.member}.jsonl")
        self.stop = folder / "stop"
        self.in_order = settings.configs.get("share.order") == "partition"
        client = CoordinatorClient.connect(
            settings.bootstrap, endpoint=settings.endpoints, configs=settings.coordinator
        )
        self.session = MemberSession(
            client,
            settings.group,
            settings.member,
            topics=(settings.topic,),
            configs=settings.configs,
            starting_offsets="earliest",
        )

    def run(self) -> None:
        logged, start = self.journal.last("plan"), self.journal.last("done")
        if logged and logged != start:
            self.process(logged)
            start = logged
        while True:
            reply = self.next_plan(start)
            if start and start != self.journal.last("acked"):
                self.journal.add("acked", start)
            plan: Plan = reply.plan
            if plan.plan_id:
                self.journal.add("plan", plan.plan_id)
                self.process(plan.plan_id)
                start = plan.plan_id
            elif self.stop.exists():
                return

    def next_plan(self, start: str) -> PlanReply:
        return self.session.call(lambda who: NextPlan(**who, start=start, max_records=400, wait_ms=100))

    def process(self, number: str) -> None:
        used = self.session.call(lambda who: StartPlan(**who, plan_id=number, fail_on_data_loss=False))
        threading.Event().wait(random.uniform(0.0, WORKS_S))
        deferred = [(p, *each) for p in used.plan.partitions for each in self.deferred(p)]
        self.stage(number, deferred)
        given_back = {(p.partition, offset) for p, first, last, _ in deferred for offset in range(first, last + 1)}
        records = [
            (p.partition, offset, offset, count)
            for p in used.plan.partitions
            for first, last, count in p.ranges
            for offset in range(first, last + 1)
            if (p.partition, offset) not in given_back
        ]
        self.journal.add("done", number, ranges=records)

    def deferred(self, part: PartitionPlan) -> list[tuple[int, int, int]]:
        """The ranges of the partition that this attempt defers."""
        if not part.ranges or random.random() >= DEFERS:
            return []
        at = random.randrange(len(part.ranges))
        first, last, count = part.ranges[at]
        offset = random.randint(first, last)
        if not self.in_order:
            return [(offset, offset, count)]
        return [(offset, last, count), *(tuple(each) for each in part.ranges[at + 1 :])]

    def stage(self, number: str, deferred: list[tuple[PartitionPlan, int, int, int]]) -> None:
        """Acknowledge as a sink whose target replaces its output: what is not deferred is accepted."""
        rows = [
            {
                "topic_id": part.topic_id,
                "partition": part.partition,
                "first": first,
                "last": last,
                "delivery_count": count,
                "outcome": AcknowledgeType.DEFER.value,
                "dead_letter": False,
            }
            for part, first, last, count in deferred
        ]
        request = StageOutcomes(
            group_id=self.session.group_id, plans={number: self.session.member_epoch}, replaces=True, rows=len(rows)
        )
        self.session.call_with_rows(request, pa.Table.from_pylist(rows, schema=SCHEMA))


def main() -> int:
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    try:
        Member(settings).run()
    except ShareGroupError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return FAILED_BY_NAME
    return 0


if __name__ == "__main__":
    sys.exit(main())
