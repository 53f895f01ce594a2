"""A topic that is deleted and not created again is forgotten; the counts of its records are kept, and what a redrive
asks for."""

from __future__ import annotations

import pytest

from coordinator.core.commands import (
    ArchiveDeletedTopics,
    AssignPartitions,
    Expire,
    InitializePartitions,
    PartitionStart,
    TopicWithId,
)
from coordinator.core.commands import forget as forgetting
from coordinator.core.commands.forget import SWEEP_MS
from coordinator.core.log_records import PartitionsForgotten, TopicDeleted
from coordinator.core.looks.description import describe_group
from coordinator.core.record_codec import decode_record, encode_record
from coordinator.core.record_counts import RecordTotals
from coordinator.core.replays import partition_replay as partitions
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.messages import GroupDescription
from coordinator.protocol.values import SharePartitionKey
from sharegroup.admin_access import origins_of
from tests.support.group_driver import TOPIC_ID, GroupDriver, acknowledged, fetched

DELETED, REJECTED = 50, 3
"""Where the log of a deleted topic ended; the acknowledgement type."""


def made(group: GroupDriver, topic: str, start: int = 0) -> None:
    """A topic with one partition comes to the group; its id is its name."""
    group.topic_id = topic
    starts = (PartitionStart(topic_id=topic, partition=0, start_offset=start),)
    group.run(InitializePartitions(topics=(TopicWithId(topic=topic, topic_id=topic),), starts=starts))


def deleted(group: GroupDriver, topic: str) -> None:
    ends = (PartitionStart(topic_id=topic, partition=0, start_offset=DELETED),)
    group.run(ArchiveDeletedTopics(topic_ids=(topic,), ends=ends))


def dated(group: GroupDriver, topic: str) -> None:
    """A topic is worked off but for its last ten records, and deleted: thirty were accepted, ten rejected."""
    made(group, topic)
    group.join("c1", query=False)
    group.run(AssignPartitions())
    group.log_starts = dict.fromkeys(group.log_starts, 0)
    assert fetched(group, 40) == [(0, 39, 1)]
    assert not acknowledged(group, 0, 29, 1, 1)
    assert not acknowledged(group, 30, 39, 1, REJECTED)
    deleted(group, topic)


def a_sweep_later(group: GroupDriver) -> None:
    group.run(Expire())
    group.pass_time(SWEEP_MS + 1)


def topics(group: GroupDriver) -> list[str]:
    return sorted({key.topic_id for key in group.group.partitions})


def balanced(group: ShareGroup) -> RecordTotals:
    """The group's totals, after a check that they account for all offsets."""
    totals, still_there = group.totals()
    assert totals.left == still_there
    return totals


def test_a_deleted_topic_is_forgotten_and_its_counts_are_kept() -> None:
    group = GroupDriver(records=DELETED)
    for day in range(3):
        dated(group, f"events-{day}")
    totals = balanced(group.group)
    assert (totals.reached, totals.accepted, totals.deleted) == (150, 90, 30)
    assert totals.archived[1] == totals.without_dead_letter[1] == 30
    a_sweep_later(group)
    assert topics(group) == [TOPIC_ID]
    assert (group.group.topics, group.group.topic_names, group.group.gone) == ({"orders": "T"}, {"T": "orders"}, {})
    assert balanced(group.group) == totals
    group.crash()
    assert balanced(group.group) == totals and topics(group) == [TOPIC_ID]
    assert group.group.forgotten_topics["events-2"].ends == ((0, 50, 1),)
    assert group.group.next_deadline_ms() is None, "no sweep is due where there is nothing to forget"


def test_a_topic_that_is_back_after_it_is_forgotten_repeats_no_record() -> None:
    group = GroupDriver(records=DELETED)
    dated(group, "events-1")
    a_sweep_later(group)
    totals = balanced(group.group)
    made(group, "events-1")
    partition = group.group.partitions[SharePartitionKey("events-1", 0)]
    assert (partition.start_offset, partition.highest_count) == (DELETED, 1)
    assert balanced(group.group) == totals
    assert not group.group.forgotten_topics
    deleted(group, "events-1")
    a_sweep_later(group)
    assert group.group.forgotten_topics["events-1"].ends == ((0, 50, 1),)


def test_a_topic_is_kept_until_its_dead_letters_are_written() -> None:
    group = GroupDriver(records=DELETED, **{"errors.deadletterqueue.topic.name": "dlq"})
    dated(group, "events-1")
    a_sweep_later(group)
    assert topics(group) == [TOPIC_ID, "events-1"]
    group.file(30, 39)
    group.pass_time(SWEEP_MS + 1)
    assert topics(group) == [TOPIC_ID]
    assert balanced(group.group).archived[1] == 10


def test_ends_of_forgotten_topics_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "ENDS_KEPT", 3)
    group = GroupDriver(records=DELETED)
    for day in range(6):
        made(group, f"events-{day}")
        deleted(group, f"events-{day}")
        a_sweep_later(group)
    a_sweep_later(group)
    assert list(group.group.forgotten_topics) == ["events-3", "events-4", "events-5"]
    assert balanced(group.group).deleted == 6 * DELETED


def test_very_many_deleted_topics_are_forgotten_in_several_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgetting, "MOST_DROPPED", 2)
    group = GroupDriver(records=DELETED)
    for day in range(5):
        made(group, f"events-{day}")
        deleted(group, f"events-{day}")
    group.now_ms += SWEEP_MS
    group.run(Expire())
    assert len(topics(group)) == 4
    assert group.group.next_deadline_ms() == group.now_ms + 1, "the next sweep is due at once"
    group.pass_time(1)
    group.pass_time(1)
    assert topics(group) == [TOPIC_ID]


def test_a_log_of_an_older_version_is_forgotten_at_the_first_sweep() -> None:
    group = GroupDriver(records=DELETED)
    made(group, "events-1")
    group.append([TopicDeleted(topic_id="events-1")])
    group.run(Expire())
    assert topics(group) == [TOPIC_ID]


def test_records_of_an_older_version_forget_partitions_one_by_one() -> None:
    group = GroupDriver(records=DELETED, partitions=2)
    for index in (1, 0):
        data = encode_record(PartitionsForgotten(topic_id=TOPIC_ID, partitions=(index,)))
        assert b"whole_topic" not in data
        group.append([decode_record(data)])
        assert (TOPIC_ID in group.group.topic_names) is (index == 1)


def test_a_redrive_knows_the_offsets_of_forgotten_topics() -> None:
    group = GroupDriver(records=DELETED, **{"errors.deadletterqueue.topic.name": "dlq"})
    dated(group, "events-1")
    group.file(30, 39)
    before = origins_of(Described(group), "billing", "dlq")
    assert before["events-1", 0] == DELETED
    a_sweep_later(group)
    assert topics(group) == [TOPIC_ID]
    assert origins_of(Described(group), "billing", "dlq") == before


class Described:
    """Answers as an Admin that describes this group."""

    def __init__(self, group: GroupDriver) -> None:
        self.group = group

    def describe_groups(self, group_ids: list[str]) -> dict[str, GroupDescription]:
        return {"billing": describe_group(self.group.group)}
