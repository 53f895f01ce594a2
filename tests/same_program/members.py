"""Programs about members: two consumers on one partition, locks, leaving, subscriptions."""

from __future__ import annotations

import time

from tests.same_program.world import World

LOCK_MS = 5_000
"""The lock duration, in milliseconds: long enough for the second holder to send its outcomes in time on a busy
machine."""


def two_consumers_on_one_partition(w: World) -> None:
    """Each record has one holder."""
    topic, group = w.topic(6), w.group()
    one, other = (w.explicit(group, [topic], max_poll_records=2) for _ in range(2))
    of_one, of_other = w.poll(one, "one"), w.poll(other, "other")
    w.tries("other accepts a record of one", lambda: other.acknowledge(of_one[0]))
    for consumer, messages in ((one, of_one), (other, of_other)):
        for message in messages:
            consumer.acknowledge(message)
        w.commit(consumer)
    w.poll(one, "one")


def a_backlog_is_shared(w: World) -> None:
    """One consumer polls and closes; another has the rest, and each record is delivered once."""
    topic, group = w.topic(10), w.group()
    one, other = (w.explicit(group, [topic], max_poll_records=2) for _ in range(2))
    for _ in range(3):
        for message in w.poll(one, "one"):
            one.acknowledge(message)
        w.commit(one)
    of_other = w.poll(other, "other")
    w.tries("one closes", one.close)
    for message in of_other:
        other.acknowledge(message)
    w.poll(other, "other")


def a_late_acknowledgement(w: World) -> None:
    """A lock ends, another member gets the record, and the first one's outcome is refused."""
    topic, group = w.topic(1), w.group(share_record_lock_duration_ms=LOCK_MS)
    slow, fast = (w.explicit(group, [topic]) for _ in range(2))
    (late,) = w.poll(slow, "slow")
    (again,) = w.poll(fast, "fast")
    w.tries("slow accepts", lambda: slow.acknowledge(late))
    w.commit(slow)
    w.tries("fast accepts", lambda: fast.acknowledge(again))
    w.commit(fast)
    w.poll_nothing(slow, "slow")


def close_releases_what_is_undecided(w: World) -> None:
    """Explicit mode: outcomes are sent by close(), the other records are released at once."""
    topic, group = w.topic(3), w.group()
    consumer = w.explicit(group, [topic], max_poll_records=3)
    consumer.set_acknowledgement_commit_callback(w.callback())
    messages = w.poll(consumer)
    consumer.acknowledge(messages[0])
    w.tries("close", consumer.close)
    w.poll(w.consumer(group, [topic], max_poll_records=3), "another member")


def close_accepts_nothing_by_itself(w: World) -> None:
    """Implicit mode: records that no poll or commit followed are released."""
    topic, group = w.topic(2), w.group()
    consumer = w.consumer(group, [topic], max_poll_records=2)
    w.poll(consumer)
    w.tries("close", consumer.close)
    w.poll(w.consumer(group, [topic], max_poll_records=2), "another member")


def unsubscribe_with_records_in_flight(w: World) -> None:
    """Records outlive the subscription that brought them."""
    topic, group = w.topic(2), w.group()
    consumer = w.explicit(group, [topic], max_poll_records=2)
    first, second = w.poll(consumer)
    consumer.unsubscribe()
    w.say(f"subscription {consumer.subscription()}")
    w.tries("accept", lambda: consumer.acknowledge(first))
    w.commit(consumer)
    w.tries("poll with a record undecided", lambda: consumer.poll(0))
    w.tries("accept", lambda: consumer.acknowledge(second))
    w.tries("poll without a subscription", lambda: consumer.poll(0))
    w.commit(consumer)


def unsubscribe_gives_up_partitions(w: World) -> None:
    """Two consumers have a partition each; one unsubscribes, and the other gets the records of both."""
    topic, group = w.topic(partitions=2), w.group()
    one, other = (w.consumer(group, [topic]) for _ in range(2))
    w.each_has_a_partition(topic, one, other)
    one.unsubscribe()
    for partition in range(2):
        w.produce(topic, "after", partition=partition)
    w.say(f"partitions of the other {w.partitions_of(other, 2)}")


def unsubscribe_leaves_the_group(w: World) -> None:
    """A consumer that holds no record leaves at once; it polls again after another subscribe()."""
    topic, group = w.topic(4), w.group()
    consumer = w.explicit(group, [topic], max_poll_records=2)
    for message in w.poll(consumer):
        consumer.acknowledge(message)
    w.commit(consumer)
    w.wait_for_state(group, "STABLE")
    w.tries("unsubscribe", consumer.unsubscribe)
    w.wait_for_state(group, "EMPTY")
    w.tries("poll", lambda: consumer.poll(0))
    consumer.subscribe([topic])
    for message in w.poll(consumer):
        consumer.acknowledge(message)
    w.commit(consumer)
    w.wait_for_state(group, "STABLE")


def subscribe_again_with_records_in_flight(w: World) -> None:
    """Records stay their holder's; in implicit mode the next poll accepts them."""
    topic, group = w.topic(6), w.group()
    consumer = w.explicit(group, [topic], max_poll_records=2)
    messages = w.poll(consumer)
    consumer.unsubscribe()
    consumer.subscribe([topic])
    w.tries("poll with records undecided", lambda: consumer.poll(0))
    for message in messages:
        consumer.acknowledge(message)
    w.poll(consumer)
    consumer.close()
    implicit = w.consumer(group, [topic], max_poll_records=2)
    w.poll(implicit, "implicit")
    implicit.unsubscribe()
    implicit.subscribe([topic])
    w.poll(implicit, "implicit")
    w.commit(implicit)
    w.poll_nothing(w.consumer(group, [topic]), "another member")


def unsubscribe_keeps_the_locks(w: World) -> None:
    """Records without an outcome go to another member when their locks end, and not before."""
    topic, group = w.topic(1), w.group(share_record_lock_duration_ms=LOCK_MS)
    one, other = (w.explicit(group, [topic]) for _ in range(2))
    began_s = time.monotonic()
    (late,) = w.poll(one, "one")
    one.unsubscribe()
    w.poll(other, "other")
    w.say(f"when the lock has ended {time.monotonic() - began_s >= LOCK_MS / 1_000}")
    w.tries("one accepts", lambda: one.acknowledge(late))
    w.commit(one)


def another_subscription(w: World) -> None:
    """subscribe() replaces the topics; records of the topic before can still be acknowledged."""
    before, after, group = w.topic(1), w.topic(1), w.group()
    consumer = w.explicit(group, [before])
    (message,) = w.poll(consumer)
    consumer.subscribe([after])
    consumer.acknowledge(message)
    w.commit(consumer)
    (other,) = w.poll(consumer)
    w.say(f"of the new topic {other.topic() == after}")
    consumer.acknowledge(other)
    w.commit(consumer)


def a_topic_that_is_not_there(w: World) -> None:
    """Nothing comes, and nothing is raised."""
    consumer = w.consumer(w.group(), [f"missing-{w.side}"])
    w.poll_nothing(consumer)
    w.commit(consumer)


PROGRAMS = (
    *(two_consumers_on_one_partition, a_backlog_is_shared, a_late_acknowledgement, close_releases_what_is_undecided),
    *(close_accepts_nothing_by_itself, unsubscribe_with_records_in_flight, unsubscribe_gives_up_partitions),
    *(unsubscribe_leaves_the_group, subscribe_again_with_records_in_flight, unsubscribe_keeps_the_locks),
    *(another_subscription, a_topic_that_is_not_there),
)
