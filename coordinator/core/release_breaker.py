"""The breaker on releases: a query whose sinks release most of its records acquires later and less (ours;
docs/adr/0048-a-breaker-on-releases.md).

The service behind such a query is away, and its records are not to blame. So the breaker opens once the query has
released JUDGED_FROM records in plans of which each was mostly released: by more than share.release.breaker.ratio. While
it is open the query pauses before each plan, as long as a record would wait after as many releases; a plan has up to
PROBE_RECORDS records, and its releases use up no try. The first plan that is not mostly released closes it. Everything
ends: after TRIES_KEPT_MS of pauses, releases use up tries again.

Pure. Times of another clock do no harm: a pause that would last longer than any backoff is over, and what bounds the
kept tries is the sum of pauses, and no time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from coordinator.config.resolved import GroupConfig
from coordinator.core.release_backoff import first_delay_ms, jitter_step, release_delay_ms
from coordinator.protocol.values import Int64, Offset

JUDGED_FROM = 10
"""The breaker opens from this many released records on: fewer point to records rather than a service."""

PROBE_RECORDS = 10
"""A plan acquired while the breaker is open has up to this many records: enough to see whether the service is back."""

TRIES_KEPT_MS = 24 * 3_600_000
"""After this many milliseconds of pauses releases use up tries again, so that records that no sink ever accepts end as
those of a query without a breaker."""

SHORTEST_PAUSE_MS = 1_000
"""A pause counts at least this many milliseconds: else a group with tiny backoffs would keep tries for years."""


class Breaker(NamedTuple):
    """A query's breaker. It is closed, and only counts, while ``pauses`` is 0.

    released: records that sinks released in the query's last plans on end that were mostly released, of ``records``.
    pauses: plans that were mostly released since it opened, that one included.
    since_ms: when it opened; until_ms: until then the query acquires nothing.
    paused_ms: all pauses since it opened, in milliseconds.
    """

    released: Offset
    records: Offset
    pauses: Offset = 0
    since_ms: Int64 = 0
    until_ms: Int64 = 0
    paused_ms: Int64 = 0


def is_used(config: GroupConfig) -> bool:
    """Whether the group has the breaker: without a backoff of releases it would have nothing to wait for."""
    has_backoff = first_delay_ms(config, by_query=True) > 0 and config.share_release_backoff_max_ms > 0
    return has_backoff and config.share_release_breaker_ratio < 1


def is_open(breaker: Breaker | None, config: GroupConfig) -> bool:
    """Whether the query acquires later and less."""
    return breaker is not None and breaker.pauses > 0 and is_used(config)


def pause_ms(breaker: Breaker | None, config: GroupConfig, now_ms: int) -> int:
    """How long the query still acquires nothing; 0: it may acquire."""
    if breaker is None or not is_open(breaker, config):
        return 0
    left_ms = breaker.until_ms - now_ms
    return left_ms if 0 < left_ms <= config.share_release_backoff_max_ms else 0


def keeps_tries(breaker: Breaker | None, config: GroupConfig) -> bool:
    """Whether a release by a plan that was acquired with this breaker uses up no try."""
    return breaker is not None and is_open(breaker, config) and breaker.paused_ms < TRIES_KEPT_MS


def most_returned(most: int, config: GroupConfig) -> int:
    """How many of the ``most`` records of a plan may have come back while the breaker is open: no more than the ratio
    allows, so that records that are released for their own sake don't keep it open while others are accepted."""
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
    """Returns the breaker after the plan, of whose ``records`` sinks released ``released``; and whether the plan's
    releases use up no try. ``others``: open breakers of the group's other queries. A breaker that opens beside one of
    them goes on with its pauses: the service is the same, and each query would use up one try of the same records."""
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
