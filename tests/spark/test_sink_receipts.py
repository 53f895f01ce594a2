"""A sink knows by the column receipt whose rows it has, whatever form Spark's logs have."""

import pytest

from tests.support.group_state import describe
from tests.support.share_job import numbers

COMPUTED = {
    "topic": "concat(topic, '')",
    "partition": "partition + 0",
    "offset": "offset + 0",
    "deliveryCount": "deliveryCount + 0",
    "receipt": "receipt + 0",
    "acknowledgement": "if(int(text) % 10 = 0 and deliveryCount = 1, 'release', 'accept')",
}
"""Columns that are not the source's any more, as after mapInPandas."""


@pytest.mark.parametrize("sink", ["sharegroup", "write+replace"], ids=["stream", "df.write in foreachBatch"])
def test_a_right_sink_is_served_with_sparks_second_offset_log(orders, job, program, sink):
    queue = job(orders)
    spark = program(settings={"spark.sql.streaming.offsetLog.formatVersion": "2"})
    spec = queue.query("a", columns=COMPUTED, sink=sink, sink_options=queue.sink_options())
    query = spark.start_query(spec)
    query.wait(lambda: describe(queue).lag() == 0, "all are accepted, the released ones at their second delivery")
    assert not query.over()
    seen = queue.seen().groupby("text")["deliveryCount"].max()
    assert {int(text) for text in seen[seen == 2].index} == set(range(0, 100, 10)), numbers(3)
