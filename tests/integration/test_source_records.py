"""The dead letters' room on a real broker: originals are found as the log has them, and dead letters are said to be
written only when they are."""

import contextlib
import random

import pytest

from coordinator.dead_letters.producer import DeadLetterProducer, WriteStatus
from coordinator.dead_letters.record_format import Origin, dead_letter, parse_headers
from coordinator.dead_letters.source_records import AbsenceReason, Absent, SourceRecord, SourceRecordReader
from coordinator.protocol.errors import BrokerNotReachable
from coordinator.protocol.values import Disposition
from tests.support.kafka_log import messages_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

STALL_S = 6.0
"""A broker that does not answer for this many seconds is given up: a busy machine takes less for an answer."""


@pytest.fixture
def originals(kafka):
    with contextlib.closing(SourceRecordReader(kafka.bootstrap, {})) as opened:
        yield opened


@pytest.fixture
def writer(kafka):
    with contextlib.closing(DeadLetterProducer(kafka.bootstrap, {})) as opened:
        yield opened


def dead_letters_of(offsets, value=b"v", *, partition=0):
    return [
        dead_letter(Origin("orders", partition, n, "billing", 5), Disposition.REJECTED, key=b"k", value=value)
        for n in offsets
    ]


# --- originals


def test_each_original_record_is_returned_unchanged(kafka, topic, originals):
    name = topic()
    kafka.produce(name, [b"a", None, b""], keys=[b"1", None, b""], headers=[("h", b"x"), ("h", b"y"), ("n", None)])

    found = list(originals.read(name, 0, [0, 1, 2]))

    assert [(o.offset, o.key, o.value) for o in found] == [(0, b"1", b"a"), (1, None, None), (2, b"", b"")]
    assert {o.headers for o in found} == {(("h", b"x"), ("h", b"y"), ("n", None))}
    assert all(o.timestamp_ms > 0 for o in found)


@pytest.mark.slow
@pytest.mark.parametrize("wanted", ["all", "tenth", "ends", "scattered"])
def test_records_are_found_at_any_distribution_of_offsets(kafka, topic, originals, wanted):
    name, count = topic(), 60_000
    kafka.produce(name, [str(n) for n in range(count)])
    offsets = {
        "all": range(count),
        "tenth": sorted(random.Random(7).sample(range(count), count // 10)),
        "ends": [0, 1, count - 2, count - 1],
        "scattered": [5, 15_100, 30_300, 45_700, 59_999],
    }[wanted]

    found = list(originals.read(name, 0, list(offsets)))

    assert [o.offset for o in found] == list(offsets)
    assert all(isinstance(o, SourceRecord) and o.value == str(o.offset).encode() for o in found)
    # The same reader goes on in another place.
    assert [o.offset for o in originals.read(name, 0, [3, 4])] == [3, 4]


def test_deleted_offsets_are_distinguished_from_offsets_without_records(kafka, topic, originals):
    name = topic()
    kafka.produce(name, ["x"] * 10)
    kafka.produce_transaction(name, ["t"] * 5)  # its marker is offset 15
    assert list(originals.read(name, 0, [15])) == [Absent(15, AbsenceReason.NEVER)], "at the log's end"
    kafka.produce(name, ["y"] * 4)
    kafka.delete_records(name, 3)

    found = list(originals.read(name, 0, [0, 2, 3, 14, 15, 16, 19, 20, 500]))

    assert [(a.offset, a.why) for a in found if isinstance(a, Absent)] == [
        (0, AbsenceReason.GONE),
        (2, AbsenceReason.GONE),
        (15, AbsenceReason.NEVER),
        (20, AbsenceReason.PAST_END),
        (500, AbsenceReason.PAST_END),
    ]
    assert [o.offset for o in found] == [0, 2, 3, 14, 15, 16, 19, 20, 500]
    assert [a.why for a in originals.read(name, 0, [0, 1])] == [AbsenceReason.GONE] * 2
    assert [a.why for a in originals.read(name, 0, [700])] == [AbsenceReason.PAST_END]


def test_an_aborted_record_is_absent_for_a_group_that_reads_committed(kafka, topic):
    name = topic()
    kafka.produce_transaction(name, ["no"] * 3, commit=False)
    kafka.produce(name, ["yes"])

    with contextlib.closing(SourceRecordReader(kafka.bootstrap, {}, read_committed=True)) as committed:
        found = list(committed.read(name, 0, [0, 2, 4]))
    with contextlib.closing(SourceRecordReader(kafka.bootstrap, {})) as uncommitted:
        seen = list(uncommitted.read(name, 0, [0, 2, 4]))

    assert found[:2] == [Absent(0, AbsenceReason.NEVER), Absent(2, AbsenceReason.NEVER)]
    assert found[2].value == b"yes"
    assert [o.value for o in seen] == [b"no", b"no", b"yes"]


def test_a_compacted_record_is_not_in_the_log(kafka, topic, originals):
    name = topic(cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio=0.01, segment_bytes=1048576)
    kafka.produce(name, [str(n) for n in range(6)], keys=["a"] * 6)

    def compacted():
        kafka.produce(name, ["roll"], keys=["b"])
        return list(originals.read(name, 0, [0, 1])) == [Absent(0, AbsenceReason.NEVER), Absent(1, AbsenceReason.NEVER)]

    wait_until(compacted, what="the log is compacted", interval_s=0.3)


@pytest.mark.slow
def test_a_missing_topic_has_no_original_records(kafka, unique):
    with contextlib.closing(SourceRecordReader(kafka.bootstrap, {}, stall_s=STALL_S)) as originals:
        found = list(originals.read(unique("nowhere"), 0, [0, 1]))

    assert found == [Absent(0, AbsenceReason.GONE), Absent(1, AbsenceReason.GONE)]


@pytest.mark.slow
def test_an_unreachable_broker_raises_and_reports_no_record_absent(kafka, topic):
    name = topic()
    kafka.produce(name, ["x"] * 3)
    with contextlib.closing(SourceRecordReader(kafka.proxied_bootstrap, {}, stall_s=STALL_S)) as cut_off:
        assert len(list(cut_off.read(name, 0, [0, 1, 2]))) == 3
        kafka.proxy.cut()
        try:
            with pytest.raises(BrokerNotReachable):
                list(cut_off.read(name, 0, [0, 1, 2]))
        finally:
            kafka.proxy.heal()
        wait_until(lambda: len(list(cut_off.read(name, 0, [0, 1, 2]))) == 3, what="it is read again")


# --- dead letters


def test_a_too_large_dead_letter_leaves_headers_and_its_neighbours_whole(kafka, topic, writer):
    dlq = topic("dlq", max_message_bytes=20_000)
    letters = dead_letters_of(range(100), b"x" * 500)
    letters[50] = dead_letters_of([50], b"x" * 50_000)[0]

    written = writer.write(dlq, 1, letters)

    assert [w.status for w in written] == [WriteStatus.WRITTEN] * 100
    assert [n for n, w in enumerate(written) if w.headers_only] == [50]
    assert written[50].reason == "MSG_SIZE_TOO_LARGE"
    found = {parse_headers(m.headers()).origin.offset: m.value() for m in messages_of(kafka.bootstrap, dlq)}
    assert sorted(found) == list(range(100))
    assert found.pop(50) is None
    assert set(found.values()) == {b"x" * 500}


@pytest.mark.slow
def test_permanent_failures_are_distinguished_from_retriable_failures(kafka, unique, topic):
    dlq = topic("dlq")
    with contextlib.closing(DeadLetterProducer(kafka.bootstrap, {})) as writer:
        (written,) = writer.write(unique("nowhere"), 1, dead_letters_of([1]))
        assert written.status is WriteStatus.PERMANENT_FAILURE
        assert "UNKNOWN" in written.reason
    with contextlib.closing(DeadLetterProducer(kafka.proxied_bootstrap, {}, timeout_s=STALL_S)) as writer:
        assert writer.write(dlq, 1, dead_letters_of([1]))[0].status is WriteStatus.WRITTEN
        kafka.proxy.cut()
        try:
            assert {w.status for w in writer.write(dlq, 1, dead_letters_of(range(5)))} == {
                WriteStatus.RETRIABLE_FAILURE
            }
        finally:
            kafka.proxy.heal()
        wait_until(
            lambda: {w.status for w in writer.write(dlq, 1, dead_letters_of(range(5)))} == {WriteStatus.WRITTEN},
            what="the dead letters are written",
        )
    assert {parse_headers(m.headers()).origin.offset for m in messages_of(kafka.bootstrap, dlq)} == set(range(5))


@pytest.mark.slow
def test_more_dead_letters_than_the_clients_queue_holds(kafka, topic):
    dlq = topic("dlq")
    config = {"queue.buffering.max.messages": "1000"}
    with contextlib.closing(DeadLetterProducer(kafka.bootstrap, config)) as writer:
        assert {w.status for w in writer.write(dlq, 1, dead_letters_of(range(30_000)))} == {WriteStatus.WRITTEN}
    assert len(messages_of(kafka.bootstrap, dlq)) == 30_000
