"""The Spark source: its options, its offsets, and reading; and the ShareConsumer, for programs without Spark.

Rule: importing this package imports nothing else, since each of Spark's workers does; the names below load their
modules when they are asked for. The names that a program imports beside confluent_kafka.ShareConsumer are here too, so
that such a program changes its import alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import (
        TIMESTAMP_CREATE_TIME,
        TIMESTAMP_LOG_APPEND_TIME,
        TIMESTAMP_NOT_AVAILABLE,
        ConcurrentModificationException,
        IllegalStateException,
        KafkaError,
        KafkaException,
        Message,
        Messages,
        TopicPartition,
    )

    from coordinator.protocol.values import AcknowledgeType
    from share_source.finished_run import complete_run
    from share_source.share_consumer.aio import AsyncShareConsumer
    from share_source.share_consumer.consumer import ShareConsumer
    from share_source.share_consumer.deserializing_consumer import DeserializingShareConsumer
    from share_source.share_consumer.errors import UsedAfterFork, WakeupException
    from share_source.views.query_listener import ShareGroupListener

__all__ = [
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "AcknowledgeType",
    "AsyncShareConsumer",
    "ConcurrentModificationException",
    "DeserializingShareConsumer",
    "IllegalStateException",
    "KafkaError",
    "KafkaException",
    "Message",
    "Messages",
    "ShareConsumer",
    "ShareGroupListener",
    "TopicPartition",
    "UsedAfterFork",
    "WakeupException",
    "complete_run",
]

_MODULES = {
    "TIMESTAMP_CREATE_TIME": "confluent_kafka",
    "TIMESTAMP_LOG_APPEND_TIME": "confluent_kafka",
    "TIMESTAMP_NOT_AVAILABLE": "confluent_kafka",
    "AcknowledgeType": "coordinator.protocol.values",
    "AsyncShareConsumer": "share_source.share_consumer.aio",
    "ConcurrentModificationException": "confluent_kafka",
    "DeserializingShareConsumer": "share_source.share_consumer.deserializing_consumer",
    "IllegalStateException": "confluent_kafka",
    "KafkaError": "confluent_kafka",
    "KafkaException": "confluent_kafka",
    "Message": "confluent_kafka",
    "Messages": "confluent_kafka",
    "ShareConsumer": "share_source.share_consumer.consumer",
    "ShareGroupListener": "share_source.views.query_listener",
    "TopicPartition": "confluent_kafka",
    "UsedAfterFork": "share_source.share_consumer.errors",
    "WakeupException": "share_source.share_consumer.errors",
    "complete_run": "share_source.finished_run",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
