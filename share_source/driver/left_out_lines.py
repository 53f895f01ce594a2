"""Warnings in the driver's log about records that a query's batch lacks: one line for each reason.

A line has the count, the first ranges and the reason, so that thousands of ranges do not flood the log."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

from coordinator.protocol.messages import GivenUp, LeftOut, ReleaseBreaker
from coordinator.protocol.repeated_lines import LogOnce
from coordinator.protocol.values import AlteredStart

NAMED = 20
"""One line names up to this many ranges."""

_REASONS = {
    "delivery_limit": "they were released, or failed, as often as share.delivery.count.limit allows",
    "undecided": "no sink decided them, with share.acknowledgement.mode=explicit, in as many deliveries as "
    "share.delivery.count.limit allows",
    "expired": "their locks ran out as often as share.delivery.count.limit allows",
}

_log = logging.getLogger(__name__)


def warn_left_out(group_id: str, plan: str, left_out: Sequence[LeftOut]) -> None:
    """Log the records that a replayed plan no longer holds, one line for each reason."""
    for reason in dict.fromkeys(entry.reason for entry in left_out):
        of_reason = [entry for entry in left_out if entry.reason == reason]
        _log.warning(
            "share group %s, plan %s: %d record(s) are not in the replayed batch (%s): %s",
            *(group_id, plan, sum(entry.count for entry in of_reason), reason, named_left_out(of_reason)),
        )


def tell_breaker(once: LogOnce, breaker: ReleaseBreaker | None) -> None:
    """Log once that the query's release breaker has opened, and once that it has closed."""
    if not once.changes("breaker", breaker is not None):
        return
    if breaker is not None:
        _log.warning(
            "the query gets fewer records, and later: sinks released %d of the last %d records, so the service behind "
            "it may be away. No record comes until %s. Then batches are small%s, until a batch comes of which most "
            "records are not released. share.release.breaker.ratio=1 turns this off.",
            breaker.released,
            breaker.records,
            datetime.fromtimestamp(breaker.until_ms / 1000, timezone.utc).isoformat(timespec="seconds"),
            ", whose releases use up no tries" if breaker.keeps_tries else "",
        )
    else:
        _log.info("the query gets as many records as before again: sinks no longer release most of them")


def warn_altered(group_id: str, plan: str, altered: Sequence[AlteredStart], total: int) -> None:
    """Log which start offsets an administrator altered after the plan was acquired, who did it, and the new offsets."""
    who = ", ".join(dict.fromkeys(each.by or "named in the coordinator's audit log" for each in altered))
    where = [
        f"{topic}-{partition} {'is deleted' if start is None else f'now begins at {start}'}"
        for topic, partition, start, _ in altered[:NAMED]
    ]
    rest = f" and {total - len(where)} more" if total > len(where) else ""
    _log.warning(
        "share group %s, plan %s: an administrator (%s) altered the start offsets of %d share partition(s): %s%s. "
        "Acknowledgements of what the plan held there have no effect; the query goes on from the new offsets",
        *(group_id, plan, who, total, ", ".join(where), rest),
    )


def warn_given_up(group_id: str, given_up: Iterable[GivenUp]) -> None:
    """Log the records that a completed plan archived at the delivery limit, one line for each disposition."""
    for entry in given_up:
        ranges = [
            (f"{topic}-{partition} offsets {first} to {last}", last - first + 1)
            for topic, partition, first, last in entry.sample
        ]
        _log.warning(
            "share group %s archived %d record(s), which it does not deliver again, because %s: %s. With "
            "errors.deadletterqueue.topic.name set they become dead letters.",
            *(group_id, entry.count, _REASONS[entry.disposition], _named(ranges, entry.count)),
        )


def named_left_out(left_out: Sequence[LeftOut]) -> str:
    """Returns the first entries as text, with the number of records in the other entries."""
    return _named([(str(entry), entry.count) for entry in left_out], sum(entry.count for entry in left_out))


def _named(entries: Sequence[tuple[str, int]], total: int) -> str:
    text = ", ".join(name for name, _ in entries[:NAMED])
    rest = total - sum(count for _, count in entries[:NAMED])
    return f"{text} and {rest} more record(s)" if rest else text
