"""The options of every command on a cluster, named as in Kafka's own tools, and the configuration that they lead to."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import click

from coordinator.protocol.errors import ShareGroupError, UnknownTopic


class Cluster(NamedTuple):
    """The cluster that a command works on: the values of the options that :func:`cluster_options` adds."""

    bootstrap_server: str
    config_path: str | None
    properties: Mapping[str, str]

    def __repr__(self) -> str:
        """The properties may hold passwords."""
        return f"<Cluster {self.bootstrap_server}>"


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --bootstrap-server, --command-config and --command-property. The command gets them as ``cluster``."""

    @click.option(
        "--bootstrap-server", required=True, metavar="HOST:PORT", help="The Kafka brokers, separated by commas."
    )
    @click.option(
        "--command-config",
        "config_path",
        metavar="FILE",
        type=click.Path(dir_okay=False),
        help="A properties file: of the Kafka client, for example security.protocol, and of sharegroup, for "
        "example share.state.store, share.coordinator.endpoint or share.coordinator.token.file.",
    )
    @click.option(
        "--command-property",
        "properties",
        multiple=True,
        metavar="KEY=VALUE",
        callback=pairs,
        help="One such property; it counts before the file's. Can be given several times.",
    )
    @functools.wraps(command)
    def called(
        *arguments: Any, bootstrap_server: str, config_path: str | None, properties: Mapping[str, str], **given: Any
    ) -> Any:
        return command(*arguments, cluster=Cluster(bootstrap_server, config_path, properties), **given)

    return called


JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def pairs(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """Returns the pairs of KEY=VALUE texts. Raises BadParameter if a text is no pair, or a key has two values."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key.strip() or not equals:
            raise click.BadParameter(f"'{text}' is not KEY=VALUE")
        if found.setdefault(key.strip(), value) != value:
            raise click.BadParameter(f"{key.strip()} has two values: give it once")
    return found


def settings(bootstrap_server: str, config_path: str | None, properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties of file and command line, with bootstrap.servers. Java's names of client properties are
    translated to librdkafka's. A file may be a program's: keys of its consumer or producer are left out, and named.

    Raises:
        InvalidPropertiesFile: the file can't be read.
        ShareGroupError: a property is wrong (the errors of to_librdkafka, broker_addresses and check_kafka_config)."""
    from coordinator.config.kafka_options import broker_addresses, check_kafka_config, to_librdkafka
    from coordinator.config.properties_file import read_properties

    read = {**(read_properties(config_path) if config_path else {}), **properties}
    read.pop("bootstrap.servers", None)
    _leave_out(read)
    kafka = kafka_config(read)
    own = {key: text for key, text in read.items() if key not in kafka}
    translated = to_librdkafka(kafka, {}, prefix="", forbidden={})
    check_kafka_config(translated, prefix="")
    servers = broker_addresses(bootstrap_server, translated, prefix="", key="--bootstrap-server")
    return {**own, **translated, "bootstrap.servers": servers}


def _leave_out(read: dict[str, str]) -> None:
    from coordinator.kafka.java_keys import SERIALIZERS, SHARE_GROUPS_FORBID

    of_programs = {"group.id", "transactional.id", *SERIALIZERS, *SHARE_GROUPS_FORBID}
    if left_out := sorted(key for key in of_programs if read.pop(key, None) is not None):
        _tell(
            f"Left out, as keys of a consumer or producer: {', '.join(left_out)}. A command's own options name group "
            "and offsets, and share.* keys configure the group."
        )


@functools.cache
def _tell(text: str) -> None:
    """Print the text on standard error, once: some commands read their properties twice."""
    click.echo(text, err=True)


def connect_options(config_path: str | None, properties: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the words of --command-config and --command-property, to print them in a command for the user. Secrets
    are redacted."""
    from coordinator.config.kafka_options import redacted

    kafka = redacted(kafka_config(properties))
    of_properties = (
        word for key, value in properties.items() for word in ("--command-property", f"{key}={kafka.get(key, value)}")
    )
    return (*(("--command-config", config_path) if config_path else ()), *of_properties)


def check_topic(config: Mapping[str, str], topic: str) -> None:
    """Check that the brokers answer, and have the topic.

    Raises:
        BrokerNotReachable, BrokerSecurityFailed, InvalidKafkaConfig: as cluster_metadata.
        UnknownTopic: the brokers have no such topic, or hide it from the user."""
    from coordinator.kafka.cluster_metadata import cluster_metadata

    found = cluster_metadata(config["bootstrap.servers"], kafka_config(config)).topics.get(topic)
    if found is None or found.error is not None:
        raise UnknownTopic(topic=topic, addresses=config["bootstrap.servers"])


def kafka_config(config: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties for librdkafka, without sharegroup's own."""
    from coordinator.client.options import GROUP_PREFIXES

    return {key: value for key, value in config.items() if not key.startswith(GROUP_PREFIXES)}


def as_named(error: Exception) -> Exception:
    """Returns the error to print for an exception of a ShareConsumer."""
    if isinstance(error, ShareGroupError):
        return error
    if isinstance(error.__cause__, ShareGroupError):
        return error.__cause__
    return click.ClickException(error.args[0].str() if hasattr(error.args[0], "str") else str(error))
