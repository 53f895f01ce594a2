"""`sharegroup consume` and `perf` on a real broker, beside Kafka's own tools for native share groups."""

from __future__ import annotations

import json
import re

import pytest

from sharegroup.__main__ import run

pytestmark = pytest.mark.broker

CONSUME = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
PERF = "org.apache.kafka.tools.ShareConsumerPerformance"
EARLIEST = ("--command-property", "share.auto.offset.reset=earliest")
COLUMNS = ("timestamp", "key", "offset", "delivery", "partition", "headers")
"""All columns but the leader epoch: Kafka's tool prints NOT_PRESENT for it, whatever the record has."""


@pytest.fixture
def orders(kafka, topic):
    """A topic with four records, one of them without key and value."""
    name = topic("orders")
    kafka.produce(name, ["a", "b", "c"], keys=["1", "2", "3"], headers=[("source", b"test"), ("empty", b"")])
    kafka.produce(name, [None])
    return name


@pytest.fixture
def native(kafka, unique):
    """A native share group that begins at the earliest record."""
    group = unique("native")
    kafka.configure_group(group, share_auto_offset_reset="earliest")
    return group


def test_consume_prints_records_as_kafkas_own_tool_does(kafka, orders, native, unique, capfdbinary):
    printing = [word for name in COLUMNS for word in ("--formatter-property", f"print.{name}=true")]
    common = ["--bootstrap-server", kafka.bootstrap, "--topic", orders, "--max-messages", "4", *printing]
    theirs = kafka.run_tool(CONSUME, *common, "--group", native)
    capfdbinary.readouterr()
    assert run(["consume", *common, "--group", unique("ours"), *EARLIEST]) == 0
    told = capfdbinary.readouterr()
    assert told.out.decode() == theirs
    assert told.out.count(b"\n") == 4
    assert told.err == b"Processed a total of 4 messages\n"


@pytest.mark.slow
def test_consumed_records_can_be_released_or_rejected_and_printed_as_json(kafka, orders, unique, capsys):
    command = ["consume", "--bootstrap-server", kafka.bootstrap, "--topic", orders, "--group", unique("g"), "--json"]

    def consumed(*arguments):
        assert run([*command, *EARLIEST, *arguments]) == 0
        lines = capsys.readouterr().out.splitlines()
        return [(found["offset"], found["delivery_count"]) for found in map(json.loads, lines)]

    assert consumed("--max-messages", "2", "--release") == [(0, 1), (1, 1)]
    assert consumed("--max-messages", "1", "--reject") == [(0, 2)]
    assert consumed("--max-messages", "3") == [(1, 2), (2, 1), (3, 1)]
    assert consumed("--timeout-ms", "300") == []


def test_a_record_that_cannot_be_printed_is_rejected_only_on_request(kafka, orders, unique, capsys):
    command = ["consume", "--bootstrap-server", kafka.bootstrap, "--topic", orders, "--group", unique("g"), *EARLIEST]
    numbers = ["--value-deserializer", "LongDeserializer"]
    assert run([*command, *numbers]) == 1
    told = capsys.readouterr()
    assert told.err.splitlines()[-1].startswith(f"sharegroup: Record {orders}-0@0 (value, 1 bytes)")
    assert run([*command, *numbers, "--reject-message-on-error", "--max-messages", "4"]) == 0
    assert capsys.readouterr().out == "null\n"
    assert run([*command, "--timeout-ms", "300"]) == 0
    assert capsys.readouterr().out == "", "none is left"


@pytest.mark.slow
def test_a_measurement_has_the_columns_of_kafkas_own_tool(kafka, orders, native, unique, capsys):
    kafka.produce(orders, [f"value-{number}" for number in range(96)])
    common = ["--bootstrap-server", kafka.bootstrap, "--topic", orders, "--num-records", "100", "--show-consumer-stats"]
    common += ["--timeout", "120000"]
    theirs = kafka.run_tool(PERF, *common, "--group", native)
    pattern = ["--ack-pattern", "accept:9,reject:1", "--print-metrics", "--threads", "2"]
    assert run(["perf", *common, "--group", unique("g"), *EARLIEST, *pattern]) == 0
    ours = capsys.readouterr().out

    def shape(text):
        return [re.sub(r"\d+", "N", line) for line in text.splitlines()]

    assert [shape(ours)[0], shape(ours)[3]] == [shape(theirs)[0], shape(theirs)[2]]
    (said, consumed), expected = ours.splitlines()[3].split(", ")[2::3], theirs.splitlines()[2].split(", ")
    assert (said, consumed) == (expected[2], "100"), "as many bytes, in as many records"
    assert re.sub(" +", " ", ours).endswith(
        "acknowledged.accept : 90\nacknowledged.release : 0\nacknowledged.reject : 10\ndelivered.again : 0\n"
    )


def test_a_measurement_without_records_fails_and_says_why(kafka, topic, unique, capsys):
    command = ["perf", "--bootstrap-server", kafka.bootstrap, "--topic", topic(), "--group", unique("g")]
    assert run([*command, "--num-records", "1", "--timeout", "200", "--json"]) == 1
    told = capsys.readouterr()
    assert "WARNING: Exiting before consuming the expected number of records: timeout (200 ms) exceeded" in told.err
    assert json.loads(told.out)["data.consumed.in.nMsg"] == 0
