"""The state in an SQLite file: WAL, synchronous=FULL, one transaction for each append, and one owner at a time by a
file lock.

Each record is a row with a checksum, by group and sequence number. A file that this version can't read is not changed.
The lock may fail to keep a second owner out (its file was deleted; a network file system). Then the next append finds
the second owner's records and is refused, and the group is loaded again. An open file outlives its deletion, and a
second owner may then serve a new file of the same name. So each load and each append checks that the file was not
deleted or replaced."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from coordinator.core.log_records import GroupDeleted
from coordinator.core.looks.history import Logged
from coordinator.core.record_codec import encode_record
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.errors import (
    ShareGroupError,
    StateFileGone,
    StateRecordUnreadable,
    StateStoreInUse,
    StateStoreTooNew,
    StateStoreTooOld,
    StateStoreUnreadable,
    UnusableFile,
)
from coordinator.protocol.format_versions import SQLITE_SCHEMA, SQLITE_SCHEMAS_READ
from coordinator.service.process.disk_space import disk_full
from coordinator.service.stores.store import (
    Append,
    SoleOwner,
    StoredRecord,
    StoreFenced,
    StoreOutcomeUnknown,
    StoreRefused,
)

APPLICATION_ID = 0x73686772  # "shgr": tells our files from other SQLite files

PART_RECORDS = 500
"""A history reads the log in parts of this many records."""

_DELETED = encode_record(GroupDeleted())
_SCHEMA = """
CREATE TABLE record (
    group_id TEXT NOT NULL, sequence INTEGER NOT NULL, crc32 INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (group_id, sequence)
) WITHOUT ROWID
"""


class SqliteStore(SoleOwner):
    """A :class:`~coordinator.service.stores.store.Store` in one SQLite file."""

    def __init__(self, path: Path, *, lock_timeout_s: float = 0.0) -> None:
        """Takes ownership of the file, and creates the file if it is missing.

        Raises:
            UnusableFile: the path is a folder, or no file can be made there.
            StateStoreInUse: another process owns the file.
            StateStoreTooNew, StateStoreTooOld: another version of sharegroup wrote the file.
            StateStoreUnreadable: it is damaged, or not a file of sharegroup.
            DiskFull: its disk has no space left."""
        self.path = Path(os.path.realpath(path))
        self._check_place()
        # Not singleton, not thread-local: one process may have two owners, and any thread may close a store.
        self._lock = FileLock(f"{self.path}.lock", thread_local=False)
        try:
            self._acquire(lock_timeout_s)
            if not self.path.exists():
                self.path.touch(mode=0o600)
            self._connection = self._open(is_new=check_state_file(self.path))
            self._inodes = self._found()
        except BaseException as error:
            self._lock.release()
            if isinstance(error, OSError) and (full := disk_full(self.path, error)):
                raise full from error
            raise
        self._next_sequence: dict[str, int] = {}

    @property
    def name(self) -> str:
        return str(self.path)

    # --- taking ownership

    def _check_place(self) -> None:
        """Check that the file and its lock can be made there. Without this check an error would look as if another
        process had the lock. Raises UnusableFile if the file system refuses, or the path is a folder."""
        reason = "it is a folder; name a file in it" if self.path.is_dir() else ""
        try:
            if not reason:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with open(f"{self.path}.lock", "ab"):
                    pass
        except OSError as error:
            if full := disk_full(self.path, error):
                raise full from None
            reason = f"it can't be made ({error.strerror})"
        if reason:
            raise UnusableFile(key="share.state.store", path=f"sqlite:{self.path}", reason=reason)

    def _acquire(self, timeout_s: float) -> None:
        try:
            self._lock.acquire(timeout=timeout_s, poll_interval=0.05)
        except Timeout:
            raise StateStoreInUse(path=self.path, owner=owner_of(self.path)) from None
        # Written beside the lock file, since opening the lock file empties it.
        Path(f"{self.path}.owner").write_text(str(os.getpid()), encoding="ascii")

    def _open(self, *, is_new: bool) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript("BEGIN IMMEDIATE; COMMIT;")  # makes the write-ahead log's file
            if is_new:
                connection.executescript(
                    f"BEGIN; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SQLITE_SCHEMA};"
                    f"{_SCHEMA}; COMMIT;"
                )
            elif connection.execute("PRAGMA user_version").fetchone() != (SQLITE_SCHEMA,):
                connection.execute(f"PRAGMA user_version = {SQLITE_SCHEMA}")
        except sqlite3.Error as error:
            raise _unusable(self.path, error) from error
        return connection

    @property
    def is_gone(self) -> bool:
        """Whether the file, or its write-ahead log, was deleted or replaced. Any thread may call it."""
        return None in self._inodes or self._found() != self._inodes

    def _found(self) -> list[tuple[int, int] | None]:
        """Device and inode of the file and its write-ahead log, as their paths lead to them; None for a missing one."""
        return [_inode(path) for path in (self.path, Path(f"{self.path}-wal"))]

    def _check_found(self) -> None:
        """Check that the open file is still the one of its name. Raises StoreFenced if it was deleted or replaced."""
        if self.is_gone:
            raise StoreFenced(StateFileGone(path=self.path))

    # --- reading and appending

    def group_ids(self) -> list[str]:
        """The groups that have records in the file. Any thread may call it. Raises StateFileGone if the file was
        deleted or replaced."""
        if self.is_gone:
            raise StateFileGone(path=self.path)
        return groups_in_file(self.path)

    def load(self, group_id: str) -> Iterator[StoredRecord]:
        if self.is_gone:
            raise StateFileGone(path=self.path)
        self._next_sequence.pop(group_id, None)
        following = 0
        try:
            if self._connection.in_transaction:
                self._connection.rollback()
            for record in _records_of(self._connection, group_id, self.path):
                yield record
                following = record.sequence + 1
        except sqlite3.DatabaseError as error:
            raise StoreRefused(str(disk_full(self.path, error) or error)) from error
        self._next_sequence[group_id] = following

    def append(self, appends: Mapping[str, Append], now_ms: int) -> None:
        with self._transaction(appends):
            for group_id, each in appends.items():
                self._insert(group_id, self._next_after(group_id), each.data)

    def replace_with_snapshot(self, group: ShareGroup, data: Sequence[bytes], now_ms: int) -> None:
        with self._transaction([group.group_id]):
            # Looked up before the rows are deleted, since sequence numbers never repeat.
            first = self._next_after(group.group_id)
            self._connection.execute("DELETE FROM record WHERE group_id = ?", (group.group_id,))
            self._insert(group.group_id, first, data)

    def close(self) -> None:
        self._connection.close()
        self._lock.release()

    @contextlib.contextmanager
    def _transaction(self, group_ids: Iterable[str]) -> Iterator[None]:
        before = dict(self._next_sequence)
        self._check_found()
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
        except sqlite3.Error as error:
            self._roll_back(before)
            raise StoreRefused(str(disk_full(self.path, error) or f"{self.path}: {error}")) from error
        except BaseException:
            self._roll_back(before)
            raise
        try:
            self._commit()
        except sqlite3.Error as error:
            self._roll_back({group_id: at for group_id, at in before.items() if group_id not in set(group_ids)})
            raise StoreOutcomeUnknown(str(disk_full(self.path, error) or f"{self.path}: {error}")) from error
        self._check_found()  # no caller gets an answer from a file that is gone

    def _commit(self) -> None:
        self._connection.execute("COMMIT")

    def _roll_back(self, next_sequence: dict[str, int]) -> None:
        self._next_sequence = next_sequence
        with contextlib.suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _insert(self, group_id: str, first: int, records: Sequence[bytes]) -> None:
        rows = [(group_id, sequence, zlib.crc32(data), data) for sequence, data in enumerate(records, first)]
        self._connection.executemany("INSERT INTO record VALUES (?, ?, ?, ?)", rows)
        self._next_sequence[group_id] = first + len(rows)

    def _next_after(self, group_id: str) -> int:
        """The group's next sequence number. Raises StoreRefused if another process has written to the group."""
        query = "SELECT max(sequence) FROM record WHERE group_id = ?"
        (last,) = self._connection.execute(query, (group_id,)).fetchone()
        known = self._next_sequence.get(group_id)
        if last is None or known == last + 1:
            return known or 0
        if known is not None:
            raise StoreRefused(f"{self.path}: another process writes to it, too")
        return int(last) + 1


def _unusable(path: Path, error: sqlite3.Error) -> ShareGroupError:
    return disk_full(path, error) or StateStoreUnreadable(path=path, reason=error)


@contextlib.contextmanager
def _read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """A context with a connection that can't change the file. Raises StateStoreUnreadable or DiskFull if SQLite can't
    open the file or read from it."""
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as reading:
            yield reading
    except sqlite3.Error as error:
        raise _unusable(path, error) from error


def owner_of(path: Path) -> str:
    """The id of the process that has the state file, for people; ``unknown`` if the file beside it does not say it."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        found = Path(f"{path}.owner").read_text(encoding="ascii").strip()
        return found if found.isdigit() else "unknown"
    return "unknown"


def check_state_file(path: Path) -> bool:
    """Whether the file is new. Checks the file without changing it. Raises StateStoreTooNew, StateStoreTooOld or
    StateStoreUnreadable if the file is not this version's to change."""
    with _read_only(path) as reading:
        if _is_new(reading):
            return True
        (application_id,) = reading.execute("PRAGMA application_id").fetchone()
        (version,) = reading.execute("PRAGMA user_version").fetchone()
    if application_id != APPLICATION_ID:
        raise StateStoreUnreadable(path=path, reason="it is a database of another program")
    if version not in SQLITE_SCHEMAS_READ:
        too_new_or_old = StateStoreTooNew if version > SQLITE_SCHEMA else StateStoreTooOld
        raise too_new_or_old(path=path, found=version or "of no version", known=SQLITE_SCHEMA)
    return False


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_new(connection: sqlite3.Connection) -> bool:
    """Whether the file is empty: its owner is about to fill it."""
    looks = ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    return not any(connection.execute(look).fetchone()[0] for look in looks)


def _records_of(connection: sqlite3.Connection, group_id: str, path: Path) -> Iterator[StoredRecord]:
    query = "SELECT sequence, crc32, data FROM record WHERE group_id = ? ORDER BY sequence"
    for sequence, crc32, data in connection.execute(query, (group_id,)):
        if zlib.crc32(data) != crc32:
            raise StateRecordUnreadable(sequence=sequence, group_id=group_id, path=path, reason="its checksum is wrong")
        yield StoredRecord(sequence, data)


class SqliteReader(SoleOwner):
    """A state file opened for reading only: a :class:`~coordinator.service.stores.store.Store` that can only peek."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        return str(self.path)

    def peek(self, group_id: str) -> list[StoredRecord]:
        """The group's records, in append order. Raises StateStoreUnreadable if the file is damaged, or not ours."""
        with _read_only(self.path) as reading:
            return [] if _is_new(reading) else list(_records_of(reading, group_id, self.path))

    load = peek

    def append(self, appends: Mapping[str, Append], now_ms: int) -> None:
        raise StoreRefused(f"{self.path} is only read here")

    def replace_with_snapshot(self, group: ShareGroup, data: Sequence[bytes], now_ms: int) -> None:
        raise StoreRefused(f"{self.path} is only read here")

    def close(self) -> None:
        """Does nothing: each read closes what it opened."""


def groups_in_file(path: Path) -> list[str]:
    """Returns the groups that have records in the state file, which is opened for reading only. Raises
    StateStoreUnreadable if it is damaged, or not a file of sharegroup."""
    last = "SELECT group_id, max(sequence), data FROM record GROUP BY group_id ORDER BY group_id"
    with _read_only(path) as reading:
        if _is_new(reading):
            return []
        return [group_id for group_id, _, data in reading.execute(last) if data != _DELETED]


def parts_of_file(path: Path, group_id: str) -> Iterator[list[Logged]]:
    """The group's records in the state file, the newest part first, each part in append order. The file is opened for
    reading only, and for one part at a time. Raises StateStoreUnreadable if it is damaged, or not a file of sharegroup.
    """
    query = "SELECT sequence, data FROM record WHERE group_id = ? AND sequence < ? ORDER BY sequence DESC LIMIT ?"
    before = 2**63 - 1
    while True:
        with _read_only(path) as reading:
            rows = reading.execute(query, (group_id, before, PART_RECORDS)).fetchall()
        if not rows:
            return
        before = rows[-1][0]
        yield [(None, data) for _, data in reversed(rows)]
