"""KIP-932, ShareAcknowledge: what one acknowledgement can hold, and when it is refused, all of it or none.

As in ``test_kip932.py``: a test for each promise, its section and what it says in the docstring.
"""

from __future__ import annotations

import pytest

from coordinator.protocol.messages import AckBatch, Acknowledge, PartitionAcks
from tests.kip932.consumers import ACCEPT, GAP, REJECT, RELEASE, RENEW, ShareConsumers, batch
from tests.support.group_driver import TOPIC_ID


def test_one_type_holds_for_a_whole_batch() -> None:
    """KIP-932, ShareAcknowledge API: a range with one type is acknowledged as a whole, or any part of it apart."""
    group = ShareConsumers(end=10)
    group.fetch()
    assert group.acknowledge_batches(batch(0, 4, ACCEPT), batch(5, 9, RELEASE)) == "NONE"
    assert (group.window(), group.states()) == ((5, 10), ["5-9 AVAILABLE 1"])


def test_a_batch_can_have_a_type_for_each_offset() -> None:
    """KIP-932, ShareAcknowledge API: a list of types says what becomes of each offset in turn."""
    group = ShareConsumers(end=10)
    group.fetch()
    assert group.acknowledge_batches(batch(2, 6, ACCEPT, RELEASE, REJECT, GAP, ACCEPT)) == "NONE"
    assert group.states() == [
        "0-1 ACQUIRED 1",
        "2 ACKNOWLEDGED 1",
        "3 AVAILABLE 1",
        "4-5 ARCHIVED 1",
        "6 ACKNOWLEDGED 1",
        "7-9 ACQUIRED 1",
    ]


def test_one_acknowledgement_holds_batches_and_single_offsets_of_several_deliveries() -> None:
    """KIP-932, Batching: what was fetched at different times is acknowledged in one request, in other pieces than it
    came in."""
    group = ShareConsumers(end=30)
    group.fetch("c1", 10)
    group.acknowledge(RELEASE, 3)
    assert group.fetch("c1", 21) == [(3, 3, 2), (10, 29, 1)]
    pieces = (batch(0, 2, ACCEPT), batch(3, 3, REJECT, count=2), batch(4, 14, ACCEPT), batch(15, 15, RELEASE))
    assert group.acknowledge_batches(*pieces) == "NONE"
    assert (group.window(), group.states()) == ((15, 30), ["15 AVAILABLE 1", "16-29 ACQUIRED 1"])


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


def test_acknowledging_a_partition_that_is_not_the_groups_is_refused() -> None:
    """KIP-932, ShareAcknowledge API: a partition that the group never had is an error of its own, no one else's."""
    group = ShareConsumers(end=10)
    group.fetch()
    assert group.acknowledge_all({0: (batch(0, 9, ACCEPT),), 7: (batch(0, 9, ACCEPT),)}) == {
        0: "NONE",
        7: "INVALID_REQUEST",
    }


def test_an_offset_is_acknowledged_once() -> None:
    """KIP-932, ShareAcknowledge API: neither twice in one request nor in two while it is still in the window."""
    group = ShareConsumers(end=10)
    group.fetch()
    assert group.acknowledge_batches(batch(2, 5, ACCEPT), batch(5, 6, RELEASE)) == "INVALID_RECORD_STATE"
    assert group.acknowledge(ACCEPT, 2, 5) == "NONE"
    assert group.acknowledge(ACCEPT, 2, 5) == "INVALID_RECORD_STATE"


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


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (1, 2, 0, 3), (2, 1, 0, 3), (3, 2, 1, 0)])
def test_an_offset_is_acknowledged_once_whatever_the_order(order: tuple[int, ...]) -> None:
    """KIP-932, ShareAcknowledge API: batches need not be in order for that."""
    group = ShareConsumers(end=50)
    group.fetch()
    ranges = [(10, 20), (30, 40), (1, 5), (35, 36)]
    assert group.acknowledge_batches(*(batch(*ranges[at], ACCEPT) for at in order)) == "INVALID_RECORD_STATE"
    assert group.acknowledge_batches(*(batch(*ranges[at], ACCEPT) for at in order if at < 3)) == "NONE"


def test_acknowledging_below_the_start_offset_is_harmless() -> None:
    """KIP-932, ShareAcknowledge API: what SPSO has passed is done; saying so again is no error and changes nothing."""
    group = ShareConsumers(end=10)
    group.fetch()
    group.acknowledge(ACCEPT, 0, 4)
    written = len(group.log)
    assert group.acknowledge(REJECT, 0, 4) == "NONE"
    assert (group.window(), len(group.log)) == ((5, 10), written)
