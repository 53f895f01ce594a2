"""The lines of a query's or ShareConsumer's log about records that it does not get."""

from __future__ import annotations

from coordinator.protocol.messages import AcquiredReply, PlanReply
from coordinator.protocol.repeated_lines import LogOnce


def tell_held_back(
    once: LogOnce, member: str, group_id: str, reply: PlanReply | AcquiredReply, *, acquired: bool
) -> None:
    """Log why the member gets no records: once that too many wait for their dead letters, and once that it gets some
    again; once, and no more than once a minute, that other members hold the partitions of an ordered group.

    ``member``: what it is, as "the query". ``acquired``: whether the reply has records. A reply that has none, and no
    reason, changes nothing."""
    if reply.holders and once.changes("holders", reply.holders) and once.left_out("holders told") is not None:
        once.log.info(
            "%s waits for partitions of the ordered share group %s, which other members hold: %s. It gets its part of "
            "the partitions when they are free, and all if the others leave.",
            member,
            group_id,
            "; ".join(reply.holders),
        )
    if not (reply.held_back or acquired) or not once.changes("held back", bool(reply.held_back)):
        return
    if reply.held_back:
        once.log.warning(
            "%s gets no records: %d of them wait for their dead letters. It goes on when dead letters are "
            "written; `sharegroup doctor --group %s` says why they are not.",
            member,
            reply.held_back,
            group_id,
        )
    else:
        once.log.info("%s gets records again: dead letters are written", member)
