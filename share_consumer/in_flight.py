"""The records that a ShareConsumer in explicit mode holds, and their outcomes. Pure: no clock, thread or I/O. (Implicit
mode: :mod:`share_consumer.implicit`.)

A record is in flight from the poll that returned it until its outcome is taken to be sent. Rules: the newest outcome of
a record counts. The program never sees offsets without a record (gaps); they are acknowledged beside the records. A
renewed record stays in flight, and the next poll returns it again. A record in progress needs no outcome yet. From its
first signal on it is not renewed: signals extend its lock. In an ordered group, the release of a record gives back the
later ones of its partition that have no outcome."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from coordinator.protocol.messages import AckBatch, PartitionAcks, PartitionProgress, ProgressBatch
from coordinator.protocol.values import AcknowledgeType
from share_consumer.errors import RecordHasOutcome, RecordNotInFlight
from share_consumer.message import AnyMessage, Message
from share_consumer.record_runs import RecordRun, batch
from share_consumer.sending import Sending, UnreadOffsets
from share_source.executor.range_cursor import Key

What = TypeVar("What")


class Outcome(NamedTuple):
    """A record's outcome. ``reason``: of a reject; ``delay_ms``: of a release, None for the group's backoff."""

    kind: AcknowledgeType
    reason: str = ""
    delay_ms: int | None = None


RENEW = Outcome(AcknowledgeType.RENEW)


@dataclass(slots=True, eq=False)
class _Partition:
    """The records of one partition that are in flight, by offset."""

    topic_id: str
    messages: dict[int, Message] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    automatic: dict[int, AcknowledgeType] = field(default_factory=dict)
    unlocked: set[int] = field(default_factory=set)
    signals: dict[int, str | None] = field(default_factory=dict)
    in_progress: set[int] = field(default_factory=set)
    signalled: set[int] = field(default_factory=set)
    given_back: set[int] = field(default_factory=set)
    released: set[int] = field(default_factory=set)

    def decide(self, offset: int, outcome: Outcome) -> None:
        self.outcomes[offset] = outcome
        if outcome.kind == AcknowledgeType.RELEASE:
            self.released.add(offset)
        else:
            self.released.discard(offset)


class InFlight(UnreadOffsets):
    """The records of one consumer that are in flight."""

    def __init__(self) -> None:
        super().__init__()
        self._partitions: dict[Key, _Partition] = {}
        self._renewed: dict[Key, dict[int, tuple[Message, int]]] = {}

    def __repr__(self) -> str:
        return f"<InFlight {self.undecided} records undecided>"

    @property
    def undecided(self) -> int:
        """The number of records that still need an outcome from the program. Not counted are records that are in
        progress, that have an automatic outcome, that were renewed and not returned again yet, or that an earlier
        record's release gave back."""
        count = 0
        for key, records in self._partitions.items():
            undecided = records.counts.keys() - records.outcomes.keys() - records.in_progress - records.automatic.keys()
            count += len(undecided - self._given_back(key))
        return count

    def releases(self) -> Iterator[tuple[str, int, int]]:
        """Yield topic id, partition and offset of each partition's first release that gives later records back."""
        for key, records in self._partitions.items():
            if self.ordered and records.released:
                yield records.topic_id, key[1], min(records.released)

    def _given_back(self, key: Key) -> set[int]:
        """The offsets of a partition that a release in its outcomes gives back."""
        records = self._partitions[key]
        if not (self.ordered and records.released):
            return set()
        first = min(records.released)
        return {at for at in self._held(key) if at > first and at not in records.outcomes}

    def _is_given_back(self, key: Key, offset: int) -> bool:
        """Whether a release in the outcomes, or the last one that was sent, gives the record back."""
        records = self._partitions.get(key)
        if records is None or offset in records.outcomes or not self.ordered:
            return False
        held = offset in records.counts or offset in self._renewed.get(key, ())
        return offset in records.given_back or (held and bool(records.released) and offset > min(records.released))

    @property
    def has_renewed(self) -> bool:
        return any(self._renewed.values()) or any(
            RENEW in records.outcomes.values() for records in self._partitions.values()
        )

    def add(self, runs: Iterable[RecordRun]) -> None:
        for run in runs:
            records = self._of(run.key, run.topic_id)
            records.given_back.clear()
            offsets = range(run.first, run.last + 1)
            for offset_set in (records.unlocked, records.in_progress, records.signalled):
                offset_set.difference_update(offsets)
            for decided in (records.outcomes, records.automatic):
                for offset in decided.keys() & offsets:
                    del decided[offset]
            records.released.difference_update(offsets)
            if run.outcome != AcknowledgeType.ACCEPT:
                records.automatic.update(dict.fromkeys(offsets, run.outcome))
            records.messages.update(zip(offsets, run.messages, strict=True))
            records.counts.update(dict.fromkeys(offsets, run.delivery_count))

    def decide_unreadable(self) -> None:
        """Give unreadable records that the program has not decided their automatic outcome."""
        for records in self._partitions.values():
            automatic, records.automatic = records.automatic, {}
            for offset in automatic.keys() & records.counts.keys():
                if offset not in records.outcomes:
                    records.decide(offset, Outcome(automatic[offset]))

    def decide(
        self, key: Key, offset: int, kind: AcknowledgeType, reason: str = "", delay_ms: int | None = None
    ) -> bool:
        """Set the outcome of a record. Returns False if the record is not in flight, or if the outcome is RENEW and the
        record is in progress. A record that an earlier one's release gives back takes no outcome but RELEASE, which
        changes nothing."""
        outcome = Outcome(kind, reason, delay_ms)
        records = self._partitions.get(key)
        if self._is_given_back(key, offset):
            return kind == AcknowledgeType.RELEASE
        if records is not None and offset in records.counts:
            if outcome == RENEW and offset in records.in_progress:
                return False
            records.decide(offset, outcome)
            return True
        if not self._take_back(key, offset):
            return False
        self._partitions[key].decide(offset, outcome)
        return True

    def why_not_decided(self, key: Key, offset: int) -> str:
        """Returns why :meth:`decide` returned False for this record."""
        record = f"record {key[0]}-{key[1]}@{offset}"
        if self._is_given_back(key, offset):
            return f"the release of an earlier record gives {record} back; a later poll returns it"
        if key in self._partitions and offset in self._partitions[key].counts:
            return f"{record} is in progress, and its lock needs no RENEW; mark it in progress again"
        return f"this ShareConsumer has no {record} in flight. Its outcome was sent, or another consumer has polled it"

    def _take_back(self, key: Key, offset: int) -> bool:
        """Give a renewed record back to the program, so that the next poll does not return it. Returns False if the
        record was not renewed."""
        renewed = self._renewed.get(key, {})
        if offset not in renewed:
            return False
        records = self._partitions[key]
        records.messages[offset], records.counts[offset] = renewed.pop(offset)
        return True

    def mark_in_progress(self, message: AnyMessage, hint: str | None) -> None:
        """Record that the program works on a record. A renewed record goes back to the program: the next poll does not
        return it. Raises RecordNotInFlight or RecordHasOutcome."""
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        key = (topic or "", -1 if partition is None else partition)
        records = self._partitions.get(key)
        if records is None or offset is None or self._is_given_back(key, offset):
            raise RecordNotInFlight(record=f"{topic}-{partition}@{offset}")
        if not (offset in records.counts or self._take_back(key, offset)):
            raise RecordNotInFlight(record=f"{topic}-{partition}@{offset}")
        if offset in records.outcomes:
            raise RecordHasOutcome(record=f"{topic}-{partition}@{offset}")
        records.in_progress.add(offset)
        records.signals[offset] = records.signals.get(offset) if hint is None else hint

    @property
    def pending_signals(self) -> int:
        return sum(len(records.signals) for records in self._partitions.values())

    def take_signals(self) -> tuple[PartitionProgress, ...]:
        """Take the signals to send. A record with an outcome needs none."""
        partitions = []
        for key, records in self._partitions.items():
            signals, records.signals = records.signals, {}
            named = sorted((at, records.counts[at], hint) for at, hint in signals.items() if at not in records.outcomes)
            if named:
                records.signalled.update(at for at, _, _ in named)
                batches = tuple(
                    ProgressBatch(first=first, last=last, delivery_count=count, hint=hint)
                    for first, last, (count, hint) in _neighbours(named)
                )
                partitions.append(PartitionProgress(topic_id=records.topic_id, partition=key[1], batches=batches))
        return tuple(partitions)

    def holds(self, signals: PartitionProgress) -> bool:
        """Whether a record that these signals name is still in flight, under the same delivery count."""
        return any(
            records.counts.get(offset) == batch.delivery_count
            for key, records in self._partitions.items()
            if (records.topic_id, key[1]) == (signals.topic_id, signals.partition)
            for batch in signals.batches
            for offset in range(batch.first, batch.last + 1)
        )

    @property
    def holds_records(self) -> bool:
        """Whether there are records, renewed ones included, whose outcome was not sent yet."""
        return any(records.counts for records in self._partitions.values()) or any(self._renewed.values())

    @property
    def has_outcomes(self) -> bool:
        return bool(self._unread) or any(records.outcomes for records in self._partitions.values())

    def take(self) -> Sending:
        """Take the outcomes and the gaps, to send them; the records are no longer in flight."""
        sending = self.take_unread()
        for key, records in self._partitions.items():
            self._give_back(key, records)
            outcomes, records.outcomes = records.outcomes, {}
            records.released.clear()
            if not outcomes:
                continue
            decided = sorted((offset, records.counts.pop(offset), outcome) for offset, outcome in outcomes.items())
            for offset_set in (records.unlocked, records.in_progress, records.signalled):
                offset_set -= outcomes.keys()
            records.signals = {offset: hint for offset, hint in records.signals.items() if offset not in outcomes}
            messages = {offset: records.messages.pop(offset) for offset in outcomes}
            sending.add(key, records.topic_id, _batches(decided))
            if RENEW in outcomes.values():
                sending.renewed[key] = {at: (messages[at], n) for at, n, how in decided if how == RENEW}
        return sending

    def _give_back(self, key: Key, records: _Partition) -> None:
        """Remove the records that a release gives back, before the release is sent."""
        if given_back := self._given_back(key):
            of_offset: tuple[dict[int, Any], ...] = (
                records.counts, records.messages, records.automatic, records.signals, self._renewed.get(key, {})
            )  # fmt: skip
            for offset in given_back:
                for found in of_offset:
                    found.pop(offset, None)
            for offset_set in (records.unlocked, records.in_progress, records.signalled):
                offset_set -= given_back
            records.given_back |= given_back

    def renew(self, sent: Sending, failed: Iterable[Key]) -> None:
        """Apply the coordinator's reply: renewed records are in flight again, except in ``failed`` partitions."""
        for key, renewed in sent.renewed.items():
            if key not in set(failed):
                self._renewed.setdefault(key, {}).update(renewed)

    def take_renewed(self) -> list[Message]:
        messages = []
        for key, renewed in self._renewed.items():
            records = self._partitions[key]
            for offset, (message, count) in sorted(renewed.items()):
                records.messages[offset], records.counts[offset] = message, count
                messages.append(message)
        self._renewed.clear()
        return messages

    def renewals(self) -> tuple[PartitionAcks, ...]:
        """Returns renewals of all records, renewed ones included, of which no outcome and no signal was sent."""
        partitions = []
        for key, records in self._partitions.items():
            held = {
                at: n for at, n in self._held(key).items() if at not in records.unlocked and at not in records.signalled
            }
            if held:
                batches = tuple(_batches(sorted((offset, count, RENEW) for offset, count in held.items())))
                partitions.append(PartitionAcks(topic_id=records.topic_id, partition=key[1], batches=batches))
        return tuple(partitions)

    def forget_lock(self, refused: PartitionAcks) -> None:
        """Stop renewing a refused range, if the consumer still holds all of it. Otherwise the range was refused because
        its outcome was sent meanwhile."""
        for key, records in self._partitions.items():
            if (records.topic_id, key[1]) != (refused.topic_id, refused.partition):
                continue
            held = self._held(key)
            for lost in refused.batches:
                offsets = range(lost.first, lost.last + 1)
                if all(held.get(offset) == lost.delivery_count for offset in offsets):
                    records.unlocked.update(offsets)

    def _held(self, key: Key) -> dict[int, int]:
        """The delivery counts of a partition's records, by offset."""
        return {**self._partitions[key].counts, **{at: count for at, (_, count) in self._renewed.get(key, {}).items()}}

    def clear(self) -> None:
        self._partitions.clear()
        self._unread.clear()
        self._renewed.clear()

    def _of(self, key: Key, topic_id: str) -> _Partition:
        records = self._partitions.get(key)
        if records is None or records.topic_id != topic_id:  # a topic that was made anew: nothing of it is held
            records = self._partitions[key] = _Partition(topic_id)
        return records


def _batches(decided: list[tuple[int, int, Outcome]]) -> list[AckBatch]:
    return [batch(first, last, count, *outcome) for first, last, (count, outcome) in _neighbours(decided)]


def _neighbours(records: Iterable[tuple[int, int, What]]) -> Iterator[tuple[int, int, tuple[int, What]]]:
    """Join like neighbours: ascending (offset, delivery count, what) become (first, last, (delivery count, what))."""
    for (_, *alike), run in groupby(enumerate(records), key=lambda e: (e[1][0] - e[0], *e[1][1:])):
        offsets = [offset for _, (offset, _, _) in run]
        yield offsets[0], offsets[-1], (alike[0], alike[1])
