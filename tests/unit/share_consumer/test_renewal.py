"""The renewals of a ShareConsumer's locks; the coordinator is a stub."""

from __future__ import annotations

import time
from typing import Any

import pytest

from coordinator.protocol.messages import AckBatch, AcknowledgeReply, PartitionAcks
from coordinator.protocol.values import CappedLock
from share_consumer.renewal import Renewal, Renewer
from sharegroup import AcknowledgeType, ShareConsumer
from tests.support.share_members import CONFIG, JOINS, StubMembership, Stubs, acquired, refusing, run_of, subscribed
from tests.support.waiting import wait_until


def ranges(partitions: Any) -> list[tuple[int, int]]:
    return [(batch.first, batch.last) for part in partitions for batch in part.batches]


class Holder:
    """A holder of these records, and what it is told of their locks."""

    def __init__(self, acks: PartitionAcks) -> None:
        self.acks = acks
        self.lost: list[Any] = []
        self.renewals: list[Renewal] = []

    def held(self) -> tuple[PartitionAcks, ...]:
        return (self.acks,)

    def renewed(self, renewal: Renewal, lost: list[PartitionAcks]) -> None:
        self.lost.append(lost)
        self.renewals.append(renewal)


def test_a_refused_renewal_of_one_range_renews_the_others() -> None:
    batches = tuple(AckBatch(first=at, last=at + 1, delivery_count=1, types=(4,)) for at in (0, 5, 9))
    acks = PartitionAcks(topic_id="T", partition=0, batches=batches)
    membership: Any = StubMembership()
    membership.reply = refusing(5)
    holder = Holder(acks)
    Renewer(membership, holder.held, holder.renewed).renew()
    assert [ranges(partitions) for _, partitions in membership.calls[1:]] == [[(0, 1)], [(5, 6)], [(9, 10)]]
    assert [ranges(lost) for lost in holder.lost] == [[(5, 6)]]


def test_a_lost_lock_of_the_program_s_leaves_the_records_ahead_alone() -> None:
    consumer, stubs = subscribed(share_background_renew_enable=True)
    stubs.answer(2)
    consumer.poll()
    ahead = consumer._supply.ahead
    ahead.take_in(waiting := acquired(run_of(5, 2), lock_s=1.0), 0.0)
    stubs.membership.reply = refusing(0)
    until_s = waiting.until_s
    consumer._renewer.start(30_000)
    consumer._renewer.renew()
    assert waiting.until_s > until_s + 20
    assert ranges(consumer._held()) == [(5, 6)]
    stubs.membership.reply = refusing(5)
    consumer._renewer.renew()
    assert not ahead.records


def test_locks_that_the_cap_cut_are_known_to_end_then() -> None:
    """share.max.lock.extension.ms: what waits for a poll is not handed out after the end of its lock."""
    consumer = ShareConsumer(CONFIG)
    stubs = Stubs(consumer)
    cut, whole = acquired(run_of(5, 2), lock_s=1.0), acquired(run_of(7, 2), lock_s=1.0)
    for found in (cut, whole):
        consumer._supply.ahead.take_in(found, 0.0)
    lock = CappedLock(topic_id="T", partition=0, first=5, last=6, left_ms=5_000)
    stubs.membership.reply = lambda partitions: AcknowledgeReply(capped=(lock,))
    consumer._waiting.polled_s = time.monotonic()
    consumer._renewer.start(30_000)
    consumer._renewer.renew()
    assert cut.until_s + 20 < whole.until_s
    left = consumer._supply.ahead.look(9, cut.until_s, JOINS)
    assert [(run.first, run.last) for run in left] == [(7, 8)]


def test_a_program_that_renews_is_warned_of_the_cap(caplog: pytest.LogCaptureFixture) -> None:
    consumer, stubs = subscribed(share_acknowledgement_mode="explicit")
    stubs.answer(1)
    (message,) = consumer.poll()
    lock = CappedLock(topic_id="T", partition=0, first=0, last=0, left_ms=1_500)
    stubs.membership.reply = lambda partitions: AcknowledgeReply(capped=(lock,))
    consumer.acknowledge(message, AcknowledgeType.RENEW)
    assert set(consumer.commit_sync().values()) == {None}
    assert "offsets 0-0: the lock ends in 1.5 s" in caplog.text


def test_a_shorter_lock_is_renewed_in_its_own_time() -> None:
    acks = PartitionAcks(topic_id="T", partition=0, batches=(AckBatch(first=0, last=0, delivery_count=1, types=(4,)),))
    membership: Any = StubMembership()
    holder = Holder(acks)
    renewer = Renewer(membership, holder.held, holder.renewed)
    renewer.start(3_600_000)
    renewer.start(100)
    wait_until(lambda: membership.calls, what="the lock of 100 ms is renewed")
    renewer.close()


def test_locks_that_became_shorter_are_renewed_in_their_own_time() -> None:
    """The group's lock duration was lowered: the answer to a renewal says so."""
    acks = PartitionAcks(topic_id="T", partition=0, batches=(AckBatch(first=0, last=0, delivery_count=1, types=(4,)),))
    membership: Any = StubMembership()
    membership.reply = lambda partitions: AcknowledgeReply(lock_timeout_ms=100)
    holder = Holder(acks)
    renewer = Renewer(membership, holder.held, holder.renewed)
    renewer.start(3_600_000)
    renewer.renew()
    assert holder.renewals[0].until_s - holder.renewals[0].began_s == pytest.approx(0.1)
    wait_until(lambda: len(membership.calls) > 1, what="the thread renews again")
    renewer.close()
