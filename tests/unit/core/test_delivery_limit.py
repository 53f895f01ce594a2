"""The delivery count and its limit (KIP-932, In-flight records; KIP-1240)."""

from __future__ import annotations

import pytest

from coordinator.config.group_keys import GROUP_KEYS
from coordinator.protocol.errors import ConfigOutOfBounds
from tests.kip932.consumers import ShareConsumers
from tests.kip932.failed_deliveries import Failure, each_failure
from tests.support.group_driver import SESSION_MS, GroupDriver, fetched


def test_limits_compare_tries_never_the_delivery_count() -> None:
    group = GroupDriver(records=10)
    for _ in range(20):
        group.join()
        group.next()
    group.pass_time(SESSION_MS + 1)
    group.join("c1", query=False)
    assert fetched(group, 10) == [(0, 9, 21)], "not throttled: no try was made"
    group.pass_time(31_000)
    assert group.dump() == ["[0..9] AVAILABLE 21 1 2"], "not archived either"


@each_failure
def test_the_delivery_count_rises_at_acquisition_and_stays_when_the_delivery_fails(fail: Failure) -> None:
    """KIP-932, In-flight records: the count rises when a record is acquired, and stays when the delivery fails."""
    group = ShareConsumers(end=1)
    assert group.fetch() == [(0, 0, 1)]
    fail(group, 1)
    assert group.states() == ["0 AVAILABLE 1"]
    assert group.fetch() == [(0, 0, 2)]


@each_failure
def test_a_record_is_archived_when_its_last_delivery_fails(fail: Failure) -> None:
    """KIP-932, In-flight records: share.delivery.count.limit says how often a record is delivered. The delivery that
    reaches it takes place; when it fails too, the record is Archived. Ours counts what failed or was released, so
    that an acquisition which nobody read costs nothing; for ShareConsumers both are the same."""
    group = ShareConsumers(end=1, share_delivery_count_limit=3)
    for count in (1, 2, 3):
        assert group.fetch() == [(0, 0, count)]
        fail(group, count)
    assert group.fetch() == []
    assert (group.window(), group.describe().partitions[0].archived_total) == ((1, 1), 1)


def test_the_delivery_count_limit_is_between_2_and_10() -> None:
    """KIP-1240, Public Interfaces: share.delivery.count.limit; 5 by default, and what is out of bounds is refused."""
    key = GROUP_KEYS["share.delivery.count.limit"]
    assert (key.default, key.low, key.high, key.kip) == (5, 2, 10, "KIP-1240")
    for limit in (1, 11):
        with pytest.raises(ConfigOutOfBounds):
            ShareConsumers().configure(share_delivery_count_limit=limit)
