"""Values that both sides of the seam know: offset ranges, acknowledge types, share partitions.

Offsets are inclusive at both ends (``first``, ``last``). A topic id is Kafka's, as its 22-character text.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

GROUP_OF_COLUMN = "sharegroup.group.id"
"""In the metadata of the source's receipt columns: the share group whose deliveries they are of. Spark hands it on with
the column, as far as it is the same column."""


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
        """The share partition of the offsets."""
        return SharePartitionKey(self.topic_id, self.partition)

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.last - self.first + 1

    def as_range(self) -> range:
        """The offsets one by one."""
        return range(self.first, self.last + 1)


class AcquiredRange(NamedTuple):
    """Offsets ``first`` to ``last``, all acquired, all at the same delivery count (KIP-932, ShareFetch)."""

    first: int
    last: int
    delivery_count: int


class AcknowledgeType(IntEnum):
    """Wire bytes of KIP-932 (0-3) and KIP-1222 (RENEW)."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Disposition(IntEnum):
    """Why a record is archived (KIP-1317's idea; the numbers are ours): its holder rejected it; it was released, or
    failed its trial, when its tries were used up; its lock ran out then; or, in explicit mode, no sink decided it then.
    NONE: the log does not hold it."""

    NONE = 0
    REJECTED = 1
    DELIVERY_LIMIT = 2
    EXPIRED = 3
    UNDECIDED = 4


class OutcomeRun(NamedTuple):
    """What a sink decided of offsets ``first`` to ``last``, all delivered at ``delivery_count`` (their receipt).

    outcome: ACCEPT, RELEASE or REJECT. delay_ms: a release's, from its staging; None: the group's backoff. letter: the
    dead letter of each of them is written. reason: the row's, kept only where it is not.
    """

    first: int
    last: int
    delivery_count: int
    outcome: AcknowledgeType
    delay_ms: int | None = None
    letter: bool = False
    reason: str = ""
