"""The options of views, and what can't be a view."""

import pytest

from coordinator.admin.waiting_records import Bounds
from coordinator.protocol.admin_messages import OffsetsListed
from coordinator.protocol.errors import GroupIdNotFound, UnknownConfig
from coordinator.protocol.messages import PartitionDescription
from coordinator.protocol.option_errors import InvalidOption, MissingOption, RefusedOption, UnknownOption
from share_source.data_source import ShareGroupDataSource
from share_source.errors import SeveralSubscriptions
from share_source.views import tables
from share_source.views.reader import ViewOptions, ViewReader, ViewRows
from tests.support.known_groups import KnownGroups

PARTITION = PartitionDescription(
    topic="orders", topic_id="T", partition=0, start_offset=5, end_offset=9, lag=7, acquired=0, archived_total=0
)
OPTIONS = {"kafka.bootstrap.servers": "localhost:9092", "view": "offsets"}


@pytest.mark.parametrize("view", sorted(tables.SCHEMAS))
def test_each_view_has_columns_that_spark_knows(view):
    fields = ShareGroupDataSource({**OPTIONS, "kafka.group.id": "billing", "view": view}).schema().names
    assert fields == tables.SCHEMAS[view].names


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"view": "record"}, InvalidOption, "'record' is no view; the views are groups, members, offsets"),
        ({"view": ""}, InvalidOption, "'' is no view"),
        ({"subscribe": "orders"}, RefusedOption, "subscribe .* with view"),
        ({"kafka.bootstrap.servers": " "}, MissingOption, "kafka.bootstrap.servers"),
        ({"share.nothing": "1"}, UnknownConfig, "share.nothing"),
    ],
)
def test_a_wrong_option_of_a_view_is_named(changes, error, text):
    with pytest.raises(error, match=text):
        ViewOptions.parse({**OPTIONS, **changes})


RECORDS = {**OPTIONS, "view": "records", "kafka.group.id": "billing"}


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"kafka.group.id": ""}, MissingOption, "kafka.group.id is missing: it names the share group whose records"),
        ({"states": "AVAILABLE,QUEUED"}, InvalidOption, "states is wrong: QUEUED is no state of a record that is not"),
        ({"states": ""}, InvalidOption, "states is wrong: an empty text is no state"),
        ({"maxRecords": "0"}, InvalidOption, "maxRecords is wrong: '0' is not a whole number between 1 and"),
        ({"subscribe": "orders", "assign": '{"orders":[0]}'}, SeveralSubscriptions, "subscribe, assign"),
        ({"subscribe": "a b"}, InvalidOption, "subscribe is wrong: 'a b' can't be a topic's name"),
        ({"startingOffsets": "latest"}, InvalidOption, "startingOffsets is wrong: 'latest' is not understood"),
        ({"endingOffsets": '{"orders":{"0":-2}}'}, InvalidOption, r"endingOffsets is wrong: .* or -1 \(latest\)"),
        (
            {"endingOffsets": '{"orders":{"0":7}}', "subscribe": "other"},
            InvalidOption,
            "topic orders is not subscribed",
        ),
        (
            {"startingOffsets": '{"o":{"1":7}}', "assign": '{"o":[0]}'},
            InvalidOption,
            "startingOffsets .* o-1 is not ass",
        ),
        ({"subscribePattern": "o.*"}, RefusedOption, "subscribePattern .* with view"),
        ({"maxRecord": "7"}, UnknownOption, "maxrecord .* view records; the nearest known one is maxRecords"),
        ({"view": "offsets", "maxRecords": "7"}, RefusedOption, "maxRecords can't be used here"),
    ],
)
def test_a_wrong_bound_of_the_view_records_is_named(changes, error, text):
    with pytest.raises(error, match=text):
        ViewOptions.parse({**RECORDS, **changes})


def test_bounds_of_records_are_spelled_as_in_sparks_kafka_source():
    found = ViewOptions.parse(
        {
            **RECORDS,
            "assign": '{"orders":[1,0]}',
            "startingOffsets": '{"orders":{"0":7,"1":-2}}',
            "endingoffsets": '{"orders":{"0":-1,"1":9}}',
            "states": "available, ACQUIRED",
            "maxRecords": "5",
        }
    ).bounds
    assert found == Bounds(
        partitions={"orders": (0, 1)},
        starts={("orders", 0): 7},
        ends={("orders", 1): 9},
        states=("AVAILABLE", "ACQUIRED"),
        max_records=5,
    )
    assert ViewOptions.parse({**RECORDS, "startingOffsets": "earliest", "endingOffsets": "Latest"}).bounds == Bounds()
    assert ViewOptions.parse({**RECORDS, "subscribe": "a, b"}).bounds.partitions == {"a": (), "b": ()}


def test_the_rows_of_a_view_reach_the_task_unchanged():
    row = {"group": "billing", "topic": "orders", "partition": 1, "startOffset": 5}
    table = tables._table("offsets", [row] * 3)
    reader = ViewReader(ViewOptions.parse(OPTIONS))
    assert [batch.to_pylist() for batch in reader.read(ViewRows(table))] == [table.to_pylist()]


def test_a_group_that_is_deleted_meanwhile_has_no_rows_unless_named(monkeypatch):
    def list_offsets(group_id):
        if group_id == "deleted":
            raise GroupIdNotFound(group_id=group_id)
        return OffsetsListed(partitions=(PARTITION,))

    known = KnownGroups({"a": "EMPTY", "deleted": "EMPTY"})
    known.list_offsets = list_offsets
    monkeypatch.setattr(tables, "Admin", lambda conf: known)
    assert [row["group"] for row in tables.offsets({}).to_pylist()] == ["a"]
    with pytest.raises(GroupIdNotFound):
        tables.offsets({}, "deleted")


def test_dead_letters_need_a_topic_or_a_group():
    with pytest.raises(MissingOption, match="name the dead letter topic, or a group that has one"):
        tables.dead_letter_topic({}, None)


@pytest.mark.parametrize("view", [tables.members, tables.dead_letters])
def test_a_view_of_an_unknown_group_raises_group_id_not_found(monkeypatch, view):
    monkeypatch.setattr(tables, "Admin", lambda conf: KnownGroups({}))
    with pytest.raises(GroupIdNotFound, match="none"):
        view({}, "none")
