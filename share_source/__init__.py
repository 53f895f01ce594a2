"""The Spark source: its options, its offsets, and reading; and the ShareConsumer, for programs without Spark.

Rule: importing this package imports nothing else, since each of Spark's workers does; the names below load their
modules when they are asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coordinator.protocol.values import AcknowledgeType
    from share_source.finished_run import complete_run
    from share_source.share_consumer.aio import AsyncShareConsumer
    from share_source.share_consumer.consumer import ShareConsumer
    from share_source.share_consumer.errors import UsedAfterFork, WakeupException
    from share_source.views.query_listener import ShareGroupListener

__all__ = [
    "AcknowledgeType",
    "AsyncShareConsumer",
    "ShareConsumer",
    "ShareGroupListener",
    "UsedAfterFork",
    "WakeupException",
    "complete_run",
]

_MODULES = {
    "AcknowledgeType": "coordinator.protocol.values",
    "AsyncShareConsumer": "share_source.share_consumer.aio",
    "ShareConsumer": "share_source.share_consumer.consumer",
    "ShareGroupListener": "share_source.views.query_listener",
    "UsedAfterFork": "share_source.share_consumer.errors",
    "WakeupException": "share_source.share_consumer.errors",
    "complete_run": "share_source.finished_run",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
