"""The Flight server, over a real connection on loopback: tokens, errors by name, and bodies that nobody expects."""

import threading

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from coordinator.client.connection import Connection, Unreachable
from coordinator.protocol.admin_messages import DecideRecords
from coordinator.protocol.errors import (
    CoordinatorVersionMismatch,
    DataLoss,
    InternalError,
    InvalidRequest,
    RemoteError,
    ShareGroupError,
    error_from_wire,
)
from coordinator.protocol.format_versions import PROTOCOL, PROTOCOL_HEADER
from coordinator.protocol.messages import (
    Acknowledge,
    AcknowledgeReply,
    AcknowledgeRows,
    DescribeGroup,
    Done,
    Heartbeat,
    LeaveGroup,
)
from coordinator.protocol.rights import Tokens
from coordinator.protocol.wire import Endpoint, Healthy, decode_answer
from coordinator.service.server.acknowledged_rows import SCHEMA
from coordinator.service.server.flight_server import FlightServer
from tests.support.waiting import wait_until

TOKEN = "a-token"


class NobodyKnows(ShareGroupError):
    """Only the service has {this}."""


def handle(request):
    if isinstance(request, Heartbeat):
        return Done()
    if isinstance(request, LeaveGroup):
        raise DataLoss(group_id=request.group_id, count=3, ranges="orders-0 [1..3]")
    if isinstance(request, Acknowledge):
        return AcknowledgeReply(errors={f"{p.topic_id}:{p.partition}": str(len(p.batches)) for p in request.partitions})
    if request.group_id == "unknown":
        raise NobodyKnows(this="this class")
    raise ZeroDivisionError("a mistake of ours")


@pytest.fixture(scope="module")
def server():
    server = FlightServer(handle, TOKEN, version="0.1")
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


def raw(connection, name, body):
    options = flight.FlightCallOptions(headers=connection._headers, timeout=60)
    (answer,) = connection._client.do_action(flight.Action(name, body), options)
    return decode_answer(answer.body.to_pybytes())


def test_a_request_is_answered(connection):
    assert connection.call(HEARTBEAT) == Done()


def test_health_returns_the_version_of_the_server(connection):
    assert connection.check_health().version == "0.1"


def with_protocol(connection, header):
    """The connection of a client whose requests carry this header in place of ours."""
    connection._headers = [connection._headers[0], *([(PROTOCOL_HEADER.encode(), header)] if header else [])]
    return connection


ANOTHER = str(PROTOCOL + 1)


@pytest.mark.parametrize(
    ("header", "shown"),
    [(b"1", "1"), (ANOTHER.encode(), ANOTHER), (b"", "of no version"), (b"x" * 30, "x" * 20)],
)
def test_a_client_of_another_protocol_version_is_refused_by_name(connection, header, shown):
    with_protocol(connection, header)
    request = Acknowledge(group_id="g", member_id="m", member_epoch=1, partitions=())
    rows = pa.table({"x": [1]})
    for call in (lambda: connection.call(HEARTBEAT), lambda: connection.call_with_rows(request, rows)):
        told = rf"speaks protocol {PROTOCOL} .* this program protocol {shown}"
        with pytest.raises(CoordinatorVersionMismatch, match=told):
            call()


def test_a_coordinator_of_another_protocol_version_is_refused_by_name(server, connection, monkeypatch):
    """It answers Health whatever the client speaks, so that the client knows which version it is."""
    with_protocol(connection, b"7")
    assert connection.check_health().protocol == PROTOCOL
    monkeypatch.setattr(server, "_reply", lambda request, context: Healthy(pid=17, protocol=7, version="2.0"))
    told = rf"process 17.* protocol 7 \(sharegroup 2\.0\).*protocol {PROTOCOL}"
    with pytest.raises(CoordinatorVersionMismatch, match=told):
        connection.check_health()
    monkeypatch.setattr(server, "_reply", lambda request, context: Healthy(pid=17))
    with pytest.raises(CoordinatorVersionMismatch, match="protocol 0"):
        connection.check_health()


def test_a_health_check_does_not_count_as_activity(server, connection):
    connection.call(HEARTBEAT)
    idle_s = server.idle_s
    connection.check_health()
    assert server.idle_s > idle_s


def test_an_error_is_raised_at_the_client_with_class_and_fields(connection):
    with pytest.raises(DataLoss, match=r"Share group billing lost 3 record") as raised:
        connection.call(LeaveGroup(group_id="billing", member_id="m1", member_epoch=1))
    assert raised.value.fields == {"group_id": "billing", "count": 3, "ranges": "orders-0 [1..3]"}


def test_an_error_that_this_side_has_no_class_for_keeps_its_text():
    error = error_from_wire("FromTheFuture", {"this": 1}, "Only a newer version has this.")
    assert isinstance(error, RemoteError)
    assert "FromTheFuture: Only a newer version has this." in str(error)


def test_an_internal_error_is_raised_by_name_and_the_service_continues(connection):
    with pytest.raises(InternalError, match="DescribeGroup"):
        connection.call(DescribeGroup(group_id="billing"))
    assert connection.call(HEARTBEAT) == Done()


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


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("Heartbeat", b""),
        ("Heartbeat", b"{"),
        ("Heartbeat", b"\xff\x00\xfe"),
        ("Heartbeat", b"[]"),
        ("Heartbeat", b'{"type": "Heartbeat", "group_id": 7}'),
        ("Heartbeat", b'{"type": "LeaveGroup", "group_id": "g", "member_id": "m", "member_epoch": 1}'),
        ("Heartbeat", b"[" * 100_000),
        ("Done", b'{"type": "Done"}'),
        ("", b""),
        ("__class__", b"{}"),
    ],
)
def test_a_malformed_request_is_refused_by_name_and_the_service_continues(connection, name, body):
    with pytest.raises(InvalidRequest):
        raw(connection, name, body)
    assert connection.call(HEARTBEAT) == Done()


def test_a_stopped_server_raises_unreachable():
    gone = FlightServer(handle, TOKEN)
    where = endpoint(gone)
    gone.shutdown()
    connection = Connection(where)
    with pytest.raises(Unreachable):
        connection.call(HEARTBEAT)
    connection.close()


def test_no_repr_shows_the_token(server, connection):
    assert TOKEN not in f"{server!r} {connection!r} {endpoint(server)!r} {endpoint(server)}"


ROWS = AcknowledgeRows(group_id="billing", member_id="m1", member_epoch=1)


def test_an_action_carries_the_name_of_its_token_not_the_clients():
    asked = []
    tokens = Tokens.parse(f"admin alice:{TOKEN}-of-alice\nadmin:{TOKEN}-of-nobody", "the test")
    server = FlightServer(lambda request: asked.append(request) or Done(), tokens, version="0.1")
    action = DecideRecords(
        group_id="billing", decision="release", topic="orders", partition=0, first=1, last=1, by="bob", name="bob"
    )
    try:
        for who in ("alice", "nobody"):
            connection = Connection(endpoint(server, f"{TOKEN}-of-{who}"))
            connection.call(action)
            connection.close()
    finally:
        server.shutdown()
    assert [request.name for request in asked] == ["alice", ""]
    assert [request.by.partition(" from ")[0] for request in asked] == ["admin alice", "admin"]


def test_rows_come_beside_a_request(connection):
    rows = pa.table([["T", "T", "U"], [0, 0, 3], [7, 9, 1], [1, 1, 2], [1, 1, 3]], schema=SCHEMA)
    assert connection.call_with_rows(ROWS, rows) == AcknowledgeReply(errors={"T:0": "2", "U:3": "1"})


def test_bytes_that_are_no_rows_are_refused_and_service_continues(connection):
    with pytest.raises(InvalidRequest, match="columns"):
        connection.call_with_rows(ROWS, pa.table({"offset": [1]}))
    with pytest.raises(InvalidRequest, match=r"rows|ends before"):
        connection.call(ROWS)
    assert connection.call(HEARTBEAT) == Done()


def test_rows_need_the_token(server):
    stranger = Connection(endpoint(server, "another"))
    with pytest.raises(Unreachable):
        stranger.call_with_rows(ROWS, pa.table([[], [], [], [], []], schema=SCHEMA))
    stranger.close()


def test_who_answers_for_another_host_learns_that_the_client_is_gone():
    learned = threading.Event()

    def by_owner(name, body, head, call, here):
        assert not call.is_gone()
        wait_until(call.is_gone, what="the client's end")
        learned.set()
        return here()

    server = FlightServer(handle, TOKEN, by_owner=by_owner)
    connection = Connection(endpoint(server))
    try:
        with pytest.raises(Unreachable):
            connection.call(HEARTBEAT, 0.2)
        assert learned.wait(30)
    finally:
        connection.close()
        server.shutdown()
