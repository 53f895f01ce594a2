"""Which groups exist after the records of a state partition, by their keys."""

import pytest

from coordinator.core.log_records import GroupDeleted
from coordinator.core.record_codec import encode_record
from coordinator.protocol.format_versions import STATE_RECORDS_READ
from coordinator.state_log.group_existence import GroupExistence
from coordinator.state_log.record_keys import GroupRecordKey, GroupSnapshotKey, encode_key


@pytest.mark.parametrize("version", STATE_RECORDS_READ)
@pytest.mark.parametrize(
    ("key", "content"),
    [
        (encode_key(GroupRecordKey("billing", 1)), encode_record(GroupDeleted())),
        (encode_key(GroupSnapshotKey("billing", 2)), b""),
    ],
    ids=["its deletion", "an empty snapshot"],
)
def test_a_group_that_this_or_an_older_version_deleted_does_not_exist(version, key, content):
    head = version.to_bytes(2, "big")
    found = GroupExistence()
    found.add(encode_key(GroupRecordKey("billing", 0)), head + b"created")
    assert found.groups == {"billing": None}
    found.add(key, head + content)
    assert found.groups == {}
