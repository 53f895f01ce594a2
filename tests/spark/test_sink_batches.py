"""The sink in foreachBatch, what a dead letter holds, explicit mode, and stale receipts:
one small query each."""

import pytest

from share_sink.archive.batches import archive_dataset
from tests.support.dead_letters import read_dead_letters, timestamps
from tests.support.group_state import describe, runs_of
from tests.support.share_job import Output, numbers

pytestmark = [pytest.mark.spark, pytest.mark.broker]

EVERY = {"acknowledgement": "'accept'"}
DLQ_NAME = "errors.deadletterqueue.topic.name"


def accepted(queue) -> Output:
    """The rows that the program's own sink accepted."""
    rows = queue.output().rows
    return Output(rows[rows["acknowledgement"] == "accept"])


def wait_done(query, queue) -> None:
    query.wait(lambda: describe(queue).lag() == 0 and describe(queue).archiving() == 0, "all is done")


# --- foreachBatch


@pytest.mark.slow
def test_acknowledge_first_then_write(orders, job, start):
    """With a sink that skips a batch which it knows, the other way round loses a record that the first attempt put
    off and the second one would have kept: the write of the first stands, the outcome of the second counts."""
    queue = job(orders)
    puts_off = {"acknowledgement": "if(text = '7' and deliveryCount = 1, 'release', 'accept')"}
    options = {"columns": puts_off, "sink_options": queue.sink_options()}
    failed = start(queue.query("a", sink="acknowledge+skip+fail", **options)).wait_over()
    assert "FailedOnPurpose" in failed.error()
    wait_done(start(queue.query("a", sink="acknowledge+skip", **options)), queue)
    accepted(queue).assert_exactly_once(numbers(100))


IN_A_THREAD = """
from concurrent.futures import ThreadPoolExecutor
import sharegroup

def run(spark, source, sink, checkpoint):
    def each(batch, batch_id):
        rows = batch.selectExpr("*", "'accept' acknowledgement")
        with ThreadPoolExecutor(1) as pool:
            pool.submit(sharegroup.acknowledge, rows, batch_id, sink).result()

    stream = spark.readStream.format("sharegroup").options(**source).load().writeStream.trigger(availableNow=True)
    query = stream.option("checkpointLocation", checkpoint).foreachBatch(each).start()
    query.awaitTermination()
    sharegroup.complete_run(query, source)
"""


def test_a_batch_is_acknowledged_in_a_thread_of_foreach_batch(orders, job, shared_program, tmp_path):
    queue = job(orders)
    explicit = queue.query("a", options={"share.acknowledgement.mode": "explicit"}).options
    arguments = {"source": explicit, "sink": queue.sink_options(), "checkpoint": str(tmp_path)}
    shared_program.get().run(IN_A_THREAD, **arguments)
    assert describe(queue).description.records.accepted == 100


# --- dead letters


def test_a_dead_letter_has_the_columns_of_its_row(kafka, topic, job, start):
    """Without such columns it has the record's: tests/unit/share_sink/test_sink_writer.py."""
    orders, dlq = topic("orders"), topic("dlq")
    kafka.produce(orders, ["one", "two", None], keys=["k", None, b"\xff"], headers=[("trace", b"1"), ("null", None)])
    queue = job(orders, includeHeaders=True)
    columns = {
        "acknowledgement": "'reject'",
        "value": "encode(concat('masked ', text), 'utf-8')",
        "key": "if(offset = 1, null, concat('key ', offset))",
        "headers": "array(struct('why' as key, encode(text, 'utf-8') as value))",
    }
    sink = queue.sink_options(**{DLQ_NAME: dlq})
    wait_done(start(queue.query("a", columns=columns, sink="sharegroup", sink_options=sink)), queue)
    found = [(each.key, each.value, each.own_headers) for each in read_dead_letters(kafka.bootstrap, dlq)]
    assert found == [
        (b"key 0", b"masked one", (("why", b"one"),)),
        (None, b"masked two", (("why", b"two"),)),
        (b"key 2", None, (("why", None),)),
    ]


@pytest.mark.slow
def test_without_copying_dead_letters_are_headers_only_and_the_archive_whole(kafka, topic, job, start, tmp_path):
    """The executor writes the dead letter of the rejected record, the coordinator that of the one whose tries are used
    up; a key, value or headers of the row's own are not copied either."""
    orders, dlq = topic("orders"), topic("dlq")
    kafka.produce(orders, ["bad", "flaky", "good"], keys=["k"] * 3, headers=[("trace", b"1")])
    queue = job(orders, includeHeaders=True, **{"share.delivery.count.limit": 2})
    columns = {
        "acknowledgement": "case text when 'bad' then 'reject' when 'flaky' then 'release' else 'accept' end",
        "reason": "concat(text, ' it is')",
        "value": "encode(concat('masked ', text), 'utf-8')",
    }
    archive = str(tmp_path / "archive")
    without = {DLQ_NAME: dlq, "errors.deadletterqueue.copy.record.enable": False, "archive.path": archive}
    sink = queue.sink_options(**without)
    wait_done(start(queue.query("a", columns=columns, sink="sharegroup", sink_options=sink)), queue)
    letters = sorted(read_dead_letters(kafka.bootstrap, dlq), key=lambda letter: letter.origin)
    assert [(letter.key, letter.value, letter.own_headers) for letter in letters] == [(None, None, ())] * 2
    sent = timestamps(kafka.bootstrap, orders)
    every = {"topic": orders, "partition": "0", "group": queue.group}
    first = {"offset": "0", "delivery.count": "1", "message": "bad it is", "disposition": "rejected"}
    second = {"offset": "1", "delivery.count": "2", "message": "flaky it is", "disposition": "delivery_limit"}
    found = [letter.said for letter in letters]
    assert found == [{**every, **first, "timestamp": sent[0, 0]}, {**every, **second, "timestamp": sent[0, 1]}]
    (row,) = archive_dataset(archive).to_table().to_pylist()
    assert (row["offset"], row["key"], row["value"], row["reason"]) == (0, b"k", b"masked bad", "bad it is")
    assert [(header["key"], header["value"]) for header in row["headers"]] == [("trace", b"1")]


# --- replays that decide anew


@pytest.mark.slow
def test_a_replay_by_delivery_count_is_once_in_a_replacing_output(orders, job, start):
    """The first attempt releases every seventh record; the second one, at deliveryCount 2, accepts and writes it."""
    queue = job(orders)
    puts_off = {"acknowledgement": "if(int(text) % 7 = 0 and deliveryCount = 1, 'release', 'accept')"}
    decides = {"columns": puts_off, "sink_options": queue.sink_options(outputOnReplay="replaces")}
    failed = start(queue.query("a", sink="acknowledge+replace+fail", **decides)).wait_over()
    assert "FailedOnPurpose" in failed.error()
    wait_done(start(queue.query("a", sink="acknowledge+replace", **decides)), queue)
    accepted(queue).assert_exactly_once(numbers(100))


# --- explicit mode

EXPLICIT = {"share.acknowledgement.mode": "explicit"}


def test_explicit_mode_releases_undecided_records_and_not_gaps(kafka, topic, job, start):
    orders = topic("orders")
    kafka.produce_transaction(orders, numbers(100))  # with a marker at its end
    queue = job(orders, **EXPLICIT)
    seen_once = "deliveryCount > 1 or int(text) % 2 = 0"
    query = start(
        queue.query("a", columns=EVERY, where=seen_once, sink="acknowledge+replace", sink_options=queue.sink_options())
    )
    wait_done(query, queue)
    output = accepted(queue)
    output.assert_exactly_once(numbers(100))
    counts = output.rows.groupby(output.rows["value"].astype(int) % 2)["deliveryCount"].unique()
    assert [list(each) for each in counts] == [[1], [2]]
    assert describe(queue).archived() == 1  # the marker


@pytest.mark.slow
def test_an_explicit_query_without_a_sink_fails_and_counts_no_try(orders, job, start):
    queue = job(orders, **EXPLICIT)
    for _ in range(2):
        error = start(queue.query("a")).wait_over().error()
        assert "NothingDecided" in error and queue.group in error and "sharegroup.acknowledge" in error
        assert describe(queue).acquired() == 0 and describe(queue).lag() == 100
        assert {(run.failures, run.releases) for run in runs_of(queue)} == {(0, 0)}
    sink = queue.sink_options()
    wait_done(start(queue.query("b", columns=EVERY, sink="acknowledge+replace", sink_options=sink)), queue)
    accepted(queue).assert_exactly_once(numbers(100))


# --- receipts

STALE = {
    "seen": "deliveryCount",
    "deliveryCount": "if(text = '7' and deliveryCount = 2, 1, deliveryCount)",
    "acknowledgement": "if(int(text) between 7 and 8 and seen = 1, 'release', 'accept')",
}


def test_a_stale_row_is_logged_and_the_rest_is_acknowledged(orders, job, start, shared_program):
    queue = job(orders)
    options = {"columns": STALE, "drop": ("seen",), "sink": "sharegroup", "sink_options": queue.sink_options()}
    query = start(queue.query("a", **options))
    wait_done(query, queue)
    shared_program.get().wait_said("1 record(s) were not acknowledged")
    shared_program.get().wait_said(f"{orders}-0@7 (1)")
    assert not query.over()
    seen = queue.seen().groupby("text")["deliveryCount"].max()
    assert seen["7"] == seen["8"] == 2  # of 7 nothing was said then: accepted, as implicit mode has it
