"""The format refuses some uses whatever their options: batch reads, other columns, SQL tables."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from coordinator.protocol.option_errors import MissingOption, TableRefused
from pyspark_sharegroup import DefaultSource
from share_source.arrow_schema import spark_schema
from share_source.driver.reader import ShareGroupStreamReader
from share_source.errors import BatchReadRefused, SchemaRefused

OPTIONS = {"kafka.bootstrap.servers": "localhost:9092", "kafka.group.id": "billing", "subscribe": "orders"}


def test_a_batch_read_is_refused_with_the_streaming_replacement() -> None:
    with pytest.raises(BatchReadRefused, match=r"readStream.*trigger\(availableNow=True\)"):
        DefaultSource(OPTIONS).reader(spark_schema())


def test_columns_that_are_not_the_sources_are_refused() -> None:
    wanted = StructType().add("value", "string").add("more", "integer")
    with pytest.raises(
        SchemaRefused, match=r"deliveryCount, receipt\), .* others: value:string,more:int\. Remove \.schema"
    ):
        DefaultSource(OPTIONS).streamReader(wanted).initialOffset()
    with pytest.raises(SchemaRefused, match="deliveryCount, receipt"):  # a schema from before receipts
        DefaultSource(OPTIONS).streamReader(StructType(spark_schema().fields[:-1])).initialOffset()
    with pytest.raises(SchemaRefused):
        DefaultSource({**OPTIONS, "includeHeaders": "true"}).streamReader(spark_schema()).getDefaultReadLimit()


def test_the_sources_own_columns_are_taken() -> None:
    assert isinstance(DefaultSource(OPTIONS).streamReader(spark_schema()), ShareGroupStreamReader)


def test_a_sql_table_is_refused_before_its_options_are_read() -> None:
    for options in ({"provider": "sharegroup", "owner": "me"}, {**OPTIONS, "PROVIDER": "sharegroup"}):
        with pytest.raises(TableRefused, match="createOrReplaceTempView"):
            DefaultSource(_as_spark(options)).schema()


def test_a_writer_without_options_is_a_sql_table_s() -> None:
    with pytest.raises(TableRefused):
        DefaultSource({}).writer(spark_schema(), overwrite=False)
    with pytest.raises(MissingOption):
        DefaultSource({"kafka.group.id": "billing"}).writer(spark_schema(), overwrite=False)


def _as_spark(options: dict[str, str]) -> dict[str, str]:
    """Spark's map of options finds a name in any case."""
    from pyspark.sql.datasource import CaseInsensitiveDict

    return CaseInsensitiveDict(options)
