"""A sink that was opened: what its tasks, its commit and its coordinator need to know of each other.

Rule: opened on the driver, where all that can be wrong with it is found by name; what executors get of it is a value.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from pyspark.sql.types import StructType

from coordinator.client.client import CoordinatorClient
from coordinator.config.resolved import CoordinatorConfig
from coordinator.protocol.messages import OpenSink, SinkOpened
from share_sink.archive.batches import check_archive
from share_sink.columns import Columns
from share_sink.errors import OverwriteRefused
from share_sink.options import SinkOptions


@dataclass(frozen=True, kw_only=True)
class Sink:
    """Picklable. ``opened`` pins the group's incarnation and its topics' ids. ``archive``: the location that executors
    write rejected rows to, empty for none. ``name`` stands for the query's id where rows are written by none."""

    options: SinkOptions
    columns: Columns
    opened: SinkOpened
    archive: str = field(default="", repr=False)
    name: str = field(default_factory=lambda: uuid.uuid4().hex)


def open_sink(options: Mapping[str, str | None], schema: StructType, *, overwrite: bool) -> Sink:
    """On the driver. Spark makes the writer of a stream for each batch, when the source has taken its plan already,
    and not before the first batch (seen): so this is the first moment at which a stream's sink can say anything, and
    a group that is not there now is another one than the source's. GroupIdNotFound; OverwriteRefused; errors of the
    options, of the columns, of the archive, and those that OpenSink is answered with."""
    taken = SinkOptions.parse(options)
    if overwrite:
        raise OverwriteRefused()
    columns = Columns.of(schema)
    taken.check_kafka_config()
    archive = _checked_archive(taken.archive_path) if taken.archive_path else ""
    opened = coordinator_of(taken).call(OpenSink(group_id=taken.group_id, configs=taken.group_configs))
    assert isinstance(opened, SinkOpened)
    return Sink(options=taken, columns=columns, opened=opened, archive=archive)


def coordinator_of(options: SinkOptions) -> CoordinatorClient:
    """Its client; one in a process for equal options, since to find the coordinator costs more than to ask it."""
    return _client(
        options.bootstrap_servers,
        tuple(sorted(options.kafka_config.items())),
        tuple(sorted(options.coordinator_configs.items())),
    )


@lru_cache(maxsize=8)
def _client(
    servers: str, kafka: tuple[tuple[str, str], ...], configs: tuple[tuple[str, str], ...]
) -> CoordinatorClient:
    texts = dict(configs)
    config = CoordinatorConfig.parse(texts)
    endpoint = config.share_coordinator_endpoint or None
    return CoordinatorClient.connect(servers, dict(kafka), config.share_state_store, endpoint, configs=texts)


_checked_archive = lru_cache(maxsize=64)(check_archive)
"""Once in a process: a writer is made for each batch."""
