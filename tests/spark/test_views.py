"""Views of a share group: Arrow tables in plain Python, and DataFrames of spark.read with fixed columns."""

import socket

import pytest

from sharegroup import AcknowledgeType, ShareConsumer, views
from tests.support.kafka_log import state_log
from tests.support.share_job import numbers
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.broker]

READ_VIEWS = ("groups", "members", "offsets", "in-flight", "dead-letters")
DTYPES = {
    "groups": "group:string,state:string,coordinator:string",
    "in-flight": "group:string,topic:string,topicId:string,partition:int,first:bigint,last:bigint,state:string,"
    "deliveryCount:int,failures:int,releases:int,queryFailures:int,planId:string,memberId:string,clientId:string,clientHost:string,"
    "since:timestamp,firstSignal:timestamp,lastSignal:timestamp,hint:string,lockDeadline:timestamp,"
    "notBefore:timestamp,stage:string,disposition:string,reason:string",
}
"""The columns of these views, and their types, as Spark writes them."""
SAME = ("group", "topic", "topicId", "partition", "first", "last", "state", "deliveryCount", "memberId", "clientHost")
READ = """
def run(spark, options, names):
    frames = [
        spark.read.format("sharegroup").options(**options).option("view", view).load()
        for view in names
    ]
    types = [frame.schema.simpleString() for frame in frames]
    rows = [
        [
            {name: value.timestamp() if hasattr(value, "timestamp") else value for name, value in row.items()}
            for row in (row.asDict(recursive=True) for row in frame.collect())
        ]
        for frame in frames
    ]
    return [(frame.columns, *each) for frame, *each in zip(frames, types, rows)]
"""


@pytest.fixture
def group(kafka, topic, unique):
    """A group of which a consumer holds two records; it accepted one, and one is a dead letter."""
    orders, dead = topic("orders"), topic("dead")
    kafka.produce(orders, numbers(4))
    name = unique("group")
    configs = {"bootstrap.servers": kafka.bootstrap, "share.auto.offset.reset": "earliest"}
    configs |= {"errors.deadletterqueue.topic.name": dead, "share.acknowledgement.mode": "explicit"}
    configs["share.record.lock.duration.ms"] = "600000"  # Spark may start meanwhile
    with ShareConsumer({**configs, "group.id": name}) as consumer:
        consumer.subscribe([orders])
        held = []
        while len(held) < 4:
            held += consumer.poll(1.0)
            for message in held[:2]:
                consumer.acknowledge(message, AcknowledgeType.REJECT if message.offset() else AcknowledgeType.ACCEPT)
            consumer.commit_sync()
        yield name, orders


def test_views_show_the_group_as_arrow_and_as_dataframes(kafka, group, shared_program):
    name, orders = group
    conf = {"bootstrap.servers": kafka.bootstrap}
    wait_until(lambda: views.dead_letters(conf, name).num_rows == 1, timeout_s=60, what="the dead letter is written")
    wait_until(
        lambda: views.offsets(conf, name).column("archiving").to_pylist() == [0], what="the group knows that it is"
    )
    (offsets,) = views.offsets(conf, name).to_pylist()
    assert (offsets["topic"], offsets["startOffset"], offsets["endOffset"], offsets["acquired"]) == (orders, 2, 4, 2)
    (held,) = views.in_flight(conf, name).to_pylist()
    (member,) = views.members(conf, name).to_pylist()
    host = socket.gethostname()
    assert (held["state"], held["memberId"], held["clientHost"]) == ("ACQUIRED", member["memberId"], host)
    assert (member["active"], member["clientHost"]) == (True, host)
    assert (member["clientId"], member["assignment"]) == (held["clientId"], [{"topic": orders, "partitions": [0]}])
    (letter,) = views.dead_letters(conf, name).to_pylist()
    assert (letter["originTopic"], letter["originOffset"], letter["disposition"]) == (orders, 1, "rejected")
    assert name in views.groups(conf).column("group").to_pylist()

    options = {"kafka.bootstrap.servers": kafka.bootstrap, "kafka.group.id": name}

    def run(*names):
        found = shared_program.get().run(READ, options=options, names=names)
        return dict(zip(names, found, strict=True))

    def assigned():
        """A coordinator that loads the group anew assigns partitions at the members' next heartbeats."""
        _, _, members = run("members")["members"]
        return [row["assignment"] for row in members] == [member["assignment"]]

    read = run(*READ_VIEWS)
    assert {view: columns for view, (columns, _, _) in read.items()} == {
        view: views.tables.SCHEMAS[view].names for view in READ_VIEWS
    }
    assert {view: read[view][1] for view in DTYPES} == {view: f"struct<{text}>" for view, text in DTYPES.items()}
    rows = {view: found for view, (_, _, found) in read.items()}
    assert [row["state"] for row in rows["groups"] if row["group"] == name] == ["STABLE"]
    assert [row["startOffset"] for row in rows["offsets"]] == [2]
    assert [row["memberId"] for row in rows["members"]] == [member["memberId"]]
    wait_until(assigned, what="the DataFrame shows the member's partitions")
    assert [row["originOffset"] for row in rows["dead-letters"]] == [1]
    (in_flight,) = rows["in-flight"]
    assert {column: in_flight[column] for column in SAME} == {column: held[column] for column in SAME}
    assert in_flight["since"] == held["since"].timestamp()


BROWSE = """
def run(spark, options, bounds):
    frame = spark.read.format("sharegroup").options(**options).option("view", "records")
    found = [frame.options(**more).load() for more in bounds]
    return [
        (rows.rdd.getNumPartitions(), [(row.offset, row.value, row.state, row.deliveryCount) for row in rows.collect()])
        for rows in found
    ]
"""


def test_the_view_records_reads_in_tasks_and_acquires_nothing(kafka, group, shared_program):
    name, orders = group
    kafka.produce(orders, numbers(50_000))
    conf = {"bootstrap.servers": kafka.bootstrap}
    wait_until(lambda: not views.offsets(conf, name).column("archiving")[0].as_py(), what="the dead letter is written")
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "kafka.group.id": name}
    before = views.in_flight(conf, name).to_pylist()
    two = {"assign": f'{{"{orders}":[0]}}', "startingOffsets": f'{{"{orders}":{{"0":3}}}}', "maxRecords": "2"}
    all_of_them, some, none = shared_program.get().run(
        BROWSE, options=options, bounds=[{}, two, {"states": "ARCHIVING"}]
    )
    (all_tasks, all_rows), (tasks, rows) = all_of_them, some
    assert none[1] == []
    assert (all_tasks, len(all_rows)) == (2, 50_002), "tasks have up to 50,000 offsets"
    assert [row[0] for row in all_rows] == list(range(2, 50_004))
    assert [(row[0], row[2], row[3]) for row in all_rows[:3]] == [
        (2, "ACQUIRED", 1),
        (3, "ACQUIRED", 1),
        (4, "AVAILABLE", 0),
    ]
    assert (tasks, [tuple(row) for row in rows]) == (1, [tuple(row) for row in all_rows[1:3]])
    assert views.in_flight(conf, name).to_pylist() == before


COUNTED = """
import threading, time
import psutil

def run(spark, options):
    most, done = {}, threading.Event()

    def sample():
        while not done.wait(0.05):
            for each in psutil.Process().children(recursive=True):
                try:
                    if "python" in each.name():
                        most[each.pid] = max(most.get(each.pid, 0), each.memory_info().rss)
                except psutil.Error:
                    pass

    sampler = threading.Thread(target=sample)
    sampler.start()
    began_s = time.monotonic()
    frame = spark.read.format("sharegroup").options(**options).option("view", "records").load()
    (row,) = frame.selectExpr("count(*)", "sum(length(value))").collect()
    took_s = time.monotonic() - began_s
    done.set()
    sampler.join()
    return list(row), took_s, sorted(most.values())
"""
MIB = 2**20


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_million_waiting_records_are_browsed_in_bounded_memory(kafka, topic, unique, program):
    """The values have 500 MB. No Python process, neither the driver's nor a task's, takes as much."""
    orders, name = topic("orders", 2), unique("group")
    kafka.produce(orders, numbers(4), partition=0)
    conf = {"bootstrap.servers": kafka.bootstrap}
    with ShareConsumer({**conf, "group.id": name, "share.auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([orders])
        wait_until(lambda: consumer.poll(1.0), what="records come")
    # A member would acquire some of these ahead.
    for partition in (0, 1):
        kafka.produce(orders, [b"x" * 500] * 500_000, partition=partition)
    before = state_log(kafka.bootstrap)
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "kafka.group.id": name}
    (count, size), took_s, peaks = program().run(COUNTED, options=options)
    print(f"{count:,} records, {size:,} bytes in {took_s:.1f} s; MiB by process: {[peak // MIB for peak in peaks]}")
    assert 1_000_000 <= count <= 1_000_004, "the consumer may have accepted the first four"
    assert max(peaks) < 450 * MIB
    assert state_log(kafka.bootstrap) == before
