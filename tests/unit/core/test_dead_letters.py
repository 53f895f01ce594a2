"""◆ Dead letters (KIP-1191): a record is ARCHIVING until its dead letter is written."""

from __future__ import annotations

from unittest.mock import patch

from coordinator.core.commands import AlterConfigs, acquisition
from coordinator.core.record_state import RecordState
from coordinator.protocol.values import Disposition
from coordinator.state_log.projection import project
from tests.kip932.consumers import ShareConsumers
from tests.support.group_driver import GroupDriver, fetched, from_snapshot, offsets
from tests.support.sink_driver import ACCEPT, DLQ, REJECT, RELEASE, batch, run_at, said, states


def test_a_dead_letter_of_an_unknown_partition_is_ignored() -> None:
    group, plan = batch(3, **DLQ)
    group.stage(said(0, 0, REJECT))
    group.complete(plan)
    before = len(group.log)
    group.file(0, 0, partition=9)
    assert (len(group.log), group.partition().archiving_count) == (before, 1)


def test_an_archiving_record_outlives_a_crash_and_a_snapshot() -> None:
    group, plan = batch(3, **DLQ)
    group.stage(said(1, 1, REJECT, reason="no customer"))
    group.complete(plan)
    group.crash()
    from_snapshot(group)
    assert (run_at(group, 1).disposition, run_at(group, 1).reason) == (Disposition.REJECTED, "no customer")
    assert group.partition().archiving_count == 1
    assert [run.first for run in group.partition().runs.archiving_from(0)] == [1]


def test_no_record_is_archived_before_its_dead_letter_is_written() -> None:
    """Rejected, released at the limit: both wait, hold nobody up, and are not delivered again."""
    group, plan = batch(3, **DLQ, **{"share.delivery.count.limit": "2"})
    group.ends[0] = 6
    group.stage(said(0, 0, REJECT), said(1, 1, RELEASE))
    following = group.next(plan).plan.plan_id  # 1, a second time, and 3 to 5
    group.start(following)
    group.stage(said(1, 1, RELEASE, 2))
    group.complete(following)
    assert states(group)[:2] == ["[0..0] ARCHIVING 1", "[1..1] ARCHIVING 2"]
    assert [run_at(group, n).disposition for n in (0, 1)] == [Disposition.REJECTED, Disposition.DELIVERY_LIMIT]
    assert (group.partition().start_offset, group.partition().archived_total) == (0, 0)
    assert group.acquire(following).plan.plan_id == ""
    group.crash()
    group.file(0, 0)
    group.file(1, 1, count=2)
    assert (group.partition().start_offset, group.partition().archived_total) == (6, 2)


def test_a_dead_letter_at_the_limit_has_the_last_releases_reason() -> None:
    group, plan = batch(2, **DLQ, **{"share.delivery.count.limit": "2"})
    group.stage(said(0, 1, RELEASE, reason="busy"))
    following = group.next(plan).plan.plan_id
    group.start(following)
    group.stage(said(0, 0, RELEASE, 2, reason="no answer"), said(1, 1, RELEASE, 2))
    group.complete(following)
    group.crash()
    assert [run_at(group, n).reason for n in (0, 1)] == ["no answer", ""]


def test_retention_takes_no_record_out_of_the_dead_letter_queue() -> None:
    """The original is gone; that it was given up is told all the same."""
    group, plan = batch(3, **DLQ)
    group.stage(said(0, 1, REJECT))
    group.complete(plan)
    group.move_log_start(3)
    assert states(group) == ["[0..1] ARCHIVING 1"]
    group.file(0, 1)
    assert states(group) == []


def with_queue(*, end: int = 10, **configs: object) -> ShareConsumers:
    """c1 holds all there is, of a group with a dead letter queue."""
    group = ShareConsumers(end=end, **configs)
    group.configure(errors_deadletterqueue_topic_name="dlq.orders", **configs)
    group.fetch("c1")
    return group


def tried(group: ShareConsumers, offset: int = 0, times: int = 1) -> None:
    """Released and acquired so often."""
    for count in range(1, times + 1):
        assert group.acknowledge(RELEASE, offset, count=count) == "NONE"
        group.fetch("c1")


def test_an_archiving_record_is_lag_until_it_is_archived() -> None:
    """KIP-1191, Proposed Changes, and KIP-1226: it is not counted as delivery complete before it is Archived."""
    group = with_queue()
    group.acknowledge(REJECT, 4, 5)
    group.acknowledge(ACCEPT, 6, 9)
    assert group.partition().delivery_complete_count == 4
    assert group.describe().partitions[0].lag == 6
    group.file(5, 5)
    assert group.describe().partitions[0].lag == 5


def test_the_state_log_has_the_state_archiving() -> None:
    """KIP-1191, Public Interfaces: share-group state has the state as any other, with SPSO below it."""
    group = with_queue()
    group.acknowledge(ACCEPT, 0, 3)
    group.acknowledge(REJECT, 4, 5)
    projection = project(group.partition())
    assert projection.start_offset == 4
    assert [tuple(found) for found in projection.state_batches] == [(4, 5, RecordState.ARCHIVING, 1)]
    assert projection.delivery_complete_count == 0


def test_archiving_records_stay_when_the_queue_is_switched_off() -> None:
    """KIP-1191, Proposed Changes: it was given up under a dead letter queue, and has yet to become Archived."""
    group = with_queue(end=2)
    group.acknowledge(REJECT, 0)
    group.run(AlterConfigs(configs={"errors.deadletterqueue.topic.name": ""}, drop_dead_letters=True))
    group.acknowledge(REJECT, 1)
    assert group.states() == ["0 ARCHIVING 1", "1 ARCHIVED 1"]
    group.file(0, 0)
    assert group.window() == (2, 2)


def waiting(most: int) -> tuple[GroupDriver, str]:
    """A query has completed a plan of four records, of which it rejected as many as ``most``; ten more are there."""
    group, plan = batch(4, **DLQ)
    group.stage(said(0, most - 1, REJECT))
    group.ends[0] += 10
    group.complete(plan)
    assert group.partition().archiving_count == most
    return group, plan


@patch.object(acquisition, "MOST_ARCHIVING", 3)
def test_a_query_acquires_nothing_while_too_many_dead_letters_wait() -> None:
    group, plan = waiting(3)
    reply = group.next(plan)
    assert (reply.plan.plan_id, reply.held_back) == ("", 3)
    group.file(0, 0)
    assert offsets(group.next(plan)) == 10


@patch.object(acquisition, "MOST_ARCHIVING", 3)
def test_a_share_consumer_acquires_nothing_while_too_many_dead_letters_wait() -> None:
    group, _ = waiting(3)
    group.join("c1", query=False)
    assert fetched(group, 10) == []
    group.file(0, 0)
    assert fetched(group, 10) == [(4, 13, 1)]


@patch.object(acquisition, "MOST_ARCHIVING", 3)
def test_a_plan_that_was_acquired_before_too_many_waited_is_replayed() -> None:
    group, plan = waiting(2)
    second = group.next(plan).plan.plan_id
    group.start(second)
    group.join("m2")
    other = group.acquire("", "m2").plan.plan_id
    assert other == ""
    group.stage(said(4, 6, REJECT))
    assert offsets(group.restart(second)) == 10, "its records are held already"
