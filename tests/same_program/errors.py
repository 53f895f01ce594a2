"""Programs about mistakes: configuration, arguments, modes, threads, callbacks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import ConcurrentModificationException, Message
from confluent_kafka.serialization import IntegerDeserializer, StringDeserializer

from tests.same_program.world import World
from tests.support.waiting import wait_until

BAD_SETTINGS: tuple[tuple[str, Any], ...] = (
    ("no.such.property", "1"),
    ("auto.offset.reset", "earliest"),
    ("enable.auto.commit", True),
    ("group.instance.id", "x"),
    ("isolation.level", "read_committed"),
    ("partition.assignment.strategy", "range"),
    ("interceptor.classes", "x"),
    ("session.timeout.ms", 1000),
    ("heartbeat.interval.ms", 3000),
    ("group.protocol", "consumer"),
    ("group.remote.assignor", "x"),
    ("max.poll.records", 0),
    ("max.poll.records", "many"),
    ("security.protocol", "none"),
    ("socket.timeout.ms", 1),
    ("enable.partition.eof", True),
    ("queued.min.messages", 1),
    ("allow.auto.create.topics", True),
    ("on_commit", print),
    ("error_cb", 5),
    ("share.record.lock.duration.msec", 1),
)


def bad_configuration(w: World) -> None:
    """Wrong properties and values, found by the constructor."""
    good = {"bootstrap.servers": w.broker.bootstrap, "group.id": "g", "log_level": 0}
    w.tries("no configuration", lambda: w.kafka.ShareConsumer())
    w.tries("no dict", lambda: w.kafka.ShareConsumer(5))
    w.tries("no group.id", lambda: w.kafka.ShareConsumer({"bootstrap.servers": w.broker.bootstrap}))
    for key, value in BAD_SETTINGS:
        config = {**good, key: value}
        w.tries(f"{key}={'print' if callable(value) else value}", partial(w.kafka.ShareConsumer, config))


def bad_arguments(w: World) -> None:
    """Arguments that no method takes."""
    consumer = w.explicit(w.group(), ["a"])
    calls: dict[str, Callable[[], Any]] = {
        "subscribe(text)": lambda: consumer.subscribe("a"),
        "subscribe(None)": lambda: consumer.subscribe(None),
        "subscribe(empty name)": lambda: consumer.subscribe([""]),
        "subscribe(twice the same)": lambda: consumer.subscribe(["a", "a"]),
        "poll(text)": lambda: consumer.poll("1"),
        "poll(None)": lambda: consumer.poll(None),
        "commit_sync(text)": lambda: consumer.commit_sync("1"),
        "commit_async(1)": lambda: consumer.commit_async(1),
        "acknowledge(text)": lambda: consumer.acknowledge("x"),
        "acknowledge(empty message)": lambda: consumer.acknowledge(Message()),
        "acknowledge(not in flight)": lambda: consumer.acknowledge(Message(topic="a", partition=0, offset=0)),
        "acknowledge_offset(partition -1)": lambda: consumer.acknowledge_offset("a", -1, 0),
        "acknowledge_offset(offset -1)": lambda: consumer.acknowledge_offset("a", 0, -1),
        "acknowledge_offset(type 0)": lambda: consumer.acknowledge_offset("a", 0, 0, 0),
        "acknowledge_offset(type 9)": lambda: consumer.acknowledge_offset("a", 0, 0, 9),
        "acknowledge_offset(type text)": lambda: consumer.acknowledge_offset("a", 0, 0, "x"),
        "acknowledge_offset(topic 5)": lambda: consumer.acknowledge_offset(5, 0, 0),
        "acknowledge_offset(not in flight)": lambda: consumer.acknowledge_offset("a", 0, 0),
        "callback 5": lambda: consumer.set_acknowledgement_commit_callback(5),
        "callback None": lambda: consumer.set_acknowledgement_commit_callback(None),
        "credentials None": lambda: consumer.set_sasl_credentials("a", None),
    }
    for name, call in calls.items():
        w.tries(name, call)


def a_consumer_without_topics(w: World) -> None:
    """poll() needs a subscription; the other methods do not."""
    consumer = w.consumer(w.group(), [])
    w.tries("poll", lambda: consumer.poll(0))
    w.say(f"subscription {consumer.subscription()}")
    w.commit(consumer)
    w.tries("commit_async", consumer.commit_async)
    w.tries("unsubscribe", consumer.unsubscribe)


def a_closed_consumer(w: World) -> None:
    """After close() every method but close() is refused."""
    consumer = w.consumer(w.group(), ["a"])
    consumer.close()
    message = Message(topic="a", partition=0, offset=0)
    for name, arguments in (
        ("subscribe", (["a"],)),
        ("unsubscribe", ()),
        ("subscription", ()),
        ("poll", (0.1,)),
        ("acknowledge", (message,)),
        ("acknowledge_offset", ("a", 0, 0)),
        ("commit_sync", ()),
        ("commit_async", ()),
        ("set_acknowledgement_commit_callback", (None,)),
        ("set_sasl_credentials", ("a", "b")),
        ("close", ()),
    ):
        w.tries(name, partial(getattr(consumer, name), *arguments))


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


class Reports:
    """A program's error_cb, stats_cb and logger. ``kinds``: what they were told, and the method that was called then;
    with ``elsewhere`` if another thread called them."""

    def __init__(self, raises: str = "") -> None:
        self.kinds: set[str] = set()
        self.method = "no method"
        self._raises = raises
        self._thread = threading.get_ident()

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "error_cb": lambda error: self._told(error.name()),
            "stats_cb": lambda text: self._told("statistics"),
            "logger": self,
            "statistics.interval.ms": 50,
        }

    def log(self, level: int, text: str, facility: str, client: str, line: str) -> None:
        """As logging.Logger has it; librdkafka's own words about ShareConsumers come from one side alone."""
        if facility == "FAIL":
            self._told(f"log {level}")

    def _told(self, kind: str) -> None:
        elsewhere = "" if threading.get_ident() == self._thread else " elsewhere"
        self.kinds.add(f"{kind} by {self.method}{elsewhere}")
        if self._raises in self.kinds:
            raise KeyError(kind)

    def wait_for(self, name: str, call: Callable[[], object], *kinds: str) -> None:
        """Call a method until it has told all of this."""
        self.method = name
        wanted = {f"{kind} by {name}" for kind in kinds}
        wait_until(lambda: call() is not None and wanted <= self.kinds, what=f"{wanted} of {self.kinds}")


def reports_without_records(w: World) -> None:
    """Polls and commits call stats_cb in their own thread, while nothing is read."""
    reports = Reports()
    consumer = w.kafka.ShareConsumer({**w.config(w.group()), **reports.settings})
    consumer.subscribe([w.topic()])
    reports.wait_for("poll", lambda: consumer.poll(0.2), "statistics")
    reports.wait_for("commit_sync", lambda: consumer.commit_sync(1), "statistics")
    reports.wait_for("commit_async", lambda: (consumer.commit_async(),), "statistics")
    w.say(f"{sorted(reports.kinds)}")
    reports.method = "close"
    consumer.close()


def reports_in_an_outage(w: World) -> None:
    """Polls call error_cb and the logger in their own thread, while no broker answers; their exceptions come out."""
    reports = Reports()
    away = {"bootstrap.servers": "127.0.0.1:9", "reconnect.backoff.max.ms": 100, "log_level": 6}
    consumer = w.kafka.ShareConsumer({**w.config(w.group()), **away, **reports.settings})
    consumer.subscribe(["a"])
    reports.wait_for("poll", lambda: consumer.poll(0.2), "_TRANSPORT", "_ALL_BROKERS_DOWN", "log 40", "statistics")
    w.say(f"{sorted(reports.kinds)}")
    consumer.close()
    for kind in ("_TRANSPORT", "log 40", "statistics"):
        reports = Reports(raises=f"{kind} by poll")
        consumer = w.kafka.ShareConsumer({**w.config(w.group()), **away, **reports.settings})
        consumer.subscribe(["a"])
        reports.method = "poll"
        w.tries(kind, lambda: wait_until(lambda: consumer.poll(0.2)))  # noqa: B023 - called at once
        reports._raises = ""
        consumer.close()


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
    bad_configuration,
    bad_arguments,
    a_consumer_without_topics,
    a_closed_consumer,
    acknowledge_in_implicit_mode,
    poll_with_undecided_records,
    callbacks,
    a_callback_that_fails,
    reports_without_records,
    reports_in_an_outage,
    a_callback_that_calls_the_consumer,
    two_threads,
    deserializers,
)
