"""The checks of ``sharegroup check``, each with its line.

Rule: it starts no coordinator, joins no group and changes no configuration. It makes the folder of archive.path if
that is missing, and a small file in it, as the sink does. No line has a secret.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from coordinator.client.cluster_metadata import cluster_metadata
from coordinator.client.group_options import GroupOptions
from coordinator.client.on_demand import runtime_dir, store_of
from coordinator.config.properties_file import read_properties
from coordinator.config.resolved import CoordinatorConfig
from coordinator.protocol.errors import InvalidPropertiesFile, ShareGroupError
from coordinator.protocol.topic_names import matches
from coordinator.service.stores.kafka.state_topic import STATE_TOPIC
from share_sink.archive.batches import check_archive
from share_sink.errors import RowsOfAnotherGroup
from share_sink.options import SinkOptions
from share_source.cluster_check import check_at_load, check_dead_letter_topic, exists
from share_source.options import SourceOptions
from sharegroup.health import ask, probe_of_endpoint


def read_options(path: str) -> dict[str, str]:
    """The options in a file: a JSON object, or Java properties in which ``${env:NAME}`` is an environment variable.

    Raises:
        InvalidPropertiesFile: the file can't be read, or has another form.
    """
    if not _is_json(path):
        return read_properties(path)
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise InvalidPropertiesFile(path=path, reason=f"it is not JSON: {error}.") from None
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in found.items()}


def _is_json(path: str) -> bool:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").lstrip().startswith("{")
    except OSError:
        return False


def of_source(given: Mapping[str, str]) -> Iterator[str]:
    """A line for each check of the source's options that passed.

    Raises:
        ShareGroupError: by name, as load() raises it.
    """
    options = SourceOptions.parse(given)
    yield _of_options(given, options)
    check_at_load(options)
    metadata = cluster_metadata(options.bootstrap_servers, options.kafka_config)
    yield _of_cluster(metadata)
    for topic in (*options.topics, *(options.assign or {})):
        yield f"topic {topic} has {len(metadata.topics[topic].partitions)} partition(s)"
    if options.topic_pattern is not None:
        found = sorted(topic for topic in metadata.topics if matches(options.topic_pattern, topic))
        yield f"subscribePattern matches {len(found)} topic(s) now{': ' if found else ''}{', '.join(found)}"
    yield from _of_group(options, metadata)


def of_sink(given: Mapping[str, str], source_path: str | None) -> Iterator[str]:
    """A line for each check of the sink's options that passed. ``source_path``: the file of the source's options.

    Raises:
        ShareGroupError: by name, as the sink raises it in the first batch.
    """
    options = SinkOptions.parse(given)
    yield _of_options(given, options)
    _check_group(options, source_path)
    options.check_kafka_config()
    if options.archive_path:
        check_archive(options.archive_path)
        yield "archive.path can be written from this host"
    metadata = cluster_metadata(options.bootstrap_servers, options.kafka_config)
    yield _of_cluster(metadata)
    check_dead_letter_topic(options, metadata.topics)
    yield from _of_group(options, metadata)


def _check_group(options: SinkOptions, source_path: str | None) -> None:
    """Check that source and sink name one group; a source whose options are wrong has a line of its own."""
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


def _of_group(options: GroupOptions, metadata: Any) -> Iterator[str]:
    for name, value in sorted(options.group_configs.items()):
        yield f"the group gets {name}={value}"
    dead_letters = options.group_configs.get("errors.deadletterqueue.topic.name", "").strip()
    if dead_letters:
        found = exists(metadata.topics, dead_letters)
        yield f"dead letter topic {dead_letters} {'exists' if found else 'will be created'}"
    config = CoordinatorConfig.parse(options.coordinator_configs)
    if config.share_coordinator_endpoint:
        yield from _of_endpoint(config)
    elif config.share_state_store == "kafka":
        found = exists(metadata.topics, STATE_TOPIC)
        there = "exists" if found else "is missing, and the first coordinator creates it"
        yield f"a coordinator starts on demand ({runtime_dir()}); the state topic {STATE_TOPIC} {there}"
    else:
        store = store_of(config.share_state_store, str(metadata.cluster_id))
        yield f"a coordinator starts on demand ({runtime_dir()}); its state is in {store}"


def _of_endpoint(config: CoordinatorConfig) -> Iterator[str]:
    ca, token = config.share_coordinator_ssl_ca_location, config.share_coordinator_token_file
    for endpoint in config.share_coordinator_endpoint.split(","):
        answer = ask(probe_of_endpoint(endpoint.strip(), ca, token))
        state = "is ready" if answer.ready else "answers, and is not ready yet"
        yield f"the coordinator at {endpoint.strip()} {state} (version {answer.version or 'unknown'})"
