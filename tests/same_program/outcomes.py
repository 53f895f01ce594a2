"""Programs about outcomes: accept, release, reject, in both modes, up to the delivery limit."""

from __future__ import annotations

from tests.same_program.world import World


def implicit(w: World) -> None:
    """Each poll accepts the records of the one before."""
    topic, group = w.topic(6), w.group()
    consumer = w.consumer(group, [topic], max_poll_records=2)
    for _ in range(3):
        w.poll(consumer)
    w.poll_nothing(consumer)
    w.commit(consumer)
    consumer.close()
    w.poll_nothing(w.consumer(group, [topic]), "another member")


def implicit_commit(w: World) -> None:
    """A commit accepts the records of the last poll, once."""
    topic, group = w.topic(2), w.group()
    consumer = w.consumer(group, [topic], max_poll_records=2)
    w.poll(consumer)
    w.commit(consumer)
    w.commit(consumer)


def commits_in_a_row(w: World) -> None:
    """Explicit mode: a commit without a new outcome answers nothing, also after commit_async."""
    topic, group = w.topic(3), w.group()
    consumer = w.explicit(group, [topic], max_poll_records=3)
    first, second, third = w.poll(consumer)
    for message in (first, second):
        consumer.acknowledge(message)
        w.commit(consumer)
        w.commit(consumer)
    consumer.acknowledge(third)
    w.tries("commit_async", consumer.commit_async)
    w.commit(consumer)
    w.poll_nothing(consumer)


def mixed_outcomes(w: World) -> None:
    """Released records come again, with the next delivery count; accepted and rejected ones do not."""
    kind = w.kafka.AcknowledgeType
    topic, group = w.topic(6), w.group()
    consumer = w.explicit(group, [topic], max_poll_records=6)
    for message, outcome in zip(w.poll(consumer), [kind.ACCEPT, kind.RELEASE, kind.REJECT] * 2, strict=True):
        consumer.acknowledge(message, outcome)
    w.commit(consumer)
    for message in w.poll(consumer):
        consumer.acknowledge(message)
    w.commit(consumer)
    w.poll_nothing(consumer)


def newest_outcome(w: World) -> None:
    """Acknowledging a record twice is allowed until a commit: the newest outcome counts."""
    kind = w.kafka.AcknowledgeType
    topic, group = w.topic(2), w.group()
    consumer = w.explicit(group, [topic], max_poll_records=2)
    first, second = w.poll(consumer)
    w.tries("accept 0", lambda: consumer.acknowledge(first))
    w.tries("release 0", lambda: consumer.acknowledge(first, kind.RELEASE))
    w.tries("accept 1", lambda: consumer.acknowledge(second))
    w.commit(consumer)
    w.tries("accept 1 after the commit", lambda: consumer.acknowledge(second))
    w.poll(consumer)


def _to_the_limit(w: World, limit: int) -> None:
    topic, group = w.topic(2), w.group(share_delivery_count_limit=limit)
    consumer = w.explicit(group, [topic], max_poll_records=2)
    seen = 0
    while seen < 2 * limit:
        for message in w.poll(consumer):
            consumer.acknowledge(message, w.kafka.AcknowledgeType.RELEASE)
            seen += 1
        w.commit(consumer)
    w.poll_nothing(consumer)


def redelivery_to_the_limit(w: World) -> None:
    """A record that is released each time comes five times, the last one alone."""
    _to_the_limit(w, 5)


def a_limit_of_two(w: World) -> None:
    """The group has share.delivery.count.limit=2."""
    _to_the_limit(w, 2)


def by_offset(w: World) -> None:
    """acknowledge_offset is acknowledge, without the message."""
    topic, group = w.topic(3), w.group()
    consumer = w.explicit(group, [topic], max_poll_records=3)
    messages = w.poll(consumer)
    kind = w.kafka.AcknowledgeType
    for message, outcome in zip(messages, (kind.ACCEPT, kind.RELEASE, kind.REJECT), strict=True):
        w.tries(outcome.name, lambda m=message, o=outcome: consumer.acknowledge_offset(topic, 0, m.offset(), o))
    w.commit(consumer)
    w.poll(consumer)


def two_partitions(w: World) -> None:
    """A commit answers by partition."""
    topic, group = w.topic(4, partitions=2), w.group()
    consumer = w.explicit(group, [topic], max_poll_records=10)
    seen: dict[tuple[int, int], int] = {}
    results: dict[int, set[object]] = {}
    while len(seen) < 4:
        for message in consumer.poll(1.0):
            seen[message.partition(), message.offset()] = message.delivery_count()
            consumer.acknowledge(message)
        for at, error in consumer.commit_sync().items():
            results.setdefault(at.partition, set()).add(error)
    w.say(f"delivery counts {sorted(seen.items())}")
    w.say(f"results {sorted(results.items())}")


def records_as_they_were_written(w: World) -> None:
    """Key, value, headers and the type of the timestamp."""
    topic, group = w.topic(), w.group()
    w.produce(topic, "v", key="k", headers=[("h", b"1"), ("h", b"2")])
    w.produce(topic, "")
    consumer = w.consumer(group, [topic], max_poll_records=2)
    for message in w.poll(consumer):
        w.say(f"{message.key()} {message.value()} {message.headers()} timestamp type {message.timestamp()[0]}")
        w.say(f"leader epoch {message.leader_epoch()}, {len(message)} bytes, error {message.error()}")
        w.say(f"latency {message.latency()}, {type(message).__name__}, deserialized {message.deserialized_value()}")


PROGRAMS = (
    *(implicit, implicit_commit, commits_in_a_row, mixed_outcomes, newest_outcome, redelivery_to_the_limit),
    *(a_limit_of_two, by_offset, two_partitions, records_as_they_were_written),
)
