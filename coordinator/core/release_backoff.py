"""The retry policy: how long a released record waits until it is acquired again. Kafka has none, and delivers it at
once (docs/adr/0044-a-querys-releases-wait.md).

The delay begins with share.release.backoff.ms, grows by share.release.backoff.multiplier with each release up to
share.release.backoff.max.ms, and is spread by share.release.backoff.jitter. The spread is computed from the record's
offset and the time, in JITTER_STEPS steps, so that this module is pure and neighbours stay one run.
"""

from __future__ import annotations

from typing import NamedTuple

from coordinator.config.resolved import GroupConfig

JITTER_STEPS = 16
"""The jitter has only this many different delays, so that records that are released together stay one run."""

QUERY_BACKOFF_MS = 10_000
"""If the group has no share.release.backoff.ms, a record waits this many milliseconds after its first release by a
query. With the other defaults five tries take some 150 s, so no record uses up its tries while a service is away for a
minute or two."""


def first_delay_ms(config: GroupConfig, *, by_query: bool) -> int:
    """Milliseconds that a record waits after its first release by a query, or by a ShareConsumer; 0: it does not
    wait."""
    if config.share_release_backoff_ms is None:
        return QUERY_BACKOFF_MS if by_query else 0
    return config.share_release_backoff_ms


class Delay(NamedTuple):
    """The delay of a released record: when it ends, and how long it is. Both are None if there is no delay."""

    not_before_ms: int | None = None
    delay_ms: int | None = None


NO_DELAY = Delay()


def jitter_step(first: int, now_ms: int) -> int:
    """The step of the jitter, from 0 to 15, for a run that begins at offset ``first`` and is released at this time."""
    return ((first * 0x9E3779B1 + now_ms * 0x85EBCA6B) & 0xFFFFFFFF) >> 28


def release_delay_ms(config: GroupConfig, releases: int, step: int, *, by_query: bool) -> int:
    """Milliseconds that a record waits after its ``releases``-th release (from 1); 0: it does not wait."""
    first_ms = first_delay_ms(config, by_query=by_query)
    if not first_ms:
        return 0
    grown_ms = min(first_ms * config.share_release_backoff_multiplier ** (releases - 1), 2.0**62)
    spread = 1 + config.share_release_backoff_jitter * (2 * step / (JITTER_STEPS - 1) - 1)
    return int(min(grown_ms * spread, config.share_release_backoff_max_ms))


def backoff(config: GroupConfig, releases: int, first: int, now_ms: int, *, by_query: bool) -> Delay:
    """The delay of a run that begins at ``first`` and is released now, for the ``releases``-th time."""
    if not first_delay_ms(config, by_query=by_query):
        return NO_DELAY
    delay_ms = release_delay_ms(config, releases, jitter_step(first, now_ms), by_query=by_query)
    return Delay(now_ms + delay_ms, delay_ms)
