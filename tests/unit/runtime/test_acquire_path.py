"""An acquire costs two rounds of the group's event loop, and one append."""

from collections import Counter

from coordinator.service.runtime.event_loop import PartitionedRuntime
from coordinator.service.stores.sqlite_store import SqliteStore
from tests.support.fake_cluster import FakeCluster
from tests.support.running_service import Running, held


def test_an_acquire_is_two_rounds_and_one_append(tmp_path, monkeypatch):
    counted = Counter()
    call, append = PartitionedRuntime.call, SqliteStore.append

    def counted_call(loop, *given):
        counted["rounds"] += 1
        return call(loop, *given)

    def counted_append(store, appends, *given):
        counted["appends"] += any(each.data for each in appends.values())
        append(store, appends, *given)

    cluster = FakeCluster()
    cluster.add("orders", 2, end=100)
    running = Running(tmp_path / "state.db", cluster)
    try:
        running.join(starting_offsets="earliest")
        plan = running.next()
        running.start(plan.plan_id)
        for partition in range(2):
            cluster.move("orders", 150, partition)
        monkeypatch.setattr(PartitionedRuntime, "call", counted_call)
        monkeypatch.setattr(SqliteStore, "append", counted_append)
        following = running.next(plan.plan_id)
        after = dict(counted)
    finally:
        running.close()
    assert held(following) == {("orders", 0): [(100, 149)], ("orders", 1): [(100, 149)]}
    assert after == {"rounds": 2, "appends": 1}
