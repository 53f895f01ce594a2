"""A ShareConsumer against the simulated service: fetches, works, accepts, releases, rejects or renews each record.

It keeps what it has acquired ahead as the product does, in the product's own :mod:`share_consumer.ahead`,
and its outcomes go with the next question, or alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from coordinator.protocol.errors import CoordinatorNotAvailable, DeadLetterTopicInUse, ShareGroupError
from coordinator.protocol.messages import (
    AckBatch,
    Acknowledge,
    AcknowledgeReply,
    AcquiredReply,
    AcquireRecords,
    LeaveGroup,
    PartitionAcks,
    PartitionPlan,
)
from share_consumer.ahead import Acquired, Ahead
from share_consumer.record_runs import RecordRun
from share_consumer.renewal import Renewal, done
from tests.simulation.broker import Broker, log_of, topic_partition_of
from tests.simulation.changes_judge import ACCEPT, GAP, REJECT, RELEASE
from tests.simulation.network import Network
from tests.simulation.session import Answer, Find, Session
from tests.simulation.simulated_world import Gone, Process, Task, World
from tests.simulation.witness import RENEW, Witness

Held = dict[tuple[int, int], int]
"""The delivery counts of records, by log and offset."""


class ConsumerProcess(Process):
    """Another process may have had its member id before. ``gentle``: it accepts whatever can be processed, at once."""

    gentle = False
    death_rate = 0.0

    def __init__(
        self,
        world: World,
        name: str,
        member_id: str,
        witness: Witness,
        broker: Broker,
        network: Network,
        find: Find,
        configs: dict[str, str],
        starting_offsets: str,
    ) -> None:
        super().__init__(world, name)
        self.witness, self.broker = witness, broker
        self.session = Session(
            self, network, find, member_id, query=False, configs=configs, starting_offsets=starting_offsets
        )
        self.ahead = Ahead()
        self._riding: tuple[PartitionAcks, ...] = ()
        self._after: str | None = None
        """None until it has records: an earlier process may have had some under the same member id."""
        self.spawn(self._live())

    def _live(self) -> Task:
        try:
            yield from self.session.join()
            while True:
                yield from self._fetch_and_work()
                if not self.gentle and self.world.happens(0.05):
                    self.witness.left.add(self.session.member_id)
                    yield from self.session.call(lambda who: LeaveGroup(**who))
                    raise Gone("left")
        except CoordinatorNotAvailable as error:
            raise Gone(str(error)) from error
        except ShareGroupError as error:
            was_told = isinstance(error, DeadLetterTopicInUse)  # its configs unset a topic that records wait for
            if was_told or self.witness.was_forgotten(self.session.member_id, error):
                raise Gone(str(error)) from error
            self.world.fail(f"{self.name} is healthy, and is refused: {error}")

    def _fetch_and_work(self) -> Answer:
        held: Held = yield from self._poll()
        if not held:
            yield self.world.between(500, 5_000)
        while held:
            yield self.world.between(50, 500) if self.gentle else self.world.between(0, 15_000)
            if self.world.happens(self.death_rate):
                raise Gone("killed at a step")
            if self.world.happens(0.2):
                yield from self._acquire(ahead=True)
            held = yield from self._acknowledge(held)

    # --- records

    def _poll(self) -> Answer:
        """The records that a poll returns, and nothing that it has not known to be its own."""
        if self.ahead.needs_renewal(self._now_s, self.session.joins, self.session.lives_until_ms / 1000):
            yield from self._renew_ahead()
        most = self.world.chance.choice((1, 3, 10))
        if not (runs := self._look(most)):
            yield from self._acquire()
            runs = self._look(most)
        elif self._riding:
            yield from self._send(self._riding)
            runs = self._look(most)  # locks may have ended meanwhile
        self.ahead.remove(runs)
        held = {
            (log_of(run.topic_id, run.key[1]), offset): run.delivery_count
            for run in runs
            for offset in range(run.first, run.last + 1)
        }
        self.witness.handed_out(self.session.member_id, held)
        return held

    def _look(self, most: int) -> list[RecordRun]:
        return self.ahead.look(most, self._now_s, self.session.joins)

    def _acquire(self, *, ahead: bool = False) -> Answer:
        """Ask for records, with the outcomes that wait for this."""
        riding, self._riding = self._riding, ()
        joins, began_ms, began_s = self.session.joins, self.world.now_ms, self._now_s
        most = self.world.chance.choice((3, 10))
        reply: AcquiredReply = yield from self.session.call(
            lambda who: AcquireRecords(**who, max_records=most, after=self._after, ahead=ahead, acknowledgements=riding)
        )
        self._told(riding, reply.errors, began_ms)
        self._check_ids(reply.partitions, "is handed out", began_ms)
        self.witness.received(self.name, reply.plan_id, reply.partitions)
        if reply.plan_id:
            self._after = reply.plan_id
            acquired = Acquired(reply.partitions, began_s, self._now_s, reply.lock_timeout_ms / 1000, joins)
            acquired.read(_runs(reply.partitions), [])
            self.ahead.take_in(acquired, self._now_s)

    def _renew_ahead(self) -> Answer:
        """Renew what waits; what is refused is asked for again, each range by itself."""
        began_s, joins = self._now_s, self.session.joins
        renewals = self.ahead.renewals()
        reply = yield from self._send(renewals)
        lost, capped = list(done(renewals, reply.done_below)), reply.capped
        for acks in self.ahead.renewals() if reply.errors else ():
            for batch in acks.batches:
                alone = PartitionAcks(topic_id=acks.topic_id, partition=acks.partition, batches=(batch,))
                answer = yield from self._send((alone,))
                lost += [alone] if answer.errors else done((alone,), answer.done_below)
                capped += answer.capped
        lock_s = int(self.session.configs["share.record.lock.duration.ms"]) / 1000
        self.ahead.renewed(Renewal(began_s, began_s + lock_s, joins, capped), lost)

    @property
    def _now_s(self) -> float:
        return self.world.now_ms / 1000

    # --- outcomes

    def _acknowledge(self, held: Held) -> Answer:
        """Outcomes for some of what it holds; what it still holds then. Some wait for the next question."""
        chosen = {record: self._outcome(record) for record in held if self.gentle or self.world.happens(0.8)}
        if not chosen:
            return held
        partitions = tuple(self._partition_acks(held, chosen))
        if self.world.happens(0.4) and RENEW not in chosen.values():
            for acks in partitions:
                self.witness.sent(acks)
            self._riding += partitions
            return {r: count for r, count in held.items() if r not in chosen}
        reply = yield from self._send(partitions)
        return {r: count for r, count in held.items() if chosen.get(r, RENEW) == RENEW and not reply.errors}

    def _send(self, partitions: tuple[PartitionAcks, ...]) -> Answer:
        """Send outcomes, with nothing else; the answer."""
        if partitions == self._riding:
            self._riding = ()
        for acks in partitions:
            self.witness.sent(acks)
        began_ms = self.world.now_ms
        reply: AcknowledgeReply = yield from self.session.call(lambda who: Acknowledge(**who, partitions=partitions))
        self._told(partitions, reply.errors, began_ms)
        return reply

    def _told(self, partitions: tuple[PartitionAcks, ...], errors: dict[str, str], began_ms: int) -> None:
        successes = [acks for acks in partitions if f"{acks.topic_id}:{acks.partition}" not in errors]
        self._check_ids(successes, "has an outcome that is a success", began_ms)
        for acks in successes:
            self.witness.was_told(acks)

    def _check_ids(self, partitions: Sequence[PartitionAcks | PartitionPlan], what: str, asked_ms: int) -> None:
        """No record of a topic whose name another one had before the request."""
        for each in partitions:
            if self.broker.is_remade(each.topic_id, asked_ms):
                self.world.fail(f"a record of {each.topic_id} {what}: the topic was created again before it was asked")

    def _outcome(self, record: tuple[int, int]) -> int:
        if record in self.broker.poison:
            return REJECT if self.gentle else self.world.chance.choice((REJECT, RELEASE))
        if self.gentle:
            return ACCEPT
        return self.world.chance.choices((ACCEPT, RELEASE, REJECT, GAP, RENEW), weights=(80, 15, 3, 1, 15))[0]

    def _partition_acks(self, held: Held, chosen: dict[tuple[int, int], int]) -> Any:
        for log, records in groupby(sorted(chosen), key=lambda record: record[0]):
            batches: list[AckBatch] = []
            for record in records:
                offset, count, kind = record[1], held[record], chosen[record]
                last = batches[-1] if batches else None
                if last is not None and (last.last, last.delivery_count) == (offset - 1, count):
                    types = (*last.types, kind)
                    batches[-1] = AckBatch(first=last.first, last=offset, delivery_count=count, types=types)
                else:
                    batches.append(AckBatch(first=offset, last=offset, delivery_count=count, types=(kind,)))
            topic_id, index = topic_partition_of(log)
            yield PartitionAcks(topic_id=topic_id, partition=index, batches=tuple(batches))


def _runs(partitions: tuple[PartitionPlan, ...]) -> Iterator[RecordRun]:
    """The records of an acquisition; their offsets are in the place of messages."""
    for plan in partitions:
        for first, last, count in plan.ranges:
            messages: list[Any] = list(range(first, last + 1))
            yield RecordRun((plan.topic, plan.partition), plan.topic_id, first, count, messages)
