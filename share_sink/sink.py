"""An open sink: the values that its tasks and its commit share.

Rule: the driver opens the sink, and raises a named error for everything that is wrong with it. Executors get a
picklable value."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from weakref import WeakValueDictionary

from pyspark.sql.types import StructType

from coordinator.client.client import CoordinatorClient
from coordinator.client.config_lines import log_replaced
from coordinator.client.endings import tell_ending
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.messages import OpenSink, SinkOpened
from coordinator.protocol.receipts import receipt_digest
from coordinator.protocol.values import client_text
from share_sink.archive.batches import check_archive
from share_sink.columns import Columns
from share_sink.errors import OverwriteRefused
from share_sink.options import SinkOptions
from share_spark.driver_process import driver_pid
from share_spark.log import log_for_query


@dataclass(frozen=True, kw_only=True)
class Sink:
    """An open sink; picklable. ``opened`` has the group's incarnation and the topics that it knows. ``archive``: the
    location to which executors write rejected rows, or empty. ``name``: unique for each opening; names the staging
    folder in the archive."""

    options: SinkOptions
    columns: Columns
    opened: SinkOpened
    archive: str = field(default="", repr=False)
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    @cached_property
    def topic_ids(self) -> dict[int, str]:
        """The ids of the topics whose rows the sink takes, by the digest in their receipts."""
        group_id, incarnation = self.options.group_id, self.opened.incarnation
        return {receipt_digest(group_id, incarnation, topic_id): topic_id for topic_id in self.opened.topics}


def open_sink(options: Mapping[str, str | None], schema: StructType, *, overwrite: bool) -> Sink:
    """Check the sink, and open it at the coordinator, on the driver. Spark makes a stream's writer for each batch,
    after the source has acquired the batch's plan, and never before the first batch (seen). So a stream's sink fails
    here at the earliest. If the group does not exist now, it is not the source's group.

    Raises:
        GroupIdNotFound: the group does not exist.
        OverwriteRefused: the query's mode overwrites its output.
        MissingColumn, WrongColumn: the rows lack a column, or a column has a wrong type.
        ArchiveNotWritable: the archive's file system refuses.
        ShareGroupError: an option is wrong, or the coordinator refuses the sink."""
    parsed = SinkOptions.parse(options)
    log_for_query(group=parsed.group_id, query=parsed.query_name)
    with telling_the_group(parsed):
        if overwrite:
            raise OverwriteRefused()
        columns = Columns.of(schema)
        parsed.check_kafka_config()
        archive = _checked_archive(parsed.archive_path) if parsed.archive_path else ""
        opened = coordinator_of(parsed).call(OpenSink(group_id=parsed.group_id, configs=parsed.group_configs))
    for key, before in opened.replaced.items():
        log_replaced(key, before, parsed.group_configs.get(key, ""))
    return Sink(options=parsed, columns=columns, opened=opened, archive=archive)


@contextmanager
def telling_the_group(options: SinkOptions) -> Iterator[None]:
    """A context on the driver in which a named error, which ends the query, reaches the group as well, over the
    client that the process has. If it has none, or the coordinator is away, nothing is told."""
    try:
        yield
    except ShareGroupError as error:
        client = _made.get(_key(options))
        if client is not None and not error.retriable and error.kafka_error != "COORDINATOR_NOT_AVAILABLE":
            who = {"client_host": client_text(socket.gethostname()), "client_pid": driver_pid()}
            tell_ending(client, options.group_id, error, checkpoint=client_text(options.checkpoint), **who)
        raise


def coordinator_of(options: SinkOptions) -> CoordinatorClient:
    """Returns the coordinator's client. A process keeps one for equal options: finding it costs more than a request."""
    key = _key(options)
    client = _made[key] = _client(*key)
    return client


_Key = tuple[str, tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]
_made: WeakValueDictionary[_Key, CoordinatorClient] = WeakValueDictionary()
"""The clients that connected, by their options."""


def _key(options: SinkOptions) -> _Key:
    kafka, configs = sorted(options.kafka_config.items()), sorted(options.coordinator_configs.items())
    return options.bootstrap_servers, tuple(kafka), tuple(configs)


@lru_cache(maxsize=8)
def _client(
    servers: str, kafka: tuple[tuple[str, str], ...], configs: tuple[tuple[str, str], ...]
) -> CoordinatorClient:
    return CoordinatorClient.connect(servers, dict(kafka), configs=dict(configs), in_batch=True)


_checked_archive = lru_cache(maxsize=64)(check_archive)
"""check_archive, once per process and location, because Spark makes a writer for each batch."""
