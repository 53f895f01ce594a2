"""A coordinator in this process with one ShareConsumer of a group that has a dead letter topic."""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter

from confluent_kafka import Message

from coordinator.client.client import CoordinatorClient
from coordinator.dead_letters.record_format import DISPOSITION, MESSAGE, Origin, parse_headers
from coordinator.protocol.errors import CoordinatorNotAvailable
from coordinator.protocol.messages import (
    AckBatch,
    Acknowledge,
    AcquireRecords,
    DescribeGroup,
    Heartbeat,
    JoinGroup,
    PartitionAcks,
    PartitionDescription,
)
from coordinator.protocol.values import AcknowledgeType
from coordinator.protocol.wire import LaunchSettings
from coordinator.service.coordinator import Coordinator
from tests.support.waiting import wait_until

PREFIX = "errors.deadletterqueue."


class Rejecting:
    """One member of ``group``, which acquires records and rejects or releases them. ``configs`` are the group's, in
    snake case; those of the dead letter queue without their prefix: ``dlq_topic_name="dlq"``."""

    def __init__(
        self,
        bootstrap: str,
        state: object,
        group: str,
        *topics: str,
        kafka_config: dict[str, str] | None = None,
        client: CoordinatorClient | None = None,
        **configs: object,
    ) -> None:
        """The coordinator is one of this process on the state file ``state``, or, with ``client``, that one's."""
        self.group, self.topics, self.configs = group, topics, _texts(configs)
        self._settings = LaunchSettings(
            bootstrap_servers=bootstrap, kafka_config=kafka_config or {}, state_store=f"sqlite:{state}", configs={}
        )
        self._client = client
        self.held: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
        self.coordinator: Coordinator | None = None
        self.start()

    def __repr__(self) -> str:
        return f"<Rejecting {self.group}>"

    # --- the coordinator

    def start(self, **configs: object) -> None:
        """A coordinator on the state, and the member in the group; ``configs`` are changed."""
        if self.coordinator is None and self._client is None:
            self.coordinator = Coordinator(self._settings, "token")
        self.configs |= _texts(configs)
        try:
            self.join()
        except BaseException:
            self.stop()
            raise

    def join(self) -> None:
        """As a process that begins. A coordinator that stood still takes no group for a moment: it is asked again."""

        process_id = uuid.uuid4().hex

        def joined() -> object:
            with contextlib.suppress(CoordinatorNotAvailable):
                return self.ask(
                    JoinGroup,
                    process_id=process_id,
                    query=False,
                    topics=self.topics,
                    configs=self.configs,
                    starting_offsets="earliest",
                )

        self.epoch = wait_until(joined, what="the member has joined").member_epoch

    def stop(self) -> None:
        """The coordinator is gone; the state stays."""
        coordinator, self.coordinator = self.coordinator, None
        if coordinator is not None:
            coordinator.close()

    def ask(self, request: type, **fields: object) -> object:
        return self._handle(request(group_id=self.group, member_id="c1", **fields))

    def _handle(self, request: object) -> object:
        if self._client is not None:
            return self._client.call(request)
        assert self.coordinator is not None
        return self.coordinator.service.handle(request)

    # --- the member

    def acquire(self, most: int = 100_000) -> int:
        """How many records it got. A heartbeat first, since nobody beats for it."""
        self.ask(Heartbeat, member_epoch=self.epoch)
        reply = self.ask(AcquireRecords, member_epoch=self.epoch, max_records=most)
        count = 0
        for partition in reply.partitions:
            held = self.held.setdefault((partition.topic_id, partition.partition), [])
            held += [(r.first, r.last, r.delivery_count) for r in partition.ranges]
            count += sum(r.last - r.first + 1 for r in partition.ranges)
        return count

    def acknowledge(self, *kinds: AcknowledgeType) -> None:
        """All that it holds, rejected, or as ``kinds``, one after the other and again from the first."""
        kinds = kinds or (AcknowledgeType.REJECT,)
        partitions = tuple(
            PartitionAcks(
                topic_id=topic_id,
                partition=partition,
                batches=tuple(
                    AckBatch(first=first, last=last, delivery_count=count, types=_types(kinds, first, last))
                    for first, last, count in held
                ),
            )
            for (topic_id, partition), held in self.held.items()
        )
        self.held = {}
        reply = self.ask(Acknowledge, member_epoch=self.epoch, partitions=partitions)
        assert not reply.errors, reply

    def reject_all(self, count: int) -> None:
        """Acquires and rejects ``count`` records."""
        got = 0
        while got < count:
            got += wait_until(self.acquire, what="records are acquired")
        assert got == count
        self.acknowledge()

    # --- what is to be seen

    def partitions(self) -> list[PartitionDescription]:
        return list(self._handle(DescribeGroup(group_id=self.group)).partitions)

    def archiving(self) -> int:
        """Records whose dead letters are not written yet."""
        return sum(p.archiving for p in self.partitions())

    def archived(self) -> int:
        return sum(p.archived_total for p in self.partitions())

    def wait_filed(self, count: int) -> None:
        """Waits until ``count`` records are ARCHIVED and none is ARCHIVING."""
        wait_until(lambda: self._counts() == (count, 0), what=f"{count} records are archived")

    def _counts(self) -> tuple[int, int]:
        found = self.partitions()
        return sum(p.archived_total for p in found), sum(p.archiving for p in found)


def origins(messages: list[Message]) -> Counter[Origin | None]:
    """How often each origin has a dead letter."""
    return Counter(parse_headers(message.headers()).origin for message in messages)


def said(message: Message) -> tuple[str, str]:
    """Disposition and message of a dead letter."""
    headers = dict(message.headers())
    return headers[DISPOSITION].decode(), headers[MESSAGE].decode()


def _types(kinds: tuple[AcknowledgeType, ...], first: int, last: int) -> tuple[int, ...]:
    if len(kinds) == 1:
        return (int(kinds[0]),)
    return tuple(int(kinds[offset % len(kinds)]) for offset in range(first, last + 1))


def _texts(configs: dict[str, object]) -> dict[str, str]:
    found = {}
    for name, value in configs.items():
        key = PREFIX + name.removeprefix("dlq_") if name.startswith("dlq_") else name
        found[key.replace("_", ".")] = str(value).lower() if isinstance(value, bool) else str(value)
    return found
