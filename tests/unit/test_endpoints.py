"""A client of standalone coordinators: any of them says who serves a group, and a move is found out by asking again."""

from __future__ import annotations

import contextlib
import socket

import pyarrow as pa
import pytest
import tenacity

from coordinator.admin.admin import Admin
from coordinator.client import client as client_module
from coordinator.client import connection as connection_module
from coordinator.client.client import CoordinatorClient
from coordinator.client.connection import Refused, Unreachable
from coordinator.client.endpoints import Endpoints
from coordinator.protocol.addresses import parse_endpoint, parse_endpoints
from coordinator.protocol.errors import (
    CoordinatorNotAvailable,
    CoordinatorUnreachable,
    CoordinatorVersionMismatch,
    GroupIdNotFound,
    NotAuthorized,
    NotCoordinator,
    TokenMissing,
)
from coordinator.protocol.format_versions import PROTOCOL
from coordinator.protocol.messages import DescribeGroup, Done, GroupDescription, OutcomesStaged, StageOutcomes
from coordinator.protocol.outcome_rows import SCHEMA
from coordinator.service.server.flight_server import FlightServer

TOKEN = "the-token-of-this-fleet"


class Fleet:
    """Servers that know by `owner` which of them serves a group; each answers its own address as a group's state."""

    def __init__(self, size: int) -> None:
        self.owner: dict[str, str] = {}
        self.asked: list[str] = []
        self.out_of_touch = ""
        self.find = self._find
        self.servers = [
            FlightServer(self._handler(number), TOKEN, find=lambda group_id: self.find(group_id))
            for number in range(size)
        ]
        self.addresses = [server.address for server in self.servers]

    def _handler(self, number):
        def handle(request):
            if not isinstance(request, (DescribeGroup, StageOutcomes)):
                return Done()
            mine = self.addresses[number]
            if mine == self.out_of_touch:
                raise CoordinatorNotAvailable(group_id=request.group_id, reason="it hears nothing of its fleet")
            if self.owner.get(request.group_id) != mine:
                raise NotCoordinator(what=request.group_id)
            if isinstance(request, StageOutcomes):
                return OutcomesStaged(staged=len(request.partitions[0].runs), stale_sample=(mine,))
            return GroupDescription(group_id=request.group_id, state=mine, incarnation="i")

        return handle

    def _find(self, group_id):
        self.asked.append(group_id)
        if group_id not in self.owner:
            raise CoordinatorNotAvailable(group_id=group_id, reason="nobody has it yet")
        return self.owner[group_id]

    def client(self, *addresses, token=TOKEN, retry_timeout_s=60.0):
        given = addresses or tuple(self.addresses)
        directory = Endpoints(addresses=tuple(map(parse_endpoint, given)), token=token)
        return contextlib.closing(CoordinatorClient(directory, retry_timeout_s=retry_timeout_s))

    def close(self):
        for server in self.servers:
            server.shutdown()


@pytest.fixture
def fleet():
    with contextlib.closing(Fleet(3)) as running:
        yield running


@pytest.fixture
def nobody():
    """An address that nobody listens at."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def served_by(client, group_id):
    return client.call(DescribeGroup(group_id=group_id)).state


def test_any_coordinator_names_the_owner_of_a_group_and_is_asked_once(fleet):
    fleet.owner = {"billing": fleet.addresses[2], "mail": fleet.addresses[1]}
    with fleet.client(fleet.addresses[0]) as client:
        for _ in range(3):
            assert served_by(client, "billing") == fleet.addresses[2]
            assert served_by(client, "mail") == fleet.addresses[1]
    assert sorted(fleet.asked) == ["billing", "mail"]


def test_a_group_that_moved_is_found_again_without_requests_for_other_groups(fleet):
    fleet.owner = dict.fromkeys(("billing", "mail"), fleet.addresses[0])
    with fleet.client() as client:
        assert served_by(client, "billing") == served_by(client, "mail") == fleet.addresses[0]
        fleet.owner["billing"] = fleet.addresses[1]
        assert served_by(client, "billing") == fleet.addresses[1]
        assert served_by(client, "mail") == fleet.addresses[0]
    assert fleet.asked.count("mail") == 1


def test_a_sinks_rows_follow_a_group_that_moved(fleet):
    fleet.owner = {"billing": fleet.addresses[0]}
    row = {
        "topic_id": "T",
        "partition": 0,
        "first": 1,
        "last": 2,
        "delivery_count": 1,
        "outcome": 3,
        "dead_letter": True,
    }
    rows = pa.Table.from_pylist([row], schema=SCHEMA)
    with fleet.client() as client:
        for address in fleet.addresses[:2]:
            fleet.owner = {"billing": address}
            staged = client.call_with_rows(StageOutcomes(group_id="billing"), rows)
            assert staged == OutcomesStaged(staged=1, stale_sample=(address,))


def test_an_owner_without_its_fleet_is_not_asked_for_ever(fleet):
    fleet.owner["billing"] = fleet.addresses[0]
    with fleet.client() as client:
        assert served_by(client, "billing") == fleet.addresses[0]
        fleet.out_of_touch = fleet.addresses[0]
        fleet.owner["billing"] = fleet.addresses[1]
        assert served_by(client, "billing") == fleet.addresses[1]


def test_after_a_coordinators_death_the_next_owner_is_asked(fleet):
    fleet.owner["billing"] = fleet.addresses[0]
    with fleet.client() as client:
        assert served_by(client, "billing") == fleet.addresses[0]
        fleet.servers[0].shutdown()
        fleet.owner["billing"] = fleet.addresses[1]
        assert served_by(client, "billing") == fleet.addresses[1]


def test_silent_addresses_are_skipped(fleet, nobody):
    fleet.owner["billing"] = fleet.addresses[0]
    for _ in range(4):  # the order of asking is drawn
        with fleet.client(nobody, fleet.addresses[1]) as client:
            assert served_by(client, "billing") == fleet.addresses[0]


def test_a_group_without_an_owner_is_waited_for_in_bounded_time(fleet):
    with fleet.client(retry_timeout_s=0.5) as client:
        with pytest.raises(CoordinatorNotAvailable, match="nobody has it yet"):
            served_by(client, "billing")
        fleet.owner["billing"] = fleet.addresses[1]
        assert served_by(client, "billing") == fleet.addresses[1]


def test_a_group_that_is_always_elsewhere_ends_in_bounded_time(fleet):
    fleet.owner["billing"] = fleet.addresses[0]
    fleet.find = lambda _: fleet.addresses[1]
    with fleet.client(retry_timeout_s=0.5) as client, pytest.raises(NotCoordinator):
        served_by(client, "billing")


def test_an_error_of_the_group_asks_no_other_coordinator(fleet):
    def refuse(group_id):
        fleet.asked.append(group_id)
        raise GroupIdNotFound(group_id=group_id)

    fleet.find = refuse
    with fleet.client() as client, pytest.raises(GroupIdNotFound):
        served_by(client, "billing")
    assert fleet.asked == ["billing"]


def test_the_error_of_an_unreachable_coordinator_names_its_addresses_and_tls(fleet, nobody):
    with (
        fleet.client(nobody, retry_timeout_s=0.2) as client,
        pytest.raises(CoordinatorUnreachable, match=rf"answers at {nobody} .*both sides speak TLS"),
    ):
        served_by(client, "billing")


@pytest.mark.parametrize(("others", "kind"), [([], Refused), ([Unreachable("no answer")], Unreachable)])
def test_an_unknown_host_is_certain_only_if_no_other_may_answer(monkeypatch, others, kind):
    errors = [*others, Refused("Domain name not found")]
    endpoints = Endpoints(addresses=tuple(("host", port) for port in range(1, len(errors) + 1)), token=TOKEN)

    def ask(self, address, group_id):
        raise errors[address[1] - 1]

    monkeypatch.setattr(Endpoints, "_ask", ask)
    for _ in range(10):  # the addresses are asked in any order
        with pytest.raises(Unreachable) as raised:
            endpoints.connect()
        assert type(raised.value) is kind


def test_a_wrong_token_is_not_tried_again(fleet):
    fleet.owner["billing"] = fleet.addresses[0]
    with fleet.client(token="another-token-altogether", retry_timeout_s=3_600) as client:
        with pytest.raises(NotAuthorized, match="SHAREGROUP_COORDINATOR_TOKEN") as raised:
            served_by(client, "billing")
        assert "another-token" not in f"{raised.value} {client!r} {client._directory!r}"


def test_a_missing_token_is_raised_before_any_request(monkeypatch):
    monkeypatch.delenv("SHAREGROUP_COORDINATOR_TOKEN", raising=False)
    with pytest.raises(TokenMissing):
        CoordinatorClient.connect("unused:1", {}, None, "127.0.0.1:1")


@pytest.mark.parametrize("group_id", ["", "billing"])
def test_a_client_of_another_protocol_is_refused_by_name(fleet, monkeypatch, group_id):
    """By itself where it asks for Health, else by the coordinator."""
    monkeypatch.setattr(connection_module, "PROTOCOL", 99)
    fleet.owner["billing"] = fleet.addresses[0]
    spoken = rf"speaks protocol {PROTOCOL} .*this program protocol 99.*upgrade"
    with pytest.raises(CoordinatorVersionMismatch, match=spoken):
        Endpoints(addresses=parse_endpoints(fleet.addresses[0]), token=TOKEN).connect(group_id)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1"])
def test_on_loopback_plain_text_is_spoken_and_elsewhere_tls(host):
    directory = Endpoints(addresses=((host, 1),), token=TOKEN)
    assert directory.tls_of(host) is None
    assert directory.tls_of("coordinator.example") is not None
    assert directory.tls_of("192.0.2.7") is not None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a:1", (("a", 1),)),
        (" a:1 ,b.c-d:65535", (("a", 1), ("b.c-d", 65535))),
        ("[::1]:9394", (("::1", 9394),)),
        ("a", None),
        ("a:", None),
        (":1", None),
        ("a:0", None),
        ("a:65536", None),
        ("a:1,", None),
        ("::1:9394", None),
        ("grpc://a:1", None),
        ("a:1 b:2", None),
        ("a:١", None),
    ],
)
def test_an_endpoint_is_host_and_port(text, found):
    assert parse_endpoints(text) == found


def test_an_admin_asks_once_while_no_coordinator_answers(fleet, nobody, tmp_path, monkeypatch):
    tried, right = [], Endpoints.connect

    def connect(self, group_id=""):
        tried.append(group_id)
        return right(self, group_id)

    monkeypatch.setattr(Endpoints, "connect", connect)
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    conf = {"share.coordinator.endpoint": nobody, "share.coordinator.token.file": str(tmp_path / "token")}
    with Admin({**conf, "share.broker.outage.timeout.ms": "1000"}) as admin:
        with monkeypatch.context() as patched, pytest.raises(CoordinatorUnreachable, match=nobody):
            patched.setattr(client_module, "StopAtDeadline", lambda s: tenacity.stop_after_attempt(3 if s else 1))
            admin.plans("billing")
        assert len(tried) > 1, "a coordinator that restarts is waited for"
        tried.clear()
        for look in (admin.plans, admin.in_flight, admin.delete_group):
            with pytest.raises(CoordinatorUnreachable, match=nobody):
                look("billing")
        assert tried == ["billing"] * 3, "its outage is known by now"
