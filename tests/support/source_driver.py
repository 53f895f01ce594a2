"""A query's reader on a real group, without a coordinator: the client's end of the RPC runs the service's scripts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pytest

from coordinator.client.session import MemberSession
from coordinator.core.commands import StageRuns
from coordinator.protocol.messages import LatestOffsets, NextPlan, OffsetsReply, StageOutcomes, StartPlan
from coordinator.protocol.outcome_rows import partition_outcomes
from coordinator.service.brokers.subscription import TopicIdPartition
from coordinator.service.runtime import transactions
from coordinator.service.runtime.transactions import Facts
from share_source.driver import plan_reader
from share_source.driver.damaged_records import Damaged
from share_source.options import SourceOptions
from tests.support.group_driver import TOPIC_ID, GroupDriver

if TYPE_CHECKING:
    from share_source.driver.reader import ShareGroupStreamReader

OPTIONS = {"kafka.bootstrap.servers": "nowhere:9092", "kafka.group.id": "billing", "subscribe": "orders"}


def run_transaction(group: GroupDriver, transaction: Any) -> Any:
    """The answer of the transaction."""
    steps = transaction(group.group)
    try:
        command = next(steps)
        while True:
            command = steps.send(group.run(command))
    except StopIteration as stop:
        return stop.value


def facts(group: GroupDriver) -> Facts:
    """The facts that the broker would answer about the driver's topic."""
    return Facts(
        partitions=[TopicIdPartition("orders", TOPIC_ID, p) for p in group.ends],
        log_starts={("orders", p): start for p, start in group.log_starts.items()},
        ends={("orders", p): end for p, end in group.ends.items()},
        of_plan=group.bounds(),
    )


class DriverClient:
    """Stands where CoordinatorClient does; ``asked`` are the requests that came. ``unsubscribed``: ids of topics that
    the query does not read any more. ``damaged``: what a reader finds that it can't read."""

    on_demand = None

    def __init__(self, group: GroupDriver) -> None:
        self.group = group
        self.asked: list[Any] = []
        self.unsubscribed: frozenset[str] = frozenset()
        self.damaged: Damaged = {}

    def __repr__(self) -> str:
        return f"<DriverClient asked={len(self.asked)}>"

    def coordinator_of(self, group_id: str) -> str:
        return "the driver"

    def of(self, kind: type[Any]) -> list[Any]:
        """The requests of a kind."""
        return [request for request in self.asked if isinstance(request, kind)]

    def call(self, request: Any, **options: Any) -> Any:
        self.asked.append(request)
        if isinstance(request, NextPlan):
            return run_transaction(self.group, transactions.next_plan(request, facts(self.group)))
        if isinstance(request, StartPlan):
            transaction = transactions.start_plan(
                request, facts(self.group), gone=frozenset(), unsubscribed=self.unsubscribed
            )
            return run_transaction(self.group, transaction)
        if isinstance(request, LatestOffsets):
            ends = {"orders": {str(p): end for p, end in self.group.ends.items()}}
            return OffsetsReply(ends=ends, now_ms=self.group.now_ms)
        return self.group.run(request)

    def ask(self, request: Any, group_id: str, **how: Any) -> Any:
        return self.ask_connected(request, 0.0, group_id)

    def ask_connected(self, request: Any, answer_timeout_s: float, group_id: str) -> Any:
        self.asked.append(request)
        return self.group.run(request)

    def call_with_rows(self, request: StageOutcomes, rows: pa.Table) -> Any:
        self.asked.append(request)
        return self.group.run(StageRuns(**msgspec.structs.asdict(request), partitions=partition_outcomes(rows)))


@contextmanager
def opening(client: DriverClient) -> Iterator[None]:
    """Readers open their sessions at this client."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            plan_reader,
            "open_session",
            lambda asked, member_id: MemberSession(client, asked.group_id, member_id, topics=asked.topics),  # type: ignore[arg-type]
        )
        patch.setattr(plan_reader, "damaged_offsets", lambda task: client.damaged)
        yield


@contextmanager
def reading(client: DriverClient, **options: str) -> Iterator[ShareGroupStreamReader]:
    """The reader of a query's new process; it stops at the end, as a killed one does: its session stays."""
    from share_source.driver.reader import ShareGroupStreamReader  # Spark 4.0 and 4.1 lack what it imports

    with opening(client):
        source = ShareGroupStreamReader(SourceOptions.parse({**OPTIONS, **options}))
        try:
            yield source
        finally:
            source.stop()
