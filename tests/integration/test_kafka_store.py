"""The Kafka store keeps the store's promises on a real broker, and its owners fence each other."""

import contextlib
import time
import uuid
from concurrent.futures import Future
from unittest import mock

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from coordinator.protocol.errors import (
    GroupStateTooNew,
    GroupStateTooOld,
    GroupTakenOver,
    NotCoordinator,
    StateRecordUnreadable,
    StateTopicUnfit,
)
from coordinator.protocol.format_versions import STATE_RECORDS
from coordinator.service.brokers.cluster import LATEST
from coordinator.service.stores.kafka import group_writer
from coordinator.service.stores.kafka.group_writer import GroupWriter
from coordinator.service.stores.kafka.partition_count import prepared
from coordinator.service.stores.store import StoreFenced, StoreOutcomeUnknown, StoreRefused
from coordinator.state_log.owner_record import encode_owner
from coordinator.state_log.placement import PLACEMENT_KEY, encode_placement
from coordinator.state_log.record_keys import GroupOwnerKey, GroupRecordKey, encode_key
from coordinator.state_log.value_version import versioned
from tests.support.state_topics import Hosts, owner, state_topic, taken
from tests.support.store_contract import StoreContract
from tests.support.store_writes import append, snapshot
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker


class Breaking:
    """A group's producer whose next transaction does not end as it should."""

    def __init__(self, writer, how):
        self.writer, self.producer, self.how = writer, writer._producer, how

    def __getattr__(self, name):
        return getattr(self.producer, name)

    def __len__(self):
        return len(self.producer)

    def commit_transaction(self, timeout_s):
        self.writer._producer = self.producer
        refused = self.how == "refused"
        if self.how == "doubtful, written":
            self.producer.commit_transaction(timeout_s)
        else:
            assert self.producer.flush(timeout_s) == 0  # it lies in the log, and is open
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, retriable=not refused, txn_requires_abort=refused))


class TestContract(StoreContract):
    REFUSED_SNAPSHOT = StoreOutcomeUnknown

    @pytest.fixture
    def reopen(self, open_at):
        return open_at

    @pytest.fixture
    def break_next(self):
        def break_it(store, how):
            writer = next(iter(store._open.values())).writer
            writer._producer = Breaking(writer, how)

        return break_it


def test_a_refused_snapshot_is_followed_by_a_load(open_at):
    """The snapshot's abort takes back the append before it, if Kafka has left that one open."""
    store = open_at()
    taken(store)
    append(store, {"billing": [b"a"]})
    writer = store._open["billing"].writer
    writer._producer = Breaking(writer, "refused")
    with pytest.raises(StoreOutcomeUnknown):
        snapshot(store, "billing", [b"s"])
    assert taken(store) == [b"a"]


def test_a_store_knows_whether_another_process_owned_the_group_since_its_load(open_at):
    mine, other = open_at("one"), open_at("two")
    taken(mine)
    append(mine, {"billing": [b"a"]})
    assert not mine.kept("billing")
    taken(mine)
    assert mine.kept("billing")
    taken(other)
    taken(mine)
    assert not mine.kept("billing")


def test_a_program_that_fences_an_owner_again_is_named_in_the_log(open_at, log_topic, caplog):
    store = open_at()
    for _ in range(2):
        taken(store)
        append(store, {"billing": [b"a"]})
        GroupWriter(log_topic, 0, "billing").fence()
        with pytest.raises(StoreOutcomeUnknown):
            append(store, {"billing": [b"b"]})
    taken(store)
    assert store.kept("billing")
    assert "2 times by now" in caplog.text and "may have Write" in caplog.text


def test_an_append_to_a_lost_and_an_owned_group_writes_the_owned(open_at):
    old, new = open_at("one"), open_at("two")
    taken(old), taken(old, "shipping")
    append(old, {"billing": [b"a"], "shipping": [b"x"]})
    taken(new)
    with pytest.raises(Exception, match=r"billing: .*taken over") as raised:
        append(old, {"billing": [b"late"], "shipping": [b"y"]})
    assert set(raised.value.failed) == {"billing"}
    assert taken(old, "shipping") == [b"x", b"y"]
    assert taken(new) == [b"a"]


def committed_end(log_topic):
    """The end of the log; None while a transaction is open, or its marker is not written yet."""
    end = log_topic.offset(0, LATEST)
    return end if log_topic.offset(0, LATEST, read_committed=True) == end else None


def produce(kafka, log_topic, key, value):
    kafka.produce(log_topic.name, [value], keys=[key], partition=0)


def test_an_unreadable_record_stops_the_load_with_its_partition_and_offset(kafka, log_topic, open_at):
    store = open_at()
    taken(store)
    append(store, {"billing": [b"a"]})
    produce(kafka, log_topic, encode_key(GroupRecordKey("billing", 5)), versioned(b"x"))
    at = rf"Record at offset \d+ of share group billing in state store {log_topic.name}-0"
    with pytest.raises(StateRecordUnreadable, match=f"{at} .*record 5 comes where 1 should"):
        taken(store)


NEWER = (STATE_RECORDS + 1).to_bytes(2, "big")
READS = f"and this version reads format version {STATE_RECORDS}"


@pytest.mark.parametrize(
    ("claim", "version", "error", "reason"),
    [
        (True, NEWER, GroupStateTooNew, f"has format version {STATE_RECORDS + 1}, {READS}"),
        (False, b"", GroupStateTooOld, f"has no format version, {READS}"),
    ],
)
def test_a_group_of_another_format_version_is_refused_before_anything_is_written(
    kafka, log_topic, open_at, claim, version, error, reason
):
    store, other = open_at(), open_at()
    taken(store)
    append(store, {"billing": [b"a"]})
    key = encode_key(GroupOwnerKey("billing"))
    produce(kafka, log_topic, key, version + encode_owner(owner())[2:])
    end = wait_until(lambda: committed_end(log_topic), what="the marker of the append is there")
    with pytest.raises(error, match=f"group billing .*{reason}.* Nothing was changed"):
        taken(other, claim=claim)
    assert log_topic.offset(0, LATEST) == end
    assert taken(other, "shipping") == [], "other groups are served"
    append(store, {"billing": [b"b"]})  # nobody has fenced it


def test_an_owner_fenced_by_a_newer_version_names_that_version(kafka, log_topic, open_at):
    store = open_at()
    taken(store)
    append(store, {"billing": [b"a"]})
    GroupWriter(log_topic, 0, "billing").fence()
    produce(kafka, log_topic, encode_key(GroupOwnerKey("billing")), NEWER + b"newer")
    with pytest.raises(StoreFenced) as fenced:
        append(store, {"billing": [b"b"]})
    assert isinstance(fenced.value.error, GroupStateTooNew)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (NEWER + b"newer", f"a newer version of sharegroup wrote it: .* has format version {STATE_RECORDS + 1}"),
        (encode_placement(1)[2:], "an older version of sharegroup wrote it: .* has no format version"),
    ],
)
def test_a_topic_of_another_format_version_is_refused_before_anything_is_written(kafka, log_topic, value, reason):
    produce(kafka, log_topic, PLACEMENT_KEY, value)
    with pytest.raises(StateTopicUnfit, match=reason):
        prepared(log_topic)
    assert log_topic.offset(0, LATEST) == 1


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"cleanup_policy": "compact"}, "compaction"),
        ({"cleanup_policy": "delete", "retention_ms": "1000000"}, "retention.ms is 1000000"),
        ({"retention_ms": -1, "max_message_bytes": "1000000"}, "max.message.bytes is 1000000"),
    ],
)
def test_a_topic_that_would_lose_state_is_refused(kafka, config, reason):
    name = kafka.create_topic(f"state-{uuid.uuid4().hex[:8]}", 1, **config)
    with pytest.raises(StateTopicUnfit, match=reason):
        state_topic(kafka, name).ensure()


OLD = {"retention_ms": -1, "max_message_bytes": 16 * 1024 * 1024, "message_timestamp_type": "CreateTime"}


@pytest.fixture
def ahead(monkeypatch):
    """The clocks of this process's producers are two hours ahead."""

    class Ahead(Producer):
        def produce(self, *args, **more):
            super().produce(*args, **more, timestamp=int((time.time() + 7200) * 1000))

    monkeypatch.setattr(group_writer, "Producer", Ahead)


def test_a_topic_with_the_producers_time_serves_and_gets_the_brokers_time(kafka, ahead, caplog):
    topic = state_topic(kafka, kafka.create_topic(f"state-{uuid.uuid4().hex[:8]}", 1, **OLD))
    assert topic.look() == 1, "a look alters nothing"
    with pytest.raises(StoreRefused, match=r"clock of .* is ahead .*message.timestamp.type of .* LogAppendTime"):
        taken(Hosts(topic)())
    with mock.patch.object(AdminClient, "incremental_alter_configs", side_effect=denied):
        assert topic.ensure() == 1
    assert "a host whose clock is an hour ahead could not write" in caplog.text
    assert topic.ensure() == 1

    def is_taken():
        """The broker takes up a topic's new configuration a moment after it has confirmed the change."""
        with contextlib.suppress(StoreRefused):
            return taken(Hosts(topic)()) == []

    wait_until(is_taken, what="the group is taken")


def denied(resources, **_):
    refused: Future[None] = Future()
    refused.set_exception(KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    return dict.fromkeys(resources, refused)


def test_an_owner_leaves_the_group_to_a_newer_process_of_its_installation(open_at):
    """The first was taken for dead: a second one was started on the same host."""
    first, second = open_at("one"), open_at("one")
    taken(first)
    append(first, {"billing": [b"a"]})
    assert taken(second, claim=False) == [b"a"]
    with pytest.raises(StoreFenced) as fenced:
        append(first, {"billing": []})
    assert isinstance(fenced.value.error, NotCoordinator), "its client looks for the newer one"
    with pytest.raises(NotCoordinator):
        taken(first, claim=False)
    append(second, {"billing": [b"b"]})


def test_hosts_that_can_t_ask_each_other_take_no_group_in_turns(open_at):
    """Each takes it back for a new member alone; its members of before are told who has the group."""
    earlier, later = open_at("one"), open_at("two")
    taken(earlier)
    append(earlier, {"billing": [b"a"]})
    assert taken(later) == [b"a"]
    with pytest.raises(StoreFenced, match="taken over by the coordinator on two"):
        append(earlier, {"billing": [b"late"]})
    for _ in range(2):
        with pytest.raises(GroupTakenOver, match="the coordinator on two"):
            taken(earlier, claim=False)
    append(later, {"billing": [b"b"]})
    assert taken(earlier) == [b"a", b"b"], "a new member asks for the group there"
    with pytest.raises(GroupTakenOver):
        taken(later, claim=False)
