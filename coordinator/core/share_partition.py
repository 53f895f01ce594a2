"""A share partition: the part of a topic partition that the group is working on.

``start_offset`` (SPSO) is the first offset that is not done, ``end_offset`` (SPEO + 1, exclusive) the first that was
never acquired. The offsets between them are the *window*. The start offset moves over leading terminal runs, and to the
log start when that overtakes it. Two kinds of records stay below it: those that a member holds, until the member is
done with them, and ARCHIVING ones, until their dead letter is written (KIP-932, "Share partition in-flight records";
docs/trust/facts.md, K24 and K27).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from coordinator.core.changes import count_records
from coordinator.core.record_counts import RecordTotals
from coordinator.core.record_state import HELD, TERMINAL, RecordState
from coordinator.core.runs import Run, RunMap, Segment
from coordinator.protocol.values import Disposition, SharePartitionKey

_STAYS = frozenset({*HELD, RecordState.ARCHIVING})


class SharePartition:
    """The state of one (topic id, partition) in one group. Only replayed records change it."""

    __slots__ = (
        "altered_after",
        "counts",
        "end_offset",
        "first_offset",
        "highest_count",
        "key",
        "log_start",
        "runs",
        "start_offset",
    )

    def __init__(self, key: SharePartitionKey, start_offset: int) -> None:
        self.key = key
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.log_start = 0
        self.counts = RecordTotals(archived=[0] * len(Disposition), without_dead_letter=[0] * len(Disposition))
        """What became of the records, without ``reached``, which :meth:`totals` has."""
        self.first_offset = start_offset
        """The first start offset, at which the counts begin."""
        self.runs = RunMap()
        self.highest_count = 0
        """The highest delivery count of any record so far, also of records that are done."""
        self.altered_after = 0
        """The group's last plan id when an administrator altered the start offset; 0: never. Plans up to this one lost
        their records of this share partition."""

    def __repr__(self) -> str:
        return (
            f"<SharePartition {self.key.topic_id}-{self.key.partition} spso={self.start_offset} "
            f"end={self.end_offset} acquired={self.acquired_count} runs={len(self.runs)}>"
        )

    @property
    def acquired_count(self) -> int:
        """Records that a member holds, those IN_PROGRESS included."""
        return self.runs.counts[RecordState.ACQUIRED] + self.runs.counts[RecordState.IN_PROGRESS]

    @property
    def archived_total(self) -> int:
        """How many records were ever ARCHIVED, for whatever reason; records that Kafka removed are among them."""
        return sum(self.counts.archived) + self.counts.removed + self.counts.deleted

    @property
    def unaccounted(self) -> int:
        """0 if each offset from the first start offset to the end is counted once. Another number is a bug."""
        return self.totals().left - self.still_there

    @property
    def still_there(self) -> int:
        """How many records have a run, and are not done."""
        return sum(self.runs.counts) - self.runs.terminal_count()

    @property
    def reached(self) -> int:
        """How many offsets there are from the first start offset to the end."""
        return self.end_offset - self.first_offset

    def totals(self) -> RecordTotals:
        """A copy of the counts, with ``reached``."""
        return self.counts.plus(RecordTotals(reached=self.reached))

    @property
    def archiving_count(self) -> int:
        """Records whose dead letters are to be written."""
        return self.runs.counts[RecordState.ARCHIVING]

    @property
    def delivery_complete_count(self) -> int:
        """Terminal records from the start offset to the end offset (KIP-1226), which the lag does not count."""
        return self.runs.terminal_count()

    def lag(self, end: int) -> int:
        """Records up to the log's ``end`` that are not delivered to completion (KIP-1226)."""
        return lag_of(end, self.start_offset, self.delivery_complete_count)

    def restore_counts(self, totals: RecordTotals) -> None:
        """Set the counts to a snapshot's. The end offset must be set."""
        self.first_offset = self.end_offset - totals.reached
        self._take_counts(totals)

    def _take_counts(self, totals: RecordTotals) -> None:
        """Go on with a copy of these counts. The lists get a number for every Disposition."""
        none = [0] * len(Disposition)
        self.counts = msgspec.structs.replace(
            totals,
            reached=0,
            archived=[*totals.archived, *none[len(totals.archived) :]],
            without_dead_letter=[*totals.without_dead_letter, *none[len(totals.without_dead_letter) :]],
        )

    def carrying(self, plan_id: int, ranges: Iterable[tuple[int, int]]) -> list[Segment]:
        """The parts of ``ranges`` in runs that still carry this plan id."""
        if plan_id not in self.runs.carried:
            return []
        return [
            segment
            for first, last in ranges
            for segment in self.runs.between(first, last)
            if segment.run.plan_id == plan_id
        ]

    def held_under(self, plan_id: int, ranges: Iterable[tuple[int, int]]) -> int:
        """Returns how many records a member holds under this plan. Runs are scanned only if some carry a plan id
        without a lock."""
        if sum(self.runs.carried.values()) == self.acquired_count:
            return self.runs.carried.get(plan_id, 0)
        return count_records(segment for segment in self.carrying(plan_id, ranges) if segment.run.state in HELD)

    def apply(
        self, changes: Iterable[tuple[int, int, Run]], *, dead_letters: bool = True, is_deleted: bool = False
    ) -> None:
        """Put runs in place, then move the start offset over terminal runs at the front. ``dead_letters``: the group
        has a dead letter topic. ``is_deleted``: the topic was deleted.

        Raises:
            ValueError: no command makes such runs: the state is damaged, and must not be served (docs/trust/facts.md,
                K29).
        """
        adjacent: list[tuple[int, int, Run]] = []
        for change in changes:
            first, last, run = change
            if last < first or (run.state == RecordState.AVAILABLE and first < self.start_offset):
                raise ValueError(f"{self!r} can't hold {first}-{last} as {run.state.name}")
            if run.delivery_count > self.highest_count:
                self.highest_count = run.delivery_count
            if run.state == RecordState.ACKNOWLEDGED:
                self.counts.accepted += last - first + 1
            elif run.state == RecordState.ARCHIVED:
                self._count_archived(change, dead_letters=dead_letters, is_deleted=is_deleted)
            if adjacent and adjacent[-1][1] != first - 1:
                self.runs.replace(adjacent)
                adjacent = []
            adjacent.append(change)
            self.end_offset = max(self.end_offset, last + 1)
        if adjacent:
            self.runs.replace(adjacent)
        self._advance()

    def _count_archived(self, change: tuple[int, int, Run], *, dead_letters: bool, is_deleted: bool) -> None:
        first, last, run = change
        number = last - first + 1
        if run.disposition == Disposition.NONE and first < self.log_start:
            below = min(last + 1, self.log_start) - first
            self._count_removed(below, is_deleted=is_deleted)
            number -= below
        self.counts.archived[run.disposition] += number
        if run.disposition != Disposition.NONE and not dead_letters:
            self.counts.without_dead_letter[run.disposition] += number

    def _count_removed(self, number: int, *, is_deleted: bool) -> None:
        if is_deleted:
            self.counts.deleted += number
        else:
            self.counts.removed += number

    def altered(self, start_offset: int, altered_after: int) -> SharePartition:
        """A new share partition that begins at ``start_offset``, as an administrator wants. Records that may have been
        delivered before are AVAILABLE with the highest delivery count of any of them: otherwise an old receipt would
        fit a new delivery. Records below the start that wait for their dead letters keep waiting."""
        anew = SharePartition(self.key, start_offset)
        anew.log_start = self.log_start
        self._count_reset(anew)
        anew.highest_count, anew.altered_after = self.highest_count, altered_after
        archiving = [
            (first, min(last, start_offset - 1), run)
            for first, last, run in self.runs.archiving_from(0)
            if first < start_offset
        ]
        anew.apply(archiving)
        anew.end_offset = start_offset
        anew.redeliver(self.end_offset)
        return anew

    def _count_reset(self, anew: SharePartition) -> None:
        """Give the share partition that begins anew this one's counts, plus what the reset skips and repeats."""
        anew._take_counts(self.counts)
        anew.first_offset = self.first_offset
        skipped, kept, start = max(0, anew.start_offset - self.end_offset), 0, anew.start_offset
        for first, last, run in self.runs:
            if run.state not in TERMINAL:
                below = max(0, min(last, start - 1) - first + 1)
                kept += last - first + 1 - below
                skipped += 0 if run.state == RecordState.ARCHIVING else below
        anew.counts.skipped += skipped
        anew.counts.repeated += max(0, self.end_offset - start) - kept

    def redeliver(self, end_offset: int) -> None:
        """Make the records from the start offset to ``end_offset`` AVAILABLE again, if any record was delivered."""
        if self.start_offset < end_offset and self.highest_count:
            again = Run(RecordState.AVAILABLE, self.highest_count)
            self.apply([(self.start_offset, end_offset - 1, again)])

    def move_log_start(self, log_start: int, archived: int = 0, *, is_deleted: bool = False) -> None:
        """Note that the log begins at ``log_start`` now. ``archived``: how many records were archived for that; they
        count as removed, or with ``is_deleted`` as deleted. So do records below it that were never acquired."""
        self.counts.archived[Disposition.NONE] -= archived
        self._count_removed(archived + max(0, log_start - self.end_offset), is_deleted=is_deleted)
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
        """Drop the runs below the start offset, except those that a member holds or that have no dead letter yet."""
        for whole in self.runs.starting_below(self.start_offset):
            if whole.run.state in _STAYS:
                continue
            if whole.run.state in TERMINAL:
                self.start_offset = max(self.start_offset, whole.last + 1)
            if whole.last < self.start_offset:
                self.runs.drop(whole.first)


def lag_of(end: int, start_offset: int, delivery_complete: int) -> int:
    """The lag of a share partition with these numbers (:meth:`SharePartition.lag`)."""
    return max(0, end - start_offset - delivery_complete)
