"""The writers of streams and batches: executors turn rows into runs, and the driver's commit stages them.

Spark makes both writers in a Python worker on the driver's host, and pickles them for the tasks. For every batch it
makes a stream's writer again in the process that commits (seen). So a writer keeps only its constructor's arguments,
and tasks return their results in messages. Rule: an outcome counts only once the commit has staged it, and takes effect
only when the plan completes. A batch that fails or is aborted leaves no outcome."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from coordinator.protocol.errors import ShareGroupError, UnsafeDirectory
from coordinator.protocol.messages import OutcomesStaged, StageOutcomes
from coordinator.protocol.outcome_rows import SCHEMA, coalesce, settled
from coordinator.protocol.values import client_text
from share_sink.archive.batches import StagedBatch, check_files, discard_write, finish_batch
from share_sink.rejected_rows import RejectedRows
from share_sink.rows import check_delivered, is_rejected, outcome_rows, rejected_rows
from share_sink.sink import Sink, coordinator_of, telling_the_group
from share_spark.border import named_errors_first
from share_spark.log import log_for_query
from share_spark.task_client import tell_task_error
from share_spark.task_plans import BATCH_ID, DESCRIPTION, QUERY_ID, TaskPlan, noted, query_name

if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
else:

    class StreamArrowWriter(datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter):
        """A stream's writer in Spark 4.0, which passes Arrow batches to it, too (docs/trust/facts.md, S27)."""


_log = logging.getLogger(__name__)

NO_BATCH = -1
"""The batch id of rows that no query writes."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The query and the batch of the rows, from Spark's local properties of the task. Only for people, because a thread
    of foreachBatch has none, or another query's. If unknown, ``query_id`` and ``query_name`` are empty, and
    ``batch_id`` is NO_BATCH."""

    query_id: str = ""
    query_name: str = ""
    batch_id: int = NO_BATCH

    def __str__(self) -> str:
        query = f" of query {self.query_id}" if self.query_id else ""
        return "rows of no query" if self.batch_id == NO_BATCH else f"batch {self.batch_id}{query}"


@dataclass(frozen=True, kw_only=True)
class TaskOutcomes(WriterCommitMessage):
    """The outcomes of one task's rows, for the driver. ``runs``: an Arrow stream of
    coordinator.protocol.outcome_rows.SCHEMA. ``incarnation``: the group's, as in the rows' receipts. ``files``: the
    task's files in the archive, in the staging folder of ``write``. ``plans``: the plans of the batch that tasks on
    this host have read, with the epoch of their member."""

    batch: Batch
    write: str
    plans: dict[str, int] = field(default_factory=dict)
    incarnation: str
    runs: bytes
    rows: int = 0
    lost_replacements: int = 0
    files: tuple[str, ...] = ()


class _TaskWriter:
    """What both writers do in a task."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    @named_errors_first
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """As :func:`write_task`. A named error reaches the group as well."""
        try:
            return write_task(self._sink, iterator)
        except ShareGroupError as error:
            tell_task_error(_plans_of(self._sink, TaskContext.get()), error)
            raise


class ShareGroupStreamWriter(_TaskWriter, StreamArrowWriter):
    """The writer of ``df.writeStream.format("sharegroup")``."""

    @named_errors_first
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        with telling_the_group(self._sink.options):
            commit_batch(self._sink, messages, batchId, has_target=False)

    @named_errors_first
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        abort_batch(self._sink, messages)


class ShareGroupBatchWriter(_TaskWriter, DataSourceArrowWriter):
    """The writer of ``df.write.format("sharegroup")`` in foreachBatch. Only the tasks know the batch of their rows."""

    @named_errors_first
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with telling_the_group(self._sink.options):
            commit_batch(self._sink, messages)

    @named_errors_first
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        abort_batch(self._sink, messages)


def write_task(sink: Sink, batches: Iterator[pa.RecordBatch]) -> TaskOutcomes:
    """Turn a task's rows into outcomes, on an executor. For rejected rows, write the dead letters, then the archive's
    files.

    Raises:
        IncompleteReceipt, UnknownOutcome, RenewRefused, InvalidReleaseDelay: a row has wrong values.
        RowsOfAnotherGroup: a row is of no topic that the group knows.
        NeverDelivered: the group can't have delivered a row.
        ArchiveNotWritable: the archive's file system refuses."""
    context = TaskContext.get()
    batch = _batch_of(sink, context)
    log_for_query(group=sink.options.group_id, query=sink.options.query_name or batch.query_name or batch.query_id)
    decided: list[pa.Table] = []
    rows = 0
    task_id = context.partitionId() if context else 0
    with RejectedRows(sink, task_id) as rejected:
        for record_batch in batches:
            rows += record_batch.num_rows
            outcomes = outcome_rows(record_batch, sink)
            check_delivered(outcomes, sink)
            if rejected.are_kept:
                rejected.add(rejected_rows(record_batch, sink.columns, outcomes))
                outcomes = outcomes.filter(pc.invert(is_rejected(outcomes)))
            decided.append(coalesce(outcomes))
        decided += rejected.finish()
        return TaskOutcomes(
            batch=batch,
            write=sink.name,
            plans={plan.plan_id: plan.member_epoch for plan in _plans_of(sink, context)},
            incarnation=sink.opened.incarnation,
            runs=_to_bytes(coalesce(pa.concat_tables([SCHEMA.empty_table(), *decided]))),
            rows=rows,
            lost_replacements=rejected.lost_replacements,
            files=rejected.files,
        )


def commit_batch(
    sink: Sink, messages: Sequence[WriterCommitMessage | None], batch_id: int | None = None, *, has_target: bool = True
) -> OutcomesStaged:
    """Stage the outcomes of all tasks, on the driver; even if there are none, so that the coordinator knows that the
    batch has a sink. ``has_target``: the query may have another output, as in foreachBatch.

    Raises:
        ArchiveNotWritable, ArchiveRowsMissing: see share_sink.archive.batches.
        ShareGroupError: the coordinator refuses the outcomes."""
    tasks = [message for message in messages if isinstance(message, TaskOutcomes)]
    batch = tasks[0].batch if tasks else _batch_of(sink, None)
    if batch_id is not None:
        batch = replace(batch, batch_id=batch_id)
    log_for_query(group=sink.options.group_id, query=sink.options.query_name or batch.query_name or batch.query_id)
    files = [file for task in tasks for file in task.files]
    if sink.archive:
        check_files(sink.archive, files)
    runs_of_tasks = (pa.ipc.open_stream(task.runs).read_all() for task in tasks)
    runs, contradicting = settled(coalesce(pa.concat_tables([SCHEMA.empty_table(), *runs_of_tasks])))
    request = StageOutcomes(
        group_id=sink.options.group_id,
        incarnation=tasks[0].incarnation if tasks else sink.opened.incarnation,
        plans=dict(sorted(named for task in tasks for named in task.plans.items())),  # a host may have an older note
        query_id=batch.query_id,
        query_name=client_text(sink.options.query_name or batch.query_name),
        checkpoint=client_text(sink.options.checkpoint),
        acknowledgement_mode=sink.options.acknowledgement_mode,
        replaces=sink.options.replaces,
        has_target=has_target,
        batch_id=batch.batch_id,
        rows=sum(task.rows for task in tasks),
        lost_replacements=sum(task.lost_replacements for task in tasks),
        contradicting=sum(contradicting.values()),
        fail_on_stale=sink.options.fail_on_stale,
    )
    staged = coordinator_of(sink.options).call_with_rows(request, runs)
    _log_stale(sink.options.group_id, batch, staged)
    _log_contradicting(sink.options.group_id, batch, contradicting, staged.contradicted)
    if sink.archive and staged.attempt is not None:
        of_batch = StagedBatch(sink.options.group_id, staged.member_id, staged.plan_id, staged.attempt)
        finish_batch(sink.archive, files, {task.write for task in tasks}, of_batch)
    elif sink.archive:
        abort_batch(sink, messages)  # no row's outcome counts: the archive stays as it is
    return staged


def abort_batch(sink: Sink, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Stage nothing, and delete the tasks' files in the archive. Written dead letters stay; readers recognize
    duplicates by their origin."""
    if sink.archive:
        written = {message.write for message in messages if isinstance(message, TaskOutcomes)}
        discard_write(sink.archive, {sink.name, *written})


def _batch_of(sink: Sink, context: TaskContext | None) -> Batch:
    query = context.getLocalProperty(QUERY_ID) if context else None
    number = context.getLocalProperty(BATCH_ID) if context and query else None
    chosen = sink.options.batch_id
    return Batch(
        query_id=query or "",
        query_name=query_name(context.getLocalProperty(DESCRIPTION), query) if context and query else "",
        batch_id=chosen if chosen is not None else int(number) if number else NO_BATCH,
    )


def _plans_of(sink: Sink, context: TaskContext | None) -> list[TaskPlan]:
    """Returns the plans of the task's batch in the sink's group, as noted on this host by the tasks that read them.
    None if no task of the batch has read here, or if the task's thread is not its query's: a thread of foreachBatch has
    no query or, in a pool that several queries use, another one."""
    query_id = context.getLocalProperty(QUERY_ID) if context else None
    batch_id = context.getLocalProperty(BATCH_ID) if context else None
    if not query_id or not batch_id or str(_batch_of(sink, context).batch_id) != batch_id:
        return []
    with suppress(OSError, UnsafeDirectory):
        return [plan for plan in noted(query_id, batch_id) if plan.group_id == sink.options.group_id]
    return []


def _log_stale(group_id: str, batch: Batch, staged: OutcomesStaged) -> None:
    if staged.stale:
        _log.warning(
            "share group %s, %s: %s record(s) were not acknowledged, because the query no longer holds them at their "
            "deliveryCount (they were delivered again, or are done): %s%s",
            *(group_id, batch, staged.stale, ", ".join(staged.stale_sample)),
            ", ..." if staged.stale > len(staged.stale_sample) else "",
        )


def _log_contradicting(group_id: str, batch: Batch, contradicting: dict[str, int], contradicted: int) -> None:
    """Log, in one line, how many records have rows that contradict each other, or an earlier commit of the batch."""
    found = [f"{said}: {count}" for said, count in sorted(contradicting.items())]
    found += [f"another one in an earlier acknowledge() or save(): {contradicted}"] if contradicted else []
    if found:
        _log.warning(
            "share group %s, %s: %d record(s) have different outcomes (%s). They are released, and given up after "
            "share.delivery.count.limit releases: give each record one outcome, in one row of one acknowledge() or "
            "save() (an explode or a join may have made several rows of a record)",
            *(group_id, batch, sum(contradicting.values()) + contradicted, "; ".join(found)),
        )


def _to_bytes(runs: pa.Table) -> bytes:
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, runs.schema) as writer:
        writer.write_table(runs)
    return bytes(stream.getvalue().to_pybytes())
