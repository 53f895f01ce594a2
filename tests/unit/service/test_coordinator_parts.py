"""A coordinator is built in order: nothing that happens before its last part is there is missed, and a coordinator that
does not start leaves nothing behind."""

import logging
import socket
from contextlib import closing

import pytest

from coordinator.protocol.errors import CoordinatorNotAvailable, StateStoreInUse
from coordinator.protocol.messages import DescribeGroup
from coordinator.protocol.wire import LaunchSettings
from coordinator.service import coordinator as coordinator_module
from coordinator.service.coordinator import Coordinator
from coordinator.service.open_state import open_state
from coordinator.service.server.audit import AUDIT


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
    """The servers of the coordinators that are made; ``handle``: what each asks for its answers."""
    made = []

    class Server(coordinator_module.FlightServer):
        def __init__(self, handle, *given, **more):
            super().__init__(handle, *given, **more)
            self.handle = handle
            made.append(self)

    monkeypatch.setattr(coordinator_module, "FlightServer", Server)
    return made


def test_a_request_while_parts_are_made_or_ended_is_refused(settings, servers, monkeypatch):
    tried = []

    def refused():
        with pytest.raises(CoordinatorNotAvailable, match="it is not ready"):
            servers[0].handle(DescribeGroup(group_id="billing"))
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
