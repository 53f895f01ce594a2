"""Programs that are meant to differ: what each side does, and why ours does not do the same."""

from __future__ import annotations

from tests.same_program.world import OURS, World


def one_large_batch(w: World) -> None:
    """A producer wrote ten records as one batch; max.poll.records=4."""
    topic, group = w.topic(), w.group()
    w.broker.produce(topic, [f"v{number}" for number in range(10)], linger_ms=500)
    w.poll(w.explicit(group, [topic], max_poll_records=4))


def renewal(w: World) -> None:
    """Acknowledge type 4 (RENEW, KIP-1222)."""
    topic, group = w.topic(1), w.group()
    consumer = w.explicit(group, [topic])
    (message,) = w.poll(consumer)
    w.tries("renew", lambda: consumer.acknowledge(message, 4))


def acquire_mode(w: World) -> None:
    """The setting share.acquire.mode (KIP-1206)."""
    config = w.config(w.group(), **{"share.acquire.mode": "record_limit"})
    w.tries("a consumer with share.acquire.mode=record_limit", lambda: w.kafka.ShareConsumer(config).close())


def a_regular_expression(w: World) -> None:
    """subscribe() with a name that begins with ^."""
    topic, group = w.topic(1), w.group()
    poll = w.poll if w.side == OURS else w.poll_nothing  # which would not wait for the records of a slow machine
    poll(w.consumer(group, [f"^{topic}"]))


def no_brokers(w: World) -> None:
    """A configuration without bootstrap.servers."""
    w.tries("a consumer without bootstrap.servers", lambda: w.kafka.ShareConsumer({"group.id": "g", "log_level": 0}))


def gaps_in_the_callback(w: World) -> None:
    """A transaction of two records, and its marker at offset 2, which is no record."""
    topic, group = w.topic(), w.group()
    w.broker.produce_transaction(topic, ["a", "b"])
    consumer = w.consumer(group, [topic], max_poll_records=3)
    consumer.set_acknowledgement_commit_callback(w.callback())
    w.poll(consumer)
    w.commit(consumer)


PROGRAMS = (one_large_batch, renewal, acquire_mode, a_regular_expression, no_brokers, gaps_in_the_callback)

REASONS = {
    one_large_batch: "A native group locks the batches that a producer wrote, ours single offsets: max.poll.records "
    "holds exactly.",
    renewal: "Ours has what confluent's class lacks.",
    acquire_mode: "Ours has what confluent's class lacks.",
    a_regular_expression: "Ours matches whole names against a regular expression (RE2).",
    no_brokers: "confluent's waits for ever; ours says it.",
    gaps_in_the_callback: "Offsets without a record are acknowledged alike, and not told: the program was not given "
    "them.",
}
"""By program, why its traces differ; every other program has the same trace on both sides."""
