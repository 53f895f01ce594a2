"""The reader of a streaming query on Spark 4.2 and newer, where ``latestOffset(start, limit)`` says which batch is
committed (admission control, SPARK-55304)."""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from coordinator.protocol.messages import LatestOffsets
from share_source.driver.plan_reader import PlanReader
from share_source.errors import TriggerOnceRefused
from share_source.options import SourceOptions
from share_spark.border import named_errors_first

NO_LIMIT = ReadMaxRows(2**63 - 1)
"""The read limit of a query without maxOffsetsPerTrigger. Not ReadAllAvailable, which only Trigger.Once sends."""
REPORT_EVERY_S = 1.0
"""The end offsets in the query's progress are asked for at most every this many seconds; Spark asks at each trigger."""
REPORT_IDLE_EVERY_S = 5.0
"""The end offsets of an idle query are asked for at most every this many seconds; Spark reports every ten."""


class ShareGroupStreamReader(PlanReader, SupportsTriggerAvailableNow):
    """The stream reader of Spark 4.2 and newer."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._reported: tuple[float, dict[str, Any]] | None = None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        most = self._options.max_offsets_per_trigger
        return NO_LIMIT if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._available_now = True

    @named_errors_first
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Complete ``start``, whose batch is committed. Then acquire the next plan. Returns ``start`` if there is
        nothing to acquire.

        Raises:
            TriggerOnceRefused: the query runs with Trigger.Once.
            ShareGroupError: the checkpoint is wrong (see PlanOffset.parse), or the coordinator refuses the request."""
        if isinstance(limit, ReadAllAvailable):
            raise TriggerOnceRefused()
        most = limit.max_rows if isinstance(limit, ReadMaxRows) and limit != NO_LIMIT else None
        return self._next_offset(start, most)

    @named_errors_first
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Returns the end offsets of the subscribed partitions, for the query's progress. They may be a second old, or
        five seconds while the query is idle."""
        if self._session is None:
            return None
        now_s, every_s = time.monotonic(), REPORT_IDLE_EVERY_S if self._pace.is_idle else REPORT_EVERY_S
        if self._reported is None or now_s - self._reported[0] > every_s:
            reply = self._session.call(lambda who: LatestOffsets(**who))
            self._reported = (now_s, dict(reply.ends))
        return self._reported[1]
