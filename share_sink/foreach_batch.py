"""``acknowledge``: the batch writer for foreachBatch, in one call."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from share_sink.errors import NoSinkOptions
from share_sink.query_batch import batch_of_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PREFIX = "spark.sharegroup."
REQUIRED = ("kafka.bootstrap.servers", "kafka.group.id")


def acknowledge(df: DataFrame, batch_id: int, options: Mapping[str, object] | None = None) -> None:
    """Stage what the rows of ``df`` say of the records of batch ``batch_id``; it takes effect when that is complete.

    For foreachBatch, where ``df`` is the batch with the column ``acknowledgement``. Acknowledge first, then write: the
    other way round loses records with a sink that skips a batch which it knows already. ``options`` are those of the
    sink (docs/options.md); what it does not have is taken from the session's configuration, ``spark.sharegroup.NAME``.

    NoSinkOptions if the group or the brokers are named nowhere; else what the format's writer raises, inside of Spark's
    own exception.

    >>> def each(batch, batch_id):
    ...     acknowledge(batch.selectExpr("*", "if(ok, 'accept', 'reject') acknowledgement"), batch_id)
    ...     batch.where("ok").write.mode("append").parquet("billing")
    >>> df.writeStream.foreachBatch(each).start()  # doctest: +SKIP
    """
    told = sink_options(df.sparkSession.conf.getAll, options or {})
    told["batchid"] = str(batch_id)
    batch = batch_of_session(df.sparkSession, batch_id)
    if batch is not None:
        told["batchoffsets"] = json.dumps(batch)
    told["batchwrite"] = str(_writes.next(_run_of(df.sparkSession), batch_id))
    df.write.format("sharegroup").options(**told).mode("append").save()


def sink_options(conf: Mapping[str, str], options: Mapping[str, object]) -> dict[str, str]:
    """By lower-case name: the options, and for what they do not have those in the session's configuration.
    NoSinkOptions."""
    found = {key[len(PREFIX) :].lower(): value for key, value in conf.items() if key.startswith(PREFIX)}
    found |= {name.lower(): _text(value) for name, value in options.items() if value is not None}
    for name in REQUIRED:
        if not found.get(name, "").strip():
            raise NoSinkOptions(option=name)
    return found


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Writes:
    """Counts the calls in a batch, for the archive: a batch's first write replaces the same one of an earlier attempt.

    By run of the query, since a restart writes a batch again from its first write on."""

    def __init__(self) -> None:
        self._counting = threading.Lock()
        self._last: dict[str, tuple[int, int]] = {}

    def next(self, run_id: str, batch_id: int) -> int:
        """From 0 on."""
        with self._counting:
            last_batch, write = self._last.get(run_id, (batch_id, -1))
            self._last[run_id] = (batch_id, write + 1 if last_batch == batch_id else 0)
            return self._last[run_id][1]


_writes = _Writes()


def _run_of(session: SparkSession) -> str:
    """The run of the query in whose foreachBatch this is; empty where nobody says (Spark Connect)."""
    from pyspark.errors import PySparkException

    try:
        return session.sparkContext.getLocalProperty("spark.jobGroup.id") or ""
    except PySparkException:  # such a session has no context
        return ""
