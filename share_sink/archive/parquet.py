"""The columns of an archive's rows, and the Parquet files that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

import pyarrow as pa
import pyarrow.parquet as pq

from coordinator.protocol.arrow_types import HEADERS, TIMESTAMP
from share_sink.archive.location import ArchiveLocation

ROW_GROUP_BYTES = 16 << 20
"""Rows stay in memory until they reach this many uncompressed bytes; then they are written as a row group."""

SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("deliveryCount", pa.int32()),
        pa.field("group", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("time", TIMESTAMP),
    ]
)
"""The columns of a file. ``timestamp`` is the record's, ``time`` the time of archiving. A column is null if the sink's
rows did not have it. Columns may be added at the end; no column is ever changed."""


def archive_rows(table: pa.Table, group_id: str) -> pa.Table:
    """Returns the rows with exactly the columns of ``SCHEMA``."""
    count = table.num_rows
    added = {
        "group": pa.repeat(pa.scalar(group_id), count),
        "time": pa.repeat(pa.scalar(datetime.now(timezone.utc), TIMESTAMP), count),
    }
    given = {name for name in table.column_names if name in SCHEMA.names} - added.keys()
    found = {**added, **{name: table.column(name).cast(SCHEMA.field(name).type) for name in given}}
    return pa.table([found.get(field.name, pa.nulls(count, field.type)) for field in SCHEMA], schema=SCHEMA)


class RowFile:
    """A Parquet file of an archive, written in row groups of ROW_GROUP_BYTES. Every method raises ArchiveNotWritable if
    the file system refuses."""

    def __init__(self, archive: ArchiveLocation, path: str) -> None:
        self.path = path
        self._archive = archive
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        with archive.named_errors():
            archive.files.create_dir(archive.at(path.rpartition("/")[0]), recursive=True)
            self._writer = pq.ParquetWriter(archive.at(path), SCHEMA, filesystem=archive.files)

    def add(self, rows: pa.Table) -> None:
        """Add rows of ``SCHEMA``. All of them are in the file once it is closed."""
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        with self._archive.named_errors():
            self._writer.close()

    def discard(self) -> None:
        with self._archive.named_errors():
            self._writer.close()
            self._archive.files.delete_file(self._archive.at(self.path))

    def _flush(self) -> None:
        if self._held:
            with self._archive.named_errors():
                self._writer.write_table(pa.concat_tables(self._held).combine_chunks())
        self._held, self._held_bytes = [], 0


def merge_files(archive: ArchiveLocation, sources: Sequence[str], target: str) -> None:
    """Merge several files into one. In memory are only one row group of a source and one of the new file. Raises
    ArchiveNotWritable if the file system refuses."""
    merged = RowFile(archive, target)
    with archive.named_errors():
        for source in sources:
            with archive.files.open_input_file(archive.at(source)) as stream, pq.ParquetFile(stream) as file:
                for number in range(file.num_row_groups):
                    merged.add(file.read_row_group(number))
    merged.close()
