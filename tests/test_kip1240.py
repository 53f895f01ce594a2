"""KIP-1240: the delivery count limit and the limit on record locks belong to the group, and can change while it runs.

A test for each promise; its docstring names the KIP's section and says the promise in our words.
"""

from __future__ import annotations

import pytest

from coordinator.config.resolved import GROUP_KEYS
from coordinator.protocol.errors import ConfigOutOfBounds
from tests.kip932.consumers import RELEASE, ShareConsumers


def test_the_delivery_count_limit_is_between_2_and_10() -> None:
    """KIP-1240, Public Interfaces: share.delivery.count.limit; 5 by default, and what is out of bounds is refused."""
    key = GROUP_KEYS["share.delivery.count.limit"]
    assert (key.default, key.low, key.high, key.kip) == (5, 2, 10, "KIP-1240")
    for limit in (1, 11):
        with pytest.raises(ConfigOutOfBounds):
            ShareConsumers().configure(share_delivery_count_limit=limit)


def test_the_limit_on_record_locks_is_the_groups() -> None:
    """KIP-1240, Public Interfaces: share.partition.max.record.locks, from 100 on. Ours differs in default and upper
    bound: 1,000,000 by default, since a lock is a range and a Spark batch is large; Kafka has 2,000."""
    key = GROUP_KEYS["share.partition.max.record.locks"]
    assert (key.default, key.low, key.kip) == (1_000_000, 100, "KIP-1240")
    with pytest.raises(ConfigOutOfBounds):
        ShareConsumers().configure(share_partition_max_record_locks=99)


def failed(group: ShareConsumers, times: int) -> None:
    """The record 0 was delivered and released this often."""
    for count in range(1, times + 1):
        assert group.fetch() == [(0, 0, count)]
        group.acknowledge(RELEASE, 0, count=count)


def test_a_lower_delivery_limit_leaves_one_more_delivery() -> None:
    """KIP-1240, Proposed Changes: fetching archives nothing. A record that is over the lowered limit already is
    delivered once more, and archived when that fails."""
    group = ShareConsumers(end=1)
    failed(group, 3)
    group.configure(share_delivery_count_limit=2)
    assert group.states() == ["0 AVAILABLE 3"]
    assert group.fetch() == [(0, 0, 4)]
    group.acknowledge(RELEASE, 0, count=4)
    assert (group.window(), group.describe().partitions[0].archived_total) == ((1, 1), 1)


def test_a_lower_delivery_limit_holds_for_what_is_being_delivered() -> None:
    """KIP-1240, Proposed Changes: the limit is compared when the delivery ends, as it is then."""
    group = ShareConsumers(end=1)
    failed(group, 1)
    group.fetch()
    group.configure(share_delivery_count_limit=2)
    group.acknowledge(RELEASE, 0, count=2)
    assert group.window() == (1, 1)


def test_a_higher_delivery_limit_gives_a_record_more_deliveries() -> None:
    """KIP-1240, Proposed Changes: also to one whose last delivery it would have been."""
    group = ShareConsumers(end=1, share_delivery_count_limit=2)
    failed(group, 1)
    assert group.fetch() == [(0, 0, 2)]
    group.configure(share_delivery_count_limit=4)
    group.acknowledge(RELEASE, 0, count=2)
    assert group.fetch() == [(0, 0, 3)]


def test_the_throttling_before_the_limit_goes_by_the_new_limit() -> None:
    """KIP-1240, Proposed Changes: records near their limit come in smaller and smaller runs, the last time one by one,
    and with nothing after them; with a higher limit they are not near it any more."""
    group = ShareConsumers(end=20, share_delivery_count_limit=4)
    for count in (1, 2):
        assert group.fetch("c1", 16) == [(0, 15, count)]
        group.acknowledge(RELEASE, 0, 15, count=count)
    assert group.fetch() == [(0, 7, 3)]
    group.acknowledge(RELEASE, 0, 7, count=3)
    assert group.fetch("c2") == [(0, 0, 4)]
    group.configure(share_delivery_count_limit=10)
    assert group.fetch("c3") == [(1, 7, 4), (8, 15, 3), (16, 19, 1)]


def test_a_lower_limit_on_record_locks_takes_nothing_away() -> None:
    """KIP-1240, Proposed Changes: locks that are held stay; nothing more is acquired until there is room again."""
    group = ShareConsumers(end=500, share_partition_max_record_locks=300)
    group.fetch("c1", 200)
    group.configure(share_partition_max_record_locks=100)
    assert (group.held(), group.fetch("c2")) == (["0-199 c1"], [])
    group.acknowledge(RELEASE, 0, 99)
    assert group.fetch("c2") == []
    group.acknowledge(RELEASE, 100, 109)
    assert group.fetch("c2") == [(0, 9, 2)]


def test_a_higher_limit_on_record_locks_holds_from_the_next_fetch_on() -> None:
    """KIP-1240, Proposed Changes: it makes room at once."""
    group = ShareConsumers(end=500, share_partition_max_record_locks=100)
    group.fetch("c1")
    assert group.fetch("c2") == []
    group.configure(share_partition_max_record_locks=150)
    assert group.fetch("c2") == [(100, 149, 1)]
