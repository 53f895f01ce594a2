"""Start offsets, resets and deletions go by topic id and by partition, for queries and for ShareConsumers."""

import pytest

from coordinator.protocol.admin_messages import AlterOffsets, DeleteOffsets
from coordinator.protocol.messages import LeaveGroup
from coordinator.service.brokers.topic_doubts import TopicDoubts
from tests.support import running_service
from tests.support.fake_cluster import FakeCluster
from tests.support.running_service import held

NOW = {"group_id": "billing", "execute": True}
KINDS = pytest.mark.parametrize("query", [True, False], ids=["query", "ShareConsumer"])


def serving(*, doubt_s=0.0, **topics):
    """A service on a cluster with these topics: their numbers of partitions. A topic that is missing for ``doubt_s``
    counts as deleted."""
    cluster = FakeCluster()
    for topic, partitions in (topics or {"orders": 1}).items():
        cluster.add(topic, partitions, end=100)
    return running_service.serving(cluster, doubts=TopicDoubts(doubt_s))


def done(running, *topics):
    """m1 has done all records of these topics, and has left."""
    running.join(topics=topics or ("orders",), starting_offsets="earliest")
    plan = running.next()
    running.start(plan.plan_id)
    running.next(plan.plan_id)
    running.ask(LeaveGroup)


# --- where a share partition begins


def test_deleted_offsets_begin_where_the_next_member_starts():
    for query in (True, False):
        for starts, expected in (("latest", 100), ('{"orders": {"0": 90}}', 90), ("earliest", 0)):
            with serving() as running:
                done(running)
                running.admin.handle(DeleteOffsets(**NOW, topics=("orders",)))
                running.join("m2", query=query, starting_offsets=starts)
                assert running.start_offsets() == {("orders", 0): expected}


@KINDS
def test_a_partition_added_after_a_deletion_begins_at_its_earliest(query):
    """m1's subscription is older than the partition."""
    with serving() as running:
        done(running)
        running.admin.handle(DeleteOffsets(**NOW, topics=("orders",)))
        running.cluster.add("orders", 2, end=7)
        running.join("m2", query=query, starting_offsets="latest")
        assert running.start_offsets() == {("orders", 0): 100, ("orders", 1): 0}


def test_an_assigned_partition_begins_where_its_first_member_starts():
    with serving(orders=2) as running:
        running.join(assign={"orders": (0,)}, starting_offsets="earliest")
        running.ask(LeaveGroup)
        running.join("m2", assign={"orders": (1,)}, starting_offsets="latest")
        assert running.start_offsets() == {("orders", 0): 0, ("orders", 1): 100}


def test_a_topic_made_anew_begins_at_its_earliest_whoever_joins():
    """A member that is absent has subscribed to the name: nothing of the topic is lost to it."""
    with serving() as running:
        done(running)
        running.cluster.delete("orders")
        running.cluster.add("orders", end=9)
        running.join("m2", starting_offsets="latest")
        assert held(running.next(member="m2")) == {("orders", 0): [(0, 8)]}


# --- resets


def test_a_reset_of_all_topics_leaves_out_deleted_ones_by_name():
    with serving(orders=1, old=2) as running:
        done(running, "orders", "old")
        running.cluster.delete("old")
        reply = running.admin.handle(AlterOffsets(**NOW, to="earliest"))
        assert [(p.topic, p.before, p.after) for p in reply.partitions] == [("orders", 100, 0)]
        assert "Topic old was deleted: 2 share partition(s) of it are left as they are." in reply.notes


def test_a_reset_of_all_topics_names_one_that_is_only_missing():
    """It may come back, and is not called deleted."""
    with serving(doubt_s=3600.0, orders=1, old=2) as running:
        done(running, "orders", "old")
        hidden = running.cluster.found.pop("old")
        for execute in (False, True):
            reply = running.admin.handle(AlterOffsets(group_id="billing", execute=execute, to="latest"))
            assert [p.topic for p in reply.partitions] == ["orders"]
            (note,) = [note for note in reply.notes if "share partition" in note]
            assert note.startswith(
                "The brokers do not show topic old at present, which may be deleted: 2 share partition"
            )
        running.cluster.found["old"] = hidden
        reply = running.admin.handle(AlterOffsets(group_id="billing", to="latest"))
        assert {p.topic for p in reply.partitions} == {"orders", "old"}
        assert not [note for note in reply.notes if "share partition" in note]


def test_a_reset_of_all_topics_touches_no_topic_that_was_made_anew():
    """The brokers know the offsets of the new topic alone, and the group has the old one."""
    with serving(orders=1, kept=1) as running:
        done(running, "orders", "kept")
        running.cluster.delete("orders")
        running.cluster.add("orders", end=7)
        reply = running.admin.handle(AlterOffsets(**NOW, to="earliest"))
        assert [p.topic for p in reply.partitions] == ["kept"]
        left = "Topic orders was deleted and created anew: 1 share partition(s) of the deleted one are left as they are"
        assert any(note.startswith(left) for note in reply.notes)
        running.join("m2", topics=("orders", "kept"), starting_offsets="earliest")
        assert held(running.next(member="m2")) == {("kept", 0): [(0, 99)], ("orders", 0): [(0, 6)]}


def test_a_reset_when_all_topics_are_deleted_says_so():
    with serving() as running:
        done(running)
        running.cluster.delete("orders")
        reply = running.admin.handle(AlterOffsets(**NOW, to="latest"))
        assert (reply.executed, reply.partitions) == (True, ())
        assert any("Topic orders was deleted" in note for note in reply.notes)
