"""The Spark data source ``sharegroup``: the object behind ``spark.readStream.format("sharegroup")``.

Rule: making or pickling the data source and its reader does no I/O, since Spark makes them on executors too, and more
than once. ``schema()`` parses the options, not the constructor, since the format also has a sink with other options:
Spark calls ``schema()`` on the driver at ``load()``, and never for a sink. So wrong options and missing topics are
found before the query starts, and a coordinator on demand starts while Spark plans the query."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from coordinator.client.group_options import start_ahead
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.option_errors import TableRefused
from share_source.arrow_schema import spark_schema
from share_source.driver.cluster_check import check_at_load
from share_source.driver.refused_reader import RefusedReader
from share_source.errors import BatchReadRefused, SchemaRefused, ViewIsNoStream
from share_source.options import SourceOptions
from share_source.source_option_table import VIEW
from share_source.spark_protocol import HAS_ADMISSION_CONTROL
from share_spark.border import named_errors_first

_OF_A_TABLE = "provider"
"""The option that Spark adds if SQL's CREATE TABLE asks for the columns (seen)."""


class ShareGroupDataSource(DataSource):
    """Read Kafka topics as a share group: many queries on one partition, a lock per record, redelivery.

    Options are spelled as those of Spark's Kafka source, in any case (docs/do/options.md has all of them). Required:
    ``kafka.bootstrap.servers``, ``kafka.group.id``, and one of ``subscribe``, ``subscribePattern``, ``assign``.

    Examples
    --------
    Nothing needs to be registered once the package is installed.

    >>> df = (
    ...     spark.readStream.format("sharegroup")
    ...     .option("kafka.bootstrap.servers", "localhost:9092")
    ...     .option("subscribe", "orders")
    ...     .option("kafka.group.id", "billing")
    ...     .option("startingOffsets", "earliest")
    ...     .load()
    ... )  # doctest: +SKIP"""

    @classmethod
    def name(cls) -> str:
        return "sharegroup"

    @named_errors_first
    def schema(self) -> StructType:
        """Returns the columns of Spark's Kafka source and ``deliveryCount``, or those of the view in the option
        ``view``.

        Raises:
            TableRefused: SQL's CREATE TABLE asks for the columns.
            ShareGroupError: an option is wrong, or the cluster does not have a subscribed topic."""
        if _OF_A_TABLE in self.options:
            raise TableRefused()
        if VIEW in self.options:
            from share_source.views.reader import ViewOptions  # only views need its imports

            return ViewOptions.parse(self.options).spark_schema()
        options = SourceOptions.parse(self.options)
        start_ahead(options, check_at_load(options))
        return spark_schema(options.include_headers)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Returns the reader of a query. After ``.schema(...)``, Spark calls no other method of the source before this
        one (seen). So the reader's first call raises the error for bad options, or for columns that are not the
        source's."""
        try:
            if VIEW in self.options:
                raise ViewIsNoStream()
            options = SourceOptions.parse(self.options)
            own = spark_schema(options.include_headers)
            if [(field.name, field.dataType) for field in schema] != [(field.name, field.dataType) for field in own]:
                columns = schema.simpleString().removeprefix("struct<").removesuffix(">")
                raise SchemaRefused(columns=columns, fixed=", ".join(own.names))
        except ShareGroupError as error:
            return RefusedReader(error)
        if HAS_ADMISSION_CONTROL:
            from share_source.driver.reader import ShareGroupStreamReader

            return ShareGroupStreamReader(options)
        from share_source.driver.reader_without_start import StreamReaderWithoutStart

        return StreamReaderWithoutStart(options)

    @named_errors_first
    def reader(self, schema: StructType) -> DataSourceReader:
        """Returns the reader of a view. Spark calls this at the first action, since ``load()`` is the same for batch
        and stream (seen).

        Raises:
            BatchReadRefused: no view is named.
            ShareGroupError: an option is wrong."""
        if VIEW not in self.options:
            raise BatchReadRefused()
        from share_source.views.reader import ViewOptions, ViewReader

        return ViewReader(ViewOptions.parse(self.options))
