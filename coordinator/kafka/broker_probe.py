"""Asks the listeners at the addresses of brokers what they are, and brokers again and again whether they answer.
Nothing of the cluster's topics is read, and nothing secret is sent."""

from __future__ import annotations

import logging
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from coordinator.kafka.librdkafka import new_client
from coordinator.protocol.errors import BrokerSpeaksOtherwise
from coordinator.protocol.repeated_lines import LogOnce

LISTENER_S = 0.8
"""A listener that has not answered for this many seconds counts as silent."""
LISTENERS_S = 2 * LISTENER_S
"""The listeners together are asked for up to this many seconds."""
_BROKER, _CONTROLLER, _SILENT = "broker", "controller", "silent"
_NAME_A_BROKER = "Name the port of a broker's Kafka listener in kafka.bootstrap.servers."
_ANSWERS = {
    "tls": ("in TLS", "Set kafka.security.protocol to SSL or SASL_SSL, or name the port of a listener without TLS."),
    "plain": (
        "without TLS",
        "Set kafka.security.protocol to PLAINTEXT or SASL_PLAINTEXT, or name the port of a listener with TLS.",
    ),
    _CONTROLLER: ("as a KRaft controller, which serves no clients", _NAME_A_BROKER),
    "HTTP": ("in HTTP", _NAME_A_BROKER),
}
"""By kind of listener: the words for it in an error, and the remedy."""
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""Kafka's request ApiVersions in its oldest version, to which each broker and controller answers before a login."""
_METADATA = 3
"""Kafka's request that each broker answers, and no controller."""
_MOST_BYTES = 4_096
_TLS_ALERT = 0x15
_KAFKA_PORT = 9092
"""librdkafka's port for an address without one."""

_log = logging.getLogger(__name__)
_once = LogOnce(_log)

PATIENCE_S = 2.0
"""Brokers that do not answer for this many seconds count as away."""
_TOPIC = "share-group-state"
"""The topic that brokers are asked about, whether it exists or not. Never ask them to describe the cluster: if the
answer has no broker, as while all are fenced, librdkafka 2.16.0 ends the process (facts.md, C18)."""
_AWAY = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)


def brokers_answer(config: Mapping[str, str]) -> Callable[[], bool]:
    """Returns a function that asks the brokers of this configuration, and returns whether a broker answers within
    PATIENCE_S. An error that a broker returns, such as a missing permission or topic, is an answer."""
    made: list[Any] = []

    def do_answer() -> bool:
        if not made:
            given = {"log_level": "0", "reconnect.backoff.max.ms": "1000", "reconnect.backoff.ms": "100", **config}
            made.append(new_client(AdminClient, given))
        try:
            asked = made[0].describe_topics(TopicCollection([_TOPIC]), request_timeout=PATIENCE_S)
            asked[_TOPIC].result(PATIENCE_S + 1)
        except KafkaException as error:
            return error.args[0].code() not in _AWAY
        except FutureTimeoutError:
            return False
        return True

    return do_answer


def listener_of_another_kind(addresses: str, protocol: str) -> BrokerSpeaksOtherwise | None:
    """Ask the listeners of bootstrap.servers what they are, in ``protocol`` (security.protocol). Returns an error if no
    address can be a broker's, or if one is a controller's, which librdkafka may ask for ever (seen); else None. A
    silent listener is named in the log: it may be a broker's that starts. It takes LISTENER_S, and longer for a host
    name that is slow to look up."""
    is_tls = protocol.upper().endswith("SSL")
    found: dict[str, str] = {}

    def ask(address: str) -> None:
        found[address] = _kind_of(address, is_tls=is_tls)

    named = sorted(named_addresses(addresses))
    threads = [threading.Thread(target=ask, args=(address,), daemon=True) for address in named]
    for thread in threads:
        thread.start()
    until_s = time.monotonic() + LISTENERS_S
    for thread in threads:
        thread.join(max(until_s - time.monotonic(), 0.0))
    for address, kind in found.copy().items():
        if kind == _SILENT:
            _once.warn(
                address,
                f"the listener at {address} takes connections and has answered nothing for {LISTENER_S} s: it is a "
                "broker that starts or hangs, or no Kafka listener",
            )
    kinds = {address: found.get(address, "") for address in named}
    others = [address for address in named if kinds[address] not in ("", _BROKER, _SILENT)]
    controllers = [address for address in named if kinds[address] == _CONTROLLER]
    wrong = controllers or (others if others == named else [])
    if not wrong:
        return None
    kind = kinds[wrong[0]]
    answer, instead = _ANSWERS.get(kind, (f'with the text "{kind}"', _NAME_A_BROKER))
    return BrokerSpeaksOtherwise(addresses=",".join(wrong), answer=answer, protocol=protocol, instead=instead)


def named_addresses(addresses: str) -> set[str]:
    """The addresses of bootstrap.servers as librdkafka names them: host:port, without a protocol."""
    hosts = [address.strip().rpartition("://")[2] for address in addresses.split(",") if address.strip()]
    return {host if re.search(r":\d+$", host) else f"{host}:{_KAFKA_PORT}" for host in hosts}


def _kind_of(address: str, *, is_tls: bool) -> str:
    """Returns "broker", "silent", a key of _ANSWERS, or the text with which the answer begins; empty if nobody listens
    there, or nothing is certain."""
    try:
        answer = _asked(address, is_tls=is_tls)
    except TimeoutError:
        return _SILENT
    except OSError:
        answer = b""
    if answer:
        return _kind_of_answer(answer)
    try:
        other = _asked(address, is_tls=not is_tls)  # a listener may only close a connection in another protocol
    except OSError:
        return ""
    if not is_tls:
        return "tls"
    kind = _kind_of_answer(other) if other else ""
    if kind == "tls":  # it answers an alert: it does speak TLS, and did not agree to this client's
        return ""
    return "plain" if kind == _BROKER else kind


def _asked(address: str, *, is_tls: bool) -> bytes:
    """Returns the answer to a request for the versions; empty if the listener closes the connection instead.

    Raises:
        TimeoutError: the listener took the connection, and answers nothing.
        OSError: nobody listens there, or the handshake failed."""
    host, _, port = address.rpartition(":")
    try:
        opened = socket.create_connection((host.strip("[]"), int(port)), timeout=LISTENER_S)
    except (OSError, ValueError) as error:
        raise ConnectionError(str(error)) from None
    with opened:
        if not is_tls:
            return _answer_of(opened)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing secret is sent
        with context.wrap_socket(opened, server_hostname=host.strip("[]")) as wrapped:
            return _answer_of(wrapped)


def _answer_of(connection: socket.socket) -> bytes:
    connection.settimeout(LISTENER_S / 2)
    connection.sendall(_API_VERSIONS)
    answer, wanted, is_ended = b"", 4, False
    try:
        while len(answer) < wanted:
            try:
                more = connection.recv(_MOST_BYTES)
            except TimeoutError:
                if answer or is_ended:
                    raise
                connection.sendall(b"\r\n\r\n")  # what answers line by line has a line now
                is_ended = True
                continue
            if not more:
                break
            answer += more
            wanted += struct.unpack(">i", answer[:4])[0] if wanted == 4 <= len(answer) else 0
            wanted = min(max(wanted, 4), _MOST_BYTES)
    except TimeoutError:
        if not answer:
            raise
    except OSError:  # as of a TLS listener that demands a certificate, after the handshake
        return b""
    return answer


def _kind_of_answer(answer: bytes) -> str:
    if answer[0] == _TLS_ALERT:
        return "tls"
    if (text := answer[:4]).isascii() and text.decode().isprintable():
        return text.decode()
    if len(answer) < 14 or struct.unpack(">ih", answer[4:10]) != (1, 0):
        return ""
    count = min(struct.unpack(">i", answer[10:14])[0], (len(answer) - 14) // 6)
    keys = {struct.unpack(">h", answer[at : at + 2])[0] for at in range(14, 14 + 6 * count, 6)}
    return _BROKER if _METADATA in keys else _CONTROLLER if keys else ""
