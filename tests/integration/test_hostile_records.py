"""Every reader of records that others write goes on behind a hostile one. Those of the topics between hosts are in
test_topics_between_hosts.py."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from coordinator.dead_letters.record_format import GROUP, OFFSET, PARTITION, TOPIC
from coordinator.dead_letters.source_records import SourceRecord, SourceRecordReader
from coordinator.protocol.errors import StateBatchUnreadable
from coordinator.service.brokers.cluster import LATEST
from coordinator.service.hosts.topic_clients import Reader
from share_sink.redrive.dlq_reader import dead_letters
from sharegroup import ShareConsumer
from tests.support.asked_hosts import AskedOwner
from tests.support.hostile_records import HOSTILE, OPEN, UNREADABLE, bytes_kept
from tests.support.kafka_broker import KafkaBroker
from tests.support.read_tasks import rows
from tests.support.state_topics import taken
from tests.support.store_writes import append
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

Topic = Callable[..., str]

MANY = 6
KEPT_BYTES = 1 << 20
"""A reader keeps less than this; with large headers MANY records have 2.4 MB."""


def surrounded(kafka: KafkaBroker, name: str, what: str) -> Any:
    """The record "behind", behind a hostile one at offset 0."""
    kept = HOSTILE[what](kafka, name)
    kafka.produce(name, [b"behind"], partition=0)
    return kept


@pytest.mark.parametrize("what", HOSTILE)
def test_a_task_reads_behind_any_record(kafka: KafkaBroker, topic: Topic, task: Any, what: str) -> None:
    name = topic()
    kept = surrounded(kafka, name, what)
    asked = task({(name, 0): [(0, 1, 1)]}, fail_on_damage=False, include_headers=True)
    assert [row["value"] for row in rows(asked) if row["offset"] == 1] == [b"behind"]
    del kept


@pytest.mark.parametrize("what", HOSTILE)
def test_a_share_consumer_reads_behind_any_record(
    kafka: KafkaBroker, topic: Topic, own_runtime: Any, reader: str, what: str
) -> None:
    name = topic()
    kept = surrounded(kafka, name, what)
    config = {"bootstrap.servers": kafka.bootstrap, "group.id": f"group-{name}", "share.auto.offset.reset": "earliest"}
    with ShareConsumer(config) as consumer:
        consumer.subscribe([name])

        def is_read() -> bool:
            found = consumer.poll(1.0)
            return b"behind" in [message.value() for message in found if message.headers() or message.error() is None]

        wait_until(is_read, what="the record behind it comes")
    del kept


@pytest.mark.parametrize("what", HOSTILE)
def test_the_original_behind_any_record_is_read(kafka: KafkaBroker, topic: Topic, what: str) -> None:
    name = topic()
    kept = surrounded(kafka, name, what)
    with contextlib.closing(SourceRecordReader(kafka.bootstrap, {})) as reader:
        first, behind = reader.read(name, 0, [0, 1])
    assert first.offset == 0
    assert isinstance(behind, SourceRecord)
    assert behind.value == b"behind"
    del kept


@pytest.mark.parametrize("what", HOSTILE)
def test_the_dead_letter_behind_any_record_is_read_or_named(
    kafka: KafkaBroker, topic: Topic, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    name = topic()
    kept = HOSTILE[what](kafka, name)
    texts = {TOPIC: "orders", PARTITION: "0", OFFSET: "7", GROUP: "billing"}
    dead_letter = [(header, text.encode()) for header, text in texts.items()]
    kafka.produce(name, [b"behind"], partition=0, headers=dead_letter)
    found = [each.value for each in dead_letters(name, {"bootstrap.servers": kafka.bootstrap})]
    if what == OPEN:
        assert f"2 offsets of {name}-0, from 0 on, are not read" in caplog.text
    else:
        assert found == [b"behind"]
    del kept


def test_an_unreadable_batch_of_the_state_topic_is_named(kafka: KafkaBroker, log_topic: Any, open_at: Any) -> None:
    taken(open_at())
    at = log_topic.offset(0, LATEST)
    HOSTILE[UNREADABLE](kafka, log_topic.name)
    with pytest.raises(StateBatchUnreadable, match=rf"topic {log_topic.name}, partition 0, .* at offset {at}: .*codec"):
        taken(open_at())


@pytest.mark.parametrize("what", [each for each in HOSTILE if each not in (OPEN, UNREADABLE)])
def test_a_group_is_loaded_behind_any_record(kafka: KafkaBroker, log_topic: Any, open_at: Any, what: str) -> None:
    """An open transaction, or a batch that can't be read, is an error by name there: state may be in it."""
    served = open_at()
    taken(served)
    append(served, {"billing": [b"a"]})
    kept = HOSTILE[what](kafka, log_topic.name)
    append(served, {"billing": [b"b"]})
    assert wait_until(lambda: taken(open_at()), what="the group is loaded") == [b"a", b"b"]
    del kept


@pytest.mark.parametrize("what", ["large headers", "junk with our names"])
def test_no_reader_keeps_records_of_others(kafka: KafkaBroker, log_topic: Any, open_at: Any, what: str) -> None:
    """The test asks the readers what they keep, since a process frees memory late."""
    taken(open_at())
    first = log_topic.offset(0, LATEST)
    for _ in range(MANY):
        HOSTILE[what](kafka, log_topic.name)
    store, owner = open_at(), AskedOwner()
    taken(store)
    between_hosts = Reader(log_topic, owner.requests._on_record, "test-reader")
    source = SourceRecordReader(kafka.bootstrap, {})
    with contextlib.closing(between_hosts), contextlib.closing(source):
        between_hosts.add({(log_topic.name, 0): first})
        wait_until(lambda: between_hosts._positions[log_topic.name, 0] >= first + MANY, what="all are read")
        assert len(list(source.read(log_topic.name, 0, range(first, first + MANY)))) == MANY
        kept = {repr(reader): bytes_kept(reader) for reader in (store, between_hosts, owner.requests, source)}
    assert all(size < KEPT_BYTES for size in kept.values()), kept
