"""Collects the changes of runs that a command decides, as log records by partition.

Nothing is changed here: replay does that. A command must name each offset at most once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, Generic, TypeVar

from coordinator.config.resolved import GroupConfig
from coordinator.core.log_records import RunsChanged
from coordinator.core.record_state import TERMINAL, Event, RecordState, move
from coordinator.core.runs import Run, Segment
from coordinator.protocol.values import Disposition, SharePartitionKey

After = TypeVar("After")


class Changes:
    """The new runs by partition, in the order in which the command named them."""

    def __init__(self) -> None:
        self._runs: dict[SharePartitionKey, list[tuple[int, int, Run]]] = {}
        self._count = 0

    def __len__(self) -> int:
        """The number of runs."""
        return self._count

    def put(self, key: SharePartitionKey, first: int, last: int, run: Run) -> None:
        self._count += 1
        self._runs.setdefault(key, []).append((first, last, run))

    def put_all(self, key: SharePartitionKey, segments: Iterable[Segment]) -> None:
        for segment in segments:
            self.put(key, *segment)

    def records(self) -> list[RunsChanged]:
        """One log record a partition, its offsets ascending."""
        return [
            RunsChanged(**key._asdict(), runs=tuple(sorted(runs, key=itemgetter(0))))
            for key, runs in self._runs.items()
        ]


def moved(run: Run, event: Event, **fields: Any) -> Run:
    """The run after ``event``, with these fields changed. A terminal run keeps nothing but its delivery count, so that
    neighbours merge. A run that was IN_PROGRESS loses its signals."""
    state = move(run.state, event)
    if state in TERMINAL:
        return Run(state, run.delivery_count)
    if run.state == RecordState.IN_PROGRESS:
        run = run._replace(progress=None)
    return run._replace(state=state, **fields)


def archived(run: Run, event: Event, config: GroupConfig, disposition: Disposition, reason: str = "") -> Run:
    """The run given up by ``event``: ARCHIVING with the reason for its dead letter, or ARCHIVED at once if the group
    has no dead letter topic. Of the other fields only the delivery count stays."""
    archiving = Run(move(run.state, event), run.delivery_count, disposition=disposition, reason=reason)
    return archiving if config.errors_deadletterqueue_topic_name else dead_lettered(archiving)


def dead_lettered(run: Run) -> Run:
    """The ARCHIVING run as ARCHIVED: its dead letter is written, or not wanted. The disposition stays, for the
    counts."""
    return Run(move(run.state, Event.WRITE_DEAD_LETTER), run.delivery_count, disposition=run.disposition)


def acquired(run: Run, plan_id: int, now_ms: int, deadline_ms: int | None = None) -> Run:
    """The run acquired under ``plan_id``, with its delivery count raised by one. The fields are written out, since
    ``_replace`` would take time in each batch."""
    after = Run(
        move(run.state, Event.ACQUIRE),
        run.delivery_count + 1,
        run.failures,
        run.releases,
        plan_id,
        deadline_ms,
        None,
        run.quarantined,
        run.failed_alone_ms,
        now_ms if run.quarantined else None,
        run.trials_lost,
    )
    return after._replace(query_failures=run.query_failures) if run.query_failures else after


class MemoizedTransition(Generic[After]):
    """A function from a run to the run after a command (or None), which is called once for all equal runs: most runs of
    a command are equal."""

    def __init__(self, decide: Callable[[Run], After]) -> None:
        self._decide = decide
        self._of: dict[Run, After] = {}

    def __call__(self, run: Run) -> After:
        try:
            return self._of[run]
        except KeyError:
            after = self._of[run] = self._decide(run)
            return after


def count_records(segments: Iterable[Segment]) -> int:
    """Returns how many offsets the segments have in all."""
    return sum(segment.last - segment.first + 1 for segment in segments)


def split_at(segment: Segment, offset: int) -> list[Segment]:
    """The segment in two parts, the second of which begins at ``offset``; one part if no cut is needed."""
    if segment.first < offset <= segment.last:
        return [segment._replace(last=offset - 1), segment._replace(first=offset)]
    return [segment]
