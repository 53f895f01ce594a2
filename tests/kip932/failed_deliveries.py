"""The three ways in which a delivery to a ShareConsumer fails (KIP-932, In-flight records)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kip932.consumers import LOCK_MS, RELEASE, ShareConsumers


def release(group: ShareConsumers, count: int) -> None:
    assert group.acknowledge(RELEASE, 0, count=count) == "NONE"


def lose_the_lock(group: ShareConsumers, count: int) -> None:
    group.wait(LOCK_MS + 1)


def leave(group: ShareConsumers, count: int) -> None:
    group.leave()
    group.join("c1", query=False)


Failure = Callable[[ShareConsumers, int], None]
each_failure = pytest.mark.parametrize("fail", [release, lose_the_lock, leave], ids=lambda fail: fail.__name__)
