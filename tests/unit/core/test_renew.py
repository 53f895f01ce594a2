"""Renewing locks (KIP-1222), and the cap on renewals, which is ours."""

from __future__ import annotations

import msgspec

from coordinator.protocol.messages import Acknowledge, PartitionAcks
from coordinator.protocol.values import CappedLock
from tests.kip932.consumers import ACCEPT, LOCK_MS, RENEW, ShareConsumers, batch


def held(**configs: object) -> ShareConsumers:
    """A group whose consumer c1 holds offsets 0 to 9."""
    group = ShareConsumers(end=10, **configs)
    group.fetch("c1")
    return group


def test_the_answer_to_a_renewal_says_how_long_the_locks_last_now() -> None:
    """The group's lock duration may have been altered since the acquisition: the member has to renew in time."""
    group = held()
    group.configure(share_record_lock_duration_ms=2 * LOCK_MS)
    acks = {"partitions": (PartitionAcks(topic_id=group.topic_id, partition=0, batches=(batch(0, 9, RENEW),)),)}
    who = {"group_id": group.group.group_id, "member_id": "c1", "member_epoch": 1}
    assert group.run(Acknowledge(**who, **acks)).lock_timeout_ms == 2 * LOCK_MS
    done = {"partitions": (PartitionAcks(topic_id=group.topic_id, partition=0, batches=(batch(0, 9, ACCEPT),)),)}
    assert group.run(Acknowledge(**who, **done)).lock_timeout_ms == 0


def test_a_renewal_below_the_start_offset_returns_that_the_records_are_done() -> None:
    """KIP-932, Acknowledging: an outcome there has no effect and no error. A renewal would not tell that another member
    has done the record."""
    group = held()
    group.fetch("c2")
    group.wait(LOCK_MS + 1)
    group.pass_time(1)
    group.fetch("c2")
    assert group.acknowledge(ACCEPT, 0, 4, count=2, member="c2") == "NONE"
    renewals = (batch(0, 3, RENEW), batch(5, 9, RENEW, count=1))
    acks = PartitionAcks(topic_id=group.topic_id, partition=0, batches=renewals[:1])
    who = {"group_id": "billing", "member_id": "c1", "member_epoch": group.epochs["c1"]}
    reply = group.run(Acknowledge(**who, partitions=(acks,)))
    assert (reply.errors, reply.done_below) == ({}, {f"{group.topic_id}:0": 5})
    done = group.run(Acknowledge(**who, partitions=(msgspec.structs.replace(acks, batches=(batch(0, 3, ACCEPT),)),)))
    assert (done.errors, done.done_below) == ({}, {}), "an outcome needs no such answer"


def test_a_renewal_that_is_cut_names_its_partition_beside_others_outcomes() -> None:
    """KIP-1222, Proposed Changes: ours. A lock that the cap cuts is named in whichever order the partitions come."""
    for renewed_in in (0, 1):
        group = held(partitions=2, share_max_lock_extension_ms=40_000)
        group.wait(20_000)
        kinds = {renewed_in: RENEW, 1 - renewed_in: ACCEPT}
        acks = tuple(
            PartitionAcks(topic_id=group.topic_id, partition=p, batches=(batch(0, 9, kinds[p]),)) for p in (0, 1)
        )
        who = {"group_id": "billing", "member_id": "c1", "member_epoch": group.epochs["c1"]}
        capped = group.run(Acknowledge(**who, partitions=acks)).capped
        assert capped == (CappedLock(group.topic_id, renewed_in, 0, 9, 20_000),)
