"""Changes: what a command is about to do to runs, gathered by partition, as records.

Nothing is changed here. A command names each offset at most once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from coordinator.config.resolved import GroupConfig
from coordinator.core.record_state import TERMINAL, Event, move
from coordinator.core.records import RunsChanged
from coordinator.core.runs import Run, Segment
from coordinator.protocol.values import Disposition, SharePartitionKey


class Changes:
    """New runs by partition, in the order in which they were named."""

    def __init__(self) -> None:
        self._runs: dict[SharePartitionKey, list[tuple[int, int, Run]]] = {}

    def put(self, key: SharePartitionKey, first: int, last: int, run: Run) -> None:
        self._runs.setdefault(key, []).append((first, last, run))

    def records(self) -> list[RunsChanged]:
        """One record a partition, its offsets ascending."""
        return [
            RunsChanged(topic_id=key.topic_id, partition=key.partition, runs=tuple(sorted(runs, key=_first)))
            for key, runs in self._runs.items()
        ]


def _first(entry: tuple[int, int, Run]) -> int:
    return entry[0]


def moved(run: Run, event: Event, **fields: Any) -> Run:
    """The run after ``event``. A terminal run keeps its delivery count and nothing else, so that neighbours merge."""
    state = move(run.state, event)
    if state in TERMINAL:
        return Run(state, run.delivery_count)
    return run._replace(state=state, **fields)


def archived(run: Run, event: Event, config: GroupConfig, disposition: Disposition, reason: str = "") -> Run:
    """The run given up by ``event``: ARCHIVING, with what its dead letter is to say, or ARCHIVED at once where the
    group wants none. Its delivery count is all else that it keeps."""
    archiving = Run(move(run.state, event), run.delivery_count, disposition=disposition, reason=reason)
    return archiving if config.errors_deadletterqueue_topic_name else filed(archiving)


def filed(run: Run) -> Run:
    """An ARCHIVING run whose dead letter is written, or not wanted. It keeps its disposition, which is counted."""
    return Run(move(run.state, Event.FILE), run.delivery_count, disposition=run.disposition)


def acquired(run: Run, plan_id: int, now_ms: int, deadline_ms: int | None = None) -> Run:
    """The run in the hands of acquisition ``plan_id``: count + 1. Written out, since it is in each batch's way."""
    return Run(
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


class MemoizedTransition:
    """What becomes of a run, decided once for all runs that are alike: most of a command's are."""

    def __init__(self, decide: Callable[[Run], Run]) -> None:
        self._decide = decide
        self._of: dict[Run, Run] = {}

    def __call__(self, run: Run) -> Run:
        after = self._of.get(run)
        if after is None:
            after = self._of[run] = self._decide(run)
        return after


def count_records(segments: Iterable[Segment]) -> int:
    """Offsets in all of them together."""
    return sum(segment.last - segment.first + 1 for segment in segments)


def split_at(segment: Segment, offset: int) -> list[Segment]:
    """The segment in two where ``offset`` begins the second, or as it is if it does not reach over it."""
    if segment.first < offset <= segment.last:
        return [segment._replace(last=offset - 1), segment._replace(first=offset)]
    return [segment]
