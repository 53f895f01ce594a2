"""The dead letter of a record: its headers, what it copies of the record, and its partition (KIP-1191).

Rule: a dead letter's headers say where the record was and why it was given up, as UTF-8 text, with the names of Kafka's
own dead letter queue. Beside these there are a disposition header (KIP-1317's idea), the record's timestamp, and the
record's own headers, which a redrive needs. The sink's reason takes the place of Kafka's message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coordinator.protocol.values import Disposition

Header = tuple[str, "bytes | None"]

PREFIX = "__dlq.errors."
TOPIC = PREFIX + "topic"
PARTITION = PREFIX + "partition"
OFFSET = PREFIX + "offset"
GROUP = PREFIX + "group"
DELIVERY_COUNT = PREFIX + "delivery.count"
MESSAGE = PREFIX + "message"
DISPOSITION = PREFIX + "disposition"
TIMESTAMP = PREFIX + "timestamp"
EMPTY_RECORD = PREFIX + "empty.record"
"""The header of a dead letter whose record has neither key, value nor headers. Without this header, a dead letter that
has none of the three lacks its record."""

REJECTED_MESSAGE = "Offset rejected by client."
LIMIT_MESSAGE = "Offset delivery count exceeded the threshold."
TTL_MESSAGE = "The record is older than share.record.ttl.ms."
MESSAGES = {Disposition.REJECTED: REJECTED_MESSAGE, Disposition.TTL: TTL_MESSAGE}
"""The messages of dead letters whose reason nobody has given; others get LIMIT_MESSAGE."""
LONGEST_MESSAGE_BYTES = 8 * 1024
"""A reason is cut to this many bytes in a dead letter, whoever writes it: a longer one could leave no room even for a
dead letter without its record. Reasons that go through the coordinator are shorter: LONGEST_REASON characters
(``coordinator.protocol.values``)."""


class Origin(NamedTuple):
    """Where a dead letter's record was, who gave up on it, and how often it had been delivered. Two dead letters of
    one origin are copies of one record."""

    topic: str
    partition: int
    offset: int
    group_id: str
    delivery_count: int


class DeadLetterRecord(NamedTuple):
    """A dead letter as it is written."""

    origin: Origin
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]

    def headers_only(self) -> DeadLetterRecord:
        """The dead letter without its record, for when the whole can't be written."""
        ours = tuple(h for h in self.headers if h[0].startswith(PREFIX) and h[0] != EMPTY_RECORD)
        return DeadLetterRecord(self.origin, None, None, ours)

    @property
    def is_headers_only(self) -> bool:
        return self == self.headers_only()


def dead_letter(
    origin: Origin,
    disposition: Disposition,
    *,
    message: str = "",
    key: bytes | None = None,
    value: bytes | None = None,
    headers: Sequence[Header] | None = None,
    timestamp_ms: int | None = None,
    copy: bool = True,
) -> DeadLetterRecord:
    """The dead letter of a record. ``message``: the reason that a sink gave; empty: Kafka's. ``headers``: the record's,
    kept in order before ours; those of an earlier dead letter are dropped; None: they are not known. ``timestamp_ms``:
    the record's; None or negative: it is not known, and has no header. ``copy`` False
    (errors.deadletterqueue.copy.record.enable): our headers only, as Kafka writes it by default."""
    said = message or MESSAGES.get(disposition, LIMIT_MESSAGE)
    ours: tuple[Header, ...] = (
        (TOPIC, _text(origin.topic)),
        (PARTITION, _text(origin.partition)),
        (OFFSET, _text(origin.offset)),
        (GROUP, _text(origin.group_id)),
        (DELIVERY_COUNT, _text(origin.delivery_count)),
        (MESSAGE, _cut(_text(said))),
        (DISPOSITION, _text(disposition.name.lower())),
        *(((TIMESTAMP, _text(timestamp_ms)),) if timestamp_ms is not None and timestamp_ms >= 0 else ()),
    )
    if not copy:
        return DeadLetterRecord(origin, None, None, ours)
    own = record_headers(headers)
    is_empty = headers is not None and key is None and value is None and not own
    return DeadLetterRecord(origin, key, value, own + ours + (((EMPTY_RECORD, b"true"),) if is_empty else ()))


def dead_letter_partition(source_partition: int, partitions: int) -> int:
    """Returns the partition of a dead letter, in a topic with ``partitions`` of them (KIP-1191): the dead letters of
    one source partition stay in one partition, in order."""
    return source_partition % partitions


class ParsedHeaders(NamedTuple):
    """The headers of a dead letter. ``message`` and ``disposition`` are empty where it has none: Kafka's own
    queue writes no disposition. ``record_headers``: the record's own, without those that make it a dead letter.
    ``timestamp_ms``: the record's; None where no header has it."""

    origin: Origin
    message: str
    disposition: str
    record_headers: tuple[Header, ...]
    timestamp_ms: int | None = None


def parse_headers(headers: Sequence[Header] | None) -> ParsedHeaders | None:
    """Parse the headers of a Kafka record as a dead letter's. Returns None if the headers that name the origin are
    missing or wrong. Kafka leaves out an unknown delivery count, which is then 0. Of two headers of one name the last
    one counts."""
    texts = {name: value.decode(errors="replace") for name, value in headers or () if value is not None}
    try:
        origin = Origin(
            topic=texts[TOPIC],
            partition=_number(texts[PARTITION]),
            offset=_number(texts[OFFSET]),
            group_id=texts[GROUP],
            delivery_count=_number(texts.get(DELIVERY_COUNT, "0")),
        )
    except (KeyError, ValueError):
        return None
    message, disposition = texts.get(MESSAGE, ""), texts.get(DISPOSITION, "")
    return ParsedHeaders(origin, message, disposition, record_headers(headers), _time(texts.get(TIMESTAMP, "")))


def record_headers(headers: Sequence[Header] | None) -> tuple[Header, ...]:
    """A record's own headers, without those that make it a dead letter."""
    return tuple(header for header in headers or () if not header[0].startswith(PREFIX))


def _number(text: str) -> int:
    """The number of a header. Raises ValueError if it is none, or none that fits into 64 bits, as Kafka's do."""
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError(text)
    return number


def _time(text: str) -> int | None:
    """The time in ms since 1970; None: the header is missing, or is not ours."""
    try:
        return time_ms if (time_ms := _number(text)) >= 0 else None
    except ValueError:
        return None


def _text(value: object) -> bytes:
    return str(value).encode(errors="replace")


def _cut(text: bytes) -> bytes:
    return text if len(text) <= LONGEST_MESSAGE_BYTES else text[:LONGEST_MESSAGE_BYTES].decode(errors="ignore").encode()
