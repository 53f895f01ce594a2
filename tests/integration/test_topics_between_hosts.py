"""The clients of the topics between hosts, on a broker that is killed and whose topics are deleted and made again, and
beside writers of any records."""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Message

from coordinator.kafka.record_headers import headers_of
from coordinator.protocol.host_records import (
    PART_BYTES,
    PARTITIONS,
    REPLIES,
    REQUESTS,
    Echo,
    headers_of_reply,
    read_reply,
    read_request,
)
from coordinator.service.hosts.topic_clients import Reader, Writer
from coordinator.service.hosts.topics import TO_ASK, ensure
from tests.mistakes.host_topics import MISTAKES
from tests.mistakes.mistake import Make
from tests.support.damaged_log import PAYLOAD, batches_of, damage
from tests.support.hostile_records import HOSTILE, OPEN, UNREADABLE
from tests.support.kafka_broker import BrokerError, KafkaBroker
from tests.support.state_topics import state_topic
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def first_broker() -> Iterator[KafkaBroker]:
    """A broker of this module's own: its log files are changed, and its topics deleted."""
    with KafkaBroker(heap="512m") as broker:
        yield broker


@pytest.mark.slow
def test_a_reader_that_begins_anew_reads_a_topic_made_after_a_restart() -> None:
    """The new topic's leader has a lower epoch than the one before, which a client ignores as old news."""
    with KafkaBroker(heap="512m") as broker, contextlib.ExitStack() as closing:
        state = state_topic(broker)
        ensure(state, TO_ASK)
        read: list[str] = []
        reader = Reader(state, lambda message: read.append(read_reply(message.headers()).id), "test-reader")  # type: ignore[union-attr]
        closing.callback(reader.close)
        closing.enter_context(contextlib.closing(writer := Writer(state)))

        def is_read(again: bool = False) -> bool:
            written: list[bool] = []
            echo = Echo(id=uuid.uuid4().hex, asker="asker")
            writer.write(REPLIES, 0, "asker", headers_of_reply(echo, b"k" * 32), written=written.append)
            wait_until(lambda: written, what="the brokers have taken the record, or have not")
            if written == [True] and again:
                reader.begin_anew()
            with contextlib.suppress(AssertionError):
                return bool(wait_until(lambda: echo.id in read, timeout_s=5, what="the record is read"))
            return False

        reader.add({(REPLIES, 0): 0})
        wait_until(is_read, timeout_s=60, what="a record is read")
        for _ in range(2):
            broker.kill()
            broker.start()
        wait_until(is_read, timeout_s=60, what="a record is read after the restart")
        broker.delete_topic(REPLIES)
        ensure(state, TO_ASK)
        wait_until(lambda: is_read(again=True), timeout_s=60, what="a record of the new topic is read")


def read_behind(kafka: KafkaBroker, name: str, what: str, *, timeout_s: float = 120) -> list[bytes]:
    """The values that are read, with those before and behind a hostile record."""
    read: list[bytes] = []

    def on_record(message: Message) -> None:
        read_request(headers_of(message))
        read_reply(headers_of(message))
        read.append(message.value() or b"")

    kafka.produce(name, [b"before"], partition=0)
    kept = HOSTILE[what](kafka, name)
    kafka.produce(name, [b"behind"], partition=0)
    with contextlib.closing(Reader(state_topic(kafka), on_record, "test-reader")) as reader:
        reader.add({(name, 0): 0})
        wait_until(lambda: b"behind" in read, timeout_s=timeout_s, what="the record behind it is read")
    del kept
    return read


@pytest.mark.parametrize("what", HOSTILE)
def test_a_reader_goes_on_behind_any_record(kafka: KafkaBroker, topic: Any, caplog: Any, what: str) -> None:
    """A topic of another configuration is read as well: an administrator made it."""
    name = topic()
    with caplog.at_level(logging.WARNING):
        assert read_behind(kafka, name, what)[0] == b"before"
    lines = [line for line in caplog.messages if name in line]
    assert lines == [] or (
        what == UNREADABLE and f"{name}-0 has a batch at offset 1 that can't be read" in "".join(lines)
    )
    assert (what == UNREADABLE) == bool(lines)


def test_a_reader_steps_over_a_batch_of_many_records(first_broker: KafkaBroker) -> None:
    name, read = first_broker.create_topic(), []
    first_broker.produce(
        name, [b"%d" % n * 50 for n in range(100)], partition=0, compression_type="zstd", linger_ms=200
    )
    (batch,) = batches_of(first_broker, name)
    damage(first_broker, name, batch.first, PAYLOAD)
    with contextlib.closing(
        Reader(state_topic(first_broker), lambda m: read.append(m.value()), "test-reader")
    ) as reader:
        reader.add({(name, 0): 0})

        def is_read() -> bool:
            """As a request that is sent again: the reader may have passed over those right behind the batch."""
            first_broker.produce(name, [b"behind"], partition=0)
            return b"behind" in read

        wait_until(is_read, what="what comes behind the batch is read")
    assert set(read) == {b"behind"}


def test_the_topics_between_hosts_take_no_batch_that_is_large_when_unpacked(first_broker: KafkaBroker) -> None:
    """A host that may configures those that somebody else made."""
    no_batch_is_large_when_unpacked(first_broker, timeout_s=120)
    for name in (REQUESTS, REPLIES):
        first_broker.produce(name, [bytes(PART_BYTES)], partition=0, compression_type="zstd")


# --- known mistakes


def an_open_transaction_holds_up_nobody(broker: KafkaBroker) -> None:
    read_behind(broker, broker.create_topic(), OPEN, timeout_s=10)


def an_unreadable_batch_holds_up_nobody(broker: KafkaBroker) -> None:
    read_behind(broker, broker.create_topic(), UNREADABLE, timeout_s=10)


def no_batch_is_large_when_unpacked(broker: KafkaBroker, timeout_s: float = 5) -> None:
    broker.create_topic(REQUESTS, partitions=PARTITIONS, compression_type="producer", max_message_bytes=10_000)
    ensure(state_topic(broker), TO_ASK)

    def is_refused(name: str) -> bool:
        """The broker takes up a topic's new configuration a moment after it has confirmed the change."""
        try:
            HOSTILE[UNREADABLE](broker, name)
        except BrokerError as error:
            return "MSG_SIZE_TOO_LARGE" in str(error)
        return False

    for name in (REQUESTS, REPLIES):
        wait_until(lambda name=name: is_refused(name), timeout_s=timeout_s, what=f"{name} refuses a large batch")  # type: ignore[misc]


SCENARIOS = [an_open_transaction_holds_up_nobody, an_unreadable_batch_holds_up_nobody, no_batch_is_large_when_unpacked]


@pytest.mark.slow
@pytest.mark.parametrize(("mistake", "scenario"), MISTAKES, ids=lambda each: getattr(each, "__name__", each))
def test_the_mistake_is_found(first_broker: KafkaBroker, monkeypatch: Any, mistake: Make, scenario: str) -> None:
    for name in (REQUESTS, REPLIES):
        with contextlib.suppress(KafkaException):
            first_broker.delete_topic(name)
    mistake(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        {each.__name__: each for each in SCENARIOS}[scenario](first_broker)
