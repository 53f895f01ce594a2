"""A share partition: the window of a topic partition that the group is working on.

``start_offset`` (SPSO) is the first offset not yet delivered to completion, ``end_offset`` (SPEO + 1, exclusive) the
first that was never acquired. The start offset moves over leading terminal runs, and to the log start when that
overtakes it; records that are still ACQUIRED below it stay until their holder is done with them, and ARCHIVING ones
until their dead letter is written (KIP-932, "Share partition in-flight records"; docs/facts.md, K24 to K28).
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.core.record_state import TERMINAL, RecordState
from coordinator.core.runs import Run, RunMap, Segment
from coordinator.protocol.values import Disposition, SharePartitionKey

_STAYS = frozenset({RecordState.ACQUIRED, RecordState.ARCHIVING})


class SharePartition:
    """State of one (topic id, partition) in one group. Changed by replayed records only."""

    __slots__ = ("archived", "end_offset", "key", "log_start", "runs", "start_offset")

    def __init__(self, key: SharePartitionKey, start_offset: int) -> None:
        self.key = key
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.log_start = 0
        self.archived = [0] * len(Disposition)
        """Records that were ever ARCHIVED, by :class:`~coordinator.protocol.values.Disposition`."""
        self.runs = RunMap()

    def __repr__(self) -> str:
        return (
            f"<SharePartition {self.key.topic_id}-{self.key.partition} spso={self.start_offset} "
            f"end={self.end_offset} acquired={self.acquired_count} runs={len(self.runs)}>"
        )

    @property
    def acquired_count(self) -> int:
        return self.runs.counts[RecordState.ACQUIRED]

    @property
    def archived_total(self) -> int:
        """Records that were ever ARCHIVED, for whatever reason."""
        return sum(self.archived)

    @property
    def archiving_count(self) -> int:
        """Records whose dead letters are to be written."""
        return self.runs.counts[RecordState.ARCHIVING]

    @property
    def delivery_complete_count(self) -> int:
        """Terminal records inside the window (KIP-1226): what the lag leaves out beyond the start offset."""
        return self.runs.terminal_count()

    def lag(self, end: int) -> int:
        """Records up to the log's ``end`` that are not delivered to completion (KIP-1226)."""
        return max(0, end - self.start_offset - self.delivery_complete_count)

    def waits(self, now_ms: int) -> bool:
        """Whether a record is delayed, or backs off, beyond now."""
        return self.runs.waits(now_ms)

    def carrying(self, acquisition: int, ranges: Iterable[tuple[int, int]]) -> list[Segment]:
        """The parts of ``ranges`` whose run still carries this acquisition plan_id."""
        if acquisition not in self.runs.carried:
            return []
        return [
            segment
            for first, last in ranges
            for segment in self.runs.between(first, last)
            if segment.run.plan_id == acquisition
        ]

    def apply(self, changes: Iterable[tuple[int, int, Run]]) -> None:
        """Put runs in place, then move the start offset over what is terminal at the front. ValueError for runs that no
        command makes, so that damaged state is never served (docs/facts.md, K29)."""
        adjacent: list[tuple[int, int, Run]] = []
        for change in changes:
            first, last, run = change
            if last < first or (run.state == RecordState.AVAILABLE and first < self.start_offset):
                raise ValueError(f"{self!r} can't hold {first}-{last} as {run.state.name}")
            if run.state == RecordState.ARCHIVED:
                self.archived[run.disposition] += last - first + 1
            if adjacent and adjacent[-1][1] != first - 1:
                self.runs.replace(adjacent)
                adjacent = []
            adjacent.append(change)
            self.end_offset = max(self.end_offset, last + 1)
        if adjacent:
            self.runs.replace(adjacent)
        self._advance()

    def move_log_start(self, log_start: int) -> None:
        """The log begins at ``log_start`` now; nothing below it will be delivered again."""
        self.log_start = max(self.log_start, log_start)
        self.start_offset = max(self.start_offset, log_start)
        self.end_offset = max(self.end_offset, log_start)
        self._advance()

    def _advance(self) -> None:
        lowest = self.runs.first()
        if lowest is not None and lowest.first < self.start_offset:
            self._drop_below_start()
        self.start_offset = self.runs.drop_terminal(self.start_offset)

    def _drop_below_start(self) -> None:
        """Drop the runs below the log start, but those that a member still holds, until it is done with them, and those
        that have yet to become dead letters."""
        for whole in self.runs.starting_below(self.start_offset):
            if whole.run.state in _STAYS:
                continue
            if whole.run.state in TERMINAL:
                self.start_offset = max(self.start_offset, whole.last + 1)
            if whole.last < self.start_offset:
                self.runs.drop(whole.first)
