"""Several queries in one share group, over one partition: each record to one of them."""

import pytest

from tests.support.group_state import describe
from tests.support.share_job import numbers

pytestmark = [pytest.mark.spark, pytest.mark.broker]

RECORDS, BATCH = 40_000, 4_000


def test_each_record_goes_to_one_query_and_a_third_joins(kafka, topic, job, start):
    """Two queries over one partition: none lost, none twice, more tasks than partitions; a third one takes work."""
    orders = topic("orders", partitions=1)
    kafka.produce(orders, numbers(RECORDS))
    queue = job(orders, maxOffsetsPerTrigger=BATCH, minPartitions=4)
    a = start(queue.query("a", hold=("0",))).wait_held("0")
    b = start(queue.query("b")).wait_written()
    a.spec.release()
    b.wait(lambda: queue.written() == RECORDS, "all is written")
    output = queue.output()
    output.assert_exactly_once(numbers(RECORDS))
    assert output.delivery_counts() == {1}
    assert set(output.by_query()) == {"a", "b"}
    for query in (a, b):
        query.wait_tasks(4)  # of one partition
    # reportLatestOffset
    assert b.events("progress")[-1]["sources"][0]["latestOffset"] == {orders: {"0": RECORDS}}

    c = start(queue.query("c"))
    c.wait(lambda: describe(queue).active_members() == 3, "it has joined")
    produced = RECORDS
    while not c.events("written"):  # the others may have taken all that came so far
        kafka.produce(orders, numbers(BATCH, first=produced))
        produced += BATCH
        c.wait(lambda: queue.written() == produced, "all is written")  # noqa: B023
    queue.output().assert_exactly_once(numbers(produced))


def test_a_query_waits_while_another_query_holds_all_records(kafka, topic, job, start):
    """No other query gets records that one query holds; no query fails because of that, and new records go to a free
    one."""
    orders = topic("orders")
    kafka.produce(orders, numbers(1_000))
    queue = job(orders)
    a = start(queue.query("a", hold=("500",))).wait_held("500")
    b = start(queue.query("b")).wait_started()
    kafka.produce(orders, numbers(500, first=1_000))
    b.wait(lambda: queue.written() == 500, "it has written all that is free")
    assert queue.output().of("b").values() == dict.fromkeys(numbers(500, first=1_000), 1)
    a.spec.release()
    a.wait_written()
    queue.output().assert_exactly_once(numbers(1_500))
