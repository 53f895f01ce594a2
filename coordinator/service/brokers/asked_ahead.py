"""The brokers' answers that the start of a plan needs. They are requested when the plan is acquired, while Spark writes
its log, so the batch does not wait for the brokers.

Rule: an answer serves the process that acquired the plan, once, and for ANSWERS_MS after its request. A replay, a later
start, and a plan with other partitions ask the brokers again. So does a start if the answer says that a topic is
deleted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from coordinator.protocol.messages import Plan
from coordinator.protocol.values import TopicAndPartition

ANSWERS_MS = 1_000
"""An answer serves for this many milliseconds after its request. On a busy Spark, too, a task begins to read about this
long after the start of its plan, and finds out itself what has happened to the log meanwhile."""
MOST_KEPT = 1_000
"""The answers of up to this many plans are kept."""
AFTER_REPLY_S = 0.003
"""A request waits this many seconds, so that the plan's reply goes out first, and need not share the interpreter with
the request."""


class StartFacts(NamedTuple):
    """The log starts of a plan's partitions, and those ids of the plan's topics that no topic has any more."""

    log_starts: dict[TopicAndPartition, int]
    gone: frozenset[str]


class AfterReplies(ThreadPoolExecutor):
    """Threads whose work begins AFTER_REPLY_S later."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        def later() -> Any:
            time.sleep(AFTER_REPLY_S)
            return function(*arguments, **options)

        return super().submit(later)


class _Asked(NamedTuple):
    at_ms: int
    partitions: frozenset[tuple[str, str, int]]
    answer: Future[StartFacts]


class AskedAhead:
    """The requests sent ahead, by group and plan. Thread-safe."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._asked: dict[tuple[str, str], _Asked] = {}

    def __len__(self) -> int:
        return len(self._asked)

    def ask(self, group_id: str, plan: Plan, threads: Executor, question: Callable[[], StartFacts]) -> None:
        """Send the request for the start of this plan, in one of the threads."""
        partitions = frozenset((part.topic, part.topic_id, part.partition) for part in plan.partitions)
        asked = _Asked(self._now_ms(), partitions, threads.submit(question))
        with self._lock:
            self._asked[group_id, plan.plan_id] = asked
            surplus = [self._asked.pop(key) for key in list(self._asked)[:-MOST_KEPT]]
        for unused in surplus:
            unused.answer.cancel()

    def take(self, group_id: str, plan_id: str, partitions: frozenset[tuple[str, str, int]]) -> StartFacts | None:
        """Returns the answer, once, for a plan of these partitions (topic, topic id, partition); None if the brokers
        must be asked. Waits for a request under way. Raises ShareGroupError if the brokers did not answer the question.
        """
        with self._lock:
            asked = self._asked.pop((group_id, plan_id), None)
        if asked is None or asked.answer.cancel():
            return None  # no thread was free: all of them wait for hanging brokers
        if self._now_ms() - asked.at_ms > ANSWERS_MS or not partitions <= asked.partitions:
            return None
        facts = asked.answer.result()
        return None if facts.gone else facts
