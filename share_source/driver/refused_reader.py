"""The reader of a query that can't be read: its first call raises the named error.

Spark hides an error that ``streamReader`` raises. Its process for a source then calls ``stop`` on a reader that does
not exist, and Spark shows that error instead (seen in 4.2 and 4.3; read in 4.0 and 4.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from coordinator.protocol.errors import ShareGroupError
from share_source.spark_protocol import HAS_ADMISSION_CONTROL
from share_spark.border import named_errors_first


class RefusedReader(DataSourceStreamReader):
    """Raises the error in every method that Spark may call first."""

    def __init__(self, error: ShareGroupError) -> None:
        self._error = error

    @named_errors_first
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        raise self._error

    @named_errors_first
    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        raise self._error

    @named_errors_first
    def latestOffset(self, *start_and_limit: Any) -> dict[str, Any]:  # noqa: N802 - Spark's name
        raise self._error

    @named_errors_first
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        raise self._error

    @named_errors_first
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        raise self._error

    @named_errors_first
    def read(self, partition: InputPartition) -> Iterator[Any]:
        raise self._error

    def stop(self) -> None:
        """Does nothing."""


if HAS_ADMISSION_CONTROL:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

    SupportsTriggerAvailableNow.register(RefusedReader)
