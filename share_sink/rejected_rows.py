"""Handles a task's rejected rows: writes dead letters, then the archive, then reports the rows to the driver.

Rule: rows are written in slices, so that a task that rejects everything holds only one slice in memory."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.outcome_rows import SCHEMA, coalesce
from coordinator.protocol.values import LONGEST_REASON, AcknowledgeType
from share_sink.archive.batches import ArchiveWriter
from share_sink.columns import DELIVERY_COUNT, OFFSET, PARTITION, REASON
from share_sink.rejected_row_writer import RejectedRowWriter, completed, replacements
from share_sink.rows import TOPIC_ID
from share_sink.sink import Sink

SLICE_ROWS = 10_000
"""Rejected rows are written after this many rows."""
SLICE_BYTES = 16 << 20
"""Rejected rows are written once they reach this many bytes."""


class RejectedRows:
    """The rejected rows of one task, as a context manager. Call ``finish`` at the end. If the block raises, the task's
    files in the archive are deleted."""

    def __init__(self, sink: Sink, task_id: int) -> None:
        self._sink = sink
        self._dead_letters = RejectedRowWriter(sink) if sink.opened.dead_letter_topic else None
        self._archive: ArchiveWriter | None = None
        if sink.archive:
            self._archive = ArchiveWriter(sink.archive, sink.options.group_id, sink.name, task_id)
        self._waiting: list[pa.Table] = []
        self._runs: list[pa.Table] = []
        self.lost_replacements = 0
        self.files: tuple[str, ...] = ()

    def __enter__(self) -> RejectedRows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and self._archive is not None:
            self._archive.abort()

    @property
    def are_kept(self) -> bool:
        """Whether rejected rows are written anywhere. If not, reject is an outcome like any other."""
        return self._dead_letters is not None or self._archive is not None

    def add(self, rows: pa.Table) -> None:
        if rows.num_rows:
            self._waiting.append(rows)
        size = sum(int(table.nbytes) for table in self._waiting)
        if size >= SLICE_BYTES or sum(table.num_rows for table in self._waiting) >= SLICE_ROWS:
            self._write()

    def finish(self) -> list[pa.Table]:
        """Write the remaining rows and close the files. Returns all rejected rows as runs of
        coordinator.protocol.outcome_rows."""
        self._write()
        if self._archive is not None:
            self.files = tuple(self._archive.close())
        return self._runs

    def _write(self) -> None:
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting).combine_chunks()
        self._waiting = []
        rows, written = self._with_dead_letters(rows)
        if self._archive is not None:
            self._archive.write(rows)
        if self._dead_letters is not None and not all(written):
            missing = rows.filter(pa.array([not is_written for is_written in written]))
            self.lost_replacements += replacements(missing, self._sink)
        self._runs.append(self._as_runs(rows, written))

    def _with_dead_letters(self, rows: pa.Table) -> tuple[pa.Table, list[bool]]:
        """Write the dead letters. Returns the rows with the archive's columns, and for each whether it was written."""
        copied = self._dead_letters is not None and self._sink.opened.copy_record
        try:
            full = completed(rows, self._sink) if copied or self._archive is not None else rows
        except ShareGroupError as error:
            # The coordinator can read a source record later; nobody can write a row to the archive later.
            if self._dead_letters is None or self._archive is not None:
                raise
            return rows, self._dead_letters.give_up(rows.num_rows, str(error))
        return full, self._dead_letters.write(full) if self._dead_letters is not None else [False] * rows.num_rows

    def _as_runs(self, rows: pa.Table, written: list[bool]) -> pa.Table:
        count = rows.num_rows
        dead_letter = pa.array(written, pa.bool_())
        return coalesce(
            pa.table(
                [
                    rows[TOPIC_ID],
                    rows[PARTITION],
                    rows[OFFSET],
                    rows[OFFSET],
                    rows[DELIVERY_COUNT],
                    pa.repeat(pa.scalar(int(AcknowledgeType.REJECT), pa.int8()), count),
                    pa.nulls(count, pa.int64()),
                    dead_letter,
                    self._reasons(rows, dead_letter),
                ],
                schema=SCHEMA,
            )
        )

    def _reasons(self, rows: pa.Table, dead_letter: Any) -> Any:
        """Returns the reasons of the rows whose dead letters the coordinator writes; null for other rows."""
        if self._dead_letters is None or REASON not in rows.column_names:
            return pa.nulls(rows.num_rows, pa.string())
        reasons = pc.utf8_slice_codeunits(rows[REASON], 0, LONGEST_REASON)
        return pc.if_else(dead_letter, pa.scalar(None, pa.string()), reasons)
