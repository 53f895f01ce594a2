"""An open sink: the values that its tasks and its commit share.

Rule: the driver opens the sink, and finds everything that can be wrong with it by name; executors get a picklable
value.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from pyspark.sql.types import StructType

from coordinator.client.client import CoordinatorClient
from coordinator.client.config_lines import log_replaced
from coordinator.client.group_options import connect
from coordinator.client.spark_log import log_for_query
from coordinator.protocol.messages import OpenSink, SinkOpened
from share_sink.archive.batches import check_archive
from share_sink.columns import Columns
from share_sink.errors import OverwriteRefused, RowsOfAnotherGroup
from share_sink.options import SinkOptions
from share_sink.query_batch import Batch, batch_at

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Sink:
    """An open sink; picklable. ``opened`` pins the group's incarnation and its topics' ids. ``topic_ids``: the ids of
    the topics in the batch's plan, by name, where the plan is known. ``archive``: the location to which executors write
    rejected rows; empty for none. ``name`` takes the place of the query's id where no query writes."""

    options: SinkOptions
    columns: Columns
    opened: SinkOpened
    topic_ids: dict[str, str] = field(default_factory=dict)
    archive: str = field(default="", repr=False)
    name: str = field(default_factory=lambda: uuid.uuid4().hex)


def open_sink(options: Mapping[str, str | None], schema: StructType, *, overwrite: bool) -> Sink:
    """Check the sink, and open it at the coordinator; on the driver. Spark makes the writer of a stream for each batch,
    after the source has acquired the batch's plan, and never before the first batch (seen). So a stream's sink can fail
    here at the earliest; and if the group does not exist now, it is not the source's group.

    Raises:
        GroupIdNotFound: the group does not exist.
        OverwriteRefused: the query's mode overwrites its output.
        RowsOfAnotherGroup: the rows are not of the group that kafka.group.id names.
        MissingColumn, WrongColumn: the rows lack a column, or a column has a wrong type.
        ArchiveNotWritable: the archive's file system refuses.
        ShareGroupError: by name, for wrong options, and if the coordinator refuses the sink.
    """
    parsed = SinkOptions.parse(options)
    log_for_query(group=parsed.group_id, query=parsed.query_name)
    if overwrite:
        raise OverwriteRefused()
    columns = Columns.of(schema)
    batch = _batch_of(parsed)
    _check_group(parsed, columns, batch)
    parsed.check_kafka_config()
    archive = _checked_archive(parsed.archive_path) if parsed.archive_path else ""
    opened = coordinator_of(parsed).call(OpenSink(group_id=parsed.group_id, configs=parsed.group_configs))
    for key, before in opened.replaced.items():
        log_replaced(key, before, parsed.group_configs.get(key, ""))
    topic_ids = (batch or {}).get(parsed.group_id, {})
    return Sink(options=parsed, columns=columns, opened=opened, topic_ids=topic_ids, archive=archive)


def _batch_of(options: SinkOptions) -> Batch | None:
    """The groups and topics of the batch: as acknowledge() read them, or, for a stream, as its checkpoint has them."""
    if options.batch_offsets is not None:
        batch: Batch = json.loads(options.batch_offsets)
        return batch
    return batch_at(options.checkpoint) if options.checkpoint else None


def _check_group(options: SinkOptions, columns: Columns, batch: Batch | None) -> None:
    """Check that the rows are of this group. The coordinator can't tell, since two groups that read a topic for the
    first time give the same receipts. The columns name their group as long as they come unchanged from the source;
    otherwise the query's offsets name it.

    Raises:
        RowsOfAnotherGroup: the rows are of another group.
    """
    if options.allow_other_group:
        return
    others = columns.group_ids - {options.group_id}
    if not columns.group_ids and batch is None:
        _log_unchecked(options.group_id)
    elif not columns.group_ids and options.group_id not in (batch or {}):
        others = frozenset(batch or {"no share group: its query has no source of the format sharegroup"})
    if others:
        raise RowsOfAnotherGroup(group_id=options.group_id, found=", ".join(sorted(others)))


@lru_cache(maxsize=64)
def _log_unchecked(group_id: str) -> None:
    """Log, once in a process, that nothing tells which group the rows are of."""
    _log.warning(
        "share group %s: the sink cannot check that the rows are of this group, since the query computes topic, "
        "partition, offset and deliveryCount anew, and its offsets cannot be read on this host. kafka.group.id has to "
        "be the source's.",
        group_id,
    )


def coordinator_of(options: SinkOptions) -> CoordinatorClient:
    """The coordinator's client. A process has one client for equal options, since finding the coordinator costs more
    than a request."""
    return _client(
        options.bootstrap_servers,
        tuple(sorted(options.kafka_config.items())),
        tuple(sorted(options.coordinator_configs.items())),
    )


@lru_cache(maxsize=8)
def _client(
    servers: str, kafka: tuple[tuple[str, str], ...], configs: tuple[tuple[str, str], ...]
) -> CoordinatorClient:
    return connect(servers, dict(kafka), dict(configs), in_batch=True)


_checked_archive = lru_cache(maxsize=64)(check_archive)
"""check_archive, once in a process for a location: Spark makes a writer for each batch."""
