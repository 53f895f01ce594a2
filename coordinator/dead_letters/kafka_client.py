"""Clients of librdkafka, made so that what it refuses has a name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException

from coordinator.errors import InvalidKafkaConfig


def new_client(client: Any, config: Mapping[str, Any]) -> Any:
    """A Consumer or Producer; InvalidKafkaConfig, without the value, if its configuration is refused."""
    try:
        return client(dict(config))
    except KafkaException as error:
        named = re.search(r'property[: ]*"?([\w.]+)', error.args[0].str())
        raise InvalidKafkaConfig(key=named.group(1) if named else "(unknown)") from None
