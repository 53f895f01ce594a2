"""The history of a record, read from the group's log: who had it, and how each delivery ended."""

from __future__ import annotations

import pytest

from coordinator.core import record_history
from coordinator.core.commands.administer import AlterStartOffsets
from coordinator.core.record_codec import encode_record
from coordinator.core.record_history import RecordHistory
from coordinator.core.record_state import RecordState
from coordinator.core.records import GroupDeleted, RunsChanged
from coordinator.core.runs import Run
from coordinator.protocol.admin_messages import DecideRecords, HistoryEntry
from coordinator.protocol.errors import NotInFlight
from coordinator.protocol.messages import JoinGroup
from coordinator.protocol.values import AcknowledgeType, OutcomeRun, SharePartitionKey
from tests.kip932.consumers import LOCK_MS, ShareConsumers, texts
from tests.support.group_driver import TOPIC_ID, GroupDriver, started_plan
from tests.support.quarantine import quarantined_record

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
BAD_ORDER = "a bad order (by bob)"
DLQ = {"errors_deadletterqueue_topic_name": "dlq"}
HERE = {"group_id": "billing", "topic": "orders", "partition": 0, "execute": True}


def history_of(log: list[bytes], offset: int, sizes: int = 10_000) -> RecordHistory:
    """The history, read in parts of so many records, the newest first."""
    history = RecordHistory(SharePartitionKey(TOPIC_ID, 0), offset)
    for end in range(len(log), 0, -sizes):
        history.add([(at, log[at]) for at in range(max(0, end - sizes), end)])
    return history


def told(group: GroupDriver, offset: int) -> list[tuple[str, int, str]]:
    """Event, delivery count and member of each entry; they are the same in parts of any size."""
    found = history_of(group.log, offset)
    entries = found.entries()
    assert found.is_whole
    for sizes in range(1, 6):
        assert history_of(group.log, offset, sizes).entries() == entries
    times = [entry.at_ms for entry in entries]
    assert times == sorted(times), "in the order of the log"
    return [(entry.event, entry.delivery_count, entry.member_id) for entry in entries]


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
    assert [each.reason for each in history_of(group.log, 1).entries()[-2:]] == ["once more (by alice)", BAD_ORDER]
    assert history_of(group.log, 2).entries()[-1].reason == BAD_ORDER


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
    no_times = RecordHistory(SharePartitionKey(TOPIC_ID, 0), 0)
    no_times.add([(None, data) for data in group.log])
    assert [entry.at_ms is None for entry in no_times.entries()] == [False, True, True, True], "no time is made up"
    again = ("delivered again to its query", "m1")
    found = [(event, member) for event, _, member in told(group, 0)]
    assert found == [("acquired", "m1"), again, again, ("failed, and quarantined", "m1")]


def test_the_history_lists_a_completed_batch():
    group, plan = started_plan(10)
    group.next(plan)
    assert told(group, 7) == [("acquired", 1, "m1"), ("accepted", 1, "m1")]


def test_only_a_log_that_reaches_back_is_called_whole():
    group = ShareConsumers()
    group.fetch("c1", 10)
    group.acknowledge(RELEASE, 3)
    snapshot = [encode_record(record) for record in group.group.snapshot()]
    before = len(group.log)
    group.fetch("c2", 10)
    since = group.log[before:]
    delivered, earlier = ("acquired", 2, "c2"), [("acquired", 1, "c1"), ("released", 1, "c1")]
    for log, is_pruned in ((snapshot + since, True), (group.log[:before] + snapshot + since, False)):
        for sizes in range(1, 12):
            history = history_of(log, 3, sizes)
            found = [(entry.event, entry.delivery_count, entry.member_id) for entry in history.entries()]
            assert found == ([] if is_pruned else earlier) + [delivered]
            assert history.is_whole is not is_pruned


def test_large_records_with_runs_of_other_partitions_are_not_decoded(monkeypatch):
    """No other thread of the coordinator runs while a record is decoded."""
    decoded = []
    for name in ("decode_record", "decode_head"):
        decode = getattr(record_history, name)
        monkeypatch.setattr(record_history, name, lambda data, decode=decode: decoded.append(data) or decode(data))
    acquired = Run(state=RecordState.ACQUIRED, delivery_count=1, plan_id=1)
    runs = tuple((at, at, acquired) for at in range(0, 1_000, 2))
    keys = [(TOPIC_ID, 0), (TOPIC_ID, 1), ("B" * 22, 0)]
    log = [encode_record(RunsChanged(topic_id=topic, partition=index, runs=runs)) for topic, index in keys]
    assert min(map(len, log)) > record_history.SMALL_BYTES
    (entry,) = history_of(log, 4).entries()
    assert (entry.event, entry.plan_id) == ("acquired", "1")
    assert set(decoded) == {log[0]}
    assert not history_of(log, 5).entries()


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
    group.acknowledge(ACCEPT, 5, count=2)
    group.move_log_start(6)
    assert told(group, 5)[-1] == ("accepted", 2, "c1"), "it was done before"


def test_the_history_lists_a_written_dead_letter():
    group = ShareConsumers(**DLQ)
    group.fetch("c1", 10)
    group.acknowledge(REJECT, 3)
    begun = [("acquired", 1, "c1"), ("rejected", 1, "c1")]
    assert told(group, 3) == begun
    group.file(3, 3)
    assert told(group, 3) == [*begun, ("dead letter written, or not possible", 1, "")]


def test_a_recreated_group_has_no_history_of_the_deleted_group():
    group = ShareConsumers(**DLQ)
    group.fetch("c1", 10)
    deleted = len(group.log)
    log = [*group.log, encode_record(GroupDeleted()), *group.log]
    assert [entry.at_ms > deleted for entry in history_of(log, 3).entries()] == [True]


def test_the_first_entry_after_pruning_has_the_records_state_alone():
    """Of what was before the log is pruned, a run alone says in which state the record was."""
    group = ShareConsumers(**DLQ)
    group.fetch("c1", 10)
    before = len(group.log)
    group.acknowledge(ACCEPT, 0)
    group.acknowledge(RELEASE, 1)
    group.acknowledge(REJECT, 2)
    group.file(2, 2)
    since = group.log[before:]
    assert [history_of(since, offset).entries()[0].event for offset in (0, 1)] == ["accepted", "available again"]
    assert [entry.event for entry in history_of(since, 2).entries()][-1] == "dead letter written, or not possible"
    archived = [data for data in since if history_of([data], 2).entries()]
    assert history_of(archived[-1:], 2).entries()[0].event == "archived"
