"""A record batch that is damaged on a broker's disk: none of its records is delivered, and everything beside it is."""

import contextlib

import pytest
from confluent_kafka import KafkaError

from coordinator.dead_letters import source_records
from coordinator.dead_letters.source_records import AbsenceReason, Absent, SourceRecord, SourceRecordReader
from share_sink.redrive.dlq_reader import dead_letters, read_topic, record_at
from share_source.errors import RecordsDamaged
from share_source.executor.reader_choice import NATIVE, PYTHON
from share_source.executor.record_batches import Rows
from share_source.executor.task_reader import open_readers, pass_through
from sharegroup import AcknowledgeType, Admin, ShareConsumer
from tests.support.damaged_log import CRC, PAYLOAD, batches_of, damage
from tests.support.kafka_broker import KafkaBroker
from tests.support.read_tasks import offsets
from tests.support.reader_query import Query, read
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

EACH = 10
"""The number of records in a batch."""


@pytest.fixture(scope="module")
def kafka():
    """A broker of this module's own: its log files are changed."""
    with KafkaBroker(heap="512m") as broker:
        yield broker


def of_batches(kafka, count=5, codec="none"):
    """A topic with batches of EACH records. A producer that learns late where the topic is may send half of a batch:
    then another topic is tried."""

    def written():
        name = kafka.create_topic()
        for batch in range(count):
            values = [b"%03d-" % (batch * EACH + n) + b"payment" * 20 for n in range(EACH)]
            kafka.produce(name, values, partition=0, compression_type=codec)
        ends = [(batch.first, batch.last) for batch in batches_of(kafka, name)]
        return name if ends == [(n * EACH, n * EACH + EACH - 1) for n in range(count)] else None

    return wait_until(written, what="each batch was sent as one")


def read_beside(asked, reader):
    """The offsets that are read, and those of each damaged batch."""
    native = reader == NATIVE
    found, damaged = [], {}
    with open_readers(asked, native) as readers:
        if native:
            from share_source.executor.native.native_rows import NativeRows

            rows = NativeRows(asked.include_headers)
        else:
            rows = Rows(asked.include_headers, {part.topic: part.digest for part in asked.partitions})
        for each in readers:
            for batch in each.drain(rows):
                found += batch.column("offset").to_pylist()
        while len(rows):
            found += rows.build().column("offset").to_pylist()
        for each in readers:
            damaged.update({key: [(d.first, d.last) for d in of] for key, of in each.damaged.items()})
    return sorted(found), damaged


def test_a_damaged_batch_concerns_only_who_wants_its_records(kafka, task, reader):
    name = of_batches(kafka)
    damage(kafka, name, 23, CRC)
    with pytest.raises(RecordsDamaged, match=r"offsets 20 to 29 can't be read.*CRC32C"):
        offsets(task({(name, 0): [(0, 49, 1)]}))
    found, damaged = read_beside(task({(name, 0): [(5, 22, 1), (27, 33, 2)]}, fail_on_damage=False), reader)
    assert found == [*range(5, 20), *range(30, 34)]
    assert damaged == {(name, 0): [(20, 22), (27, 29)]}
    for _ in range(2):
        assert offsets(task({(name, 0): [(0, 19, 1)]})) == list(range(20))
        assert offsets(task({(name, 0): [(30, 49, 1)]})) == list(range(30, 50))


@pytest.mark.parametrize(
    ("codec", "what", "batches"),
    [
        ("none", CRC, [0, 2, 4]),
        ("zstd", CRC, [2, 3]),
        ("gzip", PAYLOAD, [2]),
        ("snappy", PAYLOAD, [0, 4]),
        ("lz4", PAYLOAD, [2, 3]),
        ("zstd", PAYLOAD, [4]),
    ],
)
def test_everything_beside_a_damaged_batch_is_read(kafka, task, reader, codec, what, batches):
    name, healthy = of_batches(kafka, codec=codec), of_batches(kafka, count=1)
    bad = [damage(kafka, name, EACH * batch, what) for batch in batches]
    asked = task({(name, 0): [(0, 49, 1)], (healthy, 0): [(0, 9, 1)]}, fail_on_damage=False)
    found, damaged = read_beside(asked, reader)
    lost = {offset for batch in bad for offset in range(batch.first, batch.last + 1)}
    assert found == sorted([*(set(range(50)) - lost), *range(10)])
    assert damaged == {(name, 0): [(batch.first, batch.last) for batch in bad]}


def test_damage_that_passes_costs_only_time(kafka, task, monkeypatch):
    """The network, or a client's memory, did it: the batch is read again before it is given up."""
    from share_source.executor.range_reader import Reader

    name = of_batches(kafka)
    damage(kafka, name, 20, CRC)
    renew = Reader._renew

    def mended_and_renewed(reader, *why):
        damage(kafka, name, 20, CRC)  # the same bit, changed again
        monkeypatch.setattr(Reader, "_renew", renew)
        renew(reader, *why)

    monkeypatch.setattr(Reader, "_renew", mended_and_renewed)
    assert offsets(task({(name, 0): [(0, 49, 1)]})) == list(range(50))


@pytest.mark.parametrize("reader", [PYTHON], indirect=True)
def test_a_task_of_many_partitions_reads_on_beside_a_damaged_one(kafka, task, reader):
    names = [of_batches(kafka, count=2) for _ in range(6)]
    damage(kafka, names[2], 3, CRC)
    asked = task({(name, 0): [(0, 19, 1)] for name in names}, fail_on_damage=False)
    found, damaged = read_beside(asked, reader)
    assert len(found) == 6 * 20 - EACH
    assert damaged == {(names[2], 0): [(0, 9)]}


# --- ShareConsumers


def consume(consumer, until, *, decide=None):
    """The good offsets and the errors by offset, over polls, until the condition holds for them."""
    good, errors = [], []

    def polled():
        for message in consumer.poll(1.0):
            error = message.error()
            if error is None:
                good.append((message.topic(), message.offset()))
            else:
                errors.append((message.offset(), error.code(), message.delivery_count()))
            if decide is not None and error is None:
                decide(message)
        return until(good, errors)

    wait_until(polled, timeout_s=40, what="the records came")
    return good, errors


@pytest.mark.parametrize("explicit", [False, True], ids=["implicit", "explicit"])
def test_a_share_consumer_gets_damaged_records_as_errors_and_all_others(kafka, own_runtime, explicit):
    name, healthy = of_batches(kafka), of_batches(kafka, count=1)
    damage(kafka, name, 20, CRC)
    group = f"group-{name}"
    mode = {"share.acknowledgement.mode": "explicit"} if explicit else {}
    config = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "share.auto.offset.reset": "earliest"}
    with ShareConsumer({**config, **mode}) as consumer:
        consumer.subscribe([name, healthy])
        decide = consumer.acknowledge if explicit else None
        good, errors = consume(consumer, lambda g, e: len(g) >= 50 and len(e) >= 10, decide=decide)
        consumer.commit_sync()
        with Admin({"bootstrap.servers": kafka.bootstrap}) as admin:
            assert archived(admin, group, name) == {"rejected": 10}
    assert sorted(good) == sorted(
        [(name, n) for n in range(50) if not 20 <= n <= 29] + [(healthy, n) for n in range(10)]
    )
    assert [error[:2] for error in errors] == [(offset, KafkaError._BAD_MSG) for offset in range(20, 30)]


def test_records_that_cannot_be_decompressed_are_released_up_to_the_limit(kafka, own_runtime):
    name = of_batches(kafka, count=2, codec="gzip")
    damage(kafka, name, 0, PAYLOAD)
    config = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": 2}
    with ShareConsumer({"bootstrap.servers": kafka.bootstrap, "group.id": f"group-{name}", **config}) as consumer:
        consumer.subscribe([name])
        good, errors = consume(consumer, lambda g, e: len(g) >= 10 and len(e) >= 20)
        assert not consumer.poll(0.5)
    assert good == [(name, n) for n in range(10, 20)]
    assert errors == [(n, KafkaError._BAD_COMPRESSION, count) for count in (1, 2) for n in range(10)]


def test_a_program_may_decide_a_record_that_cannot_be_read(kafka, own_runtime):
    name = of_batches(kafka, count=1, codec="gzip")
    damage(kafka, name, 0, PAYLOAD)
    config = {"share.auto.offset.reset": "earliest", "share.acknowledgement.mode": "explicit"}
    with ShareConsumer({"bootstrap.servers": kafka.bootstrap, "group.id": f"group-{name}", **config}) as consumer:
        consumer.subscribe([name])
        messages = wait_until(lambda: consumer.poll(1.0), what="the errors came")
        assert len(messages) == 10
        for message in messages:
            consumer.acknowledge(message, AcknowledgeType.REJECT)
        assert all(error is None for error in consumer.commit_sync().values())
        assert not consumer.poll(0.5)


# --- queries


@pytest.fixture
def query(own_runtime):
    """Makes queries, and stops them also when the test fails: one without its broker would log in later tests."""
    made = []

    def new(**options):
        made.append(Query(**options))
        return made[-1]

    yield new
    for each in made:
        each.reader.stop()


def replayed(query):
    return [part.task for part in query.reader.partitions(query.committed, query.end)]


def test_a_query_gives_up_a_damaged_batch_and_delivers_all_others(kafka, query):
    name, healthy, letters = of_batches(kafka), of_batches(kafka, count=1), kafka.create_topic()
    damage(kafka, name, 20, CRC)
    group = f"group-{name}"
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "kafka.group.id": group,
        "subscribe": f"{name},{healthy}",
        "startingOffsets": "earliest",
        "errors.deadletterqueue.topic.name": letters,
    }
    failed, replay = query(**options), query(**options)
    tasks = failed.wait_batch()
    with pytest.raises(RecordsDamaged, match="Restart the query"):
        [read(task) for task in tasks]
    failed.reader.stop()
    replay.committed, replay.end = failed.committed, failed.end  # the offsets of Spark's log
    rows = [row for task in replayed(replay) for row in read(task)]
    assert sorted((row["topic"], row["offset"]) for row in rows) == sorted(
        [(name, n) for n in range(50) if not 20 <= n <= 29] + [(healthy, n) for n in range(10)]
    )
    replay.commit(rows)
    kafka.produce(name, ["after"], partition=0)
    assert [row["offset"] for row in replay.run()] == [50]
    replay.next_batch()
    replay.reader.stop()
    with Admin({"bootstrap.servers": kafka.bootstrap}) as admin:
        wait_until(lambda: archived(admin, group, name) == {"rejected": 10}, what="the ten are archived, and no other")
    config = {"bootstrap.servers": kafka.bootstrap}
    found = [(each.origin_topic, each.origin_offset, each.has_record) for each in dead_letters(letters, config)]
    assert found == [(name, offset, False) for offset in range(20, 30)]


def archived(admin, group, topic):
    (described,) = [p for p in admin.describe_groups([group])[group].partitions if p.topic == topic]
    return None if described.archiving else described.archived


@pytest.mark.parametrize("reader", [NATIVE], indirect=True)
def test_a_driver_looks_through_a_part_of_a_large_replay(kafka, task):
    name, other = of_batches(kafka), of_batches(kafka)
    for each in (name, other):
        damage(kafka, each, 20, CRC)
    asked = task({(name, 0): [(0, 49, 2)], (other, 0): [(0, 49, 2)]}, fail_on_damage=False)
    assert {key: [(d.first, d.last) for d in found] for key, found in pass_through(asked, 1 << 20, 60.0).items()} == {
        (name, 0): [(20, 29)],
        (other, 0): [(20, 29)],
    }
    assert pass_through(asked, 0, 60.0) == {}


# --- dead letters


def test_each_original_that_cannot_be_read_has_an_answer_of_its_own(kafka, monkeypatch):
    """The damaged batch is read a few times, not three times for each of its records: it may have ten thousand."""
    name = of_batches(kafka)
    damage(kafka, name, 20, CRC)
    assigned, assign = [], source_records._Reading._assign
    monkeypatch.setattr(source_records._Reading, "_assign", lambda each: (assigned.append(each), assign(each)))
    with contextlib.closing(SourceRecordReader(kafka.bootstrap, {})) as reader:
        answers = list(reader.read(name, 0, [5, *range(19, 31), 45]))
        assert len(assigned) <= 6
        beyond = list(reader.read(name, 0, [19, 35]))
    assert [each.offset for each in answers] == [5, *range(19, 31), 45]
    assert [each.offset for each in answers if isinstance(each, Absent)] == [*range(20, 30)]
    assert {each.why for each in answers if isinstance(each, Absent)} == {AbsenceReason.DAMAGED}
    assert [each.offset for each in beyond if isinstance(each, SourceRecord)] == [19, 35]


@pytest.mark.parametrize(("codec", "what"), [("none", CRC), ("zstd", PAYLOAD)])
def test_damaged_dead_letters_keep_no_other_from_being_read(kafka, caplog, codec, what):
    name, config = of_batches(kafka, codec=codec), {"bootstrap.servers": kafka.bootstrap}
    damage(kafka, name, 20, what)
    found = [message.offset() for message in read_topic(name, 1, config)]
    assert found == [offset for offset in range(50) if not 20 <= offset <= 29]
    assert "the offsets 20 to 29 can't be read" in caplog.text
    assert record_at(name, 0, 25, config) is None
    assert record_at(name, 0, 35, config) is not None
