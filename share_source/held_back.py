"""The lines of a query's or ShareConsumer's log about records that wait for their dead letters."""

from __future__ import annotations

from coordinator.protocol.repeated_lines import LogOnce


def tell_held_back(once: LogOnce, member: str, group_id: str, waiting: int, *, acquired: bool) -> None:
    """Log once that the member gets no records because too many wait for their dead letters, and once that it gets some
    again. An answer that neither holds the member back nor has records changes nothing.

    ``member``: what it is, as "the query". ``waiting``: how many records wait, where that holds the member back; else
    0. ``acquired``: whether the answer has records.
    """
    if not (waiting or acquired) or not once.changes("held back", bool(waiting)):
        return
    if waiting:
        once.log.warning(
            "%s gets no records: %d of them wait for their dead letters. It goes on when dead letters are "
            "written; `sharegroup doctor --group %s` says why they are not.",
            member,
            waiting,
            group_id,
        )
    else:
        once.log.info("%s gets records again: dead letters are written", member)
