"""Renewing locks (KIP-1222), and the cap on renewals, which is ours."""

from __future__ import annotations

import msgspec
import pytest

from coordinator.protocol.messages import Acknowledge, PartitionAcks
from coordinator.protocol.values import CappedLock
from tests.kip932.consumers import ACCEPT, LOCK_MS, RENEW, ShareConsumers, batch

CAP_MS = 30 * 60_000


def test_renew_has_the_protocols_number() -> None:
    """KIP-1222, Public Interfaces: acknowledge type 4."""
    assert int(RENEW) == 4


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


def test_renewing_writes_nothing() -> None:
    """KIP-1222, Proposed Changes: locks are not durable, so neither is their renewal."""
    group = held()
    written = len(group.log)
    group.acknowledge(RENEW, 0, 9)
    assert len(group.log) == written


def renewing(group: ShareConsumers, ms: int) -> None:
    """c1 renews its locks every 15 s for a while."""
    for _ in range(ms // 15_000):
        group.wait(15_000)
        assert group.acknowledge(RENEW, 0, 9) == "NONE"


def test_renewals_end_half_an_hour_after_the_acquisition() -> None:
    """KIP-1222, Proposed Changes: ours differs. In Kafka a consumer that hangs in a renewing loop keeps its records for
    ever; here share.max.lock.extension.ms, 30 minutes by default, after the acquisition a lock is over."""
    group = held()
    renewing(group, CAP_MS - 15_000)
    group.wait(15_000)
    assert group.states() == ["0-9 ACQUIRED 1"]
    group.pass_time(1)
    assert group.states() == ["0-9 AVAILABLE 1"]
    assert group.fetch("c2") == [(0, 9, 2)]


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


def test_each_acquisition_restarts_the_renewal_cap() -> None:
    """KIP-1222, Proposed Changes: ours. Who is given a record again may renew it again."""
    group = held(share_max_lock_extension_ms=40_000)
    group.wait(20_000)
    group.acknowledge(RENEW, 0, 9)
    group.wait(20_001)
    assert group.fetch("c1") == [(0, 9, 2)]
    group.wait(20_000)
    assert group.acknowledge(RENEW, 0, 9, count=2) == "NONE"
    group.wait(20_000)
    assert group.states() == ["0-9 ACQUIRED 2"]


@pytest.mark.parametrize("cap_ms", [1_000, 10_000])
def test_a_renewal_never_makes_a_lock_shorter(cap_ms: int) -> None:
    """KIP-1222, Proposed Changes: ours. A cap below the lock duration ends no lock before its time; a renewal
    then adds nothing."""
    group = held(share_max_lock_extension_ms=cap_ms)
    group.wait(20_000)
    assert group.acknowledge(RENEW, 0, 9) == "NONE"
    group.wait(LOCK_MS - 20_000)
    assert group.states() == ["0-9 ACQUIRED 1"]
    group.pass_time(1)
    assert group.states() == ["0-9 AVAILABLE 1"]
