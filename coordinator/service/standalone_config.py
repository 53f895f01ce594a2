"""The configuration of a standalone coordinator, read from its properties file.

Rule: a mistake in the file raises a named error before anything is started or the network is used."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator.config.group_keys import COORDINATOR_KEYS, GROUP_KEYS
from coordinator.config.kafka_options import (
    TRANSACTIONAL_ID,
    broker_addresses,
    check_kafka_config,
    is_property,
    to_librdkafka,
)
from coordinator.config.keys import hint
from coordinator.config.properties_file import read_properties
from coordinator.config.resolved import CoordinatorConfig, ServerConfig
from coordinator.config.secret_files import read_tokens
from coordinator.config.server_keys import SERVER_KEYS
from coordinator.protocol.errors import ConfigOutOfBounds, MissingConfig, UnknownConfig
from coordinator.protocol.rights import Tokens
from coordinator.protocol.wire import LaunchSettings
from coordinator.service.server.listener import Listener, listener_of

BROKERS = "bootstrap.servers"
KAFKA_PREFIX = "kafka."
STORE = "share.state.store"


@dataclass(frozen=True, kw_only=True)
class Standalone:
    """The parsed properties file; the files that it names are not read yet."""

    settings: LaunchSettings
    config: CoordinatorConfig
    server: ServerConfig
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    def tokens(self) -> Tokens:
        """The tokens of which clients must show one. Raises as :func:`read_tokens`."""
        return read_tokens(self.config.share_coordinator_token_file, self.environ)

    def token(self) -> str:
        """A token for a request that needs no right. Raises as :meth:`tokens`."""
        return self.tokens().holders[0][0]

    def listener(self) -> Listener:
        """The listener, with certificate and key read. Raises ShareGroupError: see :func:`listener_of`."""
        return listener_of(self.server)


def read_config(path: str, environ: Mapping[str, str] = os.environ) -> Standalone:
    """The configuration that the file at ``path`` contains.

    Raises:
        InvalidPropertiesFile: the file can't be read.
        MissingConfig: ``bootstrap.servers`` is missing.
        UnknownConfig, ConfigOutOfBounds: a key is unknown, or its value is out of bounds.
        ShareGroupError: a key of the Kafka client is wrong (to_librdkafka, broker_addresses, check_kafka_config).
    """
    texts = read_properties(path, environ)
    _check_names([*texts])
    brokers = texts.pop(BROKERS, "").strip()
    if not brokers:
        raise MissingConfig(key=BROKERS, why="name at least one Kafka broker, as host:port.")
    kafka = {key: texts.pop(key) for key in list(texts) if key.startswith(KAFKA_PREFIX)}
    server = ServerConfig.parse({key: text for key, text in texts.items() if key in SERVER_KEYS})
    configs = {key: text for key, text in texts.items() if key in COORDINATOR_KEYS}
    config = CoordinatorConfig.parse({STORE: "kafka", **configs})
    if config.share_state_store == "sqlite":
        raise ConfigOutOfBounds(key=STORE, value="sqlite", bounds="kafka or sqlite:PATH for a standalone coordinator")
    kafka_config = to_librdkafka(
        {key.removeprefix(KAFKA_PREFIX): text for key, text in kafka.items()}, TRANSACTIONAL_ID, forbidden={}
    )
    check_kafka_config(kafka_config)
    settings = LaunchSettings(
        bootstrap_servers=broker_addresses(brokers, kafka_config, key=BROKERS),
        kafka_config=dict(kafka_config),
        state_store=config.share_state_store,
        configs={STORE: "kafka", **configs},
    )
    return Standalone(settings=settings, config=config, server=server, environ=environ)


_SCOPE = "standalone coordinator configuration"
_ALL = "conf/coordinator.properties has all"


def _check_names(names: list[str]) -> None:
    known = {BROKERS, *SERVER_KEYS, *COORDINATOR_KEYS}
    for name in names:
        if name == KAFKA_PREFIX + BROKERS:
            raise UnknownConfig(key=name, scope=_SCOPE, hint=f"write {BROKERS} without a prefix")
        if name not in known and not name.startswith(KAFKA_PREFIX):
            if is_property(name):
                raise UnknownConfig(key=name, scope=_SCOPE, hint=f"the nearest known one is {KAFKA_PREFIX}{name}")
            of_group = "it is a key of a share group: set it as an option of its queries"
            raise UnknownConfig(
                key=name, scope=_SCOPE, hint=of_group if name in GROUP_KEYS else hint(name, known, _ALL)
            )
