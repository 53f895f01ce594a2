"""Asks brokers again and again whether they answer, without reading anything of the cluster's topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from coordinator.kafka.librdkafka import new_client

PATIENCE_S = 2.0
"""Brokers that do not answer for this many seconds count as away."""
_AWAY = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)


def brokers_answer(config: Mapping[str, str]) -> Callable[[], bool]:
    """Returns a function that asks the brokers of this configuration, and returns whether a broker answers within
    PATIENCE_S. An error that a broker returns, such as a missing permission, is an answer."""
    made: list[Any] = []

    def do_answer() -> bool:
        if not made:
            given = {"log_level": "0", "reconnect.backoff.max.ms": "1000", "reconnect.backoff.ms": "100", **config}
            made.append(new_client(AdminClient, given))
        try:
            made[0].describe_cluster(request_timeout=PATIENCE_S).result(PATIENCE_S + 1)
        except KafkaException as error:
            return error.args[0].code() not in _AWAY
        except FutureTimeoutError:
            return False
        return True

    return do_answer
