"""Compaction of an archive: merges the many small files of a day into few, which readers open faster.

A query makes one file for each batch and topic: 86,400 a day with a batch a second. Rules: compaction merges only past
days, and no file that a replay may still replace. Readers never see a row twice, whenever the process is killed. It
works in ``_compacting/``: it writes the whole new file there, then a note of the files to replace, deletes these, and
moves the new file to its final path. If it is killed in between, readers miss rows until the next call, which finishes
the noted work first. Only one call at a time may run for an archive."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone

import msgspec
from pyarrow.fs import FileType

from share_sink.archive.batches import Journal, bins, clear_old_staging, delete_file, read_json, write_whole
from share_sink.archive.location import ArchiveLocation, archive_location, check_exists
from share_sink.archive.parquet import merge_files

TARGET_BYTES = 128 << 20
"""A merged file has up to this many compressed bytes. Files of at least half this size are not merged again."""

_FOLDER = "_compacting"
_LATE = timedelta(hours=1)
"""Yesterday counts as running for this long after midnight (UTC): a batch that began yesterday may become visible a
little later, and clocks differ."""
_OURS = re.compile(r"date=(\d{4}-\d\d-\d\d)/topic=[^/]+/[0-9a-f]{16,32}(?:-\d+-\d+(?:-[0-9a-f]{32})?-\d+)?\.parquet")


@dataclass(frozen=True, kw_only=True)
class Compacted:
    """How many files were merged, and how many files came of them."""

    before: int
    after: int


def compact(path: str, *, before: date | None = None, target_bytes: int = TARGET_BYTES) -> Compacted:
    """Merge the small files of each topic and day, for the days before ``before`` (UTC); None: for all past days. A
    reader of these days may miss rows meanwhile, or find that a file was deleted.

    Raises:
        ArchiveNotFound: there is no archive.
        ArchiveNotWritable: the file system refuses."""
    archive = archive_location(path)
    check_exists(archive)
    with archive.named_errors():
        for note in _files(archive, _FOLDER, ".json"):
            _replace_files(archive, note)
        for orphan in archive.files_in(_FOLDER):
            delete_file(archive, orphan)
        clear_old_staging(archive)
        merged = new = 0
        today = (datetime.now(timezone.utc) - _LATE).date()
        for sources in _bins(archive, min(before or today, today), target_bytes):
            _replace_files(archive, _prepared(archive, sources))
            merged += len(sources)
            new += 1
    return Compacted(before=merged, after=new)


def _bins(archive: ArchiveLocation, before: date, target_bytes: int) -> Iterator[list[str]]:
    kept = {
        file for journal in _files(archive, "_journal", ".json") for file in read_json(archive, journal, Journal).files
    }
    for day in archive.folders_in(""):
        if not day.startswith("date=") or day >= f"date={before.isoformat()}":
            continue
        for topic in archive.folders_in(day):
            files = [file for file in archive.files_in(topic) if _OURS.fullmatch(file) and file not in kept]
            infos = archive.files.get_file_info([archive.at(file) for file in files])
            sizes = {file: info.size for file, info in zip(files, infos, strict=True) if info.size < target_bytes // 2}
            yield from (group for group in bins([*sizes], sizes, target_bytes) if len(group) > 1)


class _Note(msgspec.Struct, frozen=True):
    """A replacement in progress: the merged file, its final path, and the files that it replaces."""

    merged: str
    target: str
    sources: tuple[str, ...]


def _prepared(archive: ArchiveLocation, sources: list[str]) -> str:
    """Write the merged file, then a note of the files that it replaces. Returns the note's path."""
    name = uuid.uuid4().hex
    merge_files(archive, sources, f"{_FOLDER}/{name}.parquet")
    note = f"{_FOLDER}/{name}.json"
    target = f"{sources[0].rpartition('/')[0]}/{name}.parquet"
    write_whole(archive, note, _Note(f"{_FOLDER}/{name}.parquet", target, tuple(sources)))
    return note


def _replace_files(archive: ArchiveLocation, note: str) -> None:
    """Replace the noted files by the merged one, or finish a replacement that was killed half-way."""
    noted = read_json(archive, note, _Note)
    if archive.files.get_file_info(archive.at(noted.merged)).type != FileType.NotFound:
        for source in noted.sources:
            delete_file(archive, source)
        archive.files.move(archive.at(noted.merged), archive.at(noted.target))
    delete_file(archive, note)


def _files(archive: ArchiveLocation, folder: str, suffix: str) -> list[str]:
    """Returns the files with this suffix; an unfinished file has another one."""
    return [file for file in archive.files_in(folder) if file.endswith(suffix)]
