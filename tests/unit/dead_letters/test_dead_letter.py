"""The dead letter, as KIP-1191 has it and Kafka 4.4 writes it; and what ours adds."""

import pytest

from coordinator.dead_letters.record_format import (
    LONGEST_MESSAGE_BYTES,
    Origin,
    dead_letter,
    dead_letter_partition,
    parse_headers,
)
from coordinator.protocol.values import Disposition

ORIGIN = Origin("orders", 3, 4_294_967_297, "billing", 5)

# What a Kafka 4.4 DLQ writes, name by name and in its order; every value is text.
KAFKAS = [
    ("__dlq.errors.topic", b"orders"),
    ("__dlq.errors.partition", b"3"),
    ("__dlq.errors.offset", b"4294967297"),
    ("__dlq.errors.group", b"billing"),
    ("__dlq.errors.delivery.count", b"5"),
]


@pytest.mark.parametrize(
    ("disposition", "name", "message"),
    [
        (Disposition.REJECTED, b"rejected", b"Offset rejected by client."),
        (Disposition.DELIVERY_LIMIT, b"delivery_limit", b"Offset delivery count exceeded the threshold."),
        (Disposition.EXPIRED, b"expired", b"Offset delivery count exceeded the threshold."),
    ],
)
@pytest.mark.parametrize("copy", [True, False])
def test_headers_are_kafkas_in_kafkas_order_and_the_disposition(disposition, name, message, copy):
    written = dead_letter(ORIGIN, disposition, copy=copy)
    assert list(written.headers) == [*KAFKAS, ("__dlq.errors.message", message), ("__dlq.errors.disposition", name)]


@pytest.mark.parametrize("timestamp_ms", [0, 1, 1_767_225_600_000, 2**63 - 1])
@pytest.mark.parametrize("copy", [True, False])
def test_the_records_own_timestamp_is_a_header(timestamp_ms, copy):
    written = dead_letter(ORIGIN, Disposition.REJECTED, timestamp_ms=timestamp_ms, copy=copy)
    assert written.headers[-1] == ("__dlq.errors.timestamp", str(timestamp_ms).encode())
    assert parse_headers(written.headers_only().headers).timestamp_ms == timestamp_ms


def test_a_timestamp_that_is_not_known_has_no_header():
    plain = dead_letter(ORIGIN, Disposition.REJECTED)
    assert all(dead_letter(ORIGIN, Disposition.REJECTED, timestamp_ms=unknown) == plain for unknown in (None, -1))
    assert parse_headers(plain.headers).timestamp_ms is None
    for text in (b"", b"soon", b"-1", b"9223372036854775808", b"1.5", b"\xff"):
        assert parse_headers([*plain.headers, ("__dlq.errors.timestamp", text)]).timestamp_ms is None


def test_a_rows_reason_replaces_the_message():
    headers = dict(dead_letter(ORIGIN, Disposition.REJECTED, message="ungültig: {").headers)
    assert headers["__dlq.errors.message"] == "ungültig: {".encode()


def test_a_reason_of_any_length_or_content_fits():
    long = dict(dead_letter(ORIGIN, Disposition.REJECTED, message="ä" * 100_000).headers)["__dlq.errors.message"]
    assert len(long) <= LONGEST_MESSAGE_BYTES
    assert set(long.decode()) == {"ä"}
    assert dict(dead_letter(ORIGIN, Disposition.REJECTED, message="\ud800").headers)["__dlq.errors.message"] == b"?"


def test_the_record_is_copied_with_its_headers_in_order_before_ours():
    headers = [("trace", b"1"), ("trace", b"2"), ("empty", b""), ("null", None)]
    written = dead_letter(ORIGIN, Disposition.REJECTED, key=b"k", value=b"v", headers=headers)
    assert (written.key, written.value) == (b"k", b"v")
    assert list(written.headers[:4]) == headers
    assert [name for name, _ in written.headers[4:9]] == [name for name, _ in KAFKAS]


def test_null_keys_stay_null_and_empty_values_stay_empty():
    assert dead_letter(ORIGIN, Disposition.REJECTED, key=None, value=b"")[1:3] == (None, b"")


def test_headers_of_an_earlier_dead_letter_are_replaced():
    first = dead_letter(ORIGIN._replace(topic="older"), Disposition.EXPIRED, headers=[("trace", b"1")])
    second = dead_letter(ORIGIN, Disposition.REJECTED, headers=[*first.headers, ("__dlq.errors.unheard.of", b"x")])
    names = [name for name, _ in second.headers]
    assert len(names) == len(set(names)) == 8
    assert parse_headers(second.headers).origin == ORIGIN


def test_without_copying_nothing_of_the_record_is_there():
    written = dead_letter(ORIGIN, Disposition.REJECTED, key=b"k", value=b"v", headers=[("h", b"x")], copy=False)
    assert (written.key, written.value) == (None, None)
    assert all(name.startswith("__dlq.errors.") for name, _ in written.headers)
    assert written.is_headers_only


def test_an_empty_record_that_is_copied_says_so():
    copied = dead_letter(ORIGIN, Disposition.REJECTED, headers=())
    assert copied.headers[-1] == ("__dlq.errors.empty.record", b"true")
    assert not copied.is_headers_only
    assert copied.headers_only() == dead_letter(ORIGIN, Disposition.REJECTED, headers=(), copy=False)
    of_its_own = dead_letter(ORIGIN, Disposition.REJECTED, headers=copied.headers, key=b"k")
    assert of_its_own == dead_letter(ORIGIN, Disposition.REJECTED, key=b"k")


def test_headers_only_keeps_the_origin_and_the_reason():
    whole = dead_letter(ORIGIN, Disposition.REJECTED, message="why", key=b"k", value=b"v", headers=[("h", b"x")])
    bare = whole.headers_only()
    assert not whole.is_headers_only
    assert bare == dead_letter(ORIGIN, Disposition.REJECTED, message="why", copy=False)


@pytest.mark.parametrize(("source", "partitions", "there"), [(0, 1, 0), (5, 1, 0), (5, 3, 2), (2, 3, 2), (3, 3, 0)])
def test_the_partition_is_the_sources_modulo_the_queues(source, partitions, there):
    assert dead_letter_partition(source, partitions) == there


def test_the_origin_is_read_from_the_headers():
    assert parse_headers(dead_letter(ORIGIN, Disposition.REJECTED, headers=[("h", b"x")]).headers).origin == ORIGIN
    assert parse_headers(KAFKAS).origin == ORIGIN
    assert parse_headers(KAFKAS[:4]).origin == ORIGIN._replace(delivery_count=0)


@pytest.mark.parametrize(
    "headers", [None, [], [("h", b"x")], KAFKAS[:3], KAFKAS[1:], [*KAFKAS, ("__dlq.errors.offset", b"many")]]
)
def test_a_record_that_is_no_dead_letter_has_no_origin(headers):
    assert parse_headers(headers) is None
