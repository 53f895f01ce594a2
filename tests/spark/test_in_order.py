"""Order by partition in a query: sharegroup.in_order defers what follows a release."""

from __future__ import annotations

import pytest

from tests.support.group_state import describe
from tests.support.share_job import numbers
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark]

RUN = """
import sharegroup

def run(spark, rows, columns):
    found = spark.createDataFrame([tuple(row) for row in rows], columns)
    ordered = sharegroup.in_order(found.repartition(3))
    assert ordered.columns == found.columns
    return [list(row) for row in ordered.orderBy("topic", "partition", "offset").collect()]
"""
COLUMNS = "topic string, partition int, offset long, acknowledgement string"


def in_order(program, rows, columns=COLUMNS):
    return program.run(RUN, rows=rows, columns=columns)


def test_what_follows_a_release_of_its_partition_is_deferred(shared_program):
    said = {
        ("t", 0): ["accept", "release", "accept", None, "reject", "release"],
        ("t", 1): ["reject", None, "accept"],
        ("u", 0): ["defer", "accept"],
    }
    rows = [[*key, at, word] for key, words in said.items() for at, word in enumerate(words)]
    found = [row[3] for row in in_order(shared_program.get(), rows)]
    assert found == ["accept", "release", *["defer"] * 4, "reject", None, "accept", "defer", "defer"]


def test_rows_of_a_released_record_itself_are_not_deferred(shared_program):
    rows = [["t", 0, 1, "release"], ["t", 0, 1, "release"], ["t", 0, 2, "accept"]]
    assert [row[3] for row in in_order(shared_program.get(), rows)] == ["release", "release", "defer"]


def test_a_row_that_is_deferred_loses_its_delay(shared_program):
    columns = f"{COLUMNS}, releaseDelayMs long"
    rows = [["t", 0, 1, "release", 7], ["t", 0, 2, "release", 8], ["t", 0, 3, "defer", 9], ["t", 1, 1, "accept", None]]
    assert [row[4] for row in in_order(shared_program.get(), rows, columns)] == [7, None, 9, None]


@pytest.mark.broker
def test_a_query_that_releases_accepts_each_partition_in_order(kafka, topic, job, shared_program, start):
    orders = topic("orders", 2)
    kafka.produce(orders, numbers(40))
    queue = job(orders, **{"share.order": "partition", "share.release.backoff.ms": "200"})
    released = "if(text = '7' AND deliveryCount = 1, 'release', 'accept')"
    sink = queue.sink_options(outputOnReplay="replaces")
    columns = {"acknowledgement": released}
    start(queue.query("a", sink="acknowledge+replace", sink_options=sink, columns=columns, in_order=True))
    wait_until(lambda: describe(queue).lag() == 0, what="all records are done")
    rows = queue.output().rows
    accepted = rows[rows["acknowledgement"] == "accept"].sort_values("batch", kind="stable")
    for _, of_partition in accepted.groupby("partition"):
        assert list(of_partition["offset"]) == list(range(len(of_partition)))
    assert len(accepted) == 40 and len(rows) > 41, "some were released, and deferred"
