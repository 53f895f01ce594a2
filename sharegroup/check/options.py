"""The checks of ``sharegroup check``, with a line for each.

Rule: the checks join no group and change no configuration. They start a coordinator only to ask another host's. As the
sink does, they create the folder of archive.path if it is missing, and write a small file there. No line has a secret.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from coordinator.client.group_options import GroupOptions
from coordinator.client.options import by_lower_name
from coordinator.config.properties_file import once, parsed, text_of
from coordinator.config.resolved import CoordinatorConfig
from coordinator.kafka.cluster_metadata import cluster_metadata
from coordinator.protocol.errors import InvalidPropertiesFile, ShareGroupError
from coordinator.protocol.package_version import package_version
from share_sink.archive.batches import check_archive
from share_sink.errors import RowsOfAnotherGroup
from share_sink.options import SinkOptions
from share_source.driver.cluster_check import check_at_load, subscribed
from share_source.errors import ViewIsNoStream
from share_source.executor.reader_choice import reader_choice
from share_source.options import SourceOptions
from share_source.source_option_table import VIEW
from sharegroup.check.cluster import ClusterQuestions, Note, token_endpoint
from sharegroup.demo.command import missing_for_spark
from sharegroup.health import ask, probe_of_endpoint

Found: TypeAlias = str | ShareGroupError
Question: TypeAlias = Callable[[], Iterator[str]]


def read_options(path: str) -> dict[str, str]:
    """Returns the options in a file: a JSON object, or Java properties in which ``${env:NAME}`` is an environment
    variable. Raises InvalidPropertiesFile if the file can't be read, or has another form."""
    text = text_of(path)
    if text.lstrip().startswith("["):
        reason = 'it is JSON, and has to have a line KEY=VALUE for each value, or to be an object, as {"KEY": "VALUE"}.'
        raise InvalidPropertiesFile(path=path, reason=reason)
    if not text.lstrip().startswith("{"):
        return _by_one_spelling(path, parsed(path, text))
    try:
        found = _by_one_spelling(path, json.loads(text, object_pairs_hook=lambda pairs: once(path, pairs)))
    except ValueError as error:
        raise InvalidPropertiesFile(path=path, reason=f"it is not JSON: {error}.") from None
    if nulls := [name for name, value in found.items() if value is None]:
        raise InvalidPropertiesFile(path=path, reason=f"{nulls[0]} is null: give it a value, or leave it out.")
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in found.items()}


def _by_one_spelling(path: str, found: dict[str, Any]) -> dict[str, Any]:
    """Returns the options, of which no two may differ by case alone: Spark takes them for one."""
    names: dict[str, str] = {}
    for name in found:
        if (other := names.setdefault(name.lower(), name)) != name:
            raise InvalidPropertiesFile(path=path, reason=f"{other} and {name} are one option: Spark ignores case.")
    return found


def of_host() -> Iterator[Found]:
    """Yields the versions on this host, where a query's driver may run. Raises UnknownReader or NativeReaderMissing if
    this host lacks the reader that SHAREGROUP_READER names."""
    spark = importlib.util.find_spec("pyspark") and importlib.metadata.version("pyspark")
    reader = reader_choice()
    yield f"sharegroup {package_version()}, Python {platform.python_version()}, Spark {spark}, reader {reader}"
    if lacking := missing_for_spark():
        yield Note(f"a driver can't run here. {lacking}")


def of_source(given: Mapping[str, str]) -> Iterator[Found]:
    """Yields a line for each passed check of the source's options, and the errors of failed ones. Raises
    ShareGroupError as load() does."""
    if VIEW in by_lower_name(given):
        raise ViewIsNoStream()
    options = SourceOptions.parse(given)
    yield _of_options(given, options)
    yield from token_endpoint(options)
    check_at_load(options)
    metadata = cluster_metadata(options.bootstrap_servers, options.kafka_config)
    yield _of_cluster(metadata)
    topics = subscribed(options, metadata)
    if options.topic_pattern is not None and topics:
        yield f"subscribePattern matches {len(topics)} topic(s) now: {', '.join(topics)}"
    elif options.topic_pattern is not None:
        yield Note(f"subscribePattern={options.topic_pattern} matches no topic now: the query waits for topics")
    for topic in topics:
        yield f"topic {topic} has {len(metadata.topics[topic].partitions)} partition(s), and may be read"
    partitions = [
        (topic, partition)
        for topic in topics
        for partition in (options.assign or {}).get(topic, sorted(metadata.topics[topic].partitions))
    ]
    cluster = ClusterQuestions(options, metadata)
    for question in (
        lambda: cluster.leaders(partitions),
        *_of_group(options, cluster),
        lambda: cluster.starting_offsets(options, partitions),
    ):
        yield from _answers(question)


def of_sink(given: Mapping[str, str], source_path: str | None) -> Iterator[Found]:
    """Yields a line for each passed check of the sink's options, and the errors of failed ones. ``source_path``: the
    file of the source's options. Raises ShareGroupError as the sink does in its first batch."""
    options = SinkOptions.parse(given)
    yield _of_options(given, options)
    _check_group(options, source_path)
    options.check_kafka_config()
    if options.archive_path:
        check_archive(options.archive_path)
        yield "archive.path can be written from this host"
    yield from token_endpoint(options)
    metadata = cluster_metadata(options.bootstrap_servers, options.kafka_config)
    yield _of_cluster(metadata)
    for question in _of_group(options, ClusterQuestions(options, metadata)):
        yield from _answers(question)


def _answers(question: Question) -> Iterator[Found]:
    """Yields the lines of a question. An error ends this question, but no other."""
    try:
        yield from question()
    except ShareGroupError as error:
        yield error


def _check_group(options: SinkOptions, source_path: str | None) -> None:
    """Check that source and sink name the same group. Wrong options of the source are reported elsewhere."""
    if source_path is None:
        return
    try:
        source = SourceOptions.parse(read_options(source_path))
    except ShareGroupError:
        return
    if source.group_id != options.group_id:
        raise RowsOfAnotherGroup(
            group_id=options.group_id, rows=f"The rows of the source, whose kafka.group.id is {source.group_id}, are"
        )


def _of_options(given: Mapping[str, str], options: GroupOptions) -> str:
    return f"{len(given)} option(s) are known, and their values are in bounds; share group {options.group_id}"


def _of_cluster(metadata: Any) -> str:
    return f"the brokers answer: cluster {metadata.cluster_id}, {len(metadata.brokers)} broker(s)"


def _of_group(options: GroupOptions, cluster: ClusterQuestions) -> tuple[Question, ...]:
    config = CoordinatorConfig.parse(options.coordinator_configs)

    def configs() -> Iterator[str]:
        for name, value in sorted(options.group_configs.items()):
            yield f"the group gets {name}={value}"

    endpoint = config.share_coordinator_endpoint
    return configs, (lambda: _of_endpoint(config)) if endpoint else cluster.state, cluster.dead_letters


def _of_endpoint(config: CoordinatorConfig) -> Iterator[str]:
    ca, token = config.share_coordinator_ssl_ca_location, config.share_coordinator_token_file
    for endpoint in config.share_coordinator_endpoint.split(","):
        answer = ask(probe_of_endpoint(endpoint.strip(), ca, token))
        state = "is ready" if answer.ready else "answers, and is not ready yet"
        yield f"the coordinator at {endpoint.strip()} {state} (version {answer.version or 'unknown'})"
