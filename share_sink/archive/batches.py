"""The archive: rows that a sink rejected, as Parquet files, written by executors and made visible by the driver.

It holds what a sink rejected, and nothing else: records that a limit archived (delivery count, expiry) or that were
lost from the log pass through no sink, so they are not here. At least once, as dead letters: a row may stand here whose
attempt disagreed with another one, so that its record was released after all. ``topic``, ``partition``, ``offset`` and
``deliveryCount`` make a row known.

Layout below ``archive.path``: ``date=YYYY-MM-DD/topic=NAME/….parquet``, the date being that of the archiving in UTC,
the columns those of ``SCHEMA``; readers skip what begins with ``_``. The rule: what readers see is whole, and of the
last attempt of its batch. Tasks write below ``_staging/``; ``finish_batch`` merges their small files and moves them to
their places: one file a batch and topic, for up to ``MERGE_BYTES``. Before that it notes the batch's files in
``_journal/``: a batch that is replayed, on another day or with other outcomes, finds there what it has to replace.
An attempt's number is in its files' names, so none overwrites another's; only those of earlier attempts are replaced.
"""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import FileType

from coordinator.protocol.errors import BatchReclaimed
from coordinator.protocol.format_versions import ARCHIVE, UnknownFormat, check_version
from share_sink.archive.location import ArchiveLocation, archive_location, without_secrets
from share_sink.archive.parquet import SCHEMA, RowFile, archive_rows, merge_files
from share_sink.errors import ArchiveFormatUnknown, ArchiveNotWritable, ArchiveRowsMissing

_log = logging.getLogger(__name__)

MERGE_BYTES = 64 << 20
"""The files of a batch's tasks are merged up to this size (compressed), those of each topic."""

_PARTITIONING = ds.partitioning(pa.schema([("date", pa.date32()), ("topic", pa.string())]), flavor="hive")


class _Batch(NamedTuple):
    """Whose rows these are, as names of files."""

    key: str
    batch_id: int
    run: str = ""

    @classmethod
    def of(cls, group_id: str, query_id: str, batch_id: int, write: int, run_id: str) -> _Batch:
        """A batch's ``write``-th write, in a run of its query."""
        text = json.dumps([group_id, query_id, write])
        run = hashlib.sha256(run_id.encode()).hexdigest()[:8]
        return cls(hashlib.sha256(text.encode()).hexdigest()[:16], batch_id, run)

    @property
    def staging(self) -> str:
        """The folder of its tasks' files. No run touches another's before its outcomes are staged."""
        return f"{self.all_staging}{self.run}"

    @property
    def all_staging(self) -> str:
        """How the folders of all runs begin."""
        return f"_staging/{self.key}-{self.batch_id}-"

    @property
    def journal(self) -> str:
        """What this query's last batch made visible."""
        return f"_journal/{self.key}.json"


def check_archive(path: str) -> str:
    """Whether rows can be written there: makes the folder, writes a small file and deletes it. For the driver, when a
    query starts. Returns the location as executors need it (a relative path made absolute). ArchiveNotWritable."""
    place = archive_location(path)
    probe = place.at(f"_probe-{uuid.uuid4().hex}")
    with place.named_errors():
        place.files.create_dir(place.root, recursive=True)
        with place.files.open_output_stream(probe) as stream:
            stream.write(b"sharegroup")
        place.files.delete_file(probe)
    return place.location


class ArchiveWriter:
    """The rejected rows of one attempt of a task, on an executor.

    ``write`` is which write of the batch this is, from 0, for a batch that rejects in more than one (two calls in one
    foreachBatch): each has files of its own, and replaces only these when it is replayed. ArchiveNotWritable.
    """

    def __init__(
        self, path: str, group_id: str, query_id: str, batch_id: int, task_id: int, *, write: int = 0, run_id: str = ""
    ) -> None:
        self._place = archive_location(path)
        self._group_id = group_id
        self._folder = _Batch.of(group_id, query_id, batch_id, write, run_id).staging
        # No two attempts write one file: Spark may believe dead the one that still writes.
        self._name = f"{task_id:06d}-{uuid.uuid4().hex}.parquet"
        self._files: dict[str, RowFile] = {}

    def write(self, table: pa.Table) -> None:
        """Rejected rows: topic, partition, offset, deliveryCount; where known reason, key, value, headers and
        timestamp, which may be absent. Other columns are left out."""
        if not table.num_rows:
            return
        topics = table.column("topic")
        rows = archive_rows(table, self._group_id)
        for topic in pc.unique(topics).to_pylist():
            self._file_of(topic).add(rows.filter(pc.equal(topics, topic)))

    def close(self) -> list[str]:
        """The files written, for ``finish_batch``; readers see none of them yet."""
        for file in self._files.values():
            file.close()
        return [file.path for file in self._files.values()]

    def abort(self) -> None:
        """Away with what was written, as far as that goes: what stays, ``finish_batch`` removes."""
        for file in self._files.values():
            try:
                file.discard()
            except ArchiveNotWritable as error:
                _log.info("archive: %s stays until its batch is finished: %s", file.path, error)

    def _file_of(self, topic: str) -> RowFile:
        if topic not in self._files:
            self._files[topic] = RowFile(self._place, f"{self._folder}/topic={quote(topic, safe='')}/{self._name}")
        return self._files[topic]


def check_files(path: str, files: Iterable[str]) -> None:
    """On the driver, before a batch's outcomes are staged: whether it sees what the tasks wrote. ArchiveNotWritable;
    ArchiveRowsMissing."""
    place = archive_location(path)
    with place.named_errors():
        _sizes(place, list(files))


def finish_batch(
    path: str,
    files: Iterable[str],
    *,
    group_id: str,
    query_id: str,
    batch_id: int,
    attempt: int,
    run_id: str = "",
    write: int = 0,
) -> list[str]:
    """Make the rows of a batch visible, on the driver, when its outcomes are staged: ``files`` are what ``close`` of
    the tasks' winning attempts gave. Call it for each batch, also when nothing was rejected. The staging is the fence:
    it refuses a driver that was replaced. What it staged takes effect only if Spark commits the batch, after this.

    What an earlier attempt of the batch made visible is replaced; ``attempt`` numbers them (OutcomesStaged). ``run_id``
    is the query's run: the same run never replays a batch, so what it wrote of this batch before was another write, and
    stays. Killed in the middle, it leaves what the replay of the batch replaces. Returns the new files, relative to the
    archive. ArchiveNotWritable; ArchiveRowsMissing; BatchReclaimed if a later attempt's rows stand there already.
    """
    place, batch = archive_location(path), _Batch.of(group_id, query_id, batch_id, write, run_id)
    with place.named_errors():
        journal = _journal_of(place, batch)
        if journal.attempt > attempt:
            raise BatchReclaimed(
                group_id=group_id, row=f"batch {batch_id}, whose rows the archive has of a later attempt"
            )
        former = list(journal.files)
        kept = former if run_id and journal.run == run_id else []
        plan = _plan(place, batch, sorted(files), attempt=attempt, begin=len(kept))
        if not kept:
            for stale in sorted(set(former) - set(plan)):
                delete_file(place, stale)
        if plan or former:
            noted = _Journal(batch_id, run_id, attempt, [*kept, *plan])
            write_whole(place, batch.journal, noted._asdict())
        for target, sources in plan.items():
            _put(place, batch, target, sources)
        for folder in place.folders_in("_staging"):
            if folder.startswith(batch.all_staging):
                _clear(place, folder)
    return list(plan)


def discard_batch(path: str, *, group_id: str, query_id: str, batch_id: int, run_id: str = "", write: int = 0) -> None:
    """Away with what the tasks of a failed batch wrote, on the driver. No error: what stays is seen by nobody."""
    try:
        place = archive_location(path)
    except ArchiveNotWritable as error:
        _log.info("archive: nothing is removed: %s", error)
        return
    _clear(place, _Batch.of(group_id, query_id, batch_id, write, run_id).staging)


def archive_dataset(path: str) -> ds.Dataset:
    """The archive for pyarrow: the columns of ``SCHEMA``, and ``date`` and ``topic``."""
    place = archive_location(path)
    with place.named_errors():
        schema = pa.schema([*SCHEMA, *_PARTITIONING.schema])
        return ds.dataset(place.root, schema, "parquet", place.files, _PARTITIONING)


def _plan(
    place: ArchiveLocation, batch: _Batch, files: Sequence[str], *, attempt: int, begin: int
) -> dict[str, list[str]]:
    """File to be -> the tasks' files that go into it, in the order of the tasks; numbered from ``begin`` on."""
    sizes = _sizes(place, files)
    today = datetime.now(timezone.utc).date().isoformat()
    return {
        f"date={today}/{topic}/{batch.key}-{batch.batch_id}-{attempt}-{number}.parquet": sources
        for topic, of_topic in _by_topic(files).items()
        for number, sources in enumerate(bins(of_topic, sizes, MERGE_BYTES), begin)
    }


def _sizes(place: ArchiveLocation, files: Sequence[str]) -> dict[str, int]:
    found = dict(zip(files, place.files.get_file_info([place.at(file) for file in files]), strict=True))
    missing = [file for file, info in found.items() if info.type == FileType.NotFound]
    if missing:
        raise ArchiveRowsMissing(path=without_secrets(place.location), count=len(missing), example=missing[0])
    return {file: info.size for file, info in found.items()}


def _by_topic(files: Sequence[str]) -> dict[str, list[str]]:
    """By their folder, ``topic=NAME``."""
    found: dict[str, list[str]] = {}
    for file in files:
        found.setdefault(file.split("/")[-2], []).append(file)
    return found


def bins(files: Sequence[str], sizes: Mapping[str, int], limit_bytes: int) -> Iterator[list[str]]:
    """The files in their order, in groups of at most so many bytes; one that is larger stands alone."""
    held: list[str] = []
    held_bytes = 0
    for file in files:
        if held and held_bytes + sizes[file] > limit_bytes:
            yield held
            held, held_bytes = [], 0
        held.append(file)
        held_bytes += sizes[file]
    if held:
        yield held


def _put(place: ArchiveLocation, batch: _Batch, target: str, sources: Sequence[str]) -> None:
    """One visible file, at once; whatever stood there before is replaced."""
    ready = sources[0]
    if len(sources) > 1:
        ready = f"{batch.staging}/{uuid.uuid4().hex}.parquet"
        merge_files(place, sources, ready)
    place.files.create_dir(place.at(target.rpartition("/")[0]), recursive=True)
    place.files.move(place.at(ready), place.at(target))


class _Journal(NamedTuple):
    """The files that were made visible of a batch, or were about to be, and by which run, in which attempt."""

    batch: int = -1
    run: str = ""
    attempt: int = -1
    files: Sequence[str] = ()


def _journal_of(place: ArchiveLocation, batch: _Batch) -> _Journal:
    """Of this batch; an empty one if another, or none, was the query's last."""
    if place.files.get_file_info(place.at(batch.journal)).type == FileType.NotFound:
        return _Journal()
    noted = _Journal(**read_json(place, batch.journal))
    return noted if noted.batch == batch.batch_id else _Journal()


def read_json(place: ArchiveLocation, path: str) -> dict[str, Any]:
    """The content that ``write_whole`` wrote.

    Raises:
        ArchiveFormatUnknown: another version of sharegroup wrote the file.
    """
    with place.files.open_input_stream(place.at(path)) as stream:
        found: dict[str, Any] = json.loads(stream.read())
    try:
        check_version(found.pop("version", None), ARCHIVE)
    except UnknownFormat as unknown:
        raise ArchiveFormatUnknown(path=without_secrets(place.location), file=path, reason=unknown) from None
    return found


def write_whole(place: ArchiveLocation, path: str, content: dict[str, Any]) -> None:
    """Writes a small JSON file, with the archive's format version: the file is there whole, or as it was before."""
    place.files.create_dir(place.at(path.rpartition("/")[0]), recursive=True)
    fresh = place.at(f"{path}.{uuid.uuid4().hex}")
    with place.files.open_output_stream(fresh) as stream:
        stream.write(json.dumps({"version": ARCHIVE, **content}).encode())
    place.files.move(fresh, place.at(path))


def delete_file(place: ArchiveLocation, file: str) -> None:
    """Also if it is gone already."""
    try:
        place.files.delete_file(place.at(file))
    except FileNotFoundError:
        return


def _clear(place: ArchiveLocation, folder: str) -> None:
    """An attempt that Spark gave up may still write there: what stays is seen by nobody."""
    try:
        place.files.delete_dir(place.at(folder))
    except FileNotFoundError:
        return
    except OSError as error:
        _log.info("archive: %s was not emptied: %s", folder, error)
