"""◆ Dead letters (KIP-1191): a record is ARCHIVING until its dead letter is written."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from coordinator.core.commands import AlterConfigs, acquisition
from coordinator.core.record_state import RecordState
from coordinator.protocol.values import Disposition
from coordinator.state_log.projection import project
from tests.kip932.consumers import GAP, LOCK_MS, ShareConsumers
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


def test_a_rejected_record_is_a_dead_letter() -> None:
    """KIP-1191, Proposed Changes: a record that its consumer rejects is written to the dead letter queue."""
    group = with_queue()
    assert group.acknowledge(REJECT, 3) == "NONE"
    assert group.states() == ["0-2 ACQUIRED 1", "3 ARCHIVING 1", "4-9 ACQUIRED 1"]
    assert run_at(group, 3).disposition == Disposition.REJECTED


def tried(group: ShareConsumers, offset: int = 0, times: int = 1) -> None:
    """Released and acquired so often."""
    for count in range(1, times + 1):
        assert group.acknowledge(RELEASE, offset, count=count) == "NONE"
        group.fetch("c1")


def test_a_record_released_at_the_delivery_limit_is_a_dead_letter() -> None:
    """KIP-1191, Proposed Changes: so is one that has been delivered as often as it may be."""
    group = with_queue(end=1)
    tried(group, times=4)
    assert group.acknowledge(RELEASE, 0, count=5) == "NONE"
    assert group.states() == ["0 ARCHIVING 5"]
    assert run_at(group, 0).disposition == Disposition.DELIVERY_LIMIT


def test_a_lock_that_expires_at_the_delivery_limit_makes_a_dead_letter() -> None:
    """KIP-1191, Proposed Changes: also where nobody said anything of it at its last delivery. Ours tells the two apart
    in a header."""
    group = with_queue(end=1)
    tried(group, times=4)
    group.wait(LOCK_MS + 1)
    assert group.states() == ["0 ARCHIVING 5"]
    assert run_at(group, 0).disposition == Disposition.EXPIRED


@pytest.mark.parametrize("outcome", [ACCEPT, GAP])
def test_accepted_records_and_gaps_are_no_dead_letters(outcome: int) -> None:
    """KIP-1191, Proposed Changes: accepted records are done; at a gap there is no record to write."""
    group = with_queue(end=1)
    assert group.acknowledge(outcome, 0) == "NONE"
    assert (group.states(), group.window()) == ([], (1, 1))


def test_a_record_that_retention_deleted_is_no_dead_letter() -> None:
    """KIP-1191, Proposed Changes: a dead letter is of a record whose delivery failed; one that the log lost before that
    is archived as KIP-932 has it."""
    group = with_queue()
    group.acknowledge(RELEASE, 0, 9)
    group.move_log_start(6)
    assert group.states() == ["6-9 AVAILABLE 1"]
    assert group.partition().archiving_count == 0


def test_an_archiving_record_is_never_delivered() -> None:
    """KIP-1191, Proposed Changes: a record that is being written to the dead letter queue is not available."""
    group = with_queue()
    group.acknowledge(REJECT, 0, 9)
    assert group.fetch("c2") == []
    group.wait(10 * LOCK_MS)
    assert group.states() == ["0-9 ARCHIVING 1"]


def test_an_archiving_record_is_no_longer_its_consumers() -> None:
    """KIP-1191, Proposed Changes: with the rejection its lock is gone; another outcome for it is refused."""
    group = with_queue()
    group.acknowledge(REJECT, 0, 9)
    assert group.held() == []
    assert group.acknowledge(ACCEPT, 0) == "INVALID_RECORD_STATE"
    assert group.states() == ["0-9 ARCHIVING 1"]


def test_the_start_offset_waits_for_the_dead_letter() -> None:
    """KIP-1191, Proposed Changes: the record is in flight until it is Archived, so SPSO does not pass it. Others flow
    on: ours counts locks and not the width of the window (Kafka: also the in-flight records)."""
    group = with_queue(share_partition_max_record_locks=100)
    group.acknowledge(REJECT, 0, 2)
    group.acknowledge(ACCEPT, 3, 9)
    group.ends[0] = 110
    assert group.window() == (0, 10)
    assert group.fetch("c1") == [(10, 109, 1)]
    group.file(0, 1)
    assert group.window()[0] == 2
    group.file(2, 2)
    assert group.window()[0] == 10


def test_an_archiving_record_is_lag_until_it_is_archived() -> None:
    """KIP-1191, Proposed Changes, and KIP-1226: it is not counted as delivery complete before it is Archived."""
    group = with_queue()
    group.acknowledge(REJECT, 4, 5)
    group.acknowledge(ACCEPT, 6, 9)
    assert group.partition().delivery_complete_count == 4
    assert group.describe().partitions[0].lag == 6
    group.file(5, 5)
    assert group.describe().partitions[0].lag == 5


def test_an_archiving_record_keeps_its_delivery_count() -> None:
    """KIP-1191, Public Interfaces: the dead letter tells how often the record was delivered."""
    group = with_queue(end=1)
    tried(group, times=2)
    group.acknowledge(REJECT, 0, count=3)
    group.crash()
    assert group.states() == ["0 ARCHIVING 3"]
    group.file(0, 0, count=3)
    assert (group.window(), group.partition().archived_total) == ((1, 1), 1)


def test_the_state_log_has_the_state_archiving() -> None:
    """KIP-1191, Public Interfaces: share-group state has the state as any other, with SPSO below it."""
    group = with_queue()
    group.acknowledge(ACCEPT, 0, 3)
    group.acknowledge(REJECT, 4, 5)
    projection = project(group.partition())
    assert projection.start_offset == 4
    assert [tuple(found) for found in projection.state_batches] == [(4, 5, RecordState.ARCHIVING, 1)]
    assert projection.delivery_complete_count == 0


def test_after_a_crash_the_waiting_dead_letters_are_known() -> None:
    """KIP-1191, Proposed Changes: whoever leads the share partition next resumes the writing of what is Archiving. Ours
    knows the cause too, which Kafka infers from the delivery count."""
    group = with_queue(end=1)
    tried(group, times=4)
    group.acknowledge(REJECT, 0, count=5)
    group.crash()
    assert [run.first for run in group.partition().runs.archiving_from(0)] == [0]
    assert run_at(group, 0).disposition == Disposition.REJECTED, "at the limit, and still a rejection"


def test_a_dead_letter_is_written_also_when_retention_took_the_record() -> None:
    """KIP-1191, Proposed Changes: without the record's data then."""
    group = with_queue()
    group.acknowledge(REJECT, 0, 4)
    group.move_log_start(8)
    assert group.states()[0] == "0-4 ARCHIVING 1"
    group.file(0, 4)
    assert group.states() == ["5-9 ACQUIRED 1"], "what its consumer still holds is its to decide"


def test_archiving_records_stay_when_the_queue_is_switched_off() -> None:
    """KIP-1191, Proposed Changes: it was given up under a dead letter queue, and has yet to become Archived."""
    group = with_queue(end=2)
    group.acknowledge(REJECT, 0)
    group.run(AlterConfigs(configs={"errors.deadletterqueue.topic.name": ""}, drop_dead_letters=True))
    group.acknowledge(REJECT, 1)
    assert group.states() == ["0 ARCHIVING 1", "1 ARCHIVED 1"]
    group.file(0, 0)
    assert group.window() == (2, 2)


def test_a_querys_rejected_rows_are_dead_letters_when_its_batch_is_committed() -> None:
    """KIP-1191, Proposed Changes; ours: what a sink rejects is given up with its batch. A dead letter that the sink
    wrote itself precedes that."""
    group, plan = batch(3, **DLQ)
    group.stage(said(0, 0, REJECT, reason="no customer"), said(1, 1, REJECT, dead_letter=True))
    assert states(group) == ["[0..2] ACQUIRED 1"]
    group.complete(plan)
    assert states(group) == ["[0..0] ARCHIVING 1", "[1..1] ARCHIVED 1", "[2..2] ACKNOWLEDGED 1"]


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
