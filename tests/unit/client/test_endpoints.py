"""A client of standalone coordinators: a group's members meet at one of them, go on to the next, and come back."""

import contextlib
import itertools
import socket
from collections import Counter

import pyarrow as pa
import pytest
import tenacity

from coordinator.admin.admin import Admin
from coordinator.client import client as client_module
from coordinator.client import endpoints as endpoints_module
from coordinator.client.client import CoordinatorClient
from coordinator.client.connection import Refused, Unreachable
from coordinator.client.endpoints import Endpoints, in_order
from coordinator.protocol.addresses import parse_endpoint
from coordinator.protocol.errors import (
    CoordinatorNotAvailable,
    CoordinatorUnreachable,
    GroupIdNotFound,
    NotAuthorized,
    OutageTooLong,
)
from coordinator.protocol.messages import DescribeGroup, GroupDescription, OutcomesStaged, StageOutcomes
from coordinator.protocol.outcome_rows import SCHEMA
from coordinator.service.requests.requests import Requests
from coordinator.service.server.flight_server import FlightServer
from tests.support.waiting import wait_until

TOKEN = "the-token-of-these-tests"


class Standalone:
    """Coordinators that each answer for any group, with the own address as a group's state."""

    def __init__(self, size: int) -> None:
        self.refuses: dict[str, Exception] = {}
        self.servers = [FlightServer(Requests().begin(self._handler(number)), TOKEN) for number in range(size)]
        self.addresses = [server.address for server in self.servers]

    def _handler(self, number):
        def handle(request):
            mine = self.addresses[number]
            if mine in self.refuses:
                raise self.refuses[mine]
            if isinstance(request, StageOutcomes):
                return OutcomesStaged(staged=len(request.partitions[0].runs), stale_sample=(mine,))
            return GroupDescription(group_id=request.group_id, state=mine, incarnation="i")

        return handle

    def client(self, *addresses, token=TOKEN, retry_timeout_s=60.0):
        given = addresses or tuple(self.addresses)
        directory = Endpoints(addresses=tuple(map(parse_endpoint, given)), token=token)
        return contextlib.closing(CoordinatorClient(directory, retry_timeout_s=retry_timeout_s))

    def close(self):
        for server in self.servers:
            server.shutdown()


@pytest.fixture
def running():
    with contextlib.closing(Standalone(3)) as running:
        yield running


@pytest.fixture
def nobody():
    """An address that nobody listens at."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def served_by(client, group_id):
    return client.call(DescribeGroup(group_id=group_id)).state


def first_of(running, group_id):
    """The first address of the group."""
    with running.client() as client:
        return served_by(client, group_id)


def away(group_id="billing"):
    return CoordinatorNotAvailable(group_id=group_id, reason="it has lost the brokers")


def test_the_members_of_a_group_meet_at_one_coordinator(running):
    for group_id in ("billing", "mail", "orders"):
        for addresses in itertools.permutations(running.addresses):
            with running.client(*addresses) as client:
                assert served_by(client, group_id) == first_of(running, group_id)


def test_groups_spread_over_all_addresses_and_keep_their_order_in_every_process():
    addresses = [(f"c{number}.example", 9394) for number in range(3)]
    first = Counter(in_order(f"group-{number}", addresses)[0] for number in range(300))
    assert min(first.values()) > 70 and len(first) == 3
    assert [host for host, _ in in_order("billing", addresses)] == ["c2.example", "c1.example", "c0.example"]


def test_a_group_keeps_its_order_when_an_address_is_added_or_removed():
    addresses = [(f"c{number}.example", 9394) for number in range(4)]
    for number in range(50):
        order = in_order(f"group-{number}", addresses)
        order.remove(addresses[3])
        assert in_order(f"group-{number}", addresses[:3]) == order


def test_the_token_is_shown_to_no_address_but_the_configured_ones(running):
    with running.client(running.addresses[0]) as client:
        for group_id in ("billing", "mail", "orders"):
            assert served_by(client, group_id) == running.addresses[0]


def test_after_a_coordinators_death_the_next_one_is_asked(running):
    first = first_of(running, "billing")
    with running.client() as client:
        assert served_by(client, "billing") == first
        running.servers[running.addresses.index(first)].shutdown()
        assert served_by(client, "billing") != first


def test_a_coordinator_that_can_t_serve_is_left_and_asked_again_later(running, monkeypatch):
    first = first_of(running, "billing")
    with running.client() as client:
        assert served_by(client, "billing") == first
        running.refuses[first] = away()
        assert served_by(client, "billing") != first
        del running.refuses[first]
        assert served_by(client, "billing") != first, "it has just been asked"
        monkeypatch.setattr(endpoints_module, "AWAY_S", 0.0)
        wait_until(lambda: served_by(client, "billing") == first, what="the client is back")


def test_a_client_stays_where_it_is_while_the_first_coordinator_is_away(running, monkeypatch):
    first = first_of(running, "billing")
    running.servers[running.addresses.index(first)].shutdown()
    monkeypatch.setattr(endpoints_module, "AWAY_S", 0.0)
    with running.client() as client:
        assert len({served_by(client, "billing") for _ in range(20)} - {first}) == 1


def test_a_sinks_rows_go_on_to_the_next_coordinator(running):
    place, said = {"topic_id": "T", "partition": 0, "first": 1, "last": 2}, {"outcome": 3, "dead_letter": True}
    rows = pa.Table.from_pylist([{**place, **said, "delivery_count": 1}], schema=SCHEMA)
    first = first_of(running, "billing")
    running.refuses[first] = away()
    with running.client() as client:
        staged = client.call_with_rows(StageOutcomes(group_id="billing"), rows)
        assert staged.staged == 1 and staged.stale_sample != (first,)


def test_silent_addresses_are_skipped(running, nobody):
    for group_id in ("billing", "mail", "orders", "audit"):
        with running.client(nobody, running.addresses[1]) as client:
            assert served_by(client, group_id) == running.addresses[1]


def test_coordinators_that_can_t_serve_are_asked_in_bounded_time(running):
    running.refuses = dict.fromkeys(running.addresses, away())
    with running.client(retry_timeout_s=0.5) as client:
        with pytest.raises(OutageTooLong, match="it has lost the brokers"):
            served_by(client, "billing")
        running.refuses.clear()
        assert served_by(client, "billing")


def test_an_error_of_the_group_asks_no_other_coordinator(running):
    first = first_of(running, "billing")
    running.refuses[first] = GroupIdNotFound(group_id="billing")
    with running.client() as client, pytest.raises(GroupIdNotFound):
        served_by(client, "billing")


@pytest.mark.parametrize(("others", "kind"), [([], Refused), ([Unreachable("no answer")], Unreachable)])
def test_an_unknown_host_is_certain_only_if_no_other_may_answer(monkeypatch, others, kind):
    errors = [*others, Refused("Domain name not found")]
    endpoints = Endpoints(addresses=tuple(("host", port) for port in range(1, len(errors) + 1)), token=TOKEN)

    def connected(self, address):
        raise errors[address[1] - 1]

    monkeypatch.setattr(Endpoints, "_connected", connected)
    for number in range(10):  # in any order
        with pytest.raises(Unreachable) as raised:
            endpoints.connect(f"group-{number}")
        assert type(raised.value) is kind


def test_a_wrong_token_is_not_tried_again(running):
    with running.client(token="another-token-altogether", retry_timeout_s=3_600) as client:
        with pytest.raises(NotAuthorized, match="SHAREGROUP_COORDINATOR_TOKEN") as raised:
            served_by(client, "billing")
        assert "another-token" not in f"{raised.value} {client!r} {client._directory!r}"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "::1"])
def test_on_loopback_plain_text_is_spoken_and_elsewhere_tls(host):
    directory = Endpoints(addresses=((host, 1),), token=TOKEN)
    assert directory.tls_of(host) is None
    assert directory.tls_of("coordinator.example") is not None
    assert directory.tls_of("192.0.2.7") is not None


def test_an_admin_asks_once_while_no_coordinator_answers(running, nobody, tmp_path, monkeypatch):
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
        assert tried == [""] * 3, "its outage is known by now"
