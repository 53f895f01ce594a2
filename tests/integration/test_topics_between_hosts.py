"""The clients of the topics between hosts, on a broker that is killed and whose topics are deleted and made again."""

from __future__ import annotations

import contextlib
import uuid

import pytest

from coordinator.protocol.host_records import REPLIES, Echo, headers_of_reply, read_reply
from coordinator.service.hosts.records import Reader, Writer
from coordinator.service.hosts.topics import TO_ASK, ensure
from tests.support.kafka_broker import KafkaBroker
from tests.support.state_topics import state_topic
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker


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
