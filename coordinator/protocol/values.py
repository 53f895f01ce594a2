"""Values that clients and the coordinator share: offset ranges, acknowledge types, share partitions.

Offsets are inclusive at both ends (``first``, ``last``). A topic id is Kafka's, as its 22-character text."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, NamedTuple

from msgspec import Meta

MOST_HINT_BYTES = 256
"""The hint of a record in progress has up to this many bytes of UTF-8 (KAFKA-20458)."""
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""A number in a request that may be negative. Other negative numbers are refused when the request is decoded."""
Offset = Annotated[int, Meta(ge=0, le=2**63 - 1)]
PartitionIndex = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
PositiveCount = Annotated[int, Meta(ge=1, le=2**31 - 1)]
GROUP_STATES = ("EMPTY", "STABLE", "DEAD", "UNKNOWN")
"""The states of share groups (KIP-932); UNKNOWN: no coordinator could be asked."""
Milliseconds = Annotated[int, Meta(ge=0, le=2**53)]
LONGEST_DELAY_MS = 2**31 - 1
"""A longer delay of a released record, in milliseconds, is refused: some 24 days. This also bounds stored delays whose
length was not stored."""
ReleaseDelay = Annotated[int, Meta(ge=0, le=LONGEST_DELAY_MS)]
MemberId = Annotated[str, Meta(min_length=1, max_length=500)]
"""A member's id, or that of its process."""
MOST_CLIENT_TEXT = 500
ClientText = Annotated[str, Meta(max_length=MOST_CLIENT_TEXT)]
"""A name, host or path by which a client describes itself to people."""
MOST_ENDING_TEXT = 1_000
EndingText = Annotated[str, Meta(max_length=MOST_ENDING_TEXT)]
"""The sentence of the named error with which a process of a query ended."""
ErrorName = Annotated[str, Meta(pattern=r"^[A-Za-z]{1,64}\Z")]


def client_text(text: str) -> str:
    """The text as a ClientText: on one line, and cut."""
    return " ".join(text.split())[:MOST_CLIENT_TEXT]


def client_in_words(name: str, pid: int, host: str) -> str:
    """Returns what is known of a member's client, for people: ``billing-1, process 4711 on host-1``."""
    process = f"process {pid}" if pid else "a process"
    return ", ".join(filter(None, (name, f"{process} on {host}" if host else ""))) or "not known"


TopicAndPartition = tuple[str, int]
"""A topic's name and a partition."""


class SharePartitionKey(NamedTuple):
    """A partition of one incarnation of a topic."""

    topic_id: str
    partition: int


class OffsetRange(NamedTuple):
    """Offsets ``first`` to ``last`` of a share partition."""

    topic_id: str
    partition: int
    first: int
    last: int

    @property
    def key(self) -> SharePartitionKey:
        return SharePartitionKey(self.topic_id, self.partition)

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def as_range(self) -> range:
        return range(self.first, self.last + 1)


class CappedLock(NamedTuple):
    """The lock of offsets ``first..last`` was renewed for less than its full duration, because
    share.max.lock.extension.ms limits it: it ends ``left_ms`` milliseconds from now."""

    topic_id: str
    partition: int
    first: int
    last: int
    left_ms: int


class AcquiredRange(NamedTuple):
    """Acquired offsets ``first`` to ``last`` of one delivery count (KIP-932, ShareFetch)."""

    first: Offset
    last: Offset
    delivery_count: Count


class AlteredStart(NamedTuple):
    """An administrator altered a share partition's start offset. ``start_offset``: the present one; None: the share
    partition's state was deleted. ``by``: who altered it; empty if the coordinator was started since."""

    topic: str
    partition: int
    start_offset: int | None
    by: str


class AcknowledgeType(IntEnum):
    """Wire bytes of KIP-932 (0-3) and KIP-1222 (RENEW). DEFER is ours, and an outcome of sinks alone: the record is
    given back as if it had not been delivered."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    DEFER = 5


GIVES_BACK = frozenset({AcknowledgeType.RELEASE, AcknowledgeType.DEFER})
"""Outcomes of sinks after which the record comes again, with or without a delay."""


class Disposition(IntEnum):
    """The reason why a record is archived (KIP-1317's idea; the numbers are ours).

    NONE: the log does not hold the record. REJECTED: the holder rejected the record. TTL: the record waited for longer
    than share.record.ttl.ms. The others are for records that used up their tries: DELIVERY_LIMIT by a release or a
    failed trial, EXPIRED by a lock that ran out, and UNDECIDED in a batch in explicit mode in which no sink decided
    them."""

    NONE = 0
    REJECTED = 1
    DELIVERY_LIMIT = 2
    EXPIRED = 3
    UNDECIDED = 4
    TTL = 5


LONGEST_REASON = 500
"""A reason is cut at this number of characters if the coordinator is to write the dead letter: a request with the
reasons of a whole batch must not become too large. A dead letter that the sink itself writes has the reason up to
LONGEST_MESSAGE_BYTES (``coordinator.dead_letters.record_format``)."""


class OutcomeRun(NamedTuple):
    """A sink's outcome for offsets ``first`` to ``last``, all delivered at ``delivery_count`` (their receipt).

    outcome: ACCEPT, RELEASE, REJECT or DEFER.
    delay_ms: the delay of a release or a deferral, from its staging on; None: the group's backoff, or no delay.
    dead_letter: the dead letters of all these records are written.
    reason: the reason in the row: of a reject whose dead letters are not written yet, or of a release from the delivery
        count limit on.
    divided: rows of the same record named different outcomes, so the outcome is RELEASE."""

    first: int
    last: int
    delivery_count: int
    outcome: AcknowledgeType
    delay_ms: int | None = None
    dead_letter: bool = False
    reason: str = ""
    divided: bool = False
