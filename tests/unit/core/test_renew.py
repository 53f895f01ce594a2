"""Renewing locks (KIP-1222), and the cap on renewals, which is ours."""

from __future__ import annotations

import msgspec
import pytest

from coordinator.protocol.messages import AckBatch, Acknowledge, PartitionAcks
from coordinator.protocol.values import CappedLock
from tests.kip932.consumers import ACCEPT, LOCK_MS, REJECT, RELEASE, RENEW, SESSION_MS, ShareConsumers, batch

CAP_MS = 30 * 60_000


def test_renew_has_the_protocols_number() -> None:
    """KIP-1222, Public Interfaces: acknowledge type 4."""
    assert int(RENEW) == 4


def held(**configs: object) -> ShareConsumers:
    """A group whose consumer c1 holds offsets 0 to 9."""
    group = ShareConsumers(end=10, **configs)
    group.fetch("c1")
    return group


def test_renewing_restarts_the_lock() -> None:
    """KIP-1222, Proposed Changes: a lock that is renewed lasts for a lock duration from then on."""
    group = held()
    group.wait(LOCK_MS - 1)
    assert group.acknowledge(RENEW, 0, 9) == "NONE"
    group.wait(LOCK_MS)
    assert group.states() == ["0-9 ACQUIRED 1"]
    group.pass_time(1)
    assert group.states() == ["0-9 AVAILABLE 1"]


def test_the_answer_to_a_renewal_says_how_long_the_locks_last_now() -> None:
    """The group's lock duration may have been altered since the acquisition: the member has to renew in time."""
    group = held()
    group.configure(share_record_lock_duration_ms=2 * LOCK_MS)
    acks = {"partitions": (PartitionAcks(topic_id=group.topic_id, partition=0, batches=(batch(0, 9, RENEW),)),)}
    who = {"group_id": group.group.group_id, "member_id": "c1", "member_epoch": 1}
    assert group.run(Acknowledge(**who, **acks)).lock_timeout_ms == 2 * LOCK_MS
    done = {"partitions": (PartitionAcks(topic_id=group.topic_id, partition=0, batches=(batch(0, 9, ACCEPT),)),)}
    assert group.run(Acknowledge(**who, **done)).lock_timeout_ms == 0


def test_renewing_changes_neither_state_nor_count() -> None:
    """KIP-1222, Proposed Changes: it is no outcome and no delivery; the record is acknowledged later as it would have
    been."""
    group = held()
    assert group.acknowledge(RENEW, 0, 9) == "NONE"
    assert (group.states(), group.held(), group.window()) == (["0-9 ACQUIRED 1"], ["0-9 c1"], (0, 10))
    assert group.acknowledge(ACCEPT, 0, 9) == "NONE"


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


def test_a_renewed_lock_lasts_as_the_group_is_configured_then() -> None:
    """KIP-1222, Proposed Changes: the duration is the one that holds when the lock is renewed."""
    group = held()
    group.configure(share_record_lock_duration_ms=2 * LOCK_MS)
    group.acknowledge(RENEW, 0, 9)
    group.wait(2 * LOCK_MS)
    assert group.states() == ["0-9 ACQUIRED 1"]
    group.pass_time(1)
    assert group.states() == ["0-9 AVAILABLE 1"]


def test_only_renewed_records_are_held_longer() -> None:
    """KIP-1222, Proposed Changes: single offsets of a delivery can be renewed; the others' locks end as they would."""
    group = held()
    group.wait(LOCK_MS - 1)
    assert group.acknowledge(RENEW, 3, 4) == "NONE"
    group.wait(2)
    assert group.states() == ["0-2 AVAILABLE 1", "3-4 ACQUIRED 1", "5-9 AVAILABLE 1"]


def test_renewals_and_outcomes_mix_in_one_acknowledgement() -> None:
    """KIP-1222, Public Interfaces: RENEW is a type as the others are, of a batch or of each offset."""
    group = held()
    group.wait(LOCK_MS - 1)
    assert group.acknowledge_batches(batch(0, 3, ACCEPT, RENEW, RELEASE, REJECT), batch(4, 9, RENEW)) == "NONE"
    group.wait(2)
    assert group.states() == ["1 ACQUIRED 1", "2 AVAILABLE 1", "3 ARCHIVED 1", "4-9 ACQUIRED 1"]


def test_records_that_are_done_are_not_renewed() -> None:
    """KIP-1222, Proposed Changes: only an Acquired record has a lock."""
    group = held()
    group.acknowledge(ACCEPT, 5)
    assert group.acknowledge(RENEW, 5) == "INVALID_RECORD_STATE"


def test_renewing_can_be_disabled() -> None:
    """KIP-1222, Public Interfaces: with share.renew.acknowledge.enable=false, which can be set at any time, RENEW is
    INVALID_RECORD_STATE and nothing else of that partition's acknowledgement is applied."""
    group = held()
    assert group.acknowledge(RENEW, 0, 9) == "NONE"
    group.configure(share_renew_acknowledge_enable=False)
    assert group.acknowledge_batches(batch(0, 4, ACCEPT), batch(5, 9, RENEW)) == "INVALID_RECORD_STATE"
    assert group.states() == ["0-9 ACQUIRED 1"]
    assert group.acknowledge(ACCEPT, 0, 9) == "NONE"


def test_a_renewal_that_is_refused_with_others_renews_nothing() -> None:
    """KIP-1222, Proposed Changes: an acknowledgement is applied whole or not at all, renewals among the rest."""
    group = held()
    group.wait(LOCK_MS - 1)
    assert group.acknowledge_batches(batch(0, 8, RENEW), batch(9, 9, ACCEPT, count=2)) == "INVALID_RECORD_STATE"
    group.wait(2)
    assert group.states() == ["0-9 AVAILABLE 1"]


def test_a_renewal_does_not_extend_the_session() -> None:
    """KIP-1222, Proposed Changes: a consumer that is lost loses its records, however long their locks would last."""
    group = held()
    group.pass_time(LOCK_MS - 1)
    group.acknowledge(RENEW, 0, 9)
    group.pass_time(SESSION_MS - LOCK_MS + 2)
    assert group.states() == ["0-9 AVAILABLE 1"]


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


def test_the_cap_is_the_groups() -> None:
    """KIP-1222, Proposed Changes: ours. A renewal lasts until the cap, if that comes first."""
    group = held(share_max_lock_extension_ms=40_000)
    group.wait(20_000)
    assert group.acknowledge(RENEW, 0, 9) == "NONE"
    group.wait(20_000)
    assert group.states() == ["0-9 ACQUIRED 1"]
    group.pass_time(1)
    assert group.states() == ["0-9 AVAILABLE 1"]


def renewed(group: ShareConsumers, *batches: AckBatch) -> list[tuple[int, int, int]]:
    """c1 renews; (first, last, milliseconds left) of the locks that the cap cut."""
    acks = PartitionAcks(topic_id=group.topic_id, partition=0, batches=batches)
    who = {"group_id": "billing", "member_id": "c1", "member_epoch": group.epochs["c1"]}
    return [(of.first, of.last, of.left_ms) for of in group.run(Acknowledge(**who, partitions=(acks,))).capped]


def test_a_renewal_that_the_cap_cuts_returns_when_the_lock_ends() -> None:
    """KIP-1222, Proposed Changes: ours. The consumer does not believe that it has a whole lock duration; the outcomes
    that came along are taken."""
    group = held(share_max_lock_extension_ms=40_000)
    group.wait(10_000)
    assert renewed(group, batch(0, 9, RENEW)) == [], "a whole lock"
    group.wait(10_000)
    assert renewed(group, batch(0, 1, RENEW), batch(2, 2, ACCEPT), batch(5, 9, RENEW)) == [
        (0, 1, 20_000),
        (5, 9, 20_000),
    ]
    group.wait(20_000)
    assert renewed(group, batch(0, 9, RENEW)) == [], "refused: one of them is done"
    assert renewed(group, batch(0, 1, RENEW)) == [(0, 1, 0)]
    assert group.states()[:2] == ["0-1 ACQUIRED 1", "2 ACKNOWLEDGED 1"]
    group.pass_time(1)
    assert group.states()[0] == "0-1 AVAILABLE 1"


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
