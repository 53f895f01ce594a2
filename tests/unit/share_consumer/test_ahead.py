"""Records that a ShareConsumer has acquired ahead of its polls; its coordinator and its brokers are stubs."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from confluent_kafka import KafkaException

from coordinator.protocol.errors import GroupTakenOver
from coordinator.protocol.messages import AcknowledgeReply, PartitionPlan
from coordinator.protocol.values import AcknowledgeType, AcquiredRange
from share_consumer import pace
from share_consumer.ahead import Acquired, Ahead
from share_consumer.fetching import FetchAnswer, Wanted
from share_consumer.pace import BACKLOG_RECORDS, FULL_ANSWERS
from share_consumer.record_runs import HeldRange, RecordRun, Unread
from share_consumer.supply import _Asked
from sharegroup import ShareConsumer, WakeupException
from tests.support import share_members
from tests.support.share_members import JOINS, Stubs, acquired, offsets, refusing, run_of
from tests.support.waiting import wait_until

LAPSED = (1, 1)
"""The member's session has lapsed since the records were acquired, and it has joined again."""


def subscribed(**more: Any) -> tuple[ShareConsumer, Stubs]:
    return share_members.subscribed(**{"max_poll_records": 2, **more})


def waiting(consumer: ShareConsumer, first: int, count: int, **more: Any) -> Any:
    """``count`` records wait for a poll of the consumer, which polled just now."""
    consumer._waiting.polled_s = time.monotonic()
    consumer._supply.ahead.take_in(found := acquired(run_of(first, count), **more), time.monotonic())
    return found


def behind(stubs: Stubs, consumer: ShareConsumer) -> None:
    """The consumer is behind: several answers in a row were full, and brought many records."""
    consumer._supply._pace._backlog = BACKLOG_RECORDS
    for _ in range(FULL_ANSWERS):
        stubs.answer(2)
        assert len(consumer.poll()) == 2


# --- one answer, several polls


def test_one_answer_serves_several_polls_and_each_accepts_the_previous_records() -> None:
    consumer, stubs = subscribed()
    stubs.answer(5)
    assert offsets(consumer.poll()) == [0, 1]
    assert offsets(consumer.poll()) == [2, 3]
    wait_until(lambda: stubs.outcomes() == [(0, "ACCEPT"), (1, "ACCEPT")], what="the first poll's are accepted")
    assert offsets(consumer.poll()) == [4]
    assert len(stubs.wanted) == 1


def test_a_consumer_that_is_behind_asks_ahead_and_its_outcomes_ride() -> None:
    consumer, stubs = subscribed()
    behind(stubs, consumer)
    wait_until(lambda: len(stubs.wanted) == FULL_ANSWERS + 1, what="it asks ahead")
    assert [wanted.ahead for wanted in stubs.wanted] == [False] * FULL_ANSWERS + [True]
    stubs.answer(stubs.wanted[-1].records)
    assert offsets(consumer.poll()) == [6, 7]
    accepted = sorted(offset for offset, _ in stubs.outcomes())
    assert accepted[:4] == [0, 1, 2, 3]


def test_nothing_is_asked_ahead_of_records_that_come_again() -> None:
    consumer, stubs = subscribed()
    stubs.delivery_count = 2
    behind(stubs, consumer)
    assert consumer._supply._pace.is_ahead and not consumer._supply.asks_ahead
    assert len(stubs.wanted) == FULL_ANSWERS


def test_outcomes_are_sent_soon_without_an_acquisition() -> None:
    consumer, stubs = subscribed()
    behind(stubs, consumer)  # the question ahead has no answer yet
    waiting(consumer, 100, 2)
    assert offsets(consumer.poll()) == [100, 101]
    wait_until(lambda: (5, "ACCEPT") in stubs.outcomes(), what="the last poll's are accepted")


def test_the_error_of_acquiring_ahead_is_raised_after_the_waiting_records() -> None:
    consumer, stubs = subscribed()
    behind(stubs, consumer)
    waiting(consumer, 100, 3)
    stubs.fail(GroupTakenOver(group_id="billing", owner="o"))
    wait_until(lambda: consumer._supply._asked and consumer._supply._asked.answer.done(), what="it has failed")
    assert [offsets(consumer.poll()) for _ in range(2)] == [[100, 101], [102]]
    with pytest.raises(KafkaException):
        consumer.poll()
    stubs.answer(1)
    assert offsets(consumer.poll()) == [6]


def test_a_poll_without_records_does_not_wait_for_a_questions_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "AHEAD_RECORDS", 64)
    consumer, stubs = subscribed()
    behind(stubs, consumer)
    wait_until(lambda: len(stubs.wanted) == FULL_ANSWERS + 1, what="it asks ahead")
    stubs.answer(stubs.wanted[-1].records)
    for _ in range(stubs.wanted[-1].records // 2):
        consumer._supply._pace._each_s = 4.0  # seconds a record: the next question has time
        assert len(consumer.poll()) == 2
    asked = consumer._supply._asked
    assert asked is not None and asked.wanted.ahead and not asked.now.is_set()
    assert len(stubs.wanted) == FULL_ANSWERS + 1
    consumer.poll(0)
    assert asked.now.is_set()


def test_in_explicit_mode_records_wait_and_need_outcomes_too() -> None:
    consumer, stubs = subscribed(share_acknowledgement_mode="explicit")
    stubs.answer(4)
    for expected in ([0, 1], [2, 3]):
        messages = list(consumer.poll())
        assert offsets(messages) == expected
        for message in messages:
            consumer.acknowledge(message)
    consumer.commit_sync()
    assert sorted(stubs.outcomes()) == [(at, "ACCEPT") for at in range(4)]


# --- locks


def test_records_whose_locks_ended_are_not_handed_out() -> None:
    consumer, stubs = subscribed()
    waiting(consumer, 0, 2).until_s = time.monotonic() - 1
    stubs.membership.reply = refusing(0, 1)
    stubs._next = 7
    stubs.answer(1)
    assert offsets(consumer.poll()) == [7]


def test_a_refused_renewal_drops_its_records_and_no_others() -> None:
    consumer, stubs = subscribed()
    waiting(consumer, 0, 4)
    waiting(consumer, 9, 2)
    stubs.membership.reply = refusing(2)
    consumer._renewer.start(30_000)
    consumer._renewer.renew()
    assert offsets(consumer.poll()) == [9, 10]


def test_records_done_below_the_start_offset_are_not_handed_out() -> None:
    """Another member has done these records: an outcome below the start offset is not refused."""
    consumer, stubs = subscribed()
    waiting(consumer, 0, 4)
    stubs.membership.reply = lambda partitions: AcknowledgeReply(done_below={"T:0": 3})
    consumer._renewer.start(30_000)
    consumer._renewer.renew()
    assert offsets(consumer.poll()) == [3]


def test_a_later_delivery_drops_the_earlier_delivery_of_a_record() -> None:
    consumer, _ = subscribed(max_poll_records=9)
    waiting(consumer, 0, 4)
    now_s = time.monotonic()
    consumer._supply.ahead.take_in(acquired(run_of(2, 1, delivery_count=2)), now_s)
    messages = consumer.poll()
    assert [(m.offset(), m.delivery_count()) for m in messages] == [(2, 2)], "its lock of before is over"


def test_records_whose_renewal_is_refused_during_the_read_are_dropped() -> None:
    consumer, stubs = subscribed()
    found = acquired(run_of(0, 2), run_of(5, 2))
    consumer._waiting.polled_s = time.monotonic()
    consumer._supply.ahead.begin(found)
    stubs.membership.reply = refusing(1)
    consumer._renewer.start(30_000)
    consumer._renewer.renew()
    consumer._supply.ahead.take_in(found, time.monotonic())
    assert offsets(consumer.poll()) == [5, 6]


def test_after_a_lapse_of_the_session_locks_are_renewed_first() -> None:
    consumer, stubs = subscribed()
    waiting(consumer, 0, 2)
    waiting(consumer, 5, 2)
    stubs.membership.joins = LAPSED
    stubs.membership.reply = refusing(0)
    assert offsets(consumer.poll()) == [5, 6]


def test_records_of_a_lapsed_session_are_not_handed_out_unasked() -> None:
    consumer, stubs = subscribed()
    waiting(consumer, 0, 2)
    stubs.membership.joins = LAPSED

    def no_answer(_: object) -> AcknowledgeReply:
        raise GroupTakenOver(group_id="billing", owner="o")

    stubs.membership.reply = no_answer
    stubs._next = 7
    stubs.answer(1)
    assert offsets(consumer.poll()) == [7]


@pytest.mark.parametrize("lapsed", [True, False])
def test_a_program_that_polls_late_gets_records_under_new_locks(lapsed: bool) -> None:
    consumer, stubs = subscribed()
    consumer._renewer.start(30_000)
    found = waiting(consumer, 0, 2)
    found.answered_s -= 10
    if lapsed:
        stubs.membership.lives_until_s = time.monotonic()
    else:
        found.until_s -= 10
    began_s = time.monotonic()
    assert offsets(consumer.poll()) == [0, 1]
    assert [(kind, parts[0].batches[0].types) for kind, parts in stubs.membership.calls] == [("acknowledge", (4,))]
    assert found.until_s > began_s + 29


def test_locks_are_not_renewed_beyond_the_poll_interval() -> None:
    consumer, _ = subscribed(max_poll_interval_ms=1)
    waiting(consumer, 0, 2)
    consumer._waiting.polled_s = -1e9
    assert consumer._held() == ()


def test_a_renewal_names_waiting_records_and_not_returned_records() -> None:
    consumer, _ = subscribed()
    waiting(consumer, 0, 5)
    consumer.poll()
    assert [(b.first, b.last) for part in consumer._held() for b in part.batches] == [(2, 4)]


def test_a_renewal_begun_before_an_acquisition_extends_none_of_its_locks() -> None:
    consumer, _ = subscribed()
    consumer._renewer.start(3_600_000)
    before = threading.Event()
    named = consumer._held
    consumer._renewer._held = lambda: lambda: (before.set(), waiting(consumer, 9, 1), named())[2]  # type: ignore
    consumer._renewer.renew()
    (late,) = consumer._supply.ahead._waiting
    assert before.is_set() and late.until_s < time.monotonic() + 31


# --- the end


def test_close_releases_waiting_records_and_counts_no_try() -> None:
    consumer, stubs = subscribed()
    stubs.answer(5)
    consumer.poll()
    consumer.close()
    assert stubs.outcomes() == [(2, "RELEASE"), (3, "RELEASE"), (4, "RELEASE")], "in order, and not the program's"
    assert [kind for kind, _ in stubs.membership.calls] == ["acknowledge", "leave"]


def test_outcomes_of_a_cancelled_acquisition_request_are_sent() -> None:
    consumer, stubs = subscribed()
    behind(stubs, consumer)
    blocked = threading.Event()
    stubs.answer(2)
    stubs.answer(0)
    wait_until(lambda: consumer._supply.has_come, what="the records ahead come")
    consumer._supply._worker.submit(lambda: blocked.wait(60))
    assert offsets(consumer.poll()) == [6, 7]
    consumer.unsubscribe()
    blocked.set()
    wait_until(lambda: (5, "ACCEPT") in stubs.outcomes(), what="the outcomes are sent")


def test_a_wakeup_leaves_the_records_ahead_to_the_next_poll() -> None:
    consumer, stubs = subscribed()
    stubs.answer(4)
    consumer.poll()
    consumer.wakeup()
    with pytest.raises(WakeupException):
        consumer.poll()
    assert offsets(consumer.poll()) == [2, 3]


def test_waiting_records_of_a_lapsed_session_need_a_renewal() -> None:
    ahead = Ahead()
    now_s = time.monotonic()
    ahead.take_in(acquired(run_of(0, 2)), now_s)
    assert not ahead.needs_renewal(now_s, JOINS, now_s + 1)
    assert ahead.needs_renewal(now_s, LAPSED, now_s + 1) and ahead.needs_renewal(now_s, JOINS, now_s)
    assert ahead.look(9, now_s, LAPSED) == []


def test_a_callback_that_raises_leaves_a_polls_records_ahead() -> None:
    """Records there are renewed, and a poll looks at their locks before it returns them."""
    consumer, stubs = subscribed()
    stubs.answer(2)
    consumer.poll()

    def fails(offsets: object, error: object) -> None:
        raise RuntimeError("the program's callback")

    consumer.set_acknowledgement_commit_callback(fails)
    stubs.answer(2)
    with pytest.raises(RuntimeError):
        consumer.poll()
    consumer.set_acknowledgement_commit_callback(None)
    assert consumer._supply.ahead.records == 2
    assert offsets(consumer.poll()) == [2, 3]


def test_no_poll_returns_what_another_subscription_gives_back() -> None:
    consumer, stubs = subscribed()
    stubs.answer(4)
    consumer.poll()
    blocked = threading.Event()
    consumer._supply._worker.submit(lambda: blocked.wait(60))
    consumer.subscribe(["invoices"])
    assert consumer._supply.ahead.records == 0, "at once, though the release waits"
    blocked.set()
    wait_until(lambda: stubs.outcomes() == [(2, "RELEASE"), (3, "RELEASE")], what="they are released")


def test_what_a_release_in_order_gives_back_is_not_handed_out() -> None:
    consumer, stubs = subscribed(share_acknowledgement_mode="explicit")
    stubs.ordered = True
    stubs.answer(6)
    first, second = consumer.poll()
    consumer.acknowledge(first, AcknowledgeType.ACCEPT)
    consumer.acknowledge(second, AcknowledgeType.RELEASE)
    stubs.answer(2)
    assert offsets(consumer.poll()) == [6, 7], "2 to 5 were given back with 1"
    assert stubs.outcomes() == [(0, "ACCEPT"), (1, "RELEASE")]


def test_what_a_release_in_order_gives_back_is_dropped_unread() -> None:
    consumer, stubs = subscribed(share_acknowledgement_mode="explicit")
    stubs.ordered = True
    stubs.answer(2)
    _, second = consumer.poll()
    stubs.hold(2, 3)
    consumer.acknowledge(second, AcknowledgeType.RELEASE)
    consumer._drop_given_back()
    reading = stubs.supply.ahead._reading
    assert reading is not None and stubs.supply.ahead.take_in(reading, time.monotonic()) == []
    assert stubs.supply.ahead.records == 0


def come(stubs: Stubs, *runs: RecordRun, unread: list[Unread] | None = None) -> Acquired:
    """These records of an ordered group came in reply to a request; they are to be taken in."""
    found = acquired(*runs)
    found.unread = unread or []
    last = max(run.last for run in runs)
    found.partitions = (partition_plan(0, last),)
    asked = stubs.supply._asked = _Asked(Wanted(("orders",), 2))
    asked.answer.set_result(FetchAnswer(found, ordered=True))
    stubs.supply.ahead.begin(found)
    return found


def partition_plan(first: int, last: int) -> PartitionPlan:
    return PartitionPlan(topic="orders", topic_id="T", partition=0, ranges=(AcquiredRange(first, last, 1),))


def not_decompressed(first: int, count: int) -> RecordRun:
    run = run_of(first, count)
    run.outcome = AcknowledgeType.RELEASE
    return run


def test_offsets_not_read_are_released_with_what_follows_in_order() -> None:
    consumer, stubs = subscribed()  # it lives: one that is collected releases what it holds
    unread = [Unread(("orders", 0), "T", HeldRange(2, 3, 1), AcknowledgeType.RELEASE)]
    unread += [Unread(("orders", 0), "T", HeldRange(at, at, 1), AcknowledgeType.GAP) for at in (1, 6)]
    come(stubs, run_of(0, 1), run_of(4, 2), run_of(7, 1), unread=unread)
    gaps = consumer._supply.take_in()[1]
    assert [of.range.first for of in gaps] == [1], "an outcome of what is released would be refused"
    assert [(run.first, run.last) for run in stubs.supply.look()] == [(0, 0)]
    released = [(offset, "RELEASE") for offset in range(2, 8)]
    wait_until(lambda: stubs.outcomes() == released, what="all is named: below the log's start no release tells it")


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_records_behind_a_batch_not_decompressed_wait_for_it_in_order(mode: str) -> None:
    consumer, stubs = subscribed(share_acknowledgement_mode=mode, max_poll_records=10)
    come(stubs, run_of(0, 1), not_decompressed(1, 2), run_of(3, 2), not_decompressed(5, 1), run_of(6, 1))
    assert offsets(consumer.poll()) == [0, 1, 2]
    wait_until(lambda: stubs.outcomes() == [(at, "RELEASE") for at in range(3, 7)], what="the rest is released")
    if mode == "explicit":
        consumer.acknowledge_offset("orders", 0, 0)
    consumer.commit_sync()
    assert stubs.outcomes()[4:] == [(0, "ACCEPT"), (1, "RELEASE"), (2, "RELEASE")]


def test_a_batch_not_decompressed_cuts_the_rest_of_its_acquisition() -> None:
    _, stubs = subscribed()
    found = come(stubs, not_decompressed(0, 2))
    stubs.supply.ahead.split(found, found.partitions, (partition_plan(2, 3),))
    stubs.supply.take_in()
    wait_until(lambda: stubs.outcomes() == [(2, "RELEASE"), (3, "RELEASE")], what="the rest is released")
    assert not stubs.supply.ahead.has_rest


def test_a_released_part_of_a_batch_takes_its_rest_along_in_order() -> None:
    consumer, stubs = subscribed()
    come(stubs, not_decompressed(0, 3))
    assert offsets(consumer.poll()) == [0, 1]
    consumer.commit_sync()
    assert stubs.outcomes() == [(0, "RELEASE"), (1, "RELEASE")]
    assert stubs.supply.look() == [], "2 was given back, and no poll returns it"
