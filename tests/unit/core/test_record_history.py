"""The history of a record, read from the group's log: who had it, and how each delivery ended."""

from __future__ import annotations

import pytest

from coordinator.core.commands.administer import AlterStartOffsets
from coordinator.core.log_records import DataLost, PlanCompleted, RunsChanged
from coordinator.core.record_codec import decode_record
from coordinator.protocol.admin_messages import DecideRecords, HistoryEntry
from coordinator.protocol.errors import NotInFlight
from coordinator.protocol.messages import JoinGroup
from coordinator.protocol.values import AcknowledgeType, OutcomeRun
from tests.kip932.consumers import LOCK_MS, ShareConsumers, texts
from tests.support.group_driver import SESSION_MS, TOPIC_ID, GroupDriver, started_plan
from tests.support.quarantine import quarantined_record
from tests.support.record_histories import DLQ, HERE, history_of, snapshot_of, told, untimed
from tests.support.sink_driver import EXPLICIT

GAP, ACCEPT, RELEASE, REJECT, *_ = AcknowledgeType
BAD_ORDER = "a bad order (by bob)"
STALE_MS = 90_000
"""A record in progress loses its lock after this many ms without a signal."""


@pytest.mark.parametrize("kind", [ACCEPT, RELEASE, REJECT])
def test_each_delivery_to_consumers_names_its_member_and_its_end(kind):
    group = ShareConsumers(**DLQ)
    group.fetch("c1", 10)
    group.acknowledge(RELEASE, 3)
    group.fetch("c2", 100)
    group.acknowledge(kind, 3, count=2, member="c2")
    ended = {ACCEPT: "accepted", RELEASE: "released", REJECT: "rejected"}[kind]
    assert told(group, 3) == [("acquired", 1, "c1"), ("released", 1, "c1"), ("acquired", 2, "c2"), (ended, 2, "c2")]
    assert told(group, 4) == [("acquired", 1, "c1")]
    assert told(group, 99) == [("acquired", 1, "c2")]


def test_the_history_lists_a_lost_lock_and_the_delivery_limit():
    group = ShareConsumers(share_delivery_count_limit=2, **DLQ)
    for member in ("c1", "c2"):
        group.fetch(member, 10)
        group.pass_time(LOCK_MS + 1)
    lost = "failed: its lock was lost"
    limit = "lock lost, and given up at the limit of tries"
    assert told(group, 0) == [("acquired", 1, "c1"), (lost, 1, "c1"), ("acquired", 2, "c2"), (limit, 2, "c2")]
    assert [entry.failures for entry in history_of(group.log, 0).entries()][:3] == [0, 1, 1]


@pytest.mark.parametrize("end", ["released", "failed: its lock was lost"])
def test_all_signals_of_a_delivery_are_one_entry(end):
    group = ShareConsumers()
    group.fetch("c1", 10)
    assert [group.signal(3), group.signal(3, hint="half of it")] == ["NONE", "NONE"]
    working = [("acquired", 1, "c1"), ("in progress", 1, "c1")]
    assert told(group, 3) == working
    if end == "released":
        group.acknowledge(RELEASE, 3)
    else:
        group.pass_time(STALE_MS + 1)
    assert told(group, 3) == [*working, (end, 1, "c1")]
    assert history_of(group.log, 3).entries()[-1].failures == 1


def test_a_batch_that_no_sink_decided_is_listed_as_given_back():
    group, plan = started_plan(10, **EXPLICIT)
    group.complete(plan)
    assert told(group, 7) == [("acquired", 1, "m1"), ("given back, which is no try", 1, "m1")]


def test_a_deferred_record_is_listed():
    group, plan = started_plan(10)
    group.stage(OutcomeRun(7, 7, 1, AcknowledgeType.DEFER))
    group.complete(plan)
    assert told(group, 7) == [("acquired", 1, "m1"), ("deferred, or released without a try", 1, "m1")]


def test_a_lock_lost_before_the_query_started_is_no_failure():
    group = GroupDriver(records=10)
    group.join()
    group.next()
    group.pass_time(SESSION_MS + 1)
    assert told(group, 7) == [("acquired", 1, "m1"), ("its lock was lost before the work began", 1, "m1")]
    assert history_of(group.log, 7).entries()[-1].failures == 0


def test_a_query_that_returns_decides_the_records_that_it_lost():
    group, plan = started_plan(10, **texts(DLQ))
    group.stage(OutcomeRun(2, 4, 1, RELEASE), OutcomeRun(5, 6, 1, REJECT))
    group.pass_time(SESSION_MS + 1)
    group.join()
    group.complete(plan)
    lost = [("acquired", 1, "m1"), ("failed: its lock was lost", 1, "m1")]
    assert told(group, 5) == [*lost, ("rejected", 1, "m1")]
    assert told(group, 3) == lost, "the lost lock was its try"


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


def test_the_completion_of_another_batch_rejects_no_record_archived_by_hand():
    group, plan = started_plan(10, **texts(DLQ))
    group.stage(OutcomeRun(3, 3, 1, RELEASE))
    group.complete(plan)
    group.run(DecideRecords(**HERE, decision="archive", first=3, last=3, reason="a bad order", name="bob"))
    group.ends[0] = 20
    other = group.next(plan).plan.plan_id
    group.start(other)
    group.complete(other)
    assert told(group, 15)[-1] == ("accepted", 1, "m1")
    assert told(group, 3) == [("acquired", 1, "m1"), ("released", 1, "m1"), ("archived by an administrator", 1, "")]


def test_the_history_calls_no_record_rejected_that_was_archived_by_hand():
    """A query that is away may come back to its records; those that a consumer released are nobody's."""
    query, _ = started_plan(10, **texts(DLQ))
    query.pass_time(SESSION_MS + 1)
    consumers = ShareConsumers(**DLQ)
    consumers.fetch("c1", 10)
    consumers.acknowledge(RELEASE, 0, 9)
    for group, member in ((query, "m1"), (consumers, "")):
        for at in (3, 4):
            group.run(DecideRecords(**HERE, decision="archive", first=at, last=at, reason="a bad order"))
        assert [told(group, at)[-1] for at in (3, 4)] == [("archived by an administrator", 1, member)] * 2


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


def test_a_query_rejects_a_record_that_was_released_by_hand():
    """The completion says besides that its batch lost another record."""
    group, plan = started_plan(10, **texts(DLQ))
    group.run(DecideRecords(**HERE, decision="release", first=5, last=5, name="alice"))
    group.stage(OutcomeRun(0, 0, 1, RELEASE), OutcomeRun(5, 5, 1, REJECT, reason="too large"))
    group.move_log_start(1)
    group.complete(plan)
    assert [type(decode_record(data)) for data in group.log[-3:]] == [RunsChanged, DataLost, PlanCompleted]
    by_hand = ("released by an administrator", 1, "m1")
    assert told(group, 5) == [("acquired", 1, "m1"), by_hand, ("rejected", 1, "m1")]


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


def test_the_history_lists_a_querys_attempts_and_the_quarantine():
    group, _ = quarantined_record(limit=3)
    no_times = [entry.at_ms is None for entry in untimed(group.log, 0)]
    assert no_times == [False, True, True, True], "no time is made up"
    again = ("delivered again to its query", "m1")
    found = [(event, member) for event, _, member in told(group, 0)]
    assert found == [("acquired", "m1"), again, again, ("failed, and quarantined", "m1")]


def test_the_history_lists_a_completed_batch():
    group, plan = started_plan(10)
    group.next(plan)
    assert told(group, 7) == [("acquired", 1, "m1"), ("accepted", 1, "m1")]


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


def test_an_offset_that_was_not_delivered_has_no_entries():
    group = ShareConsumers()
    group.fetch("c1", 10)
    assert told(group, 50) == []


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


def test_the_history_lists_records_that_are_not_in_the_log():
    """A gap that the holder found, and a record that was available when the log start passed it."""
    group = ShareConsumers()
    group.fetch("c1", 10)
    group.acknowledge(GAP, 4)
    group.acknowledge(RELEASE, 3)
    group.move_log_start(5)
    missing = "not in its topic's log"
    assert told(group, 4) == [("acquired", 1, "c1"), (missing, 1, "c1")]
    assert told(group, 3) == [("acquired", 1, "c1"), ("released", 1, "c1"), (missing, 1, "")]


def test_the_history_lists_a_written_dead_letter():
    group = ShareConsumers(**DLQ)
    group.fetch("c1", 10)
    group.acknowledge(REJECT, 3)
    begun = [("acquired", 1, "c1"), ("rejected", 1, "c1")]
    assert told(group, 3) == begun
    group.file(3, 3)
    assert told(group, 3) == [*begun, ("dead letter written, or not possible", 1, "")]


def test_a_dead_letter_is_written_after_a_reset_above_its_record():
    group = ShareConsumers(**DLQ)
    group.fetch("c1", 10)
    group.acknowledge(REJECT, 3)
    group.run(AlterStartOffsets(starts=((TOPIC_ID, 0, 5),), execute=True, force=True))
    group.file(3, 3)
    assert [event for event, _, _ in told(group, 3)] == [
        "acquired",
        "rejected",
        "start offset altered by an administrator",
        "dead letter written, or not possible",
    ]
