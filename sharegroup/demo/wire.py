"""The requests and answers of Kafka's protocol that the quickstart's broker changes. Pure.

Rule: clients are told of no newer version than NEWEST has. In those versions no field has a tag, so that each is read
with `struct`, and no request needs the topic ids that the embedded broker lacks."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from typing import NamedTuple

from coordinator.protocol.values import TopicAndPartition

PRODUCE, FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR, VERSIONS, CREATE_TOPICS = 0, 1, 2, 3, 10, 18, 19
INIT_PRODUCER_ID = 22
"""Kafka's numbers of the requests."""
NEWEST = {PRODUCE: 8, FETCH: 11, LIST_OFFSETS: 5, METADATA: 8, FIND_COORDINATOR: 2, INIT_PRODUCER_ID: 1}
"""Request -> its newest version here; the newest without tags, and of Fetch the newest without topic ids."""
_OLDEST = {LIST_OFFSETS: 1}
"""Version 0 of ListOffsets answers with lists of offsets."""
_OF_NEW_TOPICS = (CREATE_TOPICS, 0, 4)
_FIRST_WITH_TOPIC_IDS = 68
"""Requests from this number on (ConsumerGroupHeartbeat) name topics by id."""
_TOPIC_EXISTS, _INVALID_CONFIG = 36, 40
_NOT_ALLOWED = 53
"""Kafka's TRANSACTIONAL_ID_AUTHORIZATION_FAILED. After this error producers give up at once, while they retry after
others of Kafka's errors."""


class ListedOffset(NamedTuple):
    """The first record of a partition at or after a timestamp."""

    timestamp_ms: int
    offset: int


class TopicError(NamedTuple):
    """Kafka's number of an error, and the message."""

    code: int
    message: str


class _Fields:
    """Reads fields in turn, from ``at`` on."""

    def __init__(self, content: bytes, at: int = 0) -> None:
        self.content = content
        self.at = at

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(f">{form}", self.content, self.at)
        self.at += struct.calcsize(f">{form}")
        return int(value)

    def text(self) -> str:
        """The text; empty for null."""
        length = max(self.number("h"), 0)
        self.at += length
        return self.content[self.at - length : self.at].decode()


class Request:
    """A request, without its length: its header is read, and the rest where it is needed."""

    def __init__(self, content: bytes) -> None:
        header = _Fields(content)
        self.content = content
        self.key = header.number("h")
        self.version = header.number("h")
        self.correlation_id = header.number("i")
        header.text()  # the client's id
        self._body = header.at

    def __repr__(self) -> str:
        return f"<Request {self.key} version {self.version}>"

    @property
    def is_answered(self) -> bool:
        """False for records that a producer sends with acks=0."""
        if self.key != PRODUCE:
            return True
        fields = _Fields(self.content, self._body)
        if self.version >= 3:
            fields.text()  # the transactional id
        return fields.number("h") != 0

    @property
    def begins_transactions(self) -> bool:
        """Whether a producer asks for its id, to write in transactions. The embedded broker would serve it, and show
        the records of aborted transactions to everybody."""
        return self.key == INIT_PRODUCER_ID and bool(_Fields(self.content, self._body).text())

    def timestamps(self) -> dict[TopicAndPartition, int]:
        """Returns the partitions of a ListOffsets request whose offsets are asked for by timestamp, in ms."""
        fields = _Fields(self.content, self._body + 4)  # after the replica's id
        if self.version >= 2:
            fields.number("b")  # the isolation level
        found = {}
        for _ in range(fields.number("i")):
            topic = fields.text()
            for _ in range(fields.number("i")):
                partition = fields.number("i")
                if self.version >= 4:
                    fields.number("i")  # the leader's epoch
                if (at := fields.number("q")) >= 0:  # negative: the log's start, or its end
                    found[topic, partition] = at
        return found

    def new_topics(self) -> tuple[dict[str, list[str]], bool]:
        """The names in a CreateTopics request with the configs that each sets, and whether it is only validated."""
        fields = _Fields(self.content, self._body)
        topics: dict[str, list[str]] = {}
        for _ in range(fields.number("i")):
            configs = topics.setdefault(fields.text(), [])
            fields.at += 6  # partitions, replicas
            for _ in range(fields.number("i")):
                fields.number("i")
                for _ in range(fields.number("i")):
                    fields.number("i")
            for _ in range(fields.number("i")):
                configs.append(fields.text())
                fields.text()
        fields.number("i")  # the timeout
        return topics, self.version >= 1 and bool(fields.number("b"))


def capped_versions(answer: bytes) -> bytes:
    """The answer with the requests and the versions that are served here."""
    fields = _Fields(answer, 4)
    if fields.number("h"):  # the client asks again with an older version
        return answer
    ranges = [
        (key, max(oldest, _OLDEST.get(key, 0)), min(newest, NEWEST.get(key, newest)))
        for key, oldest, newest in [
            (fields.number("h"), fields.number("h"), fields.number("h")) for _ in range(fields.number("i"))
        ]
        if key < _FIRST_WITH_TOPIC_IDS
    ]
    body = b"".join(struct.pack(">hhh", *each) for each in [*ranges, _OF_NEW_TOPICS])
    return answer[:6] + struct.pack(">i", len(ranges) + 1) + body + answer[fields.at :]


def readdressed(request: Request, answer: bytes, host: str, port: int, cluster_id: str) -> bytes:
    """The answer to Metadata or FindCoordinator with this address and this cluster id in place of the broker's; its one
    broker is also the controller, which creates topics."""
    fields = _Fields(answer, 4)
    of_metadata = request.key == METADATA
    if request.version >= (3 if of_metadata else 1):
        fields.number("i")  # how long the client is throttled
    if of_metadata:
        fields.number("i")  # the number of brokers
    else:
        fields.number("h")  # the error
        if request.version >= 1:
            fields.text()
    broker = fields.number("i")
    before = answer[: fields.at]
    fields.text(), fields.number("i")
    address = _text(host) + struct.pack(">i", port)
    if not of_metadata or request.version < 1:
        return before + address + answer[fields.at :]
    between = fields.at
    fields.text()  # the rack
    own = answer[between : fields.at]
    if request.version >= 2:
        fields.text()  # the cluster's id
        own += _text(cluster_id)
    return before + address + own + struct.pack(">i", broker) + answer[fields.at + 4 :]


def with_offsets(request: Request, answer: bytes, found: Mapping[TopicAndPartition, ListedOffset]) -> bytes:
    """The answer to ListOffsets with these offsets. Partitions without one keep the answer that no record is so new."""
    changed = bytearray(answer)
    fields = _Fields(answer, 4)
    if request.version >= 2:
        fields.number("i")  # how long the client is throttled
    for _ in range(fields.number("i")):
        topic = fields.text()
        for _ in range(fields.number("i")):
            where = topic, fields.number("i")
            fields.number("h")  # the error
            if where in found:
                struct.pack_into(">qq", changed, fields.at, *found[where])
            fields.at += 16 if request.version < 4 else 20
    return bytes(changed)


def refused_transactions(request: Request) -> bytes:
    """The answer to a producer that wants to write in transactions."""
    return struct.pack(">iihqh", request.correlation_id, 0, _NOT_ALLOWED, -1, -1)


def created_topics(request: Request, refused: Mapping[str, TopicError | None]) -> bytes:
    """The answer to CreateTopics; None: the topic was created."""
    answer = struct.pack(">i", request.correlation_id) + (b"\0" * 4 if request.version >= 2 else b"")
    answer += struct.pack(">i", len(refused))
    for name, error in refused.items():
        answer += _text(name) + struct.pack(">h", error.code if error else 0)
        if request.version >= 1:
            answer += _text(error.message) if error else struct.pack(">h", -1)
    return answer


def topic_error(name: str, configs: Collection[str], *, exists: bool) -> TopicError | None:
    """The reason why a topic is not created: it exists, or the request sets a config, which the embedded broker lacks.
    None: it is created. The brokers' time, which a dead letter topic gets, makes no difference on one host."""
    if exists:
        return TopicError(_TOPIC_EXISTS, f"Topic '{name}' already exists.")
    if others := sorted(set(configs) - {"message.timestamp.type"}):
        return TopicError(_INVALID_CONFIG, f"The broker in memory has no topic configs ({', '.join(others)}).")
    return None


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value.encode())) + value.encode()
