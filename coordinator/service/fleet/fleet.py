"""The fleet: several coordinators share the partitions of the state topic by Kafka's own group protocol.

Each joins one consumer group on the topic, reads nothing, and serves the share groups of the partitions that it is
assigned. There is no election or lease of our own beside Kafka's. Rules: a partition is given up only after ``on_lost``
has returned, so Kafka gives it to nobody before; a process that lost touch with the group for its session timeout is
not current, even if it can't know of it yet.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from coordinator.protocol.errors import CoordinatorNotAvailable, NotCoordinator
from coordinator.protocol.librdkafka import new_client
from coordinator.service.fleet.membership_lease import LeaseCheck, MembershipLease, MembershipStatus
from coordinator.service.fleet.partition_owners import Owners, client_id_of

Partitions = frozenset[int]

PROOF_TIMEOUT_S = 5.0
HEARTBEATS_PER_SESSION = 10
PROOFS_PER_SESSION = 5
MAX_HEARTBEAT_INTERVAL_MS = 1_000
"""A member hears of a rebalance with its next heartbeat."""
MIN_REBALANCE_TIMEOUT_MS = 30_000
"""How long ``on_lost`` may take before Kafka's group goes on without this process."""
LEAVE_TIMEOUT_S = 5.0
TOPIC_REFRESH_MS = 5_000
"""A state topic that was deleted and made anew is found so soon: else its partitions are nobody's for minutes."""
POLL_S = 0.02
"""A proof begins so much later at most."""
POLL_AGAIN_S = 1.0
RELEASE_TIMEOUT_S = 60.0
"""For ``on_lost`` at the end."""

# The group does not know the member that asked: it was taken for dead. ILLEGAL_GENERATION is not among them: a member
# that lives gets it as well, between the group's new generation and the answer that tells it.
_NOT_MEMBER = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError._ASSIGNMENT_LOST,
        KafkaError._FENCED,
    }
)
# Kafka's answer to a commit from a member of the newest generation that has not got its assignment yet.
_REBALANCING = frozenset({KafkaError.REBALANCE_IN_PROGRESS})

_log = logging.getLogger(__name__)


class Fleet:
    """This process's part in the fleet. Thread-safe.

    ``advertised`` is the host:port that other processes send clients to. ``on_gained`` and ``on_lost`` are called by
    one thread, after the partitions were added to ``owned`` and after they were taken out of it; Kafka waits for
    ``on_lost``, which has to return within the rebalance timeout (30 s, or the session timeout if that is longer).
    ``kafka_config`` is librdkafka's (security, addresses); what makes the group is set here. The state topic exists.
    While ``on_lost`` runs nothing is proven: ``verify`` waits, and the lease of what is kept runs on.
    Raises InvalidKafkaConfig.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        kafka_config: Mapping[str, str],
        *,
        advertised: str,
        on_lost: Callable[[Partitions], None],
        on_gained: Callable[[Partitions], None] = lambda _: None,
        state_topic: str = "share-group-state",
        group_id: str = "sharegroup-coordinators",
        session_timeout_ms: int = 10_000,
    ) -> None:
        self.advertised = advertised
        self._topic = state_topic
        self._group_id = group_id
        self._on_gained = on_gained
        self._on_lost = on_lost
        self._owned: Partitions = frozenset()
        self._error = ""
        self._asked_as: str | None = None  # the member id with which the last proof was asked for
        self._closing, self._released = threading.Event(), threading.Event()
        self._proofs = MembershipLease(
            lease_ms=session_timeout_ms, interval_ms=session_timeout_ms // PROOFS_PER_SESSION
        )
        common = {"log_level": "0", **kafka_config, "bootstrap.servers": bootstrap_servers}
        self._owners = Owners({**common, "client.id": "sharegroup"}, group_id, state_topic, PROOF_TIMEOUT_S)
        config = _consumer_config(common, group_id, client_id_of(advertised), session_timeout_ms)
        # Only the polling thread may use it: another thread's call waits until polling leaves it a gap.
        self._consumer = new_client(Consumer, {**config, "on_commit": self._answered}, logger=_log)
        self._consumer.subscribe(
            [state_topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._membership_lost
        )
        self._thread = threading.Thread(target=self._run, name="sharegroup-fleet", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<Fleet {self._group_id} {self.advertised} owned={sorted(self._owned)} current={self.is_current()}>"

    @property
    def owned(self) -> Partitions:
        """The state partitions that Kafka has assigned to this process, as far as it knows."""
        return self._owned

    def is_current(self) -> bool:
        """Whether Kafka's group confirmed this process's membership within the session timeout, so that nobody else
        can own what it owns. False at once in a process that was stopped for longer. Asks nobody. Kept up while
        something is owned; a moment after the first partition was gained it may still be False."""
        return self._proofs.is_current()

    def verify(self, partition: int) -> None:
        """Returns if this process owns the partition and Kafka's group says *now* that it is a member; the question
        begins after the call. NotCoordinator if not; CoordinatorNotAvailable if there is no answer within 5 s."""
        if partition not in self._owned:
            raise self._not_coordinator(partition)
        proof = self._proofs.fresh(PROOF_TIMEOUT_S)
        if proof.standing is MembershipStatus.UNKNOWN:
            raise CoordinatorNotAvailable(group_id=f"(any of state partition {partition})", reason=proof.reason)
        if not proof.is_member or partition not in self._owned:
            raise self._not_coordinator(partition)

    def find(self, partition: int) -> str:
        """The advertised endpoint of the process that owns the partition, as of a second ago at most.
        CoordinatorNotAvailable while nobody does (the group is sharing its partitions out), or Kafka does not say."""
        if partition in self._owned and self.is_current():
            return self.advertised
        return self._owners.find(partition)

    def close(self) -> None:
        """Give everything up (``on_lost`` is called) and leave the group, so that others take over without waiting for
        the session timeout."""
        self._closing.set()
        self._proofs.end()
        self._released.wait(RELEASE_TIMEOUT_S)
        self._thread.join(LEAVE_TIMEOUT_S)
        if self._thread.is_alive():
            _log.warning("fleet: leaving Kafka's group takes too long; it ends with the session timeout")

    # --- the thread that polls

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._poll()
            except Exception:  # noqa: BLE001 - a thread that ends would leave its partitions to nobody
                _log.exception("fleet: polling failed")
                self._closing.wait(POLL_AGAIN_S)
        self._take(self._owned, "given up: this process is leaving")
        self._released.set()
        self._consumer.close()
        self._proofs.void()

    def _poll(self) -> None:
        self._attempt()
        message = self._consumer.poll(POLL_S)
        error = None if message is None else message.error()
        if error is not None:
            self._failed(error)

    def _assigned(self, consumer: Consumer, assigned: list[TopicPartition]) -> None:
        # With an offset, so that no committed one is asked for.
        at_end = [TopicPartition(each.topic, each.partition, OFFSET_END) for each in assigned]
        consumer.incremental_assign(at_end)
        consumer.pause(at_end)
        gained = frozenset(each.partition for each in assigned)
        if not gained:
            return
        self._error = ""
        self._owned |= gained
        self._proofs.keep(True)
        _log.info("fleet: gained state partitions %s", sorted(gained))
        self._tell(self._on_gained, gained)

    def _revoked(self, consumer: Consumer, revoked: list[TopicPartition]) -> None:
        self._take(frozenset(each.partition for each in revoked), "handed over")
        consumer.incremental_unassign(revoked)

    def _membership_lost(self, consumer: Consumer, lost: list[TopicPartition]) -> None:
        self._proofs.void()
        self._take(frozenset(each.partition for each in lost), "lost: the group went on without this process")
        consumer.incremental_unassign(lost)

    def _take(self, partitions: Partitions, why: str) -> None:
        taken = self._owned & partitions
        if not taken:
            return
        self._owned -= taken
        if not self._owned:
            self._proofs.keep(False)
        _log.info("fleet: state partitions %s are %s", sorted(taken), why)
        self._tell(self._on_lost, taken)

    def _tell(self, callback: Callable[[Partitions], None], partitions: Partitions) -> None:
        try:
            callback(partitions)
        except Exception:  # noqa: BLE001 - the group goes on, whatever the owner does wrong
            _log.exception("fleet: %s failed for state partitions %s", callback, sorted(partitions))

    def _failed(self, error: KafkaError) -> None:
        """Kafka's client tries again by itself; what is wrong is said once."""
        if error.name() != self._error:
            _log.warning("fleet: Kafka's group %s: %s", self._group_id, error.str())
            self._error = error.name()

    # --- proofs

    def _attempt(self) -> None:
        """If a proof is due: commit an offset that nobody reads, which Kafka takes from a member of the group's
        generation only. The offset is the attempt's number; the answer comes to _answered."""
        number = self._proofs.begin()
        if number is None:
            return
        owned, self._asked_as = self._owned, self._consumer.memberid()
        if not owned or not self._asked_as:
            self._proofs.finish(number, LeaseCheck(MembershipStatus.NOT_MEMBER, "nothing is assigned to it"))
            return
        mark = TopicPartition(self._topic, min(owned), number)
        try:
            self._consumer.commit(offsets=[mark], asynchronous=True)
        except KafkaException as raised:
            self._proofs.finish(number, _judged(raised.args[0]))

    def _answered(self, error: KafkaError | None, committed: list[TopicPartition]) -> None:
        for each in committed:
            proof = _judged(error or each.error)
            # Of a group without members Kafka takes commits from anybody; a process that was lost has no id.
            if proof.is_member and self._consumer.memberid() != self._asked_as:
                proof = LeaseCheck(MembershipStatus.NOT_MEMBER, "its membership was lost meanwhile")
            self._proofs.finish(each.offset, proof)

    def _not_coordinator(self, partition: int) -> NotCoordinator:
        return NotCoordinator(what=f"state partition {partition} of {self._topic}")


def _judged(error: KafkaError | None) -> LeaseCheck:
    if error is None:
        return LeaseCheck(MembershipStatus.MEMBER)
    if error.code() in _REBALANCING:
        return LeaseCheck(MembershipStatus.REBALANCING, error.name())
    return LeaseCheck(
        MembershipStatus.NOT_MEMBER if error.code() in _NOT_MEMBER else MembershipStatus.UNKNOWN, error.name()
    )


def _consumer_config(
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
        "socket.timeout.ms": int(PROOF_TIMEOUT_S * 1000),
        "topic.metadata.refresh.interval.ms": TOPIC_REFRESH_MS,
        "fetch.wait.max.ms": 500,  # must be less than the socket's timeout
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "allow.auto.create.topics": False,
    }
