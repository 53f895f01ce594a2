"""Warnings in the driver's log about records that a query's batches go on without: one line a reason.

A line has the count, the first ranges and the reason, so that a plan of thousands of ranges does not flood the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from coordinator.protocol.messages import GivenUp, LeftOut

NAMED = 20
"""Ranges that a line names."""

_WHY = {
    "delivery_limit": "they were released, or failed, as often as share.delivery.count.limit allows",
    "undecided": "no sink decided them, with share.acknowledgement.mode=explicit, in as many deliveries as "
    "share.delivery.count.limit allows",
    "expired": "their locks ran out as often as share.delivery.count.limit allows",
}

_log = logging.getLogger(__name__)


def warn_left_out(group_id: str, plan: str, left_out: Sequence[LeftOut]) -> None:
    """Log what a replayed plan no longer holds: a line for each of :class:`~coordinator.protocol.messages.LeftOut`'s
    reasons."""
    for reason in dict.fromkeys(out.reason for out in left_out):
        alike = [out for out in left_out if out.reason == reason]
        _log.warning(
            "share group %s, plan %s: %d record(s) are not in the replayed batch (%s): %s",
            group_id,
            plan,
            sum(out.count for out in alike),
            reason,
            named_left_out(alike),
        )


def warn_given_up(group_id: str, given_up: Iterable[GivenUp]) -> None:
    """Log what a completed plan gave up: a line for each disposition."""
    for each in given_up:
        ranges = [(f"{topic}-{p} offsets {first} to {last}", last - first + 1) for topic, p, first, last in each.sample]
        _log.warning(
            "share group %s: %d record(s) were given up, and are not delivered again, since %s: %s. With "
            "errors.deadletterqueue.topic.name set they are dead letters.",
            group_id,
            each.count,
            _WHY[each.disposition],
            _named(ranges, each.count),
        )


def named_left_out(left_out: Sequence[LeftOut]) -> str:
    """The first entries, and how many records the others count."""
    return _named([(str(out), out.count) for out in left_out], sum(out.count for out in left_out))


def _named(entries: Sequence[tuple[str, int]], total: int) -> str:
    text = ", ".join(what for what, _ in entries[:NAMED])
    rest = total - sum(count for _, count in entries[:NAMED])
    return f"{text} and {rest} more record(s)" if rest else text
