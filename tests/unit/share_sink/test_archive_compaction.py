"""Compaction of an archive: days that are over become few files, and whatever is killed when, no row is there twice."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections import Counter

import pyarrow as pa
import pytest

from share_sink.archive import batches, compaction
from share_sink.archive.compaction import Compacted, compact
from share_sink.errors import ArchiveNotFound
from tests.support.archives import Killed, Mortal, attempt, batch, mortal_place, read, rejected

ROWS = sorted([("a", n) for n in range(6)] + [("b", n) for n in range(6)])


class DaysAgo(dt.datetime):
    days = 3

    @classmethod
    def now(cls, tz=None):
        return dt.datetime.now(tz) - dt.timedelta(days=cls.days)


@pytest.fixture
def old(tmp_path, monkeypatch):
    """An archive of six batches of three days ago, two topics in each; the last batch may still be replayed."""
    with monkeypatch.context() as patch:
        patch.setattr(batches, "datetime", DaysAgo)
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
    day = (DaysAgo.now(dt.timezone.utc)).date()
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


def test_a_folder_that_is_no_archive_is_not_compacted(tmp_path):
    (tmp_path / "passwords").touch()
    for path, reason in ((tmp_path / "new", "no such folder"), (tmp_path, "it has passwords, for example")):
        with pytest.raises(ArchiveNotFound, match=reason):
            compact(str(path))


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
