"""A worker's idle consumers are parked and closed, also beside one that fails at it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from share_source.executor import consumers
from share_source.executor.consumers import ConsumerCache
from tests.support.waiting import wait_until


class IdleConsumer:
    """A consumer that was given back."""

    def __init__(self, fault: str = "") -> None:
        self.config, self.idle_since_s, self.done = (), 0.0, list[str]()
        self.positions: dict[Any, Any] = {("orders", 0): (0, "T")}
        self._fault = fault

    def park(self) -> None:
        self._do("park")
        self.positions.clear()

    def close(self) -> None:
        self._do("close")

    def _do(self, what: str) -> None:
        self.done.append(what)
        if what == self._fault:
            raise RuntimeError(f"can't {what}")


@pytest.mark.parametrize("fault", ["park", "close"])
def test_a_consumer_that_fails_to_end_keeps_no_other_open(
    fault: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(consumers, "PARK_AFTER_S", 0.0)
    monkeypatch.setattr(consumers, "CLOSE_AFTER_S", 0.0)
    cache, failing, other = ConsumerCache(), IdleConsumer(fault), IdleConsumer()
    with caplog.at_level(logging.WARNING):
        cache.give_back(failing)  # type: ignore[arg-type]
        wait_until(lambda: failing.done[-1:] == [fault], what="the first one fails")
        cache.give_back(other)  # type: ignore[arg-type]
        wait_until(lambda: other.done == ["park", "close"], what="the other one is parked and closed")
        wait_until(lambda: not cache._idle and cache._janitor is None, what="nothing is idle, and the thread ends")
    assert [record.getMessage() for record in caplog.records] == [
        f"an idle consumer is dropped: RuntimeError: can't {fault}"
    ]
