"""Reads a topic's log with a plain consumer; nothing of the project's own reading is used."""

from __future__ import annotations

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

ANSWER_WITHIN_S = 60


def messages_of(
    bootstrap: str, topic: str, *, partition: int | None = None, isolation: str = "read_committed"
) -> list[Message]:
    """Every record that there is now, of one partition or of all, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-without-a-group",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    try:
        all_of_them = consumer.list_topics(topic, ANSWER_WITHIN_S).topics[topic].partitions
        numbers = [*all_of_them] if partition is None else [partition]
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in numbers])
        found, ended = [], set()
        while len(ended) < len(numbers):
            message = consumer.poll(ANSWER_WITHIN_S)
            assert message is not None, f"the end of {topic} did not come within {ANSWER_WITHIN_S} s"
            if message.error() is None:
                found.append(message)
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
    finally:
        consumer.close()
    return sorted(found, key=lambda each: (each.partition() or 0, each.offset() or 0))


OWNER = b"\x00\x66"
"""The keys of owner records begin so: an owner writes one every few seconds, whatever its groups do."""


def state_log(bootstrap: str, topic: str = "share-group-state") -> list[tuple[int, int, bytes]]:
    """The state topic's records as (partition, offset, key), without those of owners."""
    return [
        (each.partition() or 0, each.offset() or 0, each.key() or b"")
        for each in messages_of(bootstrap, topic)
        if not (each.key() or b"").startswith(OWNER)
    ]
