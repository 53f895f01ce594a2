"""A ShareConsumer that says which records it works on (KAFKA-20458), and may do anything else that a program may do:
fall silent, answer late, leave or die in the middle of its work, and go on with the work in its next process."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from coordinator.protocol.messages import LeaveGroup, MarkInProgress, PartitionProgress, ProgressBatch, ProgressReply
from tests.simulation.broker import topic_partition_of
from tests.simulation.changes_judge import RELEASE
from tests.simulation.session import Answer
from tests.simulation.share_consumer import ConsumerProcess
from tests.simulation.simulated_world import Gone
from tests.simulation.witness import RENEW

STALENESS = "group.share.in.progress.staleness.threshold.ms"


class SignallingProcess(ConsumerProcess):
    """A ShareConsumer with long work."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.lost: dict[tuple[int, int], int] = {}
        """Deliveries whose signals were refused."""

    def _fetch_and_work(self) -> Answer:
        held = self._taken_over()
        if not held:
            held = yield from self._poll()
        if not held:
            yield self.world.between(500, 5_000)
        while held:
            self.witness.signals.at_work[self.session.member_id] = held
            yield self._pause_ms()
            if self.world.happens(self.death_rate):
                raise Gone("killed at a step")
            if not self.gentle and self.world.happens(0.02):
                yield from self._leave_at_work()
            if self.gentle or self.world.happens(0.3):
                held = yield from self._acknowledge(held)
            elif self.world.happens(0.8):
                held = yield from self._signal(held)
        self.witness.signals.at_work.pop(self.session.member_id, None)

    def _taken_over(self) -> dict[tuple[int, int], int]:
        """The work of the process before, which the program knows from a store of its own, or nothing."""
        held = self.witness.signals.at_work.pop(self.session.member_id, {})
        return held if self.world.happens(0.7) else {}

    def _pause_ms(self) -> int:
        """Mostly in time for the next signal; now and then the worker is silent for longer than that is fresh."""
        if self.gentle:
            return self.world.between(50, 500)
        stale_ms = int(self.session.configs[STALENESS])
        return self.world.between(0, stale_ms // 2 if self.world.happens(0.85) else 3 * stale_ms)

    def _leave_at_work(self) -> Answer:
        self.witness.left.add(self.session.member_id)
        yield from self.session.call(lambda who: LeaveGroup(**who))
        raise Gone("left at work")

    def _signal(self, held: dict[tuple[int, int], int]) -> Answer:
        """Signals for some of what it holds; what it goes on with then."""
        chosen = {record: count for record, count in held.items() if self.world.happens(0.8)}
        if self.world.happens(0.05):  # a program that mistakes what it has
            chosen |= self.world.chance.choice([self.lost, *self.witness.signals.at_work.values()])
        if not chosen:
            return held
        partitions = tuple(self._partition_signals(chosen))
        for signals in partitions:
            self.witness.signals.was_sent(self.session.member_id, signals)
        reply: ProgressReply = yield from self.session.call(lambda who: MarkInProgress(**who, partitions=partitions))
        if reply.errors:
            self.lost = chosen
        if reply.errors and self.world.happens(0.5):  # else it continues, and its outcome comes too late
            refused = {tuple(key.rsplit(":", 1)) for key in reply.errors}
            return {
                r: count
                for r, count in held.items()
                if (topic_partition_of(r[0])[0], str(topic_partition_of(r[0])[1])) not in refused
            }
        return held

    def _partition_signals(self, chosen: dict[tuple[int, int], int]) -> Any:
        hint = self.world.chance.choice((None, "", f"step {self.world.now_ms}"))
        for log, records in groupby(sorted(chosen), key=lambda record: record[0]):
            topic_id, index = topic_partition_of(log)
            batches = tuple(
                ProgressBatch(first=offset, last=offset, delivery_count=chosen[log, offset], hint=hint)
                for _, offset in records
            )
            yield PartitionProgress(topic_id=topic_id, partition=index, batches=batches)

    def _outcome(self, record: tuple[int, int]) -> int:
        """A lock that signals keep is not renewed."""
        outcome = super()._outcome(record)
        return RELEASE if outcome == RENEW and self._has_signalled(record) else outcome

    def _has_signalled(self, record: tuple[int, int]) -> bool:
        held = self.witness.signals.at_work.get(self.session.member_id, {})
        return self.witness.signalled(self.session.member_id, record, held.get(record, 0))
