"""What groups need of a state partition: from the newest snapshot of each on, or from its first record."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.core.records import UnreadableRecord
from coordinator.state_log.record_keys import (
    GroupOwnerKey,
    GroupRecordKey,
    GroupSnapshotKey,
    ShareUpdateKey,
    encode_key,
)
from coordinator.state_log.retention import JUST_TAKEN, Needed
from tests.support.state_records import TOPIC_ID


def record(group_id="billing"):
    return encode_key(GroupRecordKey(group_id, 0))


def snapshot(group_id="billing"):
    return encode_key(GroupSnapshotKey(group_id, 7))


def needed(*keys):
    found = Needed()
    for offset, key in keys:
        found.add(key, offset)
    return found


def test_of_an_empty_partition_nothing_is_needed():
    found = needed()
    assert (found.lowest(), found.read_to, found.first_groups(100)) == (0, 0, frozenset())


def test_a_group_is_needed_from_its_first_record_on_whatever_that_is():
    for key in (record(), encode_key(GroupOwnerKey("billing")), encode_key(ShareUpdateKey("billing", TOPIC_ID, 0))):
        assert needed((3, key), (4, record())).lowest() == 3


def test_a_group_is_needed_from_its_newest_snapshot_on():
    assert needed((0, record()), (5, snapshot()), (6, record()), (9, snapshot()), (10, record())).lowest() == 9


def owned(group_id="billing"):
    return encode_key(GroupOwnerKey(group_id))


def test_who_took_a_group_that_was_never_made_is_needed_for_a_while_only():
    found = needed((0, owned("refused")), (1, record()))
    assert found.lowest() == 0
    found.add(snapshot(), JUST_TAKEN)
    assert (found.lowest(), found.first_groups(1)) == (JUST_TAKEN, frozenset())


def test_who_took_a_group_is_needed_as_long_as_its_first_record():
    found = needed((0, owned()), (1, owned()), (2, record()), (3, record("shipping")), (2 * JUST_TAKEN, record("x")))
    assert found.lowest() == 1
    found.add(owned(), 2 * JUST_TAKEN + 1)
    assert found.lowest() == 1
    found.add(snapshot(), 2 * JUST_TAKEN + 2)
    assert found.lowest() == 3


def test_the_group_that_is_needed_longest_decides():
    found = needed((0, record("a")), (1, record("b")), (5, snapshot("a")), (6, record("a")))
    assert found.lowest() == 1
    assert found.first_groups(1) == frozenset()
    assert found.first_groups(2) == {"b"}
    assert found.first_groups(6) == {"a", "b"}
    found.add(snapshot("b"), 8)
    assert found.lowest() == 5


def test_records_of_types_that_a_later_version_writes_are_needed_too():
    assert needed((2, b"\x00\x70" + record("later")[2:]), (4, snapshot("billing"))).lowest() == 2


@pytest.mark.parametrize("key", [None, b"", b"\x00", b"\x00\x64\xff"])
def test_one_that_cannot_be_read_is_needed_and_all_behind_it(key):
    found = needed((0, record()), (3, snapshot()))
    with pytest.raises(UnreadableRecord):
        found.add(key, 4)
    assert (found.lowest(), found.read_to) == (3, 4)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=30))
def test_nothing_below_the_lowest_is_what_any_group_loads(writes):
    found, first = Needed(), {}
    for offset, (group_id, is_snapshot) in enumerate(writes):
        found.add(snapshot(group_id) if is_snapshot else record(group_id), offset)
        if is_snapshot or group_id not in first:
            first[group_id] = offset
    assert found.read_to == len(writes)
    assert found.lowest() == min(first.values(), default=len(writes))
