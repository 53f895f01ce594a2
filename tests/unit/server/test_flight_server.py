"""The door for programs, over a real connection on loopback: its tokens, rows, and clients that are gone."""

import threading

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from coordinator.client.connection import Connection, Unreachable
from coordinator.protocol.errors import CoordinatorVersionMismatch
from coordinator.protocol.format_versions import PROTOCOL, PROTOCOL_HEADER
from coordinator.protocol.messages import AcknowledgeReply, AcknowledgeRows, Done, Heartbeat
from coordinator.protocol.wire import Endpoint, Healthy, encode
from coordinator.service.requests.acknowledged_rows import SCHEMA
from coordinator.service.requests.requests import Requests
from coordinator.service.server.flight_server import FlightServer
from tests.support.waiting import wait_until

TOKEN = "a-token"


def handle(request):
    if isinstance(request, Heartbeat):
        return Done()
    return AcknowledgeReply(errors={f"{p.topic_id}:{p.partition}": str(len(p.batches)) for p in request.partitions})


@pytest.fixture(scope="module")
def server():
    server = FlightServer(Requests(version="0.1").begin(handle), TOKEN)
    yield server
    server.shutdown()


def endpoint(server, token=TOKEN):
    return Endpoint(host="127.0.0.1", port=server.port, token=token, pid=1)


@pytest.fixture
def connection(server):
    connection = Connection(endpoint(server))
    yield connection
    connection.close()


HEARTBEAT = Heartbeat(group_id="billing", member_id="m1", member_epoch=1)


def test_health_returns_the_version_of_the_server(connection):
    assert connection.check_health().version == "0.1"


def with_protocol(connection, header):
    """The connection of a client whose requests carry this header in place of ours."""
    connection._headers = [connection._headers[0], *([(PROTOCOL_HEADER.encode(), header)] if header else [])]
    return connection


def test_a_coordinator_of_another_protocol_version_is_refused_by_name(server, connection, monkeypatch):
    """It answers Health whatever the client speaks, so that the client knows which version it is."""
    with_protocol(connection, str(PROTOCOL + 1).encode())
    assert connection.check_health().protocol == PROTOCOL
    monkeypatch.setattr(
        server._requests, "_here", lambda *_: encode(Healthy(pid=17, protocol=PROTOCOL + 1, version="2.0"))
    )
    told = rf"process 17.* protocol {PROTOCOL + 1} \(sharegroup 2\.0\).*protocol {PROTOCOL}"
    with pytest.raises(CoordinatorVersionMismatch, match=told):
        connection.check_health()
    monkeypatch.setattr(server._requests, "_here", lambda *_: encode(Healthy(pid=17)))
    with pytest.raises(CoordinatorVersionMismatch, match="protocol 0"):
        connection.check_health()


def test_a_health_check_does_not_count_as_activity(server, connection):
    connection.call(HEARTBEAT)
    idle_s = server._requests.idle_s
    connection.check_health()
    assert server._requests.idle_s > idle_s


@pytest.mark.parametrize("token", ["", "a-toke", "a-token2"])
@pytest.mark.parametrize("call", ["call", "check_health"])
def test_without_the_token_nothing_is_answered(server, token, call):
    stranger = Connection(endpoint(server, token))
    with pytest.raises(Unreachable, match="FlightUnauthenticatedError"):
        stranger.call(HEARTBEAT) if call == "call" else stranger.check_health()
    stranger.close()


def test_the_token_is_checked_for_every_kind_of_call(server):
    stranger = flight.FlightClient(f"grpc://127.0.0.1:{server.port}")
    descriptor = flight.FlightDescriptor.for_path("x")
    options = flight.FlightCallOptions(timeout=60)
    for call in (
        lambda: list(stranger.do_action(flight.Action("Health", b""), options)),
        lambda: list(stranger.list_flights(options=options)),
        lambda: stranger.get_flight_info(descriptor, options),
        lambda: stranger.do_get(flight.Ticket(b"x"), options).read_all(),
        lambda: list(stranger.list_actions(options)),
    ):
        with pytest.raises(flight.FlightUnauthenticatedError):
            call()
    stranger.close()


def test_a_stopped_server_raises_unreachable():
    gone = FlightServer(Requests().begin(handle), TOKEN)
    where = endpoint(gone)
    gone.shutdown()
    connection = Connection(where)
    with pytest.raises(Unreachable):
        connection.call(HEARTBEAT)
    connection.close()


ROWS = AcknowledgeRows(group_id="billing", member_id="m1", member_epoch=1)


def test_rows_come_beside_a_request(connection):
    rows = pa.table([["T", "T", "U"], [0, 0, 3], [7, 9, 1], [1, 1, 2], [1, 1, 3]], schema=SCHEMA)
    assert connection.call_with_rows(ROWS, rows) == AcknowledgeReply(errors={"T:0": "2", "U:3": "1"})


def test_who_answers_for_another_host_learns_that_the_client_is_gone():
    began, learned = threading.Event(), threading.Event()

    class Owners:
        def answered(self, name, body, head, asker, here):
            if not asker.is_gone():  # a busy machine may begin with it too late
                began.set()
                wait_until(asker.is_gone, what="the client's end")
                learned.set()
            return here()

    server = FlightServer(Requests().begin(handle, Owners()), TOKEN)
    connection = Connection(endpoint(server))
    try:
        for timeout_s in (0.2, 2.0, 20.0):
            with pytest.raises(Unreachable):
                connection.call(HEARTBEAT, timeout_s)
            if began.is_set():
                break
        assert learned.wait(60)
    finally:
        connection.close()
        server.shutdown()
