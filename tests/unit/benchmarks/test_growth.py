"""The growth of the state log with partitions, queries and groups (`make bench ARGS="--only growth"` has the times)."""

import pytest

from benchmarks.growth import AT_MOST_SLOPE, Growth
from benchmarks.served_groups import Query, ServedGroups

RECORDS = 100


def appended_bytes(groups: int, queries: int, partitions: int) -> int:
    """Of a round in which each query of each group has its second batch."""
    with ServedGroups() as served:
        topics = [f"topic-{number}" for number in range(groups)]
        for topic in topics:
            served.produce(topic, partitions, 2 * RECORDS * queries)
        joined = [Query(served, f"group-{topic}", topic) for topic in topics for _ in range(queries)]
        for _ in range(2):
            before = served.appended_bytes
            for query in joined:
                query.batch(RECORDS * partitions)
        return served.appended_bytes - before


def of(sizes, whole):
    return Growth(of="things", each="a thing", cost="state", unit="B", sizes=sizes, whole=whole, how="")


@pytest.mark.parametrize("shape", [(1, 1, 4), (1, 8, 1), (8, 1, 1)], ids=["partitions", "queries", "groups"])
def test_appended_bytes_grow_no_faster_than_the_load(shape):
    size = max(shape)
    assert max(of((1, size), [appended_bytes(1, 1, 1), appended_bytes(*shape)]).slopes) <= AT_MOST_SLOPE
