"""Tokens of standalone coordinators sign people in: with their names and rights, as the coordinator says."""

from __future__ import annotations

import contextlib

import pytest

from coordinator.admin.admin import Admin
from coordinator.protocol.errors import InvalidRequest
from coordinator.protocol.rights import Tokens
from coordinator.service.requests.requests import Requests
from coordinator.service.server.flight_server import FlightServer
from sharegroup.web import coordinator_page
from sharegroup.web.sign_in_tokens import CoordinatorTokens

ADA, LO, ALL, MEMBER = "a" * 20, "l" * 20, "x" * 20, "m" * 20
TOKENS = Tokens.parse(f"admin ada:{ADA}\nread lo:{LO}\nread,member,admin all:{ALL}\nmember:{MEMBER}", "the test")
"""A coordinator's tokens."""


@pytest.fixture(scope="module")
def tokens():
    def handle(request):
        raise InvalidRequest(what="A group has an id.")

    server = FlightServer(Requests(version="1").begin(handle), TOKENS)
    yield CoordinatorTokens({"share.coordinator.endpoint": server.address})
    server.shutdown()


def of(tokens, token):
    """The name and whether it may act; None: no session is opened."""
    visitor = tokens.visitor(token)
    if visitor is None:
        return None
    with contextlib.closing(visitor):
        return visitor.name, visitor.is_admin


def test_a_person_is_known_by_the_name_of_the_token(tokens):
    assert of(tokens, ADA) == ("ada", True)
    assert of(tokens, LO) == ("lo", False)
    assert of(tokens, ALL) == ("all", True)


def test_a_token_without_the_right_to_look_opens_no_session(tokens):
    assert of(tokens, MEMBER) is None
    assert of(tokens, "nobody-has-this-token") is None


def test_commands_of_the_doctor_reach_a_standalone_coordinator():
    config = {
        "bootstrap.servers": "broker:9092",
        "share.coordinator.endpoint": "c1:9095",
        "share.coordinator.token.file": "/etc/tokens",
        "share.coordinator.max.request.bytes": "1000000",
        "security.protocol": "SASL_SSL",
        "sasl.password": "hush",
    }
    words = coordinator_page._connects(config)
    assert words[::2] == ("--command-property",) * 4
    assert words[1::2][:3] == (
        "share.coordinator.endpoint=c1:9095",
        "share.coordinator.token.file=/etc/tokens",
        "security.protocol=SASL_SSL",
    )
    assert "hush" not in " ".join(words)


def test_a_login_at_an_earlier_coordinator_gets_the_rights(tokens, monkeypatch):
    def unknown(admin):
        raise InvalidRequest(what="This coordinator knows no request 'WhoAmI'.")

    monkeypatch.setattr(Admin, "who_am_i", unknown)
    assert [of(tokens, token) for token in (ADA, LO, MEMBER)] == [("", True), ("lo", False), None]
