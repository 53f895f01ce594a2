"""A coordinator is built in order: nothing that happens before its last part is there is missed, and a coordinator that
does not start leaves nothing behind."""

import logging
import socket
from contextlib import closing

import pyarrow as pa
import pytest

from coordinator.config.resolved import ServerConfig
from coordinator.protocol.errors import (
    ConfigOutOfBounds,
    CoordinatorNotAvailable,
    GroupMaxSizeReached,
    MaxGroupsReached,
    StateStoreInUse,
)
from coordinator.protocol.format_versions import PROTOCOL
from coordinator.protocol.messages import DescribeGroup, GroupDescription, JoinGroup
from coordinator.protocol.rights import Caller
from coordinator.protocol.wire import LaunchSettings, decode_answer, encode
from coordinator.service import coordinator as coordinator_module
from coordinator.service.coordinator import Coordinator
from coordinator.service.open_state import open_state
from coordinator.service.requests.asker import Asker
from coordinator.service.requests.audit import AUDIT
from tests.support.fake_cluster import cluster_with_orders
from tests.support.waiting import wait_until


@pytest.fixture
def settings(tmp_path):
    return LaunchSettings(
        bootstrap_servers="127.0.0.1:1",
        kafka_config={},
        state_store=f"sqlite:{tmp_path / 'state.db'}",
        configs={"share.coordinator.audit.file": str(tmp_path / "audit.log")},
    )


@pytest.fixture
def servers(monkeypatch):
    """The servers of the coordinators that are made; ``requests``: what each asks for its answers."""
    made = []

    class Server(coordinator_module.FlightServer):
        def __init__(self, requests, *given, **more):
            super().__init__(requests, *given, **more)
            self.requests = requests
            made.append(self)

    monkeypatch.setattr(coordinator_module, "FlightServer", Server)
    return made


def test_a_description_says_that_the_dead_letter_topic_is_missing(settings, monkeypatch):
    with closing(Coordinator(settings, "token")) as made:
        described = GroupDescription(group_id="billing", state="STABLE", incarnation="i")
        monkeypatch.setattr(made.service, "handle", lambda request: described)
        for missing in (frozenset(), frozenset({"billing"})):
            made._queues.missing = missing
            answer = made._describe(DescribeGroup(group_id="billing"))
            assert answer.dead_letter_topic_missing == bool(missing)


def test_a_request_while_parts_are_made_or_ended_is_refused(settings, servers, monkeypatch):
    tried = []

    def refused():
        look, asker = encode(DescribeGroup(group_id="billing")), Asker(Caller(), "a peer", str(PROTOCOL))
        with pytest.raises(CoordinatorNotAvailable, match="it is not ready"):
            decode_answer(servers[0].requests.answer("DescribeGroup", pa.py_buffer(look), asker))
        tried.append("refused")

    def before(*given, **more):
        refused()
        return open_state(*given, **more)

    monkeypatch.setattr(coordinator_module, "open_state", before)
    Coordinator(settings, "token").close()
    refused()
    assert tried == ["refused", "refused"]


def test_a_coordinator_that_does_not_start_ends_what_it_began(settings, servers, monkeypatch):
    monkeypatch.setattr("coordinator.service.open_state.TAKE_OVER_S", 0.1)
    handlers = list(logging.getLogger(AUDIT).handlers)
    with closing(Coordinator(settings, "token")), pytest.raises(StateStoreInUse):
        Coordinator(settings, "token")
    assert logging.getLogger(AUDIT).handlers == handlers
    for server in servers:
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", server.port), 5)


def test_a_coordinator_keeps_its_limits_of_groups_members_and_configs(settings, servers, monkeypatch):
    monkeypatch.setattr(coordinator_module, "KafkaCluster", lambda *given: cluster_with_orders(end=1))
    most = {"group.share.max.size": "1", "group.share.max.groups": "1", "group.share.max.session.timeout.ms": "50000"}

    def join(group_id="billing", member_id="m1", **fields):
        joins = JoinGroup(group_id=group_id, member_id=member_id, process_id="p", topics=("orders",), **fields)
        asker = Asker(Caller(), "a peer", str(PROTOCOL))
        try:
            return decode_answer(servers[0].requests.answer("JoinGroup", pa.py_buffer(encode(joins)), asker))
        except CoordinatorNotAvailable:  # a slow disk made it stand still
            return None

    with closing(Coordinator(settings, "token", limits=ServerConfig.parse(most))):
        wait_until(join, what="the first member has joined")
        for fields, error in (
            ({"configs": {"share.session.timeout.ms": "60000"}}, ConfigOutOfBounds),
            ({"member_id": "m2"}, GroupMaxSizeReached),
            ({"group_id": "mail"}, MaxGroupsReached),
        ):
            with pytest.raises(error):
                wait_until(lambda fields=fields: join(**fields), what=error.__name__)
