"""The queries of one share group in a test: what they have in common, and all that they wrote, compared with what was
produced.

A record is known by (topic, partition, offset); its value is its number among all that the test produced, as text.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from tests.support.group_driver import AT_ONCE
from tests.support.query_spec import QuerySpec

COLUMNS = ["topic", "partition", "offset", "deliveryCount", "value", "query", "batch"]


@dataclass(kw_only=True)
class ShareJob:
    """`query("a")` is a query of the group; `output()` what all of them wrote."""

    directory: Path
    bootstrap: str
    group: str
    topics: tuple[str, ...]
    options: dict[str, str] = field(default_factory=dict)
    admin_bootstrap: str = ""

    def query(self, name: str, *, options: dict[str, str] | None = None, **fields: Any) -> QuerySpec:
        """The query's spec; `options` add to the job's or take their place."""
        given = {
            "kafka.bootstrap.servers": self.bootstrap,
            "kafka.group.id": self.group,
            "subscribe": ",".join(self.topics),
            "startingOffsets": "earliest",
            **(AT_ONCE if fields.get("columns") else {}),
            **self.options,
            **(options or {}),
        }
        return QuerySpec(name=name, directory=str(self.directory), options=given, **fields)

    def sink_options(self, **options: Any) -> dict[str, str]:
        """Those of a sink of the group."""
        shared = {key: value for key, value in self.options.items() if key.startswith("share.state.")}
        given = {key: str(value) for key, value in options.items()}
        return {"kafka.bootstrap.servers": self.bootstrap, "kafka.group.id": self.group, **shared, **given}

    def output(self) -> Output:
        """All that lies in the outputs now."""
        frames = []
        for path in sorted((self.directory / "out").glob("query=*/batch=*/*.parquet")):
            try:
                table = pq.read_table(path, partitioning=None)
            except FileNotFoundError:
                continue  # being replaced just now
            batch, query = path.parent.name, path.parent.parent.name
            frame = table.to_pandas()
            frames.append(frame.assign(query=query.split("=")[1], batch=int(batch.split("=")[1])))
        return Output(pd.concat(frames) if frames else pd.DataFrame(columns=COLUMNS))

    def seen(self) -> pd.DataFrame:
        """Each sight of a record by the work of queries with ``columns``: topic, partition, offset, deliveryCount,
        text, batch, at (ms of the wall clock), query, in that order of time; what was replayed stands there again."""
        paths = sorted((self.directory / "seen").glob("*/*.parquet"))
        frames = [pd.read_parquet(path).assign(query=path.parent.name) for path in paths]
        columns = ["topic", "partition", "offset", "deliveryCount", "text", "batch", "at", "query"]
        return pd.concat(frames).sort_values("at") if frames else pd.DataFrame(columns=columns)

    def written(self) -> int:
        """Records in the outputs now, counted without reading them."""
        try:
            files = [str(path) for path in (self.directory / "out").glob("query=*/batch=*/*.parquet")]
            return int(ds.dataset(files, format="parquet").count_rows()) if files else 0
        except (FileNotFoundError, pa.ArrowInvalid):
            return -1  # something is being replaced just now


class Output:
    """The rows that queries wrote. `rows` has topic, partition, offset, deliveryCount, value, query, batch."""

    def __init__(self, rows: pd.DataFrame) -> None:
        self.rows = rows

    def of(self, query: str | None = None, batch: int | None = None) -> Output:
        rows = self.rows
        rows = rows if query is None else rows[rows["query"] == query]
        return Output(rows if batch is None else rows[rows["batch"] == batch])

    def __len__(self) -> int:
        return len(self.rows)

    def values(self) -> Counter[str]:
        return Counter(self.rows["value"])

    def records(self) -> set[tuple[str, int, int]]:
        return set(zip(self.rows["topic"], self.rows["partition"], self.rows["offset"], strict=True))

    def delivery_counts(self) -> set[int]:
        return {int(count) for count in self.rows["deliveryCount"].unique()}

    def by_query(self) -> dict[str, int]:
        return {str(query): int(count) for query, count in self.rows["query"].value_counts().items()}

    def by_work(self) -> Output:
        """The same rows of queries with ``columns``, in the order in which these worked on each batch's partitions."""
        began = self.rows.groupby(["partition", "query", "batch"])["at"].transform("min")
        return Output(self.rows.assign(began=began).sort_values("began", kind="stable"))

    def last_deliveries(self) -> Output:
        """Of each record the row of its last delivery, which a target keyed by topic, partition and offset shows."""
        last = self.rows.groupby(["topic", "partition", "offset"])["deliveryCount"].transform("max")
        return Output(self.rows[self.rows["deliveryCount"] == last])

    def assert_at_least_once(self, expected: Iterable[str]) -> None:
        missing = set(expected) - set(self.rows["value"])
        assert not missing, f"{len(missing)} records are lost: {sorted(missing)[:10]}, of {len(self)}"

    def assert_exactly_once(self, expected: Iterable[str]) -> None:
        wanted = set(expected)
        self.assert_at_least_once(wanted)
        twice = self.rows[self.rows["value"].duplicated(keep=False)]
        assert twice.empty, f"{len(twice)} rows of records that are there more than once:\n{twice.head(10)}"
        strange = set(self.rows["value"]) - wanted
        assert not strange, f"nobody produced {sorted(strange)[:10]}"


def numbers(count: int, first: int = 0) -> list[str]:
    """The values of `count` records."""
    return [str(index) for index in range(first, first + count)]


def logged_plan(spec: QuerySpec, batch: int) -> dict[str, Any]:
    """The end offset of a batch, as Spark's log has it: the plan."""
    lines = (spec.checkpoint_path / "offsets" / str(batch)).read_text().splitlines()
    return dict(json.loads(lines[2]))


def plan_records(plan: dict[str, Any]) -> set[tuple[str, int, int]]:
    """The (topic, partition, offset) that a plan names."""
    found = set()
    for topic, entry in plan.get("plan", {}).items():
        for partition, ranges in entry.items():
            for text in ranges.split(",") if partition != "id" else ():
                first, last = text.split(":")[0].split("-")
                found |= {(topic, int(partition), offset) for offset in range(int(first), int(last) + 1)}
    return found
