"""Ctrl+C at any point of a ShareConsumer's poll: no record is lost, returned twice, or accepted before the program has
it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
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


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_an_interrupted_poll_loses_doubles_and_accepts_no_record(mode: str) -> None:
    at = 0
    while True:
        consumer = ShareConsumer({**CONFIG, "share.acknowledgement.mode": mode})
        consumer.subscribe(["orders"])
        stubs = Stubs(consumer)
        stubs.answer(len(RECORDS))
        stubs.answer(0)
        found = poll_interrupted(consumer, at)
        if found is not None:
            assert found == RECORDS
            break
        consumer.commit_sync()
        assert stubs.outcomes() == [], f"point {at}: the program has no record yet"
        got: list[int] = []
        wait_until(
            lambda g=got, c=consumer: g.extend(offsets(c.poll(0.1))) or len(g) >= 2, what=f"point {at}: they come"
        )
        assert got == RECORDS, f"point {at}"
        if mode == "explicit":
            for offset in got:
                consumer.acknowledge_offset("orders", 0, offset)
        consumer.commit_sync()
        assert stubs.outcomes() == [(offset, "ACCEPT") for offset in RECORDS], f"point {at}"
        assert offsets(consumer.poll(0.01)) == [], f"point {at}"
        at += 1
    assert at > 50, "Ctrl+C came at many points"


@pytest.mark.slow
def test_a_later_poll_that_is_interrupted_returns_each_record_once() -> None:
    """Outcomes that it was sending may be lost, and their records come again after their locks; none is accepted that
    the program does not have, and all later ones are."""
    at, later = 0, [2, 3, 4, 5]
    while True:
        consumer = ShareConsumer({**CONFIG, "max.poll.records": 2})
        consumer.subscribe(["orders"])
        stubs = Stubs(consumer)
        for _ in range(3):
            stubs.answer(2)
        got = offsets(consumer.poll(60))
        found = poll_interrupted(consumer, at)
        if found is not None:
            break
        consumer.commit_sync()
        assert {offset for offset, _ in stubs.outcomes()} <= set(got), f"point {at}"
        wait_until(lambda g=got, c=consumer: g.extend(offsets(c.poll(0.1))) or len(g) >= 6, what=f"point {at}")
        consumer.commit_sync()
        assert got == [*RECORDS, *later], f"point {at}"
        accepted = sorted(offset for offset, _ in stubs.outcomes())
        assert accepted in (later, [*RECORDS, *later]), f"point {at}: {accepted}"
        at += 1
    assert at > 50


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
    at = 0
    while True:
        consumer = ShareConsumer(CONFIG)
        consumer.subscribe(["orders"])
        stubs = Stubs(consumer)
        stubs.answer(0)
        stubs.answer(len(RECORDS))
        if poll_interrupted(consumer, at) is not None:
            break
        got: list[int] = []
        wait_until(lambda g=got, c=consumer: g.extend(offsets(c.poll(0.1))) or len(g) >= 2, what=f"point {at}")
        assert got == RECORDS, f"point {at}"
        at += 1
    assert at > 50


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
