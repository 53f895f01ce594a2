"""A group's log: whoever reads it back has the group, and what Kafka's tools read beside it says the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.core.commands import (
    ArchiveDeletedTopics,
    CreateGroup,
    InitializePartitions,
    PartitionStart,
    TopicWithId,
)
from coordinator.core.commands.forget import SWEEP_MS
from coordinator.core.decide import decide
from coordinator.core.log_records import RunsChanged
from coordinator.core.looks.snapshot import snapshot_of
from coordinator.core.record_codec import MOST_BYTES, decode_record, encode_records
from coordinator.core.record_state import RecordState
from coordinator.core.replay import replay
from coordinator.core.runs import Run
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.errors import GroupStateTooNew, GroupStateTooOld, ShareGroupError
from coordinator.protocol.format_versions import STATE_RECORDS
from coordinator.protocol.messages import Acknowledge, LeaveGroup, PartitionAcks
from coordinator.protocol.values import AcknowledgeType, SharePartitionKey
from coordinator.state_log import partition_log
from coordinator.state_log.group_log import Entry, GroupLog
from coordinator.state_log.owner_record import Owner, encode_owner
from coordinator.state_log.record_keys import (
    GroupOwnerKey,
    GroupRecordKey,
    GroupSnapshotKey,
    GroupSnapshotPartKey,
    ShareSnapshotKey,
    ShareUpdateKey,
    decode_key,
    encode_key,
)
from coordinator.state_log.value_version import versioned
from tests.kip932.consumers import ACCEPT, REJECT, RELEASE, batch
from tests.support.group_steps import play_step, steps
from tests.support.kept_group import GROUP, OTHERS, Kept, kinds, mixed, unreadable
from tests.support.state_records import TOPIC_ID

# --- read back


@settings(max_examples=60, deadline=None)
@given(
    st.lists(steps, min_size=5, max_size=30),
    st.sampled_from([2, 3, 5]),
    st.sampled_from([0, 1, 3, 500]),
    st.sets(st.integers(0, 29), max_size=3),
    st.booleans(),
)
def test_the_log_and_kafkas_records_rebuild_the_group_after_any_commands(
    script: list[tuple[str, int, int, int]], tries: int, updates_per_snapshot: int, snapshots: set[int], prunes: bool
) -> None:
    group = Kept(
        updates_per_snapshot=updates_per_snapshot,
        end=16,
        members=2,
        share_delivery_count_limit=tries,
        share_isolation_base=5,
    )
    newest: dict[str, str] = {}
    group.join("q1")
    group.join("q2")
    for at, (what, who, first, size) in enumerate(script):
        if at in snapshots:
            group.snapshot()
            if prunes:
                group.prune()
        try:
            play_step(group, newest, what, who, first, size)  # type: ignore[arg-type]
        except ShareGroupError:
            continue
    group.check_log()


def test_records_before_the_groups_snapshot_are_not_needed() -> None:
    group = mixed()
    group.snapshot()
    group.prune()
    assert kinds(group)[:2] == ["GroupSnapshotKey", "GroupRecordKey"]
    group.check_log()
    group.acknowledge(ACCEPT, 0, 1)
    group.fetch("c2", 3)
    group.check_log()


def test_a_snapshot_in_parts_counts_from_its_mark_on() -> None:
    group = mixed()
    for part in group.parts_of_a_snapshot()[:-1]:  # the owner died in the midst of it, or a part failed
        group.write([part])
        group.check_log()
    group.acknowledge(ACCEPT, 0, 1)
    group.snapshot_in_parts()
    group.prune()
    group.check_log()
    group.fetch("c2", 3)
    group.snapshot_in_parts()
    group.check_log()
    group.snapshot()
    group.prune()
    group.check_log()


def test_a_snapshot_whose_first_parts_are_deleted_is_ignored() -> None:
    group = mixed()
    group.snapshot_in_parts()
    first = group.live.needed_offset
    group.snapshot_in_parts()
    group.written = [entry for entry in group.written if entry[0] > (first or 0) + 2]
    group.check_log()
    group.written = [entry for entry in group.written if entry[0] > (group.live.needed_offset or 0)]
    unreadable(group, "is gone, and no snapshot takes its place")


def test_a_snapshot_replaces_the_earlier_snapshot_and_sequence_numbers_continue() -> None:
    group = mixed()
    group.snapshot()
    before = group.live.next_sequence
    group.acknowledge(ACCEPT, 0, 1)
    group.snapshot()
    own = [key.sequence for _, data, _ in group.written if isinstance(key := decode_key(data or b""), GroupRecordKey)]
    assert own == [*range(len(own))]
    assert before is not None and group.live.next_sequence == len(own) > before
    group.prune()
    group.check_log()


def test_any_records_of_other_groups_are_skipped() -> None:
    group = mixed()
    unknown = b"\x00\x67" + encode_key(GroupRecordKey(OTHERS, 7))[2:]
    for key in (encode_key(GroupRecordKey(OTHERS, 99)), encode_key(GroupSnapshotKey(OTHERS, 3)), unknown):
        group.put((key, b"not ours"), (key, None))
    group.put((encode_key(ShareSnapshotKey(OTHERS, TOPIC_ID, 0)), None))
    group.put((encode_key(GroupOwnerKey(OTHERS)), b"torn"))
    group.acknowledge(ACCEPT, 0, 1)
    group.check_log()


def test_records_of_no_group_are_skipped_and_counted() -> None:
    group = mixed()
    foreign = [(None, b"hello"), (b"", b"x"), (b"hello", b"x"), (b"\0\x64\xff", None), (bytes(8), b"x"), (None, None)]
    first = group.end
    group.put(*foreign)
    group.acknowledge(ACCEPT, 0, 1)
    group.check_log()
    found = group.load()[1].foreign
    assert (found.count, found.first, found.last) == (len(foreign), first, first + len(foreign) - 1)
    group.snapshot()
    group.check_log()


def test_the_group_begins_at_its_first_record_or_its_newest_snapshot() -> None:
    log = GroupLog(GROUP, updates_per_snapshot=500)
    assert log.read(encode_key(GroupOwnerKey(GROUP)), OWNER, 3) is None
    assert (log.next_sequence, log.needed_offset) == (None, None)
    assert log.read(encode_key(GroupRecordKey(GROUP, 0)), versioned(b"a"), 7) == Entry(0, b"a")
    assert log.read(encode_key(GroupRecordKey(GROUP, 1)), versioned(b"b"), 9) == Entry(1, b"b")
    assert (log.next_sequence, log.needed_offset) == (2, 3), "its owner belongs to it"
    assert log.read(encode_key(GroupSnapshotKey(GROUP, 2)), versioned(b""), 12) == Entry(2, None)
    assert (log.next_sequence, log.needed_offset) == (2, 12)
    assert log.read(encode_key(GroupRecordKey(GROUP, 2)), versioned(b"s"), 13) == Entry(2, b"s")
    assert (log.next_sequence, log.needed_offset) == (3, 12)


# --- who owns it


ME = Owner(installation_id="here", process="p", host="host", pid=1, endpoint="c1:9394")
OWNER = encode_owner(ME)


def test_a_look_without_ownership_knows_the_newest_owner() -> None:
    newer = encode_owner(Owner(installation_id="there", process="q", host="host2", pid=2))
    log, looking = (GroupLog(GROUP, updates_per_snapshot=500) for _ in range(2))
    key = encode_key(GroupOwnerKey(GROUP))
    for at, value in enumerate((OWNER, newer)):
        assert log.read(key, value, at) is None
        assert looking.read_owner(key, value, 0)
    assert log.owner == looking.owner and log.owner is not None and log.owner.installation_id == "there"
    assert str(ME) == "the coordinator on host at c1:9394 (process 1)"
    assert looking.read_owner(encode_key(GroupRecordKey(GROUP, 5)), b"x", 1)
    assert not looking.read_owner(encode_key(GroupOwnerKey(OTHERS)), OWNER, 2)
    assert not looking.read_owner(None, b"x", 3)
    assert looking.owner == log.owner


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "shorter than its format version"),
        (b"", "shorter than its format version"),
        (b"\0", "shorter than its format version"),
        (versioned(b"\xc1"), "its owner"),
    ],
)
def test_an_owner_that_is_torn_is_unreadable(value: bytes | None, reason: str) -> None:
    group = mixed()
    group.put((encode_key(GroupOwnerKey(GROUP)), value))
    unreadable(group, reason)


# --- format versions


OF_EACH_TYPE = [
    (encode_key(GroupOwnerKey(GROUP)), encode_owner(ME)),
    (encode_key(GroupRecordKey(GROUP, 0)), versioned(b"record")),
    (encode_key(GroupSnapshotKey(GROUP, 9)), versioned(b"")),
    (encode_key(GroupSnapshotKey(GROUP, 9)), versioned(b"\0\0\0\1")),
    (encode_key(GroupSnapshotPartKey(GROUP, 9, 0)), versioned(b"record")),
]


@pytest.mark.parametrize(("key", "value"), OF_EACH_TYPE)
def test_every_record_of_ours_has_our_format_version_in_front(key: bytes, value: bytes) -> None:
    assert value[:2] == STATE_RECORDS.to_bytes(2, "big")
    log = GroupLog(GROUP, updates_per_snapshot=500)
    log.read(key, value, 0)


@pytest.mark.parametrize(("key", "value"), OF_EACH_TYPE)
@pytest.mark.parametrize("by", ["read", "look"])
def test_a_record_of_a_newer_format_version_is_refused_by_name(key: bytes, value: bytes, by: str) -> None:
    newer = (STATE_RECORDS + 1).to_bytes(2, "big") + b"what only a newer version knows"
    log = GroupLog(GROUP, updates_per_snapshot=500)
    if by == "look" and key != encode_key(GroupOwnerKey(GROUP)):
        assert log.read_owner(key, newer, 0), "the owner's record alone is looked at"
        return
    numbers = f"has format version {STATE_RECORDS + 1}.*reads format version {STATE_RECORDS}"
    with pytest.raises(GroupStateTooNew, match=f"group billing .*{numbers}.*newer"):
        log.read(key, newer, 0) if by == "read" else log.read_owner(key, newer, 0)


@pytest.mark.parametrize(("key", "value"), OF_EACH_TYPE)
def test_a_record_of_the_format_version_before_is_read(key: bytes, value: bytes) -> None:
    logs = [GroupLog(GROUP, updates_per_snapshot=500) for _ in range(2)]
    before = (STATE_RECORDS - 1).to_bytes(2, "big") + value[2:]
    assert logs[0].read(key, before, 0) == logs[1].read(key, value, 0)


@pytest.mark.parametrize(("key", "value"), OF_EACH_TYPE)
def test_a_record_without_a_format_version_is_refused_by_name(key: bytes, value: bytes) -> None:
    for content in (b"\x82\xa4type", b"\0\0\0\1"):
        with pytest.raises(GroupStateTooOld, match=r"group billing .*has no format version.*new checkpointLocation"):
            GroupLog(GROUP, updates_per_snapshot=500).read(key, content, 0)


# --- what is missing, or torn


def test_leftover_records_from_before_a_snapshot_are_skipped() -> None:
    group = mixed()
    first = group.live.needed_offset
    group.snapshot()
    group.written = [entry for entry in group.written if entry[0] > (first or 0) + 2]
    group.check_log()


def test_deleted_first_records_are_noticed_until_a_snapshot_follows() -> None:
    group = mixed()
    group.written = group.written[1:]
    unreadable(group, "what came before record 1 is gone")
    group.snapshot()
    group.check_log()


@pytest.mark.parametrize("back", [1, 2, 5])
def test_a_missing_record_is_noticed_at_the_next_record(back: int) -> None:
    group = mixed()
    own = [at for at, (_, key, _) in enumerate(group.written) if isinstance(decode_key(key or b""), GroupRecordKey)]
    del group.written[own[-1 - back]]
    unreadable(group, f"record {len(own) - back} comes where {len(own) - back - 1} should")


def test_a_record_that_comes_twice_is_refused() -> None:
    group = mixed()
    last = (group.live.next_sequence or 0) - 1
    group.put((encode_key(GroupRecordKey(GROUP, last)), versioned(b"again")))
    unreadable(group, f"record {last} comes where {last + 1} should")


def test_a_record_of_the_snapshot_that_is_missing_is_noticed() -> None:
    group = mixed()
    group.snapshot()
    group.prune()
    del group.written[1]
    unreadable(group, "comes where")


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (encode_key(GroupRecordKey(GROUP, 4))[:-1], b"x", "another length"),
        (encode_key(GroupRecordKey(GROUP, 4)) + b"\x00", b"x", "another length"),
        (encode_key(GroupSnapshotKey(GROUP, 4))[:-1], b"", ""),
        (encode_key(ShareUpdateKey(GROUP, TOPIC_ID, 0))[:-1], b"", ""),
        (encode_key(ShareUpdateKey(GROUP, TOPIC_ID, 0)), b"\x00\x00", ""),
        (encode_key(ShareSnapshotKey(GROUP, TOPIC_ID, 0)), b"\x00\x09" + bytes(40), "of version 9"),
        (b"\x00\x67" + encode_key(GroupOwnerKey(GROUP))[2:], b"x", "its key is of type 103"),
    ],
)
def test_a_torn_or_newer_record_stops_the_load(key: bytes, value: bytes, reason: str) -> None:
    group = mixed()
    group.put((key, value))
    unreadable(group, reason)


def test_a_record_without_a_value_stops_the_load() -> None:
    group = mixed()
    group.put((encode_key(GroupRecordKey(GROUP, group.live.next_sequence or 0)), None))
    unreadable(group, "has no value")


# --- Kafka's records


def test_the_changes_of_one_round_to_a_partition_are_one_update() -> None:
    group = Kept(end=20, members=2)
    group.fetch("c1", 10)
    twin = group.load()[0]
    twin.loaded(group.now_ms)
    records = []
    for kind, at in ((RELEASE, 0), (ACCEPT, 3), (REJECT, 5)):
        decision = decide(twin, acknowledgement(group, kind, at), group.now_ms)
        for record in decision.records:
            replay(twin, record)
        records += decision.records
    before = len(group.written)
    group.append(records)
    own = [name for name in kinds(group)[before:] if name != "GroupRecordKey"]
    assert own == ["ShareUpdateKey"]


def acknowledgement(group: Kept, kind: AcknowledgeType, at: int) -> Any:
    acks = PartitionAcks(topic_id=TOPIC_ID, partition=0, batches=(batch(at, at, kind),))
    return Acknowledge(group_id=GROUP, member_id="c1", member_epoch=group.epochs["c1"], partitions=(acks,))


def test_an_acquisition_writes_no_record_of_kafkas_types() -> None:
    group = Kept(end=20)
    before = len(group.written)
    group.fetch("c1", 10)
    assert set(kinds(group)[before:]) == {"GroupRecordKey"}


def test_a_forgotten_topic_ends_in_kafkas_records() -> None:
    """Else Kafka's tools show it for ever, and its records are read at each load."""
    group = Kept(end=20)
    group.fetch("c1", 10)
    group.run(acknowledgement(group, ACCEPT, 0))
    group.run(LeaveGroup(group_id=GROUP, member_id="c1", member_epoch=group.epochs["c1"]))
    group.run(ArchiveDeletedTopics(topic_ids=(TOPIC_ID,)))
    group.pass_time(2 * SWEEP_MS)
    assert not group.group.partitions
    tombstones = [decode_key(key) for _, key, value in group.written if key is not None and value is None]
    assert tombstones == [ShareSnapshotKey(GROUP, TOPIC_ID, 0)]
    assert SharePartitionKey(TOPIC_ID, 0) not in group.live.partitions
    loaded = group.load()[0]
    assert loaded.totals() == group.group.totals()


def many_runs(count: int) -> tuple[tuple[int, int, Run], ...]:
    """``count`` records, every second one, each a run of its own."""
    run = Run(RecordState.ACKNOWLEDGED, 1)
    return tuple((at, at, run) for at in range(1, 2 * count, 2))


def test_a_record_of_very_many_runs_becomes_several_that_load_the_same() -> None:
    changed = RunsChanged(topic_id=TOPIC_ID, partition=0, runs=many_runs(50_000))
    live, loaded = begun(), begun()
    replay(live, changed)
    log = GroupLog(GROUP, updates_per_snapshot=500)
    written = log.keyed(encode_records([changed]), 0)
    assert len(written) > 1 and all(len(data) < MOST_BYTES + 1_000 for _, data in written)
    for offset, (key, data) in enumerate(written):
        entry = log.read(key, data, offset)
        assert entry is not None and entry.data is not None
        replay(loaded, decode_record(entry.data))
    assert list(snapshot_of(loaded)) == list(snapshot_of(live))
    assert [type(decode_key(key)) for key, _ in log.state_records(live, [changed], 0)] == [ShareSnapshotKey]


def test_a_large_snapshot_is_one_snapshot_and_updates_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_log, "MOST_BATCHES", 450)
    group = Kept(end=200_000, members=1)
    group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=many_runs(1_200))])
    group.snapshot()
    group.prune()
    shown = [(name, len(v or b"")) for name, (_, _, v) in zip(kinds(group), group.written, strict=True)]
    shown = [(name, size) for name, size in shown if name.startswith("Share")]
    assert [name for name, _ in shown] == ["ShareSnapshotKey", "ShareUpdateKey", "ShareUpdateKey"]
    assert all(size < 450 * 21 for _, size in shown)
    group.check_log()


def begun() -> ShareGroup:
    """A group with a share partition, and nothing in it."""
    group = ShareGroup(GROUP)
    topics = (TopicWithId(topic="orders", topic_id=TOPIC_ID),)
    starts = (PartitionStart(topic_id=TOPIC_ID, partition=0, start_offset=0),)
    for command in (CreateGroup(incarnation="i", topic_ids=True), InitializePartitions(topics=topics, starts=starts)):
        for record in decide(group, command, 0).records:
            replay(group, record)
    return group
