"""Reads a state topic with Kafka's own ShareGroupStateMessageFormatter, and combines the state from its lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from coordinator.core.record_state import TERMINAL
from coordinator.state_log.kafka_values import apply_update
from coordinator.state_log.record_values import ShareSnapshotValue, StateBatch
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_log import messages_of
from tests.support.state_records import snapshot_of, update_of

CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
FORMATTER = "org.apache.kafka.tools.consumer.group.share.ShareGroupStateMessageFormatter"
SNAPSHOT, UPDATE = 0, 1


class Outcome(NamedTuple):
    """Of a share partition: its start offset, and what is known of the records from there on."""

    start_offset: int
    batches: tuple[StateBatch, ...]


def printed(kafka: KafkaBroker, topic: str, partition: int) -> list[dict[str, Any]]:
    """The records that the formatter prints of one partition, from its beginning to its end now."""
    records = len(messages_of(kafka.bootstrap, topic, partition=partition))
    if not records:
        return []
    arguments = ["--bootstrap-server", kafka.bootstrap, "--topic", topic, "--partition", str(partition)]
    arguments += ["--offset", "earliest", "--isolation-level", "read_committed", "--max-messages", str(records)]
    output = kafka.run_tool(CONSOLE_CONSUMER, *arguments, "--formatter", FORMATTER)
    return [*_objects(output)]


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """JSON objects one behind the other, as the formatter prints them: not a line each."""
    decoder, at = json.JSONDecoder(), 0
    while (at := text.find("{", at)) >= 0:
        found, at = decoder.raw_decode(text, at)
        yield found


def states(printed_records: list[dict[str, Any]], group_id: str) -> dict[tuple[str, int], ShareSnapshotValue]:
    """By topic id and partition: the latest snapshot with the updates after it combined."""
    found: dict[tuple[str, int], ShareSnapshotValue] = {}
    for record in printed_records:
        key, value = record["key"], record["value"]["data"]
        where = (key["data"]["topicId"], key["data"]["partition"])
        if key["data"]["groupId"] != group_id:
            continue
        if key["type"] == SNAPSHOT:
            found[where] = snapshot_of(value)
        else:
            assert key["type"] == UPDATE, key
            found[where] = apply_update(found[where], update_of(value))
    return found


def advanced(start_offset: int | None, batches: tuple[StateBatch, ...]) -> Outcome:
    """The start offset over what is terminal at the front: that each event_loop moves it at its own time is no
    difference."""
    at = start_offset or 0
    left = list(batches)
    while left and left[0].first_offset <= at and left[0].delivery_state in TERMINAL:
        at = left.pop(0).last_offset + 1
    return Outcome(at, tuple(left))
