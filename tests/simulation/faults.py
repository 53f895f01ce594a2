"""Kinds of faults that a run may have beside those of every run: each is off unless a scenario says so. Clocks that
differ are in simulated_coordinator.py; deaths, losses and stops in service_scenario.py.

    stalls      a coordinator stands still, also for several sessions: another one takes its place once somebody finds
                it silent, or none does, and it goes on; appends may take as long. All brokers stand still for up to
                three sessions, between any two steps of any process and of an append. Nothing else goes wrong, so
                that no query that lives may lose its session
    configs     whoever starts has other group configs than the one before
    opened-sinks    sinks are opened, with other group configs, between any two steps of any process; some queries set
                no acknowledgement mode of their own
    topics      topics of the subscribed pattern are created, get partitions, are deleted, and created anew, also
                between any two steps of any process
    removals    Kafka removes the oldest records of a log between any two steps of any process: before a record is
                acquired, between its plan and its start, while its batch is read, before a replay and a completion
    hosts       two or three hosts, each with a coordinator of its own, which ask each other by records that are lost,
                late, doubled and reordered; coordinators are cut off from the others' records, stand still, and leave
                in order: a living owner stays the owner, and a request is carried out once, in its time
    members     checkpoints are deleted, or put away and used again; all processes rest or stand still, for longer than
                share.member.retention.ms, and the group keeps few members: those that never return are forgotten, and
                who is forgotten and returns is refused by name
    signals     ShareConsumers say that they work on records (KAFKA-20458), fall silent, leave in the middle of their
                work and go on with it in their next process; their locks are shorter or longer than a session
    outages     the service behind all sinks is away for an hour, and they release all that they read: no record uses up
                its tries
    administration  an administrator resets start offsets, decides records by hand, releases members, and sets configs

In each of them the coordinator's process has the real service in it (``service_process.py``).
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from unittest import mock

from coordinator.core import share_group


@dataclass(frozen=True, kw_only=True)
class Faults:
    """``*_ms``: how often on average, 0 for never."""

    stalls_ms: int = 0
    slow_appends_ms: int = 10_000
    """An append that is answered late takes up to this many ms."""
    brokers_stop: float = 0.0
    """The probability that all brokers stand still, before a step of any process or of an append."""
    configs: bool = False
    sinks_at_steps: float = 0.0
    """The probability that a sink is opened with other group configs, before a step of any process."""
    signals: bool = False
    outage_ms: int = 0
    """From the beginning of the run, the service behind the sinks is down for this many ms."""
    administration_ms: int = 0
    """The mean time between two actions of an administrator, in ms; 0: none."""
    pauses: bool = False
    """Among the configs that the administrator sets are paused topics and the limit of records in flight."""
    topics_ms: int = 0
    topics_at_steps: float = 0.0
    """The probability that topics change, or get partitions, before a step of any process."""
    removed_at_steps: float = 0.0
    """The probability that Kafka removes records of a log, before a step of any process."""
    hosts: int = 1
    cuts_ms: int = 0
    """The mean time between two times at which a host is cut off from the others, in ms."""
    slow_loads_ms: int = 0
    """Each step of a load takes up to this many ms."""
    records_lost: float = 0.0
    records_doubled: float = 0.0
    records_late: float = 0.0
    """The probabilities of these for each record between hosts."""
    rests: int = 0
    """The number of times that all members rest."""
    checkpoints_change: float = 0.0
    """The probability that a query that is started again has another checkpoint: a new one, or an earlier one."""

    @property
    def real_service(self) -> bool:
        return self != Faults()


NO_FAULTS = Faults()
SHORTEST_SESSION_MS = 20_000
RETENTION_MS = 3_600_000
"""share.member.retention.ms where members are forgotten: the least value that it may have."""
MEMBERS_KEPT = 1
"""Where members are forgotten, a group keeps this number of members without a session for ever."""
LOGS_AT_MOST = 8
"""Topics that change get no partition beyond this number of logs."""
MODE = "share.acknowledgement.mode"


@contextlib.contextmanager
def few_members_kept() -> Iterator[None]:
    """A group is large when it has more than MEMBERS_KEPT members."""
    with mock.patch.object(share_group, "MEMBERS_KEPT", MEMBERS_KEPT):
        yield


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
