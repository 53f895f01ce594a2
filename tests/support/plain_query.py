"""A query without Spark, in a thread: it reads plans, says by a rule what became of each record, and completes them,
all through the client that a driver uses."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from types import TracebackType

import pyarrow as pa

from coordinator.client.client import CoordinatorClient
from coordinator.client.session import MemberSession
from coordinator.protocol.messages import NextPlan, Plan, StageOutcomes, StartPlan
from coordinator.protocol.outcome_rows import SCHEMA
from coordinator.protocol.values import AcknowledgeType


class PlainQuery:
    """The member ``name`` of a group, for the length of a ``with`` block. ``outcome``: of the record at an offset.
    ``others``: with its first batch it waits for theirs."""

    def __init__(
        self,
        client: CoordinatorClient,
        group_id: str,
        name: str,
        topic: str,
        outcome: Callable[[int], AcknowledgeType],
        configs: Mapping[str, str],
        most: int,
        others: threading.Barrier | None = None,
    ) -> None:
        self._client, self._group_id, self._name, self._outcome, self._most = client, group_id, name, outcome, most
        self._others = others
        self._ended = threading.Event()
        options = {"topics": (topic,), "starting_offsets": "earliest", "configs": configs}
        self._session = MemberSession(client, group_id, name, **options)
        self._thread = threading.Thread(target=self._run, name=f"query-{name}")

    def __enter__(self) -> PlainQuery:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join(timeout=120)
        self._session.close(leave=True)

    def _run(self) -> None:
        start = ""
        for batch_id in itertools.count():
            plan = Plan()
            while not plan.plan_id:
                if self._ended.is_set():
                    return
                plan = self._next_plan(start)
            if self._others is not None and batch_id == 0:
                self._others.wait(120)
            plan = self._start(plan.plan_id)
            self._stage(plan, batch_id)
            start = plan.plan_id

    def _next_plan(self, start: str) -> Plan:
        return self._session.call(lambda who: NextPlan(**who, start=start, max_records=self._most, wait_ms=500)).plan

    def _start(self, plan_id: str) -> Plan:
        return self._session.call(lambda who: StartPlan(**who, plan_id=plan_id)).plan

    def _stage(self, plan: Plan, batch_id: int) -> None:
        rows = [
            (p.topic_id, p.partition, offset, offset, r.delivery_count, int(self._outcome(offset)), None, False, None)
            for p in plan.partitions
            for r in p.ranges
            for offset in range(r.first, r.last + 1)
        ]
        table = pa.Table.from_arrays([pa.array(column) for column in zip(*rows, strict=True)], schema=SCHEMA)
        request = StageOutcomes(group_id=self._group_id, query_id=self._name, batch_id=batch_id, rows=len(rows))
        self._client.call_with_rows(request, table)
