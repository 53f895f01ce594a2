"""``in_order``: defers what follows a record that waits, for batches of an ordered group (docs/learn/order.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from share_sink.columns import ACKNOWLEDGEMENT, OFFSET, PARTITION, RELEASE_AT, RELEASE_DELAY, TOPIC, Columns, check_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def in_order(df: DataFrame) -> DataFrame:
    """Returns the rows of ``df`` with the outcome ``defer`` for each row after a released or deferred one of its
    partition: that record comes again, and the records after it must not be done before it.

    For foreachBatch, between the decision and ``acknowledge``: ``df`` is the batch with the column ``acknowledgement``.
    A rejected row holds up no other. Rows that change lose their ``releaseDelayMs`` or ``releaseAt``. All rows of a
    partition are in one task, in offset order.

    >>> def each(batch, batch_id):
    ...     with decide(in_order(batch.withColumn("acknowledgement", outcome("value")))) as decided:
    ...         acknowledge(decided, batch_id)
    ...         decided.where("acknowledgement = 'accept'").write.mode("append").parquet("billing")
    >>> df.writeStream.foreachBatch(each).start()  # doctest: +SKIP"""
    from pyspark.sql import Window
    from pyspark.sql.functions import bool_or, coalesce, col, lit, when

    check_rows(df, "in_order")
    Columns.of(df.schema, only=(TOPIC, PARTITION, OFFSET, ACKNOWLEDGEMENT))
    earlier = Window.partitionBy(TOPIC, PARTITION).orderBy(OFFSET).rangeBetween(Window.unboundedPreceding, -1)
    comes_again = col(ACKNOWLEDGEMENT).isin("release", "defer")
    waits = coalesce(bool_or(comes_again).over(earlier), lit(False))
    changed = {ACKNOWLEDGEMENT: when(waits, "defer").otherwise(col(ACKNOWLEDGEMENT))}
    keeps = ~waits | (col(ACKNOWLEDGEMENT).eqNullSafe("defer"))
    for name in (RELEASE_DELAY, RELEASE_AT):
        if name.lower() in map(str.lower, df.columns):
            changed[name] = when(keeps, col(name))
    return df.withColumns(changed).sortWithinPartitions(TOPIC, PARTITION, OFFSET)
