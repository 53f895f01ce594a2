"""The flow of a group: its paused topics, its rate, and its limit of records in flight (docs/run/flow.md).

Rules:

- Each acquisition takes at most what the group's limits leave at that time, whoever asks. Records of paused topics are
  not acquired.
- Records that a member holds stay its own: it may acknowledge them, and a query gets the batch again that it holds. No
  limit applies to that.
- The rate counts acquisitions: no more than share.max.records.per.second records are acquired within any second. A new
  owner does not know the last acquisitions of the one before, and acquires nothing for its first second.
"""

from __future__ import annotations

from typing import NamedTuple

from coordinator.config.group_keys import IN_FLIGHT, PAUSED, RATE
from coordinator.core.order import Log, has_work
from coordinator.core.share_group import ShareGroup


class Flow(NamedTuple):
    """The number of records that the group's limits let a member acquire. ``most`` None: any number. ``limited_by``:
    the key that lets nothing be acquired. ``retry_ms``: after how many milliseconds that may change; 0: nobody
    knows."""

    most: int | None = None
    limited_by: str = ""
    retry_ms: int = 0


FREE = Flow()
"""Nothing limits the group."""


def least(most: int | None, other: int | None) -> int | None:
    """The smaller of two limits; None: no limit."""
    return min((each for each in (most, other) if each is not None), default=None)


def flowing(group: ShareGroup, logs: list[Log]) -> list[Log]:
    """The logs whose topics are not paused."""
    if not group.config.share_paused_topics:
        return logs
    return [log for log in logs if not group.config.is_paused(group.topic_names[log[0].key.topic_id])]


def in_the_way(
    group: ShareGroup, flow: Flow, subscribed: list[Log], flowing: list[Log], now_ms: int, available_ms: int
) -> Flow:
    """What is in the way of a member that acquired nothing from its logs ``subscribed``: nothing, if there is no
    record for it; else ``flow`` or, for a record that is not of the logs ``flowing``, the pause."""
    if not flow.limited_by and len(flowing) == len(subscribed):
        return FREE
    keys = {partition.key for partition, _ in flowing} if not flow.limited_by else set()
    if not any(has_work(group, *log, now_ms, available_ms) for log in subscribed if log[0].key not in keys):
        return FREE
    return flow if flow.limited_by else Flow(limited_by=PAUSED)


def flow_of(group: ShareGroup, now_ms: int) -> Flow:
    """Returns how many records the rate and the limit of records in flight let the group acquire now."""
    most, in_flight, rate = None, group.config.share_max_in_flight_records, group.config.share_max_records_per_second
    if in_flight is not None:
        most = in_flight - sum(partition.acquired_count for partition in group.partitions.values())
        if most <= 0:
            return Flow(0, IN_FLIGHT)
    if rate is not None:
        left, retry_ms = group.recent.left(rate, now_ms)
        if not left:
            return Flow(0, RATE, retry_ms)
        most = least(left, most)
    return Flow(most)
