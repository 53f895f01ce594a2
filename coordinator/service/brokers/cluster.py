"""The Kafka cluster as the coordinator uses it: topics with ids and partitions, and offsets. All calls block.

Rule: every failure raises a named error, with the addresses that were tried, and without secrets."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented there
    AclOperation,
    AdminClient,
    NewTopic,
    OffsetSpec,
)
from tenacity import RetryCallState, wait_incrementing

from coordinator.dead_letters.source_records import GONE_OFFSETS, AbsenceReason, Absent, SourceRecordReader
from coordinator.kafka.librdkafka import (
    BY_OFFSET,
    NO_ANSWER,
    OLD_LEADER,
    READS_ON,
    UNKNOWN_TOPIC,
    Complaints,
    new_client,
)
from coordinator.kafka.retries import retry_until
from coordinator.protocol.allowed_topics import ALL_TOPICS, AllowedTopics
from coordinator.protocol.errors import BrokerNotReachable, BrokerRefused, BrokerSecurityFailed, ShareGroupError
from coordinator.protocol.repeated_lines import Outage
from coordinator.protocol.values import TopicAndPartition
from coordinator.service.brokers.leaders import FOR_ALL_S, ask_leaders, by_leader, isolation_level

_log = logging.getLogger(__name__)

T = TypeVar("T")

BROKERS_TIME = {"message.timestamp.type": "LogAppendTime"}
"""The brokers refuse a record whose producer's clock is an hour ahead, unless the topic has their own time."""
EARLIEST = -2
"""The log's first offset, as Kafka's ListOffsets names it, in place of a timestamp."""
LATEST = -1
"""The log's end, as Kafka's ListOffsets names it: the high watermark, or the last stable offset."""
SILENT_MS = 6_000
"""librdkafka gives up a connection after this many milliseconds without an answer: well below its own 60 s, so that a
request reaches another broker while its caller still waits."""
AFTER_ALL = -1
"""The broker's answer for a timestamp later than every record's."""

FIRST_ATTEMPT_S = 3.0
"""The first attempt waits this many seconds, and each next one twice as long."""
FIRST_RETRY_PAUSE_S = 0.02
MAX_RETRY_PAUSE_S = 0.5
"""Two attempts are up to this many seconds apart: a broker that is back is found at once, and is not flooded."""
RENEW_S = 30.0
"""A client without an answer for this many seconds is replaced by a new one, which in turn has the same time: after a
network cut a client was seen to stay deaf."""
READ_BYTES = 1 << 16
"""One fetch of records that are read only to see whether they exist has up to this many bytes."""
READ_TIMEOUT_S = 3.0
"""A read that only finds out whether records exist fails after this many seconds, because a request may wait for it."""
NO_CONTROLLER = -1
"""The controller id in a cluster's answer while it elects a controller."""
LEAST_LOOKS = 3
"""The metadata is read this many times before a cluster counts as one without topic ids: an answer may be old."""

_END = frozenset({KafkaError._PARTITION_EOF})
_ABSENT = UNKNOWN_TOPIC | {KafkaError._NOENT}  # librdkafka answers _NOENT by itself, from its last listing
_PASSING = (
    OLD_LEADER
    | READS_ON
    | frozenset(
        {
            KafkaError._WAIT_COORD,
            KafkaError.REPLICA_NOT_AVAILABLE,
            KafkaError.REQUEST_TIMED_OUT,
            KafkaError.OFFSET_NOT_AVAILABLE,
            KafkaError.KAFKA_STORAGE_ERROR,
        }
    )
)


class TopicInfo(NamedTuple):
    """A topic as the cluster has it now. ``topic_id`` is empty on a cluster without topic ids."""

    name: str
    topic_id: str
    partitions: int


class Seen(NamedTuple):
    """The ``offsets`` from ``first`` to before ``end`` at which a log has records: all of them, or the first ones.
    Offsets below ``first`` were removed; offsets from ``end`` on are unknown."""

    offsets: list[int]
    first: int
    end: int


class KafkaCluster:
    """A cluster, through librdkafka's admin client. ``allowed``: the topics that the coordinator's principal reads and
    writes for groups. Tests replace it by a fake."""

    def __init__(
        self,
        bootstrap_servers: str,
        kafka_config: Mapping[str, str],
        timeout_ms: int,
        allowed: AllowedTopics = ALL_TOPICS,
    ) -> None:
        self.addresses = bootstrap_servers
        self.allowed = allowed
        self._timeout_ms = timeout_ms
        self._gives_ids: bool | None = None
        # log_level: librdkafka would write to stderr; what goes wrong is raised here.
        # socket.timeout.ms: after this time another broker is asked instead of a hanging one.
        config: dict[str, Any] = {
            "log_level": "0",
            "client.id": "sharegroup",
            "socket.timeout.ms": str(min(SILENT_MS, timeout_ms)),
            **kafka_config,
        }
        config["bootstrap.servers"] = bootstrap_servers
        self._config = config
        self._complaints = Complaints()
        self._outage = Outage(_log, f"Kafka brokers of {bootstrap_servers}", ", queries ask again")
        self._new_admin = partial(new_client, AdminClient, {**config, "error_cb": self._complaints})
        self._admin, self._made_s = self._new_admin(), time.monotonic()

    def __repr__(self) -> str:
        return f"<KafkaCluster {self.addresses}>"

    @property
    def away_s(self) -> float:
        """Seconds since the brokers stopped answering, or refused the client; 0 while they answer."""
        return self._outage.lasts_s

    def cluster_id(self) -> str:
        found = self._retried("tell its id", lambda admin, left_s: admin.list_topics(timeout=left_s))
        return str(found.cluster_id or self.addresses)

    def gives_topic_ids(self) -> bool:
        """Whether the cluster has topic ids. A cluster has none if its controller is none of its brokers (librdkafka's
        mock cluster), or if it describes a topic without an id. The metadata is read more than once, because a real
        cluster may be electing a controller. The answer is cached, and each group stores it at its creation."""
        if self._gives_ids is None:
            pause = wait_incrementing(0, 0.1, MAX_RETRY_PAUSE_S)
            looks = retry_until(self._timeout_ms / 1000, pause, _may_elect, least=LEAST_LOOKS)
            found = looks(self._retried, "list topics", lambda admin, left_s: admin.list_topics(timeout=left_s))
            gives_ids = found.controller_id in found.brokers
            if gives_ids:  # brokers of other makers may have a controller and no topic ids: describe a topic
                known = sorted(name for name, topic in found.topics.items() if topic.error is None)[:1]
                if not known:
                    return True
                with contextlib.suppress(BrokerRefused):
                    described = self._retried("describe topics", lambda admin, left_s: _described(admin, known, left_s))
                    gives_ids = all(info.topic_id for info in described.values())
            self._gives_ids = gives_ids
        return self._gives_ids

    def topic_names(self) -> list[str]:
        metadata = self._retried("list topics", lambda admin, left_s: admin.list_topics(timeout=left_s))
        return sorted(metadata.topics)

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Returns those of the topics that exist."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        if self.gives_topic_ids():
            return self._retried("describe topics", lambda admin, left_s: _described(admin, wanted, left_s))
        metadata = self._retried("list topics", lambda admin, left_s: admin.list_topics(timeout=left_s))
        found = [metadata.topics[name] for name in wanted if name in metadata.topics]
        return {str(t.topic): TopicInfo(str(t.topic), "", len(t.partitions)) for t in found if t.partitions}

    def offsets(
        self, partitions: Iterable[TopicAndPartition], at: int, *, read_committed: bool = False, timeout_s: float = inf
    ) -> dict[TopicAndPartition, int]:
        """Offsets of those partitions that exist: EARLIEST, LATEST (the high watermark or last stable offset), or for a
        timestamp in ms the first record at or after it (the end if there is none). ``timeout_s``: retry for up to this
        many seconds."""
        if not (wanted := list(partitions)):
            return {}
        level = isolation_level(read_committed)
        found = self._retried(
            "list offsets", lambda admin, left_s: _listed(admin, wanted, at, level, left_s), timeout_s
        )
        if after_all := [where for where, offset in found.items() if offset == AFTER_ALL]:
            found.update(self.offsets(after_all, LATEST, read_committed=read_committed))
        return found

    def answered_offsets(
        self, partitions: Iterable[TopicAndPartition], at: int, *, read_committed: bool = False
    ) -> tuple[dict[TopicAndPartition, int], set[TopicAndPartition]]:
        """As ``offsets``, with the partitions whose broker does not answer while another broker does."""
        wanted = list(partitions)
        try:
            return self.offsets(wanted, at, read_committed=read_committed, timeout_s=FOR_ALL_S), set()
        except BrokerNotReachable:
            metadata = self._retried("list topics", lambda admin, left_s: admin.list_topics(timeout=left_s))
        ask = partial(_asked, at=at, level=isolation_level(read_committed), left_s=FIRST_ATTEMPT_S)
        found, away = self._retried(
            "list offsets", lambda admin, _: ask_leaders(by_leader(metadata, wanted), partial(ask, admin), _PASSING)
        )
        return (found, away) if found else (self.offsets(wanted, at, read_committed=read_committed), set())

    def existing(self, where: TopicAndPartition, first: int, last: int, *, most: int, read_committed: bool) -> Seen:
        """The first ``most`` offsets in ``first..last`` at which the log holds a record. The log is read, because
        nothing else shows compaction, transaction markers and aborted batches. Raises BrokerNotReachable or
        BrokerRefused if the log can't be read."""
        deadline = time.monotonic() + min(self._timeout_ms / 1000, READ_TIMEOUT_S)
        reader = new_client(
            Consumer,
            {
                **self._config,
                **BY_OFFSET,
                "isolation.level": "read_committed" if read_committed else "read_uncommitted",
                "fetch.message.max.bytes": READ_BYTES,
                "queued.max.messages.kbytes": READ_BYTES // 1024,
            },
        )
        try:
            return self._seen(reader, where, first, last, most, deadline)
        finally:
            reader.close()

    def absent(
        self, where: TopicAndPartition, offsets: Sequence[int], *, read_committed: bool, until_s: float
    ) -> tuple[list[int], int]:
        """Returns those of the ascending ``offsets`` at which the log has no record although it reaches beyond them,
        and how many of ``offsets``, from the first on, were checked. All are checked, or at least one if the monotonic
        clock reaches ``until_s`` first."""
        originals = SourceRecordReader(self.addresses, self._config, read_committed=read_committed)
        found, answered = [], 0
        try:
            for answer in originals.read(*where, offsets):
                answered += 1
                if isinstance(answer, Absent) and answer.why == AbsenceReason.NEVER:
                    found.append(answer.offset)
                if time.monotonic() >= until_s:
                    break
            return found, answered
        finally:
            originals.close()

    def may_write(self, topic: str) -> bool:
        """Whether the principal may write to a topic that exists; True if the cluster does not say."""
        return not self.lacking(topic, "WRITE")

    def lacking(self, topic: str, *operations: str) -> list[str]:
        """The operations, by their names in ACLs, that the principal may not do with a topic, if the cluster says."""
        if not self.gives_topic_ids():
            return []
        asked = TopicCollection([topic])
        answer = self._retried(
            "describe topics",
            lambda admin, left_s: _unless_absent(
                admin.describe_topics(asked, include_authorized_operations=True, request_timeout=left_s)[topic]
            ),
        )
        allowed = None if answer is None else answer.authorized_operations
        if not allowed:  # the cluster does not say: whoever sees a topic may describe it
            return []
        return [name for name in operations if AclOperation[name] not in allowed]

    def create_topic(self, name: str, *, only_ask: bool = False) -> None:
        """Create the topic, unless it exists, with the cluster's defaults but for BROKERS_TIME. ``only_ask``: only ask
        whether it may be created. Raises BrokerRefused if the cluster does not create it."""
        if not self.gives_topic_ids():  # such a cluster creates a topic when the topic is listed, not by request
            if not only_ask:
                self._retried("create a topic", lambda admin, left_s: admin.list_topics(name, timeout=left_s))
            return
        new = NewTopic(name, num_partitions=-1, replication_factor=-1, config=BROKERS_TIME)
        self._retried("create a topic", lambda admin, left_s: _create(admin, new, left_s, only_ask=only_ask))

    def _seen(
        self, reader: Consumer, where: TopicAndPartition, first: int, last: int, most: int, deadline: float
    ) -> Seen:
        reader.assign([TopicPartition(*where, first)])
        found: list[int] = []
        while len(found) < most:
            message = self._read(reader, deadline)
            error, offset = message.error(), message.offset()
            if error is None and offset > last:
                return Seen(found, first, last + 1)
            if error is None:
                found.append(offset)
            elif error.code() == KafkaError._PARTITION_EOF:
                return Seen(found, first, min(offset, last + 1))
            else:
                low = self._log_start(reader, where, deadline)
                if not first < low <= last:  # every offset was removed, or the log ends before them
                    return Seen([], first, first)
                first, found = low, []
                reader.assign([TopicPartition(*where, first)])
        return Seen(found, first, found[-1] + 1)

    def _read(self, reader: Consumer, deadline: float) -> Any:
        while (left_s := deadline - time.monotonic()) > 0:
            message = reader.poll(min(left_s, 0.5))
            error = None if message is None else message.error()
            if message is not None and (error is None or error.code() in _END | GONE_OFFSETS):
                return message
            if error is not None and error.code() not in _PASSING:
                raise BrokerRefused(addresses=self.addresses, what="read records", reason=error.name())
        raise self._no_record("no record came")

    def _log_start(self, reader: Consumer, where: TopicAndPartition, deadline: float) -> int:
        left_s = max(deadline - time.monotonic(), 0.1)
        try:
            watermarks = reader.get_watermark_offsets(TopicPartition(*where), timeout=left_s)
        except KafkaException as raised:
            raise self._no_record(raised.args[0].name()) from None
        if watermarks is None:
            raise self._no_record("no offsets came")
        return int(watermarks[0])

    def _no_record(self, reason: str) -> BrokerNotReachable:
        return BrokerNotReachable(addresses=self.addresses, timeout_ms=int(READ_TIMEOUT_S * 1000), reason=reason)

    def _retried(self, what: str, attempt: Callable[[AdminClient, float], T], timeout_s: float = inf) -> T:
        """Returns the result of ``attempt``, which is called with a client and the seconds that it may take. After a
        passing error it is called again, until the broker timeout or ``timeout_s`` is over. Another thread may replace
        the client meanwhile; an attempt keeps the client that it was called with, so that its answer comes.

        Raises:
            BrokerRefused: an error that a retry does not correct.
            BrokerNotReachable, BrokerSecurityFailed: no answer came in time, or the brokers refuse the client."""
        began_s, attempt_s, pause_s = time.monotonic(), FIRST_ATTEMPT_S, FIRST_RETRY_PAUSE_S
        deadline = began_s + min(timeout_s, self._timeout_ms / 1000)

        def left_s() -> float:
            return min(max(deadline - time.monotonic(), 0.1), attempt_s)

        self._admin.poll(0)
        self._complaints.refused = ""  # an earlier refusal may be over
        while True:
            admin = self._admin
            try:
                found = attempt(admin, left_s())
                break
            except KafkaException as raised:
                error = raised.args[0]
            if error.code() not in _PASSING:
                raise BrokerRefused(addresses=self.addresses, what=what, reason=error.name())
            admin.poll(0)
            away = self._away(error)
            self._outage.failed("", began_s, away)
            self._renew()
            if not away.retriable or time.monotonic() + pause_s >= deadline:
                raise away
            if error.code() in OLD_LEADER | NO_ANSWER:
                with contextlib.suppress(KafkaException):
                    admin.list_topics(timeout=left_s())
            time.sleep(pause_s)
            attempt_s, pause_s = 2 * attempt_s, min(2 * pause_s, MAX_RETRY_PAUSE_S)
        self._outage.answered("")
        self._complaints.forget()
        return found

    def _renew(self) -> None:
        """Make a new client if the present one gets no answer. Whoever waits for the old one goes on waiting."""
        if min(self._outage.lasts_s, time.monotonic() - self._made_s) > RENEW_S:
            self._admin, self._made_s = self._new_admin(), time.monotonic()

    def _away(self, error: KafkaError) -> ShareGroupError:
        if self._complaints.refused:
            return BrokerSecurityFailed(addresses=self.addresses, reason=self._complaints.refused)
        reason = self._complaints.last or error.name()
        return BrokerNotReachable(addresses=self.addresses, timeout_ms=self._timeout_ms, reason=reason)


def _may_elect(state: RetryCallState) -> bool:
    """Whether the cluster may have a controller at the next request: it elects one, or this request is an early one."""
    if state.outcome is None or state.outcome.failed:
        return False
    found = state.outcome.result()
    is_electing = found.controller_id == NO_CONTROLLER or state.attempt_number < LEAST_LOOKS
    return is_electing and found.controller_id not in found.brokers


def _kafka_s(topic_id: Any) -> str:
    """The topic id as Kafka's own tools write it, with - and _ where librdkafka has + and /; empty if it is none."""
    text = str(topic_id).translate(str.maketrans("+/", "-_"))
    return "" if topic_id is None or not text.strip("A") else text


def _answered(offset: int, at: int) -> int:
    """Returns the offset in a broker's answer. Raises a timeout if there is none: librdkafka says -1001 then."""
    if offset < 0 and not (offset == AFTER_ALL and at >= 0):
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    return offset


def _spec(at: int) -> Any:
    specs: Any = OffsetSpec
    if at == EARLIEST:
        return specs.earliest()
    return specs.latest() if at == LATEST else specs.for_timestamp(at)


def _create(admin: AdminClient, new: Any, left_s: float, *, only_ask: bool) -> None:
    asked = admin.create_topics([new], operation_timeout=left_s, request_timeout=left_s, validate_only=only_ask)
    try:
        asked[new.topic].result()
    except KafkaException as raised:
        if raised.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _described(admin: AdminClient, names: list[str], left_s: float) -> dict[str, TopicInfo]:
    answers = admin.describe_topics(TopicCollection(names), request_timeout=left_s)
    found = {}
    for name, answer in answers.items():
        described = _unless_absent(answer)
        if described is not None:
            found[name] = TopicInfo(name, _kafka_s(described.topic_id), len(described.partitions))
    return found


def _listed(
    admin: AdminClient, wanted: list[TopicAndPartition], at: int, level: Any, left_s: float
) -> dict[TopicAndPartition, int]:
    found = _asked(admin, wanted, at, level, left_s)
    if absent := [where for where in wanted if where not in found]:
        # librdkafka caches that a topic does not exist for as long as it is asked for it; a listing refreshes that.
        admin.list_topics(timeout=left_s)
        found.update(_asked(admin, absent, at, level, left_s))
    return found


def _asked(
    admin: AdminClient, wanted: list[TopicAndPartition], at: int, level: Any, left_s: float
) -> dict[TopicAndPartition, int]:
    request = {TopicPartition(topic, partition): _spec(at) for topic, partition in wanted}
    answers = admin.list_offsets(request, isolation_level=level, request_timeout=left_s)
    found = {}
    for asked, answer in answers.items():
        result = _unless_absent(answer)
        if result is not None:
            found[asked.topic, asked.partition] = _answered(int(result.offset), at)
    return found


def _unless_absent(answer: Any) -> Any:
    """Returns the answer's result; None for a topic or partition that does not exist."""
    try:
        return answer.result()
    except KafkaException as error:
        if error.args[0].code() in _ABSENT:
            return None
        raise
