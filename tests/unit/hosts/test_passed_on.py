"""The server's requests of this host go to the owner of their group; those of another host are answered here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from coordinator.config.resolved import ServerConfig
from coordinator.protocol.format_versions import PROTOCOL
from coordinator.protocol.messages import DescribeGroup, Done, Heartbeat
from coordinator.protocol.rights import Caller
from coordinator.protocol.wire import StepDown, encode
from coordinator.service.hosts.owner_requests import OF_ADMINISTRATORS, OF_MEMBERS
from coordinator.service.server.flight_server import Call, FlightServer

HEARTBEAT = Heartbeat(group_id="billing", member_id="m1", member_epoch=1)


class Asked:
    """A server. ``passed_on``, ``handled``, ``left``: what it did with requests, and why it was to leave."""

    def __init__(self) -> None:
        self.passed_on: list[str] = []
        self.handled: list[Any] = []
        self.left: list[str] = []
        self.server = FlightServer(self._handle, "t", step_down=self.left.append, by_owner=self._by_owner)

    def asks(self, request: Any, from_host: str | None = None) -> None:
        """A request of this host, or of another one."""
        call = Call(Caller(), "a peer", str(PROTOCOL), from_host=from_host)
        self.server.answer(type(request).__name__, pa.py_buffer(encode(request)), call)

    def _handle(self, request: Any) -> Done:
        self.handled.append(request)
        return Done()

    def _by_owner(self, name: str, *_: Any) -> bytes:
        self.passed_on.append(name)
        return encode(Done())


@contextlib.contextmanager
def serving() -> Iterator[Asked]:
    asked = Asked()
    try:
        yield asked
    finally:
        asked.server.shutdown()


def test_a_request_of_this_host_goes_to_the_owner() -> None:
    with serving() as asked:
        asked.asks(HEARTBEAT)
        assert (asked.passed_on, asked.handled) == (["Heartbeat"], [])


def test_a_request_of_another_host_is_not_passed_on_again() -> None:
    with serving() as asked:
        asked.asks(HEARTBEAT, "two")
        assert (asked.passed_on, asked.handled) == ([], [HEARTBEAT])


def test_no_other_host_ends_a_coordinator() -> None:
    with serving() as asked:
        asked.asks(StepDown(reason="two says so"), "two")
        assert not asked.left
        asked.asks(StepDown(reason="a newer one is here"))
        assert asked.left == ["a newer one is here"]


def test_what_concerns_this_process_alone_is_not_passed_on() -> None:
    with serving() as asked:
        asked.asks(StepDown(reason="r"))
        assert not asked.passed_on


def test_other_hosts_requests_leave_room_for_this_hosts() -> None:
    """Each request is asked for while those before it are handled. Rights of other hosts have a room each."""
    ours, members, administrators = (None, Caller()), ("two", OF_MEMBERS), ("two", OF_ADMINISTRATORS)
    left, refused = [*[members] * 3, *[administrators] * 3, *[ours] * 5], []

    def handle(request: Any) -> Done:
        while left:
            host, caller = left.pop(0)
            call = Call(caller, "a peer", str(PROTOCOL), from_host=host)
            look = encode(DescribeGroup(group_id="billing"))
            if b"CoordinatorOverloaded" in server.answer(DescribeGroup.__name__, pa.py_buffer(look), call):
                refused.append(caller)
        return Done()

    server = FlightServer(handle, "t", limits=ServerConfig.parse({"queued.max.requests": "4"}))
    try:
        handle(None)
    finally:
        server.shutdown()
    assert refused == [OF_MEMBERS, OF_ADMINISTRATORS, Caller()]
