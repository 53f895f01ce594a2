"""Records that are hard to show, and hard to work on: a script, random bytes, 8 MB, and orders."""

from __future__ import annotations

import random

from tests.support.kafka_broker import KafkaBroker

SCRIPT = b'<script>document.title = "broken"</script>'
BYTES_AT, LARGE_AT = 21, 22
"""Offsets of the records with 64 random bytes, and with 8 MB."""
RECORDS = 120
POISONED = 13
"""Members reject the last one of each 13 neighbouring records."""


def produce_poisoned(kafka: KafkaBroker, topic: str, partitions: int) -> None:
    """RECORDS records for each partition; the first holds a script, in its value and in a header."""
    values = [b'{"order": %d}' % number for number in range(RECORDS)]
    for offset, value in ((0, SCRIPT), (BYTES_AT, random.Random(7).randbytes(64)), (LARGE_AT, b'"' * 8_000_000)):
        values[offset] = value
    headers = [(SCRIPT.decode(), SCRIPT)]
    for partition in range(partitions):
        kafka.produce(topic, values, partition=partition, headers=headers, message_max_bytes=9_000_000)
