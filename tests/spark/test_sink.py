"""A Spark program says of each record what became of it: the issue's own program, and what its sink leaves behind.

One query of the story below, which many tests look at; then foreachBatch, explicit mode, and stale receipts."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.dead_letters import DeadLetter, read_dead_letters, timestamps
from tests.support.group_state import describe
from tests.support.kafka_broker import KafkaBroker
from tests.support.share_job import ShareJob
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.broker]

CLOCKS_MS = 5
"""A wall clock and a monotonic clock may differ by this many ms between two readings."""


# --- the story: partitions 0 and 1 hold good and flaky records, 2 and 3 bad ones of every shape

OWN_DELAY_MS, BACKOFF_MS = 2_500, 1_500
GOOD, FLAKY = 40, 10

BAD: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]] = [
    (b"key", b"bad", [("trace", b"1"), ("trace", b"2"), ("empty", b""), ("null", None)]),
    (None, b"bad", None),
    (b"key", None, [("kept", b"of a tombstone")]),
    (None, None, None),
    (b"", b"", [("", b"no name")]),
    (b"\x00\xff\xfe", b"bad \x80\x81\x00", [("bytes", b"\xff\x00\x80")]),
    ("schlüssel".encode(), "bad, größer ✓".encode(), [("grüße", "ü".encode())]),
    # it has been a dead letter before: those headers are replaced
    (b"key", b"bad again", [("__dlq.errors.topic", b"older"), ("__dlq.errors.offset", b"77"), ("own", b"kept")]),
]
REASON = "unparsable at 3"

DECISIONS = {
    "acknowledgement": """case when partition >= 2 then 'reject'
                               when text like 'flaky%' and deliveryCount < 3 then 'release'
                               when text like 'soon%' and deliveryCount < 3 then 'release'
                               when text like 'none%' then null else 'accept' end""",
    "reason": f"case when partition = 3 then '{REASON}' end",
    "releaseDelayMs": f"case when text like 'flaky%' then {OWN_DELAY_MS} end",
}


@dataclass(kw_only=True)
class Story:
    """The topics and outputs that a query left behind."""

    orders: str
    dlq: str
    job: ShareJob
    archive: str
    letters: list[DeadLetter]
    bootstrap: str

    def dead_letter_of(self, partition: int, offset: int) -> DeadLetter:
        """The one dead letter of a record."""
        (found,) = [letter for letter in self.letters if letter.origin == (self.orders, partition, offset)]
        return found


@pytest.fixture(scope="module")
def story(kafka: KafkaBroker, shared_program: Any, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """The program of the issue, over records that it accepts, releases (twice each) and rejects."""
    orders, dlq = kafka.create_topic(partitions=4), kafka.create_topic(partitions=3)
    for partition in (0, 1):
        for kind, count in (("good", GOOD), ("flaky", FLAKY), ("soon", FLAKY), ("none", FLAKY)):
            kafka.produce(orders, [f"{kind}-{n}" for n in range(count)], partition=partition)
    for partition in (2, 3):
        for key, value, headers in BAD:
            kafka.produce(orders, [value], keys=[key], partition=partition, headers=headers)
    folder = tmp_path_factory.mktemp("billing")
    backoff = {"share.release.backoff.ms": str(BACKOFF_MS), "share.release.backoff.jitter": "0"}
    job = ShareJob(
        directory=folder,
        bootstrap=kafka.bootstrap,
        admin_bootstrap=kafka.bootstrap,
        group=f"billing-{orders}",
        topics=(orders,),
        options={"includeHeaders": "true", **backoff},
    )
    archive = str(folder / "archive")
    sink = job.sink_options(**{"errors.deadletterqueue.topic.name": dlq, "archive.path": archive})
    query = shared_program.get().start_query(job.query("a", columns=DECISIONS, sink="sharegroup", sink_options=sink))
    try:
        query.wait(lambda: describe(job).lag() == 0 and describe(job).archiving() == 0, "all is done")
    finally:
        query.stop()
    assert not query.error()
    letters = read_dead_letters(kafka.bootstrap, dlq)
    return Story(orders=orders, dlq=dlq, job=job, archive=archive, letters=letters, bootstrap=kafka.bootstrap)


def test_each_record_ends_with_the_outcome_of_its_row(story):
    rejected = {(story.orders, partition, offset) for partition in (2, 3) for offset in range(len(BAD))}
    assert {letter.origin for letter in story.letters} == rejected
    assert len(story.letters) == len(rejected)
    partitions = {(int(letter.said["partition"]), letter.partition) for letter in story.letters}
    assert partitions == {(2, 2), (3, 0)}, "as Kafka would choose them"
    seen = story.job.seen()
    by_kind = seen.groupby(seen["text"].str.split("-").str[0])["deliveryCount"].agg(["count", "max"])
    assert by_kind.loc["good"].tolist() == [2 * GOOD, 1]
    assert by_kind.loc["none"].tolist() == [2 * FLAKY, 1]  # null is accept
    assert by_kind.loc["flaky"].tolist() == by_kind.loc["soon"].tolist() == [2 * FLAKY * 3, 3]
    assert describe(story.job).archived() == len(rejected)
    assert all(p.start_offset == p.end_offset for p in describe(story.job).description.partitions)


@pytest.mark.parametrize(
    ("kind", "delays_ms"),
    [("flaky", (OWN_DELAY_MS, OWN_DELAY_MS)), ("soon", (BACKOFF_MS, 2 * BACKOFF_MS))],
    ids=["releaseDelayMs", "share.release.backoff.ms"],
)
def test_released_records_come_back_after_their_delay_with_the_next_count(story, kind, delays_ms):
    seen = story.job.seen()
    for _, sights in seen[seen["text"].str.startswith(kind, na=False)].groupby(["partition", "offset"]):
        assert sights["deliveryCount"].tolist() == [1, 2, 3]
        waited_ms = sights["at"].diff().tolist()[1:]
        assert all(waited >= delay - CLOCKS_MS for waited, delay in zip(waited_ms, delays_ms, strict=True)), waited_ms


@pytest.mark.parametrize("sink", ["sharegroup", "acknowledge+replace"], ids=["the sink", "foreachBatch"])
def test_a_released_record_comes_back_at_the_time_that_its_row_says(kafka, topic, job, start, sink):
    orders = topic("orders", 1)
    kafka.produce(orders, ["later", "now"])
    at_ms = int(time.time() * 1000) + 5_000
    columns = {
        "acknowledgement": "if(deliveryCount = 1, 'release', 'accept')",
        "releaseAt": f"if(text = 'later', timestamp_millis({at_ms}), timestamp '2020-01-01 00:00:00+09:00')",
    }
    queue = job(orders, **{"share.release.backoff.ms": "3600000", "share.release.backoff.max.ms": "3600000"})
    start(queue.query("a", columns=columns, sink=sink, sink_options=queue.sink_options()))
    wait_until(lambda: describe(queue).lag() == 0, what="all is done")
    again = queue.seen().query("deliveryCount == 2").set_index("text")["at"]
    assert again["later"] >= at_ms - CLOCKS_MS and again["now"] <= again["later"]


def test_dead_letters_equal_their_originals_byte_for_byte(story):
    for partition in (2, 3):
        for offset, (key, value, headers) in enumerate(BAD):
            letter = story.dead_letter_of(partition, offset)
            own = tuple(header for header in headers or () if not header[0].startswith("__dlq.errors."))
            assert (letter.key, letter.value, letter.own_headers) == (key, value, own)


@pytest.mark.parametrize(("partition", "message"), [(2, "Offset rejected by client."), (3, REASON)])
def test_a_dead_letter_has_kafka_4_4_headers_and_its_disposition(story, partition, message):
    """KIP-1191's table, each value as text; the row's reason takes the place of Kafka's message. Ours come after it."""
    sent = timestamps(story.bootstrap, story.orders)
    for offset, record in enumerate(BAD):
        kafkas = [
            ("__dlq.errors.topic", story.orders.encode()),
            ("__dlq.errors.partition", str(partition).encode()),
            ("__dlq.errors.offset", str(offset).encode()),
            ("__dlq.errors.group", story.job.group.encode()),
            ("__dlq.errors.delivery.count", b"1"),
            ("__dlq.errors.message", message.encode()),
        ]
        own = len(story.dead_letter_of(partition, offset).own_headers)
        found = list(story.dead_letter_of(partition, offset).headers[own:])
        timestamp = ("__dlq.errors.timestamp", sent[partition, offset].encode())
        empty = () if any(record) else (("__dlq.errors.empty.record", b"true"),)
        assert found == [*kafkas, ("__dlq.errors.disposition", b"rejected"), timestamp, *empty]


READ = """
def run(spark, path, columns):
    return [row.asDict(recursive=True) for row in spark.read.parquet(path).selectExpr(*columns).collect()]
"""


def test_the_archive_is_read_by_spark(story, shared_program):
    columns = (
        "partition",
        "offset",
        "topic",
        "hex(key) key",
        "hex(value) value",
        "transform(headers, h -> named_struct('key', h.key, 'value', hex(h.value))) headers",
        "deliveryCount",
        "`group`",
        "reason",
        "time >= timestamp later",
        "date = to_date(time) same_day",
    )
    read = shared_program.get().run(READ, path=str(story.archive), columns=columns)
    rows = {(row["partition"], row["offset"]): row for row in read}
    assert set(rows) == {(p, n) for p in (2, 3) for n in range(len(BAD))}
    for (partition, offset), row in rows.items():
        key, value, headers = BAD[offset]
        assert (row["key"], row["value"]) == (hexed(key), hexed(value))
        assert [(h["key"], h["value"]) for h in row["headers"] or ()] == [(k, hexed(v)) for k, v in headers or ()]
        assert (row["topic"], row["deliveryCount"], row["group"]) == (story.orders, 1, story.job.group)
        assert row["reason"] == (REASON if partition == 3 else None)
        assert row["later"] and row["same_day"]


def hexed(value: bytes | None) -> str | None:
    return None if value is None else value.hex().upper()
