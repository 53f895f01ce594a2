"""The groups whose records a batch holds, by the columns' metadata and by Spark's offset log; rows of other groups are
refused."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql.types import StructField, StructType

from coordinator.protocol.messages import PartitionPlan, Plan, SinkOpened
from coordinator.protocol.values import AcquiredRange
from share_sink import sink
from share_sink.columns import Columns
from share_sink.errors import RowsOfAnotherGroup
from share_sink.query_batch import batch_at, parse_batch
from share_sink.sink import open_sink
from share_source.arrow_schema import spark_schema
from share_source.plan_offset import initial_offset, plan_offset
from tests.support.sink_rows import REQUIRED, schema

OPTIONS = {"kafka.bootstrap.servers": "a:1", "kafka.group.id": "billing"}
PLAN = Plan(
    plan_id="i.2",
    partitions=(
        PartitionPlan(topic="orders", topic_id="T1", partition=0, ranges=(AcquiredRange(0, 9, 1),)),
        PartitionPlan(topic="orders", topic_id="T1", partition=3, ranges=(AcquiredRange(5, 5, 2),)),
        PartitionPlan(topic="refunds", topic_id="T2", partition=0, ranges=(AcquiredRange(0, 0, 1),)),
    ),
)


def logged(*offsets: object) -> str:
    """A file of offsets/ as Spark writes it; None: a source that has none yet."""
    lines = ["-" if offset is None else json.dumps(offset) for offset in offsets]
    return "\n".join(["v1", json.dumps({"batchWatermarkMs": 0, "conf": {}}), *lines])


def of_source(group_id: str = "billing") -> StructType:
    """The receipt's columns as the source gave them, and an acknowledgement."""
    source = [field for field in spark_schema(group_id=group_id) if field.name in REQUIRED]
    return StructType([*source, StructField("acknowledgement", REQUIRED["acknowledgement"])])


@pytest.fixture(autouse=True)
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    asked: list[object] = []

    class Coordinator:
        def call(self, request: object) -> SinkOpened:
            asked.append(request)
            return SinkOpened(incarnation="i")

    monkeypatch.setattr(sink, "coordinator_of", lambda options: Coordinator())
    sink._log_unchecked.cache_clear()
    yield asked
    sink._log_unchecked.cache_clear()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Callable[..., str]:
    """A query's checkpointLocation with these batches in its log."""

    def make(*batches: str) -> str:
        (tmp_path / "offsets").mkdir()
        for number, text in enumerate(batches):
            (tmp_path / "offsets" / str(number)).write_text(text)
            (tmp_path / "offsets" / f".{number}.crc").write_bytes(b"crc")
        return str(tmp_path)

    return make


# --- the log


def test_a_batch_is_of_the_groups_and_topics_that_sources_logged() -> None:
    other = {"orders": {"0": 17}}
    text = logged(plan_offset("billing", "m1", PLAN), other, None, initial_offset("audit", "m2"), 7)
    assert parse_batch(text) == {"billing": {"orders": "T1", "refunds": "T2"}, "audit": {}}


def test_an_offset_of_another_format_version_is_no_batch() -> None:
    newer = {**plan_offset("billing", "m1", PLAN), "version": 2}
    without = {key: value for key, value in plan_offset("audit", "m1", PLAN).items() if key != "version"}
    assert parse_batch(logged(newer, without)) == {}


def test_of_two_plans_that_have_a_topic_under_different_ids_neither_counts() -> None:
    anew = Plan(plan_id="i.3", partitions=(PartitionPlan(topic="orders", topic_id="T9", partition=0, ranges=()),))
    text = logged(plan_offset("billing", "m1", PLAN), plan_offset("billing", "m2", anew))
    assert parse_batch(text) == {"billing": {"refunds": "T2"}}


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_the_newest_batch_of_a_checkpoint_counts(checkpoint: Callable[..., str], prefix: str) -> None:
    older = [logged(plan_offset("audit", "m1", PLAN))] * 10
    place = checkpoint(*older, logged(plan_offset("billing", "m1", PLAN)))
    assert batch_at(prefix + place) == {"billing": {"orders": "T1", "refunds": "T2"}}


@pytest.mark.parametrize("place", ["hdfs://host/checkpoint", "s3a://bucket/checkpoint", "/nowhere/at/all"])
def test_an_unreadable_checkpoint_has_no_batch(place: str) -> None:
    assert batch_at(place) is None


def test_a_checkpoint_without_offsets_has_no_batch(checkpoint: Callable[..., str]) -> None:
    assert batch_at(checkpoint()) is None


# --- what is refused


def test_rows_of_the_sinks_own_group_are_taken() -> None:
    assert Columns.of(of_source()).group_ids == {"billing"}
    open_sink(OPTIONS, of_source(), overwrite=False)


def test_rows_of_another_group_are_refused_before_the_coordinator_is_asked(coordinator: list[object]) -> None:
    with pytest.raises(
        RowsOfAnotherGroup, match=r"kafka.group.id is billing, and its rows are of audit:.*onOtherGroup"
    ):
        open_sink(OPTIONS, of_source("audit"), overwrite=False)
    assert not coordinator


def test_a_column_of_another_group_among_others_is_refused() -> None:
    computed = StructField("offset", REQUIRED["offset"])
    rows = StructType([computed if field.name == "offset" else field for field in of_source("audit")])
    with pytest.raises(RowsOfAnotherGroup):
        open_sink(OPTIONS, rows, overwrite=False)


def test_computed_rows_are_of_the_groups_that_the_querys_offsets_name(checkpoint: Callable[..., str]) -> None:
    place = checkpoint(logged(plan_offset("audit", "m1", PLAN)))
    with pytest.raises(RowsOfAnotherGroup, match="its rows are of audit"):
        open_sink({**OPTIONS, "checkpointLocation": place}, schema(REQUIRED), overwrite=False)
    found = open_sink(
        {**OPTIONS, "kafka.group.id": "audit", "checkpointLocation": place}, schema(REQUIRED), overwrite=False
    )
    assert found.topic_ids == {"orders": "T1", "refunds": "T2"}, "and the batch's topics are known by their ids"


def test_the_batch_offsets_option_decides_the_groups_and_topic_ids_of_rows() -> None:
    told = {**OPTIONS, "batchOffsets": json.dumps({"audit": {}})}
    with pytest.raises(RowsOfAnotherGroup):
        open_sink(told, schema(REQUIRED), overwrite=False)
    found = open_sink(
        {**told, "batchOffsets": json.dumps({"billing": {"orders": "T1"}})}, schema(REQUIRED), overwrite=False
    )
    assert found.topic_ids == {"orders": "T1"}


def test_rows_of_a_query_without_a_source_of_the_format_are_refused() -> None:
    with pytest.raises(RowsOfAnotherGroup, match="no source of the format sharegroup"):
        open_sink({**OPTIONS, "batchOffsets": "{}"}, schema(REQUIRED), overwrite=False)


@pytest.mark.parametrize("rows", [of_source("audit"), schema(REQUIRED)], ids=["by columns", "by offsets"])
def test_on_other_group_allow_accepts_rows_of_another_group(rows: StructType) -> None:
    told = {**OPTIONS, "onOtherGroup": "allow", "batchOffsets": json.dumps({"audit": {}})}
    open_sink(told, rows, overwrite=False)


def test_a_checkpoint_that_cannot_be_checked_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "share_sink")
    for _ in range(3):
        open_sink({**OPTIONS, "checkpointLocation": "hdfs://host/checkpoint"}, schema(REQUIRED), overwrite=False)
    (said,) = caplog.messages
    assert "share group billing" in said and "cannot check" in said
