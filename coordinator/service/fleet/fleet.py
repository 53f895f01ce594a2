"""The fleet: several coordinators share the partitions of the state topic by Kafka's own group protocol.

Each coordinator joins one consumer group on the topic, reads no records, and serves the share groups of its assigned
partitions. There is no election beside Kafka's own. Rules: a process gives a partition up only after ``on_lost`` has
returned, so Kafka assigns it to no other process before; a process that had no contact with the group for its session
timeout is not current, even if it does not know that yet.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from coordinator.protocol.errors import CoordinatorNotAvailable, NotCoordinator
from coordinator.protocol.librdkafka import new_client
from coordinator.protocol.log_lines import ranges_of
from coordinator.service.fleet.membership_lease import LeaseCheck, MembershipLease, MembershipStatus
from coordinator.service.fleet.partition_owners import Owners, client_id_of

Partitions = frozenset[int]

CHECK_TIMEOUT_S = 5.0
"""A check of this process's membership waits this many seconds for Kafka's answer."""
HEARTBEATS_PER_SESSION = 10
"""This many heartbeats are sent in a session's time, so that some lost or late ones end no session."""
CHECKS_PER_SESSION = 5
"""The membership is checked this often within a session's time, so that one failed check ends no lease."""
MAX_HEARTBEAT_INTERVAL_MS = 1_000
"""Heartbeats are up to this many milliseconds apart: a member learns of a rebalance with its next one."""
MIN_REBALANCE_TIMEOUT_MS = 30_000
"""``on_lost`` may take this many milliseconds before Kafka's group goes on without this process."""
LEAVE_TIMEOUT_S = 5.0
"""Closing waits this many seconds for the consumer to leave Kafka's group; else the session timeout ends the
membership."""
TOPIC_REFRESH_MS = 5_000
"""A state topic that was deleted and created again is found within this many milliseconds: with librdkafka's default
nobody would own its partitions for minutes."""
POLL_S = 0.02
"""One poll takes this many seconds: a membership check starts no later."""
POLL_AGAIN_S = 1.0
"""After a failed poll the next one waits this many seconds, so that a lasting failure does not fill the log."""
RELEASE_TIMEOUT_S = 60.0
"""Closing waits this many seconds for ``on_lost``."""
RENEW_S = 60.0
"""After this many seconds without an assignment, two rebalances' time, this process joins with a new client: one that
lost its brokers for a while does not always join again (docs/trust/facts.md)."""
QUERY_INTERVAL_MS = 10_000
"""librdkafka searches for the group's coordinating broker this often, in milliseconds; by default every 10 minutes."""

# The group does not know the member: it was taken for dead. ILLEGAL_GENERATION is not among these codes: a live member
# gets it too, between the group's new generation and the answer that tells the member.
_NOT_MEMBER = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError._ASSIGNMENT_LOST,
        KafkaError._FENCED,
    }
)
# Kafka's answer to a commit of a member of the newest generation that has no assignment yet.
_REBALANCING = frozenset({KafkaError.REBALANCE_IN_PROGRESS})

_log = logging.getLogger(__name__)


class Fleet:
    """This process as a member of the fleet. Thread-safe.

    ``advertised`` is the host:port that other processes send clients to. One thread calls ``on_lost``, after the
    partitions were removed from ``owned``. Kafka waits for it; it must return within the rebalance timeout (30 s, or
    the session timeout if that is longer). While it runs no membership check is made: ``verify`` waits, and the lease
    of the kept partitions runs on. ``kafka_config`` is librdkafka's (security, addresses); the properties of the group
    are set here. The state topic must exist.

    Raises:
        InvalidKafkaConfig: librdkafka refuses the configuration.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        kafka_config: Mapping[str, str],
        *,
        advertised: str,
        on_lost: Callable[[Partitions], None],
        state_topic: str = "share-group-state",
        group_id: str = "sharegroup-coordinators",
        session_timeout_ms: int = 10_000,
    ) -> None:
        self.advertised = advertised
        self._topic = state_topic
        self._group_id = group_id
        self._on_lost = on_lost
        self._owned: Partitions = frozenset()
        self._error = ""
        self._checked_as: str | None = None  # the member id that made the last check
        self._closing, self._released = threading.Event(), threading.Event()
        self._lease = MembershipLease(lease_ms=session_timeout_ms, interval_ms=session_timeout_ms // CHECKS_PER_SESSION)
        common = {"log_level": "0", **kafka_config, "bootstrap.servers": bootstrap_servers}
        self._owners = Owners({**common, "client.id": "sharegroup"}, group_id, state_topic, CHECK_TIMEOUT_S)
        self._config = _member_config(common, group_id, client_id_of(advertised), session_timeout_ms)
        self._unassigned_s: float | None = time.monotonic()  # None: the newest assignment holds
        # Only the polling thread may use it: another thread's call waits until polling leaves it a gap.
        self._consumer = self._joining()
        self._thread = threading.Thread(target=self._run, name="sharegroup-fleet", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<Fleet {self._group_id} {self.advertised} owned={sorted(self._owned)} current={self.is_current()}>"

    @property
    def owned(self) -> Partitions:
        """The state partitions that Kafka has assigned to this process, as far as this process knows."""
        return self._owned

    @property
    def is_leaving(self) -> bool:
        """Whether this process gives all its partitions up to leave the group."""
        return self._closing.is_set()

    def is_current(self) -> bool:
        """Whether Kafka's group confirmed this process's membership within the session timeout, so that no other
        process can own its partitions. False at once in a process that was stopped for longer. Makes no request. The
        lease is renewed while this process owns a partition; just after it gained the first one this may still be
        False."""
        return self._lease.is_current()

    def verify(self, partition: int) -> None:
        """Returns if this process owns the partition and Kafka's group confirms *now* that it is a member, by a check
        that begins after this call.

        Raises:
            NotCoordinator: the partition is not this process's.
            CoordinatorNotAvailable: no answer came within CHECK_TIMEOUT_S.
        """
        if partition not in self._owned:
            raise self._not_coordinator(partition)
        check = self._lease.fresh(CHECK_TIMEOUT_S)
        if check.status is MembershipStatus.UNKNOWN:
            raise CoordinatorNotAvailable(group_id=f"(any of state partition {partition})", reason=check.reason)
        if not check.is_member or partition not in self._owned:
            raise self._not_coordinator(partition)

    def find(self, partition: int) -> str:
        """The advertised endpoint of the partition's owner, up to a second old."""
        if partition in self._owned and self.is_current():
            return self.advertised
        return self._owners.find(partition)

    def close(self) -> None:
        """Gives all partitions up (``on_lost`` is called) and leaves the group, so that other processes take over
        without waiting for the session timeout."""
        self._closing.set()
        self._lease.end()
        self._released.wait(RELEASE_TIMEOUT_S)
        self._thread.join(LEAVE_TIMEOUT_S)
        if self._thread.is_alive():
            _log.warning("fleet: could not leave Kafka's group in time; the membership ends with the session timeout")

    # --- the thread that polls

    def _joining(self) -> Any:
        """A client that joins the group."""
        consumer = new_client(Consumer, {**self._config, "on_commit": self._on_commit}, logger=_log)
        consumer.subscribe(
            [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._membership_lost
        )
        return consumer

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._poll()
                self._renew()
            except Exception:  # noqa: BLE001 - if this thread ended, nobody would own its partitions
                _log.exception("fleet: polling failed")
                self._closing.wait(POLL_AGAIN_S)
        self._give_up(self._owned, "given up: this process is leaving")
        self._released.set()
        self._consumer.close()
        self._lease.void()

    def _poll(self) -> None:
        self._check_membership()
        message = self._consumer.poll(POLL_S)
        error = None if message is None else message.error()
        if error is not None:
            self._log_error(error)

    def _renew(self) -> None:
        """Joins with a new client where the one before has had no assignment for RENEW_S, although Kafka answers."""
        if self._owned or self._unassigned_s is None or time.monotonic() - self._unassigned_s < RENEW_S:
            return
        self._unassigned_s = time.monotonic()
        if not self._owners.are_known():
            return
        _log.warning("fleet: nothing was assigned for %.0f s: joining with a new client", RENEW_S)
        stuck, self._consumer = self._consumer, self._joining()
        # A client that is stuck may not come to its end.
        threading.Thread(target=stuck.close, name="sharegroup-stuck-client", daemon=True).start()

    def _assigned(self, consumer: Consumer, assigned: list[TopicPartition]) -> None:
        if consumer is not self._consumer:  # as it closes, the client before has nothing to say
            return
        self._unassigned_s = None
        # With an offset, so that librdkafka does not ask for a committed one.
        at_end = [TopicPartition(p.topic, p.partition, OFFSET_END) for p in assigned]
        consumer.incremental_assign(at_end)
        consumer.pause(at_end)
        gained = frozenset(p.partition for p in assigned)
        if not gained:
            return
        self._error = ""
        self._owned |= gained
        self._lease.keep(True)
        _log.info("fleet: gained state partitions %s", ranges_of(gained))

    def _revoked(self, consumer: Consumer, revoked: list[TopicPartition]) -> None:
        if consumer is not self._consumer:
            return
        self._unassigned_s = time.monotonic()
        self._give_up(frozenset(p.partition for p in revoked), "handed over")
        consumer.incremental_unassign(revoked)

    def _membership_lost(self, consumer: Consumer, lost: list[TopicPartition]) -> None:
        if consumer is not self._consumer:
            return
        self._unassigned_s = time.monotonic()
        self._lease.void()
        self._give_up(frozenset(p.partition for p in lost), "lost: the group went on without this process")
        consumer.incremental_unassign(lost)

    def _give_up(self, partitions: Partitions, why: str) -> None:
        given_up = self._owned & partitions
        if not given_up:
            return
        self._owned -= given_up
        if not self._owned:
            self._lease.keep(False)
        _log.info("fleet: state partitions %s are %s", ranges_of(given_up), why)
        try:
            self._on_lost(given_up)
        except Exception:  # noqa: BLE001 - an error in the callback must not end the membership
            _log.exception("fleet: %s failed for state partitions %s", self._on_lost, ranges_of(given_up))

    def _log_error(self, error: KafkaError) -> None:
        """Logs an error of the group once; librdkafka retries by itself."""
        if error.name() != self._error:
            _log.warning("fleet: Kafka's group %s: %s", self._group_id, error.str())
            self._error = error.name()

    # --- membership checks

    def _check_membership(self) -> None:
        """Starts a membership check if one is due: commits an offset that nobody reads, which Kafka accepts only from a
        member of the group's current generation. The offset is the check's number; _on_commit gets the answer."""
        number = self._lease.begin()
        if number is None:
            return
        owned, self._checked_as = self._owned, self._consumer.memberid()
        if not owned or not self._checked_as:
            self._lease.finish(number, LeaseCheck(MembershipStatus.NOT_MEMBER, "nothing is assigned to it"))
            return
        mark = TopicPartition(self._topic, min(owned), number)
        try:
            self._consumer.commit(offsets=[mark], asynchronous=True)
        except KafkaException as raised:
            self._lease.finish(number, _lease_check(raised.args[0]))

    def _on_commit(self, error: KafkaError | None, committed: list[TopicPartition]) -> None:
        for mark in committed:
            check = _lease_check(error or mark.error)
            # For a group without members Kafka accepts commits from anybody; a process that lost its membership has no
            # id.
            if check.is_member and self._consumer.memberid() != self._checked_as:
                check = LeaseCheck(MembershipStatus.NOT_MEMBER, "its membership was lost since")
            self._lease.finish(mark.offset, check)

    def _not_coordinator(self, partition: int) -> NotCoordinator:
        return NotCoordinator(what=f"state partition {partition} of {self._topic}")


def _lease_check(error: KafkaError | None) -> LeaseCheck:
    if error is None:
        return LeaseCheck(MembershipStatus.MEMBER)
    if error.code() in _REBALANCING:
        return LeaseCheck(MembershipStatus.REBALANCING, error.name())
    return LeaseCheck(
        MembershipStatus.NOT_MEMBER if error.code() in _NOT_MEMBER else MembershipStatus.UNKNOWN, error.name()
    )


def _member_config(
    common: Mapping[str, str], group_id: str, client_id: str, session_timeout_ms: int
) -> dict[str, str | int | bool]:
    given = {key: value for key, value in common.items() if not key.startswith("group.")}
    return {
        "reconnect.backoff.max.ms": 1_000,  # a broker that comes back is found within the session
        **given,
        "group.id": group_id,
        "client.id": client_id,
        "group.protocol": "classic",
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": session_timeout_ms,
        "heartbeat.interval.ms": min(MAX_HEARTBEAT_INTERVAL_MS, session_timeout_ms // HEARTBEATS_PER_SESSION),
        "max.poll.interval.ms": max(MIN_REBALANCE_TIMEOUT_MS, session_timeout_ms),
        "socket.timeout.ms": int(CHECK_TIMEOUT_S * 1000),
        "topic.metadata.refresh.interval.ms": TOPIC_REFRESH_MS,
        "coordinator.query.interval.ms": QUERY_INTERVAL_MS,
        "fetch.wait.max.ms": 500,  # must be below socket.timeout.ms
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "allow.auto.create.topics": False,
    }
