"""Ends transactions in a state partition that block readers of committed records: a hanging transaction, which Kafka
left open for good (KIP-664), and transactions that a crashed owner left open.

A broker that restarts can complete a transaction without its marker, and then no reader of committed records gets past
it (docs/trust/facts.md, C12). The marker of a later transaction of the same transactional id ends both.

Rule: a whole transaction is committed, because its commit may have been answered. A transaction of which an unclean
leader election left only a part is aborted."""

from __future__ import annotations

import contextlib
import logging
import random

from tenacity import retry_if_result, wait_fixed

from coordinator.kafka.record_headers import headers_of
from coordinator.kafka.retries import retry_until
from coordinator.protocol.errors import ShareGroupError
from coordinator.service.brokers.cluster import LATEST
from coordinator.service.process.clock import now_s
from coordinator.service.stores.kafka.group_writer import TRANSACTION_TIMEOUT_FACTOR, Fenced, GroupWriter
from coordinator.service.stores.kafka.log_reader import LogReader, ReadBlocked
from coordinator.service.stores.kafka.state_topic import StateTopic
from coordinator.service.stores.store import StoreOutcomeUnknown, StoreRefused
from coordinator.state_log.group_log import GroupLog
from coordinator.state_log.owner_record import Owner, encode_owner
from coordinator.state_log.placement import state_partition_of
from coordinator.state_log.record_keys import GroupOwnerKey, encode_key, group_of
from coordinator.state_log.transaction_size import LastTransaction

LOOKS_EVERY_S = 10.0
"""Kafka checks for transactions that take too long this often, in seconds
(transaction.abort.timed.out.transaction.cleanup.interval.ms)."""
SPREAD_S = 10.0
"""Coordinators end a transaction at random times within this many seconds. If two did so at the same time, the fence of
the second would abort what the first is writing, and the hanging transaction with it."""
MARKER_S = 2.0
"""Kafka may take this many seconds to write a marker."""

_log = logging.getLogger(__name__)


class OpenTransaction:
    """Remembers the transaction that blocked a read of a state partition, until all of that read can be read."""

    def __init__(self, topic: StateTopic, partition: int) -> None:
        self._topic, self._partition = topic, partition
        self._end, self._since_s, self._spread = 0, 0.0, random.random()
        self._offset: int | None = None

    def blocked(self, read: ReadBlocked) -> None:
        if self._offset != read.offset:
            self._since_s = now_s() - read.open_s
        self._offset, self._end = read.offset, read.end

    def offset(self) -> int | None:
        """The first offset of the transaction, or of the next one that is open before the end of the blocked read. A
        later transaction counts as open for as long as the first. None: no transaction is open."""
        if self._offset is not None:
            stable = _last_stable(self._topic, self._partition)
            self._offset = stable if stable < min(self._end, self._topic.offset(self._partition, LATEST)) else None
        return self._offset

    def end_if_hanging(self) -> None:
        """End the transaction, and those after it, if Kafka itself would have ended them by now. If that fails, try
        again after the same time."""
        while (offset := self.offset()) is not None and now_s() - self._since_s > self._patience_s:
            if not end_transaction(self._topic, self._partition, offset):
                self._since_s = now_s()

    @property
    def _patience_s(self) -> float:
        timeout_s = TRANSACTION_TIMEOUT_FACTOR * self._topic.write_timeout_ms / 1000
        return timeout_s + LOOKS_EVERY_S + self._spread * SPREAD_S

    def is_of(self, group_id: str) -> bool:
        """Whether a producer of this group wrote it. If so, the group's load ends it."""
        return self._offset is not None and writer_of(self._topic, self._partition, self._offset) == group_id


def end_transaction(topic: StateTopic, partition: int, offset: int) -> bool:
    """End the transaction that is open since ``offset``, if a group's producer wrote it. Returns whether it has ended.
    The group keeps its owner, which loads the group again if it still runs."""
    group_id = writer_of(topic, partition, offset)
    if group_id is None:
        return False
    where = (topic.name, partition, offset, group_id)
    try:
        writer = GroupWriter(topic, partition, group_id)
        try:
            if _last_stable(topic, partition) != offset:
                return True  # another coordinator ended it just now
            writer.fence()
            owner, last = _read(topic, partition, group_id)
            if owner is None:
                raise StoreRefused("the group has no owner record")
            end = writer.abort if last.is_cut else writer.write
            end([(encode_key(GroupOwnerKey(group_id)), encode_owner(owner))])
            has_ended = _has_moved(topic, partition, offset)
        finally:
            writer.close()
    except (ShareGroupError, StoreRefused, StoreOutcomeUnknown, Fenced) as error:
        _log.warning("could not end the transaction in %s-%d that is open since offset %d: group=%s %s", *where, error)
        return False
    if has_ended:
        _log.warning("ended the transaction in %s-%d that Kafka left open since offset %d: group=%s", *where)
    else:
        _log.warning(
            "could not end the transaction in %s-%d that is open since offset %d: group=%s Kafka does not know its "
            "producer any more (transactional.id.expiration.ms)",
            *where,
        )
    return has_ended


def abort_left(topic: StateTopic, partition: int, gone: Owner) -> None:
    """Abort the transactions that ``gone``, the owner from which this process takes a group, left open. Without that,
    the groups of the partition would wait until Kafka ends them. ``gone`` still owns its other groups, and loads them
    again if it still runs. A hanging transaction stays: its commit may have been answered. Raises StoreRefused if Kafka
    did not confirm it."""
    end = topic.offset(partition, LATEST)
    while (offset := _last_stable(topic, partition)) < end:
        group_id = writer_of(topic, partition, offset)
        owner = None if group_id is None else _read(topic, partition, group_id)[0]
        is_left = owner is not None and owner.process == gone.process
        if group_id is not None and is_left:
            with contextlib.closing(GroupWriter(topic, partition, group_id)) as writer:
                writer.fence()
        if not _has_moved(topic, partition, offset):  # the transaction of a living owner soon ends by itself
            return
        if is_left:
            _log.info("aborted what %s left open in %s-%d: group=%s", gone, topic.name, partition, group_id)


def writer_of(topic: StateTopic, partition: int, offset: int) -> str | None:
    """Returns the group whose producer wrote the record at the offset; None if another program wrote it."""
    with LogReader(topic, partition, start=offset, committed=False) as reader:
        for message in reader.read_to(min(offset + 1, reader.end())):
            group_id = group_of(message.key()) if message.offset() == offset else None
            is_here = group_id is not None and state_partition_of(group_id, topic.partitions) == partition
            return group_id if is_here else None
    return None


def _last_stable(topic: StateTopic, partition: int) -> int:
    return topic.offset(partition, LATEST, read_committed=True)


def _has_moved(topic: StateTopic, partition: int, offset: int) -> bool:
    """Whether the last stable offset moves within MARKER_S: Kafka confirms the end before it writes the marker."""
    look = retry_until(MARKER_S, wait_fixed(0.05), retry_if_result(lambda has_moved: not has_moved))
    return bool(look(lambda: _last_stable(topic, partition) != offset))


def _read(topic: StateTopic, partition: int, group_id: str) -> tuple[Owner | None, LastTransaction]:
    """The group's newest owner, whose record changes nothing if it is written again, and its last transaction.

    Raises:
        GroupStateTooNew, GroupStateTooOld: an owner is of another version of sharegroup.
        UnreadableRecord: an owner record is damaged."""
    log, last = GroupLog(group_id, updates_per_snapshot=0), LastTransaction()
    with LogReader(topic, partition, committed=False) as reader:
        for message in reader.read_to(reader.end()):
            if log.read_owner(message.key(), message.value(), message.offset()):
                last.add(headers_of(message))
    return log.owner, last
