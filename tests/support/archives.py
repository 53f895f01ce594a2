"""Archives in tests: rows as a sink rejects them, batches of several tasks, a stranger who reads, a killed process."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import FileSystemHandler, LocalFileSystem, PyFileSystem

from share_sink.archive.batches import ArchiveWriter, StagedBatch, finish_batch
from share_sink.archive.location import ArchiveLocation


def staged(number: int, attempt_number: int = 0, **of: str) -> StagedBatch:
    """The attempt at the plan of this number that the coordinator has staged. ``of``: another group, member or
    incarnation."""
    plan_id = f"{of.get('incarnation', 'i1')}.{number}"
    return StagedBatch(of.get("group_id", "billing"), of.get("member_id", "m1"), plan_id, attempt_number)


def rejected(topic: str, *offsets: int, **columns: list) -> pa.Table:
    """Rows as a sink rejects them."""
    count = len(offsets)
    return pa.table(
        {
            "topic": pa.array([topic] * count, pa.string()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "deliveryCount": pa.array([1] * count, pa.int32()),
            "reason": pa.array(["broken"] * count, pa.string()),
            **columns,
        }
    )


def attempt(path, task_id: int, *tables: pa.Table, write: str = "w") -> list[str]:
    """The files of a task of this write."""
    writer = ArchiveWriter(str(path), "billing", write, task_id)
    for table in tables:
        writer.write(table)
    return writer.close()


def batch(path, number: int, *tables: pa.Table, attempt_number: int = 0, **of: str) -> list[str]:
    """A write with a task for each table."""
    write = uuid.uuid4().hex
    files = [file for task, table in enumerate(tables) for file in attempt(path, task, table, write=write)]
    return finish_batch(str(path), files, [write], staged(number, attempt_number, **of))


def read(path) -> list[tuple[str, int]]:
    """Topic and offset of all rows, read without any code of ours."""
    if not list(Path(path).glob("date=*/*/*")):
        return []
    table = ds.dataset(str(path), partitioning="hive").to_table(columns=["topic", "offset"])
    return sorted((str(row["topic"]), row["offset"]) for row in table.to_pylist())


class Killed(BaseException):
    """The process ends here."""


class Mortal(FileSystemHandler):
    """A local file system whose process is killed at its n-th change."""

    def __init__(self, lives: int) -> None:
        self.lives, self._local = lives, LocalFileSystem()

    def _change(self) -> None:
        self.lives -= 1
        if self.lives < 0:
            raise Killed

    def __eq__(self, other):
        return self is other

    __hash__ = object.__hash__

    def get_type_name(self):
        return "mortal"

    def normalize_path(self, path):
        return path

    def get_file_info(self, paths):
        return self._local.get_file_info(paths)

    def get_file_info_selector(self, selector):
        return self._local.get_file_info(selector)

    def create_dir(self, path, recursive):
        self._local.create_dir(path, recursive=recursive)

    def delete_dir(self, path):
        self._change()
        self._local.delete_dir(path)

    def delete_dir_contents(self, path, missing_dir_ok=False):
        raise NotImplementedError

    def delete_root_dir_contents(self):
        raise NotImplementedError

    def delete_file(self, path):
        self._change()
        self._local.delete_file(path)

    def move(self, src, dest):
        self._change()
        self._local.move(src, dest)

    def copy_file(self, src, dest):
        raise NotImplementedError

    def open_input_stream(self, path):
        return self._local.open_input_stream(path)

    def open_input_file(self, path):
        return self._local.open_input_file(path)

    def open_output_stream(self, path, metadata):
        self._change()
        return self._local.open_output_stream(path)

    def open_append_stream(self, path, metadata):
        raise NotImplementedError


class Stopped(Mortal):
    """A local file system whose process is stopped at its n-th change, and continues after ``meanwhile``."""

    def __init__(self, lives: int, meanwhile: Callable[[], object]) -> None:
        super().__init__(lives)
        self._meanwhile = meanwhile

    def _change(self) -> None:
        self.lives -= 1
        if self.lives == -1:
            self._meanwhile()


def mortal_place(mortal: Mortal):
    """A substitute for ``archive_location`` in a process that is killed."""
    return lambda path: ArchiveLocation(path, PyFileSystem(mortal), str(path))
