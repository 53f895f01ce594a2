"""The history of a record in a group's log, read in parts of any size."""

from __future__ import annotations

from coordinator.core.looks import snapshot
from coordinator.core.looks.history import RecordHistory
from coordinator.core.record_codec import encode_record
from coordinator.protocol.admin_messages import HistoryEntry
from coordinator.protocol.values import SharePartitionKey
from tests.support.group_driver import TOPIC_ID, GroupDriver

DLQ = {"errors_deadletterqueue_topic_name": "dlq"}
HERE = {"group_id": "billing", "topic": "orders", "partition": 0, "execute": True}
"""The share partition, for an administrator's decision on records."""


def history_of(log: list[bytes], offset: int, sizes: int = 10_000) -> RecordHistory:
    """Returns the history, read in parts of ``sizes`` records, the newest first."""
    history = RecordHistory(SharePartitionKey(TOPIC_ID, 0), offset)
    for end in range(len(log), 0, -sizes):
        history.add([(at, log[at]) for at in range(max(0, end - sizes), end)])
    return history


def untimed(log: list[bytes], offset: int) -> list[HistoryEntry]:
    """The entries, without the times at which the state store stored a record."""
    history = RecordHistory(SharePartitionKey(TOPIC_ID, 0), offset)
    history.add([(None, data) for data in log])
    return history.entries()


def snapshot_of(group: GroupDriver) -> list[bytes]:
    return [encode_record(record) for record in snapshot.snapshot_of(group.group)]


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
