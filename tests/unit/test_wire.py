"""Requests, answers and errors on the wire: what crosses to the other side, and what is refused by name."""

from __future__ import annotations

import pickle

import pytest

from coordinator.protocol.errors import InvalidRequest, RemoteError, ShareGroupError, UnknownMemberId, error_from_wire
from coordinator.protocol.wire import (
    Endpoint,
    Health,
    LaunchSettings,
    decode_answer,
    decode_request,
    encode,
    encode_error,
)


def test_an_error_is_the_same_after_the_wire() -> None:
    error = UnknownMemberId(member_id="m1", group_id="billing")
    with pytest.raises(UnknownMemberId, match="Member m1 of share group billing"):
        decode_answer(encode_error(error))
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.fields, str(again)) == (UnknownMemberId, error.fields, str(error))


def test_an_unknown_error_keeps_its_text() -> None:
    error = error_from_wire("QuotaExceeded", {"limit": 3}, "no more than 3")
    assert isinstance(error, RemoteError)
    assert str(error) == "The coordinator answered QuotaExceeded: no more than 3"
    assert "limit" in str(error_from_wire("QuotaExceeded", {"limit": 3}))
    assert issubclass(RemoteError, ShareGroupError)


def test_an_unreadable_request_is_refused_by_name() -> None:
    assert decode_request("Health", encode(Health())) == Health()
    with pytest.raises(InvalidRequest, match="knows no request Destroy"):
        decode_request("Destroy", b"{}")
    for body in (b"{", b'{"type": "Heartbeat"}', b"\xff\xfe"):
        with pytest.raises(InvalidRequest, match="Heartbeat can't be understood"):
            decode_request("Heartbeat", body)


def test_no_secret_is_in_a_repr() -> None:
    endpoint = Endpoint(host="localhost", port=1, token="s3cret", pid=2)
    settings = LaunchSettings(
        bootstrap_servers="broker:9092",
        kafka_config={"sasl.password": "s3cret"},
        cluster_id="c",
        state_store="sqlite",
        endpoint_path="e",
        log_path="l",
        configs={},
    )
    assert "s3cret" not in repr(endpoint) + repr(settings)
    assert "localhost:1" in repr(endpoint) and "broker:9092" in repr(settings)
