"""Decisions are counted for the metrics: what they do to a group's records and members, each thing once."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.core.commands import CompletePlan, DeadLettersWritten, MarkDeadLettersWritten
from coordinator.core.commands.counts import Count, counts_of
from coordinator.core.decide import decide
from coordinator.protocol.values import OffsetRange
from tests.kip932.consumers import ACCEPT, LOCK_MS, REJECT, SESSION_MS, ShareConsumers, batch
from tests.support.sink_driver import DLQ, said
from tests.support.sink_driver import batch as batch_of_a_sink

GRACE_MS = 5_000


class Counted(ShareConsumers):
    """A group whose decisions are counted, before they are replayed."""

    def __init__(self, **fields: Any) -> None:
        self.counts: list[Count] = []
        super().__init__(**fields)

    def run(self, command: Any) -> Any:
        self.counts += counts_of(self.group, command, decide(self.group, command, self.now_ms), self.now_ms)
        return super().run(command)

    def counted(self) -> list[Count]:
        """The counts since the last call that add something to a metric."""
        counts, self.counts = self.counts, []
        return [count for count in counts if count.number]

    def held(self, since_ms: int, member: str = "c1") -> Count:
        """The count of a member that has held records since then, and has acknowledged some now."""
        return Count("held", (member, str(since_ms), str(self.now_ms)), 1)


def test_an_acquisition_without_records_counts_nothing() -> None:
    group = Counted(end=10)
    group.fetch("c1", 10)
    assert group.counted() == [Count("acquired", ("share consumer",), 10)]
    assert group.fetch("c1", 10) == []
    assert group.counted() == []


def test_outcomes_count_in_each_partition_that_accepts_them() -> None:
    group = Counted(end=10, partitions=2)
    begun_ms = group.now_ms
    group.fetch("c1", 20)
    group.counted()
    group.pass_time(7)
    refused, accepted = batch(0, 9, ACCEPT, count=2), batch(0, 3, ACCEPT)
    assert group.acknowledge_all({0: (refused,), 1: (accepted,)}) == {0: "INVALID_RECORD_STATE", 1: "NONE"}
    assert group.counted() == [Count("acknowledged", ("accept",), 4), group.held(begun_ms)]


def test_outcomes_of_records_that_nobody_holds_add_no_busy_time() -> None:
    """The log lost them, so that the outcomes have no effect: 0 waits for its dead letter, 1 is done."""
    group = Counted(errors_deadletterqueue_topic_name="dlq")
    group.fetch("c1", 10)
    group.acknowledge(REJECT, 0)
    group.acknowledge(ACCEPT, 1)
    group.move_log_start(5)
    group.pass_time(7)
    for done in (0, 1):
        group.counted()
        assert group.acknowledge(ACCEPT, done) == "NONE"
        assert group.counted()[-1] == group.held(group.now_ms)


def test_a_querys_repeated_requests_count_nothing() -> None:
    group = Counted(end=10, members=0)
    group.join("m1")
    begun_ms = group.now_ms
    plan = group.next().plan.plan_id
    group.start(plan)
    assert group.counted() == [Count("acquired", ("query",), 10)]
    group.start(plan)
    assert group.counted() == []
    group.pass_time(7)
    group.complete(plan)
    assert group.counted() == [Count("acknowledged", ("accept",), 10), group.held(begun_ms, "m1")]
    group.complete(plan)
    assert group.counted() == []


def test_work_in_its_grace_counts_as_timed_out_after_that() -> None:
    """The member's session has ended; if it comes back in time, it goes on with record 0."""
    group = Counted(members=1)
    group.fetch("c1", 10)
    group.signal(0)
    group.counted()
    group.pass_time(LOCK_MS + 1)
    assert group.counted() == [Count("lock_timeouts", ("orders", "0"), 9)]
    group.pass_time(SESSION_MS - LOCK_MS)
    assert group.counted() == [Count("sessions_ended", ("timed out",), 1)]
    group.pass_time(GRACE_MS + 1)
    assert group.counted() == [Count("lock_timeouts", ("orders", "0"), 1)]


@pytest.mark.parametrize("are_written", [False, True])
def test_a_dead_letter_is_counted_only_if_it_is_written(are_written: bool) -> None:
    group = Counted(errors_deadletterqueue_topic_name="dlq")
    group.fetch("c1", 4)
    for offset in range(4):
        group.acknowledge(REJECT, offset)
    group.counted()
    letters = DeadLettersWritten(offsets=OffsetRange(group.topic_id, 0, 0, 3), delivery_count=1)
    group.run(MarkDeadLettersWritten(written=(letters,), are_written=are_written))
    assert group.counted() == ([Count("dead_letters", (), 4)] if are_written else [])


@pytest.mark.parametrize("configs", [{}, DLQ])
def test_a_sinks_dead_letters_are_counted_when_the_plan_is_completed(configs: dict[str, str]) -> None:
    group, plan = batch_of_a_sink(10, **configs)
    group.stage(said(0, 2, REJECT, dead_letter=True), said(3, 4, REJECT), said(5, 6, ACCEPT))
    command = CompletePlan(member_id="m1", member_epoch=1, plan_id=plan)
    counted = counts_of(group.group, command, decide(group.group, command, group.now_ms), group.now_ms)
    assert [count.number for count in counted if count.name == "dead_letters"] == ([3] if configs else [])
