"""The signals of a ShareConsumer that its work on a record goes on (KAFKA-20458); the coordinator is a stub."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import IllegalStateException, KafkaError, KafkaException, Message

from coordinator.protocol.errors import InvalidRecordState, UnknownMemberId
from coordinator.protocol.messages import ProgressReply
from share_consumer.errors import RecordHasOutcome, RecordNotInFlight
from sharegroup import AcknowledgeType, ShareConsumer
from tests.support.share_members import CONFIG, Stubs
from tests.support.waiting import wait_until

EXPLICIT = {**CONFIG, "share.acknowledgement.mode": "explicit"}


def polled(records: int, **more: Any) -> tuple[ShareConsumer, Stubs, list[Message]]:
    """A consumer in explicit mode, and the records of its first poll."""
    consumer = ShareConsumer({**EXPLICIT, **more})
    consumer.subscribe(["orders"])
    stubs = Stubs(consumer)
    stubs.answer(records)
    return consumer, stubs, list(consumer.poll())


def sent(stubs: Stubs, count: int) -> list[tuple[int, int, str | None]]:
    """The signals of that many requests, once they were sent: first and last offset, and the hint."""
    wait_until(lambda: len(stubs.signals()) >= count, what=f"{count} requests with signals")
    assert len(stubs.signals()) == count
    return [(b.first, b.last, b.hint) for parts in stubs.signals() for part in parts for b in part.batches]


def answered(consumer: ShareConsumer) -> None:
    """Waits until the signals that were sent are answered."""
    signals = consumer._acknowledgements._signals
    wait_until(lambda: all(future.done() for future in signals), what="the signals are answered")


def refusing(*offsets: int) -> Any:
    """The reply to signals of orders-0: refused, all of them, if they name one of these offsets."""

    def reply(partitions: Any) -> ProgressReply:
        named = any(b.first <= offset <= b.last for p in partitions for b in p.batches for offset in offsets)
        at = partitions[0].batches[0].first
        return ProgressReply(errors={"T:0": ("INVALID_RECORD_STATE", f"not held: {at}")} if named else {})

    return reply


def test_the_next_poll_sends_the_signals_and_needs_no_outcome() -> None:
    consumer, stubs, messages = polled(4)
    for message, hint in zip(messages, ("half", "half", None, "half"), strict=True):
        consumer.mark_in_progress(message, hint)
    stubs.answer(1)
    assert [message.offset() for message in consumer.poll()] == [4]
    assert sent(stubs, 1) == [(0, 1, "half"), (2, 2, None), (3, 3, "half")]
    with pytest.raises(IllegalStateException, match="1 records from previous poll have not been acknowledged"):
        consumer.poll()


@pytest.mark.parametrize("commit", ["commit_sync", "commit_async"])
def test_a_commit_sends_the_signals_of_a_program_that_does_not_poll(commit: str) -> None:
    consumer, stubs, messages = polled(2)
    consumer.mark_in_progress(messages[0], "page 1")
    consumer.mark_in_progress(messages[0])
    consumer.acknowledge(messages[1])
    getattr(consumer, commit)()
    assert sent(stubs, 1) == [(0, 0, "page 1")]
    wait_until(lambda: stubs.outcomes() == [(1, "ACCEPT")], what="the outcome is sent, and none of the marked record")


def test_a_hundred_pending_signals_leave_without_a_poll() -> None:
    consumer, stubs, messages = polled(120)
    for message in messages[:99]:
        consumer.mark_in_progress(message)
    consumer.mark_in_progress(messages[0], "again")
    assert not stubs.signals()
    consumer.mark_in_progress(messages[99])
    assert sent(stubs, 1) == [(0, 0, "again"), (1, 99, None)]


def test_the_number_of_pending_signals_can_be_set() -> None:
    consumer, stubs, messages = polled(2, **{"max.in-flight.progress.batches": 1})
    consumer.mark_in_progress(messages[1])
    assert sent(stubs, 1) == [(1, 1, None)]


def test_an_outcome_replaces_a_pending_signal() -> None:
    consumer, stubs, messages = polled(2)
    consumer.mark_in_progress(messages[0])
    consumer.acknowledge(messages[0], AcknowledgeType.RELEASE)
    consumer.commit_sync()
    assert not stubs.signals()
    assert stubs.outcomes() == [(0, "RELEASE")]


def test_an_invalid_mark_is_refused_at_once() -> None:
    consumer, _, (first, second) = polled(2)
    for wrong in ("text", None):
        with pytest.raises(TypeError, match="argument 1 must be confluent_kafka"):
            consumer.mark_in_progress(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="argument 2 must be str, not bytes"):
        consumer.mark_in_progress(first, b"half")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="more than 256 bytes"):
        consumer.mark_in_progress(first, "é" * 129)
    consumer.acknowledge(first)
    with pytest.raises(RecordHasOutcome, match="Failed to mark message: record orders-0@0 has its outcome"):
        consumer.mark_in_progress(first)
    consumer.commit_sync()
    with pytest.raises(RecordNotInFlight, match="no record orders-0@0 in flight"):
        consumer.mark_in_progress(first)
    consumer.mark_in_progress(second, "é" * 128)
    with pytest.raises(IllegalStateException, match=r"Failed to acknowledge message.*its lock needs no RENEW"):
        consumer.acknowledge(second, AcknowledgeType.RENEW)
    consumer.acknowledge(second)


def test_a_record_with_a_sent_signal_is_not_renewed_in_the_background() -> None:
    consumer, stubs, messages = polled(3, **{"share.background.renew.enable": True})
    consumer.mark_in_progress(messages[1])
    assert [(b.first, b.last) for part in consumer._held() for b in part.batches] == [(0, 2)], "not sent yet"
    consumer.commit_async()
    assert sent(stubs, 1) == [(1, 1, None)]
    assert [(b.first, b.last) for part in consumer._held() for b in part.batches] == [(0, 0), (2, 2)]


def test_one_error_names_all_refused_signals_once_and_they_stop_no_other() -> None:
    consumer, stubs, messages = polled(5)
    stubs.membership.signalled = refusing(0, 4)
    for at in (0, 2, 4):
        consumer.mark_in_progress(messages[at], f"record {at}")
    consumer.commit_async()
    named = [(at, at, f"record {at}") for at in (0, 2, 4)]
    assert sent(stubs, 4) == [*named, *named], "each range alone after that"
    answered(consumer)
    with pytest.raises(KafkaException, match="not held: 0; not held: 4") as told:
        consumer.mark_in_progress(messages[1])
    assert told.value.args[0].code() == KafkaError.INVALID_RECORD_STATE
    consumer.mark_in_progress(messages[1])  # told once


def test_a_renewed_record_can_be_marked_and_the_next_poll_returns_others() -> None:
    consumer, stubs, (message,) = polled(1)
    consumer.acknowledge(message, AcknowledgeType.RENEW)
    assert list(consumer.commit_sync().values()) == [None]
    consumer.mark_in_progress(message, "half")
    stubs.answer(1)
    assert [message.offset() for message in consumer.poll()] == [1]
    assert sent(stubs, 1) == [(0, 0, "half")]
    consumer.acknowledge(message)


def test_a_refused_signal_of_an_acknowledged_record_is_not_raised() -> None:
    consumer, stubs, messages = polled(2)
    stubs.membership.signalled = refusing(0)
    consumer.mark_in_progress(messages[0])
    consumer.commit_async()
    consumer.acknowledge(messages[0])
    consumer.commit_sync()
    consumer.mark_in_progress(messages[1])


@pytest.mark.parametrize("error", [UnknownMemberId(member_id="m", group_id="billing"), InvalidRecordState(what="so")])
def test_a_failed_request_of_signals_is_raised_by_name(error: Any) -> None:
    consumer, stubs, (message,) = polled(1)

    def fails(partitions: Any) -> ProgressReply:
        raise error

    stubs.membership.signalled = fails
    consumer.mark_in_progress(message)
    consumer.commit_async()
    answered(consumer)
    with pytest.raises(KafkaException, match=type(error).__name__):
        consumer.poll(0)
