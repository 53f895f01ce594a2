"""The version numbers of all formats that sharegroup writes for other processes, or for later ones, to read.

Rule: each number is written with the data that it describes, and checked before any of the data is used. If the number
is newer, or too old, or missing, the data is refused with a named error, and nothing is changed. A number must rise
when a reader of the number before would misread, or could not read, the new data. docs/adr/0023-format-versions.md has
the reasons, and tests/unit/protocol/formats.txt the fields that each number describes."""

from __future__ import annotations

from collections.abc import Container

PROTOCOL = 7
"""Version of requests, replies, Health and the endpoint file. Both sides check it: the client asks for Health, and each
request has the client's number in the header ``PROTOCOL_HEADER``."""

PROTOCOL_HEADER = "sharegroup-protocol"
"""The gRPC header of each request, with the client's protocol version as decimal text."""

REQUEST_ID_HEADER = "sharegroup-request"
"""The gRPC header with the id of a request, the same for all its tries."""

SQLITE_SCHEMA = 8
"""Version of an SQLite state file, its table and its records: the file's ``user_version``."""

SQLITE_SCHEMAS_READ = range(3, SQLITE_SCHEMA + 1)
"""Versions of SQLite state files that this version reads. An older file first gets SQLITE_SCHEMA."""

STATE_RECORDS = 7
"""Version of sharegroup's own records in the state topic: the first two bytes of each value, as in Kafka's records."""

STATE_RECORDS_READ = range(2, STATE_RECORDS + 1)
"""Versions of these records that this version reads. It writes only STATE_RECORDS."""

SPARK_OFFSET = 1
"""Version of the offsets that the source gives to Spark: the field ``version``."""

ARCHIVE = 2
"""Version of the JSON files in an archive of rejected rows (journals, and notes of compactions): its ``version``."""

ARCHIVES_READ = range(1, ARCHIVE + 1)
"""Versions of these files that this version reads. The journals of version 1 belong to batches of an older commit."""

HIGHEST = 1_000
"""A higher number is no format version: the data was written before there were versions, or by another program."""


class UnknownFormat(Exception):
    """Data has a format version that this version of sharegroup does not read. Users never see this exception: each
    reader turns it into a named error that names the data and says what to do."""

    def __init__(self, found: object, known: int) -> None:
        has_version = type(found) is int and 0 < found <= HIGHEST
        self.found = f"format version {found}" if has_version else "no format version"
        self.known = known
        self.is_newer = type(found) is int and known < found <= HIGHEST
        super().__init__(f"it has {self.found}, and this version of sharegroup reads format version {known}")


def check_version(found: object, known: int, read: Container[int] = ()) -> None:
    """Check that ``found`` is ``known``, which this version of sharegroup writes, or one of ``read``. Raises
    UnknownFormat: ``found`` is another number, or no number."""
    if type(found) is not int or (found != known and found not in read):
        raise UnknownFormat(found, known)
