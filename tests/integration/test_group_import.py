"""`sharegroup import` and `export` on a real broker: each source, and what of it goes on here."""

from __future__ import annotations

import json

import confluent_kafka
import pytest
from confluent_kafka import Consumer, TopicPartition

from coordinator.protocol.admin_messages import PositionRun
from sharegroup import AcknowledgeType, Admin, ShareConsumer
from sharegroup.__main__ import run
from sharegroup.import_sources import Sources
from tests.support.command_line import mistake
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

RECORDS = 12
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


@pytest.fixture
def orders(kafka, topic):
    """A topic with RECORDS records in one batch, which one poll brings."""
    name = topic("orders")
    kafka.produce(name, [f"v{number}" for number in range(RECORDS)])
    return name


@pytest.fixture
def told(kafka, capsys):
    """What a command prints on both outputs, with status 0."""

    def tell(command, *arguments):
        assert run([*command.split(), "--bootstrap-server", kafka.bootstrap, *arguments]) == 0
        return capsys.readouterr()

    return tell


def of_member(kafka, group, **more):
    explicit = {"share.acknowledgement.mode": "explicit", "share.auto.offset.reset": "earliest"}
    return {"bootstrap.servers": kafka.bootstrap, "group.id": group, "log_level": 0, **explicit, **more}


def native_consumer(kafka, group, **more):
    config = of_member(kafka, group, **more)
    del config["share.auto.offset.reset"]
    return confluent_kafka.ShareConsumer(config)


def polled(consumer):
    """The next messages, which have to come."""
    return wait_until(lambda: list(consumer.poll(1.0)), what="records come")


@pytest.fixture
def native(kafka, orders, unique):
    """A share group of Kafka's own that is done with records 1 and 3, and has released the others that it got."""
    group = unique("native")
    kafka.configure_group(group, share_auto_offset_reset="earliest")
    consumer = native_consumer(kafka, group, **{"max.poll.records": RECORDS})
    consumer.subscribe([orders])
    for message in polled(consumer)[:4]:
        kind = {0: RELEASE, 1: ACCEPT, 2: RELEASE, 3: REJECT}[message.offset()]
        consumer.acknowledge(message, confluent_kafka.AcknowledgeType(int(kind)))
    consumer.commit_sync(30)
    consumer.close()
    return group


def drained(kafka, group, orders, count):
    """The delivery count by partition and offset of the records that the group delivers, which are that many. All are
    accepted."""
    found = {}
    with ShareConsumer(of_member(kafka, group)) as consumer:
        consumer.subscribe([orders])

        def came():
            for message in consumer.poll(1.0):
                at = (message.partition(), message.offset())
                assert at not in found
                found[at] = message.delivery_count()
                consumer.acknowledge(message)
            consumer.commit_sync(30)
            return len(found) >= count

        wait_until(came, what=f"{count} records come")
        assert not consumer.poll(1.0)
    return found


def test_a_native_group_goes_on_without_the_records_that_are_done(kafka, native, orders, unique, told, capsys):
    group = unique("billing")
    named = ("--group", group, "--from-share-group", native, "--topic", orders)
    dry = told("import", *named)
    assert f"{orders}-0: - -> start 0, 2 done beyond it, " in dry.out
    assert "Dry run: nothing was changed. Use --execute" in dry.err
    assert "GroupIdNotFound" in mistake(
        ["groups", "--describe", "--bootstrap-server", kafka.bootstrap, "--group", group], capsys
    )
    done = told("import", *named, "--execute", "--reason", "moved")
    assert done.out == dry.out
    again = mistake(["import", "--bootstrap-server", kafka.bootstrap, *named, "--execute"], capsys)
    assert "GroupExists: " in again
    found = drained(kafka, group, orders, RECORDS - 2)
    assert {offset for _, offset in found} == {0, 2, *range(4, RECORDS)}
    assert found[0, 0] == found[0, 2] == 2


def test_a_native_group_with_members_is_refused(kafka, orders, unique, capsys):
    group = unique("native")
    kafka.configure_group(group, share_auto_offset_reset="earliest")
    command = ["import", "--bootstrap-server", kafka.bootstrap, "--group", group, "--from-share-group", group]
    assert f"Kafka has no share group {group}" in mistake(command, capsys)
    consumer = native_consumer(kafka, group)
    consumer.subscribe([orders])
    polled(consumer)
    assert "has 1 member(s): stop them" in mistake(command, capsys)
    consumer.close()
    assert run(command) == 0


def test_a_consumer_group_goes_on_at_its_committed_offsets(kafka, topic, unique, told, capsys):
    orders, consumers, group = topic("orders", partitions=2), unique("consumers"), unique("billing")
    for partition in range(2):
        kafka.produce(orders, ["v"] * 6, partition=partition)
    config = {"bootstrap.servers": kafka.bootstrap, "group.id": consumers, "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({**config, "auto.offset.reset": "earliest"})
    consumer.subscribe([orders])
    wait_until(lambda: consumer.poll(1.0), what="a record comes")
    consumer.commit(offsets=[TopicPartition(orders, 0, 4)], asynchronous=False)
    command = ["import", "--bootstrap-server", kafka.bootstrap, "--group", group, "--from-consumer-group", consumers]
    assert "has 1 member(s): stop them" in mistake(command, capsys)
    consumer.close()
    done = told("import", *command[3:], "--execute")
    assert f"{orders}-0: - -> start 4, 0 done beyond it, 0 to deliver again\n" in done.out
    assert f"{orders}-1: the source has no position there. The group begins at the earliest record.\n" in done.err
    assert set(drained(kafka, group, orders, 8)) == {(0, 4), (0, 5), *((1, at) for at in range(6))}
    assert "GroupExists" in mistake(command, capsys)
    another = [*command[:4], unique("another"), command[5], unique("nobody")]
    assert "has no committed offset" in mistake(another, capsys)


def test_a_group_moves_from_a_file_to_the_topic(kafka, orders, unique, told, tmp_path, capsys):
    group, store = unique("billing"), f"sqlite:{tmp_path / 'state.db'}"
    conf = of_member(kafka, group, **{"share.state.store": store, "share.delivery.count.limit": "7"})
    conf |= {"share.session.timeout.ms": "1000", "share.release.backoff.ms": "0"}
    with ShareConsumer(conf) as consumer:
        consumer.subscribe([orders])
        messages = polled(consumer)
        for message in messages:
            consumer.acknowledge(message, {0: RELEASE, 1: ACCEPT, 2: REJECT}.get(message.offset(), ACCEPT))
            if message.offset() == 5:
                break
        consumer.commit_sync(30)
    with Admin({"bootstrap.servers": kafka.bootstrap, "share.state.store": store}) as before:
        (left,) = before.position(group).partitions
    assert left.runs[0] == PositionRun(0, 0, "AVAILABLE", 1, 0, 1)
    done = told("import", "--group", group, "--from-store", store, "--wait", "--execute")
    assert f"{orders}-0: - -> start 0, 5 done beyond it, " in done.out
    with Admin({"bootstrap.servers": kafka.bootstrap}) as admin:
        found = admin.position(group)
        assert found.partitions == (left,)
        assert found.configs["share.delivery.count.limit"] == "7"
    exported = told("export", "--group", group)
    assert exported.out == f"{orders},0,0\n"
    assert "5 record(s) beyond the start offsets are done here" in exported.err
    assert json.loads(told("export", "--group", group, "--json").out) == {orders: {"0": 0}}
    back = f"share.state.store=sqlite:{tmp_path / 'back.db'}"
    moved = told("import", "--group", group, "--from-store", "kafka", "--execute", "--command-property", back)
    assert moved.out == done.out
    assert {at for _, at in drained(kafka, group, orders, RECORDS - 5)} == {0, *range(6, RECORDS)}


OTHERS = '{"batchWatermarkMs":0,"batchTimestampMs":1795944872028,"conf":{"spark.sql.shuffle.partitions":"200"}}'


@pytest.fixture
def checkpoint(tmp_path):
    """Makes a checkpoint as Spark writes it, with the sources' offsets of each batch; the last one is not committed."""

    def make(*batches):
        folder = tmp_path / "checkpoint"
        for log in ("offsets", "commits", "sources/0"):
            (folder / log).mkdir(parents=True)
        for number, sources in enumerate(batches):
            (folder / "offsets" / str(number)).write_text("\n".join(["v1", OTHERS, *sources]))
            (folder / "offsets" / f".{number}.crc").write_bytes(b"crc")
        for number in range(len(batches) - 1):
            (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        return folder

    return make


def test_a_checkpoint_goes_on_after_its_last_committed_batch(kafka, orders, unique, told, checkpoint):
    batches = [[json.dumps({orders: {"0": end}})] for end in (3, 5, 9)]
    group, folder = unique("billing"), checkpoint(*batches)
    done = told("import", "--group", group, "--from-checkpoint", f"file://{folder}", "--execute")
    assert f"{orders}-0: - -> start 5, 0 done beyond it, 0 to deliver again\n" in done.out
    assert "Batch 2 began and was not committed: its records are delivered here once more.\n" in done.err
    assert {at for _, at in drained(kafka, group, orders, RECORDS - 5)} == {*range(5, RECORDS)}


def test_a_checkpoint_that_names_no_start_is_refused(kafka, orders, topic, checkpoint, tmp_path, told, unique, capsys):
    other, group = topic("other"), unique("billing")
    command = ["import", "--bootstrap-server", kafka.bootstrap, "--group", group, "--from-checkpoint"]
    assert "has no batch in offsets/ that is in commits/ too" in mistake([*command, str(tmp_path)], capsys)
    two = [json.dumps({orders: {"0": 3}}), json.dumps({other: {"0": 0}}), '{"logOffset":4}', "-"]
    folder = checkpoint(two, two)
    assert f"has: {orders}; {other}." in mistake([*command, str(folder)], capsys)
    assert f"{orders}-0: - -> start 3" in told(*command[:1], *command[3:], str(folder), "--topic", orders).out
    (folder / "offsets" / "0").write_text("\n".join(["v1", OTHERS, '{"logOffset":4}']))
    assert "has: none." in mistake([*command, str(folder)], capsys)
    (folder / "offsets" / "0").write_text("v2")
    assert "is of another version than v1" in mistake([*command, str(folder)], capsys)


def test_a_source_that_changes_meanwhile_is_refused(kafka, orders, checkpoint, unique, monkeypatch, capsys):
    group, folder = unique("billing"), checkpoint(*[[json.dumps({orders: {"0": end}})] for end in (3, 5)])
    read = Sources.checkpoint

    def read_and_go_on(sources, path):
        found = read(sources, path)
        (folder / "commits" / "1").write_text("v1\n{}")  # the query still runs
        return found

    monkeypatch.setattr(Sources, "checkpoint", read_and_go_on)
    command = ["import", "--bootstrap-server", kafka.bootstrap, "--group", group, "--from-checkpoint", str(folder)]
    assert "InvalidImport: " in (said := mistake([*command, "--execute"], capsys))
    assert "the source changed while it was read" in said
    assert run([*command, "--execute"]) == 0


def test_records_that_wait_for_dead_letters_prevent_a_move(kafka, orders, unique, tmp_path, capsys):
    group, store = unique("billing"), f"sqlite:{tmp_path / 'state.db'}"
    dead = kafka.create_topic(unique("dead"))
    conf = of_member(kafka, group, **{"share.state.store": store, "errors.deadletterqueue.topic.name": dead})
    with ShareConsumer(conf) as consumer:
        consumer.subscribe([orders])
        for message in polled(consumer):
            consumer.acknowledge(message, REJECT)
        kafka.delete_topic(dead)
        consumer.commit_sync(30)
    command = ["import", "--bootstrap-server", kafka.bootstrap, "--group", group, "--from-store", store, "--wait"]
    assert "record(s) wait there for their dead letters" in mistake(command, capsys)


def test_one_source_is_named(kafka, capsys):
    for sources in ([], ["--from-share-group", "a", "--from-checkpoint", "b"]):
        said = mistake(["import", "--bootstrap-server", kafka.bootstrap, "--group", "g", *sources], capsys)
        assert "name one source: --from-share-group, --from-consumer-group, --from-checkpoint, --from-store" in said
