"""The breaker on releases: a query whose sinks release most of its records acquires later and less (ours;
docs/adr/0048-a-breaker-on-releases.md).

A service behind such a query is probably away, and the records are not to blame. A plan is *mostly released* if the
released part is above share.release.breaker.ratio. The breaker opens once the query has released JUDGED_FROM records in
successive plans that were each mostly released, and closes with the first plan that is not. Deferred records do not
count, but a plan whose records are all deferred counts as released: its query would get them again at once. While the
breaker is open:

- The query pauses before each plan: the n-th pause is as long as the delay of a record after its n-th release.
- A plan has up to PROBE_RECORDS records.
- Releases use up no tries. After TRIES_KEPT_MS of pauses they do again, so that every record is done some day.

Stored times of another clock do no harm: a pause that would last longer than any backoff has ended, and tries are kept
by the sum of the pauses.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from coordinator.config.resolved import GroupConfig
from coordinator.core.release_backoff import first_delay_ms, jitter_step, release_delay_ms
from coordinator.protocol.values import Int64, Offset

JUDGED_FROM = 10
"""The breaker does not open before this many released records: fewer point to the records rather than a service."""

PROBE_RECORDS = 10
"""While the breaker is open, a plan has up to this many records: enough to see whether the service is back."""

TRIES_KEPT_MS = 24 * 3_600_000
"""After this many milliseconds of pauses, releases use up tries again: a record that no sink ever accepts is given up
some day."""

SHORTEST_PAUSE_MS = 1_000
"""A pause counts as at least this many milliseconds: a group with tiny backoffs would otherwise keep tries for
years."""


class Breaker(NamedTuple):
    """A query's breaker. It is closed, and only counts, while ``pauses`` is 0.

    released, records: how many of the records sinks released in the last plans, as long as each was mostly released.
    pauses: how many plans were mostly released since the breaker opened; the first of them opened it.
    since_ms: when the breaker opened. until_ms: until then the query acquires nothing.
    paused_ms: the sum of all pauses since the breaker opened, in milliseconds.
    """

    released: Offset
    records: Offset
    pauses: Offset = 0
    since_ms: Int64 = 0
    until_ms: Int64 = 0
    paused_ms: Int64 = 0


def is_used(config: GroupConfig) -> bool:
    """Whether the group's queries have breakers: without a backoff of releases there would be no pauses."""
    has_backoff = first_delay_ms(config, by_query=True) > 0 and config.share_release_backoff_max_ms > 0
    return has_backoff and config.share_release_breaker_ratio < 1


def is_open(breaker: Breaker | None, config: GroupConfig) -> bool:
    """Whether the breaker is open."""
    return breaker is not None and breaker.pauses > 0 and is_used(config)


def pause_ms(breaker: Breaker | None, config: GroupConfig, now_ms: int) -> int:
    """Milliseconds for which the query still acquires nothing; 0: it may acquire."""
    if breaker is None or not is_open(breaker, config):
        return 0
    left_ms = breaker.until_ms - now_ms
    return left_ms if 0 < left_ms <= config.share_release_backoff_max_ms else 0


def keeps_tries(breaker: Breaker | None, config: GroupConfig) -> bool:
    """Whether releases of a plan that was acquired with this breaker use up no tries."""
    return breaker is not None and is_open(breaker, config) and breaker.paused_ms < TRIES_KEPT_MS


def most_returned(most: int, config: GroupConfig) -> int:
    """Returns how many of the ``most`` records of a plan may be records that came back, while the breaker is open. Only
    the ratio of them may, so that records which sinks always release can't keep the breaker open while others are
    accepted."""
    return max(1, int(most * config.share_release_breaker_ratio))


def judged(
    breaker: Breaker | None,
    config: GroupConfig,
    released: int,
    records: int,
    *,
    plan_id: int,
    now_ms: int,
    others: Iterable[Breaker],
) -> tuple[Breaker | None, bool]:
    """Returns the breaker after a plan of which sinks released ``released`` of ``records`` records, and whether these
    releases use up no tries. ``others``: open breakers of the group's other queries. A breaker that opens begins with
    the longest of their sums of pauses: the service is the same, and each query would otherwise use up one more try of
    the same records."""
    if not records:
        return breaker, keeps_tries(breaker, config)
    if not is_used(config) or released <= config.share_release_breaker_ratio * records:
        return None, keeps_tries(breaker, config)
    before = breaker or Breaker(0, 0)
    after = before._replace(released=before.released + released, records=before.records + records)
    if not before.pauses:
        if after.released < JUDGED_FROM:
            return after, False
        paused_ms = max((other.paused_ms for other in others), default=0)
        before = after = after._replace(since_ms=now_ms, paused_ms=paused_ms)
        keeps = 0 < paused_ms < TRIES_KEPT_MS
    else:
        keeps = keeps_tries(before, config)
    pauses = before.pauses + 1
    delay_ms = release_delay_ms(config, pauses, jitter_step(plan_id, now_ms), by_query=True)
    return (
        after._replace(
            pauses=pauses,
            since_ms=min(after.since_ms, now_ms),
            until_ms=now_ms + delay_ms,
            paused_ms=before.paused_ms + max(delay_ms, SHORTEST_PAUSE_MS),
        ),
        keeps,
    )
