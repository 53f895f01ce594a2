"""The signals of a query's tasks, which show people how far the work on a batch is.

Rule: a signal never fails, delays or blocks a task. A thread of the process sends the newest signal of a task, at most
one a second. A signal that can't be sent is dropped, and each reason is logged once."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from typing import NamedTuple

from pyspark import TaskContext

from coordinator.protocol.errors import CoordinatorNotAvailable
from coordinator.protocol.messages import ReportProgress
from coordinator.protocol.repeated_lines import LogOnce
from coordinator.protocol.values import MOST_HINT_BYTES
from share_spark.log import log_for_query
from share_spark.task_client import client_of, here
from share_spark.task_plans import BATCH_ID, QUERY_ID, TaskPlan, noted, want_start

EVERY_S = 1.0
"""Two signals of one task are at least this many seconds apart."""
ANSWER_TIMEOUT_S = 5.0
"""A signal waits this many seconds for its reply."""
START_S = 60.0
"""If no coordinator takes a signal, it is sent again for this many seconds, while one starts on this host."""

_log = logging.getLogger(__name__)
_once = LogOnce(_log)

_NO_QUERY = "it is called in no task of a streaming query"
_NO_PLAN = "no task on this host has read the batch: the records come from another host (after a shuffle)"


class _Signal(NamedTuple):
    query_id: str
    batch_id: str
    task: int
    hint: str | None


def progress(hint: str | None = None) -> None:
    """Say that this task works on its query's batch, and how far it is: people see it beside the query's plan.

    It is for UDFs, mapInPandas and any other function that Spark runs on an executor.

    ``hint`` is cut after MOST_HINT_BYTES of UTF-8; None: the task's last hint stays. Returns at once,
    and raises nothing. It has no effect outside of a streaming query. Where the query's coordinator is on demand, and
    on another host, the first signal starts one on this host, which passes signals on over Kafka.

    >>> def score(batches):
    ...     for number, batch in enumerate(batches):
    ...         progress(f"batch {number}")
    ...         yield batch.assign(score=model(batch))
    >>> df.mapInPandas(score, schema).writeStream.start()  # doctest: +SKIP"""
    try:
        context = TaskContext.get()
        query_id = context.getLocalProperty(QUERY_ID) if context else None
        batch_id = context.getLocalProperty(BATCH_ID) if context else None
        if context is None or not query_id or not batch_id:
            _say(_NO_QUERY)
            return
        _sender().take(_Signal(query_id, batch_id, context.taskAttemptId(), _cut(hint)))
    except Exception as error:  # noqa: BLE001 - a signal never fails a task
        _say(f"{type(error).__name__}: {error}")


def _cut(hint: str | None) -> str | None:
    """Returns the hint in up to MOST_HINT_BYTES of UTF-8, without half a character at its end."""
    if hint is None:
        return None
    return str(hint).encode("utf-8", "replace")[:MOST_HINT_BYTES].decode("utf-8", "ignore")


class _Sender:
    """Sends the newest signal of the process's task. Its daemon thread ends with the process."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._newest: _Signal | None = None
        self._failing_since_s: float | None = None
        self.pid = os.getpid()
        threading.Thread(target=self._run, name="share-task-progress", daemon=True).start()

    def take(self, signal: _Signal) -> None:
        """Replace the waiting signal. If this signal has no hint, the waiting one's hint stays."""
        with self._news:
            waiting = self._newest
            if signal.hint is None and waiting is not None and waiting.task == signal.task:
                signal = signal._replace(hint=waiting.hint)
            self._newest = signal
            self._news.notify()

    def _run(self) -> None:
        sent_s, task = 0.0, -1
        while True:
            with self._news:
                self._news.wait_for(lambda: self._newest is not None)
                while self._newest is not None and self._newest.task == task and (left_s := self._left_s(sent_s)) > 0:
                    self._news.wait(left_s)
                signal, self._newest = self._newest, None
            if signal is not None:
                sent_s, task = time.monotonic(), signal.task
                if not self._send(signal):
                    with self._news:
                        self._newest = self._newest or signal

    def _left_s(self, sent_s: float) -> float:
        return sent_s + EVERY_S - time.monotonic()

    def _send(self, signal: _Signal) -> bool:
        """Returns whether the signal is done; else it must be sent again."""
        plan: TaskPlan | None = None
        try:
            plans = noted(signal.query_id, signal.batch_id)
            if not plans:
                _say(_NO_PLAN)
            for plan in plans:
                log_for_query(group=plan.group_id)
                client_of(plan).ask(_request(plan, signal), plan.group_id, once=True, answer_timeout_s=ANSWER_TIMEOUT_S)
            self._failing_since_s = None
        except Exception as error:  # noqa: BLE001 - a signal never fails a task
            if isinstance(error, CoordinatorNotAvailable) and plan is not None and self._may_start(plan):
                return False
            _say(f"{type(error).__name__}: {error}")
        return True

    def _may_start(self, plan: TaskPlan) -> bool:
        """Whether a coordinator on demand may start here soon, or has just started, and then take signals."""
        now_s = time.monotonic()
        self._failing_since_s = self._failing_since_s or now_s
        if not plan.state_store or now_s - self._failing_since_s > START_S:
            return False
        return want_start(here(plan.cluster_id, plan.state_store).key)


def _request(plan: TaskPlan, signal: _Signal) -> ReportProgress:
    return ReportProgress(
        group_id=plan.group_id,
        member_id=plan.member_id,
        member_epoch=plan.member_epoch,
        plan_id=plan.plan_id,
        task=signal.task,
        host=socket.gethostname(),
        hint=signal.hint,
    )


_making = threading.Lock()
_senders: list[_Sender] = []


def _sender() -> _Sender:
    """Returns the sender of this process. A fork needs a new one, because it has no thread of its parent."""
    with _making:
        if not _senders or _senders[0].pid != os.getpid():
            _senders[:] = [_Sender()]
        return _senders[0]


def _say(reason: str) -> None:
    """Log why signals have no effect, once per process."""
    if _once.changes(reason, True):
        log_for_query()
        _log.warning("sharegroup.progress() has no effect: %s", reason)
