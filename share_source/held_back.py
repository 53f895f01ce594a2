"""The lines of a query's or ShareConsumer's log about records that it does not get."""

from __future__ import annotations

from coordinator.config.group_keys import DELIVERY_DELAY, IN_FLIGHT, PAUSED, RATE, RECORD_TTL
from coordinator.protocol.messages import AcquiredReply, PlanReply
from coordinator.protocol.repeated_lines import LogOnce

WHY = {
    PAUSED: "their topics are in share.paused.topics",
    RATE: "all members have acquired share.max.records.per.second",
    IN_FLIGHT: "all members hold share.max.in.flight.records",
    DELIVERY_DELAY: "by their timestamps they are younger than share.delivery.delay.ms",
    RECORD_TTL: "those that are older than share.record.ttl.ms are archived first",
}
"""Which limit is in the way, by its key."""


def tell_held_back(
    once: LogOnce, member: str, group_id: str, reply: PlanReply | AcquiredReply, *, acquired: bool
) -> None:
    """Log why the member gets no records: once that too many wait for their dead letters, and once that it gets some
    again; once, and no more than once a minute, that other members hold the partitions of an ordered group; once, which
    key of the group is in the way.

    ``member``: what it is, as "the query". ``acquired``: whether the reply has records. A reply that has none, and no
    reason, changes nothing."""
    if reply.holders and once.changes("holders", reply.holders) and once.left_out("holders told") is not None:
        once.log.info(
            "%s waits for partitions of the ordered share group %s, which other members hold: %s. It gets its part of "
            "the partitions when they are free, and all if the others leave.",
            *(member, group_id, "; ".join(reply.holders)),
        )
    if reply.limited_by and once.changes("limit", reply.limited_by):
        once.log.info(
            "%s gets no records at the moment: %s of share group %s (`sharegroup configs list --group %s`)",
            *(member, WHY.get(reply.limited_by, reply.limited_by), group_id, group_id),
        )
    if not (reply.held_back or acquired) or not once.changes("held back", bool(reply.held_back)):
        return
    if reply.held_back:
        once.log.warning(
            "%s gets no records, because %d archived records of the group wait until their dead letters are written. "
            "`sharegroup doctor --group %s` says why they are not.",
            *(member, reply.held_back, group_id),
        )
    else:
        once.log.info("%s gets records again: dead letters are written", member)
