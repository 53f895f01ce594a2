"""A listener that is no broker's is named at each door by which a program or a person comes to brokers."""

import contextlib
import socket

import pytest
from confluent_kafka import KafkaException

from coordinator.kafka import broker_probe
from coordinator.kafka.broker_probe import listener_of_another_kind
from coordinator.kafka.cluster_metadata import cluster_metadata
from coordinator.protocol.errors import BrokerNotReachable, BrokerSpeaksOtherwise
from pyspark_sharegroup import DefaultSource
from share_sink.sink import open_sink
from sharegroup import Admin, ShareConsumer
from sharegroup.__main__ import run
from tests.support.listeners import Answer, Controller, Silence, listening
from tests.support.sink_rows import REQUIRED, schema
from tests.support.standalone import write_properties, write_secret


def loads(address, folder):
    DefaultSource({"kafka.bootstrap.servers": address, "kafka.group.id": "billing", "subscribe": "orders"}).schema()


def opens_a_sink(address, folder):
    open_sink({"kafka.bootstrap.servers": address, "kafka.group.id": "billing"}, schema(REQUIRED), overwrite=False)


def polls(address, folder):
    with contextlib.closing(ShareConsumer({"bootstrap.servers": address, "group.id": "billing"})) as consumer:
        consumer.subscribe(["orders"])
        while True:
            consumer.poll(1.0)


def administers(address, folder):
    Admin({"bootstrap.servers": address})


def types_a_command(address, folder):
    assert run(["groups", "--bootstrap-server", address, "--list"]) == 1


def starts_a_coordinator(address, folder):
    lines = {
        "bootstrap.servers": address,
        "share.coordinator.listener": "127.0.0.1:0",
        "share.coordinator.token.file": write_secret(folder / "token", "a-token-of-enough-characters"),
    }
    assert run(["coordinator", "--config", str(write_properties(folder / "coordinator.properties", lines))]) == 1


DOORS = {
    loads: "kafka.bootstrap.servers",
    opens_a_sink: "kafka.bootstrap.servers",
    polls: " bootstrap.servers",
    administers: " bootstrap.servers",
    types_a_command: "--bootstrap-server",
    starts_a_coordinator: " bootstrap.servers",
}
"""The doors, with the name that each has for the addresses."""


def said_by(door, address, folder, capsys):
    """What a door says of the listener: as an error, or as a command does."""
    try:
        door(address, folder)
    except BrokerSpeaksOtherwise as error:
        return str(error)
    except KafkaException as error:
        return error.args[0].str()
    return capsys.readouterr().err


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_a_controller_is_named_at_each_door_in_its_words(door, tmp_path, capsys):
    with listening(Controller, None) as address:
        said = said_by(door, address, tmp_path, capsys)
    assert f"The listener at {address} answers as a KRaft controller, which serves no clients" in said
    assert f"Name the port of a broker's Kafka listener in {DOORS[door].strip()}" in said
    assert "kafka.bootstrap" not in said or "kafka.bootstrap" in DOORS[door]


def test_a_controller_beside_a_broker_is_named_alone(embedded):
    with listening(Controller, None) as address:
        found = listener_of_another_kind(f"{address},{embedded.bootstrap_servers}", "PLAINTEXT")
    assert str(found).startswith(f"The listener at {address} answers as a KRaft controller")


def test_a_broker_beside_another_server_is_used(embedded):
    with listening(Answer, b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        servers = f"{address},{embedded.bootstrap_servers}"
        assert cluster_metadata(servers, {}).brokers
        assert listener_of_another_kind(servers, "PLAINTEXT") is None
    assert listener_of_another_kind("", "PLAINTEXT") is None


class Lines(contextlib.AbstractContextManager):
    """A connection to a server that answers when an empty line has come, and until then lets each wait time out."""

    sent = b""

    def __exit__(self, *_):
        pass

    def settimeout(self, seconds):
        pass

    def sendall(self, data):
        self.sent += data

    def recv(self, most):
        if not self.sent.endswith(b"\r\n\r\n"):
            raise TimeoutError
        return b"HTTP/1.1 400 Bad Request\r\n\r\n"


def test_a_server_that_answers_line_by_line_is_named(monkeypatch):
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: Lines())
    found = listener_of_another_kind("127.0.0.1:80", "PLAINTEXT")
    assert found is not None and "answers in HTTP" in str(found)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_silent_listener_is_logged_and_ends_the_wait(protocol, caplog, monkeypatch):
    monkeypatch.setattr(broker_probe, "LISTENER_S", 0.2)
    with listening(Silence, None) as address:
        assert listener_of_another_kind(address, protocol) is None
        with pytest.raises(BrokerNotReachable) as raised:
            cluster_metadata(address, {"security.protocol": protocol}, timeout_s=1)
    assert type(raised.value) is BrokerNotReachable
    (line, *_) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"the listener at {address} takes connections and has answered nothing")


def test_a_listener_that_refuses_this_clients_tls_is_no_other_kind():
    """It answers anything with an alert, as one that wants a client's certificate."""
    with listening(Answer, b"\x15\x03\x03\x00\x02\x02\x28") as address:
        assert listener_of_another_kind(address, "SSL") is None
        assert listener_of_another_kind(address, "PLAINTEXT") is not None


def test_a_broker_without_tls_is_named_to_a_client_with_tls(embedded):
    found = listener_of_another_kind(embedded.bootstrap_servers, "SASL_SSL")
    assert found is not None and "answers without TLS" in str(found)
    assert listener_of_another_kind(embedded.bootstrap_servers, "SASL_PLAINTEXT") is None
