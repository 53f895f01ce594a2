"""The rows of an archive, and how they are put into a Parquet file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

import pyarrow as pa
import pyarrow.parquet as pq

from coordinator.protocol.arrow_types import HEADERS, TIMESTAMP
from share_sink.archive.location import ArchiveLocation

ROW_GROUP_BYTES = 16 << 20
"""So much of a file is held in memory before it is written (uncompressed)."""

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
"""The columns of a file. ``timestamp`` is the record's, ``time`` that of the archiving; a column that the sink's rows
did not have is null. Columns may be added at the end; none is ever changed."""


def archive_rows(table: pa.Table, group_id: str) -> pa.Table:
    """The rows in the columns of ``SCHEMA``; columns that it does not have are left out."""
    count = table.num_rows
    known = {
        "group": pa.repeat(pa.scalar(group_id), count),
        "time": pa.repeat(pa.scalar(datetime.now(timezone.utc), TIMESTAMP), count),
    }
    return pa.table(
        [
            known[field.name]
            if field.name in known
            else table.column(field.name).cast(field.type)
            if field.name in table.column_names
            else pa.nulls(count, field.type)
            for field in SCHEMA
        ],
        schema=SCHEMA,
    )


class RowFile:
    """A Parquet file of an archive, written in row groups of a good size. ArchiveNotWritable."""

    def __init__(self, place: ArchiveLocation, path: str) -> None:
        self.path = path
        self._place = place
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        with place.named_errors():
            place.files.create_dir(place.at(path.rpartition("/")[0]), recursive=True)
            self._writer = pq.ParquetWriter(place.at(path), SCHEMA, filesystem=place.files)

    def add(self, rows: pa.Table) -> None:
        """Rows of ``SCHEMA``; they are in the file when it is closed."""
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """The file is whole now."""
        self._flush()
        with self._place.named_errors():
            self._writer.close()

    def discard(self) -> None:
        """Away with it."""
        with self._place.named_errors():
            self._writer.close()
            self._place.files.delete_file(self._place.at(self.path))

    def _flush(self) -> None:
        if self._held:
            with self._place.named_errors():
                self._writer.write_table(pa.concat_tables(self._held).combine_chunks())
        self._held, self._held_bytes = [], 0


def merge_files(place: ArchiveLocation, sources: Sequence[str], target: str) -> None:
    """The rows of several files as one file; at most a row group of each is in memory. ArchiveNotWritable."""
    merged = RowFile(place, target)
    with place.named_errors():
        for source in sources:
            with place.files.open_input_file(place.at(source)) as stream, pq.ParquetFile(stream) as file:
                for number in range(file.num_row_groups):
                    merged.add(file.read_row_group(number))
    merged.close()
