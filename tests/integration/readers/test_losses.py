"""A task says by name what it can't read: records that the log has lost, a topic that is gone, a silent broker."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from share_source.errors import ReadTimeout, RecordsGone
from share_source.executor import consumers, range_reader
from share_source.executor.task_reader import SEPARATE_CONSUMERS
from tests.support.ports import free_ports
from tests.support.read_tasks import located, offsets, rows

pytestmark = pytest.mark.broker


def test_a_log_start_inside_a_range_fails_and_names_the_lost_offsets(kafka, topic, task):
    name = topic()
    kafka.produce(name, map(str, range(20)), partition=0)
    kafka.delete_records(name, before_offset=7)
    with pytest.raises(RecordsGone) as caught:
        offsets(task({(name, 0): [(2, 4, 1), (5, 15, 1)]}))
    assert caught.value.fields["count"] == 5
    assert f"{name}-0" in str(caught.value) and "offsets 2 to 6" in str(caught.value)
    assert len(consumers.cache()) == 0


@pytest.mark.parametrize("partitions", [1, SEPARATE_CONSUMERS + 2])
def test_without_fail_on_data_loss_a_loss_is_logged_and_reading_continues(kafka, topic, task, caplog, partitions):
    name = topic(partitions=partitions)
    for partition in range(partitions):
        kafka.produce(name, map(str, range(20)), partition=partition)
    kafka.delete_records(name, before_offset=7)
    asked = {(name, p): [(2, 4, 1), (5, 15, 1)] for p in range(partitions)}
    first = [o for p, o in located(task(asked, fail_on_data_loss=False)) if p == 0]
    assert first == list(range(7, 16))
    assert "offsets 2 to 6" in caplog.text
    kafka.delete_records(name, before_offset=18)
    assert [o for p, o in located(task(asked, fail_on_data_loss=False)) if p == 0] == []
    assert "offsets 2 to 15" in caplog.text


def test_a_kept_consumer_below_the_log_start_loses_nothing_of_later_ranges(kafka, topic, task):
    name = topic()
    kafka.produce(name, map(str, range(10)), partition=0)
    assert offsets(task({(name, 0): [(0, 9, 1)]})) == list(range(10))
    kafka.produce(name, map(str, range(20)), partition=0)
    kafka.delete_records(name, before_offset=25)
    assert offsets(task({(name, 0): [(25, 29, 1)]})) == list(range(25, 30))


def test_a_range_past_the_logs_end_is_lost(kafka, topic, task):
    name = topic()
    kafka.produce(name, ["x"], partition=0)
    with pytest.raises(RecordsGone, match="offsets 10 to 19"):
        offsets(task({(name, 0): [(10, 19, 1)]}))


@pytest.mark.parametrize(
    "kept", [True, pytest.param(False, marks=pytest.mark.soak)], ids=["with a kept consumer", "with a new one"]
)
def test_a_deleted_topic_is_lost_data(kafka, topic, task, caplog, kept):
    name = topic()
    kafka.produce(name, map(str, range(10)), partition=0)
    quick = {"topic.metadata.propagation.max.ms": "500", "topic.metadata.refresh.fast.interval.ms": "100"}
    assert offsets(task({(name, 0): [(0, 4, 1)]}, config=quick)) == list(range(5))
    kafka.delete_topic(name)
    if not kept:
        consumers.cache().close()
    with pytest.raises(RecordsGone, match="to 14: the topic does not exist"):
        offsets(task({(name, 0): [(5, 14, 1)]}, config=quick))
    assert offsets(task({(name, 0): [(5, 14, 1)]}, config=quick, fail_on_data_loss=False)) == []
    assert "offsets 5 to 14" in caplog.text


def test_prefetched_records_of_a_deleted_topic_are_not_of_its_successor(kafka, topic, task):
    name = topic()
    kafka.produce(name, ["old"] * 20, partition=0)
    assert offsets(task({(name, 0): [(0, 9, 1)]}, topic_id=kafka.topic_id(name))) == list(range(10))
    kafka.delete_topic(name)
    kafka.create_topic(name)
    kafka.produce(name, ["new"] * 20, partition=0)
    got = rows(task({(name, 0): [(10, 19, 1)]}, topic_id=kafka.topic_id(name)))
    assert [(row["offset"], row["value"]) for row in got] == [(offset, b"new") for offset in range(10, 20)]


@pytest.mark.slow
@pytest.mark.parametrize("fails", [True, False])
def test_records_beyond_the_logs_end_are_lost_after_the_poll_timeout(kafka, topic, task, caplog, fails):
    name = topic()
    kafka.produce(name, ["x"] * 10)
    asked = task({(name, 0): [(5, 14, 1)]}, fail_on_data_loss=fails)
    object.__setattr__(asked, "poll_timeout_ms", 6_000)
    if fails:
        with pytest.raises(RecordsGone, match=r"5 record\(s\) of .* offsets 10 to 14"):
            offsets(asked)
        assert range_reader._outage.lasts_s == 0
        return
    assert offsets(asked) == list(range(5, 10))
    assert range_reader._outage.lasts_s == 0, "nobody waits for them any more"
    assert [text for text in caplog.messages if text.startswith("5 record(s)") and "offsets 10 to 14" in text]


@pytest.mark.slow
def test_records_that_a_new_leader_does_not_show_yet_are_not_lost(kafka, topic, task, monkeypatch):
    """The leader's high watermark is below the start of its epoch: the leader answers a fetch above that with nothing,
    and the question for the log's end with OFFSET_NOT_AVAILABLE (KIP-207)."""
    name = topic()
    kafka.produce(name, ["x"] * 10)
    asked = task({(name, 0): [(5, 14, 1)]}, fail_on_data_loss=False)
    object.__setattr__(asked, "poll_timeout_ms", 6_000)

    def is_behind(*_):
        raise KafkaException(KafkaError(KafkaError.OFFSET_NOT_AVAILABLE, "the leader is behind"))

    monkeypatch.setattr(consumers.KeptConsumer, "watermarks", is_behind)
    with pytest.raises(ReadTimeout, match=r"offset 10 is the next one to read \(up to 14\).*the leader is behind"):
        offsets(asked)
    monkeypatch.undo()
    kafka.produce(name, ["y"] * 5)
    assert offsets(asked) == list(range(5, 15)), "its restart reads them"


def test_a_silent_broker_is_a_named_timeout_without_passwords(topic, task, unused_port):
    config = {"sasl.password": "hunter2", "sasl.username": "me", "sasl.mechanism": "PLAIN", "log_level": "0"}
    asked = task({("orders", 3): [(17, 20, 1)]}, bootstrap=f"127.0.0.1:{unused_port}", config=config)
    object.__setattr__(asked, "poll_timeout_ms", 3_000)
    with pytest.raises(ReadTimeout) as caught:
        offsets(asked)
    assert "orders-3" in str(caught.value) and "offset 17" in str(caught.value) and "3000 ms" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "refused" in str(caught.value) or "down" in str(caught.value)
    assert len(consumers.cache()) == 0


@pytest.fixture
def unused_port():
    return free_ports(1)[0]


def test_a_cut_connection_that_heals_costs_only_time(kafka, topic, task):
    name = topic()
    kafka.produce(name, [b"x" * 200] * 1000, partition=0)
    quick = {"reconnect.backoff.max.ms": "200", "log_level": "0"}
    assert len(offsets(task({(name, 0): [(0, 499, 1)]}, bootstrap=kafka.proxied_bootstrap, config=quick))) == 500
    kafka.proxy.cut()
    kafka.proxy.heal()
    kafka.produce(name, [b"x" * 200] * 1000, partition=0)
    got = offsets(task({(name, 0): [(500, 1999, 1)]}, bootstrap=kafka.proxied_bootstrap, config=quick))
    assert got == list(range(500, 2000))
