"""The options that source and sink share: the brokers, the share group, and three kinds of configuration.

Rule: making and printing the options does no I/O and does not call librdkafka, since Spark makes a data source on
executors too, and more than once."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coordinator.client.on_demand import OnDemand, store_of
from coordinator.client.options import OptionTable, configs, group_id
from coordinator.config import kafka_options
from coordinator.config.resolved import CoordinatorConfig
from coordinator.protocol.errors import ShareGroupError

_UNSET: tuple[object, ...] = (None, "", (), {})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, repr=False)
class GroupOptions:
    """Base of SourceOptions and SinkOptions. Picklable; ``repr`` shows no secrets.

    ``kafka_config`` is librdkafka's, with bootstrap.servers, without group.id. ``group_configs`` and
    ``coordinator_configs`` are checked, and kept as the texts that were given."""

    bootstrap_servers: str
    group_id: str
    kafka_config: dict[str, str] = field(default_factory=dict)
    group_configs: dict[str, str] = field(default_factory=dict)
    coordinator_configs: dict[str, str] = field(default_factory=dict)

    @property
    def state_store(self) -> str:
        return CoordinatorConfig.parse(self.coordinator_configs).share_state_store

    def check_kafka_config(self) -> None:
        """Have librdkafka check ``kafka_config``. No I/O.

        Raises:
            UnknownKafkaOption: librdkafka has no such property.
            InvalidOption: librdkafka refuses the value."""
        kafka_options.check_kafka_config(self.kafka_config)

    def printed(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**fields, "kafka_config": kafka_options.redacted(self.kafka_config)}

    def __repr__(self) -> str:
        fields = " ".join(f"{name}={value!r}" for name, value in self.printed().items() if value not in _UNSET)
        return f"<{type(self).__name__} {fields}>"


def shared_fields(given: Mapping[str, str], table: OptionTable, why_group_id: str) -> dict[str, Any]:
    """Returns the fields of GroupOptions, from options by lower-case name. ``why_group_id``: what kafka.group.id is
    for, for the error if it is missing.

    Raises:
        UnknownOption, RefusedOption, MissingOption: see coordinator.protocol.option_errors.
        UnknownConfig, ConfigTypeMismatch, ConfigOutOfBounds, ConfigConflict: see coordinator.config.resolved."""
    group_configs, coordinator_configs = configs(given)
    table.check_names(given)
    kafka_config = table.kafka_config(given)
    return {
        "bootstrap_servers": kafka_config["bootstrap.servers"],
        "group_id": group_id(given, why_group_id),
        "kafka_config": kafka_config,
        "group_configs": group_configs,
        "coordinator_configs": coordinator_configs,
    }


def start_ahead(options: GroupOptions, cluster_id: str) -> None:
    """Start the coordinator on demand of these options, if none runs, without waiting: a query will need it. Raises
    nothing: if the start fails, the query starts one itself and gets the named error."""
    config = CoordinatorConfig.parse(options.coordinator_configs)
    if config.share_coordinator_endpoint:
        return
    try:
        OnDemand(
            bootstrap_servers=options.bootstrap_servers,
            kafka_config=options.kafka_config,
            cluster_id=cluster_id,
            state_store=store_of(config.share_state_store, cluster_id),
            configs=dict(options.coordinator_configs),
        ).start_ahead()
    except (OSError, ShareGroupError) as error:
        _log.debug("no coordinator was started ahead of the query: %s", error)
