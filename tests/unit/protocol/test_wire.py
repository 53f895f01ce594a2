"""Requests, answers and errors on the wire: what crosses to the other side, and what is refused by name."""

from __future__ import annotations

import functools
import json
import logging
import pickle
import subprocess
import sys
from itertools import product
from typing import Any

import pytest

from coordinator.protocol import receipts
from coordinator.protocol.errors import (
    BrokerSecurityFailed,
    InvalidRequest,
    RemoteError,
    ShareGroupError,
    UnknownMemberId,
    by_name,
    error_from_wire,
)
from coordinator.protocol.host_errors import HostTopicNotAuthorized
from coordinator.protocol.repeated_lines import LogOnce
from coordinator.protocol.wire import (
    Endpoint,
    Health,
    LaunchSettings,
    decode_answer,
    decode_request,
    encode,
    encode_error,
    naming_host,
)


def test_an_error_is_the_same_after_the_wire() -> None:
    error = UnknownMemberId(member_id="m1", group_id="billing")
    with pytest.raises(UnknownMemberId, match="Member m1 of share group billing"):
        decode_answer(encode_error(error))
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.fields, str(again)) == (UnknownMemberId, error.fields, str(error))


def test_an_error_about_a_coordinator_elsewhere_names_its_host() -> None:
    host = "two\x1b[2J (process 7)"
    with pytest.raises(BrokerSecurityFailed) as raised:
        decode_answer(naming_host(encode_error(BrokerSecurityFailed(addresses="k:1", reason="no")), host))
    assert raised.value.on_host == host
    assert str(raised.value).startswith("On host two\\x1b[2J (process 7): The Kafka brokers of k:1 can't be used")
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    for answer in (encode(Health()), encode_error(UnknownMemberId(member_id="m", group_id="g"))):
        assert naming_host(answer, host) == answer


def test_errors_about_a_principal_s_rights_are_about_the_coordinator() -> None:
    found = {cls for cls in by_name().values() if "principal may not" in (cls.__doc__ or "")}
    assert {cls for cls in found if not cls.of_coordinator} == {HostTopicNotAuthorized}, "the asker's"


NOT_ANSWERED = {
    "UnreadableRecord": "the loader of a group catches it, and names the state topic's partition and offset",
    "TlsRequired": "a standalone coordinator does not start with it",
}


def test_a_client_knows_each_error_that_a_coordinator_answers() -> None:
    """Of an error without a class, a client does not know that it is retriable, and ends."""
    ask = "import {}\nfrom coordinator.protocol.errors import by_name\nprint(*by_name())"
    run = functools.partial(subprocess.run, capture_output=True, text=True, check=True)
    at_client, at_coordinator = (
        set(run([sys.executable, "-c", ask.format(module)]).stdout.split())
        for module in ("coordinator.client.connection", "coordinator.service.standalone")
    )
    assert {"OwnedElsewhere", "RequestTooLate", "OwnerMissing"} <= at_client
    assert at_coordinator - at_client == NOT_ANSWERED.keys()


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


def test_the_name_of_an_error_has_no_second_line() -> None:
    said = {"type": "ReportEnding", "group_id": "billing", "text": ""}
    assert decode_request("ReportEnding", json.dumps({**said, "error": "DataLoss"}).encode())
    with pytest.raises(InvalidRequest, match="ReportEnding can't be understood"):
        decode_request("ReportEnding", json.dumps({**said, "error": "DataLoss\n"}).encode())


OF_M1 = {"group_id": "billing", "member_id": "m1", "member_epoch": 1}
DECIDE = {"group_id": "billing", "decision": "release", "topic": "orders", "partition": 0, "first": 0, "last": 0}
BATCH = {"first": 0, "last": 0, "delivery_count": 1, "types": [1]}


def acks(**fields: int) -> dict[str, Any]:
    return {**OF_M1, "partitions": [{"topic_id": "T", "partition": 0, "batches": [{**BATCH, **fields}]}]}


def test_a_number_that_no_offset_or_count_has_is_refused() -> None:
    for wrong in [-1, 2**63, 10**30]:
        for name, fields in [
            ("DecideRecords", lambda wrong: {**DECIDE, "first": wrong}),
            ("DecideRecords", lambda wrong: {**DECIDE, "last": wrong}),
            ("DecideRecords", lambda wrong: {**DECIDE, "partition": wrong}),
            ("Acknowledge", lambda wrong: acks(first=wrong)),
            ("Acknowledge", lambda wrong: acks(last=wrong)),
            ("Acknowledge", lambda wrong: acks(delivery_count=wrong)),
            ("AcquireRecords", lambda wrong: {**OF_M1, "max_records": wrong}),
            ("AcquireRecords", lambda wrong: {**OF_M1, "max_records": 1, "wait_ms": wrong}),
            ("NextPlan", lambda wrong: {**OF_M1, "until": {"orders": {"0": wrong}}}),
            ("ReadHistory", lambda wrong: {"group_id": "billing", "topic": "orders", "partition": 0, "offset": wrong}),
            ("ReportProgress", lambda wrong: {**OF_M1, "plan_id": "i.1", "task": wrong}),
        ]:
            right = {"type": name, **fields(0)}
            assert type(decode_request(name, json.dumps(right).encode())).__name__ == name
            with pytest.raises(InvalidRequest, match=f"{name} can't be understood: Expected"):
                decode_request(name, json.dumps({"type": name, **fields(wrong)}).encode())


def test_an_answer_to_an_unreadable_request_repeats_nothing_of_it() -> None:
    for name, body in (
        ("Heartbeat", b'{"type": "S3cret\\u001b[2J"}'),
        ("S3cret\x1b[2J", b"{}"),
        ("Heartbeat", b"\xffS3cret"),
    ):
        with pytest.raises(InvalidRequest) as raised:
            decode_request(name, body)
        assert "S3cret" not in str(raised.value)


@pytest.mark.parametrize("member_id", ["", "m" * 501])
def test_a_member_has_an_id_of_bounded_length(member_id: str) -> None:
    body = json.dumps({"type": "Heartbeat", **OF_M1, "member_id": member_id}).encode()
    with pytest.raises(InvalidRequest, match="length"):
        decode_request("Heartbeat", body)


def test_no_secret_is_in_a_repr() -> None:
    endpoint = Endpoint(host="localhost", port=1, token="s3cret", pid=2)
    secret = {"sasl.password": "s3cret"}
    settings = LaunchSettings(bootstrap_servers="broker:9092", kafka_config=secret, state_store="sqlite", configs={})
    assert "s3cret" not in repr(endpoint) + str(endpoint) + repr(settings)
    assert "localhost:1" in repr(endpoint) and "broker:9092" in repr(settings)


def test_the_digest_of_a_topic_never_changes() -> None:
    """Executors of one version may read what a driver of another has planned."""
    assert receipts.receipt_digest("billing", "1f0c2a7e", "kNwDIBnBRnqgSjlfZJQGPg") == 3314078386985002436


def test_no_two_groups_incarnations_or_topics_have_one_digest() -> None:
    """A group id may be any text, so names can run into each other."""
    names = ["a", "b", "ab", "", "a\0b", "\ud800"]
    kinds = [(group_id, *ids) for group_id in names for ids in product(("a", "b", "ab"), repeat=2)]
    assert len({receipts.receipt_digest(*each) for each in kinds}) == len(kinds)


def test_a_value_changes_once_until_it_is_another_one() -> None:
    once = LogOnce(logging.getLogger("once"))
    values = ["", "a", "a", "b", "", "", "b"]
    assert [once.changes("reason", value) for value in values] == [False, True, False, True, True, False, True]
    assert not once.changes("other", []), "what was never reported is empty"


def test_a_pickled_copy_reports_anew() -> None:
    once = LogOnce(logging.getLogger("once"))
    assert once.changes("reason", "a")
    assert pickle.loads(pickle.dumps(once)).changes("reason", "a")
