"""The views as DataFrames: ``spark.read.format("sharegroup").option("view", "offsets")``.

Rule: the driver reads the group when Spark plans the read, so that no executor starts a coordinator. But a task reads
dead letters, since a topic may have more of them than a driver should hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from coordinator.client.options import Option, OptionTable, by_lower_name, configs
from coordinator.protocol.option_errors import InvalidOption
from share_source.source_option_table import TABLE, VIEW
from share_source.views import tables
from share_spark.border import named_errors_first, named_errors_first_in

ROWS_A_TASK = 50_000
_LOOKS = {"members": tables.members, "offsets": tables.offsets, "in-flight": tables.in_flight}
_TAKEN = (VIEW, "kafka.bootstrap.servers", "kafka.group.id")
_OPTIONS = OptionTable(
    side="source with a view",
    options=tuple(Option(name, "", "") for name in _TAKEN),
    refused={
        name: ("with view, a read shows the group and takes no records.", "Remove it.")
        for name in [*(option.name for option in TABLE.options), *TABLE.refused]
        if name not in _TAKEN
    },
    owned=TABLE.owned,
)


@dataclass(frozen=True, kw_only=True)
class ViewOptions:
    """The options of a view. ``conf`` is Admin's; ``group_id`` None means all groups."""

    view: str
    conf: dict[str, str] = field(repr=False)
    group_id: str | None = None
    dead_letter_topic: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str | None]) -> ViewOptions:
        """Returns the options that Spark passes, whose names may be in any case.

        Raises:
            InvalidOption: there is no such view.
            UnknownOption, RefusedOption, MissingOption, UnknownConfig: as for the source."""
        given = by_lower_name(options)
        view = given[VIEW].strip()
        if view not in tables.SCHEMAS:
            known = ", ".join(tables.SCHEMAS)
            raise InvalidOption(option=VIEW, problem=f"{view!r} is no view; the views are {known}.")
        _OPTIONS.check_names(given)
        group_configs, coordinator_configs = configs(given)
        return cls(
            view=view,
            conf={**_OPTIONS.kafka_config(given), **coordinator_configs},
            group_id=given.get("kafka.group.id", "").strip() or None,
            dead_letter_topic=group_configs.get(tables.DEAD_LETTER_TOPIC),
        )

    def spark_schema(self) -> StructType:
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(tables.SCHEMAS[self.view])


class ViewRows(InputPartition):
    """Rows of a view, as an Arrow stream."""

    def __init__(self, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        super().__init__(sink.getvalue().to_pybytes())


class DeadLetters(InputPartition):
    """All dead letters of the topic ``value``."""


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
        if options.view == "groups":
            seen = tables.groups(options.conf)
        else:
            seen = _LOOKS[options.view](options.conf, options.group_id)
        slices = range(0, max(seen.num_rows, 1), ROWS_A_TASK)
        return [ViewRows(seen.slice(first, ROWS_A_TASK)) for first in slices]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return named_errors_first_in(self._batches(partition))

    def _batches(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, DeadLetters):
            options = self._options
            for table in tables.dead_letter_tables(options.conf, partition.value, options.group_id):
                yield from table.to_batches()
        else:
            with pa.ipc.open_stream(partition.value) as stream:
                yield from stream
