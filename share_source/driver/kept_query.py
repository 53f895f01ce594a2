"""Keeps a query running: starts it again, in the same Spark session, after it has ended with an error.

Each start from the same checkpoint replays the batch that failed, and counts as a try of its records, as the start of a
new process does (docs/learn/concepts.md, "Isolation"). So a bad record is found within seconds. Rule: the state is in
the group and in the checkpoint, never here: a process that is killed at any time leaves what a failed query leaves."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pyspark import SparkContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tenacity import RetryCallState, Retrying, retry_if_exception

from coordinator.protocol import errors
from coordinator.protocol.errors import ShareGroupError, by_name
from coordinator.protocol.host_errors import OwnerMissing
from coordinator.protocol.log_lines import log_as_chosen
from share_source.errors import CheckpointChanged, ReadFailed, RecordsDamaged, RecordsGone
from share_spark.log import LOGGERS
from share_spark.query_cause import Cause, cause_of
from share_spark.thread_session import use_session

MAX_RESTARTS = 100
"""A query that fails this many times in a row, and completes no batch meanwhile, is not started again. With its pauses
that takes a quarter of an hour or more, and a record that always fails needs about seven."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 10.0
"""Before its first restart the query pauses for the first number of seconds, and before each further one twice as long,
up to the second number: pause and start have to end within share.session.timeout.ms (45 s by default)."""

WAITS = (errors.OutageTooLong, errors.CoordinatorUnreachable, OwnerMissing)
"""These errors, and the retriable ones, say that brokers or coordinators are away. Restarts then have no limit."""
PASSES = (
    *(errors.CoordinatorNotStarted, errors.DataLoss, errors.DiskFull, errors.InternalError, errors.SinkOutdated),
    *(errors.StaleReceipts, errors.StateStoreInUse, errors.UnknownMemberId, ReadFailed, RecordsDamaged, RecordsGone),
)
"""After these errors, the next start may succeed. Any other named error needs a person to correct something, or says
that another process runs on the checkpoint, which a restart would fence."""

_log = logging.getLogger(__name__)


def keep_running(start: Callable[[], StreamingQuery], *, max_restarts: float = MAX_RESTARTS) -> StreamingQuery:
    """Start the query and wait until it ends, as awaitTermination does. If it ends with an error, start it again, in
    the same Spark session, after a pause of up to ten seconds.

    ``start`` starts the query, from the same checkpoint each time: ``keep_running(writer.start)``. ``max_restarts``:
    how often the query is started again without completing a batch that has a record; waiting for brokers or a
    coordinator does not count. Returns the query that has ended without an error: by ``query.stop()``, or because its
    AvailableNow run is complete.

    Raises:
        TypeError: ``start`` is no function, or does not return a query; or ``max_restarts`` is no number.
        CheckpointChanged: ``start`` returned a query with another checkpoint.
        StreamingQueryException: the query ended with an error that a restart does not mend, or too often.
        Exception: ``start`` raised it, or the Spark session has ended."""
    given: object = start
    if not callable(given):
        raise TypeError(
            f"keep_running takes the function that starts the query, as writer.start; this is a {type(given).__name__}"
        )
    if isinstance(max_restarts, bool) or not isinstance(max_restarts, int | float) or not max_restarts >= 0:
        raise TypeError(f"max_restarts is a number of restarts, from 0 on, and not {max_restarts!r}")
    log_as_chosen(LOGGERS)
    _use_session(start)
    kept = _KeptQuery(start, max_restarts)
    again = Retrying(retry=retry_if_exception(kept.may_start_again), wait=kept.pause_s, before_sleep=kept.log_restart)
    return again(kept.run)


def _use_session(start: Callable[[], StreamingQuery]) -> None:
    """Give this thread the query's Spark session, as far as it is known; a thread that has one keeps it otherwise."""
    with suppress(Exception):  # a session that has ended: start() says so
        session: Any = getattr(getattr(start, "__self__", None), "_spark", None)
        if session is None and SparkSession.getActiveSession() is None:
            session = SparkSession._instantiatedSession
        if isinstance(session, SparkSession):
            use_session(session)


class _KeptQuery:
    """The query's starts, and what its last end was."""

    def __init__(self, start: Callable[[], StreamingQuery], max_restarts: float) -> None:
        self._start, self._max_restarts = start, max_restarts
        self._query: StreamingQuery | None = None
        self._cause = Cause("", "")
        self._in_a_row = self._counted = 0  # restarts since the last completed batch: all, and those with a limit

    def run(self) -> StreamingQuery:
        """Start the query once, and wait for its end."""
        query = self._start()
        if not hasattr(query, "awaitTermination"):
            raise TypeError(f"start() has to return a StreamingQuery, and returned a {type(query).__name__}")
        if self._query is not None and query.id != self._query.id:
            query.stop()
            raise CheckpointChanged(started=query.id, ended=self._query.id)
        self._query = query
        query.awaitTermination()
        return query

    def may_start_again(self, error: BaseException) -> bool:
        """Whether a restart may help after this error; counts it. Says in the log why not."""
        if self._query is None or not isinstance(error, Exception) or isinstance(error, CheckpointChanged):
            return False
        has_run = isinstance(error, StreamingQueryException)  # else start() failed, or the session
        self._cause = cause_of(str(error))
        named = by_name().get(self._cause.name) or (ShareGroupError if self._cause.name else None)
        waits = named is not None and (named.retriable or issubclass(named, WAITS))
        if not waits and (not has_run or (named is not None and not issubclass(named, PASSES))):
            return self._ended("a restart does not help")
        if has_run and _session_has_ended(self._query):
            return self._ended("its Spark session has ended")
        if has_run and _completed_a_batch(self._query):
            self._in_a_row = self._counted = 0
        self._in_a_row += 1
        self._counted += not waits
        if self._counted > self._max_restarts:
            return self._ended(f"it has failed {self._counted} times in a row, and completed no batch with a record")
        return True

    def pause_s(self, _: RetryCallState | None = None) -> float:
        return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(self._in_a_row - 1, 10)))

    def log_restart(self, _: RetryCallState) -> None:
        since = f"restart {self._in_a_row} since it last completed a batch"
        _log.warning(
            "query %s: %s - it starts again in %.1f s (%s)", self._name, self._cause.text, self.pause_s(), since
        )

    def _ended(self, why: str) -> bool:
        _log.error("query %s: %s - it is not started again: %s", self._name, self._cause.text, why)
        return False

    @property
    def _name(self) -> str:
        assert self._query is not None
        return self._query.name or str(self._query.id)


def _completed_a_batch(query: StreamingQuery) -> bool:
    """Whether this start of the query has completed a batch that had a record. Isolation may leave a batch without
    any, which shows no progress: in an outage such batches are completed, too."""
    last: Any = query.lastProgress
    return last is not None and any(each.numInputRows > 0 for each in (last, *query.recentProgress))


def _session_has_ended(query: object) -> bool:
    """Whether the query's Spark session can start no query any more. Spark Connect's client raises another error."""
    if not isinstance(query, StreamingQuery):
        return False
    context: Any = SparkContext._active_spark_context
    return context is None or context._jsc is None or bool(context._jsc.sc().isStopped())
