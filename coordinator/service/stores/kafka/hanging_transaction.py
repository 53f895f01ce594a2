"""Ends a transaction that Kafka left open in the state partition for good (a hanging transaction, KIP-664).

A broker that starts again can complete a transaction without its marker, so that no reader of committed records comes
beyond it (docs/facts.md, C12). The marker of a later transaction of the same transactional id ends both.

Rule: a whole transaction counts, since its commit may have been answered. A part of one, of which an unclean leader
election left no more, does not.
"""

from __future__ import annotations

import logging

from tenacity import retry_if_result, wait_fixed

from coordinator.protocol.errors import ShareGroupError
from coordinator.service.brokers.cluster import LATEST
from coordinator.service.brokers.retries import retry_until
from coordinator.service.stores.kafka.group_writer import TRANSACTION_TIMEOUT_FACTOR, Fenced, GroupWriter
from coordinator.service.stores.kafka.log_reader import LogReader
from coordinator.service.stores.kafka.state_topic import StateTopic
from coordinator.service.stores.store import StoreOutcomeUnknown, StoreRefused
from coordinator.state_log.partition_log import KeyValue
from coordinator.state_log.record_keys import GroupOwnerKey, encode_key, group_of
from coordinator.state_log.transaction_size import LastTransaction

LOOKS_EVERY_S = 10.0
"""Seconds between Kafka's looks for transactions that take too long
(transaction.abort.timed.out.transaction.cleanup.interval.ms)."""
MARKER_S = 2.0
"""Seconds that a marker may take which Kafka is to write."""

_log = logging.getLogger(__name__)


def is_hanging(topic: StateTopic, open_s: float) -> bool:
    """Whether a coordinator's transaction that has been open for so many seconds is one that Kafka does not end."""
    return open_s > TRANSACTION_TIMEOUT_FACTOR * topic.write_timeout_ms / 1000 + LOOKS_EVERY_S


def end_transaction(topic: StateTopic, partition: int, offset: int) -> None:
    """Ends the transaction that is open since ``offset`` if the producer of a group wrote it, and nothing else. The
    group's owner stays who it is: where it still runs, it loads the group again.
    """
    group_id = _group_at(topic, partition, offset)
    if group_id is None:
        return
    where = (topic.name, partition, offset, group_id)
    try:
        writer = GroupWriter(topic, partition, group_id)
        try:
            writer.fence()  # a transaction that Kafka still knows ends with it
            owner, last = _read(topic, partition, group_id)
            end = writer.abort if last.is_cut else writer.write
            end([owner])
            _wait_for_marker(topic, partition, offset)
        finally:
            writer.close()
    except (ShareGroupError, StoreRefused, StoreOutcomeUnknown, Fenced) as error:
        _log.warning("not ended: the transaction in %s-%d that is open since offset %d: group=%s %s", *where, error)
    else:
        _log.warning("ended: the transaction in %s-%d that Kafka left open since offset %d: group=%s", *where)


def _group_at(topic: StateTopic, partition: int, offset: int) -> str | None:
    """The group of the record at the offset; None if another program wrote it."""
    with LogReader(topic, partition, start=offset, committed=False) as reader:
        for messages in reader.read_to(offset + 1):
            for message in messages:
                return group_of(message.key()) if message.offset() == offset else None
    return None


def _wait_for_marker(topic: StateTopic, partition: int, offset: int) -> None:
    """Returns when the last stable offset is no longer ``offset``, or MARKER_S have passed: Kafka answers the end of a
    transaction before it writes the marker."""
    moved = retry_until(MARKER_S, wait_fixed(0.05), retry_if_result(lambda stable: stable == offset))
    moved(lambda: topic.offset(partition, LATEST, read_committed=True))


def _read(topic: StateTopic, partition: int, group_id: str) -> tuple[KeyValue, LastTransaction]:
    """The group's newest owner record, which changes nothing if it is written again, and its last transaction.

    Raises:
        StoreRefused: the group has no owner record.
    """
    key, owner, last = encode_key(GroupOwnerKey(group_id)), None, LastTransaction()
    with LogReader(topic, partition, committed=False) as reader:
        for messages in reader.read_to(reader.end()):
            for message in messages:
                if group_of(message.key()) == group_id:
                    last.add(message.headers())
                    owner = message.value() if message.key() == key else owner
    if owner is None:
        raise StoreRefused("the group has no owner record")
    return (key, owner), last
