"""The reader of a streaming query on Spark 4.0 and 4.1, whose ``latestOffset()`` has no arguments.

The order of Spark's calls tells which batch is committed (share_source.driver.logged_end). A plan has at most
maxOffsetsPerTrigger records with any trigger, since Spark does not say which trigger runs. AvailableNow is one batch,
whose plan is completed when the query starts again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql.datasource import InputPartition

from share_source.driver.logged_end import LoggedEnd
from share_source.driver.plan_reader import PlanReader
from share_source.errors import LogNotTold
from share_source.options import SourceOptions
from share_spark.border import named_errors_first


class StreamReaderWithoutStart(PlanReader):
    """The stream reader of Spark 4.0 and 4.1."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._log = LoggedEnd()

    @named_errors_first
    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802 - Spark 4.0's signature
        """Complete the last batch in Spark's log, which is committed by now. Then acquire the next plan. Returns the
        end of that batch again if there is nothing to acquire.

        Raises:
            LogNotTold: the order of the calls does not tell which batch is committed.
            ShareGroupError: the checkpoint is wrong (see PlanOffset.parse), or the coordinator refuses the request."""
        try:
            committed = dict(self._log.latest_asked(self.initialOffset()))
        except LogNotTold as error:
            self._leave(error)
            raise
        answer = self._next_offset(committed, self._options.max_offsets_per_trigger)
        self._log = self._log.answered(committed, answer)
        return answer

    @named_errors_first
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Returns the tasks of the plan in ``end``; none if ``start`` equals ``end``, which only names the end of
        Spark's log. Raises LogNotTold as :meth:`latestOffset`, and what :meth:`PlanReader.partitions` raises."""
        try:
            self._log = self._log.partitions_asked(start, end)
        except LogNotTold as error:
            self._leave(error)
            raise
        return super().partitions(start, end)

    def _leave(self, error: LogNotTold) -> None:
        """Leave the group at once: other members get the records that this process acquired and Spark will not use."""
        if self._session is not None:
            self._session.tell_ending(error)
            self._session.close(leave=True)
