"""Resolved configuration: the values that were set, checked against the tables, and defaults for all others.

Rule: configuration is parsed once, where it comes in; all other code reads plain attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from coordinator.config.group_bounds import GroupBounds
from coordinator.config.group_keys import (
    COORDINATOR_KEYS,
    DEAD_LETTER_SOURCES,
    DEAD_LETTER_TOPIC,
    GROUP_KEYS,
    CoordinatorValues,
    GroupValues,
)
from coordinator.config.keys import hint, parse_all, show
from coordinator.config.server_keys import SERVER_KEYS, ServerValues
from coordinator.protocol.allowed_topics import AllowedTopics
from coordinator.protocol.errors import ConfigConflict
from coordinator.protocol.topic_names import ALL_TOPICS, topics_in


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupConfig(GroupValues):
    """A group's configuration, resolved. Attributes are the keys in snake case."""

    @classmethod
    def parse(cls, texts: Mapping[str, str] | None = None, bounds: GroupBounds | None = None) -> GroupConfig:
        """Resolve the texts by key; keys that are not given get their defaults. ``bounds``: the coordinator's, whose
        defaults hold instead of the tables', and within which stored configs are brought.

        Raises:
            UnknownConfig: no such key.
            ConfigTypeMismatch: a text is not of the key's type.
            ConfigOutOfBounds: a value is not accepted.
            ConfigConflict: two keys contradict each other."""
        return _resolved(tuple((key, text.strip()) for key, text in (texts or {}).items()), bounds)

    @property
    def is_ordered(self) -> bool:
        return self.share_order == "partition"

    def is_paused(self, topic: str) -> bool:
        """Whether no record of the topic is to be acquired."""
        return not {ALL_TOPICS, topic}.isdisjoint(topics_in(self.share_paused_topics))

    def is_explicit(self, own: str = "") -> bool:
        """Whether a record that no sink mentions is released instead of accepted. ``own``: the query's own mode; if
        that is empty, the group's applies."""
        return (own or self.share_acknowledgement_mode) == "explicit"


GROUP_SCOPE = "share group configuration"


def hint_of_group(name: str) -> str:
    """The end of an error's sentence about a name that is no key of a group."""
    if name in COORDINATOR_KEYS:
        return "it is a key of the coordinator: set it as an option of a query, or in the coordinator's file"
    if "." not in name:
        return "keys of a group have dots, as share.session.timeout.ms: set an option of a query at the query"
    return hint(name, GROUP_KEYS)


@lru_cache(maxsize=256)
def _resolved(given: tuple[tuple[str, str], ...], bounds: GroupBounds | None) -> GroupConfig:
    """As :meth:`GroupConfig.parse`. Each load and each join parses its group's configs, and most groups have the same,
    so the results are cached."""
    texts = dict(given) if bounds is None else {**bounds.defaults, **dict(given)}
    values: dict[str, Any] = parse_all(GROUP_KEYS, texts, GROUP_SCOPE, hint_of_group)
    if "share.heartbeat.interval.ms" not in texts:
        third_ms = values["share_session_timeout_ms"] // 3
        values["share_heartbeat_interval_ms"] = min(values["share_heartbeat_interval_ms"], third_ms)
    if bounds is not None:
        bounds.clamp(values)
    _check_heartbeat(values)
    _check_ttl(values)
    return GroupConfig(**values)


def in_force(configs: Mapping[str, str], bounds: GroupBounds | None) -> dict[str, str]:
    """The configs of a group that are others than its own texts, and the tables' defaults, say: as texts. The
    coordinator's ``bounds`` and defaults make them so."""
    own, bound = GroupConfig.parse(configs), GroupConfig.parse(configs, bounds)
    values = {key.name: (getattr(own, key.attribute), getattr(bound, key.attribute)) for key in GROUP_KEYS.values()}
    return {name: show(now) for name, (before, now) in values.items() if now != before}


def changed_configs(configs: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """The group configs with the changes. An empty text unsets a config. If the dead letter topic changes, the source
    topics that belonged to the one before are unset."""
    before = configs.get(DEAD_LETTER_TOPIC, "")
    if changes.get(DEAD_LETTER_TOPIC, before).strip() != before.strip():
        changes = {DEAD_LETTER_SOURCES: "", **changes}
    return {key: text for key, text in {**configs, **changes}.items() if text.strip()}


def replaced_configs(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """The keys that differ, with their texts before; the text is empty if the default held."""
    return {key: before.get(key, "") for key in {**before, **after} if before.get(key) != after.get(key)}


@dataclass(frozen=True, kw_only=True, slots=True)
class CoordinatorConfig(CoordinatorValues):
    """The coordinator's own configuration, resolved."""

    @classmethod
    def parse(cls, texts: Mapping[str, str] | None = None) -> CoordinatorConfig:
        """Resolve the texts by key, with the errors of :meth:`GroupConfig.parse`."""
        values: dict[str, Any] = parse_all(COORDINATOR_KEYS, texts or {}, "coordinator configuration")
        if values["share_coordinator_endpoint"] and "share.state.store" in (texts or {}):
            raise ConfigConflict(
                key="share.state.store",
                value=values["share_state_store"],
                other="share.coordinator.endpoint",
                other_value=values["share_coordinator_endpoint"],
                rule="a standalone coordinator has its own store; remove one of them",
            )
        return cls(**values)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerConfig(ServerValues):
    """The address of a standalone coordinator, and the limits of any coordinator, resolved."""

    @classmethod
    def parse(cls, texts: Mapping[str, str] | None = None) -> ServerConfig:
        """Resolve the texts by key, with the errors of :meth:`GroupConfig.parse`."""
        values: dict[str, Any] = parse_all(SERVER_KEYS, texts or {}, "standalone coordinator configuration")
        GroupBounds.of(values)
        return cls(**values)

    @property
    def allowed_topics(self) -> AllowedTopics:
        return AllowedTopics(
            source=self.share_coordinator_source_topics, dead_letters=self.share_coordinator_dead_letter_topics
        )

    @property
    def group_bounds(self) -> GroupBounds:
        return GroupBounds.of(asdict(self))


def _check_heartbeat(values: Mapping[str, Any]) -> None:
    heartbeat, session = values["share_heartbeat_interval_ms"], values["share_session_timeout_ms"]
    if heartbeat >= session:
        raise ConfigConflict(
            key="share.heartbeat.interval.ms",
            value=heartbeat,
            other="share.session.timeout.ms",
            other_value=session,
            rule="the heartbeat interval must be shorter than the session timeout, best a third of it",
        )


def _check_ttl(values: Mapping[str, Any]) -> None:
    ttl_ms, delay_ms = values["share_record_ttl_ms"], values["share_delivery_delay_ms"]
    if ttl_ms is not None and ttl_ms <= delay_ms:
        raise ConfigConflict(
            key="share.record.ttl.ms",
            value=ttl_ms,
            other="share.delivery.delay.ms",
            other_value=delay_ms,
            rule="a record would be given up before it may be delivered; the ttl must be longer than the delay",
        )
