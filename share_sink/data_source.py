"""The sink's half of the data source ``sharegroup``: the object behind ``df.writeStream.format("sharegroup")``.

Rule: the options are parsed when Spark asks for a writer, because the format also has a source with other options. The
writers' modules are imported only then, too: each of Spark's processes imports this module, even if it only reads, and
the writers' imports take a third of a second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter
from pyspark.sql.types import StructType

from coordinator.protocol.option_errors import TableRefused
from share_spark.border import named_errors_first

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter


class ShareGroupDataSink(DataSource):
    """Say of each record what became of it: accept, release or reject it, as a column says (docs/do/sink.md).

    Rows need the source's ``topic``, ``partition``, ``offset``, ``deliveryCount`` and ``receipt``, and
    ``acknowledgement``; they may have ``reason``, ``releaseDelayMs`` or ``releaseAt``, and ``key``, ``value`` and
    ``headers`` for the dead letter. docs/do/options.md has the options.

    Examples
    --------
    >>> scored = df.withColumn(
    ...     "acknowledgement", when(col("valid"), "accept").when(col("transient"), "release").otherwise("reject")
    ... )  # doctest: +SKIP
    >>> query = (
    ...     scored.writeStream.format("sharegroup")
    ...     .option("kafka.bootstrap.servers", "localhost:9092")
    ...     .option("kafka.group.id", "billing")
    ...     .option("errors.deadletterqueue.topic.name", "dlq.billing")
    ...     .option("checkpointLocation", "checkpoints/billing")
    ...     .start()
    ... )  # doctest: +SKIP"""

    @classmethod
    def name(cls) -> str:
        return "sharegroup"

    @named_errors_first
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 - Spark's name
        from share_sink.sink import open_sink
        from share_sink.writer import ShareGroupStreamWriter

        return ShareGroupStreamWriter(open_sink(self.options, schema, overwrite=overwrite))

    @named_errors_first
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Returns the writer of ``df.write``. Raises TableRefused if there are no options, as for SQL's INSERT INTO and
        CREATE TABLE ... AS SELECT (seen)."""
        if not self.options:
            raise TableRefused()
        from share_sink.sink import open_sink
        from share_sink.writer import ShareGroupBatchWriter

        return ShareGroupBatchWriter(open_sink(self.options, schema, overwrite=overwrite))
