"""The base class of a stream's writer that gets Arrow batches.

Spark 4.1 introduced DataSourceStreamArrowWriter. Spark 4.0 passes Arrow batches to every DataSourceArrowWriter, also a
stream's (docs/trust/facts.md, S27)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import datasource

if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
else:

    class StreamArrowWriter(datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter):
        """A stream's writer in Spark 4.0."""


__all__ = ["StreamArrowWriter"]
