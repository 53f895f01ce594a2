"""A sink that was opened: what its tasks, its commit and its coordinator need to know of each other.

Rule: opened on the driver, where all that can be wrong with it is found by name; what executors get of it is a value.
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
from coordinator.client.group_options import connect
from coordinator.protocol.messages import OpenSink, SinkOpened
from share_sink.archive.batches import check_archive
from share_sink.columns import Columns
from share_sink.errors import OverwriteRefused, RowsOfAnotherGroup
from share_sink.options import SinkOptions
from share_sink.query_batch import Batch, batch_at

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Sink:
    """Picklable. ``opened`` pins the group's incarnation and its topics' ids; ``topic_ids`` are those of the batch's
    plan, by name, where that is known. ``archive``: the location that executors write rejected rows to, empty for none.
    ``name`` stands for the query's id where rows are written by none."""

    options: SinkOptions
    columns: Columns
    opened: SinkOpened
    topic_ids: dict[str, str] = field(default_factory=dict)
    archive: str = field(default="", repr=False)
    name: str = field(default_factory=lambda: uuid.uuid4().hex)


def open_sink(options: Mapping[str, str | None], schema: StructType, *, overwrite: bool) -> Sink:
    """On the driver. Spark makes the writer of a stream for each batch, when the source has taken its plan already,
    and not before the first batch (seen): so this is the first moment at which a stream's sink can say anything, and
    a group that is not there now is another one than the source's. GroupIdNotFound; OverwriteRefused;
    RowsOfAnotherGroup; errors of the options, of the columns, of the archive, and those that OpenSink is answered
    with."""
    taken = SinkOptions.parse(options)
    if overwrite:
        raise OverwriteRefused()
    columns = Columns.of(schema)
    batch = _batch_of(taken)
    _check_group(taken, columns, batch)
    taken.check_kafka_config()
    archive = _checked_archive(taken.archive_path) if taken.archive_path else ""
    opened = coordinator_of(taken).call(OpenSink(group_id=taken.group_id, configs=taken.group_configs))
    topic_ids = (batch or {}).get(taken.group_id, {})
    return Sink(options=taken, columns=columns, opened=opened, topic_ids=topic_ids, archive=archive)


def _batch_of(options: SinkOptions) -> Batch | None:
    """As acknowledge() found it, or, of a stream, as its checkpoint has it."""
    if options.batch_offsets is not None:
        found: Batch = json.loads(options.batch_offsets)
        return found
    return batch_at(options.checkpoint) if options.checkpoint else None


def _check_group(options: SinkOptions, columns: Columns, batch: Batch | None) -> None:
    """RowsOfAnotherGroup. Receipts of two groups that read a topic for the first time are alike, so the coordinator
    can't tell; the columns can, as long as they are the source's own, and else the query's offsets."""
    if options.allow_other_group:
        return
    others = columns.group_ids - {options.group_id}
    if not columns.group_ids and batch is None:
        _say_unchecked(options.group_id)
    elif not columns.group_ids and options.group_id not in (batch or {}):
        others = frozenset(batch or {"no share group: its query has no source of the format sharegroup"})
    if others:
        raise RowsOfAnotherGroup(group_id=options.group_id, found=", ".join(sorted(others)))


@lru_cache(maxsize=64)
def _say_unchecked(group_id: str) -> None:
    """Once in a process."""
    _log.warning(
        "share group %s: that the rows are of this group is not checked, since topic, partition, offset and "
        "deliveryCount were computed anew and the query's offsets can't be read here: kafka.group.id has to be the "
        "source's",
        group_id,
    )


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
    return connect(servers, dict(kafka), dict(configs), in_batch=True)


_checked_archive = lru_cache(maxsize=64)(check_archive)
"""Once in a process: a writer is made for each batch."""
