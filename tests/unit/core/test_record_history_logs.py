"""The history of a record in a log that was pruned, that has large records, or in which the group began anew."""

from __future__ import annotations

import pytest

from coordinator.core import record_codec
from coordinator.core.commands.administer import AlterStartOffsets
from coordinator.core.left_out import LeftOutRange
from coordinator.core.log_records import (
    DataLost,
    GroupDeleted,
    MemberJoined,
    PlanAcquired,
    PlanStaged,
    PlanStarted,
    RangesAdded,
    RunsChanged,
)
from coordinator.core.looks import history
from coordinator.core.looks.history import RecordHistory
from coordinator.core.record_codec import decode_record, encode_record, encode_records
from coordinator.core.record_state import RecordState
from coordinator.core.runs import Run
from coordinator.core.staging import Verdict
from coordinator.protocol.admin_messages import DecideRecords, HistoryEntry
from coordinator.protocol.values import AcknowledgeType, OutcomeRun, SharePartitionKey
from tests.kip932.consumers import LOCK_MS, ShareConsumers, texts
from tests.support.group_driver import SESSION_MS, TOPIC_ID, GroupDriver, started_plan
from tests.support.record_histories import DLQ, HERE, history_of, snapshot_of, told, untimed

_, ACCEPT, RELEASE, REJECT, *_ = AcknowledgeType
LEFT_OUT = LeftOutRange(topic="orders", topic_id=TOPIC_ID, partition=0, first=0, last=0, count=1, reason="lost")
LARGE_START = PlanStarted(
    plan_id=1, member_id="m1", member_epoch=1, started=True, reclaims=0, left_out=(LEFT_OUT,) * 100
)
"""A start of a plan that goes on without many records."""
OUTCOMES = (("other", 0, tuple((at, at, Verdict(1, ACCEPT)) for at in range(1_000))),)
LARGE_COMMIT = PlanStaged(plan_id=1, member_id="m1", partitions=OUTCOMES)
"""A sink's commit that does not name its query."""


def test_state_deleted_before_the_log_is_pruned_is_missed():
    group = ShareConsumers()
    group.fetch("c1", 10)
    group.run(AlterStartOffsets(starts=((TOPIC_ID, 0, None),), execute=True, force=True))
    snapshot, pruned = snapshot_of(group), len(group.log)
    group.initialize(0)
    group.fetch("c2", 20)
    log = snapshot + group.log[pruned:]
    for offset, count in ((9, 2), (10, 1)):
        (entry,) = history_of(log, offset).entries()
        assert (entry.event, entry.delivery_count, entry.member_id) == ("acquired", count, "c2")
        assert history_of(log, offset).is_whole is (count == 1)


def test_only_a_log_that_reaches_back_is_called_whole():
    group = ShareConsumers()
    group.fetch("c1", 10)
    group.acknowledge(RELEASE, 3)
    snapshot, before = snapshot_of(group), len(group.log)
    group.fetch("c2", 10)
    since = group.log[before:]
    delivered, earlier = ("acquired", 2, "c2"), [("acquired", 1, "c1"), ("released", 1, "c1")]
    for log, is_pruned in ((snapshot + since, True), (group.log[:before] + snapshot + since, False)):
        for sizes in range(1, 12):
            history = history_of(log, 3, sizes)
            found = [(entry.event, entry.delivery_count, entry.member_id) for entry in history.entries()]
            assert found == ([] if is_pruned else earlier) + [delivered]
            assert history.is_whole is not is_pruned


def test_a_log_from_the_first_acquisition_on_is_called_whole():
    group = ShareConsumers()
    begun = len(group.log)
    group.fetch("c1", 10)
    group.acknowledge(RELEASE, 3)
    assert isinstance(decode_record(group.log[begun]), PlanAcquired)
    assert history_of(group.log[begun:], 3).is_whole
    assert not history_of(group.log[begun + 1 :], 3).is_whole, "it does not say who had the record"


def test_a_snapshot_alone_tells_of_no_delivery():
    group = ShareConsumers()
    group.fetch("c1", 10)
    snapshot, before = snapshot_of(group), len(group.log)
    group.fetch("c2", 10)
    log = snapshot + group.log[before:]
    assert [history_of(log, offset).entries() for offset in (0, 9)] == [[], []]
    (first_after,) = history_of(log, 10).entries()
    assert (first_after.event, first_after.member_id) == ("acquired", "c2")
    assert [history_of(log, offset).is_whole for offset in (9, 10)] == [False, True]


def test_a_snapshot_in_steps_repeats_no_event():
    """It ends with what was appended while it was written, also between its parts."""
    group = ShareConsumers(**DLQ)
    group.fetch("c1", 10)
    group.acknowledge(RELEASE, 3)
    snapshot, before = snapshot_of(group), group.log
    here = next(at for at, data in enumerate(snapshot) if b"PartitionInitialized" in data)
    with group.unchecked():
        group.log = []
        group.acknowledge(RELEASE, 4)
        group.fetch("c2", 10)
        group.acknowledge(REJECT, 3, count=2, member="c2")
        group.file(3, 3, count=2)
        meanwhile = group.log
        group.log = before + meanwhile
    whole, other = told(group, 3), told(group, 4)
    assert len(whole) == 5
    assert other == [("acquired", 1, "c1"), ("released", 1, "c1"), ("acquired", 2, "c2")]
    for parts in (snapshot[:here] + meanwhile + snapshot[here:], snapshot + meanwhile):
        group.log = before + parts + meanwhile
        assert (told(group, 3), told(group, 4)) == (whole, other)
        since = history_of(parts + meanwhile, 3).entries()
        assert [entry.event for entry in since] == [event for event, _, _ in whole[2:]]


def test_a_snapshot_repeats_no_event_of_records_below_the_log_start():
    """It has them as long as a member holds them, or their dead letters are not written."""
    group = ShareConsumers(**DLQ)
    group.fetch("c1", 10)
    group.acknowledge(REJECT, 2)
    group.move_log_start(5)
    group.log += snapshot_of(group)
    begun, deleted = ("acquired", 1, "c1"), ("deleted from its topic", 0, "")
    assert told(group, 2) == [begun, ("rejected", 1, "c1"), deleted]
    assert told(group, 3) == [begun, deleted]


def test_a_pruned_log_adds_no_event_of_records_below_the_log_start():
    group = ShareConsumers(**DLQ)
    group.fetch("c1", 10)
    group.acknowledge(REJECT, 2)
    group.move_log_start(5)
    snapshot, pruned = snapshot_of(group), len(group.log)
    group.acknowledge(ACCEPT, 3)
    group.file(2, 2)
    log = snapshot + group.log[pruned:]
    found = [[entry.event for entry in history_of(log, offset).entries()] for offset in (2, 3, 4)]
    assert found == [["dead letter written, or not possible"], ["not in its topic's log"], []]
    assert not any(history_of(log, offset).is_whole for offset in (2, 3, 4))


def test_the_first_entry_after_pruning_has_the_records_state_alone():
    """Of what was before the log is pruned, a run alone says in which state the record was."""
    group = ShareConsumers(**DLQ)
    group.fetch("c1", 10)
    before = len(group.log)
    group.acknowledge(ACCEPT, 0)
    group.acknowledge(RELEASE, 1)
    group.acknowledge(REJECT, 2)
    group.file(2, 2)
    group.signal(3)
    since = group.log[before:]
    first = [history_of(since, offset).entries()[0].event for offset in (0, 1, 3)]
    assert first == ["accepted", "available again", "in progress"]
    assert [entry.event for entry in history_of(since, 2).entries()][-1] == "dead letter written, or not possible"
    archived = [data for data in since if history_of([data], 2).entries()]
    assert history_of(archived[-1:], 2).entries()[0].event == "archived"


def test_a_recreated_group_has_no_history_of_the_deleted_group():
    group = ShareConsumers(**DLQ)
    group.fetch("c1", 20)
    anew = ShareConsumers(**DLQ)
    anew.fetch("c2", 10)
    deleted = len(group.log)
    log = [*group.log, encode_record(GroupDeleted()), *anew.log]
    for sizes in (1, 5, 1_000):
        history = history_of(log, 3, sizes)
        assert [(each.at_ms > deleted, each.member_id) for each in history.entries()] == [(True, "c2")]
        assert history.is_whole
    assert not history_of(log, 13).entries(), "the deleted group had the record"


def test_the_history_lists_the_rejections_of_a_change_in_parts(monkeypatch):
    """A query returns to a batch whose outcomes are too many for one record of the log."""
    group, plan = started_plan(2_000, **texts(DLQ))
    rows = (OutcomeRun(at, at, 1, (ACCEPT, REJECT)[at % 2], reason="too large") for at in range(2_000))
    group.pass_time(SESSION_MS + 1)
    group.join()
    group.stage(*rows)
    group.complete(plan)
    monkeypatch.setattr(record_codec, "MOST_BYTES", 16_000)
    group.log = [part for data in group.log for part in encode_records([decode_record(data)])]
    changed = [data for data in group.log if isinstance(decode_record(data), RunsChanged)]
    assert len(changed) > 5
    assert [told(group, at)[-1] for at in (1, 999, 1_999)] == [("rejected", 1, "m1")] * 3


def test_large_records_have_the_facts_that_small_ones_have():
    group = GroupDriver(records=2_000)
    group.join()
    first = group.next().plan.plan_id
    group.start(first)
    group.stage(*(OutcomeRun(at, at, 1, RELEASE) for at in range(0, 2_000, 2)), query_id="q-7")
    second = group.next(first).plan.plan_id
    group.start(second)
    group.stage(*(OutcomeRun(at, at, 2, ACCEPT) for at in range(0, 2_000, 2)), query_id="q-7")
    group.complete(second)
    large = [type(decode_record(data)) for data in group.log if len(data) > history.SMALL_BYTES]
    assert large == [PlanStaged, RunsChanged, PlanAcquired, RunsChanged, PlanStaged, RunsChanged]
    ends = [("acquired", 1, "m1"), ("released", 1, "m1"), ("acquired", 2, "m1"), ("accepted", 2, "m1")]
    assert told(group, 4) == ends
    assert {entry.query_id for entry in history_of(group.log, 4).entries()} == {"q-7"}
    assert untimed(group.log, 4)[2].at_ms == group.now_ms, "when it was acquired"


def test_large_records_of_other_topics_tell_who_had_a_record():
    """A member of many topics, a plan of very many ranges, and the outcomes that tell which query is the member's."""
    key = SharePartitionKey("K" * 22, 0)
    many = tuple((at, at) for at in range(0, 100_000, 2))
    topics = tuple(f"topic-{number:06}" for number in range(600))
    acquired = Run(RecordState.ACQUIRED, delivery_count=1, plan_id=1)
    staged = (("other", 0, tuple((first, last, Verdict(1, ACCEPT)) for first, last in many[:1_000])),)
    records = [
        MemberJoined(member_id="m1", member_epoch=1, process_id="p", topics=topics, client_host="here"),
        PlanAcquired(
            plan_id=1,
            member_id="m1",
            member_epoch=1,
            acquired_ms=5,
            ranges=(("other", 0, many), ("other", 1, many), (*key, ((0, 9),))),
        ),
        RunsChanged(**key._asdict(), runs=((0, 9, acquired),)),
        PlanStaged(plan_id=1, member_id="m1", partitions=staged, query_id="q-7"),
        LARGE_START,
    ]
    log = encode_records(records)
    assert [type(decode_record(data)) for data in log if key.topic_id.encode() in data] == [RangesAdded, RunsChanged]
    history = RecordHistory(key, 3)
    history.add([(None, data) for data in log])
    known = {"member_id": "m1", "client_host": "here", "query_id": "q-7"}
    assert history.entries() == [HistoryEntry(event="acquired", at_ms=5, delivery_count=1, plan_id="1", **known)]
    assert history.is_whole


@pytest.mark.parametrize("host", ["here", ""])
def test_a_record_of_at_most_4096_bytes_is_always_decoded(host):
    """It may say nothing of the share partition: that a member joined again, and from which host, if that is known."""
    group = ShareConsumers()
    group.fetch("c1", 10)
    before = MemberJoined(member_id="c1", member_epoch=1, process_id="", client_host="there")
    joined = MemberJoined(member_id="c1", member_epoch=2, process_id="", client_host=host)
    padding = "x" * (history.SMALL_BYTES - len(encode_record(joined)) - 2)
    joined = MemberJoined(member_id="c1", member_epoch=2, process_id=padding, client_host=host)
    assert len(encode_record(joined)) == history.SMALL_BYTES == 4_096
    log = [*group.log, encode_record(before), encode_record(joined)]
    assert history_of(log, 3).entries()[0].client_host == host


def test_large_records_with_runs_of_other_partitions_are_not_decoded(monkeypatch):
    """No other thread of the coordinator runs while a record is decoded. Of others the head alone is decoded."""
    decoded = {"decode_record": [], "decode_head": []}
    for name, seen in decoded.items():
        decode = getattr(history, name)
        monkeypatch.setattr(history, name, lambda data, decode=decode, seen=seen: seen.append(data) or decode(data))
    acquired = Run(state=RecordState.ACQUIRED, delivery_count=1, plan_id=1)
    runs = tuple((at, at, acquired) for at in range(0, 1_000, 2))
    keys = [(TOPIC_ID, 0), (TOPIC_ID, 1), ("B" * 22, 0)]
    log = [encode_record(RunsChanged(topic_id=topic, partition=index, runs=runs)) for topic, index in keys]
    ranges = ((TOPIC_ID, 0, tuple((at, at) for at in range(1_000))),)
    log.append(encode_record(RangesAdded(plan_id=1, member_id="c1", ranges=ranges)))
    outcomes = ((TOPIC_ID, 0, tuple((at, at, Verdict(1, ACCEPT)) for at in range(1_000))),)
    log.append(encode_record(PlanStaged(plan_id=1, member_id="c1", partitions=outcomes)))
    log.append(encode_record(PlanAcquired(plan_id=2, member_id="c1", member_epoch=1, acquired_ms=5, ranges=ranges)))
    log.append(encode_record(LARGE_START))
    assert min(map(len, log)) > history.SMALL_BYTES
    assert history_of(log, 4).entries() == [HistoryEntry(event="acquired", at_ms=0, delivery_count=1, plan_id="1")]
    assert {name: set(seen) for name, seen in decoded.items()} == {
        "decode_record": {log[0]},
        "decode_head": {log[0], log[5], log[6]},
    }
    assert not history_of(log, 5).entries()


@pytest.mark.parametrize("host", ["here", ""])
def test_a_large_join_has_its_own_host(host):
    group = ShareConsumers()
    group.fetch("c1", 10)
    padding = "x" * history.SMALL_BYTES
    joins = [
        MemberJoined(member_id="c1", member_epoch=1, process_id="", client_host="there"),
        MemberJoined(member_id="c1", member_epoch=2, process_id=padding, client_host=host),
    ]
    assert history_of([*group.log, *map(encode_record, joins)], 3).entries()[0].client_host == host


def test_a_query_that_loses_many_offsets_rejects_its_record():
    """The log lost offsets: a large record between the change of the query's records and the end of its batch."""
    group, plan = started_plan(1_000, **texts(DLQ))
    group.run(DecideRecords(**HERE, decision="release", first=900, last=900, name="alice"))
    group.stage(*[OutcomeRun(at, at, 1, RELEASE) for at in range(0, 200, 2)], OutcomeRun(900, 900, 1, REJECT))
    group.move_log_start(300)
    group.complete(plan)
    assert [type(decode_record(d)) for d in group.log if len(d) > history.SMALL_BYTES][-1] is DataLost
    assert told(group, 900)[1:] == [("released by an administrator", 1, "m1"), ("rejected", 1, "m1")]


def test_a_large_change_rejects_no_record_archived_by_hand_before():
    group = GroupDriver(records=1_000, **texts(DLQ))
    group.join()
    plan = group.next().plan.plan_id
    group.start(plan)
    group.stage(*[OutcomeRun(at, at, 1, RELEASE) for at in range(0, 1_000, 2)])
    group.ends[0] = 2_000
    plan = group.next(plan).plan.plan_id
    group.start(plan)
    group.pass_time(SESSION_MS + 1)
    group.run(DecideRecords(**HERE, decision="archive", first=0, last=0, reason="a bad order"))
    group.join(process="m1-process-1")
    group.complete(plan)
    assert [type(decode_record(d)) for d in group.log if len(d) > history.SMALL_BYTES][-1] is RunsChanged
    assert told(group, 0)[-1] == ("archived by an administrator", 2, "m1")


@pytest.mark.parametrize("large", [LARGE_START, LARGE_COMMIT], ids=["start", "commit"])
def test_a_large_record_of_another_kind_rejects_no_archived_record(large):
    """An administrator archives a record that was given back, and one whose lock was lost in the group's first plan."""
    group = ShareConsumers()
    group.fetch("c1", 10)
    group.acknowledge(RELEASE, 0)
    group.wait(LOCK_MS + 1)
    group.run(DecideRecords(**HERE, decision="archive", first=0, last=1, reason="a bad order"))
    group.log.append(encode_record(large))
    assert len(group.log[-1]) > history.SMALL_BYTES
    assert [told(group, at)[-1][0] for at in (0, 1)] == ["archived by an administrator"] * 2
