"""Changes of runs that a command decides, collected by partition, as log records.

Nothing is changed here: replay does that. A command names each offset at most once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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

    def records(self) -> list[RunsChanged]:
        """One log record a partition, its offsets ascending."""
        return [
            RunsChanged(topic_id=key.topic_id, partition=key.partition, runs=tuple(sorted(runs, key=_first)))
            for key, runs in self._runs.items()
        ]


def _first(entry: tuple[int, int, Run]) -> int:
    return entry[0]


def moved(run: Run, event: Event, **fields: Any) -> Run:
    """The run after ``event``. A terminal run keeps its delivery count and nothing else, so that neighbours merge; the
    signals of a run that was IN_PROGRESS are forgotten."""
    state = move(run.state, event)
    if state in TERMINAL:
        return Run(state, run.delivery_count)
    if run.state == RecordState.IN_PROGRESS:
        run = run._replace(progress=None)
    return run._replace(state=state, **fields)


def archived(run: Run, event: Event, config: GroupConfig, disposition: Disposition, reason: str = "") -> Run:
    """The run given up by ``event``: ARCHIVING, with the reason for its dead letter, or ARCHIVED at once where the
    group has no dead letter topic. Besides these it keeps its delivery count only."""
    archiving = Run(move(run.state, event), run.delivery_count, disposition=disposition, reason=reason)
    return archiving if config.errors_deadletterqueue_topic_name else dead_lettered(archiving)


def dead_lettered(run: Run) -> Run:
    """The ARCHIVING run, ARCHIVED: its dead letter is written, or not wanted. It keeps its disposition, which is
    counted."""
    return Run(move(run.state, Event.WRITE_DEAD_LETTER), run.delivery_count, disposition=run.disposition)


def acquired(run: Run, plan_id: int, now_ms: int, deadline_ms: int | None = None) -> Run:
    """The run, acquired under ``plan_id``: delivery count + 1. The fields are written out, as ``_replace`` would cost
    time in each batch."""
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
    """A change of a run, decided once for all runs that are alike: most runs of a command are. ``After``: a run, or
    None where the command does not concern the run."""

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
    """How many offsets the segments have together."""
    return sum(segment.last - segment.first + 1 for segment in segments)


def split_at(segment: Segment, offset: int) -> list[Segment]:
    """The segment in two parts, of which ``offset`` begins the second; in one part if the offset does not lie
    inside."""
    if segment.first < offset <= segment.last:
        return [segment._replace(last=offset - 1), segment._replace(first=offset)]
    return [segment]
