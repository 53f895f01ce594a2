"""The DeserializingShareConsumer, by the name and with the constructor that confluent_kafka has."""

from __future__ import annotations

from typing import Any

from share_consumer.consumer import ShareConsumer


class DeserializingShareConsumer(ShareConsumer):
    """A ShareConsumer that is given key.deserializer and value.deserializer, which every ShareConsumer takes."""

    def __init__(self, conf: dict[str, Any]) -> None:
        """Takes the configuration as one dict, and raises as :class:`ShareConsumer` does."""
        super().__init__(conf.copy())
