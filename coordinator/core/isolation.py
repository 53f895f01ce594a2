"""Poison isolation: the stages of a query's record that keeps failing, and the sizes and pauses of each stage
(docs/learn/concepts.md, "Isolation").

A batch that fails again and again probably holds a record that nobody can process. The try after n failures is try
n + 1. The stages of a record are:

- SLICED, from a certain try on (:func:`isolation_threshold`): it is acquired only with records that are on the same
  try, in slices that get smaller with each try; the last slice is one record.
- QUARANTINED, at the limit: it is taken out of its batch, and delivered only alone.
- FAILED_ALONE: a quarantined record that failed among others may be a good one, so it has to fail alone first.
- TRIAL: it is delivered alone while the query has evidence that processing works. A failed trial gives the record up.

Slices depend only on *failures* (deliveries that ended in a replay or a lost lock). The limit is about the tries
(failures and releases) of a record with at least one failure. The delivery count never matters. A ShareConsumer's
record has no stages: it is given up at the limit, as in Kafka. A record that a completed batch accepts or rejects
leaves the stages for good. A record that it defers keeps its stage: a trial has then not taken place.

The stage is derived from a run's fields, and from the plan that holds the run, by :func:`stage_of`.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache

from coordinator.core.record_state import RecordState
from coordinator.core.runs import Run

SOLO_BACKOFF_FIRST_MS = 1_000
"""A quarantined record waits this many milliseconds after its first failure alone."""
SOLO_BACKOFF_MAX_MS = 30_000
"""A quarantined record waits at most this many milliseconds, so that it is tried soon after an outage ends."""


class Stage(Enum):
    """The stages of isolation."""

    NORMAL = "normal"
    SLICED = "sliced"
    QUARANTINED = "quarantined"
    FAILED_ALONE = "failed alone"
    TRIAL = "trial"
    GIVEN_UP = "given up"


class IsolationEvent(Enum):
    """Events that change a record's stage; the value is the label in the docs' diagram."""

    FAIL = "failed"
    FAIL_AT_THRESHOLD = "failed at half the limit"
    FAIL_AT_LIMIT = "failed at the limit"
    FAIL_AT_LIMIT_ALONE = "failed at the limit, alone in its batch"
    START_TRIAL = "acquired on trial"
    LOSE_LOCK = "session ended"
    LOSE_LOCK_AGAIN = "session ended again"
    RELEASE = "released"
    RELEASE_BELOW_THRESHOLD = "released, few failures"


S, E = Stage, IsolationEvent

TRANSITIONS: dict[tuple[Stage, IsolationEvent], Stage] = {
    # a delivery among others ends in a replay or a lost lock
    (S.NORMAL, E.FAIL): S.NORMAL,
    (S.NORMAL, E.FAIL_AT_THRESHOLD): S.SLICED,
    (S.SLICED, E.FAIL): S.SLICED,
    (S.NORMAL, E.FAIL_AT_LIMIT): S.QUARANTINED,
    (S.SLICED, E.FAIL_AT_LIMIT): S.QUARANTINED,
    (S.NORMAL, E.FAIL_AT_LIMIT_ALONE): S.FAILED_ALONE,
    (S.SLICED, E.FAIL_AT_LIMIT_ALONE): S.FAILED_ALONE,
    # a delivery alone
    (S.QUARANTINED, E.FAIL): S.FAILED_ALONE,
    (S.FAILED_ALONE, E.FAIL): S.FAILED_ALONE,
    (S.FAILED_ALONE, E.START_TRIAL): S.TRIAL,
    # a trial is judged when its query comes back, since the batch may have been committed. But a second trial that ends
    # in a lost lock has failed: otherwise two queries that are away for longer than a session would pass a bad record
    # to each other for ever
    (S.TRIAL, E.FAIL): S.GIVEN_UP,
    (S.TRIAL, E.LOSE_LOCK): S.FAILED_ALONE,
    (S.TRIAL, E.LOSE_LOCK_AGAIN): S.GIVEN_UP,
    # a sink released the record: it has been processed, so it is quarantined no longer
    (S.QUARANTINED, E.RELEASE): S.SLICED,
    (S.FAILED_ALONE, E.RELEASE): S.SLICED,
    (S.TRIAL, E.RELEASE): S.SLICED,
    (S.QUARANTINED, E.RELEASE_BELOW_THRESHOLD): S.NORMAL,
    (S.FAILED_ALONE, E.RELEASE_BELOW_THRESHOLD): S.NORMAL,
    (S.TRIAL, E.RELEASE_BELOW_THRESHOLD): S.NORMAL,
}

IN_BATCHES = frozenset({S.NORMAL, S.SLICED})
"""Stages in which a record is delivered with others."""

CLEARS_EVIDENCE = frozenset(
    {
        (S.NORMAL, S.QUARANTINED),
        (S.SLICED, S.QUARANTINED),
        (S.NORMAL, S.FAILED_ALONE),
        (S.SLICED, S.FAILED_ALONE),
        (S.QUARANTINED, S.FAILED_ALONE),
    }
)
"""These changes of stage clear the evidence of earlier batches, since an outage may have begun."""


def stage_of(run: Run, limit: int, *, on_trial: bool = False) -> Stage:
    """The stage of the run's records. ``limit``: share.delivery.count.limit. ``on_trial``: the plan that holds the
    records is a trial."""
    if run.state in (RecordState.ARCHIVING, RecordState.ARCHIVED):
        return Stage.GIVEN_UP
    if on_trial:
        return Stage.TRIAL
    if run.quarantined:
        return Stage.QUARANTINED if run.failed_alone_ms is None else Stage.FAILED_ALONE
    return Stage.SLICED if isolation_class(run.failures, limit) else Stage.NORMAL


def failure_event(stage: Stage, failed: Run, limit: int, *, alone: bool, session_ended: bool) -> IsolationEvent:
    """The event of a delivery that ended without an outcome. ``stage``: the record's stage during the delivery.
    ``failed``: the run with this failure counted. ``alone``: the plan held no other record."""
    if stage is Stage.TRIAL and session_ended:
        return IsolationEvent.LOSE_LOCK_AGAIN if failed.trials_lost else IsolationEvent.LOSE_LOCK
    if stage in IN_BATCHES and failed.failures > 0 and failed.tries >= limit:
        return IsolationEvent.FAIL_AT_LIMIT_ALONE if alone else IsolationEvent.FAIL_AT_LIMIT
    if stage is Stage.NORMAL and isolation_class(failed.failures, limit):
        return IsolationEvent.FAIL_AT_THRESHOLD
    return IsolationEvent.FAIL


def release_event(failures: int, limit: int) -> IsolationEvent:
    """The event of a quarantined record that a sink released."""
    return IsolationEvent.RELEASE if isolation_class(failures, limit) else IsolationEvent.RELEASE_BELOW_THRESHOLD


def isolation_threshold(limit: int) -> int:
    """The first try that is isolated: ``t`` in the formula of :func:`slice_size`. ``limit`` is
    share.delivery.count.limit. Kafka's ShareConsumers have the same threshold, and queries reach it one try earlier."""
    return max(2, (limit + 1) // 2)


@lru_cache(maxsize=256)
def slice_size(current_try: int, limit: int, base: int) -> int | None:
    """Returns how many records a plan may hold when they are on their ``current_try``; None: as many as any plan.

    The formula is ``max(1, floor(base ** ((limit - current_try) / (limit - t + 1))))``, with t =
    isolation_threshold(limit) and an exact integer root. With a limit of 2 there are no slices: records go from a whole
    batch into quarantine.
    """
    threshold = isolation_threshold(limit)
    if limit <= 2 or current_try < threshold:
        return None
    if current_try >= limit:
        return 1
    return max(1, integer_root(base ** (limit - current_try), limit - threshold + 1))


def integer_root(value: int, degree: int) -> int:
    """The largest integer whose ``degree``-th power is no larger than ``value``."""
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
    """The class of a record with this many failures: 0 below the threshold, else its try. Only records of equal classes
    may share a plan."""
    current_try = failures + 1
    return 0 if limit <= 2 or current_try < isolation_threshold(limit) else min(current_try, limit)


def solo_backoff_ms(failures: int, limit: int) -> int:
    """Milliseconds that a quarantined record waits after it failed alone: 1 s, doubled each time, up to 30 s."""
    doublings = min(max(0, failures - limit - 1), 10)
    return min(SOLO_BACKOFF_MAX_MS, SOLO_BACKOFF_FIRST_MS << doublings)
