"""The format version in front of the values of our own records: two bytes, as in Kafka's records (types 0 and 1).

Rule: the version covers the value and the key of a record, and everything that replay makes of them. The owner record
(type 102) has the version as well, so that a group's newest owner record tells whether this version of sharegroup may
touch the group."""

from __future__ import annotations

from coordinator.core.record_codec import UnreadableRecord
from coordinator.protocol.errors import GroupStateTooNew, GroupStateTooOld
from coordinator.protocol.format_versions import STATE_RECORDS, STATE_RECORDS_READ, UnknownFormat, check_version
from coordinator.state_log.primitives import INT16, number

_VERSION = number(INT16, STATE_RECORDS)
_READ = tuple(number(INT16, version) for version in STATE_RECORDS_READ)


def versioned(content: bytes) -> bytes:
    """The value of a record of ours: the format version, then ``content``."""
    return _VERSION + content


def is_ours(value: bytes) -> bool:
    """Whether this version of sharegroup reads the value's format."""
    return value.startswith(_READ)


def has_content(value: bytes, content: bytes) -> bool:
    """Whether the value holds this content, in a format that this version of sharegroup reads. A value of an older
    version differs only in its first bytes."""
    return is_ours(value) and value[INT16.size :] == content


def content_of(value: bytes) -> bytes:
    """The content after the format version. Raises UnknownFormat if there is none, or one that is not read here."""
    if not value.startswith(_READ):
        check_version(INT16.unpack_from(value)[0] if len(value) >= INT16.size else None, STATE_RECORDS)
    return value[INT16.size :]


def group_content_of(value: bytes, group_id: str) -> bytes:
    """The content after the format version. ``group_id``: the group whose record it is, for errors.

    Raises:
        GroupStateTooNew: a newer version of sharegroup wrote the record.
        GroupStateTooOld: an older version wrote the record, or one from before there were format versions.
        UnreadableRecord: the value is shorter than a version."""
    if len(value) < INT16.size:
        raise UnreadableRecord(group_id=group_id, reason="the value of a record is shorter than its format version")
    try:
        return content_of(value)
    except UnknownFormat as unknown:
        error = GroupStateTooNew if unknown.is_newer else GroupStateTooOld
        raise error(group_id=group_id, found=unknown.found, known=unknown.known) from None
