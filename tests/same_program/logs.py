"""Programs about what a log holds: transactions, reset policies, records that were deleted."""

from __future__ import annotations

from tests.same_program.world import PATIENCE_S, World
from tests.support.waiting import wait_until


def _transactions(w: World, level: str) -> None:
    topic, group = w.topic(), w.group(share_isolation_level=level)
    w.broker.produce_transaction(topic, ["a", "b"])
    w.broker.produce_transaction(topic, ["aborted"], commit=False)
    w.broker.produce_transaction(topic, ["c"])
    consumer = w.explicit(group, [topic], max_poll_records=10)
    seen: list[str] = []
    while "c" not in seen:
        for message in w.poll(consumer):
            seen.append(message.value().decode())
            consumer.acknowledge(message)
        w.commit(consumer)
    w.say(" ".join(seen))
    w.tries("accept the marker", lambda: consumer.acknowledge_offset(topic, 0, 2))
    w.poll_nothing(consumer)


def read_committed(w: World) -> None:
    """Records of aborted transactions, and markers, are not delivered."""
    _transactions(w, "read_committed")


def read_uncommitted(w: World) -> None:
    """Records of aborted transactions are delivered, markers are not."""
    _transactions(w, "read_uncommitted")


def an_open_transaction(w: World) -> None:
    """read_committed: the records behind an open transaction wait for its end."""
    topic, group = w.topic(1), w.group(share_isolation_level="read_committed")
    producer = w.broker.open_transaction(topic, ["open"])
    w.produce(topic, "behind")
    consumer = w.consumer(group, [topic])
    w.poll(consumer)
    w.poll_nothing(consumer)
    producer.commit_transaction(60)
    values: list[bytes] = []
    while len(values) < 2:
        values += [message.value() for message in consumer.poll(1.0)]
    w.say(f"{values}")


def reset_to_latest(w: World) -> None:
    """A group that begins at the end gets what is written after it began, and nothing from before."""
    topic, group = w.topic(3), w.group(share_auto_offset_reset="latest")
    consumer = w.consumer(group, [topic])
    seen: list[int] = []

    def came() -> bool:
        w.produce(topic, "new")
        seen.extend(message.offset() for message in consumer.poll(1.0))
        return bool(seen)

    wait_until(came, timeout_s=PATIENCE_S, what="a record comes that was written after the group began")
    w.say(f"a record from before: {min(seen) < 3}")


def reset_by_duration(w: World) -> None:
    """A group that begins an hour ago has the records of this hour."""
    topic = w.broker.create_topic(retention_ms=-1)
    group = w.group(share_auto_offset_reset="by_duration:PT1H")
    w.produce(topic, "old", timestamp=1_600_000_000_000)
    w.produce(topic, "new")
    w.poll(w.consumer(group, [topic]))


def deleted_records(w: World) -> None:
    """A group begins after records that were deleted."""
    topic, group = w.topic(4), w.group()
    w.broker.delete_records(topic, 2)
    w.poll(w.consumer(group, [topic], max_poll_records=10))


def records_deleted_while_in_flight(w: World) -> None:
    """An outcome of a record that delete-records took is no error."""
    topic, group = w.topic(2), w.group()
    consumer = w.explicit(group, [topic], max_poll_records=2)
    for message in w.poll(consumer):
        consumer.acknowledge(message)
    w.broker.delete_records(topic, 1)
    w.commit(consumer)
    w.poll_nothing(consumer)


PROGRAMS = (
    *(read_committed, read_uncommitted, an_open_transaction, reset_to_latest, reset_by_duration, deleted_records),
    records_deleted_while_in_flight,
)
