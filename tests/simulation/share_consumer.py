"""A ShareConsumer against the simulated service: fetches, works, accepts, releases, rejects or renews each record."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from coordinator.protocol.errors import CoordinatorNotAvailable, ShareGroupError
from coordinator.protocol.messages import (
    AckBatch,
    Acknowledge,
    AcknowledgeReply,
    AcquiredReply,
    AcquireRecords,
    LeaveGroup,
    PartitionAcks,
)
from tests.simulation.broker import Broker, topic_partition_of
from tests.simulation.changes_judge import ACCEPT, GAP, REJECT, RELEASE
from tests.simulation.network import Network
from tests.simulation.session import Answer, Find, Session
from tests.simulation.witness import RENEW, Witness, receipts
from tests.simulation.world import Gone, Process, Task, World


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
        self.spawn(self._live())

    def _live(self) -> Task:
        try:
            yield from self.session.join()
            while True:
                yield from self._fetch_and_work()
                if not self.gentle and self.world.happens(0.05):
                    self.witness.left.add(self.session.member_id)
                    yield from self.session.call(LeaveGroup)
                    raise Gone("left")
        except CoordinatorNotAvailable as error:
            raise Gone(str(error)) from error
        except ShareGroupError as error:
            if self.witness.was_forgotten(self.session.member_id, error):
                raise Gone(str(error)) from error
            self.world.fail(f"{self.name} is healthy, and is refused: {error}")

    def _fetch_and_work(self) -> Answer:
        most = self.world.chance.choice((1, 3, 10))
        reply: AcquiredReply = yield from self.session.call(AcquireRecords, max_records=most)
        self.witness.received(self.name, reply.plan_id, reply.partitions)
        if not reply.plan_id:
            yield self.world.between(500, 5_000)
            return
        held = {(p, offset): count for p, offset, count in receipts(reply.partitions)}
        while held:
            yield self.world.between(50, 500) if self.gentle else self.world.between(0, 15_000)
            if self.world.happens(self.death_rate):
                raise Gone("killed at a step")
            held = yield from self._acknowledge(held)

    def _acknowledge(self, held: dict[tuple[int, int], int]) -> Answer:
        """Outcomes for some of what it holds; what it still holds then."""
        chosen = {record: self._outcome(record) for record in held if self.gentle or self.world.happens(0.8)}
        if not chosen:
            return held
        partitions = tuple(self._partition_acks(held, chosen))
        for acks in partitions:
            self.witness.sent(acks)
        reply: AcknowledgeReply = yield from self.session.call(Acknowledge, partitions=partitions)
        for acks in partitions:
            if f"{acks.topic_id}:{acks.partition}" not in reply.errors:
                self.witness.was_told(acks)
        return {r: count for r, count in held.items() if chosen.get(r, RENEW) == RENEW and not reply.errors}

    def _outcome(self, record: tuple[int, int]) -> int:
        if record in self.broker.poison:
            return REJECT if self.gentle else self.world.chance.choice((REJECT, RELEASE))
        if self.gentle:
            return ACCEPT
        return self.world.chance.choices((ACCEPT, RELEASE, REJECT, GAP, RENEW), weights=(80, 15, 3, 1, 15))[0]

    def _partition_acks(self, held: dict[tuple[int, int], int], chosen: dict[tuple[int, int], int]) -> Any:
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
