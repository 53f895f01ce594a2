"""The archive: rows that a sink rejected, as Parquet files, written by executors and made visible by the driver.

The archive holds the rows that sinks rejected, and nothing else: records that a limit archived (delivery count, expiry)
and records that were lost from the log pass through no sink. Rows are written at least once, as dead letters are: the
archive may have a row whose attempt disagreed with another attempt, so that its record was released after all.
``topic``, ``partition``, ``offset`` and ``deliveryCount`` identify a row.

Layout below ``archive.path``: ``date=YYYY-MM-DD/topic=NAME/….parquet``. The date is the day of archiving in UTC; the
columns are those of ``SCHEMA``; readers skip names that begin with ``_``. Rule: readers see whole files only, of the
last attempt of each batch. Tasks write below ``_staging/``. ``finish_batch`` merges their small files and moves them to
their final paths: one file for each batch and topic, up to ``MERGE_BYTES``. Before that it writes the batch's files
into ``_journal/``: the replay of a batch, on another day or with other outcomes, finds there which files to replace.
File names have the attempt's number, so no attempt overwrites another's files; only files of earlier attempts are
replaced.
"""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import FileType

from coordinator.protocol.errors import BatchReclaimed
from coordinator.protocol.format_versions import ARCHIVE, UnknownFormat, check_version
from coordinator.protocol.wire import DAMAGED
from share_sink.archive.location import ArchiveLocation, archive_location, check_exists, without_secrets
from share_sink.archive.parquet import SCHEMA, RowFile, archive_rows, merge_files
from share_sink.errors import ArchiveFormatUnknown, ArchiveNotWritable, ArchiveRowsMissing

_log = logging.getLogger(__name__)

MERGE_BYTES = 64 << 20
"""The files of a batch's tasks are merged up to this many compressed bytes, topic by topic."""

Content = TypeVar("Content", bound=msgspec.Struct)
_PARTITIONING = ds.partitioning(pa.schema([("date", pa.date32()), ("topic", pa.string())]), flavor="hive")


class _Batch(NamedTuple):
    """One write of a batch, as the names of its files and folders spell it. ``key`` stands for the group, the query and
    the write; ``run`` for the run of the query."""

    key: str
    batch_id: int
    run: str = ""

    @classmethod
    def of(cls, group_id: str, query_id: str, batch_id: int, write: int, run_id: str) -> _Batch:
        """Write number ``write`` of a batch, in a run of its query."""
        text = json.dumps([group_id, query_id, write])
        run = hashlib.sha256(run_id.encode()).hexdigest()[:8]
        return cls(hashlib.sha256(text.encode()).hexdigest()[:16], batch_id, run)

    @property
    def staging(self) -> str:
        """The folder of the tasks' files. No run touches another run's folder before its outcomes are staged."""
        return f"{self.all_staging}{self.run}"

    @property
    def all_staging(self) -> str:
        """The common prefix of the staging folders of all runs."""
        return f"_staging/{self.key}-{self.batch_id}-"

    @property
    def journal(self) -> str:
        """The journal file. It lists the visible files of this query's last batch."""
        return f"_journal/{self.key}.json"


def check_archive(path: str) -> str:
    """Check that the archive takes rows: make the folder, write a small file and delete it. The driver calls it when a
    query starts. Returns the location as executors need it (a relative path is made absolute).

    Raises:
        ArchiveNotWritable: the file system refuses.
    """
    archive = archive_location(path)
    probe = archive.at(f"_probe-{uuid.uuid4().hex}")
    with archive.named_errors():
        archive.files.create_dir(archive.root, recursive=True)
        with archive.files.open_output_stream(probe) as stream:
            stream.write(b"sharegroup")
        archive.files.delete_file(probe)
    return archive.location


class ArchiveWriter:
    """The rejected rows of one attempt of a task, on an executor.

    ``write``: the number of this write, from 0, in a batch with several writes (two calls in one foreachBatch). Each
    write has files of its own, and its replay replaces only these.

    Raises:
        ArchiveNotWritable: from every method but ``abort``, if the file system refuses.
    """

    def __init__(
        self, path: str, group_id: str, query_id: str, batch_id: int, task_id: int, *, write: int = 0, run_id: str = ""
    ) -> None:
        self._archive = archive_location(path)
        self._group_id = group_id
        self._folder = _Batch.of(group_id, query_id, batch_id, write, run_id).staging
        # No two attempts write one file: Spark may start an attempt while another that it believes dead still writes.
        self._name = f"{task_id:06d}-{uuid.uuid4().hex}.parquet"
        self._files: dict[str, RowFile] = {}

    def write(self, table: pa.Table) -> None:
        """Write rejected rows: topic, partition, offset and deliveryCount; reason, key, value, headers and timestamp
        where the table has them. Other columns are left out."""
        if not table.num_rows:
            return
        topics = table.column("topic")
        rows = archive_rows(table, self._group_id)
        for topic in pc.unique(topics).to_pylist():
            self._file_of(topic).add(rows.filter(pc.equal(topics, topic)))

    def close(self) -> list[str]:
        """Close the files. Returns them for ``finish_batch``; readers do not see them yet."""
        for file in self._files.values():
            file.close()
        return [file.path for file in self._files.values()]

    def abort(self) -> None:
        """Delete the written files, as far as the file system allows; ``finish_batch`` removes the rest."""
        for file in self._files.values():
            try:
                file.discard()
            except ArchiveNotWritable as error:
                _log.info("archive: the file %s was not deleted; the end of its batch removes it: %s", file.path, error)

    def _file_of(self, topic: str) -> RowFile:
        if topic not in self._files:
            self._files[topic] = RowFile(self._archive, f"{self._folder}/topic={quote(topic, safe='')}/{self._name}")
        return self._files[topic]


def check_files(path: str, files: Iterable[str]) -> None:
    """Check on the driver that it sees the tasks' files, before the batch's outcomes are staged.

    Raises:
        ArchiveNotWritable: the file system refuses.
        ArchiveRowsMissing: files of the tasks are missing.
    """
    archive = archive_location(path)
    with archive.named_errors():
        _sizes(archive, list(files))


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
    """Make the rows of a batch visible, on the driver, after its outcomes are staged. ``files``: the results of
    ``close`` in the winning attempts of the tasks. Call it for each batch, also if nothing was rejected. Staging is the
    fence: it refuses a driver that was replaced. The staged outcomes take effect only if Spark commits the batch, which
    it does after this call.

    The rows replace those of an earlier attempt of the batch; ``attempt`` is the attempt's number (OutcomesStaged).
    ``run_id`` is the query's run: one run never replays a batch, so files that the same run wrote for this batch belong
    to another write, and stay. If the process is killed in the middle, the replay of the batch replaces what it left.
    Returns the new files, relative to the archive.

    Raises:
        ArchiveNotWritable: the file system refuses.
        ArchiveRowsMissing: files of the tasks are missing.
        BatchReclaimed: the archive has rows of a later attempt already.
    """
    archive, batch = archive_location(path), _Batch.of(group_id, query_id, batch_id, write, run_id)
    with archive.named_errors():
        journal = _journal_of(archive, batch)
        if journal.attempt > attempt:
            raise BatchReclaimed(
                group_id=group_id, row=f"batch {batch_id}, of which the archive has rows of a later attempt"
            )
        former = list(journal.files)
        kept = former if run_id and journal.run == run_id else []
        plan = _plan(archive, batch, sorted(files), attempt=attempt, begin=len(kept))
        if not kept:
            for stale in sorted(set(former) - set(plan)):
                delete_file(archive, stale)
        if plan or former:
            write_whole(archive, batch.journal, Journal(batch_id, run_id, attempt, (*kept, *plan)))
        for target, sources in plan.items():
            _put(archive, batch, target, sources)
        for folder in archive.folders_in("_staging"):
            if folder.startswith(batch.all_staging):
                _clear(archive, folder)
    return list(plan)


def discard_batch(path: str, *, group_id: str, query_id: str, batch_id: int, run_id: str = "", write: int = 0) -> None:
    """Delete the files that the tasks of a failed batch wrote, on the driver. Raises nothing: readers do not see files
    that remain."""
    try:
        archive = archive_location(path)
    except ArchiveNotWritable as error:
        _log.info("archive: the failed batch's files were not deleted: %s", error)
        return
    _clear(archive, _Batch.of(group_id, query_id, batch_id, write, run_id).staging)


def archive_dataset(path: str) -> ds.Dataset:
    """The archive as a pyarrow dataset: the columns of ``SCHEMA``, and ``date`` and ``topic``.

    Raises:
        ArchiveNotFound: there is no archive.
        ArchiveNotWritable: the file system refuses.
    """
    archive = archive_location(path)
    check_exists(archive)
    with archive.named_errors():
        schema = pa.schema([*SCHEMA, *_PARTITIONING.schema])
        return ds.dataset(archive.root, schema, "parquet", archive.files, _PARTITIONING)


def _plan(
    archive: ArchiveLocation, batch: _Batch, files: Sequence[str], *, attempt: int, begin: int
) -> dict[str, list[str]]:
    """Returns path of a new file -> the tasks' files to merge into it, in the order of the tasks. New files are
    numbered from ``begin`` on."""
    sizes = _sizes(archive, files)
    today = datetime.now(timezone.utc).date().isoformat()
    return {
        f"date={today}/{topic}/{batch.key}-{batch.batch_id}-{attempt}-{number}.parquet": sources
        for topic, of_topic in _by_topic(files).items()
        for number, sources in enumerate(bins(of_topic, sizes, MERGE_BYTES), begin)
    }


def _sizes(archive: ArchiveLocation, files: Sequence[str]) -> dict[str, int]:
    infos = dict(zip(files, archive.files.get_file_info([archive.at(file) for file in files]), strict=True))
    missing = [file for file, info in infos.items() if info.type == FileType.NotFound]
    if missing:
        raise ArchiveRowsMissing(path=without_secrets(archive.location), count=len(missing), example=missing[0])
    return {file: info.size for file, info in infos.items()}


def _by_topic(files: Sequence[str]) -> dict[str, list[str]]:
    """The files by their folder, ``topic=NAME``."""
    by_topic: dict[str, list[str]] = {}
    for file in files:
        by_topic.setdefault(file.split("/")[-2], []).append(file)
    return by_topic


def bins(files: Sequence[str], sizes: Mapping[str, int], limit_bytes: int) -> Iterator[list[str]]:
    """Yields the files in their order, in groups of up to ``limit_bytes``; a larger file is a group of its own."""
    group: list[str] = []
    group_bytes = 0
    for file in files:
        if group and group_bytes + sizes[file] > limit_bytes:
            yield group
            group, group_bytes = [], 0
        group.append(file)
        group_bytes += sizes[file]
    if group:
        yield group


def _put(archive: ArchiveLocation, batch: _Batch, target: str, sources: Sequence[str]) -> None:
    """Make one file visible by moving it, in one step; it replaces a file of the same path."""
    ready = sources[0]
    if len(sources) > 1:
        ready = f"{batch.staging}/{uuid.uuid4().hex}.parquet"
        merge_files(archive, sources, ready)
    archive.files.create_dir(archive.at(target.rpartition("/")[0]), recursive=True)
    archive.files.move(archive.at(ready), archive.at(target))


class Journal(msgspec.Struct, frozen=True):
    """The files of a batch that were made visible, or were about to be, and the run and attempt that did it."""

    batch: int
    run: str
    attempt: int
    files: tuple[str, ...]


_NONE = Journal(-1, "", -1, ())


def _journal_of(archive: ArchiveLocation, batch: _Batch) -> Journal:
    """Returns this batch's journal; an empty one if the query's last batch was another, or there was none."""
    if archive.files.get_file_info(archive.at(batch.journal)).type == FileType.NotFound:
        return _NONE
    noted = read_json(archive, batch.journal, Journal)
    return noted if noted.batch == batch.batch_id else _NONE


class _Versioned(msgspec.Struct):
    version: Any = None


def read_json(archive: ArchiveLocation, path: str, kind: type[Content]) -> Content:
    """Returns the content that ``write_whole`` wrote.

    Raises:
        ArchiveFormatUnknown: another version of sharegroup wrote the file, or it is damaged.
    """
    with archive.files.open_input_stream(archive.at(path)) as stream:
        written = stream.read()
    try:
        check_version(msgspec.json.decode(written, type=_Versioned).version, ARCHIVE)
        return msgspec.json.decode(written, type=kind)
    except (UnknownFormat, *DAMAGED) as error:
        raise ArchiveFormatUnknown(path=without_secrets(archive.location), file=path, reason=error) from None


def write_whole(archive: ArchiveLocation, path: str, content: msgspec.Struct) -> None:
    """Write a small JSON file, with the archive's format version, in one step: readers see the new content or the old
    content, never a part."""
    archive.files.create_dir(archive.at(path.rpartition("/")[0]), recursive=True)
    fresh = archive.at(f"{path}.{uuid.uuid4().hex}")
    with archive.files.open_output_stream(fresh) as stream:
        stream.write(msgspec.json.encode({"version": ARCHIVE, **msgspec.structs.asdict(content)}))
    archive.files.move(fresh, archive.at(path))


def delete_file(archive: ArchiveLocation, file: str) -> None:
    """Delete a file, unless it does not exist."""
    try:
        archive.files.delete_file(archive.at(file))
    except FileNotFoundError:
        return


def _clear(archive: ArchiveLocation, folder: str) -> None:
    """Delete a staging folder as far as possible: a task attempt that Spark gave up may still write there. Readers do
    not see files that remain."""
    try:
        archive.files.delete_dir(archive.at(folder))
    except FileNotFoundError:
        return
    except OSError as error:
        _log.info("archive: the staging folder %s was not deleted: %s", folder, error)
