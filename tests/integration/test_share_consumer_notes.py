"""Reasons and delays of a ShareConsumer on a real broker, and its callbacks and its end when the broker dies."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from sharegroup import AcknowledgeType, ShareConsumer
from tests.support.kafka_broker import KafkaBroker
from tests.support.rejecting import read_all, said
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker


def consumer_of(broker: KafkaBroker, group: str, topic: str, **settings: Any) -> ShareConsumer:
    named = {key if key.endswith("_cb") else key.replace("_", "."): value for key, value in settings.items()}
    consumer = ShareConsumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "share.auto.offset.reset": "earliest",
            "share.acknowledgement.mode": "explicit",
            **named,
        }
    )
    consumer.subscribe([topic])
    return consumer


def polled(consumer: ShareConsumer, count: int) -> list[Any]:
    found: list[Any] = []
    wait_until(lambda: found.extend(consumer.poll(1.0)) or len(found) >= count, what=f"{count} records come")
    return found


def test_a_dead_letter_has_the_reason_and_a_delay_is_waited_for(kafka, topic, unique) -> None:
    orders, letters = topic(), topic()
    kafka.produce(orders, ["a", "b"])
    with consumer_of(kafka, unique("group"), orders, errors_deadletterqueue_topic_name=letters) as consumer:
        rejected, released = polled(consumer, 2)
        consumer.acknowledge(rejected, AcknowledgeType.REJECT, reason="no amount")
        consumer.acknowledge(released, AcknowledgeType.RELEASE, delay_ms=2_000)
        began_s = time.monotonic()
        assert list(consumer.commit_sync().values()) == [None]
        (again,) = polled(consumer, 1)
        assert again.offset() == 1
        assert time.monotonic() - began_s >= 2
        consumer.acknowledge(again)
    wait_until(lambda: [said(each) for each in read_all(kafka, letters)] == [("rejected", "no amount")])


def test_a_reject_that_was_not_sent_is_none(kafka, topic, unique) -> None:
    """The consumer dies with its outcomes: when the lock ends the record comes again, and there is no dead letter."""
    orders, letters, group = topic(), topic(), unique("group")
    configs = {"errors_deadletterqueue_topic_name": letters}
    kafka.produce(orders, ["a"])
    dies = consumer_of(kafka, group, orders, share_record_lock_duration_ms=3_000, **configs)
    dies.acknowledge(polled(dies, 1)[0], AcknowledgeType.REJECT, reason="no amount")
    with consumer_of(kafka, group, orders, share_record_lock_duration_ms=30_000, **configs) as other:
        (again,) = polled(other, 1)
        other.acknowledge(again)
        assert list(other.commit_sync().values()) == [None]
    assert read_all(kafka, letters) == []
    dies.close()


@pytest.mark.slow
def test_error_cb_is_told_of_a_killed_broker_and_close_ends(unique) -> None:
    told: set[tuple[str, int]] = set()
    with KafkaBroker() as broker:
        orders = broker.create_topic()
        broker.produce(orders, ["a", "b"])
        consumer = consumer_of(
            broker,
            unique("group"),
            orders,
            socket_timeout_ms=15_000,  # `close` waits that long
            error_cb=lambda error: told.add((error.name(), threading.get_ident())),
        )
        for message in polled(consumer, 2):
            consumer.acknowledge(message)
        broker.kill()
        here = threading.get_ident()
        wanted = {(name, here) for name in ("_TRANSPORT", "_ALL_BROKERS_DOWN")}
        wait_until(lambda: consumer.poll(0.2) is not None and wanted <= told, what="polls call error_cb")
        assert {thread for _, thread in told} == {here}
        consumer.close()
