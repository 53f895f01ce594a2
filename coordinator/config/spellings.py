"""Finds the key that a user probably means: one written in camel case, with other signs, without its prefix, or with a
prefix that it does not have."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coordinator.config.group_keys import COORDINATOR_KEYS, GROUP_KEYS
from coordinator.kafka.java_keys import JAVAS, RENAMED
from coordinator.kafka.properties import PROPERTIES

_PREFIX = "kafka."


def bare_name(name: str) -> str:
    """The name without signs, in lower case, which is the same for all spellings of a key."""
    return re.sub("[^a-z0-9]", "", name.lower())


def by_bare_name(names: Iterable[str]) -> dict[str, str]:
    """The names by their bare names; names with ``kafka.`` also by their bare names without that."""
    known = list(names)
    without = {bare_name(each.removeprefix(_PREFIX)): each for each in known}
    return without | {bare_name(each): each for each in known}


_KAFKAS = by_bare_name(sorted(JAVAS | PROPERTIES))
_CONFIGS = {
    **{bare_name(each.split(".", 1)[1]): each for each in (*COORDINATOR_KEYS, *GROUP_KEYS)},
    **{bare_name(each): each for each in (*COORDINATOR_KEYS, *GROUP_KEYS)},
}


def kafka_key(name: str) -> str | None:
    """Returns the key of librdkafka's or Java's clients that the name means; None if there is no such key."""
    return _KAFKAS.get(bare_name(name.removeprefix(_PREFIX)))


def written_key(name: str) -> str | None:
    """Returns the group's or the coordinator's key that the name means; None if there is no such key. The name may have
    dlq for deadletterqueue."""
    return _CONFIGS.get(re.sub("^dlq", "deadletterqueue", bare_name(name.removeprefix(_PREFIX))))


def spelt_here(name: str, prefix: str) -> str | None:
    """Returns the key that the name means, with ``prefix`` if it is librdkafka's; None if there is no such key, or the
    name is already right."""
    key = kafka_key(name)
    found = written_key(name) if key is None else prefix + RENAMED.get(key, key)
    return None if found == prefix + name else found
