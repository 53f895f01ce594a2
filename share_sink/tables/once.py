"""``append_once`` and ``merge_once``: write the accepted rows of a batch into a table once, whatever is killed when.

Rule: the rows are computed once, acknowledged, and then written in one commit. The acknowledgement declares what that
commit does on a replay. What is wrong with rows or table is named before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from coordinator.client.options import by_lower_name
from share_sink.columns import ACKNOWLEDGEMENT, RECEIPT, Columns, check_rows
from share_sink.decided_rows import RECORD, decide
from share_sink.errors import BatchAppendedTwice, MissingColumn, QueryNotKnown, TableUnfit
from share_sink.foreach_batch import acknowledge, check_batch_id, sink_options
from share_sink.tables.postgres_table import PostgresTable
from share_sink.tables.spark_table import SparkTable, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Options = Mapping[str, object] | None
_appended: dict[tuple[str, str, str], int] = {}
"""The last batch that this process has appended, by the query's id, the session of its run, and the table."""


def append_once(df: DataFrame, batch_id: int, table: str, options: Options = None) -> None:
    """Acknowledge the rows of ``df``, then append those that are accepted to a table of Delta Lake or Iceberg, unless
    the table has this batch of the query already.

    For foreachBatch, where ``df`` is the batch with the column ``acknowledgement`` and the columns of the table, a name
    as in SQL. ``options`` are those of ``acknowledge``; with Spark Connect they need ``checkpointLocation``.

    Raises:
        TypeError, NoSinkOptions, MissingColumn, WrongColumn: see ``acknowledge``; or a column of the table is missing.
        TableNotOpened, TableUnfit: the table is missing, or can't be appended to once.
        QueryNotKnown: ``df`` is of no running query, or of another batch.
        BatchAppendedTwice: another call for this batch has written the table.
        PySparkException: Spark can't acknowledge or write the rows."""
    _check(df, batch_id, options, "append_once")
    target = SparkTable.open(df.sparkSession, table, "append_once")
    columns = _columns(df, target)
    query_id = _query_of(df.sparkSession, batch_id, by_lower_name(options or {}))
    run = query_id, str(getattr(df.sparkSession, "_jsparkSession", "")), table  # with Connect a run has its own process
    if _appended.get(run) == batch_id:
        raise BatchAppendedTwice(table=table, batch_id=batch_id)
    with _acknowledged(df, batch_id, options, "skips") as rows:
        accepted = rows.where(f"{ACKNOWLEDGEMENT} = 'accept'").select(*map(quoted, columns))
        target.append(accepted, query_id, batch_id)
    _appended[run] = batch_id


def merge_once(
    df: DataFrame, batch_id: int, table: str, options: Options = None, *, database: str | None = None
) -> None:
    """Acknowledge the rows of ``df``, then bring the table to their outcomes: it has a row of each accepted record, and
    none of any other record of ``df``, whatever earlier attempts and other queries have written.

    For foreachBatch, as ``append_once``; the table has the columns ``topic``, ``partition`` and ``offset``.
    ``database``: the connection string of a database of PostgreSQL, whose table is written with psycopg.

    Raises:
        TypeError, NoSinkOptions, MissingColumn, WrongColumn, TableNotOpened, TableUnfit: see ``append_once``.
        PsycopgMissing: psycopg is not installed.
        RecordTwice: a record has several rows. PostgreSQL takes them.
        PySparkException, psycopg.Error: Spark or PostgreSQL can't acknowledge or write the rows."""
    _check(df, batch_id, options, "merge_once")
    target: SparkTable | PostgresTable
    if database is None:
        target = SparkTable.open(df.sparkSession, table, "merge_once")
    else:
        target = PostgresTable.open(database, table)
    columns = _columns(df, target)
    if missing := set(RECORD).difference(map(str.lower, columns)):
        reason = f"it has no column {min(missing)}, and a row is found by its record's topic, partition and offset"
        raise TableUnfit(table=table, reason=reason, instead="Add the columns, or create a table that has them")
    with _acknowledged(df, batch_id, options, "replaces") as rows:
        target.merge(rows.select(*map(quoted, [*columns, ACKNOWLEDGEMENT])), columns)


def _check(df: DataFrame, batch_id: int, options: Options, call: str) -> None:
    check_rows(df, call)
    check_batch_id(batch_id)
    sink_options(df.sparkSession.conf.getAll, options or {})
    Columns.of(df.schema, only=(*RECEIPT, ACKNOWLEDGEMENT))


def _columns(df: DataFrame, table: SparkTable | PostgresTable) -> list[str]:
    """Returns the columns to write, by the table's names, which match in any case. Raises MissingColumn."""
    have = {name.lower() for name in df.columns}
    for name, is_needed in table.columns.items():
        if is_needed and name.lower() not in have:
            wanted, instead = f"a column of the table {table.name}", f"Add {name} to the rows."
            raise MissingColumn(column=name, wanted=wanted, columns=", ".join(df.columns), instead=instead)
    return [name for name in table.columns if name.lower() in have]


@contextmanager
def _acknowledged(df: DataFrame, batch_id: int, options: Options, on_replay: str) -> Iterator[DataFrame]:
    """Acknowledge the rows, and hold them for the body, with ``accept`` in place of null, which means the same."""
    with decide(df) as decided:
        acknowledge(decided, batch_id, {**by_lower_name(options or {}), "outputonreplay": on_replay})
        yield decided.na.fill("accept", [ACKNOWLEDGEMENT])


def _query_of(session: SparkSession, batch_id: int, options: dict[str, str]) -> str:
    """Returns the id of the running query whose batches have this session, which is its own: a thread may have another
    query's local properties. Else that of the query with the checkpoint in the options. Raises QueryNotKnown."""
    from pyspark.sql import SparkSession as Sessions

    checkpoint = options.get("checkpointlocation", "")
    with suppress(Exception):  # Spark Connect has no Java, and py4j raises errors of its own
        active: Any = Sessions.builder.getOrCreate().streams.active
        running = [each._jsq.streamingQuery() for each in active]
        (query,) = (each for each in running if each.sparkSessionForStream().equals(session._jsparkSession))
        checkpoint = ""
        if query.lastExecution().currentBatchId() == batch_id:
            return str(query.id())
    if not checkpoint:
        raise QueryNotKnown(reason=f"no running query is at batch {batch_id} with these rows")
    try:
        return str(session.read.json(f"{checkpoint}/metadata").collect()[0]["id"])
    except Exception as error:
        reason = f"{checkpoint} is no checkpoint of a query ({str(error).splitlines()[0]})"
        raise QueryNotKnown(reason=reason) from error
