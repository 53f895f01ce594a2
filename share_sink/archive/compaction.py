"""Compaction of an archive: the many small files of a day become few, for readers' sake.

A query makes one file a batch and topic: with a batch a second that is 86,400 a day. Rules: only days that are over,
and no file that a replay may still replace; a row is never there twice, whatever is killed when. What was begun stands
in ``_compacting/``: the new file, whole, and a note of what it takes the place of; only then are the old ones deleted,
and the new one is moved to its place after that. Killed in between, it leaves rows that no reader sees: the next call
brings them back, before it does anything else. One call at a time for an archive.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone

from pyarrow.fs import FileType

from share_sink.archive.batches import bins, delete_file, read_json, write_whole
from share_sink.archive.location import ArchiveLocation, archive_location
from share_sink.archive.parquet import merge_files

TARGET_BYTES = 128 << 20
"""How large a file gets, at most, compressed; what has half of it stays as it is."""

_FOLDER = "_compacting"
_LATE = timedelta(hours=1)
"""A batch that was begun yesterday may come into its place a little later; clocks differ."""
_OURS = re.compile(r"date=(\d{4}-\d\d-\d\d)/topic=[^/]+/[0-9a-f]{16,32}(?:-\d+-\d+-\d+)?\.parquet")


@dataclass(frozen=True, kw_only=True)
class Compacted:
    """So many files became so many."""

    before: int
    after: int


def compact(path: str, *, before: date | None = None, target_bytes: int = TARGET_BYTES) -> Compacted:
    """Merge the small files of each topic's days before ``before``, all days that are over if it is not said (UTC). Who
    reads these days meanwhile may miss rows, or meet a file that is gone. ArchiveNotWritable."""
    place = archive_location(path)
    with place.named_errors():
        for note in _notes(place):
            _take_place(place, note)
        for orphan in place.files_in(_FOLDER):
            delete_file(place, orphan)
        merged = new = 0
        today = (datetime.now(timezone.utc) - _LATE).date()
        for sources in _bins(place, min(before or today, today), target_bytes):
            _take_place(place, _prepared(place, sources))
            merged += len(sources)
            new += 1
    return Compacted(before=merged, after=new)


def _bins(place: ArchiveLocation, before: date, target_bytes: int) -> Iterator[list[str]]:
    """Files that may become one, of one topic and day."""
    kept = {file for journal in _files(place, "_journal", ".json") for file in read_json(place, journal)["files"]}
    for day in place.folders_in(""):
        if not day.startswith("date=") or day >= f"date={before.isoformat()}":
            continue
        for topic in place.folders_in(day):
            files = [file for file in place.files_in(topic) if _OURS.fullmatch(file) and file not in kept]
            infos = place.files.get_file_info([place.at(file) for file in files])
            sizes = {file: info.size for file, info in zip(files, infos, strict=True) if info.size < target_bytes // 2}
            yield from (group for group in bins([*sizes], sizes, target_bytes) if len(group) > 1)


def _prepared(place: ArchiveLocation, sources: list[str]) -> str:
    """The new file is whole, and what it takes the place of is noted. Returns the note."""
    name = uuid.uuid4().hex
    merge_files(place, sources, f"{_FOLDER}/{name}.parquet")
    note = f"{_FOLDER}/{name}.json"
    target = f"{sources[0].rpartition('/')[0]}/{name}.parquet"
    write_whole(place, note, {"merged": f"{_FOLDER}/{name}.parquet", "target": target, "sources": sources})
    return note


def _take_place(place: ArchiveLocation, note: str) -> None:
    """Also what was begun and is half done."""
    noted = read_json(place, note)
    if place.files.get_file_info(place.at(noted["merged"])).type != FileType.NotFound:
        for source in noted["sources"]:
            delete_file(place, source)
        place.files.move(place.at(noted["merged"]), place.at(noted["target"]))
    delete_file(place, note)


def _notes(place: ArchiveLocation) -> list[str]:
    return _files(place, _FOLDER, ".json")


def _files(place: ArchiveLocation, folder: str, suffix: str) -> list[str]:
    """Files in whose name the suffix comes last: one that is just being written has another."""
    return [file for file in place.files_in(folder) if file.endswith(suffix)]
