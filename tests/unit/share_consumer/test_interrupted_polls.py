"""Ctrl+C at any point of a ShareConsumer's poll: no record is lost, returned twice, or accepted before the program has
it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from itertools import count
from types import FrameType
from typing import Any

import pytest
from confluent_kafka import ConcurrentModificationException, IllegalStateException

from share_consumer import consumer as consumer_module
from share_consumer.errors import WakeupException
from sharegroup import ShareConsumer
from tests.support.share_members import CONFIG, Stubs, offsets
from tests.support.waiting import wait_until

CODE = (consumer_module.__file__.rpartition("/")[0], contextlib.__file__)
RECORDS = [0, 1]


class Interrupt:
    """Ctrl+C, once, at the ``at``-th point of the consumer's code at which CPython looks for signals: where a function
    of Python begins, and where one of C has returned."""

    def __init__(self, at: int) -> None:
        self.left = at

    def profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(CODE):
            self.left -= 1
            if self.left < 0:
                sys.setprofile(None)
                raise KeyboardInterrupt


def poll_interrupted(consumer: ShareConsumer, at: int) -> list[int] | None:
    """The offsets that the program gets; None: Ctrl+C came."""
    before = sys.getprofile()
    sys.setprofile(Interrupt(at).profile)
    try:
        messages = consumer.poll(60)
    except KeyboardInterrupt:
        return None
    finally:
        sys.setprofile(before)
    return offsets(messages)


def interrupted(*answers: int, polls: int = 0, **config: Any) -> Iterator[tuple[str, ShareConsumer, Stubs, list[int]]]:
    """Yields consumers whose poll was interrupted, each at a later point than the one before, until no Ctrl+C comes.
    With each: the point, the stubs, and the offsets that the program has of the ``polls`` whole polls before."""
    for at in count():
        consumer = ShareConsumer({**CONFIG, **config})
        consumer.subscribe(["orders"])
        stubs = Stubs(consumer)
        for records in answers:
            stubs.answer(records)
        got = [offset for _ in range(polls) for offset in offsets(consumer.poll(60))]
        found = poll_interrupted(consumer, at)
        if found is not None:
            assert found == [len(got), len(got) + 1]
            assert at > 50, "Ctrl+C came at many points"
            return
        yield f"point {at}", consumer, stubs, got


def poll_on(consumer: ShareConsumer, got: list[int], records: int, point: str) -> None:
    """Poll until so many records have come."""
    wait_until(lambda: got.extend(offsets(consumer.poll(0.1))) or len(got) >= records, what=f"{point}: they come")


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_an_interrupted_poll_loses_doubles_and_accepts_no_record(mode: str) -> None:
    for point, consumer, stubs, got in interrupted(2, 0, **{"share.acknowledgement.mode": mode}):
        consumer.commit_sync()
        assert stubs.outcomes() == [], f"{point}: the program has no record yet"
        poll_on(consumer, got, 2, point)
        assert got == RECORDS, point
        if mode == "explicit":
            for offset in got:
                consumer.acknowledge_offset("orders", 0, offset)
        consumer.commit_sync()
        assert stubs.outcomes() == [(offset, "ACCEPT") for offset in RECORDS], point
        assert offsets(consumer.poll(0.01)) == [], point


@pytest.mark.slow
def test_a_later_poll_that_is_interrupted_returns_each_record_once() -> None:
    """Outcomes that it was sending may be lost, and their records come again after their locks; none is accepted that
    the program does not have, and all later ones are."""
    later = [2, 3, 4, 5]
    for point, consumer, stubs, got in interrupted(2, 2, 2, polls=1, **{"max.poll.records": 2}):
        consumer.commit_sync()
        assert {offset for offset, _ in stubs.outcomes()} <= set(got), point
        poll_on(consumer, got, 6, point)
        consumer.commit_sync()
        assert got == [*RECORDS, *later], point
        accepted = sorted(offset for offset, _ in stubs.outcomes())
        assert accepted in (later, [*RECORDS, *later]), f"{point}: {accepted}"


def test_a_poll_that_is_refused_takes_no_records_of_another_threads_poll() -> None:
    consumer = ShareConsumer(CONFIG)
    consumer.subscribe(["orders"])
    stubs = Stubs(consumer)
    stubs.answer(len(RECORDS))
    enter, got = consumer._inside.enter, list[int]()

    def refused() -> Any:
        consumer._inside.enter = enter  # type: ignore[method-assign]
        got.extend(offsets(consumer.poll(60)))  # the other thread's poll returns meanwhile
        raise ConcurrentModificationException("another thread is inside")

    consumer._inside.enter = refused  # type: ignore[method-assign]
    with pytest.raises(ConcurrentModificationException):
        consumer.poll(60)
    assert got == RECORDS
    consumer.commit_sync()
    assert stubs.outcomes() == [(offset, "ACCEPT") for offset in RECORDS]


def test_a_poll_interrupted_beside_an_empty_answer_leaves_the_consumer_usable() -> None:
    for point, consumer, _, got in interrupted(0, 2):
        poll_on(consumer, got, 2, point)
        assert got == RECORDS, point


def test_a_signal_handler_that_closes_learns_to_wake_the_poll_up(monkeypatch) -> None:
    consumer, refused = ShareConsumer(CONFIG), list[str]()
    consumer.subscribe(["orders"])
    Stubs(consumer)

    def terminate(*_: object) -> None:
        try:
            consumer.close()
        except IllegalStateException as error:
            refused.append(str(error))
            consumer.wakeup()

    before = signal.signal(signal.SIGTERM, terminate)
    wait = consumer._waiting.wait

    def signalled(*arguments: Any) -> bool:
        threading.Timer(0, os.kill, (os.getpid(), signal.SIGTERM)).start()
        return wait(*arguments)

    monkeypatch.setattr(consumer._waiting, "wait", signalled)
    try:
        with pytest.raises(WakeupException):
            consumer.poll(60)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert len(refused) == 1 and "call wakeup() there" in refused[0]
