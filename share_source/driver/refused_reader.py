"""The reader of a query that can't be read: its first call raises the named error.

Spark hides an error that ``streamReader`` raises. Its process for a source then calls ``stop`` on a reader that does
not exist, and Spark shows that error instead (seen in 4.2 and 4.3; read in 4.0 and 4.1)."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader

from coordinator.protocol.errors import ShareGroupError
from share_source.spark_protocol import HAS_ADMISSION_CONTROL
from share_spark.border import named_errors_first


class RefusedReader(DataSourceStreamReader):
    """Raises the error in every method that Spark may call first."""

    def __init__(self, error: ShareGroupError) -> None:
        self._error = error

    @named_errors_first
    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise self._error

    initialOffset = getDefaultReadLimit = latestOffset = prepareForTriggerAvailableNow = _refuse  # noqa: N815
    partitions = read = _refuse

    def stop(self) -> None:
        """Does nothing."""


if HAS_ADMISSION_CONTROL:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

    SupportsTriggerAvailableNow.register(RefusedReader)
