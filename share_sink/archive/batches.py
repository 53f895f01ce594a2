"""The archive: the rows that sinks rejected, as Parquet files. Executors write them, and the driver makes them visible.

The archive has no other records: those that a limit archived (delivery count, expiry), or that the log lost, pass
through no sink. Rows are written at least once, like dead letters. The archive may have a row whose record was released
after all, because another attempt decided otherwise. ``topic``, ``partition``, ``offset`` and ``deliveryCount``
identify a row.

Layout below ``archive.path``: ``date=YYYY-MM-DD/topic=NAME/….parquet``, with the day of archiving in UTC and the
columns of ``SCHEMA``; readers skip names that begin with ``_``. Rule: readers see only whole files, of the last attempt
at each batch. Tasks write below ``_staging/``, each write of a sink in a folder of its own. ``finish_batch`` names the
new files in ``_journal/``, merges the small files, and moves them to their final paths: one file for each write and
topic, up to ``MERGE_BYTES``. The writes of a replay, perhaps on another day or with other outcomes, find in the journal
which files earlier attempts made visible, and delete these. The receipts name the plan that identifies the batch, not a
batch id, which a thread of Spark's may lack."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileSelector, FileType

from coordinator.protocol.errors import BatchReclaimed
from coordinator.protocol.format_versions import ARCHIVE, ARCHIVES_READ, UnknownFormat, check_version
from coordinator.protocol.wire import DAMAGED
from share_sink.archive.location import ArchiveLocation, archive_location, check_exists, without_secrets
from share_sink.archive.parquet import SCHEMA, RowFile, archive_rows, merge_files
from share_sink.errors import ArchiveFormatUnknown, ArchiveNotWritable, ArchiveRowsMissing

if TYPE_CHECKING:
    import pyarrow.dataset as ds

_log = logging.getLogger(__name__)

MERGE_BYTES = 64 << 20
"""The files of a batch's tasks are merged, for each topic, up to this many compressed bytes."""

STAGING_KEPT = timedelta(days=2)
"""A staging folder whose files are older than this is deleted as left behind."""

Content = TypeVar("Content", bound=msgspec.Struct)
_FOLDERS = pa.schema([("date", pa.date32()), ("topic", pa.string())])


class StagedBatch(NamedTuple):
    """The attempt at a batch that a sink's write belongs to, as in the coordinator's reply to the write."""

    group_id: str
    member_id: str
    plan_id: str
    attempt: int

    @property
    def member(self) -> str:
        """The member, as in the names of journal entries and files. Plan ids begin with the group's incarnation, and
        their numbers start again in a group that was deleted and created again."""
        incarnation = self.plan_id.rpartition(".")[0]
        return hashlib.sha256(json.dumps([self.group_id, incarnation, self.member_id]).encode()).hexdigest()[:16]

    @property
    def number(self) -> int:
        return int(self.plan_id.rpartition(".")[2])


def check_archive(path: str) -> str:
    """Check on the driver, when a query starts, that the archive takes rows: make the folder, write a small file and
    delete it. Returns the location for executors, with an absolute path. Raises ArchiveNotWritable if the file system
    refuses."""
    archive = archive_location(path)
    probe = archive.at(f"_probe-{uuid.uuid4().hex}")
    with archive.named_errors():
        archive.files.create_dir(archive.root, recursive=True)
        with archive.files.open_output_stream(probe) as stream:
            stream.write(b"sharegroup")
        archive.files.delete_file(probe)
    return archive.location


class ArchiveWriter:
    """The rejected rows of one attempt of a task, on an executor. ``write``: the unique name of the sink's write, whose
    staging folder has the files of its tasks. Every method but ``abort`` raises ArchiveNotWritable if the file system
    refuses."""

    def __init__(self, path: str, group_id: str, write: str, task_id: int) -> None:
        self._archive = archive_location(path)
        self._group_id = group_id
        self._folder = f"_staging/{write}"
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
            if topic not in self._files:
                path = f"{self._folder}/topic={quote(topic, safe='')}/{self._name}"
                self._files[topic] = RowFile(self._archive, path)
            self._files[topic].add(rows.filter(pc.equal(topics, topic)))

    def close(self) -> list[str]:
        """Close the files. Returns them for ``finish_batch``, which makes them visible."""
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


def check_files(path: str, files: Iterable[str]) -> None:
    """Check on the driver, before the batch's outcomes are staged, that it sees the tasks' files.

    Raises:
        ArchiveNotWritable: the file system refuses.
        ArchiveRowsMissing: files of the tasks are missing."""
    archive = archive_location(path)
    with archive.named_errors():
        _sizes(archive, list(files))


def finish_batch(path: str, files: Iterable[str], writes: Iterable[str], batch: StagedBatch) -> list[str]:
    """Make the rows of a write visible, on the driver, after its outcomes are staged. Call it for each write, even if
    no row was rejected. ``files``: what ``close`` returned in the winning attempts of the tasks; ``writes``: the names
    of the tasks' writes. Staging is the fence that refuses a driver that was replaced. Spark commits the batch after
    this call, and the staged outcomes take effect only then.

    The rows replace those of all earlier attempts at the batch. If the process is killed in the middle, the replay of
    the batch replaces what it left. If a process was paused in the middle and continues beside its successor, it leaves
    nothing: whichever of the two names its files in the journal later finds the other's entry. Returns the new files,
    relative to the archive.

    Raises:
        ArchiveNotWritable: the file system refuses.
        ArchiveRowsMissing: files of the tasks are missing.
        BatchReclaimed: the archive has rows of a later attempt already."""
    archive = archive_location(path)
    with archive.named_errors():
        entry = _Entry(batch.member, batch.number, batch.attempt, uuid.uuid4().hex)
        plan = _plan(archive, entry, sorted(files))
        if plan or batch.attempt:  # without rows, the first attempt has nothing to name, and nobody to stop
            write_whole(archive, entry.path, Journal(tuple(plan)))
        try:
            for former in _entries_as_newest(archive, batch):
                if (former.plan, former.attempt) < (entry.plan, entry.attempt):
                    _forget(archive, former, with_files=former.plan == entry.plan)
            for target, sources in plan.items():
                _put(archive, target, sources)
            if plan:
                _entries_as_newest(archive, batch)  # a later attempt may have begun, and looked before these rows came
        except BatchReclaimed:
            for file in (*plan, entry.path):
                delete_file(archive, file)
            raise
        for write in writes:
            _clear(archive, f"_staging/{write}")
    return list(plan)


def discard_write(path: str, writes: Iterable[str]) -> None:
    """Delete the files of a failed write, on the driver. Raises nothing: readers do not see files that remain."""
    try:
        archive = archive_location(path)
    except ArchiveNotWritable as error:
        _log.info("archive: the failed batch's files were not deleted: %s", error)
        return
    for write in writes:
        _clear(archive, f"_staging/{write}")


def clear_old_staging(archive: ArchiveLocation) -> None:
    """Delete the staging folders of killed processes: those that did not change for STAGING_KEPT."""
    before = datetime.now(timezone.utc) - STAGING_KEPT
    for folder in archive.folders_in("_staging"):
        within = FileSelector(archive.at(folder), recursive=True)
        infos = [archive.files.get_file_info(archive.at(folder)), *archive.files.get_file_info(within)]
        if all(info.mtime < before for info in infos if info.mtime is not None):  # an object store's folders have none
            _clear(archive, folder)


def archive_dataset(path: str) -> ds.Dataset:
    """Returns the archive as a pyarrow dataset: the columns of ``SCHEMA``, and ``date`` and ``topic``.

    Raises:
        ArchiveNotFound: there is no archive.
        ArchiveNotWritable: the file system refuses."""
    import pyarrow.dataset as ds  # it imports pandas, for which each process of a sink would take 0.2 s

    archive = archive_location(path)
    check_exists(archive)
    with archive.named_errors():
        schema, folders = pa.schema([*SCHEMA, *_FOLDERS]), ds.partitioning(_FOLDERS, flavor="hive")
        return ds.dataset(archive.root, schema, "parquet", archive.files, folders)


def _plan(archive: ArchiveLocation, entry: _Entry, files: Sequence[str]) -> dict[str, list[str]]:
    """Returns for each new file the tasks' files to merge into it, in the order of the tasks."""
    sizes = _sizes(archive, files)
    by_topic: dict[str, list[str]] = {}
    for file in files:
        by_topic.setdefault(file.split("/")[-2], []).append(file)  # its folder, topic=NAME
    today = datetime.now(timezone.utc).date().isoformat()
    return {
        f"date={today}/{topic}/{entry.name}-{number}.parquet": sources
        for topic, of_topic in by_topic.items()
        for number, sources in enumerate(bins(of_topic, sizes, MERGE_BYTES))
    }


def _sizes(archive: ArchiveLocation, files: Sequence[str]) -> dict[str, int]:
    infos = dict(zip(files, archive.files.get_file_info([archive.at(file) for file in files]), strict=True))
    missing = [file for file, info in infos.items() if info.type == FileType.NotFound]
    if missing:
        raise ArchiveRowsMissing(path=without_secrets(archive.location), count=len(missing), example=missing[0])
    return {file: info.size for file, info in infos.items()}


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


def _put(archive: ArchiveLocation, target: str, sources: Sequence[str]) -> None:
    """Make one file visible by a move, which replaces a file of the same path in one step."""
    ready = sources[0]
    if len(sources) > 1:
        ready = f"{sources[0].partition('/topic=')[0]}/{uuid.uuid4().hex}.parquet"
        merge_files(archive, sources, ready)
    archive.files.create_dir(archive.at(target.rpartition("/")[0]), recursive=True)
    archive.files.move(archive.at(ready), archive.at(target))


class Journal(msgspec.Struct, frozen=True):
    """The files that a write of a batch made visible, or was about to make visible."""

    files: tuple[str, ...]


class _Entry(NamedTuple):
    """A file of the journal, for one write of an attempt at a member's plan. A member's next plan deletes the entries
    of its earlier plans."""

    member: str
    plan: int
    attempt: int
    write: str

    @property
    def name(self) -> str:
        return f"{self.member}-{self.plan}-{self.attempt}-{self.write}"

    @property
    def path(self) -> str:
        return f"_journal/{self.name}.json"


_ENTRY = re.compile(r"_journal/([0-9a-f]{16})-(\d+)-(\d+)-([0-9a-f]{32})\.json")


def _entries_as_newest(archive: ArchiveLocation, batch: StagedBatch) -> list[_Entry]:
    """Returns the member's entries of the journal. Raises BatchReclaimed if a later attempt has begun to write."""
    found = (_ENTRY.fullmatch(file) for file in archive.files_in("_journal"))
    entries = [_Entry(each[1], int(each[2]), int(each[3]), each[4]) for each in found if each]
    entries = [entry for entry in entries if entry.member == batch.member]
    if any(entry.plan == batch.number and entry.attempt > batch.attempt for entry in entries):
        raise BatchReclaimed(
            group_id=batch.group_id, row=f"plan {batch.plan_id}, of which the archive has rows of a later attempt"
        )
    return entries


def _forget(archive: ArchiveLocation, entry: _Entry, *, with_files: bool) -> None:
    """Delete an entry of the journal; with ``with_files`` first the files that it names."""
    if with_files:
        with suppress(FileNotFoundError):  # another write of this attempt was faster
            for file in read_json(archive, entry.path, Journal).files:
                delete_file(archive, file)
    delete_file(archive, entry.path)


class _Versioned(msgspec.Struct):
    version: Any = None


def read_json(archive: ArchiveLocation, path: str, kind: type[Content]) -> Content:
    """Returns the content that ``write_whole`` wrote. Raises ArchiveFormatUnknown if the file is damaged, or if another
    version of sharegroup wrote it."""
    with archive.files.open_input_stream(archive.at(path)) as stream:
        written = stream.read()
    try:
        check_version(msgspec.json.decode(written, type=_Versioned).version, ARCHIVE, ARCHIVES_READ)
        return msgspec.json.decode(written, type=kind)
    except (UnknownFormat, *DAMAGED) as error:
        raise ArchiveFormatUnknown(path=without_secrets(archive.location), file=path, reason=error) from None


def write_whole(archive: ArchiveLocation, path: str, content: msgspec.Struct) -> None:
    """Write a small JSON file with the archive's format version in one step: readers see the old or new content."""
    archive.files.create_dir(archive.at(path.rpartition("/")[0]), recursive=True)
    fresh = archive.at(f"{path}.{uuid.uuid4().hex}")
    with archive.files.open_output_stream(fresh) as stream:
        stream.write(msgspec.json.encode({"version": ARCHIVE, **msgspec.structs.asdict(content)}))
    archive.files.move(fresh, archive.at(path))


def delete_file(archive: ArchiveLocation, file: str) -> None:
    """Delete a file if it exists."""
    with suppress(FileNotFoundError):
        archive.files.delete_file(archive.at(file))


def _clear(archive: ArchiveLocation, folder: str) -> None:
    """Delete a staging folder as far as possible: a task attempt that Spark gave up may still write there. Readers do
    not see files that remain."""
    try:
        archive.files.delete_dir(archive.at(folder))
    except FileNotFoundError:
        return
    except OSError as error:
        _log.info("archive: the staging folder %s was not deleted: %s", folder, error)
