"""Kinds of faults that a run may have beside those of every run: each is off unless a scenario says so.

    stalls      a coordinator stands still, also for several sessions: another one takes its place once somebody finds
                it silent, or none does, and it goes on; appends may take as long. Nothing else goes wrong, so that no
                query that lives may lose its session
    configs     whoever starts has other group configs than the one before
    topics      topics of the subscribed pattern are created, deleted, and created anew
    hosts       more than one host, each with a coordinator of its own: the newest claimant has the group, and nobody
    but a
                query that starts may take it; sinks are opened by whoever still runs, with other configs

In each of them the coordinator's process has the real service in it (``service_process.py``).
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Faults:
    """``*_ms``: how often on average, 0 for never."""

    stalls_ms: int = 0
    slow_appends_ms: int = 10_000
    """How long an append may take that is answered late."""
    configs: bool = False
    topics_ms: int = 0
    hosts: int = 1

    @property
    def real_service(self) -> bool:
        return self != Faults()


NO_FAULTS = Faults()
SHORTEST_SESSION_MS = 20_000
MODE = "share.acknowledgement.mode"


def configs_of_now(chance: random.Random) -> dict[str, str]:
    """Group configs as one user has them, and the next one may not."""
    session_ms = chance.choice((SHORTEST_SESSION_MS, 30_000, 45_000))
    return {
        MODE: chance.choice(("implicit", "explicit")),
        "share.delivery.count.limit": chance.choice(("3", "5", "8")),
        "errors.deadletterqueue.topic.name": chance.choice(("", "dlq")),
        "share.isolation.level": chance.choice(("read_committed", "read_uncommitted")),
        "share.session.timeout.ms": str(session_ms),
        "share.heartbeat.interval.ms": str(session_ms // 3),
        "share.partition.max.record.locks": chance.choice(("100", "2000")),
    }
