"""A group's transactional producer: the newest one fences those before it, and a write is one transaction.

Rule: the outcome of a write is Kafka's own answer. StoreRefused: the transaction was aborted. Fenced: a newer producer
has the transactional id. Any other outcome is unknown until the next load, whose fence and first commit end every open
transaction."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
import warnings
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from coordinator.kafka.librdkafka import LACKING, LOSSLESS, Complaints, new_client, produced
from coordinator.protocol.errors import BrokerSecurityFailed, ShareGroupError, TransactionsMissing
from coordinator.service.brokers.cluster import BROKERS_TIME
from coordinator.service.stores.kafka.state_topic import MAX_MESSAGE_BYTES, StateTopic, is_denied
from coordinator.service.stores.store import StoreOutcomeUnknown, StoreRefused
from coordinator.state_log.partition_log import KeyValue
from coordinator.state_log.transaction_size import header_of

TRANSACTION_TIMEOUT_FACTOR = 2
"""The broker's transaction timeout is this multiple of share.coordinator.write.timeout.ms: we give up first."""
LONGEST_REQUEST_MS = 300_000
"""librdkafka's bound of socket.timeout.ms."""
CONNECT_S = 2.0
"""The brokers must be connected within this many seconds, before the search for the transaction coordinator."""
MOST_ADDRESSES = 3
"""Up to this many metadata requests are sent, until one is answered by a broker whose id librdkafka knows. A bootstrap
address has no id, and usually answers the first request only."""
NO_OFFSET = -1
REFUSED_S = 2.0
"""An undelivered write is given up after this many seconds if the brokers refuse the client's credentials."""
MIN_COMMIT_S = 0.5
"""If the records of a transaction have used up all the time, its commit still has this many seconds."""
_FENCED = frozenset({KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED})

_log = logging.getLogger(__name__)

# A producer that was fenced, or whose write has an unknown outcome, is closed inside its transaction. That was
# reported.
warnings.filterwarnings("ignore", "Producer abort_transaction failed during close", RuntimeWarning)


class Fenced(Exception):
    """The transactional id has a newer producer, or the broker ended a transaction that took too long."""


class LogShrunk(Exception):
    """The partition is shorter than before: the end of its log is lost (an unclean leader election), or its topic was
    deleted and created again."""


class GroupWriter:
    """The transactional producer of one group. One thread at a time may use it."""

    def __init__(self, topic: StateTopic, partition: int, group_id: str) -> None:
        """Opens a client of its own for the group. Raises StoreRefused if the process can't have more clients."""
        self._topic, self._partition = topic, partition
        self.transactional_id = f"{topic.name}-{group_id}"
        self._timeout_s = topic.write_timeout_ms / 1000
        self._first_offset = NO_OFFSET
        self._complaints = Complaints()
        transaction_ms = TRANSACTION_TIMEOUT_FACTOR * topic.write_timeout_ms
        request_ms = min(transaction_ms - 100, LONGEST_REQUEST_MS)  # it fails before its transaction ends
        config = topic.client_config(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=transaction_ms,
            socket_timeout_ms=min(int(topic.kafka_config.get("socket.timeout.ms", request_ms)), request_ms),
            message_timeout_ms=topic.write_timeout_ms,
            message_max_bytes=MAX_MESSAGE_BYTES,
            linger_ms=0,
            allow_auto_create_topics="false",  # a question for the state topic must not create it
        )
        try:
            self._producer = new_client(Producer, {**config, **LOSSLESS, "error_cb": self._complaints})
        except RuntimeError as error:  # each client takes one of the process's 1,024 keys of thread local storage
            reason = f"this process has as many Kafka clients as it can have, one for each group it serves ({error})"
            raise StoreRefused(f"{reason}: more coordinators serve more groups") from None

    def connect(self) -> None:
        """Wait for a connection to a broker that librdkafka knows by its id: it closes connections to bootstrap
        addresses once it knows the brokers. Without a connection, init_transactions tries again half a second later
        (facts, C10)."""
        with contextlib.suppress(KafkaException):  # init_transactions raises what is wrong
            for _ in range(MOST_ADDRESSES):
                if self._producer.list_topics(self._topic.name, CONNECT_S).orig_broker_id >= 0:
                    return
            return
        self._raise_if_refused()

    def fence(self) -> None:
        """Fence every older producer of the group: none of them can write any more, and their open transactions end.

        Raises:
            StoreRefused: Kafka did not confirm it.
            StateTopicNotAuthorized, BrokerSecurityFailed: the principal may not, or the brokers refuse it.
            TransactionsMissing: the brokers have no transactions."""
        self.connect()
        try:
            self._producer.init_transactions(self._topic.timeout_s)
        except KafkaException as raised:
            error = raised.args[0]
            self._raise_if_denied(error)
            addresses = self._topic.bootstrap_servers
            if error.code() in LACKING:  # checked before poll(), which raises a fatal error
                raise TransactionsMissing(addresses=addresses, topic=self._topic.name, reason=error.str()) from None
            self._raise_if_refused()
            raise StoreRefused(f"{self.transactional_id} could not be taken: {error.name()} {error.str()}") from None

    def write(self, records: Sequence[KeyValue], *, end: int = 0) -> int:
        """Write the records in one transaction. Returns the offset of the first record. ``end``: the partition's length
        before.

        Raises:
            StoreRefused: nothing was written.
            StoreOutcomeUnknown: the transaction may be committed, now or later.
            Fenced: a newer producer has the group.
            LogShrunk: the partition is shorter than ``end``; nothing was written."""
        deadline_s = time.monotonic() + self._timeout_s
        try:
            self._deliver(records, deadline_s, count=len(records))
            if NO_OFFSET < self._first_offset < end:
                self._producer.abort_transaction(self._timeout_s)
                raise LogShrunk(f"it ended at {end}, and the next record got offset {self._first_offset}")
            self._producer.commit_transaction(max(deadline_s - time.monotonic(), MIN_COMMIT_S))
        except KafkaException as raised:
            self._raise_outcome(raised.args[0])
        return self._first_offset

    def abort(self, records: Sequence[KeyValue]) -> None:
        """Write the records in a transaction, and abort it together with what the log has of the group's open
        transaction. The header names one record more than the transaction has: should its marker be lost as well, the
        transaction never counts as whole. Raises StoreRefused, StoreOutcomeUnknown or Fenced: as for :meth:`write`."""
        try:
            self._deliver(records, time.monotonic() + self._timeout_s, count=len(records) + 1)
            self._producer.abort_transaction(self._timeout_s)
        except KafkaException as raised:
            self._raise_outcome(raised.args[0])

    def close(self) -> None:
        """Close the producer in a thread of its own: librdkafka may take seconds."""
        producer, name = self._producer, self.transactional_id
        with contextlib.suppress(RuntimeError):  # no thread can be started: garbage collection closes the producer
            threading.Thread(target=_close, args=(producer, name), name="share-close", daemon=True).start()

    def _deliver(self, records: Sequence[KeyValue], deadline_s: float, *, count: int) -> None:
        """Begin a transaction of ``count`` records, and return once the brokers have the records."""
        self._first_offset = NO_OFFSET
        with contextlib.suppress(KafkaException):  # a fatal error, which begin_transaction raises by its own name
            self._producer.poll(0)
        self._complaints.forget()  # drops refusals from before this write
        self._producer.begin_transaction()
        headers = header_of(count)
        for key, value in records:
            record = (self._topic.name, value, key, self._partition)
            until_s = time.monotonic() + self._timeout_s
            if not produced(self._producer, until_s, *record, on_delivery=self._delivered, headers=headers):
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            headers = []
        self._wait_delivered(deadline_s)

    def _wait_delivered(self, deadline_s: float) -> None:
        # Not flush(): in a transaction it raises, beside the errors of the records.
        refused_s = time.monotonic() + REFUSED_S
        while len(self._producer):
            if time.monotonic() > deadline_s:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, retriable=True))
            if self._complaints.refused and time.monotonic() > refused_s:  # the abort would wait as long again
                raise StoreOutcomeUnknown(f"the brokers refuse the client: {self._complaints.refused}")
            self._producer.poll(0.05)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None and self._first_offset == NO_OFFSET:
            self._first_offset = message.offset()

    def _raise_outcome(self, error: KafkaError) -> None:
        what = f"{error.name()} {error.str()}"
        if error.code() == KafkaError.INVALID_TIMESTAMP:
            name, value = next(iter(BROKERS_TIME.items()))
            what += f": the clock of {socket.gethostname()} is ahead of the brokers' clocks; set it right, or set "
            what += f"{name} of {self._topic.name} to {value} (kafka-configs.sh)"
        if error.code() in _FENCED:
            raise Fenced(what) from None
        if error.txn_requires_abort() or not (error.fatal() or error.retriable()):
            try:
                self._producer.abort_transaction(self._timeout_s)
            except KafkaException as raised:
                if raised.args[0].code() in _FENCED:
                    raise Fenced(what) from None
                self._raise_if_denied(error)  # without the permission no record was written
                raise StoreOutcomeUnknown(f"{what}; its end: {raised.args[0].name()}") from None
            self._raise_if_denied(error)
            raise StoreRefused(what) from None
        raise StoreOutcomeUnknown(what) from None

    def _raise_if_refused(self) -> None:
        self._producer.poll(0)
        if self._complaints.refused:
            addresses, reason = self._topic.bootstrap_servers, self._complaints.refused
            raise BrokerSecurityFailed(addresses=addresses, reason=reason) from None

    def _raise_if_denied(self, error: KafkaError) -> None:
        if is_denied(error):
            denied: ShareGroupError = self._topic.denied(f"write to it as {self.transactional_id}")
            raise denied from None


def _close(producer: Producer, name: str) -> None:
    try:
        producer.purge()
        producer.close()
    except KafkaException as error:  # it was fenced, or its last write failed: that was reported then
        _log.debug("could not close the producer %s: %s", name, error)
    except Exception:  # noqa: BLE001 - no caller waits for it, and nothing depends on it
        _log.exception("could not close the producer %s", name)
