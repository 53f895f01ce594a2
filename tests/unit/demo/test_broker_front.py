"""The front of the broker in memory: its connections."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from sharegroup.demo import broker_front
from sharegroup.demo.embedded_broker import EmbeddedBroker


def test_no_answer_waits_until_the_one_before_has_been_acknowledged(
    embedded: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TCP keeps a second small answer back for some 40 ms otherwise, as the second of the two that this client asks for
    at once."""
    write, at_once = broker_front._write, set[bool]()

    def noted(writer: Any, content: bytes) -> None:
        connection = writer.get_extra_info("socket")
        at_once.add(bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
        write(writer, content)

    monkeypatch.setattr(broker_front, "_write", noted)
    embedded.create_topic("orders")
    with broker_front.fixed_port(0, embedded, "a cluster") as port:
        consumer = Consumer({"bootstrap.servers": f"localhost:{port}", "group.id": "a group", "log_level": 0})
        assert consumer.get_watermark_offsets(TopicPartition("orders", 0), 60) == (0, 0)
        consumer.close()
    assert at_once == {True}
