"""Offsets that the log does not hold: no evidence that processing works, and nothing to be tried alone."""

from types import SimpleNamespace

import pytest

from coordinator.core.commands import ArchiveGaps
from coordinator.core.looks.view import LogRange
from coordinator.core.record_state import RecordState
from coordinator.protocol.values import OffsetRange
from coordinator.service.brokers import log_gaps
from coordinator.service.brokers.log_gaps import AFTER_ERROR_S, LogGaps
from tests.support.fake_cluster import cluster_with_orders
from tests.support.group_driver import TOPIC_ID, GroupDriver


def at(first: int, last: int) -> LogRange:
    return LogRange("orders", OffsetRange("T", 0, first, last))


@pytest.fixture
def cluster():
    return cluster_with_orders(end=100)


def test_the_holes_of_a_range_are_named(cluster):
    cluster.gaps = {5, 6, 9}
    gaps = LogGaps(cluster)
    assert [(g.first, g.last) for g in gaps.among([at(5, 9)], read_committed=False)] == [(5, 6), (9, 9)]
    assert gaps.among([at(5, 9)], read_committed=False) == (), "looked at once"
    assert gaps.among([at(10, 12)], read_committed=False) == ()


def test_ranges_that_are_asked_for_are_read_once_however_many(cluster, monkeypatch):
    now_s = 100.0
    monkeypatch.setattr(log_gaps, "time", SimpleNamespace(monotonic=lambda: now_s))
    monkeypatch.setattr(log_gaps, "KNOWN", 10)
    gaps = LogGaps(cluster)
    held = [at(offset, offset) for offset in range(50)]
    for _ in range(3):
        gaps.among(held, read_committed=False)
        now_s += log_gaps.KEPT_S
    assert len(cluster.read) == 50
    now_s += 1
    gaps.among([at(60, offset) for offset in range(61, 99)], read_committed=False)
    gaps.among([at(70, offset) for offset in range(71, 99)], read_committed=False)
    assert at(0, 0) not in gaps._known, "nobody has asked for it since"


def test_an_unreadable_log_shows_no_gap_and_no_evidence(cluster, monkeypatch):
    now_s = 100.0
    monkeypatch.setattr("coordinator.service.brokers.log_gaps.time.monotonic", lambda: now_s)
    gaps = LogGaps(cluster)
    cluster.unreachable = True
    assert gaps.among([at(5, 9)], read_committed=False) == ()
    cluster.unreachable = False
    assert not gaps.holds_any([at(5, 9)], read_committed=False)
    assert cluster.read == []
    now_s += AFTER_ERROR_S
    assert gaps.holds_any([at(5, 9)], read_committed=False)


def test_offsets_beyond_the_visible_log_end_are_no_gaps(cluster):
    gaps = LogGaps(cluster)
    cluster.gaps = {97}
    for held in (at(100, 109), at(150, 150)):
        assert gaps.among([held], read_committed=False) == ()
    cluster.stable = {("orders", 0): 95}
    assert gaps.among([at(96, 98)], read_committed=True) == ()


def test_the_log_is_asked_again_when_its_end_reaches_the_offsets(cluster, monkeypatch):
    now_s = 100.0
    monkeypatch.setattr("coordinator.service.brokers.log_gaps.time.monotonic", lambda: now_s)
    gaps = LogGaps(cluster)
    cluster.gaps = {98, 101}
    held = at(98, 102)
    assert [(g.first, g.last) for g in gaps.among([held], read_committed=False)] == [(98, 98)]
    assert gaps.among([held], read_committed=False) == (), "after a while"
    cluster.move("orders", 200)
    now_s += AFTER_ERROR_S
    found = {(g.first, g.last) for g in gaps.among([held], read_committed=False)}
    assert found == {(98, 98), (101, 101)}
    assert gaps.among([held], read_committed=False) == (), "looked at once"


def test_offsets_below_the_log_start_are_no_gaps(cluster):
    cluster.move("orders", 100, start=50)
    gaps = LogGaps(cluster)
    assert gaps.among([at(30, 39)], read_committed=False) == ()
    assert gaps.among([at(45, 54)], read_committed=False) == ()


def test_an_unreadable_log_does_not_stop_reading_other_logs(cluster, monkeypatch):
    now_s = 100.0
    monkeypatch.setattr("coordinator.service.brokers.log_gaps.time.monotonic", lambda: now_s)
    cluster.add("broken", 3, end=100)
    cluster.unreadable = {("broken", 0), ("broken", 1), ("broken", 2)}
    broken = [LogRange("broken", OffsetRange("B", partition, 0, 0)) for partition in range(3)]
    cluster.gaps = {5}
    gaps = LogGaps(cluster)
    for offset in range(4):
        gaps.among([*broken, at(offset, offset)], read_committed=False)
    assert [(g.first, g.last) for g in gaps.among([*broken, at(5, 5)], read_committed=False)] == [(5, 5)]
    assert gaps.holds_any([*broken, at(6, 6)], read_committed=False)
    looks = len(cluster.read)
    gaps.among(broken, read_committed=False)
    assert len(cluster.read) == looks, "members wait for the answer"
    now_s += AFTER_ERROR_S
    gaps.among(broken, read_committed=False)
    assert len(cluster.read) == looks + 1, "one of them after a while"


def test_a_plan_may_begin_with_many_gaps(cluster):
    cluster.gaps = set(range(50))
    gaps = LogGaps(cluster)
    assert gaps.holds_any([at(n, n + 4) for n in range(0, 60, 5)], read_committed=False)
    assert not gaps.holds_any([at(n, n + 4) for n in range(0, 50, 5)], read_committed=False)


def test_archiving_gaps_leaves_held_and_fresh_records_unchanged():
    group = GroupDriver(records=10)
    group.join()
    plan = group.next(limit=4).plan.plan_id
    group.start(plan)
    group.run(ArchiveGaps(gaps=(OffsetRange(topic_id=TOPIC_ID, partition=0, first=0, last=9),)))
    assert group.dump() == ["[0..3] ACQUIRED 1 0 1"], "held, or never acquired"
    group.run(ArchiveGaps(gaps=(OffsetRange(topic_id="another", partition=0, first=0, last=9),)))


def fail_alone(running):
    """With a limit of 2, two deliveries that fail set all records of the batch aside."""
    running.join(starting_offsets="earliest", configs={"share.delivery.count.limit": "2"})
    number = running.next(max_records=10).plan_id
    running.start(number)
    for attempt in range(2):
        running.join(process=f"later-{attempt}")
        running.start(number)
    return number


def state(running):
    return running.runtime.call("billing", lambda group: _only_look(group))


def _only_look(group):
    yield from ()
    (partition,) = group.partitions.values()
    return (
        [(f, last) for f, last, run in partition.runs if run.quarantined],
        partition.runs.counts[RecordState.ARCHIVED] + partition.archived_total,
        [member.evidence for member in group.members.values()],
    )


def test_a_batch_of_gaps_is_no_evidence_that_processing_works(running, cluster):
    number = fail_alone(running)
    assert state(running) == ([(0, 9)], 0, [False])
    cluster.gaps = set(range(10, 20))
    gaps_only = running.next(number, max_records=10)
    assert [(r.first, r.last) for p in gaps_only.partitions for r in p.ranges] == [(10, 19)]
    running.start(gaps_only.plan_id)
    real = running.next(gaps_only.plan_id, max_records=10)
    assert state(running)[2] == [False]
    running.start(real.plan_id)
    running.next(real.plan_id, max_records=10)
    assert state(running)[2] == [True]


def test_a_quarantined_gap_is_archived_and_never_tried_alone(running, cluster):
    number = fail_alone(running)
    cluster.gaps = {0, 1, 2, 4}
    plan = running.next(number, max_records=10)
    running.start(plan.plan_id)
    aside, archived, _ = state(running)
    assert aside == [(3, 3), (5, 9)]
    assert archived >= 1


def fail_until_quarantined(running, topic, member):
    for attempt in range(3):
        running.join(
            member,
            topics=(topic,),
            process=f"{member}-{attempt}",
            starting_offsets="earliest",
            configs={"share.delivery.count.limit": "2"},
        )
        number = running.next(member=member, max_records=1).plan_id if attempt == 0 else number  # noqa: F821
        running.start(number, member)
    return number


@pytest.mark.parametrize("goes", ["deleted", "made anew"])
def test_a_quarantined_record_of_a_deleted_topic_starves_no_trial(running, cluster, goes):
    cluster.move("orders", 1)
    cluster.add("other", end=1)
    fail_until_quarantined(running, "other", "m2")
    cluster.delete("other")
    if goes == "made anew":
        cluster.add("other")
    number = fail_until_quarantined(running, "orders", "m1")
    plan = None
    for end in range(2, 6):
        cluster.move("orders", end)
        plan = running.next(number, max_records=10)
        if plan.trial:
            break
        number = plan.plan_id
        running.start(number)
    assert plan.trial and [(r.first, r.last) for p in plan.partitions for r in p.ranges] == [(0, 0)]


def test_a_gap_that_another_topic_of_the_name_has_archives_nothing(running, cluster):
    number = fail_alone(running)
    existing, topic_id = cluster.existing, cluster.found["orders"].topic_id

    def made_anew_before_it_is_read(*args, **kwargs):
        if cluster.found["orders"].topic_id == topic_id:
            cluster.delete("orders")
            cluster.add("orders", end=100)
        cluster.gaps = set(range(10))
        return existing(*args, **kwargs)

    cluster.existing = made_anew_before_it_is_read
    running.next(number, max_records=10)
    assert state(running)[0] == [(0, 9)]


def test_the_log_is_not_read_while_nothing_is_quarantined(running, cluster):
    running.join(starting_offsets="earliest")
    number = running.next(max_records=10).plan_id
    running.start(number)
    running.next(number, max_records=10)
    assert cluster.read == []
