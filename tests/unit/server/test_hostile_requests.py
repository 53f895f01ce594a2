"""Bodies that nobody should send, to a real server in a process of its own: each gets a named error, the process lives,
its groups stay in memory, and its memory stays bounded."""

import contextlib
import itertools
import os
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.client.connection import Connection
from coordinator.protocol import outcome_rows
from coordinator.protocol.admin_messages import DeleteGroup, ReleaseMember
from coordinator.protocol.errors import (
    CoordinatorNotAvailable,
    GroupIdNotFound,
    InternalError,
    InvalidRequest,
    ShareGroupError,
)
from coordinator.protocol.messages import (
    AcknowledgeRows,
    DescribeGroup,
    Heartbeat,
    Joined,
    JoinGroup,
    NextPlan,
    StageOutcomes,
    StartPlan,
)
from coordinator.protocol.request_rows import body_with_rows
from coordinator.protocol.wire import WITH_ROWS, _requests, decode_answer, encode
from coordinator.service.requests import acknowledged_rows
from tests.support.hostile_requests import USUAL, bodies, mutated
from tests.support.hostile_server import HostileServer
from tests.support.waiting import wait_until

MINUTES = float(os.environ.get("HOSTILE_MINUTES", "60"))
NAMES = sorted(set(_requests) - {"StepDown"})
STAGE = StageOutcomes(group_id="billing", query_id="q", batch_id=0)
ACKS = AcknowledgeRows(group_id="billing", member_id="m1", member_epoch=1)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = HostileServer(tmp_path_factory.mktemp("hostile"))
    try:
        hold_records(server)
        yield server
        server.check()
    finally:
        server.close()


def hold_records(server: HostileServer) -> str:
    """The plan that member m1 of a new group billing reads: so there is something to do harm to."""
    join = JoinGroup(
        group_id="billing", member_id="m1", process_id="p1", topics=("orders",), starting_offsets="earliest"
    )

    def joined() -> Joined | None:
        try:
            return server.connection.call(join)
        except CoordinatorNotAvailable:  # a slow disk: the process was blocked, and accepts no groups yet
            return None

    with contextlib.suppress(GroupIdNotFound):
        for member in server.connection.call(DescribeGroup(group_id="billing")).members:
            server.connection.call(ReleaseMember(group_id="billing", member_id=member.member_id, execute=True))
        server.connection.call(DeleteGroup(group_id="billing", execute=True, force=True))
    epoch = wait_until(joined, what="the member has joined").member_epoch
    plan = server.connection.call(NextPlan(group_id="billing", member_id="m1", member_epoch=epoch, max_records=10)).plan
    server.connection.call(StartPlan(group_id="billing", member_id="m1", member_epoch=epoch, plan_id=plan.plan_id))
    return plan.plan_id


def answer(connection: Connection, name: str, body: Any) -> Any:
    """The reply to raw bytes, or its named error; another exception fails the test."""
    options = flight.FlightCallOptions(headers=connection._headers, timeout=60)
    (found,) = connection._client.do_action(flight.Action(name, body), options)
    failed: ShareGroupError | None = None
    try:
        return decode_answer(found.body.to_pybytes())
    except ShareGroupError as error:
        failed = error
    assert not isinstance(failed, InternalError), (name, bytes(body)[:2000], str(failed))
    return failed


def still_serves(server: HostileServer) -> None:
    server.check()
    beat = Heartbeat(group_id="billing", member_id="m1", member_epoch=1)
    assert isinstance(answer(server.connection, "Heartbeat", encode(beat)), (Joined, ShareGroupError))


# --- rows


def strings(offsets: list[int], data: bytes, *, valid: bytes | None = None) -> pa.Array:
    """A column of texts with these offsets in these bytes, which Arrow does not check here."""
    buffers = [
        None if valid is None else pa.py_buffer(valid),
        pa.py_buffer(np.array(offsets, np.int32)),
        pa.py_buffer(data),
    ]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


def outcomes(**columns: Any) -> pa.Table:
    """Two outcomes, of which these columns are others."""
    made: dict[str, Any] = {
        "topic": ["orders", "orders"],
        "partition": [0, 0],
        "first": [0, 1],
        "last": [0, 1],
        "delivery_count": [1, 1],
        "outcome": [1, 1],
        "delay_ms": [None, None],
        "dead_letter": [False, False],
        "reason": [None, None],
        **columns,
    }
    arrays = [
        c if isinstance(c, pa.Array) else pa.array(c, f.type)
        for c, f in zip(made.values(), outcome_rows.SCHEMA, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=outcome_rows.SCHEMA)


def acks(**columns: Any) -> pa.Table:
    made = {
        "topic_id": ["T", "T"],
        "partition": [0, 0],
        "offset": [0, 1],
        "delivery_count": [1, 1],
        "acknowledge_type": [1, 1],
    }
    arrays = [
        c if isinstance(c, pa.Array) else pa.array(c, f.type)
        for c, f in zip({**made, **columns}.values(), acknowledged_rows.SCHEMA, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=acknowledged_rows.SCHEMA)


FAR = 2**31 - 1
DAMAGED = {
    "a topic beyond its data": (STAGE, outcomes(topic=strings([0, FAR, 12], b"ordersorders"))),
    "a topic of negative length": (STAGE, outcomes(topic=strings([6, 0, 12], b"ordersorders"))),
    "a reason that holds the memory after it": (
        STAGE,
        outcomes(reason=strings([0, 4000, 12], b"reasonreason", valid=b"\x01")),
    ),
    "a topic that is no UTF-8": (STAGE, outcomes(topic=strings([0, 6, 12], b"\xff" * 12))),
    "a topic id beyond its data": (ACKS, acks(topic_id=strings([0, FAR, 12], b"topic1topic2"))),
    "a topic id at negative offsets": (ACKS, acks(topic_id=strings([0, -5, 12], b"topic1topic2"))),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_rows_are_refused_by_name_and_show_no_memory(server, damage):
    request, rows = DAMAGED[damage]
    with pytest.raises(InvalidRequest, match="no valid Arrow record batches") as raised:
        server.connection.call_with_rows(request, rows)
    assert len(str(raised.value)) < 300
    still_serves(server)


def test_compressed_rows_are_refused_before_they_are_decompressed(server):
    zeros = np.zeros(8_000_000, np.int64)
    columns = {
        name: pa.array(zeros).cast(outcome_rows.SCHEMA.field(name).type) for name in ("partition", "first", "last")
    }
    rows = outcomes(
        topic=pa.array([""] * len(zeros)),
        **columns,
        delivery_count=pa.array(zeros).cast(pa.int32()),
        outcome=pa.array(zeros).cast(pa.int8()),
        delay_ms=pa.array(zeros),
        dead_letter=pa.array(zeros).cast(pa.bool_()),
        reason=pa.array([None] * len(zeros), pa.string()),
    )
    text, sink = encode(STAGE), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(rows)
    body = len(text).to_bytes(4, "little") + text + sink.getvalue().to_pybytes()
    before_mb = server.peak_mb
    refused = answer(server.connection, "StageOutcomes", body)
    assert isinstance(refused, InvalidRequest), refused
    assert "compressed" in str(refused)
    assert server.peak_mb - before_mb < 50, f"of {rows.nbytes >> 20} MiB, in {len(body)} bytes"


def test_rows_that_overlap_each_other_take_bounded_memory(server):
    n = 20_000
    rows = outcomes(
        topic=["orders"] * n,
        partition=[0] * n,
        first=range(n),
        last=[3 * n - i for i in range(n)],
        delivery_count=[1] * n,
        outcome=[1] * n,
        delay_ms=[None] * n,
        dead_letter=[False] * n,
        reason=[None] * n,
    )
    before_mb = server.peak_mb
    with pytest.raises(InvalidRequest, match="overlap"):
        server.connection.call_with_rows(STAGE, rows)
    assert server.peak_mb - before_mb < 200


def test_streams_of_flight_are_not_served(server):
    """They would be decoded before any code of ours could look at them."""
    client, options = (
        server.connection._client,
        flight.FlightCallOptions(headers=server.connection._headers, timeout=60),
    )
    for open_stream in (
        lambda: client.do_exchange(flight.FlightDescriptor.for_command(b"x"), options)[1].read_chunk(),
        lambda: client.do_put(flight.FlightDescriptor.for_command(b"x"), outcome_rows.SCHEMA, options)[0].close(),
        lambda: client.do_get(flight.Ticket(b"x"), options).read_all(),
    ):
        with pytest.raises((NotImplementedError, flight.FlightError, pa.ArrowException)):
            open_stream()
    still_serves(server)


# --- fuzzing


def sent_as(name: str, plan_id: str) -> st.SearchStrategy[tuple[str, bytes]]:
    """The name of a request, and a body: of its shape, or mutated."""
    whole = bodies(_requests[name], {**USUAL, "plan_id": [plan_id], "start": [plan_id]}).map(
        lambda body: _framed(name, body)
    )
    rows = [mutated(ROWS[name])] if name in WITH_ROWS else []
    return st.tuples(st.just(name), st.one_of(whole, whole, whole, whole.flatmap(mutated), *rows))


def _framed(name: str, body: bytes) -> bytes:
    if name not in WITH_ROWS:
        return body
    table = outcomes() if name == "StageOutcomes" else acks()
    return body_with_rows(body, table).to_pybytes()


ROWS = {
    "StageOutcomes": body_with_rows(encode(STAGE), outcomes(reason=["why", None])).to_pybytes(),
    "AcknowledgeRows": body_with_rows(encode(ACKS), acks()).to_pybytes(),
}


def send(server: HostileServer, name: str, examples: int) -> None:
    """Send bodies of this request to a group that holds records, each body once."""
    plan_id = hold_records(server)

    @settings(max_examples=examples)
    @given(sent_as(name, plan_id))
    def sends(sent: tuple[str, bytes]) -> None:
        answer(server.connection, *sent)

    sends()
    still_serves(server)


@pytest.mark.parametrize("name", NAMES)
def test_any_body_gets_a_reply_or_a_named_error(server, name):
    send(server, name, 50 if name in {*WITH_ROWS, "DecideRecords"} else 15)


def test_after_all_of_it_the_server_serves_with_bounded_memory(server):
    still_serves(server)
    assert server.peak_mb < 700


@pytest.mark.soak
@pytest.mark.timeout(MINUTES * 60 + 300)
def test_an_hour_of_bodies_that_nobody_should_send(server):
    """HOSTILE_MINUTES sets how long it runs."""
    until_s = time.monotonic() + MINUTES * 60
    for name in itertools.cycle(NAMES):
        if time.monotonic() > until_s:
            break
        send(server, name, 200)
        assert server.peak_mb < 1_500
