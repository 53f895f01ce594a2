"""``acknowledge``: the batch writer for foreachBatch, in one call."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from coordinator.client.options import by_lower_name
from share_sink.columns import check_rows
from share_sink.decided_rows import refuse_changing
from share_sink.errors import NoSinkOptions
from share_spark.task_plans import QUERY_ID
from share_spark.thread_session import use_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PREFIX = "spark.sharegroup."
REQUIRED = ("kafka.bootstrap.servers", "kafka.group.id")


def acknowledge(df: DataFrame, batch_id: int, options: Mapping[str, object] | None = None) -> None:
    """Stage the outcomes in the rows of ``df`` for the records of batch ``batch_id``; they take effect when the batch
    is complete.

    For foreachBatch, where ``df`` is the batch with the column ``acknowledgement``. Acknowledge first, then write: the
    other order loses records with an output that skips a batch which it has already. ``options`` are the sink's
    (docs/do/options.md); options that are not given come from the session's configuration, ``spark.sharegroup.NAME``.

    Raises:
        TypeError: ``df`` is no DataFrame of a batch, or ``batch_id`` no whole number.
        OutcomesMayChange: a UDF, the time or a random value decides, and ``decide`` does not hold the rows.
        NoSinkOptions: neither ``options`` nor the session's configuration name the group or the brokers.
        PySparkException: the writer failed; Spark's exception has the error of the writer.

    >>> def each(batch, batch_id):
    ...     acknowledge(batch.selectExpr("*", "if(ok, 'accept', 'reject') acknowledgement"), batch_id)
    ...     batch.where("ok").write.mode("append").parquet("billing")
    >>> df.writeStream.foreachBatch(each).start()  # doctest: +SKIP"""
    check_rows(df, "acknowledge")
    check_batch_id(batch_id)
    refuse_changing(df)
    chosen = sink_options(df.sparkSession.conf.getAll, options or {})
    chosen.setdefault("checkpointlocation", _checkpoint_of(df.sparkSession))
    chosen["batchid"] = str(batch_id)
    use_session(df.sparkSession)  # Spark finds the sink there
    df.write.format("sharegroup").options(**chosen).mode("append").save()


def check_batch_id(batch_id: object) -> None:
    """Raise TypeError if this is no whole number."""
    if isinstance(batch_id, bool) or not isinstance(batch_id, int):
        raise TypeError(f"batch_id is the number that foreachBatch gives, and no {type(batch_id).__name__}")


def sink_options(conf: Mapping[str, str], options: Mapping[str, object]) -> dict[str, str]:
    """Returns the sink's options by lower-case name: ``options``, else the session's configuration. Raises
    NoSinkOptions if a required option is missing."""
    merged = {key[len(PREFIX) :].lower(): value for key, value in conf.items() if key.startswith(PREFIX)}
    merged |= by_lower_name(options)
    for name in REQUIRED:
        if not merged.get(name, "").strip():
            raise NoSinkOptions(option=name)
    return merged


def _checkpoint_of(session: SparkSession) -> str:
    """Returns the checkpoint of foreachBatch's query, as Spark's Java knows it; empty if unknown (Spark Connect)."""
    from pyspark.sql import SparkSession as Sessions

    with suppress(Exception):  # py4j's errors too: no batch fails for what people are shown
        query_id = session.sparkContext.getLocalProperty(QUERY_ID) or ""
        query = Sessions.builder.getOrCreate().streams.get(query_id)  # the batch's own session has no queries
        return str(query._jsq.streamingQuery().resolvedCheckpointRoot())  # type: ignore[union-attr]
    return ""
