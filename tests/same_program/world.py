"""A program works with these: topics, groups, the ShareConsumer of its side, and the trace that it leaves."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Producer

import sharegroup
from coordinator.client.client import CoordinatorClient
from coordinator.protocol.messages import DescribeGroup
from tests.support.kafka_broker import KafkaBroker
from tests.support.waiting import wait_until

NATIVE, OURS = "native", "ours"
SIDES = {NATIVE: confluent_kafka, OURS: sharegroup}
PATIENCE_S = 60.0
"""A poll that has to bring records fails after this many seconds: a busy machine takes far less."""
NATIVE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
QUIET_S = 1.5
"""A poll of this many seconds without a record shows that there is none."""


class World:
    """One run of one program on one side. ``trace`` names no topic and no group: they differ from run to run."""

    def __init__(self, broker: KafkaBroker, side: str) -> None:
        self.broker, self.side = broker, side
        self.kafka: Any = SIDES[side]
        self.trace: list[str] = []
        self._configs: dict[str, dict[str, str]] = {}
        self._consumers: list[Any] = []
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        for consumer in self._consumers:
            consumer.close()

    # --- what there is

    def topic(self, records: int = 0, *, partitions: int = 1) -> str:
        """A new topic with ``records`` records, each a batch of its own, so that both sides may cut anywhere."""
        name = self.broker.create_topic(partitions=partitions)
        for number in range(records):
            self.produce(name, f"v{number}", partition=number % partitions)
        return name

    def produce(self, topic: str, value: str, **fields: Any) -> None:
        self._producer.produce(topic, value, **fields)
        assert self._producer.flush(PATIENCE_S) == 0

    def group(self, **configs: object) -> str:
        """A new group that begins at the earliest record, unless ``configs`` (share_auto_offset_reset and others) set
        it otherwise."""
        name = f"group-{uuid.uuid4().hex[:8]}"
        configs = {"share_auto_offset_reset": "earliest", **configs}
        if self.side == OURS:
            self._configs[name] = {key.replace("_", "."): str(value) for key, value in configs.items()}
        else:
            self.broker.configure_group(name, **configs)
        return name

    def config(self, group: str, **settings: Any) -> dict[str, Any]:
        """The constructor's configuration, as a program would write it, and the group's where we take it there."""
        named = {key.replace("_", "."): value for key, value in settings.items()}
        base = {"bootstrap.servers": self.broker.bootstrap, "group.id": group, "log_level": 0}
        return {**base, **self._configs.get(group, {}), **named}

    def consumer(self, group: str, topics: Iterable[str], **settings: Any) -> Any:
        """A consumer of these topics, which the end of the run closes."""
        consumer = self.kafka.ShareConsumer(self.config(group, **settings))
        self._consumers.append(consumer)
        consumer.subscribe(list(topics))
        return consumer

    def explicit(self, group: str, topics: Iterable[str], **settings: Any) -> Any:
        return self.consumer(group, topics, share_acknowledgement_mode="explicit", **settings)

    # --- what happened

    def say(self, line: str) -> None:
        self.trace.append(line)

    def poll(self, consumer: Any, who: str = "poll") -> Any:
        """The next records, which have to come."""
        found: list[Any] = []

        def came() -> bool:
            found[:] = consumer.poll(1.0)
            return bool(found)

        wait_until(came, timeout_s=PATIENCE_S, what="records come")
        self.say(f"{who} {records(found)}")
        return found

    def each_has_a_partition(self, topic: str, *consumers: Any) -> None:
        """Wait until each consumer gets the records of one partition, and of no other. It accepts all of them."""

        def settled() -> bool:
            for partition in range(len(consumers)):
                self.produce(topic, "a record", partition=partition)
            got = [{message.partition() for message in consumer.poll(1.0)} for consumer in consumers]
            for consumer in consumers:
                consumer.commit_sync(PATIENCE_S)
            return all(len(of) == 1 for of in got) and len(set().union(*got)) == len(consumers)

        wait_until(settled, timeout_s=PATIENCE_S, what="each consumer has a partition")

    def partitions_of(self, consumer: Any, count: int) -> list[int]:
        """Polls until the consumer has records of ``count`` partitions. Returns the partitions."""
        found: set[int] = set()

        def came() -> bool:
            found.update(message.partition() for message in consumer.poll(1.0))
            return len(found) >= count

        wait_until(came, timeout_s=PATIENCE_S, what=f"records of {count} partitions come")
        return sorted(found)

    def wait_for_state(self, group: str, state: str) -> None:
        """Wait until the group is in that state: STABLE has members, EMPTY has none."""
        wait_until(lambda: self._state(group) == state, timeout_s=PATIENCE_S, what=f"the group is {state}")
        self.say(f"group {state}")

    def _state(self, group: str) -> str:
        if self.side == OURS:
            client = CoordinatorClient.connect(self.broker.bootstrap, {"bootstrap.servers": self.broker.bootstrap})
            try:
                return client.call(DescribeGroup(group_id=group)).state
            finally:
                client.close()
        told = self.broker.run_tool(
            NATIVE_GROUPS, "--bootstrap-server", self.broker.bootstrap, "--describe", "--state", "--group", group
        )
        return next((state for state in ("STABLE", "EMPTY") if state in told.upper()), told)

    def poll_nothing(self, consumer: Any, who: str = "poll") -> None:
        """A poll that should return nothing; the trace has what it returns."""
        self.say(f"{who} {records(consumer.poll(QUIET_S))}")

    def tries(self, what: str, function: Callable[[], Any]) -> Any:
        """Calls it, and writes how that ended: ok, or the exception."""
        try:
            result = function()
        except Exception as error:  # noqa: BLE001 - any exception is a part of the trace
            self.say(f"{what}: {exception(error)}")
            return None
        self.say(f"{what}: ok")
        return result

    def commit(self, consumer: Any) -> None:
        """commit_sync, and its result by partition."""
        result = consumer.commit_sync(PATIENCE_S)
        of = ", ".join(f"p{at.partition} {exception(e) if e else 'ok'}" for at, e in sorted(result.items()))
        self.say(f"commit {of or '-'}")

    def callback(self) -> Callable[[Any, Any], None]:
        """A callback that writes its arguments to the trace."""

        def told(by_partition: Any, error: Any) -> None:
            of = ", ".join(f"p{at.partition} {sorted(of)}" for at, of in sorted(by_partition.items()))
            self.say(f"callback {of} {exception(error) if error else 'ok'}")

        return told


def records(messages: Iterable[Any]) -> str:
    """Each record as offset×delivery count, with its partition where that is not 0."""
    said = [f"{f'p{m.partition()}:' if m.partition() else ''}{m.offset()}×{m.delivery_count()}" for m in messages]
    return " ".join(said) or "nothing"


def exception(error: BaseException) -> str:
    """The exception's class, and Kafka's code where it has one."""
    name = type(error).__name__
    if isinstance(error, KafkaException) and error.args and isinstance(error.args[0], KafkaError):
        return f"{name} {error.args[0].name()}"
    return name
