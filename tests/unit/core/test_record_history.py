"""The history of a record, read from the group's log: who had it, and how each delivery ended."""

from __future__ import annotations

import pytest

from coordinator.core.record_codec import encode_record
from coordinator.core.record_history import RecordHistory
from coordinator.protocol.admin_messages import DecideRecords
from coordinator.protocol.errors import NotInFlight
from coordinator.protocol.values import AcknowledgeType, SharePartitionKey
from tests.kip932.consumers import LOCK_MS, ShareConsumers
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


def test_a_lost_lock_and_the_limit_are_told():
    group = ShareConsumers(share_delivery_count_limit=2, **DLQ)
    for member in ("c1", "c2"):
        group.fetch(member, 10)
        group.pass_time(LOCK_MS + 1)
    lost = "failed: its lock was lost"
    limit = "lock lost, and given up at the limit of tries"
    assert told(group, 0) == [("acquired", 1, "c1"), (lost, 1, "c1"), ("acquired", 2, "c2"), (limit, 2, "c2")]


def test_what_administrators_did_is_told():
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


def test_a_record_released_by_hand_forgets_why_when_it_is_acquired():
    group = ShareConsumers(**DLQ)
    group.fetch("c1", 10)
    group.acknowledge(RELEASE, 0, 9)
    group.run(DecideRecords(**HERE, decision="release", first=1, last=1, name="alice"))
    with pytest.raises(NotInFlight):
        group.run(DecideRecords(**HERE, decision="release", first=1, last=1, name="bob"))
    group.fetch("c2", 10)
    assert [each.reason for each in history_of(group.log, 1).entries()[-2:]] == ["(by alice)", ""]


def test_a_query_s_attempts_and_its_quarantine_are_told():
    group, _ = quarantined_record(limit=3)
    no_times = RecordHistory(SharePartitionKey(TOPIC_ID, 0), 0)
    no_times.add([(None, data) for data in group.log])
    assert [entry.at_ms is None for entry in no_times.entries()] == [False, True, True, True], "no time is made up"
    again = ("delivered again to its query", "m1")
    found = [(event, member) for event, _, member in told(group, 0)]
    assert found == [("acquired", "m1"), again, again, ("failed, and quarantined", "m1")]


def test_a_completed_batch_is_told():
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


def test_an_offset_that_was_not_delivered_has_no_entries():
    group = ShareConsumers()
    group.fetch("c1", 10)
    assert told(group, 50) == []
