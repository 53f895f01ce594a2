"""`sharegroup dlq` as a person meets it: conditions, mistakes in one line, and what is said of a redrive."""

from __future__ import annotations

import dataclasses
import importlib
from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.dead_letters.record_format import Disposition, Origin, dead_letter
from share_sink.errors import InvalidCondition, RedriveStopped
from share_sink.redrive import dlq_reader
from share_sink.redrive.conditions import all_hold, condition, conditions
from share_sink.redrive.dlq_reader import REDRIVES, DeadLetter
from share_sink.redrive.redrive import _Sender, at_rate
from share_sink.redrive.report import EXAMPLES, OTHER_REASONS, REASONS, RedriveReport, Sent
from sharegroup.__main__ import run
from sharegroup.dlq import ROWS, summary

COMMAND = ["dlq", "redrive", "--bootstrap-server", "broker:9092", "--topic", "dlq"]


class Record:
    """A record as librdkafka gives it."""

    def __init__(self, key=b"k", value=b"v", headers=(), place=(0, 0), timestamp=(1, 1_000)) -> None:
        self._said = {"key": key, "value": value, "headers": list(headers) or None, "timestamp": timestamp}
        self._said["partition"], self._said["offset"] = place
        self._said["error"] = None

    def __getattr__(self, name):
        return lambda: self._said[name]


def dead(**more) -> DeadLetter:
    """A dead letter, written and read."""
    said = {"key": b"k", "value": b"v", "headers": [("tenant", b"a"), ("tenant", b"b"), ("group", b"mine")], **more}
    origin = Origin("orders", 3, 77, "billing", 2)
    written = dead_letter(origin, Disposition.REJECTED, message="no such customer", **said)
    found = DeadLetter.of(Record(written.key, written.value, written.headers))
    assert found is not None
    return found


# --- dead letters


def test_a_dead_letter_is_parsed_into_origin_and_record():
    found = dead()
    assert (found.origin_topic, found.origin_partition, found.origin_offset) == ("orders", 3, 77)
    assert (found.group_id, found.delivery_count, found.disposition) == ("billing", 2, "rejected")
    assert found.record_headers == (("tenant", b"a"), ("tenant", b"b"), ("group", b"mine"))
    assert found.has_record
    assert found.redrives == 0


@pytest.mark.parametrize("name", ["topic", "partition", "offset", "group"])
@pytest.mark.parametrize("value", [None, b"", b"-1", b"\xff"])
def test_a_record_with_an_empty_origin_is_no_dead_letter(name, value):
    full = f"__dlq.errors.{name}"
    headers = [(each, value if each == full else content) for each, content in dead().headers]
    found = DeadLetter.of(Record(headers=headers))
    if name in ("partition", "offset") or (name, value) in (("topic", None), ("topic", b"")):
        assert found is None
    assert DeadLetter.of(Record(headers=[each for each in headers if each[0] != full])) is None
    assert DeadLetter.of(Record()) is None


@pytest.mark.parametrize(
    ("count", "redrives"), [(b"2", 2), (b"", 0), (None, 0), (b"x", 0), (b"-1", 0), ("²".encode(), 0)]
)
def test_only_a_number_counts_redrives(count, redrives):
    assert dead(headers=[(REDRIVES, b"9"), (REDRIVES, count)]).redrives == redrives


def test_a_dead_letter_of_an_empty_record_says_that_it_has_it():
    assert not dead(copy=False).has_record
    assert not dead(key=None, value=None, headers=None).has_record, "as versions before wrote it, and as Kafka does"
    assert dead(key=None, value=None, headers=[]).has_record
    assert dead(key=None, value=None).has_record
    assert dead(value=None, headers=[]).has_record


class Log:
    """A consumer that gives these records, and fails the test when it is asked on and on."""

    def __init__(self, *places) -> None:
        self._answers = [[Record(place=place)] for place in places]

    def assign(self, partitions) -> None:
        self.assigned = {each.partition: each.offset for each in partitions}

    def consume(self, count, timeout_s):
        return self._answers.pop(0)


def test_a_topic_is_read_to_its_end_at_the_start_only():
    log = Log((0, 4), (0, 5), (0, 6), (1, 0), (0, 7), (1, 2))
    found = dlq_reader._read(log, "dlq", {0: (4, 6), 1: (0, 2)}, lambda: None)
    assert [(each.partition(), each.offset()) for each in found] == [(0, 4), (0, 5), (1, 0)]
    assert log.assigned == {0: 4, 1: 0}


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ([], "dlq has no dead letters.\n"),
        ([Record()] * 1_200, "dlq has no dead letters: its 1,200 records are others. Is the topic right?\n"),
        ([Record(headers=dead().headers)], "dlq has no dead letters as asked.\n"),
    ],
)
def test_a_list_without_dead_letters_says_what_the_topic_has(monkeypatch, capsys, found, told):
    monkeypatch.setattr(dlq_reader, "_partitions_of", lambda *_: 1)
    monkeypatch.setattr(dlq_reader, "read_topic", lambda *_, **__: iter(found))
    counts = []
    monkeypatch.setattr("sharegroup.dlq_list.progress", lambda *_, **__: nullcontext(counts.append))
    where = ["--where", "group=nobody"] if len(found) == 1 else []
    assert run(["dlq", "list", "--bootstrap-server", "broker:9092", "--topic", "dlq", *where]) == 0
    assert capsys.readouterr().out == told
    assert counts == list(range(1_000, len(found) + 1, 1_000))


# --- how fast, and when


@given(rate=st.integers(1, 7), count=st.integers(0, 40), work_s=st.sampled_from([0.0, 0.01, 0.2, 3.0]))
def test_a_redrive_sends_no_more_than_its_rate_in_a_second(rate, count, work_s):
    now, sent_s = [0.0], []

    def sleep(seconds):
        assert seconds > 0
        now[0] += seconds

    for _ in at_rate(range(count), rate, lambda: now[0], sleep):
        sent_s.append(now[0])
        now[0] += work_s
    assert len(sent_s) == count
    assert all(at_s >= number // rate for number, at_s in enumerate(sent_s))
    if not work_s:
        assert sent_s == [number // rate for number in range(count)], "it waits no longer than it has to"


@pytest.mark.parametrize(("keep", "own", "sent"), [(True, 1_500, 1_500), (True, None, 0), (False, 1_500, 0)])
def test_a_record_keeps_its_timestamp_where_that_is_asked_for_and_known(keep, own, sent):
    produced = []
    producer = SimpleNamespace(produce=lambda *_, timestamp, **__: produced.append(timestamp), poll=lambda _: 0)
    sender = _Sender(producer, RedriveReport(dlq_topic="dlq", dry_run=False), keep)
    sender.send(dead(timestamp_ms=own), "orders", 0)
    assert produced == [sent]


# --- conditions


@pytest.mark.parametrize(
    ("where", "holds"),
    [
        ({"message": "no such customer"}, True),
        ({"__dlq.errors.message": "no such customer"}, True),
        ({"partition": 3, "tenant": "a"}, True),
        ({"partition": 4}, False),
        ("message~=customer", True),
        (["message~=customer", "tenant=c"], False),
        ([], True),
        (None, True),
    ],
)
def test_a_program_selects_as_the_command_line_does(where, holds):
    assert all_hold(conditions(where), dead()) is holds


def test_a_name_that_no_dead_letter_has_is_known():
    named = conditions({"mesage": "no such customer", "tenant": "c"})
    assert not all_hold(named, dead())
    assert [each.name for each in named if not each.is_known] == ["mesage"]


HOLD = (
    *("tenant=a", "tenant=b", "tenant~=[b-z]", "group=billing", "header.group=mine", "topic=orders", "partition=3"),
    *("offset=77", "offset~=7", "delivery.count=2", "disposition=rejected", "message~=no such", "key=k", "value~=."),
    "__dlq.errors.group=billing",
)
FAIL = ("tenant=c", "tenant=", "nothing=", "tenant~=^ab$", "group=mine", "message=no such", "value=w")


@pytest.mark.parametrize("text", [*HOLD, *FAIL])
def test_a_condition_holds_for_a_dead_letter(text):
    assert condition(text)(dead()) is (text in HOLD)


def test_a_null_matches_nothing():
    assert not condition("value~=")(dead(value=None))
    assert not condition("value=")(dead(value=None))


@given(st.text())
def test_any_text_is_a_condition_or_raises_invalid_condition(text):
    try:
        holds = condition(text)
    except InvalidCondition:
        return
    assert holds(dead()) in (True, False)


# --- what a person sees


@pytest.fixture
def told_redrive(monkeypatch):
    """The arguments that the command passed to `share_sink.redrive.redrive`, which is replaced and answers with
    `answer`."""
    told = SimpleNamespace(answer=RedriveReport(dlq_topic="dlq", dry_run=True))

    def redrive(dlq_topic, where, to, **more):
        told.__dict__.update(more, dlq_topic=dlq_topic, where=where, to=to)
        if isinstance(told.answer, Exception):
            raise told.answer
        return told.answer

    monkeypatch.setattr(importlib.import_module("share_sink.redrive.redrive"), "redrive", redrive)
    return told


def test_the_command_passes_its_arguments_to_the_redrive(told_redrive, tmp_path):
    (tmp_path / "client.properties").write_text("security.protocol=SSL\nbootstrap.servers=other:1\n")
    more = ["--to", "retry", "--max-redrives", "5", "--command-config", str(tmp_path / "client.properties")]
    assert run([*COMMAND, *more, "--where", "tenant=a", "--where", "value~=^v"]) == 0
    assert (told_redrive.dlq_topic, told_redrive.to, told_redrive.max_redrives) == ("dlq", "retry", 5)
    assert told_redrive.options == {"kafka.security.protocol": "SSL", "kafka.bootstrap.servers": "broker:9092"}
    assert told_redrive.where == ("tenant=a", "value~=^v")
    told_redrive.watch(told_redrive.answer)  # standard error is no terminal: nothing is shown


@pytest.mark.parametrize(("flags", "dry_run"), [([], True), (["--dry-run"], True), (["--execute"], False)])
def test_a_redrive_is_a_dry_run_unless_execute_is_given(told_redrive, flags, dry_run):
    assert run([*COMMAND, *flags]) == 0
    assert told_redrive.dry_run is dry_run


def test_reasons_are_counted_in_a_table_and_harm_no_screen(told_redrive, capsys):
    told_redrive.answer = RedriveReport(dlq_topic="dlq", dry_run=False, read=9, sent=9)
    told_redrive.answer.by_reason = Counter(
        {Sent("orders", "rejected", "[bold]\x1b[31m bad"): 8, Sent("o", "", "x"): 1}
    )
    assert run([*COMMAND, "--execute"]) == 0
    told = capsys.readouterr().out
    assert "\x1b" not in told
    assert "[bold]" in told
    assert [line.split()[-2] for line in told.splitlines() if "orders" in line] == ["8"]


def test_a_thousand_reasons_do_not_fill_the_screen(told_redrive, capsys):
    report = told_redrive.answer
    for number in range(REASONS + 5):
        report.add(dataclasses.replace(dead(), message=f"reason {number}"), "orders")
    assert run(COMMAND) == 0
    told = capsys.readouterr().out
    assert report.by_reason[Sent("orders", "", OTHER_REASONS)] == 5
    assert f"and {REASONS + 1 - ROWS} more reasons" in told
    assert len(told.splitlines()) < ROWS + 20


def test_the_summary_names_skipped_dead_letters_with_their_reasons():
    report = RedriveReport(dlq_topic="dlq", dry_run=True, read=3, sent=1)
    for number in range(EXAMPLES + 1):
        report.skip("without_record", Record(place=(0, number)))
    report.skip("doubles", Record())
    lines = summary(report)
    assert lines[0] == "3 read, 1 would be sent"
    assert "1 skipped: further dead letters of a record that is sent" in lines
    assert any("dlq-0@0, dlq-0@1" in line and line.endswith(", …)") for line in lines)
    assert lines[-1].startswith("Dry run")


def test_a_stopped_redrive_prints_the_number_of_sent_records(told_redrive, capsys):
    told_redrive.answer = RedriveStopped(topic="dlq", sent=1, unsent=2, first="dlq-0@1", reason="gone")
    told_redrive.answer.report = RedriveReport(dlq_topic="dlq", dry_run=False, read=3, sent=1)
    assert run([*COMMAND, "--execute"]) == 1
    told = capsys.readouterr()
    assert "3 read, 1 sent" in told.out
    assert "RedriveStopped: " in told.err
