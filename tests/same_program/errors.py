"""Programs about mistakes: configuration, arguments, modes, threads, callbacks."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

from confluent_kafka import ConcurrentModificationException
from confluent_kafka.serialization import IntegerDeserializer, StringDeserializer

from tests.same_program.world import World
from tests.support.waiting import wait_until


def acknowledge_in_implicit_mode(w: World) -> None:
    """The modes do not mix."""
    topic = w.topic(1)
    consumer = w.consumer(w.group(), [topic])
    (message,) = w.poll(consumer)
    w.tries("acknowledge", lambda: consumer.acknowledge(message))
    w.tries("acknowledge_offset", lambda: consumer.acknowledge_offset(topic, 0, 0))
    w.commit(consumer)


def poll_with_undecided_records(w: World) -> None:
    """Explicit mode: each record of a poll needs an outcome before the next poll; a commit may send a part."""
    topic = w.topic(3)
    consumer = w.explicit(w.group(), [topic], max_poll_records=2)
    first, second = w.poll(consumer)
    w.tries("poll", lambda: consumer.poll(0))
    consumer.acknowledge(first)
    w.tries("poll", lambda: consumer.poll(0))
    w.commit(consumer)
    w.tries("poll", lambda: consumer.poll(0))
    consumer.acknowledge(second)
    w.poll(consumer)


def callbacks(w: World) -> None:
    """The callback gets the outcomes of each commit, in the program's thread, and can be removed."""
    topic = w.topic(3)
    consumer = w.explicit(w.group(), [topic], max_poll_records=1)
    consumer.set_acknowledgement_commit_callback(w.callback())
    (message,) = w.poll(consumer)
    consumer.acknowledge(message)
    w.commit(consumer)
    (message,) = w.poll(consumer)
    consumer.acknowledge(message)
    consumer.set_acknowledgement_commit_callback(None)
    w.commit(consumer)


def a_callback_that_fails(w: World) -> None:
    """An exception of a callback comes out of the method that called it."""
    topic = w.topic(2)
    consumer = w.consumer(w.group(), [topic], max_poll_records=1)

    def fails(offsets: Any, error: Any) -> None:
        raise KeyError("the program's own")

    consumer.set_acknowledgement_commit_callback(fails)
    w.poll(consumer)
    w.tries("commit_sync", consumer.commit_sync)
    consumer.set_acknowledgement_commit_callback(None)
    w.poll(consumer)


def a_callback_that_calls_the_consumer(w: World) -> None:
    """A callback may not use its consumer."""
    topic = w.topic(1)
    consumer = w.consumer(w.group(), [topic])

    def calls(offsets: Any, error: Any) -> None:
        for name, arguments in (
            ("poll", (0,)),
            ("commit_sync", ()),
            ("commit_async", ()),
            ("subscribe", (["a"],)),
            ("subscription", ()),
            ("set_acknowledgement_commit_callback", (None,)),
            ("acknowledge_offset", (topic, 0, 0)),
            ("close", ()),
        ):
            w.tries(name, partial(getattr(consumer, name), *arguments))

    consumer.set_acknowledgement_commit_callback(calls)
    w.poll(consumer)
    w.commit(consumer)


def two_threads(w: World) -> None:
    """One thread at a time."""
    consumer = w.consumer(w.group(), [w.topic()])
    began = threading.Event()
    seen: list[bool] = []

    def polls() -> None:
        began.set()
        while True:
            try:
                consumer.poll(6.0)
            except ConcurrentModificationException:  # this thread came second
                continue
            return

    def is_refused() -> bool:
        try:
            consumer.subscription()
        except ConcurrentModificationException:
            seen.append(True)
        return bool(seen)

    thread = threading.Thread(target=polls)
    thread.start()
    began.wait()
    wait_until(is_refused, what="the other thread polls")
    for name, arguments in (
        ("poll", (0,)),
        ("commit_sync", ()),
        ("subscribe", (["a"],)),
        ("acknowledge_offset", ("a", 0, 0)),
        ("close", ()),
    ):
        w.tries(name, partial(getattr(consumer, name), *arguments))
    thread.join()


def deserializers(w: World) -> None:
    """A record that can't be deserialized stays in its batch, with its error."""
    topic = w.topic()
    for key, value in ((b"k", b"\x00\x00\x00\x05"), (b"\xff", b"\x00\x00\x00\x06"), (b"k", b"no number"), (None, None)):
        w.produce(topic, value, key=key)  # type: ignore[arg-type]  # also bytes
    config = w.config(w.group(), max_poll_records=10)
    config |= {"key.deserializer": StringDeserializer(), "value.deserializer": IntegerDeserializer()}
    consumer = w.kafka.DeserializingShareConsumer(config)
    consumer.subscribe([topic])
    seen = 0
    while seen < 4:
        for message in consumer.poll(1.0):
            seen += 1
            error = message.error()
            w.say(f"{message.offset()} {message.key()!r} {message.value()!r} {error.name() if error else ''}")
    w.commit(consumer)
    consumer.close()


PROGRAMS = (
    *(acknowledge_in_implicit_mode, poll_with_undecided_records, callbacks, a_callback_that_fails),
    *(a_callback_that_calls_the_consumer, two_threads, deserializers),
)
