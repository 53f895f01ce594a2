"""The archive of rejected rows: what a stranger reads of it after batches, replays, crashes and compactions."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow.fs import LocalFileSystem

from coordinator.protocol.errors import BatchReclaimed
from share_sink.archive import batches, compaction
from share_sink.archive.batches import ArchiveWriter, archive_dataset, check_archive, discard_write, finish_batch
from share_sink.archive.compaction import Compacted, compact
from share_sink.archive.location import ArchiveLocation, archive_location
from share_sink.archive.parquet import SCHEMA
from share_sink.errors import ArchiveNotWritable, ArchiveRowsMissing
from tests.support.archives import Killed, Mortal, Stopped, attempt, batch, mortal_place, read, rejected, staged


def moved(days: int) -> type[dt.datetime]:
    """A clock that is so many days ahead."""

    class Moved(dt.datetime):
        @classmethod
        def now(cls, tz=None):
            return dt.datetime.now(tz) + dt.timedelta(days=days)

    return Moved


TOMORROW, THREE_DAYS_AGO = moved(1), moved(-3)
STEPS = 14
"""finish_batch has fewer changes of the file system in these tests."""


def leftovers(path) -> list[Path]:
    return [file for file in Path(path).rglob("*") if file.is_file() and "_staging" in file.parts]


# --- what is read


def test_rows_are_read_with_their_columns(tmp_path):
    rows = rejected(
        "orders",
        7,
        key=pa.array([b"k"]),
        value=pa.array(["text"]),
        headers=pa.array([[{"key": "h", "value": b"\x00"}, {"key": "h", "value": None}]], SCHEMA.field("headers").type),
        timestamp=pa.array([1_000], pa.timestamp("ms", tz="UTC")),
        score=[0.5],
    )
    before = dt.datetime.now(dt.timezone.utc)
    batch(tmp_path, 3, rows)
    (row,) = archive_dataset(str(tmp_path)).to_table().to_pylist()
    assert before <= row.pop("time") <= dt.datetime.now(dt.timezone.utc)
    assert before.date() <= row.pop("date") <= dt.datetime.now(dt.timezone.utc).date()
    assert row == {
        "key": b"k",
        "value": b"text",
        "headers": [{"key": "h", "value": b"\x00"}, {"key": "h", "value": None}],
        "topic": "orders",
        "partition": 0,
        "offset": 7,
        "timestamp": dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.timezone.utc),
        "deliveryCount": 1,
        "group": "billing",
        "reason": "broken",
    }


@pytest.mark.parametrize("columns", [{}, {"value": [b"x"]}, {"value": [None], "key": ["k"]}])
def test_every_file_has_the_same_columns_for_any_columns_of_rows(tmp_path, columns):
    (file,) = batch(tmp_path, 0, rejected("orders", 1, **columns))
    assert pq.read_schema(tmp_path / file).equals(SCHEMA)


@pytest.mark.parametrize("topic", ["orders", "007", "a.b-c_d", "__odd"])
def test_a_topic_keeps_its_name(tmp_path, topic):
    batch(tmp_path, 0, rejected(topic, 1))
    (row,) = archive_dataset(str(tmp_path)).to_table().to_pylist()
    assert row["topic"] == topic


def test_an_archive_without_rows_can_be_read(tmp_path):
    check_archive(str(tmp_path / "new"))
    assert archive_dataset(str(tmp_path / "new")).count_rows() == 0


# --- files


def test_a_batch_makes_one_file_for_each_topic(tmp_path):
    files = batch(tmp_path, 0, *[pa.concat_tables([rejected("a", n), rejected("b", n)]) for n in range(8)])
    assert sorted(file.split("/")[1] for file in files) == ["topic=a", "topic=b"]
    assert read(tmp_path) == [(topic, n) for topic in "ab" for n in range(8)]
    assert not leftovers(tmp_path)


def test_large_files_of_tasks_are_not_merged(tmp_path, monkeypatch):
    monkeypatch.setattr(batches, "MERGE_BYTES", 1)
    assert len(batch(tmp_path, 0, *[rejected("a", n) for n in range(3)])) == 3
    assert read(tmp_path) == [("a", 0), ("a", 1), ("a", 2)]


def test_rows_of_many_small_tables_are_one_row_group(tmp_path):
    (file,) = finish_batch(
        str(tmp_path), attempt(tmp_path, 0, *[rejected("a", n) for n in range(50)]), ["w"], staged(0)
    )
    assert pq.ParquetFile(tmp_path / file).num_row_groups == 1


def test_a_batch_that_rejects_nothing_writes_nothing(tmp_path):
    assert batch(tmp_path, 0, rejected("a")) == []
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


def test_groups_members_and_writes_of_a_batch_keep_their_files_apart(tmp_path):
    others = [{"group_id": "other"}, {"member_id": "m2"}, {"incarnation": "the group made anew"}]
    for number, of in enumerate([{}, {}, *others]):
        batch(tmp_path, 0, rejected("a", number), **of)
    assert read(tmp_path) == [("a", n) for n in range(5)]
    batch(tmp_path, 0, attempt_number=1)
    assert read(tmp_path) == [("a", 2), ("a", 3), ("a", 4)], "a replay replaces the rows of its own plan alone"


# --- attempts


def test_a_lost_attempt_of_a_task_is_never_seen(tmp_path):
    attempt(tmp_path, 0, rejected("a", 1), rejected("b", 1))
    finish_batch(str(tmp_path), attempt(tmp_path, 0, rejected("a", 1)), ["w"], staged(0))
    assert read(tmp_path) == [("a", 1)]
    assert not leftovers(tmp_path)


def test_a_task_that_writes_after_its_batch_finished_is_never_seen(tmp_path):
    late = ArchiveWriter(str(tmp_path), "billing", "w", 0)
    late.write(rejected("a", 1))
    batch(tmp_path, 0, rejected("a", 1))
    late.write(rejected("a", 2))
    late.close()
    assert read(tmp_path) == [("a", 1)]


def test_a_batch_that_is_replayed_on_another_day_stands_there_alone(tmp_path, monkeypatch):
    batch(tmp_path, 4, rejected("a", 1))
    monkeypatch.setattr(batches, "datetime", TOMORROW)
    (file,) = batch(tmp_path, 4, rejected("a", 1), attempt_number=1)
    assert file.startswith(f"date={TOMORROW.now(dt.timezone.utc).date()}/")
    assert read(tmp_path) == [("a", 1)]


@pytest.mark.parametrize("step", range(STEPS))
def test_two_writes_of_an_attempt_side_by_side_both_stay(tmp_path, monkeypatch, step):
    """One write runs while the other is anywhere in its course."""
    batch(tmp_path, 4, rejected("a", 0))
    files = attempt(tmp_path, 0, rejected("a", 1))

    def beside():
        with monkeypatch.context() as patch:
            patch.setattr(batches, "archive_location", archive_location)
            batch(tmp_path, 4, rejected("a", 2), attempt_number=1)

    stopped = Stopped(step, beside)
    monkeypatch.setattr(batches, "archive_location", mortal_place(stopped))
    finish_batch(str(tmp_path), files, ["w"], staged(4, 1))
    if stopped.lives >= 0:  # it was over before
        beside()
    assert read(tmp_path) == [("a", 1), ("a", 2)]


OUTCOMES = st.dictionaries(st.sampled_from("ab"), st.lists(st.integers(0, 9), max_size=4, unique=True))
WRITES = st.lists(st.lists(OUTCOMES, max_size=3), min_size=1, max_size=3)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.booleans(), WRITES), max_size=6))
def test_after_any_replays_the_last_attempt_of_each_batch_is_read(tmp_path_factory, story):
    path, expected, number, attempt_number = tmp_path_factory.mktemp("archive"), {}, 0, 0
    for replayed, writes in story:
        number, attempt_number = (number, attempt_number + 1) if replayed else (number + 1, 0)
        for tasks in writes:
            rows = [[rejected(t, *offsets) for t, offsets in task.items()] for task in tasks if task]
            batch(path, number, *[pa.concat_tables(tables) for tables in rows], attempt_number=attempt_number)
        outcomes = [outcome for tasks in writes for task in tasks for outcome in task.items()]
        expected[number] = [(t, offset) for t, offsets in outcomes for offset in offsets]
    assert read(path) == sorted(row for rows in expected.values() for row in rows)
    assert not leftovers(path)


# --- crashes


@pytest.mark.parametrize("lives", range(STEPS))
def test_a_driver_killed_at_any_step_leaves_no_half_and_no_doubles(tmp_path, monkeypatch, lives):
    batch(tmp_path, 0, rejected("a", 0))
    batch(tmp_path, 1, rejected("a", 1, 2), rejected("b", 3))
    batch(tmp_path, 1, rejected("b", 9))
    second = [rejected("a", 1), rejected("a", 2), rejected("c", 4)]
    files = [file for task, table in enumerate(second) for file in attempt(tmp_path, task, table)]
    mortal = Mortal(lives)
    with monkeypatch.context() as patch:
        patch.setattr(batches, "archive_location", mortal_place(mortal))
        with contextlib.suppress(Killed):
            finish_batch(str(tmp_path), files, ["w"], staged(1, 1))
    seen = Counter(read(tmp_path))
    assert seen[("a", 0)] == 1
    assert set(seen.values()) == {1}
    batch(tmp_path, 1, *second, attempt_number=2)
    assert read(tmp_path) == [("a", 0), ("a", 1), ("a", 2), ("c", 4)]


def test_the_driver_can_be_killed_at_each_of_its_steps(tmp_path, monkeypatch):
    """This number of lives is enough: the test above reaches the end."""
    mortal = Mortal(1_000)
    batch(tmp_path, 1, rejected("a", 1, 2), rejected("b", 3))
    batch(tmp_path, 1, rejected("b", 9))
    files = [file for task in (0, 1) for file in attempt(tmp_path, task, rejected("a", task))]
    monkeypatch.setattr(batches, "archive_location", mortal_place(mortal))
    finish_batch(str(tmp_path), files + attempt(tmp_path, 2, rejected("c", 4)), ["w"], staged(1, 1))
    assert STEPS - 3 <= 1_000 - mortal.lives < STEPS


# --- drivers that were replaced, and go on


def test_a_driver_whose_successor_archived_the_batch_is_refused_and_deletes_nothing(tmp_path):
    """It was stopped between the staging and the archive."""
    late = attempt(tmp_path, 0, rejected("a", 1))
    batch(tmp_path, 7, rejected("a", 5), attempt_number=1)
    with pytest.raises(BatchReclaimed, match=r"plan i1\.7.*billing"):
        finish_batch(str(tmp_path), late, ["w"], staged(7))
    assert read(tmp_path) == [("a", 5)]


@pytest.mark.parametrize("rows", [(5,), ()], ids=["with rows", "without rows"])
@pytest.mark.parametrize("step", range(STEPS))
def test_a_driver_stopped_at_any_step_leaves_its_successors_rows_alone(tmp_path, monkeypatch, step, rows):
    batch(tmp_path, 7, rejected("a", 0))
    files = [file for task in (0, 1) for file in attempt(tmp_path, task, rejected("a", task))]

    def successor():
        with monkeypatch.context() as patch:
            patch.setattr(batches, "archive_location", archive_location)
            batch(tmp_path, 7, rejected("a", *rows), attempt_number=2)

    stopped = Stopped(step, successor)
    with monkeypatch.context() as patch:
        patch.setattr(batches, "archive_location", mortal_place(stopped))
        with contextlib.suppress(BatchReclaimed):
            finish_batch(str(tmp_path), files, ["w"], staged(7, 1))
    if stopped.lives >= 0:  # it was over before
        successor()
    assert read(tmp_path) == [("a", offset) for offset in rows]


def test_a_driver_that_gives_up_leaves_its_successors_files(tmp_path):
    files = attempt(tmp_path, 0, rejected("a", 5), write="its successor")
    attempt(tmp_path, 0, rejected("a", 1))
    discard_write(str(tmp_path), ["w"])
    finish_batch(str(tmp_path), files, ["its successor"], staged(7, 1))
    assert read(tmp_path) == [("a", 5)] and not leftovers(tmp_path)


# --- what can't be written


def test_a_missing_archive_path_is_created_and_left_empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert check_archive("not/yet") == str(tmp_path / "not" / "yet")
    assert list((tmp_path / "not" / "yet").iterdir()) == []
    assert check_archive(f"file://{tmp_path}/uri") == f"file://{tmp_path}/uri"


@pytest.mark.parametrize("uri", ["nosuch://user:geheim@host/p?key=geheim", "s3://AKIA:geheim@b/p?nosuch=geheim"])
def test_a_location_that_pyarrow_does_not_know_is_refused_without_its_secrets(uri):
    with pytest.raises(ArchiveNotWritable) as refused:
        check_archive(uri)
    assert "geheim" not in str(refused.value)
    assert "AKIA" not in str(refused.value)
    assert refused.value.fields["path"] in ("nosuch://host/p", "s3://b/p")


def test_an_archive_shows_no_secret(tmp_path):
    assert "geheim" not in repr(ArchiveLocation("s3://AKIA:geheim@b/p", LocalFileSystem(), str(tmp_path)))
    assert archive_location(str(tmp_path)).root == str(tmp_path)


def test_a_task_that_wrote_to_another_hosts_disk_is_named(tmp_path):
    files = attempt(tmp_path / "executors", 0, rejected("a", 1))
    with pytest.raises(ArchiveRowsMissing, match=r"1 file\(s\).*archive\.path"):
        finish_batch(str(tmp_path / "drivers"), files, ["w"], staged(0))


ROWS = sorted([("a", n) for n in range(6)] + [("b", n) for n in range(6)])


@pytest.fixture
def old(tmp_path, monkeypatch):
    """An archive of six batches of three days ago, two topics in each; the last batch may still be replayed."""
    with monkeypatch.context() as patch:
        patch.setattr(batches, "datetime", THREE_DAYS_AGO)
        for number in range(6):
            batch(tmp_path, number, pa.concat_tables([rejected("a", number), rejected("b", number)]))
    return tmp_path


def files(path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*.parquet"))


def test_compaction_merges_many_files_of_a_topic_into_one(old):
    assert compact(str(old)) == Compacted(before=10, after=2)
    assert read(old) == ROWS
    assert len(files(old)) == 4
    assert compact(str(old)) == Compacted(before=0, after=0)
    assert read(old) == ROWS


def test_the_last_batch_can_still_be_replayed(old):
    compact(str(old))
    batch(old, 5, rejected("a", 50), attempt_number=1)
    assert read(old) == sorted([row for row in ROWS if row[1] != 5] + [("a", 50)])
    batch(old, 6, rejected("a", 6))
    assert ("a", 50) in read(old)


def test_compaction_leaves_today_and_unselected_days_unchanged(old):
    for number in range(10, 14):
        batch(old, number, rejected("today", number))
    day = THREE_DAYS_AGO.now(dt.timezone.utc).date()
    assert compact(str(old), before=day) == Compacted(before=0, after=0)
    assert compact(str(old), before=dt.date(9999, 1, 1)).before == 12
    assert len([file for file in files(old) if "topic=today" in file]) == 4


def test_compaction_leaves_large_and_foreign_files_unchanged(old):
    (folder,) = old.glob("date=*/topic=a")
    (folder / "stranger.parquet").write_bytes((next(folder.glob("*.parquet"))).read_bytes())
    assert compact(str(old), target_bytes=100) == Compacted(before=0, after=0)
    compact(str(old))
    assert (folder / "stranger.parquet").exists()


def test_compaction_deletes_what_killed_writes_left_after_two_days(old, monkeypatch):
    attempt(old, 0, rejected("a", 1), write="left")
    (old / "_staging" / "empty").mkdir()
    compact(str(old))
    assert {folder.name for folder in (old / "_staging").iterdir()} == {"left", "empty"}, "a task may write there"
    with monkeypatch.context() as patch:
        patch.setattr(batches, "STAGING_KEPT", dt.timedelta())
        compact(str(old))
    assert not list((old / "_staging").iterdir())
    assert read(old) == ROWS


def test_an_archive_without_files_has_nothing_to_compact(tmp_path):
    assert compact(str(tmp_path)) == Compacted(before=0, after=0)


@pytest.mark.parametrize("lives", range(22))
def test_a_kill_at_any_step_doubles_no_row_and_loses_none(old, monkeypatch, lives):
    with monkeypatch.context() as patch:
        patch.setattr(compaction, "archive_location", mortal_place(Mortal(lives)))
        with contextlib.suppress(Killed):
            compact(str(old))
    seen = Counter(read(old))
    assert set(seen.values()) == {1}
    compact(str(old))
    assert read(old) == ROWS
    assert not list((old / "_compacting").iterdir())


def test_a_compaction_has_about_twenty_steps_to_be_killed_at(old, monkeypatch):
    mortal = Mortal(1_000)
    monkeypatch.setattr(compaction, "archive_location", mortal_place(mortal))
    compact(str(old))
    assert 18 <= 1_000 - mortal.lives < 22
