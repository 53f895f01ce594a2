"""Wrong input of a sink is refused by name, with its row where a row is wrong; no record is lost."""

import pytest

from tests.support.group_state import describe
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.broker]

EVERY = {"acknowledgement": "'accept'"}
DLQ_NAME = "errors.deadletterqueue.topic.name"


@pytest.mark.slow
def test_a_row_that_cannot_be_understood_is_named_and_nothing_is_acknowledged(orders, job, start):
    """The other ways to be wrong, without Spark: tests/unit/share_sink/test_sink_rows.py."""
    queue = job(orders)
    columns = {"acknowledgement": "if(text = '57', 'maybe', 'accept')"}
    sink = queue.sink_options()
    error = start(queue.query("a", columns=columns, sink="sharegroup", sink_options=sink)).wait_over().error()
    assert "UnknownOutcome" in error and "'maybe'" in error and f"{orders}-0@57 (1)" in error
    assert not [word for word in ("tenacity", "pyarrow", "share_sink/rows.py") if word in error]
    assert describe(queue).lag() == 100


def test_rows_without_a_receipt_are_refused_by_the_columns_name(orders, job, start):
    queue = job(orders)
    query = queue.query("a", columns=EVERY, drop=("receipt",), sink="sharegroup", sink_options=queue.sink_options())
    error = start(query).wait_over().error()
    assert "MissingColumn" in error and "no column receipt" in error
    assert describe(queue).lag() == 100


# --- found when the query starts


@pytest.mark.parametrize("side", ["source", "sink"])
def test_a_missing_dead_letter_topic_fails_the_query_by_name(orders, job, start, unique, side):
    """Said although no record is rejected."""
    missing = {DLQ_NAME: unique("missing")}
    queue = job(orders, **(missing if side == "source" else {}))
    sink = queue.sink_options(**(missing if side == "sink" else {}))
    error = start(queue.query("a", columns=EVERY, sink="sharegroup", sink_options=sink)).wait_over().error()
    assert "DeadLetterTopicMissing" in error and missing[DLQ_NAME] in error and "auto.create.topics.enable" in error
    assert describe(queue).lag() in (100, -1)  # -1: it was not even joined


def test_an_unwritable_archive_fails_the_query_by_name(orders, job, start, tmp_path):
    file = tmp_path / "file"
    file.touch()
    queue = job(orders)
    sink = queue.sink_options(**{"archive.path": str(file / "archive")})
    error = start(queue.query("a", columns=EVERY, sink="sharegroup", sink_options=sink)).wait_over().error()
    assert "ArchiveNotWritable" in error and str(file) in error
    assert describe(queue).lag() == 100


# --- a sink and a source that do not belong together


COMPUTED = {
    "topic": "concat(topic, '')",
    "partition": "partition + 0",
    "offset": "offset + 0",
    "deliveryCount": "deliveryCount + 0",
    "receipt": "receipt + 0",
}
"""The receipt, in columns that are not the source's any more."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "sink"),
    [
        pytest.param(EVERY, "sharegroup", id="the source's columns", marks=pytest.mark.soak),
        pytest.param({**EVERY, **COMPUTED}, "acknowledge+replace", id="computed columns in foreachBatch"),
        pytest.param({**EVERY, **COMPUTED}, "sharegroup", id="computed columns", marks=pytest.mark.soak),
        pytest.param(EVERY, "acknowledge+replace", id="foreachBatch", marks=pytest.mark.soak),
    ],
)
def test_a_sink_of_another_group_is_refused_and_acknowledges_nothing(orders, job, start, columns, sink):
    """Both groups read the topic for the first time: their receipts are alike."""
    queue, other = job(orders), job(orders)
    held = start(
        other.query("b", sink="sharegroup", columns=EVERY, sink_options=other.sink_options(), trigger="1 hour")
    )
    wait_until(lambda: describe(other).acquired() == 100, what="the other group's query has its batch")
    options = other.sink_options()
    error = start(queue.query("a", columns=columns, sink=sink, sink_options=options)).wait_over().error()
    assert "RowsOfAnotherGroup" in error and other.group in error, error
    assert describe(queue).lag() == 100
    assert not held.over()
