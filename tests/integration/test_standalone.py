"""A standalone coordinator, started by the command line, with TLS, on a real broker: who gets in, its end."""

from __future__ import annotations

import contextlib
import os
import signal
import urllib.request
from pathlib import Path

import psutil
import pyarrow.flight as flight
import pytest

from coordinator.client.client import CoordinatorClient
from coordinator.client.connection import Connection, Tls
from coordinator.client.session import MemberSession
from coordinator.protocol.errors import (
    ConfigOutOfBounds,
    CoordinatorUnreachable,
    GroupIdNotFound,
    GroupMaxSizeReached,
    MaxGroupsReached,
    NotAuthorized,
    RequestTooLarge,
)
from coordinator.protocol.messages import DescribeGroup, NextPlan
from coordinator.protocol.wire import Endpoint, decode_answer
from coordinator.service.stores.sqlite_store import SqliteStore
from tests.support.ports import free_ports
from tests.support.standalone import (
    CERTIFICATE,
    KEY,
    TOKEN,
    Certificates,
    StandaloneProcess,
    sharegroup,
    two_coordinators,
    write_secret,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

CA = "share.coordinator.ssl.ca.location"
TOKEN_FILE = "share.coordinator.token.file"
MAX_BYTES = 65_536
SILENT = 300
NO_HANDSHAKE = "a connection without a TLS handshake was refused"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("standalone")


@pytest.fixture(scope="module")
def certificates(folder):
    return Certificates(folder)


@pytest.fixture(scope="module")
def coordinator(kafka, folder, certificates):
    """One for the module, whose tests attack it: that it goes on is what each of them shows."""
    running = StandaloneProcess(
        folder,
        {
            "bootstrap.servers": kafka.bootstrap,
            "share.state.store": f"sqlite:{folder / 'state.db'}",
            "share.coordinator.authentication.timeout.ms": 4_000,  # a friend on a busy machine needs some of it
            "socket.request.max.bytes": MAX_BYTES,
            "max.connections": SILENT // 2,
            "group.share.max.size": 2,
            "group.share.max.groups": 3,
            "group.share.max.session.timeout.ms": 3_000_000,
            "group.share.delivery.count.limit": 7,
            "group.share.max.record.lock.duration.ms": 60_000,
            "share.coordinator.metrics.port": free_ports(1)[0],
            **certificates.configs,
        },
    )
    with contextlib.closing(running):
        yield running.wait_ready()


@pytest.fixture
def connect(coordinator, certificates, monkeypatch):
    monkeypatch.delenv("SHAREGROUP_COORDINATOR_TOKEN", raising=False)
    clients = []

    def new(endpoint="", retry_timeout_s=60, **configs):
        options = {TOKEN_FILE: str(coordinator.token_file), CA: str(certificates.ca), **configs}
        options = {key: text for key, text in options.items() if text}
        client = CoordinatorClient.connect(
            "unused:1", {}, None, endpoint or coordinator.endpoint, configs=options, retry_timeout_s=retry_timeout_s
        )
        clients.append(client)
        return client

    yield new
    for client in clients:
        client.close()


@pytest.fixture
def connection(coordinator, certificates):
    host, port = coordinator.address
    endpoint = Endpoint(host=host, port=port, token=TOKEN, pid=0)
    with contextlib.closing(Connection(endpoint, Tls(roots=certificates.ca.read_bytes()))) as open_one:
        yield open_one


@pytest.fixture
def goes_on(connect, coordinator):
    """After the test: the same process answers, and its log is lines of JSON that hold no token."""
    yield
    assert answers(connect())
    assert coordinator.process.poll() is None
    assert coordinator.lines()
    assert TOKEN not in coordinator.log_path.read_text()


def answers(client):
    with pytest.raises(GroupIdNotFound):
        client.call(DescribeGroup(group_id="nobody"))
    return True


def raw(connection, name, body):
    options = flight.FlightCallOptions(headers=connection._headers, timeout=60)
    (answer,) = connection._client.do_action(flight.Action(name, body), options)
    return decode_answer(answer.body.to_pybytes())


def test_the_metrics_of_a_coordinator_can_be_scraped(coordinator, connect):
    assert answers(connect())
    (line,) = coordinator.said("metrics are shown at ")
    with urllib.request.urlopen(line.removeprefix("metrics are shown at "), timeout=30) as answer:
        scraped = answer.read().decode()
    assert 'share_coordinator_failed_requests_total{error="GroupIdNotFound",request="DescribeGroup"}' in scraped
    assert "process_resident_memory_bytes" in scraped
    assert TOKEN not in scraped


# --- who gets in


def test_a_member_joins_and_gets_records_over_tls(connect, coordinator, kafka, topic):
    orders = topic("orders")
    kafka.produce(orders, [str(number) for number in range(10)])
    client = connect()
    session = MemberSession(client, "billing", "m1", topics=(orders,), starting_offsets="earliest")
    (held,) = session.call(lambda who: NextPlan(**who, wait_ms=10_000)).plan.partitions
    assert [(r.first, r.last) for r in held.ranges] == [(0, 9)]
    assert client.endpoint_of("").pid == coordinator.process.pid
    session.close(leave=True)


def test_a_wrong_token_is_refused_by_name_at_once(connect, tmp_path, coordinator, goes_on):
    wrong = write_secret(tmp_path / "token", "not-" + TOKEN)
    for _ in range(3):
        with pytest.raises(NotAuthorized, match=r"share\.coordinator\.token\.file") as raised:
            connect(**{TOKEN_FILE: str(wrong)})
        assert TOKEN not in str(raised.value)
    assert len(coordinator.said("a call with")) == 1


@pytest.mark.slow
def test_plain_text_to_the_tls_port_is_refused_by_name(coordinator, connect, goes_on):
    for _ in range(3):
        with pytest.raises(CoordinatorUnreachable, match=r"both sides speak TLS or neither"):
            connect(retry_timeout_s=2, **{CA: ""})  # on loopback that is plain text
    wait_until(lambda: coordinator.said(NO_HANDSHAKE), what="a line is logged")  # by the thread that reads gRPC's lines
    assert len(coordinator.said(NO_HANDSHAKE)) == 1


def test_another_authority_is_refused_by_name(connect, tmp_path, goes_on):
    with pytest.raises(CoordinatorUnreachable, match=r"certificate verify failed"):
        connect(retry_timeout_s=2, **{CA: str(Certificates(tmp_path).ca)})


# --- what they may send


def test_an_oversized_request_is_refused_by_name(connection, coordinator, goes_on):
    for _ in range(3):
        with pytest.raises(RequestTooLarge, match=rf"{MAX_BYTES} at most"):
            raw(connection, "JoinGroup", b" " * (MAX_BYTES + 1))
    assert len(coordinator.said("a request was refused: RequestTooLarge")) == 1


def test_sessions_members_and_groups_have_the_bounds_of_its_properties(connect, topic, goes_on):
    client, orders = connect(), topic("orders")

    def join(group, member, **configs):
        opened.callback(MemberSession(client, group, member, topics=(orders,), configs=configs).close, leave=True)

    with contextlib.ExitStack() as opened:
        with pytest.raises(ConfigOutOfBounds, match="between 1000 and 3000000"):
            join("long", "m1", **{"share.session.timeout.ms": "3000001"})
        with pytest.raises(ConfigOutOfBounds, match=r"60000 \(group\.share\.min\.record\.lock\.duration\.ms"):
            join("long", "m1", **{"share.record.lock.duration.ms": "60001"})
        join("crowd", "m1", **{"share.record.lock.duration.ms": "60000"})
        join("crowd", "m2")
        described = client.call(DescribeGroup(group_id="crowd"))
        assert described.in_force == {"share.delivery.count.limit": "7"}, "and no bound changes a config"
        with pytest.raises(GroupMaxSizeReached, match=r"crowd has 2 members"):
            join("crowd", "m3")
        with pytest.raises(MaxGroupsReached, match=r"3 groups"):
            for number in range(4):
                join(f"more-{number}", "m1")


# --- floods


@pytest.mark.slow
def test_silent_connections_are_closed_and_other_clients_served(coordinator, connect, goes_on):
    client = connect()
    silent = [coordinator.connect() for _ in range(SILENT)]
    assert answers(client)
    assert [each.recv(1) for each in silent] == [b""] * SILENT
    for each in silent:
        each.close()
    assert answers(client)
    cut = coordinator.said("a connection of 127.0.0.1 was cut")
    assert 1 <= len(cut) <= 2  # silent for too long, and too many at once
    assert any("max.connections" in line for line in cut)


@pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 500, b"\x16\x03\x01\x02\x00" + os.urandom(600)])
def test_junk_ends_its_connection_and_its_log_lines_are_rate_limited(coordinator, junk, goes_on):
    before = len(coordinator.said(NO_HANDSHAKE))
    for _ in range(50):
        with contextlib.closing(coordinator.connect()) as stranger, contextlib.suppress(ConnectionError):
            stranger.sendall(junk)
            assert stranger.recv(7) != b"HTTP/2"
    assert len(coordinator.said(NO_HANDSHAKE)) <= before + 2


# --- health, and its end


def test_health_reports_readiness_by_its_exit_status(coordinator, certificates, tmp_path):
    options = ["--endpoint", coordinator.endpoint, "--token-file", coordinator.token_file]
    found = sharegroup("coordinator", "health", *options, "--ca", certificates.ca)
    assert (found.returncode, found.stdout.split(",")[0]) == (0, f"ready: pid {coordinator.process.pid}")
    found = sharegroup("coordinator", "health", *options)
    assert (found.returncode, found.stdout, found.stderr.count("\n")) == (1, "", 1)
    assert "CoordinatorUnreachable" in found.stderr


@pytest.fixture
def own(kafka, tmp_path, unique):
    """A coordinator of the test's own, without TLS."""
    running = []

    def start(**configs):
        given = {
            "bootstrap.servers": kafka.bootstrap,
            "share.state.store": f"sqlite:{tmp_path / 'state.db'}",
            **configs,
        }
        running.append(StandaloneProcess(tmp_path, given))
        return running[-1]

    yield start
    for each in running:
        each.close()


def test_a_coordinator_that_ends_hands_its_groups_to_the_other(kafka, tmp_path, topic, unique):
    with two_coordinators(tmp_path, kafka.bootstrap) as (running, client), contextlib.ExitStack() as stack:
        orders, group = topic("orders"), unique("billing")
        kafka.produce(orders, [str(number) for number in range(10)])
        session = MemberSession(client, group, "m1", topics=(orders,), starting_offsets="earliest")
        stack.callback(session.close)
        plan = session.call(lambda who: NextPlan(**who, wait_ms=10_000)).plan
        assert [(r.first, r.last) for p in plan.partitions for r in p.ranges] == [(0, 9)]
        (owner,) = [each for each in running if each.said(f"member joined: group={group} ")]
        assert owner.end() == 0
        assert session.call(lambda who: NextPlan(**who)).plan == plan


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_terminated_coordinator_releases_its_state_and_clients_find_the_next(own, tmp_path, topic, number):
    listener = {"share.coordinator.listener": f"127.0.0.1:{free_ports(1)[0]}"}
    first = own(**listener).wait_ready()
    configs = {TOKEN_FILE: str(first.token_file)}
    with contextlib.closing(CoordinatorClient.connect("unused:1", {}, None, first.endpoint, configs=configs)) as client:
        session = MemberSession(client, "billing", "m1", topics=(topic("orders"),))
        first.process.send_signal(number)
        assert first.process.wait(120) == 0
        assert [line["message"] for line in first.lines()][-2:] == [
            "the coordinator ends: it was told to",
            "the coordinator has ended",
        ]
        SqliteStore(Path(tmp_path / "state.db")).close()
        own(**listener).wait_ready()
        assert session.call(lambda who: NextPlan(**who)).plan.plan_id == ""
        session.close()


@pytest.mark.slow
def test_clients_leave_a_stopped_process_and_come_back(own):
    stopped = own().wait_ready()

    def client(retry_timeout_s):
        configs = {TOKEN_FILE: str(stopped.token_file)}
        return contextlib.closing(
            CoordinatorClient.connect(
                "unused:1", {}, None, stopped.endpoint, configs=configs, retry_timeout_s=retry_timeout_s
            )
        )

    with client(retry_timeout_s=5) as hasty, client(retry_timeout_s=60) as patient:
        assert answers(hasty)
        assert answers(patient)
        stopped.pause()
        with pytest.raises(CoordinatorUnreachable):
            hasty.call(DescribeGroup(group_id="nobody"))
        stopped.resume()
        assert answers(patient)


def test_tls_to_a_plain_port_is_refused_by_name(own, certificates):
    plain = own().wait_ready()
    configs = {TOKEN_FILE: str(plain.token_file), CA: str(certificates.ca)}
    with pytest.raises(CoordinatorUnreachable, match=r"wrong version number.*both sides speak TLS or neither"):
        CoordinatorClient.connect("unused:1", {}, None, plain.endpoint, configs=configs, retry_timeout_s=2)


def test_a_standalone_coordinators_failed_start_prints_one_line(own, tmp_path, coordinator):
    taken = own(**{"share.coordinator.listener": coordinator.endpoint})
    assert taken.process.wait(120) == 1
    (line,) = taken.lines()
    assert line["level"] == "ERROR"
    assert str(line["message"]).startswith("the coordinator failed: ListenerNotAvailable: Could not listen at ")
    assert "Address already in use" in str(line["message"])
    found = sharegroup("coordinator", "--config", taken.config)
    assert (found.returncode, found.stdout, found.stderr.count("\n")) == (1, "", 1)
    assert found.stderr.startswith("sharegroup: ListenerNotAvailable: ")


def test_a_secret_of_the_properties_file_is_visible_nowhere(own, certificates):
    secret = "s3cret-of-the-broker"
    running = own(**{"kafka.sasl.password": secret}, **certificates.configs).wait_ready()
    process = psutil.Process(running.process.pid)
    for text in (" ".join(process.cmdline()), running.log_path.read_text()):
        assert secret not in text
        assert TOKEN not in text
    assert {CERTIFICATE, KEY} <= set(certificates.configs)
    wait_until(lambda: running.said("the coordinator serves: "), what="it serves")
