"""Acknowledging as a ShareConsumer (KIP-932, In-flight records, ShareAcknowledge): what is accepted and refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from coordinator.protocol.messages import AckBatch, Acknowledge, PartitionAcks
from coordinator.protocol.values import LONGEST_DELAY_MS, LONGEST_REASON
from tests.kip932.consumers import ACCEPT, LOCK_MS, REJECT, RELEASE, RENEW, ShareConsumers, batch
from tests.support.group_driver import TOPIC_ID, GroupDriver, fetched


def acknowledged_batches(
    group: GroupDriver, *batches: AckBatch, member: str = "c1", partition: int = 0
) -> dict[str, str]:
    acks = (PartitionAcks(topic_id=TOPIC_ID, partition=partition, batches=batches),)
    epoch = group.epochs[member]
    command = Acknowledge(group_id="billing", member_id=member, member_epoch=epoch, partitions=acks)
    return dict(group.run(command).errors)


def given_back(group: GroupDriver, *batches: AckBatch, member: str = "c1") -> dict[str, str]:
    acks = (PartitionAcks(topic_id=TOPIC_ID, partition=0, batches=batches),)
    command = Acknowledge(
        group_id="billing", member_id=member, member_epoch=group.epochs[member], partitions=acks, unread=True
    )
    return dict(group.run(command).errors)


def held() -> GroupDriver:
    """c1 holds 0 to 9."""
    group = GroupDriver(records=10)
    group.join("c1", query=False)
    fetched(group, 10)
    return group


def test_an_acknowledgement_of_an_older_delivery_is_refused() -> None:
    """KIP-932, In-flight records: an acknowledgement is for a record that its sender holds now. Ours asks for more: it
    names the delivery count, so that a consumer which lost a record and was given it again can't end the new delivery
    by what it knows of the old."""
    group = ShareConsumers(end=10)
    group.fetch("c1")
    group.wait(LOCK_MS + 1)
    assert group.fetch("c1") == [(0, 9, 2)]
    assert group.acknowledge(ACCEPT, 0, 9, count=1) == "INVALID_RECORD_STATE"
    assert group.states() == ["0-9 ACQUIRED 2"]
    assert group.acknowledge(ACCEPT, 0, 9, count=2) == "NONE"


@pytest.mark.parametrize("bad", [batch(8, 8, ACCEPT, count=2), batch(8, 8, 9), batch(8, 99, ACCEPT)])
def test_a_partitions_acknowledgement_is_applied_whole_or_not_at_all(bad: AckBatch) -> None:
    """KIP-932, ShareAcknowledge API: one batch that is refused undoes all of its partition's in that request, and
    nothing is written; the other partitions' are applied."""
    group = ShareConsumers(end=10, partitions=2)
    group.fetch()
    errors = group.acknowledge_all({0: (batch(0, 4, ACCEPT), bad), 1: (batch(0, 4, ACCEPT),)})
    assert (errors[0] != "NONE", errors[1]) == (True, "NONE")
    assert (group.states(0), group.states(1)) == (["0-9 ACQUIRED 1"], ["5-9 ACQUIRED 1"])
    written = len(group.log)
    group.acknowledge_all({0: (batch(0, 4, ACCEPT), bad)})
    assert len(group.log) == written


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        (batch(0, 1, 9), "INVALID_REQUEST"),
        (batch(0, 3, ACCEPT, RELEASE), "INVALID_REQUEST"),
        (batch(0, 3), "INVALID_REQUEST"),
        (batch(3, 2, ACCEPT), "INVALID_REQUEST"),
        (batch(5, 10, ACCEPT), "INVALID_REQUEST"),
        (batch(40, 41, ACCEPT), "INVALID_REQUEST"),
        (batch(0, 5, ACCEPT), "INVALID_RECORD_STATE"),
    ],
    ids=["unknown type", "too few types", "no type", "backwards", "past the window", "far past it", "done already"],
)
def test_an_acknowledgement_that_makes_no_sense_is_refused(refused: AckBatch, error: str) -> None:
    """KIP-932, Error codes: INVALID_REQUEST for what no consumer can have been given; INVALID_RECORD_STATE for a
    record that is not in the state for it."""
    group = ShareConsumers(end=10)
    group.fetch()
    group.acknowledge(ACCEPT, 5)
    before = group.states()
    assert group.acknowledge_batches(refused) == error
    assert group.states() == before


def test_acknowledging_a_partition_outside_of_the_group_is_refused() -> None:
    """KIP-932, ShareAcknowledge API: a partition that the group never had is an error of its own, no one else's."""
    group = ShareConsumers(end=10)
    group.fetch()
    assert group.acknowledge_all({0: (batch(0, 8, ACCEPT),), 7: (batch(0, 9, ACCEPT),)}) == {
        0: "NONE",
        7: "INVALID_REQUEST",
    }
    unknown = PartitionAcks(topic_id="?", partition=0, batches=(batch(0, 9, ACCEPT),))
    own = PartitionAcks(topic_id=TOPIC_ID, partition=0, batches=(batch(9, 9, ACCEPT),))
    command = Acknowledge(group_id="billing", member_id="c1", member_epoch=1, partitions=(unknown, own))
    assert group.run(command).errors == {"?:0": "INVALID_REQUEST"}
    assert group.window() == (10, 10)


@pytest.mark.parametrize("second", [ACCEPT, REJECT, RELEASE, RENEW])
@pytest.mark.parametrize("first", [batch(1, 9, ACCEPT), batch(0, 9, REJECT)])
def test_a_partition_that_is_named_twice_acknowledges_no_offset_twice(first: AckBatch, second: int) -> None:
    """KIP-932, ShareAcknowledge API: however a request is laid out, an offset has one outcome in it."""
    group = ShareConsumers(end=10)
    group.fetch()
    acks = [PartitionAcks(topic_id=TOPIC_ID, partition=0, batches=(b,)) for b in (first, batch(1, 9, second))]
    reply = group.run(Acknowledge(group_id="billing", member_id="c1", member_epoch=1, partitions=tuple(acks)))
    assert reply.errors == {f"{TOPIC_ID}:0": "INVALID_RECORD_STATE"}
    assert group.states() == ["0-9 ACQUIRED 1"]


@pytest.mark.parametrize(
    "ranges",
    [
        [(10, 20), (30, 40), (1, 5), (35, 36)],
        [(30, 40), (1, 5), (10, 20), (35, 36)],
        [(35, 36), (1, 5), (30, 40), (10, 20)],
        [(0, 4), (4, 9)],
        [(4, 9), (0, 4)],
        [(6, 9), (0, 2), (5, 7)],
        [(0, 9), (3, 4)],
    ],
    ids=str,
)
def test_overlapping_batches_are_refused_in_any_order(ranges: list[tuple[int, int]]) -> None:
    """KIP-932, ShareAcknowledge API: also in batches that are out of order. A refusal changes nothing."""
    group = ShareConsumers(end=50)
    group.fetch()
    assert group.acknowledge_batches(*(batch(*of, ACCEPT) for of in ranges)) == "INVALID_RECORD_STATE"
    assert group.states() == ["0-49 ACQUIRED 1"]


def test_records_that_a_member_could_not_read_cost_no_try() -> None:
    group = held()
    for delivery in range(1, 10):  # beyond the limit of five
        assert given_back(group, batch(0, 9, RELEASE, count=delivery)) == {}
        assert group.dump() == [f"[0..9] AVAILABLE {delivery} 0 -"]
        assert fetched(group, 10) == [(0, 9, delivery + 1)]


def test_only_the_holder_gives_records_back_unread() -> None:
    group = held()
    group.join("c2", query=False)
    assert given_back(group, batch(0, 9, RELEASE), member="c2") == {"T:0": "INVALID_RECORD_STATE"}
    assert given_back(group, batch(0, 9, RELEASE)) == {}
    assert given_back(group, batch(0, 9, RELEASE)) == {"T:0": "INVALID_RECORD_STATE"}, "once"


def test_records_given_back_unread_are_one_run_whenever_they_were_acquired() -> None:
    """Nothing of their locks is left, which would tell neighbours apart."""
    group = GroupDriver(records=10)
    group.join("c1", query=False)
    fetched(group, 5)
    group.pass_time(1_000)
    fetched(group, 5)
    assert given_back(group, batch(0, 9, RELEASE)) == {}
    assert len(group.partition().runs) == 1


def rejected_or_released(**note: Any) -> tuple[list[tuple[int, int, str, int | None]], int]:
    """Returns the runs of 0 to 9 in a group with dead letters, after a request that rejects 0 to 4 and releases the
    others, and the time."""
    group = GroupDriver(
        records=10, **{"errors.deadletterqueue.topic.name": "dlq", "share.release.backoff.ms": "700000"}
    )
    group.join("c1", query=False)
    fetched(group, 10)
    halves = (AckBatch(first=0, last=4, delivery_count=1, types=(REJECT,), **note),)
    halves += (AckBatch(first=5, last=9, delivery_count=1, types=(RELEASE,), **note),)
    assert acknowledged_batches(group, *halves) == {}
    return [(first, last, run.reason, run.not_before_ms) for first, last, run in group.partition().runs], group.now_ms


def test_a_reject_keeps_its_reason_for_the_dead_letter() -> None:
    assert rejected_or_released(reason="no amount")[0][0][:3] == (0, 4, "no amount")
    assert len(rejected_or_released(reason="x" * 10_000)[0][0][2]) == LONGEST_REASON


def test_each_batch_of_a_request_has_its_own_reason_and_delay() -> None:
    group = GroupDriver(records=10, **{"errors.deadletterqueue.topic.name": "dlq"})
    group.join("c1", query=False)
    fetched(group, 10)
    kinds = [(n, (REJECT, RELEASE)[n % 2]) for n in range(10)]
    batches = [AckBatch(first=n, last=n, delivery_count=1, types=(k,), reason=f"why {n}", delay_ms=n) for n, k in kinds]
    assert acknowledged_batches(group, *batches) == {}
    runs = {first: (run.reason, run.not_before_ms) for first, _, run in group.partition().runs}
    of = {RELEASE: lambda n: ("", group.now_ms + n), REJECT: lambda n: (f"why {n}", None)}
    assert runs == {n: of[kind](n) for n, kind in kinds}


@pytest.mark.parametrize("delay_ms", [-1, LONGEST_DELAY_MS + 1, 1.5, "1"])
def test_a_delay_out_of_its_bounds_is_not_decoded(delay_ms: object) -> None:
    told = {"first": 0, "last": 0, "delivery_count": 1, "types": [2], "delay_ms": delay_ms}
    with pytest.raises(msgspec.ValidationError, match="delay_ms"):
        msgspec.convert(told, AckBatch)
