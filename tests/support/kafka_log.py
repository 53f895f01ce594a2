"""Reads a partition's log with a plain consumer."""

import confluent_kafka
from confluent_kafka import Consumer, TopicPartition


def read_all(bootstrap: str, topic: str, *, partition: int = 0, isolation: str = "read_committed") -> dict[int, bytes]:
    """Every record of a partition that there is now, by offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-without-a-group",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, confluent_kafka.OFFSET_BEGINNING)])
        return dict(iter(lambda: _next(consumer), None))
    finally:
        consumer.close()


def _next(consumer: Consumer) -> tuple[int, bytes] | None:
    message = consumer.poll(60)
    assert message is not None, "the partition's end did not come within 60 s"
    if message.error():
        assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
        return None
    return message.offset(), message.value()
