"""KIP-1206, share.acquire.mode: how far a fetch may go beyond the number of records that was asked for.

A test for each promise; its docstring names the KIP's section and says the promise in our words. Kafka's mode is each
consumer's, ours is the group's. Kafka fetches the log's batches and may not cut them; our coordinator never sees one.
What it can cut or not is a *run*: records in a row that are alike, such as those that came back from one delivery.
"""

from __future__ import annotations

import pytest

from coordinator.config.resolved import GroupConfig
from coordinator.protocol.errors import ConfigOutOfBounds
from tests.kip932.consumers import RELEASE, ShareConsumers
from tests.support.group_driver import offsets

MODES = ("batch_optimized", "record_limit")
each_mode = pytest.mark.parametrize("mode", MODES)


def came_back(mode: str, **configs: object) -> ShareConsumers:
    """0-9 and 20-29 came back, 10-19 are held, the rest is fresh."""
    group = ShareConsumers(share_acquire_mode=mode, **configs)
    group.fetch("c1", 30)
    group.acknowledge(RELEASE, 0, 9)
    group.acknowledge(RELEASE, 20, 29)
    return group


def test_batch_optimized_is_the_default() -> None:
    """KIP-1206, Public Interfaces: without a word said, the limit is soft, as it was before the KIP."""
    assert GroupConfig.parse().share_acquire_mode == "batch_optimized"


def test_there_are_two_modes() -> None:
    """KIP-1206, Public Interfaces: batch_optimized and record_limit; anything else is refused when it is set."""
    for mode in MODES:
        assert GroupConfig.parse({"share.acquire.mode": mode}).share_acquire_mode == mode
    with pytest.raises(ConfigOutOfBounds):
        GroupConfig.parse({"share.acquire.mode": "strict"})


@pytest.mark.parametrize("limit", [1, 4, 9, 10, 12, 20, 25])
def test_record_limit_is_never_exceeded(limit: int) -> None:
    """KIP-1206, Proposed Changes: in record_limit mode a fetch acquires the number of records that was asked for, and
    no more, whatever they are cut from."""
    got = came_back("record_limit").fetch("c2", limit)
    assert sum(last - first + 1 for first, last, _ in got) == limit


def test_record_limit_cuts_a_run_and_leaves_the_rest_as_it_was() -> None:
    """KIP-1206, Proposed Changes: what lies beyond the limit stays Available with the count that it had, and is the
    first to be delivered next."""
    group = came_back("record_limit")
    assert group.fetch("c2", 4) == [(0, 3, 2)]
    assert group.states()[:2] == ["0-3 ACQUIRED 2", "4-9 AVAILABLE 1"]
    assert group.fetch("c3", 7) == [(4, 9, 2), (20, 20, 2)]


def test_batch_optimized_does_not_cut_what_came_back() -> None:
    """KIP-1206, Proposed Changes: in batch_optimized mode what belongs together is acquired whole, although that is
    more than was asked for; but nothing new is begun once the limit is met."""
    assert came_back("batch_optimized").fetch("c2", 4) == [(0, 9, 2)]
    assert came_back("batch_optimized").fetch("c2", 10) == [(0, 9, 2)]
    assert came_back("batch_optimized").fetch("c2", 11) == [(0, 9, 2), (20, 29, 2)]


@each_mode
def test_fresh_records_are_never_more_than_asked_for(mode: str) -> None:
    """KIP-1206, Proposed Changes: ours differs in batch_optimized mode. Kafka acquires the last log batch whole; ours
    knows no batches of fresh records, and stops at the limit."""
    group = ShareConsumers(share_acquire_mode=mode)
    assert group.fetch("c1", 7) == [(0, 6, 1)]
    assert group.fetch("c2", 7) == [(7, 13, 1)]


@each_mode
def test_the_limit_is_over_all_partitions_of_a_fetch(mode: str) -> None:
    """KIP-1206, Proposed Changes: it is the request's; a partition that met it leaves nothing for the others."""
    group = ShareConsumers(end=5, partitions=3, share_acquire_mode=mode)
    assert group.fetch("c1", 12) == [(0, 4, 1), (0, 4, 1), (0, 1, 1)]
    assert (group.states(2), group.fetch("c2", 12)) == (["0-1 ACQUIRED 1"], [(2, 4, 1)])


@each_mode
def test_fewer_records_than_asked_for_are_all_of_them(mode: str) -> None:
    """KIP-1206, Proposed Changes: the limit is a limit; a fetch does not wait until it is met."""
    group = ShareConsumers(end=5, share_acquire_mode=mode)
    assert group.fetch("c1", 12) == [(0, 4, 1)]


@each_mode
def test_a_limit_of_nothing_gives_nothing(mode: str) -> None:
    """KIP-1206, Proposed Changes: not even a run that came back, in either mode."""
    assert came_back(mode).fetch("c2", 0) == []


@each_mode
def test_the_record_lock_limit_is_hard_in_both_modes(mode: str) -> None:
    """KIP-1206, Proposed Changes: ours differs in batch_optimized mode. Kafka goes over the limit on locks rather than
    cut a batch; ours cuts the run."""
    group = ShareConsumers(end=150, share_acquire_mode=mode)
    group.fetch("c1")
    group.acknowledge(RELEASE, 0, 149)
    group.configure(share_partition_max_record_locks=100)
    assert group.fetch("c2", 500) == [(0, 99, 2)]
    assert group.fetch("c3", 500) == []


def test_the_mode_can_be_changed_while_the_group_runs() -> None:
    """KIP-1206, Public Interfaces: the next fetch goes by it."""
    group = came_back("batch_optimized")
    group.configure(share_acquire_mode="record_limit")
    assert group.fetch("c2", 4) == [(0, 3, 2)]


@pytest.mark.parametrize(("mode", "size"), [("batch_optimized", 10), ("record_limit", 4)])
def test_the_mode_holds_for_a_querys_limit(mode: str, size: int) -> None:
    """KIP-1206, Proposed Changes: ours applies it to Spark's queries too, whose limit is maxOffsetsPerTrigger."""
    group = came_back(mode)
    group.join("q")
    assert offsets(group.acquire(member="q", limit=4)) == size
