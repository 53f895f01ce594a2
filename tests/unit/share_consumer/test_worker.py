"""The thread that runs a ShareConsumer's calls."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import IllegalStateException

from share_consumer.worker import Worker


def test_a_call_that_was_cancelled_ends_no_later_call() -> None:
    worker, go = Worker("test"), threading.Event()
    ran: list[str] = []
    first = worker.submit(go.wait)
    given_up = worker.submit(lambda: ran.append("given up"))
    assert given_up.cancel()
    go.set()
    assert worker.submit(lambda: "answer").result(60) == "answer"
    assert first.result(60) and not ran
    worker.close()


def test_a_call_after_close_raises_that_the_consumer_is_closed() -> None:
    worker = Worker("test")
    worker.close()
    with pytest.raises(IllegalStateException, match="Share consumer closed"):
        worker.submit(lambda: "answer").result(60)
