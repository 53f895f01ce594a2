"""Clients of librdkafka, made so that what it refuses has a name, and how it says that a topic is not there. Beside the
core, since it needs confluent_kafka."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from coordinator.protocol.errors import InvalidKafkaConfig

UNKNOWN_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
"""The codes for a topic or a partition that is not there, or not known yet: the broker's and librdkafka's own."""
_TOGETHER = "(several that don't go together)"


def new_client(client: Any, config: Mapping[str, Any], **beside: Any) -> Any:
    """A Consumer, Producer or AdminClient; InvalidKafkaConfig, without the value, if its configuration is refused.
    ``beside``: what confluent_kafka takes beside the configuration."""
    try:
        return client(dict(config), **beside)
    except KafkaException as error:
        raise InvalidKafkaConfig(key=_refused_key(config, error.args[0].str())) from None


def _refused_key(config: Mapping[str, Any], text: str) -> str:
    """The key that librdkafka complains of: the property that its text names, else the first of ours that it speaks of,
    else the one that it refuses alone."""
    if named := re.search(r'configuration property:? "([\w.]+)"', text):
        return named.group(1)
    words = {word.strip(".") for word in re.findall(r"[\w.]+", text)}
    for key in config:
        if key in words:
            return key
    return next((key for key, value in config.items() if _is_refused_alone(key, value)), _TOGETHER)


def _is_refused_alone(key: str, value: Any) -> bool:
    from confluent_kafka.admin import AdminClient  # slow to import, and not wanted but here

    if not isinstance(value, str):  # a callback of ours
        return False
    try:
        AdminClient({"bootstrap.servers": "unused", "log_level": "0", key: value})
    except KafkaException:
        return True
    return False
