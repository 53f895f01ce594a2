"""The version numbers of everything that sharegroup writes for another process, or for a later one, to read.

Rule: each number is written beside what it describes, and checked before anything of it is used. A newer number, an
older one that this version does not read, and a missing one are each refused with a named error; nothing is changed
then. A number rises when a reader of the number before would misread, or could not read, what is written under the new
one. docs/adr/0023-format-versions.md has the reasons; tests/unit/protocol/formats.txt has
the fields that each number describes.
"""

from __future__ import annotations

from collections.abc import Container

PROTOCOL = 5
"""Version of requests and replies, of Health and of the endpoint file. Both sides check it: the client asks for Health,
and each request carries the client's number in the header ``PROTOCOL_HEADER``."""

PROTOCOL_HEADER = "sharegroup-protocol"
"""The gRPC header of each request, with the client's protocol version as decimal text."""

REQUEST_ID_HEADER = "sharegroup-request"
"""The gRPC header with the id of a request, the same for all its tries."""

SQLITE_SCHEMA = 5
"""Version of an SQLite state file, its table and its records: the file's ``user_version``."""

SQLITE_SCHEMAS_READ = range(3, SQLITE_SCHEMA + 1)
"""Versions of SQLite state files that this version reads. A file of an older one gets SQLITE_SCHEMA when a coordinator
opens it, before anything else is written."""

STATE_RECORDS = 4
"""Version of our own records in the state topic: the first two bytes of each value, as in Kafka's records."""

STATE_RECORDS_READ = range(2, STATE_RECORDS + 1)
"""Versions of our own records that this version reads. It writes STATE_RECORDS only."""

SPARK_OFFSET = 1
"""Version of the offsets that the source gives to Spark: the field ``version``."""

ARCHIVE = 2
"""Version of the JSON files in an archive of rejected rows (journals, and notes of compactions): the field
``version``."""

ARCHIVES_READ = range(1, ARCHIVE + 1)
"""Versions of these files that this version reads. The journals of version 1 belong to batches of an older commit."""

HIGHEST = 1_000
"""A number above this one is no format version: the data is older than versions, or another program's."""


class UnknownFormat(Exception):
    """Something has a format version that this version of sharegroup does not read. It never reaches a user: each
    reader raises a named error instead, which names the data and says what to do."""

    def __init__(self, found: object, known: int) -> None:
        has_version = type(found) is int and 0 < found <= HIGHEST
        self.found = f"format version {found}" if has_version else "no format version"
        self.known = known
        self.is_newer = type(found) is int and known < found <= HIGHEST
        super().__init__(f"it has {self.found}, and this version of sharegroup reads format version {known}")


def check_version(found: object, known: int, read: Container[int] = ()) -> None:
    """Does nothing if ``found`` is the version that this version of sharegroup writes, or one of those that it reads.

    Raises:
        UnknownFormat: ``found`` is another number, or none.
    """
    if type(found) is not int or (found != known and found not in read):
        raise UnknownFormat(found, known)
