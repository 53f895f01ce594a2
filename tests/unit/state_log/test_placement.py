"""A group's state lies where Kafka's rule for group ids says. The numbers are a JVM's, with Kafka 4.3.1's own
``Utils.abs``: ``String.hashCode()``, and the partition of 50 and of 7."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.protocol.format_versions import STATE_RECORDS, UnknownFormat
from coordinator.state_log.placement import (
    PLACEMENT_KEY,
    decode_placement,
    encode_placement,
    java_hash_code,
    state_partition_of,
)
from coordinator.state_log.record_keys import group_of
from coordinator.state_log.value_version import versioned

FROM_THE_JVM = [
    ("", 0, 0, 0),
    ("g", 103, 3, 5),
    ("billing", -109829509, 9, 6),
    ("orders", -1008770331, 31, 2),
    ("sharegroup", -1780631040, 40, 6),
    ("a-rather-long-share-group-name-0123456789", 69063659, 9, 0),
    ("größe", 98762257, 7, 6),
    ("группа", 1749938458, 8, 2),
    ("😀", 1772899, 49, 2),  # two code units in Java
    ("x𝄞y", 58519255, 5, 4),
    ("polygenelubricants", -2147483648, 0, 0),  # the int that has no absolute value
]


@pytest.mark.parametrize(("group_id", "code", "of_50", "of_7"), FROM_THE_JVM)
def test_a_group_has_the_state_partition_that_kafka_computes(group_id, code, of_50, of_7):
    assert java_hash_code(group_id) == code
    assert state_partition_of(group_id, 50) == of_50
    assert state_partition_of(group_id, 7) == of_7


@given(st.text(alphabet=st.characters()), st.integers(1, 10_000))
def test_every_group_has_a_partition(group_id, partitions):
    assert 0 <= state_partition_of(group_id, partitions) < partitions
    assert state_partition_of(group_id, 1) == 0


def test_a_placement_record_is_read_back_and_no_other_record_is() -> None:
    assert decode_placement(PLACEMENT_KEY, encode_placement(50)) == 50
    for key, value in ((None, encode_placement(50)), (b"x", encode_placement(50)), (PLACEMENT_KEY, None)):
        assert decode_placement(key, value) is None
    assert decode_placement(PLACEMENT_KEY, versioned(b"fifty")) is None
    assert group_of(PLACEMENT_KEY) is None


NEWER = STATE_RECORDS + 1


@pytest.mark.parametrize(
    ("value", "version", "is_newer"),
    [
        (NEWER.to_bytes(2, "big") + encode_placement(50)[2:], f"format version {NEWER}", True),
        (encode_placement(50)[2:], "no format version", False),
        (b"fifty", "no format version", False),
        (b"", "no format version", False),
    ],
)
def test_a_placement_of_another_format_version_is_refused(value, version, is_newer) -> None:
    with pytest.raises(UnknownFormat, match=f"it has {version}, and this version of sharegroup reads") as refused:
        decode_placement(PLACEMENT_KEY, value)
    assert refused.value.is_newer == is_newer
