"""Arguments of steps: a group's configs, a sink's rows as runs, and receipts as batches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from coordinator.protocol.values import AcknowledgeType, OutcomeRun
from tests.model.plans import Ack
from tests.model.sinks import Row
from tests.model.state import Backoff

RETENTION_MS = 3_600_000
SOLO_TIMEOUT_MS = 60_000
BACKOFFS = (
    Backoff(),
    Backoff(first_ms=1_000),
    Backoff(first_ms=2_000, multiplier=3.0, max_ms=10_000, jitter=0.2),
    Backoff(first_ms=20_000, multiplier=1.5, jitter=1.0),
)


@dataclass(frozen=True)
class SinkConfigs:
    """A group's configs that have to do with sinks, dead letters and retries."""

    explicit: bool = False
    dead_letters: bool = False
    backoff: Backoff = BACKOFFS[0]
    reject_ratio: float = 1.0
    breaker_ratio: float = 0.5


@dataclass(frozen=True)
class LockConfigs:
    """A group's configs of ShareConsumers' locks: their duration; for records in progress how old the last signal may
    be, until when signals extend a lock, and how long a member that left keeps them; all in ms."""

    lock_ms: int = 30_000
    stale_ms: int = 90_000
    extension_ms: int = 30 * 60_000
    grace_ms: int = 5_000


@dataclass(frozen=True)
class FlowConfigs:
    """A group's limits on what is acquired, and how long a record may wait; None: no limit."""

    paused: str = ""
    rate: int | None = None
    in_flight: int | None = None
    ttl_ms: int | None = None

    def texts(self) -> dict[str, str]:
        limits = {"share.max.records.per.second": self.rate, "share.max.in.flight.records": self.in_flight}
        limits |= {"share.record.ttl.ms": self.ttl_ms}
        return {"share.paused.topics": self.paused, **{key: str(most or "") for key, most in limits.items()}}


def configs_of(
    limit: int, base: int, mode: str, sinks: SinkConfigs, locks: LockConfigs, order: str, flow: FlowConfigs
) -> dict[str, str]:
    """The group's configs as texts."""
    return {
        "share.delivery.count.limit": str(limit),
        "share.isolation.base": str(base),
        "share.acquire.mode": mode,
        "share.order": order,
        **flow.texts(),
        "share.partition.max.record.locks": "100",
        "share.poison.solo.timeout.ms": str(SOLO_TIMEOUT_MS),
        "share.acknowledgement.mode": "explicit" if sinks.explicit else "implicit",
        "errors.deadletterqueue.topic.name": "dlq" if sinks.dead_letters else "",
        "share.member.retention.ms": str(RETENTION_MS),
        "share.assignment.interval.ms": "0",
        "errors.deadletterqueue.max.reject.ratio": str(sinks.reject_ratio),
        "share.release.breaker.ratio": str(sinks.breaker_ratio),
        "share.release.backoff.ms": str(sinks.backoff.first_ms),
        "share.release.backoff.multiplier": str(sinks.backoff.multiplier),
        "share.release.backoff.max.ms": str(sinks.backoff.max_ms),
        "share.release.backoff.jitter": str(sinks.backoff.jitter),
        "share.record.lock.duration.ms": str(locks.lock_ms),
        "group.share.in.progress.staleness.threshold.ms": str(locks.stale_ms),
        "group.share.in.progress.max.lock.extension.ms": str(locks.extension_ms),
        "group.share.in.progress.rebalance.grace.ms": str(locks.grace_ms),
    }


def outcome_runs(rows: Iterable[Row]) -> Iterable[OutcomeRun]:
    """Rows of a partition, ascending, as runs."""
    found: list[OutcomeRun] = []
    for (_, offset), count, outcome, delay_ms, letter, reason in rows:
        run = OutcomeRun(offset, offset, count, AcknowledgeType(outcome), delay_ms, letter, reason)
        if found and found[-1].last == offset - 1 and found[-1][2:] == run[2:]:
            found[-1] = found[-1]._replace(last=offset)
        else:
            found.append(run)
    return found


def pieces(acks: Iterable[tuple[int, int, int, bool]]) -> list[Ack]:
    """(offset, receipt, type, alone) of each record to as few batches as their receipts and ``alone`` let be."""
    found: list[Ack] = []
    for offset, count, kind, alone in acks:
        if found and found[-1][1] == offset - 1 and found[-1][2] == count and not alone:
            first, _, _, types = found.pop()
            found.append((first, offset, count, [*types, kind]))
        else:
            found.append((offset, offset, count, [kind]))
    return found
