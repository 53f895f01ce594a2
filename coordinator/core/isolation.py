"""Poison isolation: which records may be delivered together, and how many (docs/concepts.md, "Isolation").

A batch that fails again and again holds a record that nobody can process. From its ``t``-th try on, a record is
acquired only with records that are on the same try, in slices that shrink to one at the last; after that it is set
aside and delivered alone. Only *failures* count (deliveries that ended in a replay or a lost lock), never the delivery
count.
"""

from __future__ import annotations

from functools import lru_cache

SOLO_BACKOFF_FIRST_MS = 1_000
SOLO_BACKOFF_MAX_MS = 30_000


def isolation_threshold(limit: int) -> int:
    """``t``: the first try that is isolated. ``limit`` is share.delivery.count.limit (Kafka's threshold, one try
    earlier for queries)."""
    return max(2, (limit + 1) // 2)


@lru_cache(maxsize=256)
def slice_size(current_try: int, limit: int, base: int) -> int | None:
    """Most records that a plan may hold when they are on their ``current_try``; None: no cut.

    ``max(1, floor(base ** ((limit - c) / (limit - t + 1))))`` with an exact integer root. A limit of 2 has no slices:
    records go from a whole batch to being set aside.
    """
    threshold = isolation_threshold(limit)
    if limit <= 2 or current_try < threshold:
        return None
    if current_try >= limit:
        return 1
    return max(1, integer_root(base ** (limit - current_try), limit - threshold + 1))


def integer_root(value: int, degree: int) -> int:
    """The largest integer whose ``degree``-th power is at most ``value``."""
    low, high = 0, 1
    while high**degree <= value:
        high *= 2
    while low < high - 1:
        middle = (low + high) // 2
        if middle**degree <= value:
            low = middle
        else:
            high = middle
    return low


def isolation_class(failures: int, limit: int) -> int:
    """Records may share a plan if their classes are equal: 0 for all below the threshold, else the try."""
    current_try = failures + 1
    return 0 if limit <= 2 or current_try < isolation_threshold(limit) else min(current_try, limit)


def solo_backoff_ms(failures: int, limit: int) -> int:
    """How long a record that was set aside waits after it failed alone: 1 s, doubled each time, at most 30 s."""
    doublings = min(max(0, failures - limit - 1), 10)
    return min(SOLO_BACKOFF_MAX_MS, SOLO_BACKOFF_FIRST_MS << doublings)
