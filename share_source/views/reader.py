"""The views as DataFrames: ``spark.read.format("sharegroup").option("view", "offsets")``.

Rule: the driver reads the group when Spark plans the read, so that no executor starts a coordinator. But tasks read
records and dead letters, since a topic may have more of them than a driver should hold."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from coordinator.admin.admin import Admin
from coordinator.admin.waiting_records import Bounds, Piece, Plan, plan
from coordinator.client.options import Option, OptionTable, by_lower_name, configs, count, group_id
from coordinator.protocol.errors import InvalidRequest
from coordinator.protocol.option_errors import InvalidOption
from share_source.errors import SeveralSubscriptions
from share_source.offset_options import parse_assign, parse_bounds
from share_source.options import parse_topics
from share_source.source_option_table import RECORDS_OPTIONS, TABLE, VIEW
from share_source.views import record_rows, tables
from share_spark.border import named_errors_first, named_errors_first_in
from share_spark.log import log_for_query

ROWS_A_TASK = 50_000
_LOOKS = {"members": tables.members, "offsets": tables.offsets, "in-flight": tables.in_flight}
_TAKEN = (VIEW, "kafka.bootstrap.servers", "kafka.group.id")
_BOUNDS = tuple(option.name for option in RECORDS_OPTIONS)


def _table_of(side: str, taken: tuple[str, ...]) -> OptionTable:
    return OptionTable(
        side=side,
        options=tuple(Option(name, "", "") for name in taken),
        refused={
            name: ("with view, a read shows the group and takes no records.", "Remove it.")
            for name in [*(option.name for option in TABLE.options), *TABLE.refused, *_BOUNDS]
            if name not in taken
        },
        owned=TABLE.owned,
    )


_OPTIONS = _table_of("source with a view", _TAKEN)
_OPTIONS_OF_RECORDS = _table_of("source with the view records", (*_TAKEN, *_BOUNDS))


@dataclass(frozen=True, kw_only=True)
class ViewOptions:
    """The options of a view. ``conf`` is Admin's; ``group_id`` None means all groups."""

    view: str
    conf: dict[str, str] = field(repr=False)
    group_id: str | None = None
    dead_letter_topic: str | None = None
    bounds: Bounds = field(default_factory=Bounds)
    poll_timeout_ms: int = record_rows.POLL_TIMEOUT_MS

    @classmethod
    def parse(cls, options: Mapping[str, str | None]) -> ViewOptions:
        """Returns the options that Spark passes, whose names may be in any case.

        Raises:
            InvalidOption: there is no such view, or a bound of the view ``records`` is wrong.
            SeveralSubscriptions: both subscribe and assign bound it.
            UnknownOption, RefusedOption, MissingOption, UnknownConfig: as for the source."""
        given = by_lower_name(options)
        view = given[VIEW].strip()
        if view not in tables.SCHEMAS:
            known = ", ".join(tables.SCHEMAS)
            raise InvalidOption(option=VIEW, problem=f"{view!r} is no view; the views are {known}.")
        more: dict[str, Any] = {}
        (_OPTIONS_OF_RECORDS if view == record_rows.VIEW else _OPTIONS).check_names(given)
        if view == record_rows.VIEW:
            group_id(given, "it names the share group whose records are shown.")
            timeout_ms = count(given, "kafkaConsumer.pollTimeoutMs") or record_rows.POLL_TIMEOUT_MS
            more = {"bounds": _bounds(given), "poll_timeout_ms": timeout_ms}
        group_configs, coordinator_configs = configs(given)
        return cls(
            view=view,
            conf={**_OPTIONS.kafka_config(given), **coordinator_configs},
            group_id=given.get("kafka.group.id", "").strip() or None,
            dead_letter_topic=group_configs.get(tables.DEAD_LETTER_TOPIC),
            **more,
        )

    def spark_schema(self) -> StructType:
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(tables.SCHEMAS[self.view])


def _bounds(given: Mapping[str, str]) -> Bounds:
    """Returns the bounds of the view ``records``. Raises InvalidOption or SeveralSubscriptions."""
    if "subscribe" in given and "assign" in given:
        raise SeveralSubscriptions(options="subscribe, assign")
    topics = parse_topics(given["subscribe"]) if "subscribe" in given else ()
    assign = parse_assign(given["assign"]) if "assign" in given else None
    starts, ends = (
        parse_bounds(name, given.get(name.lower()), topics, assign) for name in ("startingOffsets", "endingOffsets")
    )
    try:
        return Bounds(
            partitions=assign or dict.fromkeys(topics, ()),
            starts=starts,
            ends=ends,
            states=tuple(given["states"].split(",")) if "states" in given else (),
            max_records=count(given, "maxRecords"),
        )
    except InvalidRequest as error:
        raise InvalidOption(option="states", problem=str(error)) from None


class ViewRows(InputPartition):
    """Rows of a view, as an Arrow stream."""

    def __init__(self, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        super().__init__(sink.getvalue().to_pybytes())


class DeadLetters(InputPartition):
    """All dead letters of the topic ``value``."""


class Records(InputPartition):
    """The records of some pieces of the plan, with the isolation level in which they are read."""

    def __init__(self, isolation_level: str, pieces: Iterable[Piece]) -> None:
        # A group in which records are done out of order has a run for each record: a driver holds them compressed.
        super().__init__((isolation_level, [zlib.compress(msgspec.msgpack.encode(piece), 1) for piece in pieces]))

    def plan(self, group_id: str) -> Plan:
        level, pieces = self.value
        return Plan(group_id, level, (msgspec.msgpack.decode(zlib.decompress(each), type=Piece) for each in pieces))


class ViewReader(DataSourceReader):
    """The reader of one view."""

    def __init__(self, options: ViewOptions) -> None:
        self._options = options

    @named_errors_first
    def partitions(self) -> list[InputPartition]:
        """Read the group now, on the driver."""
        options = self._options
        if options.view == "dead-letters":
            return [DeadLetters(tables.dead_letter_topic(options.conf, options.group_id, options.dead_letter_topic))]
        if options.view == record_rows.VIEW:
            return self._records()
        if options.view == "groups":
            seen = tables.groups(options.conf)
        else:
            seen = _LOOKS[options.view](options.conf, options.group_id)
        slices = range(0, max(seen.num_rows, 1), ROWS_A_TASK)
        return [ViewRows(seen.slice(first, ROWS_A_TASK)) for first in slices]

    def _records(self) -> list[InputPartition]:
        """Returns a partition for each piece. A bounded number of records is one partition, whose task counts them; so
        is nothing, since Spark reads a partition of its own if there is none (seen)."""
        conf, bounds = self._options.conf, self._options.bounds
        with Admin(conf) as admin:
            planned = plan(admin, tables.kafka_of(conf), str(self._options.group_id), bounds)
            level = planned.isolation_level
            if bounds.max_records is not None:
                return [Records(level, planned.pieces)]
            return [Records(level, [piece]) for piece in planned.pieces] or [Records(level, [])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return named_errors_first_in(self._batches(partition))

    def _batches(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        options = self._options
        if isinstance(partition, DeadLetters):
            for table in tables.dead_letter_tables(options.conf, partition.value, options.group_id):
                yield from table.to_batches()
        elif isinstance(partition, Records):
            group_id, kafka_config = options.group_id or "", tables.kafka_of(options.conf)
            log_for_query(group=group_id)
            most, timeout_ms = options.bounds.max_records, options.poll_timeout_ms
            yield from record_rows.read(partition.plan(group_id), kafka_config, most, poll_timeout_ms=timeout_ms)
        else:
            with pa.ipc.open_stream(partition.value) as stream:
                yield from stream
