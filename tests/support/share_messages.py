"""The messages of a ShareConsumer, read without one: a task's records, collected as a ShareConsumer collects them."""

from __future__ import annotations

import math

from coordinator.protocol.messages import PartitionPlan
from share_consumer.fetching import collector_of
from share_consumer.message import Message
from share_consumer.reading import read_records
from share_consumer.record_runs import RunCollector
from share_source.executor.range_cursor import Key
from share_source.executor.range_reader import ReadTask
from share_source.executor.reader_choice import NATIVE


def collected(asked: ReadTask, reader: str) -> tuple[RunCollector, dict[Key, list[tuple[int, int]]]]:
    """The task's records, and the offsets that the log lost."""
    plans = [
        PartitionPlan(topic_id=p.topic_id, topic=p.topic, partition=p.partition, ranges=p.ranges)
        for p in asked.partitions
    ]
    collector = collector_of(plans, reader == NATIVE)
    not_read = read_records(asked, collector, native=reader == NATIVE, patience_s=math.inf)
    return collector, not_read.lost


def messages_in(collector: RunCollector) -> list[Message]:
    return [message for run in collector.runs() for message in run.messages]


def messages_of(asked: ReadTask, reader: str) -> list[Message]:
    return messages_in(collected(asked, reader)[0])
