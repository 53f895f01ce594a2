"""A record batch that can't be read: which errors say so, and which offsets the batch has.

librdkafka names the first offset of such a batch, not its last one, and never reads past it (docs/trust/facts.md, C15
to C17). Rule: ignore what comes after its error, because librdkafka may read on in the middle of the batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from math import inf
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

INVALID_HEADERS = KafkaError.INVALID_RECORD
"""The compiled reader's code for a record whose headers librdkafka does not read. Others of its batch can be read."""
DAMAGED = frozenset({KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, INVALID_HEADERS})
"""librdkafka's errors of a batch that can't be read. _NOT_IMPLEMENTED is not among them: another build of librdkafka
may have the codec, or the record format, of a healthy batch."""
UNREADABLE = DAMAGED | {KafkaError._NOT_IMPLEMENTED}
"""librdkafka's errors of a batch that this process can't read."""
ASKING = {"fetch.error.backoff.ms": "10", "queued.min.messages": "1"}
"""The librdkafka configuration of clients for :func:`end_of_batch`. By default each error costs half a second."""
READINGS = 3
"""A batch counts as damaged after this many readings: the network, or a client's or broker's memory, may err."""
_ANSWER_S = 10.0
"""The question whether an offset is in the batch waits this many seconds for its answer."""
_SLICE_S = 0.5


class Damage(NamedTuple):
    """The offsets ``first`` to ``last``, which can't be read, librdkafka's error code, and the error in words."""

    first: int
    last: int
    code: int
    reason: str


def end_of_batch(
    make: Callable[[], Consumer], where: tuple[str, int], at: int, first: int, high: int, until_s: float = inf
) -> int | None:
    """Returns the offset after a damaged batch: the one that holds the offset ``at``, and whose error names ``first``.
    Returns None if a broker does not answer, or not by ``until_s`` of the monotonic clock. ``where``: topic and
    partition; ``high``: the end of the log.

    Each step asks for one offset, so a batch of n offsets takes 2 log n steps. A second client must find the batch's
    last offset damaged as well: no healthy record may be skipped."""
    with closing(make()) as client:
        inside, outside, width = at, high, 1
        while inside + 1 < outside:
            asked = min(inside + width, outside - 1) if outside == high else (inside + outside) // 2
            is_in = _is_in_batch(client, where, asked, first, until_s)
            if is_in is None:
                return None
            inside, outside, width = (asked, outside, width * 2) if is_in else (inside, asked, width)
    with closing(make()) as client:
        return outside if _is_in_batch(client, where, outside - 1, first, until_s) else None


def _is_in_batch(client: Consumer, where: tuple[str, int], offset: int, first: int, until_s: float) -> bool | None:
    """Whether the broker answers a fetch of the offset with the damaged batch; None if the broker does not answer."""
    client.assign([TopicPartition(*where, offset)])
    until_s = min(until_s, time.monotonic() + _ANSWER_S)
    while time.monotonic() < until_s:
        message = client.poll(_SLICE_S)
        error = None if message is None else message.error()
        if message is not None and (error is None or error.code() == KafkaError._PARTITION_EOF):
            return False
        # An out-of-range error is about librdkafka's wrong next offset, from the position before.
        if message is not None and error is not None and error.code() in DAMAGED:
            return message.offset() == first
    return None
