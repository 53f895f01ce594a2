"""Writes the configuration tables as Java properties files: each key with its meaning, its bounds and its default.

Rule: conf/*.properties and the output of ``sharegroup coordinator --print-config`` are made here, from the tables
alone."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from coordinator.config.group_keys import COORDINATOR_KEYS, GROUP_KEYS
from coordinator.config.keys import ConfigKey, show
from coordinator.config.server_keys import SERVER_KEYS

_comment = textwrap.TextWrapper(110, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
_STANDALONE_HEAD = """\
# The Kafka brokers to ask first: host:port, separated by commas.
bootstrap.servers=localhost:9092

# Any property of librdkafka, with the prefix kafka.; ${env:NAME} stands for the environment variable NAME.
#kafka.security.protocol=SASL_SSL
#kafka.sasl.password=${env:KAFKA_PASSWORD}

"""
_ORIGIN = (
    "# Ours: Kafka has no such key. Kafka's: Kafka has the key, too; where it differs, the line below says how and why."
)


def coordinator_properties(*notes: str) -> str:
    """The file with the keys of a standalone coordinator. ``notes``: further comments below the title."""
    title = "Configuration of a standalone coordinator: the defaults. sharegroup coordinator --config FILE"
    return _properties((title, *notes), {**SERVER_KEYS, **COORDINATOR_KEYS}, _STANDALONE_HEAD)


def group_properties(*notes: str) -> str:
    """The file with the keys of a share group. ``notes``: further comments below the title."""
    title = "Configuration of a share group: the defaults. Set them as options of the source."
    return _properties((title, *notes), GROUP_KEYS)


def _properties(comments: tuple[str, ...], table: Mapping[str, ConfigKey], head: str = "") -> str:
    notes = [*(f"# {comment}" for comment in comments), "# A line without # sets a value.", _ORIGIN]
    lines = [*notes, "", *head.splitlines()]
    for key in table.values():
        kip = f" ({key.kip})" if key.kip else ""
        takes = f" It takes: {key.bounds}." if key.bounds else ""
        whose = "Ours" if key.ours else "Kafka's"
        unset = f"Without a value: {key.unset}." if key.unset else ""
        for paragraph in filter(None, (key.doc, f"{whose}{kip}.{takes}", key.why, unset)):
            lines += _comment.wrap(paragraph)
        default = "" if key.default is None else show(key.default)
        lines += [f"#{key.name}={default}", ""]
    return "\n".join(lines)
