"""The SQLite store keeps the store's promises, and says by name what is wrong with its file."""

import contextlib
import os
import sqlite3
import subprocess
import sys

import pytest

from coordinator.protocol.errors import (
    DiskFull,
    StateFileGone,
    StateRecordUnreadable,
    StateStoreInUse,
    StateStoreTooNew,
    StateStoreTooOld,
    StateStoreUnreadable,
)
from coordinator.protocol.format_versions import SQLITE_SCHEMA
from coordinator.protocol.messages import Heartbeat
from coordinator.service.stores.sqlite_store import SqliteStore
from coordinator.service.stores.store import StoreFenced, StoreOutcomeUnknown, StoreRefused
from tests.support.runtime_service import Service, acquire, start_plan
from tests.support.store_contract import StoreContract
from tests.support.store_writes import append, snapshot


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "groups.db"


@pytest.fixture
def reopen(path):
    opened = []

    def open_again():
        for store in opened:
            store.close()
        opened[:] = [SqliteStore(path)]
        return opened[0]

    yield open_again
    for store in opened:
        store.close()


@pytest.mark.parametrize("free", range(0, 160 << 10, 8 << 10))
def test_a_full_disk_is_named_whatever_does_not_fit(small_disk, free):
    space = os.statvfs(small_disk)
    (small_disk / "fill").write_bytes(b"x" * max(0, space.f_bavail * space.f_frsize - free))
    told = pytest.raises(
        (DiskFull, StoreRefused, StoreOutcomeUnknown), match=r"groups\.db can't .* its disk is full \(.*Free"
    )
    with told, contextlib.closing(SqliteStore(small_disk / "groups.db")) as store:
        list(store.load("billing"))
        for _ in range(200):
            append(store, {"billing": [b"x" * 1000]})


@pytest.mark.parametrize("pages", [1, 2, 3])
def test_a_database_that_may_not_grow_is_a_full_disk(path, monkeypatch, pages):
    connect = sqlite3.connect

    def limited(*arguments, **options):
        connection = connect(*arguments, **options)
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    monkeypatch.setattr(sqlite3, "connect", limited)
    told = pytest.raises((DiskFull, StoreRefused), match=r"its disk is full.*Free space")
    with told, contextlib.closing(SqliteStore(path)) as store:
        list(store.load("billing"))
        append(store, {"billing": [b"x" * 100_000]})


class TestContract(StoreContract):
    SOLE_OWNER = True

    @pytest.fixture
    def reopen(self, reopen):
        return reopen

    @pytest.fixture
    def break_next(self, monkeypatch):
        def break_it(store, how):
            commit, insert = store._commit, store._insert

            def failing_commit():
                monkeypatch.undo()
                if how == "doubtful, written":
                    commit()
                raise sqlite3.OperationalError("disk I/O error")

            def failing_insert(group_id, first, records):
                monkeypatch.undo()
                insert(group_id, first, records)
                raise sqlite3.OperationalError("disk is full")

            broken = {"refused": ("_insert", failing_insert)}.get(how, ("_commit", failing_commit))
            monkeypatch.setattr(store, *broken)

        return break_it


def change(path, statement, *values):
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement, values)
    connection.close()


def test_a_link_to_the_file_is_the_same_store(path, reopen, tmp_path):
    reopen()
    (tmp_path / "link.db").symlink_to(path)
    with pytest.raises(StateStoreInUse, match=f"process {os.getpid()}"):
        SqliteStore(tmp_path / "link.db")


def test_a_file_that_is_deleted_or_replaced_under_its_owner_is_noticed(path, tmp_path):
    for change_it in (
        lambda path: path.unlink(),
        lambda path: (path.unlink(), path.touch()),
        lambda path: os.replace(path, tmp_path / "moved.db"),
        lambda path: os.unlink(f"{path}-wal"),
    ):
        store = SqliteStore(path)
        append(store, {"billing": [b"a"]})
        change_it(path)
        with pytest.raises(StoreFenced, match=r"deleted or replaced while its\s+coordinator ran"):
            append(store, {"billing": []})  # as for each answer
        with pytest.raises(StoreFenced):
            snapshot(store, "billing", [b"a"])
        for look in (lambda store=store: list(store.load("billing")), store.group_ids):
            with pytest.raises(StateFileGone):
                look()
        store.close()
        for left in path.parent.iterdir():
            left.unlink()


def test_an_append_into_a_file_that_goes_meanwhile_is_not_answered(path, monkeypatch):
    store = SqliteStore(path)
    commit = store._commit
    monkeypatch.setattr(store, "_commit", lambda: (path.unlink(), commit()))
    with pytest.raises(StoreFenced):
        append(store, {"billing": [b"a"]})
    store.close()


def test_of_two_owners_one_answers_after_the_state_folder_was_deleted(path):
    first = Service(path)
    first.create()
    plan = first.ask(acquire()).plan
    for left in path.parent.iterdir():
        left.unlink()
    second = Service(path)
    second.create()
    assert second.ask(acquire()).plan.plan_id
    for command in (start_plan(plan.plan_id), acquire(), Heartbeat(group_id="billing", member_id="m1", member_epoch=1)):
        with pytest.raises(StateFileGone, match="Stop the coordinator"):
            first.ask(command)
    for service in (first, second):
        service.store.close()


def test_an_owner_that_was_killed_leaves_no_lock_and_loses_nothing(path, reopen):
    program = (
        "import os, sys, signal, pathlib; from coordinator.service.stores.sqlite_store import SqliteStore;"
        "from tests.support.store_writes import append;"
        "append(SqliteStore(pathlib.Path(sys.argv[1])), {'billing': [b'a', b'b']});"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", program, str(path)], check=False).returncode < 0
    assert [data for _, data in reopen().load("billing")] == [b"a", b"b"]


def with_schema(path, version):
    """A store with a record, of this version of the schema."""
    with contextlib.closing(SqliteStore(path)) as store:
        append(store, {"billing": [b"a"]})
    change(path, f"PRAGMA user_version = {version}")


NO_DATABASE = "not a database, but long enough to be looked at as one " * 100


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda path: with_schema(path, SQLITE_SCHEMA + 1), StateStoreTooNew, rf"is {SQLITE_SCHEMA + 1}.*up to "),
        (lambda path: with_schema(path, 2), StateStoreTooOld, rf"schema is 2.*reads {SQLITE_SCHEMA}.*begin\s+anew"),
        (lambda path: with_schema(path, 0), StateStoreTooOld, "schema is of no version"),
        (lambda path: change(path, "CREATE TABLE theirs (x)"), StateStoreUnreadable, "another program"),
        (lambda path: path.write_text(NO_DATABASE), StateStoreUnreadable, "not a database"),
    ],
    ids=["newer", "older", "of no version", "another program's", "no database"],
)
def test_a_file_that_this_version_can_not_read_is_left_unchanged(tmp_path, make, error, says):
    path = tmp_path / "groups.db"
    make(path)
    before = path.read_bytes()
    with pytest.raises(error, match=says):
        SqliteStore(path)
    assert path.read_bytes() == before
    path.unlink()
    SqliteStore(path).close()  # the lock was let go of


def test_a_file_of_the_version_before_gets_the_new_version(path, reopen):
    with_schema(path, SQLITE_SCHEMA - 1)
    store = reopen()
    assert [data for _, data in store.load("billing")] == [b"a"]
    store.close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (SQLITE_SCHEMA,)


def test_an_interrupted_creation_is_completed_at_the_next_open(path):
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")  # as far as the killed process came
    connection.close()
    store = SqliteStore(path)
    append(store, {"billing": [b"a"]})
    store.close()
    with contextlib.closing(SqliteStore(path)) as store:
        assert [data for _, data in store.load("billing")] == [b"a"]


def test_a_damaged_record_names_file_group_and_sequence_number(path, reopen):
    append(reopen(), {"billing": [b"a", b"b", b"c"], "shipping": [b"x"]})
    reopen().close()
    change(path, "UPDATE record SET data = ? WHERE group_id = 'billing' AND sequence = 1", b"B")
    store = reopen()
    with pytest.raises(StateRecordUnreadable, match=r"Record 1 of share group billing in state store .*groups\.db"):
        list(store.load("billing"))
    assert [data for _, data in store.load("shipping")] == [b"x"]


def test_only_the_user_can_read_the_file(reopen, path):
    reopen()
    assert path.stat().st_mode & 0o077 == 0


def test_each_append_is_synced_to_the_disk(reopen):
    store = reopen()
    assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


ON_A_FULL_DISK = """
import resource, sys
from pathlib import Path
from coordinator.service.stores.sqlite_store import SqliteStore
from coordinator.service.stores.store import StoreOutcomeUnknown, StoreRefused
from tests.support.store_writes import append

store, answered, refused = SqliteStore(Path(sys.argv[1])), [], 0
list(store.load("billing"))
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))  # no file of this process may grow beyond
for number in range(100):
    if refused == 3:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    record = number.to_bytes(2, "big") * 5_000
    try:
        append(store, {"billing": [record]})
        answered.append(record)
    except (StoreOutcomeUnknown, StoreRefused):
        refused += 1
        found = [data for _, data in store.load("billing")]
        assert found[: len(answered)] == answered, "what was answered is there"
        answered = found  # one that was in doubt may be there, too
assert refused == 3, refused
assert [data for _, data in store.load("billing")] == answered
store.close()
print(len(answered))
"""


def test_a_full_disk_stops_answers_loses_nothing_and_passes(path):
    path.parent.mkdir(parents=True)
    program = [sys.executable, "-c", ON_A_FULL_DISK, str(path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    store = SqliteStore(path)
    assert len(list(store.load("billing"))) == int(done.stdout) >= 97
    store.close()
