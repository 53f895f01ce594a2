"""Python sources to measure against: one that does nothing, and sharegroup with Python's reader.

``nothing`` yields Arrow batches that are ready, as many records and tasks as it is told: what Spark itself costs a
Python source, so the floor. ``sharegroup-python`` is sharegroup without the compiled reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from share_source.arrow_schema import arrow_schema, spark_schema
from share_source.data_source import ShareGroupDataSource
from share_source.driver.reader import ShareGroupStreamReader
from share_source.executor.reader_choice import PYTHON
from share_source.options import SourceOptions
from tests.support.read_tasks import reading_with

ARROW_RECORDS = 10_000


class NothingSource(DataSource):
    """A source of ``records`` records, ``valueBytes`` each, ``tasks`` a batch, ``maxOffsetsPerTrigger`` a batch."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def schema(self) -> StructType:
        return spark_schema()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return NothingReader(self.options)


class Count(InputPartition):
    """The number of records of a task."""

    def __init__(self, records: int) -> None:
        super().__init__(None)
        self.records = records


class NothingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader that yields ready-made batches without reading anything. The offset is the number of records so far."""

    def __init__(self, options: Any) -> None:
        self.options = {name.lower(): value for name, value in options.items()}
        self.records = int(self.options["records"])

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return {"records": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(int(self.options["maxoffsetspertrigger"]))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        pass

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self.records
        return {"records": min(start["records"] + most, self.records)}

    def commit(self, end: dict[str, Any]) -> None:
        pass

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        count, tasks = end["records"] - start["records"], int(self.options["tasks"])
        return [Count(count // tasks + (task < count % tasks)) for task in range(tasks)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        ready = _ready(int(self.options["valuebytes"]))
        full, rest = divmod(partition.records, ARROW_RECORDS)
        yield from [ready] * full
        if rest:
            yield ready.slice(0, rest)


@lru_cache(maxsize=4)
def _ready(value_bytes: int) -> pa.RecordBatch:
    count = ARROW_RECORDS
    of_field = {
        "value": pa.array([b"v" * value_bytes] * count, pa.binary()),
        "topic": pa.array(["topic"] * count, pa.string()),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        "timestamp": pa.array([1_700_000_000_000_000] * count, pa.timestamp("us", tz="UTC")),
        "timestampType": pa.array([0] * count, pa.int32()),
        "deliveryCount": pa.array([1] * count, pa.int32()),
        "receipt": pa.array([1] * count, pa.int64()),
    }
    columns = [of_field.get(each.name, pa.nulls(count, each.type)) for each in arrow_schema()]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema())


class WithPython(ShareGroupDataSource):
    """The source sharegroup, whose tasks read with Python's reader in the same workers."""

    @classmethod
    def name(cls) -> str:
        return "sharegroup-python"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return WithPythonReader(SourceOptions.parse(self.options))


class WithPythonReader(ShareGroupStreamReader):
    """A reader of queries whose tasks take the Python path."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with reading_with(PYTHON):
            yield from super().read(partition)
