"""The renewals of a ShareConsumer's locks; the coordinator is a stub."""

from __future__ import annotations

from typing import Any

from coordinator.protocol.messages import AckBatch, AcknowledgeReply, PartitionAcks
from share_source import ShareConsumer
from share_source.share_consumer.renewal import Renewal, Renewer
from tests.support.share_members import CONFIG, StubMembership, Stubs, acquired, run_of
from tests.support.waiting import wait_until


def ranges(partitions: Any) -> list[tuple[int, int]]:
    return [(batch.first, batch.last) for part in partitions for batch in part.batches]


class Holder:
    """A holder of these records, and what it is told of their locks."""

    def __init__(self, acks: PartitionAcks) -> None:
        self.acks = acks
        self.lost: list[Any] = []

    def held(self) -> tuple[PartitionAcks, ...]:
        return (self.acks,)

    def renewed(self, renewal: Renewal, lost: list[PartitionAcks]) -> None:
        self.lost.append(lost)


def refusing(*offsets: int) -> Any:
    """The reply to acknowledgements of orders-0: refused, all of them, if they name one of these offsets."""

    def reply(partitions: Any) -> AcknowledgeReply:
        named = any(first <= offset <= last for first, last in ranges(partitions) for offset in offsets)
        return AcknowledgeReply(errors={"T:0": "INVALID_RECORD_STATE"} if named else {})

    return reply


def test_records_are_renewed_until_their_outcome_is_sent() -> None:
    consumer = ShareConsumer(
        {**CONFIG, "share.background.renew.enable": True, "share.acknowledgement.mode": "explicit"}
    )
    stubs = Stubs(consumer)
    consumer.subscribe(["orders"])
    stubs.answer(3)
    for message in consumer.poll():
        consumer.acknowledge(message)
    assert ranges(consumer._held()) == [(0, 2)]
    consumer.commit_sync()
    assert consumer._held() == ()


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
    consumer = ShareConsumer({**CONFIG, "share.background.renew.enable": True})
    stubs = Stubs(consumer)
    consumer.subscribe(["orders"])
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


def test_a_shorter_lock_is_renewed_in_its_own_time() -> None:
    acks = PartitionAcks(topic_id="T", partition=0, batches=(AckBatch(first=0, last=0, delivery_count=1, types=(4,)),))
    membership: Any = StubMembership()
    holder = Holder(acks)
    renewer = Renewer(membership, holder.held, holder.renewed)
    renewer.start(3_600_000)
    renewer.start(100)
    wait_until(lambda: membership.calls, what="the lock of 100 ms is renewed")
    renewer.close()
