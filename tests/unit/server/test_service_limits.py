"""Limits protect a coordinator: connections without a token are cut, floods are one line, requests are limited."""

import contextlib
import json
import logging
import os
import socket
import subprocess
import sys

import pytest

from coordinator.protocol.log_lines import JsonLines, TextLines
from coordinator.protocol.messages import Heartbeat
from coordinator.protocol.repeated_lines import INTERVAL_S, LogOnce
from coordinator.service.server.connection_limits import UnauthenticatedConnections, _of_grpc
from tests.support.imports import ROOT

PATIENCE_S = 10.0
HEARTBEAT = Heartbeat(group_id="billing", member_id="m1", member_epoch=1)


class Clock:
    """Seconds that a test lets pass."""

    def __init__(self):
        self.now_s = 1_000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def said(caplog):
    """A function that returns the lines which a LogOnce of this name has logged."""
    caplog.set_level(logging.INFO, logger="rate_limited")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "rate_limited"]


@pytest.fixture
def rate_limited(clock):
    return LogOnce(logging.getLogger("rate_limited"), clock)


# --- the log


def test_a_flood_logs_one_line_a_minute_with_its_count(rate_limited, clock, said):
    for _ in range(100):
        rate_limited.warn("token", "refused")
    rate_limited.warn("junk", "another kind")
    assert said() == ["refused", "another kind"]
    clock.now_s += INTERVAL_S
    rate_limited.warn("token", "refused")
    assert said()[2:] == ["refused (and 99 more of this kind since the last line)"]


def test_an_event_with_a_traceback_is_one_line():
    try:
        raise ZeroDivisionError("two\nlines")
    except ZeroDivisionError:
        record = logging.LogRecord("a.module", logging.ERROR, "", 1, "it %s", ("failed",), sys.exc_info())
    assert "\n" not in TextLines().format(record)
    line = json.loads(JsonLines().format(record))
    assert (line["level"], line["logger"], line["message"]) == ("ERROR", "a.module", "it failed")
    assert "ZeroDivisionError: two\nlines" in line["exception"]


def test_output_of_c_libraries_is_logged_and_the_descriptor_is_restored():
    program = (
        "import logging, os\n"
        "from coordinator.service.process.log_format import log_lines\n"
        "from coordinator.service.process.stderr_capture import StderrCapture\n"
        "from coordinator.protocol.repeated_lines import LogOnce\n"
        "native = StderrCapture(LogOnce(logging.getLogger('rate_limited')))\n"
        "with log_lines(native.stream, 'json'):\n"
        "    for _ in range(100):\n"
        "        os.write(2, b'I0000 00:00:17.7    90 ssl_x.cc:21] Handshake failed with error 7\\n')\n"
        "    os.write(2, b'a line of librdkafka\\n')\n"
        "    os.write(2, b'%0|17957.7|FATAL|producer-8| [main]: Fatal error: fenced by a newer instance: Failed\\n')\n"
        "    native.close()\n"
        "os.write(2, b'after\\n')\n"
    )
    found = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    *lines, after = found.stderr.splitlines()
    assert [json.loads(line)["message"] for line in lines] == [
        "a connection without a TLS handshake was refused: Handshake failed with error 7",
        "a line of librdkafka",
    ]
    assert after == "after"


def test_a_log_that_cannot_be_written_stops_no_thread():
    program = (
        "import logging\n"
        "from coordinator.service.process.stderr_capture import StderrCapture\n"
        "from coordinator.protocol.repeated_lines import LogOnce\n"
        "logging.getLogger().addHandler(logging.FileHandler('/dev/full'))\n"
        "native = StderrCapture(LogOnce(logging.getLogger('rate_limited')))\n"
        "for number in range(2_000):\n"
        "    logging.getLogger('a.module').warning('line %d of a full disk', number)\n"
        "native.close()\n"
        "print('goes on')\n"
    )
    found = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert found.stdout == "goes on\n"


def test_a_c_library_that_floods_under_the_interpreters_lock_stops_nothing():
    """As librdkafka does where it makes a client, with debug=all."""
    program = (
        "import ctypes, logging\n"
        "from coordinator.service.process.stderr_capture import StderrCapture\n"
        "from coordinator.protocol.repeated_lines import LogOnce\n"
        "logging.getLogger().addHandler(logging.NullHandler())\n"
        "native = StderrCapture(LogOnce(logging.getLogger('rate_limited')))\n"
        "lines = b'a line of librdkafka\\n' * 50\n"
        "for _ in range(1_000):\n"
        "    ctypes.PyDLL(None).write(2, lines, len(lines))\n"
        "native.close()\n"
        "print('goes on')\n"
    )
    found = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert found.stdout == "goes on\n"


# --- connections


@pytest.fixture
def door(rate_limited, clock):
    """UnauthenticatedConnections that looks when it is asked to, on a server that only accepts; and the connections to
    it."""
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as stack:
        keeper = UnauthenticatedConnections(
            server.getsockname()[1],
            rate_limited,
            set(),
            max_connections=3,
            patience_s=PATIENCE_S,
            clock=clock,
            look_s=3_600,
        )
        stack.callback(keeper.close)

        def connect():
            client = stack.enter_context(socket.create_connection(server.getsockname()))
            accepted = stack.enter_context(server.accept()[0])
            assert accepted.getpeername() == client.getsockname()
            return client

        keeper.connect = connect
        yield keeper


def peer(client):
    host, port = client.getsockname()
    return f"ipv4:{host}:{port}"


def wait_cut(client):
    """Until it is cut: the other end's word may take its time."""
    client.settimeout(60)
    assert client.recv(1) == b""


def is_open(client):
    client.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.recv(1)
    return True


def test_a_process_that_stood_still_cuts_no_client_that_waited(rate_limited, clock):
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as stack:
        port = server.getsockname()[1]
        keeper = UnauthenticatedConnections(
            port, rate_limited, set(), max_connections=3, patience_s=10, clock=clock, look_s=5
        )
        stack.callback(keeper.close)
        client = stack.enter_context(socket.create_connection(server.getsockname()))
        stack.enter_context(server.accept()[0])
        keeper.look()
        clock.now_s += 3_600
        keeper.look()
        assert is_open(client)
        clock.now_s += 5
        keeper.look()
        wait_cut(client)


def test_only_a_connection_without_a_token_is_cut_after_a_while(door, clock, said):
    silent, known = door.connect(), door.connect()
    door._greeted.add(peer(known))
    door.look()
    clock.now_s += PATIENCE_S - 1
    late = door.connect()
    door.look()
    assert is_open(silent)
    clock.now_s += 1
    door.look()
    wait_cut(silent)
    assert is_open(known) and is_open(late)
    assert said() == ["a connection of 127.0.0.1 was cut: it has not shown the token"]


def test_above_the_limit_the_oldest_silent_connections_are_closed_first(door, clock, said):
    known = door.connect()
    door._greeted.add(peer(known))
    silent = []
    for _ in range(4):
        silent.append(door.connect())
        door.look()
        clock.now_s += 0.1
    door.look()
    for each in silent[:2]:
        wait_cut(each)
    assert is_open(known) and all(is_open(each) for each in silent[2:])
    assert len(said()) == 1
    assert "max.connections=3" in said()[0]


def test_member_connections_above_the_limit_are_kept_and_logged(door, said):
    members = [door.connect() for _ in range(5)]
    for member in members:
        door._greeted.add(peer(member))
    door.look()
    assert all(is_open(member) for member in members)
    assert said() == ["5 connections with the token are open: more than max.connections"]


def test_a_closed_connections_address_is_no_longer_authenticated(door, clock):
    first = door.connect()
    door._greeted.add(peer(first))
    door.look()
    door._greeted.add("ipv4:127.0.0.1:1")  # gone before anybody looked
    door.look()
    assert door._greeted == {peer(first)}


def test_looking_leaves_every_other_descriptor_alone(door, clock):
    with socket.create_server(("127.0.0.1", 0)) as other, open(os.devnull) as file:
        mine = socket.create_connection(other.getsockname())
        before = set(os.listdir("/dev/fd"))
        silent = door.connect()
        door.look()
        clock.now_s += PATIENCE_S
        door.look()
        wait_cut(silent)
        assert is_open(mine)
        os.fstat(file.fileno())
        mine.close()
        assert len(set(os.listdir("/dev/fd"))) <= len(before) + 2  # the two ends of the connection


def test_peer_addresses_of_grpc_are_parsed():
    assert _of_grpc("ipv4:10.0.0.1:55") == ("10.0.0.1", 55)
    assert _of_grpc("ipv6:%5B::1%5D:55") == ("::1", 55)
    assert _of_grpc("ipv6:%5B::ffff:10.0.0.1%5D:55") == ("10.0.0.1", 55)
    assert _of_grpc("unix:") == ("", 0)
