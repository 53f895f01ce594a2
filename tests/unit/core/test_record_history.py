"""The history of a record, read from the group's log: who had it, and how each delivery ended."""

from __future__ import annotations

import pytest

from coordinator.core.commands.administer import AlterStartOffsets
from coordinator.protocol.admin_messages import DecideRecords, HistoryEntry
from coordinator.protocol.errors import NotInFlight
from coordinator.protocol.messages import JoinGroup
from coordinator.protocol.values import AcknowledgeType, OutcomeRun
from tests.kip932.consumers import ShareConsumers, texts
from tests.support.group_driver import SESSION_MS, TOPIC_ID, GroupDriver, started_plan
from tests.support.record_histories import DLQ, HERE, history_of, snapshot_of, told

_, ACCEPT, RELEASE, REJECT, *_ = AcknowledgeType
BAD_ORDER = "a bad order (by bob)"


def test_the_history_lists_the_actions_of_administrators():
    group = ShareConsumers(**DLQ)
    group.fetch("c1", 10)
    group.acknowledge(RELEASE, 0, 9)
    group.run(DecideRecords(**HERE, decision="release", first=1, last=1, reason="once more", name="alice"))
    group.run(DecideRecords(**HERE, decision="archive", first=1, last=2, reason="a bad order", name="bob"))
    begun = [("acquired", 1, "c1"), ("released", 1, "c1")]
    by_hand = ("archived by an administrator", 1, "")
    assert told(group, 1) == [*begun, ("released by an administrator", 1, ""), by_hand]
    assert told(group, 2) == [*begun, by_hand]
    released, archived = history_of(group.log, 1).entries()[-2:]
    assert released == HistoryEntry(
        event="released by an administrator", at_ms=released.at_ms, delivery_count=1, reason="once more (by alice)"
    )
    assert archived == HistoryEntry(event=by_hand[0], at_ms=archived.at_ms, delivery_count=1, reason=BAD_ORDER)
    assert history_of(group.log, 2).entries()[-1].reason == BAD_ORDER


@pytest.mark.parametrize("size", [1, 3, 2_000])
@pytest.mark.parametrize("process", ["m1-process-1", "m1-process-2"])
def test_a_query_that_returns_rejects_no_record_archived_by_hand(size, process):
    """The record lost its lock, and was archived before. A query of the same process logs nothing when it returns."""
    group, plan = started_plan(size, **texts(DLQ))
    group.pass_time(SESSION_MS + 1)
    group.run(DecideRecords(**HERE, decision="archive", first=0, last=0, reason="a bad order", name="bob"))
    group.join(process=process)
    if size > 3:
        group.stage(*(OutcomeRun(at, at, 1, (RELEASE, ACCEPT)[at % 2]) for at in range(size)))
    group.complete(plan)
    lost = [("acquired", 1, "m1"), ("failed: its lock was lost", 1, "m1")]
    assert told(group, 0) == [*lost, ("archived by an administrator", 1, "m1")]
    assert history_of(group.log, 0).entries()[-1].reason == BAD_ORDER
    assert size == 1 or told(group, 1) == [*lost, ("accepted", 1, "m1")]


def test_a_query_that_returns_to_other_partitions_rejects_nothing():
    """All that it held of the record's own partition was archived by hand."""
    group = GroupDriver(records=1, partitions=2, **texts(DLQ))
    group.join()
    plan = group.next().plan.plan_id
    group.start(plan)
    group.pass_time(SESSION_MS + 1)
    group.run(DecideRecords(**HERE, decision="archive", first=0, last=0, reason="a bad order"))
    group.join()
    group.complete(plan)
    assert told(group, 0)[-1] == ("archived by an administrator", 1, "m1")


@pytest.mark.parametrize("start", [0, None])
def test_a_record_archived_after_a_reset_was_archived_by_hand(start):
    """``start`` None: the share partition's state is deleted, and it begins anew."""
    group = ShareConsumers(**DLQ)
    group.fetch("c1", 10)
    group.run(AlterStartOffsets(starts=((TOPIC_ID, 0, start),), execute=True, force=True))
    snapshot, pruned = snapshot_of(group), len(group.log)
    if start is None:
        group.initialize(0)
    group.run(DecideRecords(**HERE, decision="archive", first=1, last=1, reason="a bad order"))
    by_hand = ("archived by an administrator", 1, "")
    assert told(group, 1) == [("acquired", 1, "c1"), ("start offset altered by an administrator", 0, ""), by_hand]
    if start is None:
        (since,) = history_of(snapshot + group.log[pruned:], 1).entries()
        assert (since.event, since.delivery_count, since.member_id) == by_hand


@pytest.mark.parametrize("named", [{"name": "alice"}, {"reason": "once more"}, {}])
def test_a_release_of_a_held_record_is_no_lost_lock(named):
    group = ShareConsumers()
    group.fetch("c1", 10)
    group.run(DecideRecords(**HERE, decision="release", first=1, last=1, **named))
    assert told(group, 1) == [("acquired", 1, "c1"), ("released by an administrator", 1, "c1")]


def test_a_reason_tells_that_a_querys_record_was_released_by_hand():
    """Else a lost lock would be the same: that the query has started the batch is not looked for."""
    group, _ = started_plan(10)
    group.run(DecideRecords(**HERE, decision="release", first=1, last=1, name="alice"))
    assert told(group, 1) == [("acquired", 1, "m1"), ("released by an administrator", 1, "m1")]


def test_the_reason_of_a_release_by_hand_ends_with_the_next_acquisition():
    group = ShareConsumers(**DLQ)
    group.fetch("c1", 10)
    group.acknowledge(RELEASE, 0, 9)
    group.run(DecideRecords(**HERE, decision="release", first=1, last=1, name="alice"))
    with pytest.raises(NotInFlight):
        group.run(DecideRecords(**HERE, decision="release", first=1, last=1, name="bob"))
    group.fetch("c2", 10)
    assert [each.reason for each in history_of(group.log, 1).entries()[-2:]] == ["(by alice)", ""]


def test_a_record_is_deleted_from_its_topic_once():
    """Later log starts are none of it, nor are any of a record that was done when the log was pruned."""
    group = ShareConsumers(**DLQ)
    group.fetch("c1", 10)
    group.acknowledge(ACCEPT, 0)
    snapshot, pruned = snapshot_of(group), len(group.log)
    for log_start in (5, 7):
        group.move_log_start(log_start)
    deleted = ("deleted from its topic", 0, "")
    assert told(group, 3) == [("acquired", 1, "c1"), deleted]
    group.run(AlterStartOffsets(starts=((TOPIC_ID, 0, 0),), execute=True, force=True))
    group.fetch("c2", 3)
    group.move_log_start(8)
    altered = ("start offset altered by an administrator", 0, "")
    assert told(group, 3) == [("acquired", 1, "c1"), deleted, altered]
    assert told(group, 7) == [("acquired", 1, "c1"), altered, ("acquired", 2, "c2"), deleted]
    log = snapshot + group.log[pruned:]
    assert [[entry.event for entry in history_of(log, at).entries()] for at in (0, 1)] == [
        [altered[0]],
        [deleted[0], altered[0]],
    ]
    later = ShareConsumers(start=3)
    later.move_log_start(5)
    assert [told(later, offset) for offset in (2, 3)] == [[], [deleted]]


def test_an_entry_lists_all_known_facts_of_its_delivery():
    group = GroupDriver(records=10, **texts(DLQ))
    group.run(JoinGroup(group_id="billing", member_id="m1", process_id="p", client_host="here"))
    group.epochs["m1"] = 1
    plan = group.next().plan.plan_id
    group.start(plan)
    rows = (OutcomeRun(2, 4, 1, RELEASE, delay_ms=50), OutcomeRun(5, 6, 1, REJECT, reason="too large"))
    group.stage(*rows, query_id="q-7")
    group.next(plan)
    known = {
        "plan_id": plan.split(".")[1],
        "member_id": "m1",
        "query_id": "q-7",
        "client_host": "here",
        "delivery_count": 1,
    }
    joined, completed = 1, len(group.log)
    acquired, released = history_of(group.log, 3).entries()
    assert joined < acquired.at_ms < released.at_ms < completed
    assert acquired == HistoryEntry(event="acquired", at_ms=acquired.at_ms, **known)
    later = {"at_ms": released.at_ms, "releases": 1, "not_before_ms": group.now_ms + 50}
    assert released == HistoryEntry(event="released", **later, **known)
    rejected = history_of(group.log, 6).entries()[-1]
    assert (rejected.event, rejected.reason, rejected.failures) == ("rejected", "too large", 0)


def test_the_history_lists_resets_and_log_starts_that_changed_an_offset():
    """A reset of the group's start, and a log start that passes the offset."""
    group = ShareConsumers(partitions=2, **DLQ)
    group.fetch("c1", 10)
    group.acknowledge(RELEASE, 0, 9)
    others = ((TOPIC_ID, 1, 0),)
    group.run(AlterStartOffsets(starts=others, execute=True, force=True))
    begun = [("acquired", 1, "c1"), ("released", 1, "c1")]
    assert told(group, 3) == begun, "the other partition's is none of it"
    group.run(AlterStartOffsets(starts=((TOPIC_ID, 0, 0),), execute=True, force=True))
    altered = ("start offset altered by an administrator", 0, "")
    assert told(group, 3) == [*begun, altered]
    for _ in range(2):  # of the other partition, then of this one
        group.fetch("c1", 10)
    group.move_log_start(5)
    assert told(group, 3) == [*begun, altered, ("acquired", 2, "c1"), ("deleted from its topic", 0, "")]
    for kept in (5, 7):
        assert told(group, kept) == [*begun, altered, ("acquired", 2, "c1")]
    group.acknowledge(ACCEPT, 7, count=2)
    group.move_log_start(8)
    assert told(group, 7)[-1] == ("accepted", 2, "c1"), "it was done before"
