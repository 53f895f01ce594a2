"""A record batch that is damaged on the broker's disk, and a query of Spark's: it fails once by name, and its restart
delivers everything beside the batch."""

import pytest

from tests.support.damaged_log import CRC, damage
from tests.support.share_job import numbers

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.broker]


def test_a_restart_delivers_everything_beside_a_damaged_batch(kafka, topic, job, start):
    """The limit on rejects is for sinks: a damaged batch does not count."""
    orders = topic()
    for first in (0, 40, 80):
        kafka.produce(orders, numbers(40, first=first), partition=0)
    batch = damage(kafka, orders, 50, CRC)
    queue = job(orders, **{"errors.deadletterqueue.max.reject.ratio": "0.01"})
    query = queue.query("a", trigger="available_now")
    assert f"offsets {batch.first} to {batch.last} can't be read" in start(query).wait_over().error()
    assert start(query).wait_over().error() == ""
    damaged = set(numbers(batch.last - batch.first + 1, first=batch.first))
    queue.output().assert_exactly_once(set(numbers(120)) - damaged)
