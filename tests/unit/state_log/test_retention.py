"""Groups need a state partition from their newest snapshot on, or from their first record."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.protocol.format_versions import STATE_RECORDS, STATE_RECORDS_READ
from coordinator.state_log.placement import PLACEMENT_KEY
from coordinator.state_log.record_keys import (
    GroupOwnerKey,
    GroupRecordKey,
    GroupSnapshotKey,
    GroupSnapshotPartKey,
    ShareSnapshotKey,
    ShareUpdateKey,
    encode_key,
    group_of,
)
from coordinator.state_log.retention import JUST_TAKEN, Retention
from coordinator.state_log.value_version import versioned
from tests.support.state_records import TOPIC_ID


def record(group_id="billing"):
    return encode_key(GroupRecordKey(group_id, 0))


def snapshot(group_id="billing"):
    return encode_key(GroupSnapshotKey(group_id, 7))


VALUE = versioned(b"x")
MARK = versioned(b"")
NEWER = (STATE_RECORDS + 1).to_bytes(2, "big")


def needed(*keys):
    found = Retention()
    for offset, key in keys:
        found.add(key, VALUE, offset)
    return found


def test_of_an_empty_partition_nothing_is_needed():
    found = needed()
    assert (found.lowest(), found.read_to, found.first_groups(100)) == (0, 0, frozenset())


def test_a_group_is_needed_from_its_first_record_of_any_type():
    for key in (record(), encode_key(GroupOwnerKey("billing"))):
        assert needed((3, key), (4, record())).lowest() == 3


def owned(group_id="billing"):
    return encode_key(GroupOwnerKey(group_id))


def test_the_owner_of_a_group_never_created_is_needed_briefly():
    found = needed((0, owned("refused")), (1, record()))
    assert found.lowest() == 0
    found.add(snapshot(), VALUE, JUST_TAKEN)
    assert (found.lowest(), found.first_groups(1)) == (JUST_TAKEN, frozenset())


def test_a_deleted_group_is_needed_briefly():
    found = needed((0, record()), (1, owned()))
    found.add(snapshot(), MARK, 2)
    found.add(owned(), VALUE, 3)
    assert (found.lowest(), found.first_groups(9)) == (2, {"billing"})
    found.add(record("shipping"), VALUE, 2 * JUST_TAKEN)
    assert (found.lowest(), found.first_groups(9)) == (2 * JUST_TAKEN, frozenset())
    found.add(owned(), VALUE, 2 * JUST_TAKEN + 1)
    assert found.first_groups(9) == {"billing"}, "a coordinator has taken it, and may create it again"


@pytest.mark.parametrize("version", STATE_RECORDS_READ)
def test_a_group_that_an_older_version_deleted_does_not_keep_its_log(version):
    found = needed((0, record()), (1, encode_key(GroupSnapshotPartKey("billing", 7, 0))))
    found.add(snapshot(), version.to_bytes(2, "big"), 2)
    found.add(record("shipping"), VALUE, 2 * JUST_TAKEN)
    assert (found.lowest(), found.first_groups(9)) == (2 * JUST_TAKEN, frozenset())


def test_an_owner_record_is_needed_as_long_as_the_groups_first_record():
    found = needed((0, owned()), (1, owned()), (2, record()), (3, record("shipping")), (2 * JUST_TAKEN, record("x")))
    assert found.lowest() == 1
    found.add(owned(), VALUE, 2 * JUST_TAKEN + 1)
    assert found.lowest() == 1
    found.add(snapshot(), VALUE, 2 * JUST_TAKEN + 2)
    assert found.lowest() == 3


def test_the_group_that_is_needed_longest_decides():
    found = needed((0, record("a")), (1, record("b")), (5, snapshot("a")), (6, record("a")))
    assert found.lowest() == 1
    assert found.first_groups(1) == frozenset()
    assert found.first_groups(2) == {"b"}
    assert found.first_groups(6) == {"a", "b"}
    found.add(snapshot("b"), VALUE, 8)
    assert found.lowest() == 5


def test_records_of_types_that_a_later_version_writes_are_needed_too():
    assert needed((2, b"\x00\x70" + record("later")[2:]), (4, snapshot("billing"))).lowest() == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((None, b"hello"), (b"", b"x"), (b"\x00", b"x"), (b"\x00\x64\xff", b"x"), (b"hello", b"x"), (bytes(8), b"x")),
        *((None, None), (record("nobody"), None), (encode_key(ShareSnapshotKey("nobody", TOPIC_ID, 0)), None)),
        *((encode_key(ShareUpdateKey("nobody", TOPIC_ID, 0)), b"x"),),
    ],
)
def test_records_of_no_group_hold_back_no_pruning_and_are_counted(key, value):
    found = needed((0, record()), (3, snapshot()))
    found.add(key, value, 4)
    assert (found.lowest(), found.read_to) == (3, 5)
    found.add(snapshot(), MARK, 5)
    assert (found.lowest(), found.first_groups(9)) == (5, {"billing"})
    assert found.foreign.count == (group_of(key) is None)


def test_a_marked_snapshot_is_needed_from_its_first_part_on():
    def part(index, sequence=7):
        return encode_key(GroupSnapshotPartKey("billing", sequence, index))

    found = needed((0, record()), (3, part(0)), (4, part(1)), (6, part(0)), (7, part(1)))
    assert found.lowest() == 0
    found.add(snapshot(), versioned(b"\x00\x00\x00\x02"), 9)
    assert found.lowest() == 6
    found.add(snapshot(), MARK, 12)
    assert found.lowest() == 12


@pytest.mark.parametrize("key", [snapshot(), encode_key(GroupSnapshotPartKey("billing", 7, 0)), owned()])
def test_a_record_of_another_format_version_keeps_its_group_from_pruning(key):
    """A newer owner of the group: this version can't know what it still needs."""
    for value in (NEWER, NEWER + b"newer", b"older", b""):
        found = needed((1, record()), (2, record("shipping")), (3, snapshot("shipping")))
        found.add(key, value, 4)
        found.add(record("shipping"), VALUE, 5 * JUST_TAKEN)
        assert found.lowest() == 1
    found = needed((2, snapshot("shipping")))
    found.add(owned(), NEWER + b"newer", 3)
    found.add(snapshot("shipping"), MARK, 5 * JUST_TAKEN)
    assert found.lowest() == 3


def test_the_placement_record_is_no_stray_record():
    found = needed((0, PLACEMENT_KEY), (1, record()), (5, PLACEMENT_KEY))
    assert (found.placement, found.lowest(), found.foreign.count) == (5, 1, 0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=30))
def test_no_group_loads_records_below_the_lowest_needed_offset(writes):
    found, first = Retention(), {}
    for offset, (group_id, is_snapshot) in enumerate(writes):
        found.add(snapshot(group_id) if is_snapshot else record(group_id), VALUE, offset)
        if is_snapshot or group_id not in first:
            first[group_id] = offset
    assert found.read_to == len(writes)
    assert found.lowest() == min(first.values(), default=len(writes))


def at_rest(groups, records=5):
    """A partition of groups at rest: of each its snapshot, and the marker of the transaction, which is not read."""
    found, offset = Retention(), 0
    for number in range(groups):
        group_id = f"dormant-{number}"
        for key in (snapshot(group_id), owned(group_id), *[record(group_id)] * records):
            found.add(key, VALUE, offset)
            offset += 1
        offset += 1
    return found


def test_what_groups_at_rest_need_is_not_there_to_free():
    found = at_rest(150)
    assert found.needed_count() == 150 * 7
    assert found.not_needed() == 149, "the markers between them"
    for at in range(200):
        found.add(record("dormant-0"), VALUE, 1_200 + at)
    assert found.not_needed() == 150, "an append is needed, too"
    found.add(snapshot("dormant-1"), VALUE, 1_400)
    assert found.not_needed() == 150 + 7


def test_a_snapshot_in_parts_counts_from_its_first_part():
    found = needed(
        (0, record()), *((1 + i, encode_key(GroupSnapshotPartKey("billing", 7, i))) for i in (0, 1)), (3, record())
    )
    found.add(snapshot(), versioned(b"\0\0\0\2"), 4)
    assert (found.lowest(), found.needed_count(), found.not_needed()) == (1, 4, 0)
