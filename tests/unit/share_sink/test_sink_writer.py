"""A sink's tasks and its commit: what is written first, what is staged, and what a failure leaves behind.

The coordinator, and the writer and reader of Kafka, are the seams at which fakes stand.
"""

from __future__ import annotations

import logging
import pickle
import socket
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from coordinator.client.client import CoordinatorClient
from coordinator.dead_letters.producer import WriteResult, WriteStatus
from coordinator.dead_letters.record_format import DeadLetterRecord
from coordinator.dead_letters.source_records import AbsenceReason, Absent, SourceRecord
from coordinator.protocol.errors import BatchReclaimed, BrokerNotReachable, BrokerSecurityFailed, NeverDelivered
from coordinator.protocol.messages import OpenSink, OutcomesStaged, ReportEnding, SinkOpened, StageOutcomes
from coordinator.protocol.outcome_rows import DIVIDED
from share_sink import rejected_row_writer, rejected_rows, sink, writer
from share_sink.archive.batches import archive_dataset
from share_sink.columns import Columns
from share_sink.errors import ArchiveRowsMissing, OverwriteRefused, RowsOfAnotherGroup, UnknownOutcome
from share_sink.options import SinkOptions
from share_sink.sink import Sink, open_sink
from share_sink.writer import ShareGroupStreamWriter, TaskOutcomes, abort_batch, commit_batch, write_task
from share_spark import task_client
from share_spark.task_plans import BATCH_ID, QUERY_ID, TaskPlan, note
from tests.support.sink_rows import ARROW, COLUMNS, OPTIONS, PLAIN, REQUIRED, TYPES, batch, digest_of, row, schema

WITH_DEAD_LETTERS = msgspec.structs.replace(PLAIN, dead_letter_topic="dlq", dead_letter_partitions=2)
BARE = Columns({name: COLUMNS.column_indexes[name] for name in (*REQUIRED, "reason")})
"""The columns of rows without key, value and headers of their own."""
GONE = AbsenceReason.GONE


def staged(attempt: int, count: int = 1, member_id: str = "m1") -> OutcomesStaged:
    return OutcomesStaged(staged=count, attempt=attempt, plan_id="i1.7", member_id=member_id)


class Task:
    """Stands for Spark's TaskContext. Without a query: of a job that a thread of foreachBatch began."""

    def __init__(self, query_id: str | None = None, batch_id: str | None = None) -> None:
        self._properties = {QUERY_ID: query_id, BATCH_ID: batch_id}

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's name
        return self._properties.get(name)

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return 0


class Coordinator:
    """Remembers what it was asked."""

    def __init__(self) -> None:
        self.staged: list[tuple[StageOutcomes, list[dict[str, Any]]]] = []
        self.opened: list[OpenSink] = []
        self.told: list[ReportEnding] = []
        self.answer: OutcomesStaged | Exception = staged(0)
        self.sink = PLAIN

    def call(self, request: Any) -> SinkOpened:
        self.opened.append(request)
        return self.sink

    def ask(self, request: ReportEnding, group_id: str, **how: Any) -> None:
        self.told.append(request)

    def ask_connected(self, request: ReportEnding, answer_timeout_s: float, group_id: str) -> None:
        self.told.append(request)

    def call_with_rows(self, request: StageOutcomes, rows: pa.Table) -> OutcomesStaged:
        if isinstance(self.answer, Exception):
            raise self.answer
        self.staged.append((request, rows.to_pylist()))
        return self.answer


class DeadLetters:
    """The dead letter topic, and the log of the originals."""

    def __init__(self) -> None:
        self.written: list[DeadLetterRecord] = []
        self.refused: list[list[int]] = []
        self.asked: list[list[int]] = []
        self.fate = WriteResult(WriteStatus.WRITTEN)
        self.broken: Exception | None = None

    def write(self, topic: str, partitions: int, wanted: Sequence[DeadLetterRecord]) -> list[WriteResult]:
        assert (topic, partitions) == ("dlq", 2)
        if self.fate.status is WriteStatus.WRITTEN:
            self.written += wanted
        else:
            self.refused.append([each.origin.offset for each in wanted])
        return [self.fate] * len(wanted)

    def read(self, topic: str, partition: int, offsets: Sequence[int]) -> Iterator[SourceRecord | Absent]:
        if self.broken:
            raise self.broken
        self.asked.append(list(offsets))
        for offset in offsets:
            if offset == 404:
                yield Absent(offset, AbsenceReason.GONE)
            else:
                yield SourceRecord(offset, b"key", b"value %d" % offset, (("trace", None),), 1_500)


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    found = Coordinator()
    monkeypatch.setattr(sink, "_client", lambda *options: found)
    monkeypatch.setattr(sink, "_made", {})
    return found


@pytest.fixture
def dead_letters(monkeypatch: pytest.MonkeyPatch) -> DeadLetters:
    found = DeadLetters()
    monkeypatch.setattr(rejected_row_writer, "_writer", lambda *_: found)
    monkeypatch.setattr(rejected_row_writer, "_originals", lambda *_: found)
    return found


def opened(
    answer: SinkOpened = PLAIN, *, columns: Columns = COLUMNS, archive: str = "", options: SinkOptions = OPTIONS
) -> Sink:
    return Sink(options=options, columns=columns, opened=answer, archive=archive)


def task(of: Sink, *rows: dict[str, Any]) -> TaskOutcomes:
    """The outcomes that the driver gets from a task with these rows, in batches of two."""
    batches = [batch(*rows[at : at + 2]) for at in range(0, len(rows), 2)]
    return pickle.loads(pickle.dumps(write_task(pickle.loads(pickle.dumps(of)), iter(batches))))


def runs_of(message: TaskOutcomes) -> list[tuple[Any, ...]]:
    rows = pa.ipc.open_stream(message.runs).read_all().to_pylist()
    return [(each["first"], each["last"], each["outcome"], each["dead_letter"], each["reason"]) for each in rows]


# --- tasks


def test_a_task_that_accepts_everything_reports_one_run() -> None:
    found = task(opened(), *(row(offset) for offset in range(7)))
    assert runs_of(found) == [(0, 6, 1, False, None)]
    assert (found.rows, found.incarnation) == (7, "i1")


def test_without_a_dead_letter_queue_reasons_are_dropped(dead_letters: DeadLetters) -> None:
    found = task(opened(), *(row(offset, "reject", reason=f"broken {offset}") for offset in range(3)))
    assert runs_of(found) == [(0, 2, 3, False, None)]
    assert not dead_letters.written


def test_reasons_of_releases_are_reported_from_the_limit_on_alone() -> None:
    answer = msgspec.structs.replace(WITH_DEAD_LETTERS, delivery_count_limit=3)
    released = [row(offset, "release", deliveryCount=2 + offset, reason="x" * 600) for offset in range(3)]
    found = runs_of(task(opened(answer), *released, row(3, deliveryCount=4, reason="none")))
    seen = [(first, outcome, reason) for first, _, outcome, _, reason in found]
    assert seen == [(0, 2, None), (1, 2, "x" * 500), (2, 2, "x" * 500), (3, 1, None)]


def test_dead_letters_of_rejected_rows_are_written_before_the_driver_stages_them(dead_letters: DeadLetters) -> None:
    header = {"key": "trace", "value": b"1"}
    said = row(1, "reject", reason="broken", key=b"k", value="v", headers=[header])
    found = task(opened(WITH_DEAD_LETTERS), row(0), said, row(2))
    assert runs_of(found) == [(0, 0, 1, False, None), (1, 1, 3, True, None), (2, 2, 1, False, None)]
    (letter,) = dead_letters.written
    assert (letter.origin.topic, letter.origin.offset, letter.origin.group_id) == ("orders", 1, "billing")
    assert (letter.key, letter.value, letter.headers[0]) == (b"k", b"v", ("trace", b"1"))
    assert ("__dlq.errors.message", b"broken") in letter.headers
    assert not dead_letters.asked  # the rows have all of the record


def test_columns_that_rows_lack_come_from_the_original_records(dead_letters: DeadLetters) -> None:
    task(opened(WITH_DEAD_LETTERS, columns=BARE), row(404, "reject"), row(7, "reject"), row(8))
    gone, copied = dead_letters.written
    assert dead_letters.asked == [[7, 404]]
    assert (copied.key, copied.value, copied.headers[0]) == (b"key", b"value 7", ("trace", None))
    assert gone.is_headers_only


def test_an_empty_record_is_told_from_a_record_that_is_gone(dead_letters, monkeypatch):
    task(opened(WITH_DEAD_LETTERS), row(5, "reject", key=None, value=None, headers=None))
    monkeypatch.setattr(dead_letters, "read", lambda *_: [SourceRecord(6, None, None, (), 0), Absent(7, GONE)])
    task(opened(WITH_DEAD_LETTERS, columns=BARE), row(6, "reject"), row(7, "reject"))
    with_headers = Columns({**BARE.column_indexes, "headers": COLUMNS.column_indexes["headers"]})
    task(opened(WITH_DEAD_LETTERS, columns=with_headers), row(7, "reject", headers=[]))
    found = [(each.origin.offset, each.is_headers_only) for each in dead_letters.written]
    assert found == [(5, False), (6, False), (7, True), (7, True)]


def test_the_archive_has_the_original_too(dead_letters: DeadLetters, coordinator: Coordinator, tmp_path: Path) -> None:
    of = opened(columns=BARE, archive=str(tmp_path))
    commit_batch(of, [task(of, row(7, "reject"), row(8))])
    (found,) = archive_dataset(str(tmp_path)).to_table().to_pylist()
    assert (found["offset"], found["key"], found["value"]) == (7, b"key", b"value 7")
    assert (found["headers"], found["timestamp"].timestamp()) == ([{"key": "trace", "value": None}], 1.5)


def test_without_copies_no_original_is_read(dead_letters: DeadLetters) -> None:
    answer = msgspec.structs.replace(WITH_DEAD_LETTERS, copy_record=False)
    task(opened(answer, columns=BARE), row(7, "reject"))
    assert dead_letters.written[0].is_headers_only
    assert not dead_letters.asked


def test_an_unwritable_dead_letter_is_left_to_the_coordinator_with_its_reason(dead_letters: DeadLetters) -> None:
    dead_letters.fate = WriteResult(WriteStatus.PERMANENT_FAILURE, "TOPIC_AUTHORIZATION_FAILED")
    found = task(opened(WITH_DEAD_LETTERS), row(0, "reject", reason="x" * 600), row(1, "reject"))
    assert runs_of(found) == [(0, 0, 3, False, "x" * 500), (1, 1, 3, False, None)]


def test_a_row_that_replaces_nothing_loses_nothing_with_its_dead_letter(dead_letters: DeadLetters) -> None:
    dead_letters.fate = WriteResult(WriteStatus.RETRIABLE_FAILURE, "_TIMED_OUT")
    same = {"key": b"key", "headers": [{"key": "trace", "value": None}]}
    said = [row(7, "reject", value="value 7", **same), row(8, "reject", value="mine", **same), row(9)]
    assert task(opened(WITH_DEAD_LETTERS), *said).lost_replacements == 1
    assert task(opened(WITH_DEAD_LETTERS, columns=BARE), *said).lost_replacements == 0
    dead_letters.broken = BrokerNotReachable(addresses="a:1", timeout_ms=1, reason="x")
    assert task(opened(WITH_DEAD_LETTERS), *said).lost_replacements == 2


def test_a_task_waits_once_for_a_dead_letter_queue_that_is_down(dead_letters, monkeypatch):
    monkeypatch.setattr(rejected_rows, "SLICE_ROWS", 2)
    dead_letters.fate = WriteResult(WriteStatus.RETRIABLE_FAILURE, "_TIMED_OUT")
    found = task(opened(WITH_DEAD_LETTERS), *(row(offset, "reject") for offset in range(6)))
    assert dead_letters.refused == [[0, 1]]
    assert runs_of(found) == [(0, 5, 3, False, None)]


def test_originals_out_of_reach_leave_the_dead_letters_to_the_coordinator(dead_letters: DeadLetters) -> None:
    dead_letters.broken = BrokerNotReachable(addresses="a:1", timeout_ms=1, reason="x")
    found = task(opened(WITH_DEAD_LETTERS, columns=BARE), row(0, "reject", reason="broken"))
    assert runs_of(found) == [(0, 0, 3, False, "broken")]
    assert found.lost_replacements == 0


def test_an_archive_without_its_originals_fails_the_task(dead_letters: DeadLetters, tmp_path: Path) -> None:
    """Nobody can write the rows of this task later."""
    dead_letters.broken = BrokerNotReachable(addresses="a:1", timeout_ms=1, reason="x")
    with pytest.raises(BrokerNotReachable):
        task(opened(WITH_DEAD_LETTERS, columns=BARE, archive=str(tmp_path)), row(0, "reject"))


def test_a_row_with_an_unknown_outcome_leaves_no_file_of_its_task(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(rejected_rows, "SLICE_ROWS", 1)  # the rows before it are written
    with pytest.raises(UnknownOutcome):
        task(opened(archive=str(tmp_path)), row(0, "reject"), row(1, "reject"), row(2, "refuse"))
    assert not list(tmp_path.rglob("*.parquet"))


# --- the commit


def test_the_commit_stages_the_outcomes_of_all_tasks(coordinator: Coordinator) -> None:
    of = opened()
    said = [task(of, row(0), row(1)), task(of, row(2), row(3, "release", releaseDelayMs=9)), None]
    commit_batch(of, said, 7)
    ((request, rows),) = coordinator.staged
    assert request == StageOutcomes(group_id="billing", incarnation="i1", query_id="", batch_id=7, rows=4)
    found = [(each["first"], each["last"], each["outcome"], each["delay_ms"]) for each in rows]
    assert found == [(0, 2, 1, None), (3, 3, 2, 9)]


def test_rows_that_contradict_each_other_are_told_once_a_batch(coordinator, dead_letters, caplog):
    """As explode(array('accept', 'release')) makes them: within a task, across tasks, and beside a dead letter."""
    coordinator.answer = OutcomesStaged(staged=6, attempt=0, contradicted=1)
    of = opened(WITH_DEAD_LETTERS)
    exploded = [row(offset, word) for offset in range(4) for word in ("accept", "release")]
    with caplog.at_level(logging.WARNING, "share_sink"):
        commit_batch(of, [task(of, *exploded, row(4), row(5)), task(of, row(4, "reject"), row(3, "release"))], 7)
    ((request, rows),) = coordinator.staged
    assert [(run["first"], run["last"], run["outcome"]) for run in rows] == [(0, 4, DIVIDED), (5, 5, 1)]
    assert request.contradicting == 5
    (said,) = [each.message for each in caplog.records]
    assert "batch 7: 6 record(s) have different outcomes" in said and "released" in said
    assert "(accept, reject: 1; accept, release: 4; another one in an earlier acknowledge() or save(): 1)" in said
    coordinator.answer = OutcomesStaged(staged=2, attempt=0)
    caplog.clear()
    commit_batch(of, [task(of, row(0, "release"), row(0, "release"), row(1))], 8)
    assert not [each for each in caplog.records if "different outcomes" in each.message]


def test_a_batch_without_rows_is_staged_too(coordinator: Coordinator) -> None:
    """In explicit mode the coordinator has to see that there is a sink."""
    commit_batch(opened(), [], 3)
    ((request, rows),) = coordinator.staged
    assert (request.batch_id, request.rows, request.incarnation, rows) == (3, 0, "i1", [])


@pytest.fixture
def read_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tasks of batch 4 of the query q1 have read two groups on this host."""
    monkeypatch.setenv("SHAREGROUP_RUNTIME_DIR", str(tmp_path))
    for group_id, plan_id in (("billing", "i1.7"), ("audit", "i2.9")):
        plan = TaskPlan(group_id=group_id, member_id=group_id, member_epoch=3, plan_id=plan_id, configs={})
        note("q1", "4", plan)


@pytest.mark.parametrize(
    ("of_task", "batch_id", "named"),
    [
        (Task("q1", "4"), 4, {"i1.7": 3}),
        (Task("q1", "4"), None, {"i1.7": 3}),
        (Task("q1", "4"), 9, {}),
        (Task("q1", "3"), 3, {}),
        (Task("q2", "4"), 4, {}),
        (Task(), 4, {}),
        (None, 4, {}),
    ],
    ids=[
        *("its own", "its own, in a stream", "another batch's thread"),
        *("an earlier one", "another query"),
        "a thread",
        "-",
    ],
)
@pytest.mark.usefixtures("read_here")
def test_a_commit_names_its_batchs_plans_that_were_read_here(coordinator, monkeypatch, of_task, batch_id, named):
    monkeypatch.setattr(writer.TaskContext, "get", staticmethod(lambda: of_task))
    of = opened(options=replace(OPTIONS, batch_id=batch_id))
    commit_batch(of, [task(of), task(of)])
    assert coordinator.staged[0][0].plans == named


def test_of_notes_on_several_hosts_the_newest_member_epoch_is_sent(coordinator: Coordinator) -> None:
    of = opened()
    told = [replace(task(of), plans=plans) for plans in ({"i1.7": 4}, {"i1.7": 3, "i1.8": 3}, {})]
    commit_batch(of, told)
    assert coordinator.staged[0][0].plans == {"i1.7": 4, "i1.8": 3}


def test_notes_that_cannot_be_read_name_no_plan(coordinator, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("SHAREGROUP_RUNTIME_DIR", str(tmp_path / "file"))
    monkeypatch.setattr(writer.TaskContext, "get", staticmethod(lambda: Task("q1", "4")))
    commit_batch(opened(), [task(opened())])
    assert coordinator.staged[0][0].plans == {}


@pytest.mark.parametrize(
    ("options", "field", "sent"),
    [
        ({"fail_on_stale": True}, "fail_on_stale", True),
        ({}, "acknowledgement_mode", ""),
        ({"acknowledgement_mode": "explicit"}, "acknowledgement_mode", "explicit"),
        ({"replaces": False}, "replaces", False),
        ({"replaces": True}, "replaces", True),
    ],
)
def test_each_commit_sends_what_the_sinks_options_say(coordinator, options, field, sent):
    of = opened(options=replace(OPTIONS, **options))
    commit_batch(of, [task(of, row(0))])
    commit_batch(of, [task(of)])
    assert [getattr(request, field) for request, _ in coordinator.staged] == [sent, sent]


def test_stale_rows_are_logged_once_a_batch(coordinator: Coordinator, caplog: pytest.LogCaptureFixture) -> None:
    coordinator.answer = OutcomesStaged(staged=5, stale=9, stale_sample=("orders-0@7 (1)",))
    with caplog.at_level(logging.WARNING, "share_sink"):
        commit_batch(opened(), [task(opened(), row(0))], 4)
    (record,) = [each for each in caplog.records if each.name.startswith("share_sink")]
    assert "batch 4" in record.message
    assert "9 record(s)" in record.message
    assert "orders-0@7 (1), ..." in record.message


def test_the_commit_names_the_incarnation_that_its_tasks_rows_have(coordinator: Coordinator) -> None:
    """Spark makes the writer that commits once more: the group may have been created anew since the tasks began."""
    commit_batch(opened(msgspec.structs.replace(PLAIN, incarnation="i2")), [task(opened(), row(0))])
    assert [request.incarnation for request, _ in coordinator.staged] == ["i1"]


# --- whose rows they are


@pytest.mark.parametrize(
    "receipt",
    [digest_of(group_id="audit"), digest_of(incarnation="the one before"), digest_of(topic_id="of another topic"), 0],
    ids=["another group", "the group before it was made anew", "a topic that the group does not know", "none"],
)
def test_rows_of_no_topic_of_the_group_write_no_dead_letter(dead_letters: DeadLetters, receipt: int) -> None:
    with pytest.raises(RowsOfAnotherGroup, match=r"The row of orders-0@7 \(1\) is not of share group billing:"):
        task(opened(WITH_DEAD_LETTERS), row(6, "reject"), row(8, "reject"), row(7, "reject", receipt=receipt))
    assert not any(letter.origin.offset == 7 for letter in dead_letters.written)


def test_a_union_of_two_groups_rows_is_refused_by_each_groups_sink() -> None:
    of_audit = digest_of(topic_id="T", incarnation="i7", group_id="audit")
    union = [row(0), row(0, receipt=of_audit)]
    with pytest.raises(RowsOfAnotherGroup, match="not of share group billing"):
        task(opened(), *union)
    audit = replace(OPTIONS, group_id="audit")
    with pytest.raises(RowsOfAnotherGroup, match="not of share group audit"):
        task(opened(msgspec.structs.replace(PLAIN, incarnation="i7"), options=audit), *union)


def test_rows_of_a_topic_made_anew_and_of_the_old_one_differ(coordinator, dead_letters):
    made_anew = msgspec.structs.replace(
        WITH_DEAD_LETTERS,
        topics={"T": "orders", "T2": "orders"},
        old_topics=("T",),
        ends={"T": {"0": 100}, "T2": {"0": 10}},
    )
    of = opened(made_anew, columns=BARE)
    new = digest_of(topic_id="T2")
    commit_batch(of, [task(of, row(7), row(7, "reject", receipt=new), row(50, "reject"))])
    staged = [(run["topic_id"], run["first"], run["outcome"]) for run in coordinator.staged[0][1]]
    assert sorted(staged) == [("T", 7, 1), ("T", 50, 3), ("T2", 7, 3)]
    of_old, of_new = sorted(dead_letters.written, key=lambda letter: -letter.origin.offset)
    assert (of_new.value, of_old.is_headers_only) == (b"value 7", True), "no record of the new topic is the old one's"
    with pytest.raises(NeverDelivered, match="no offset from 10 on"):
        task(of, row(50, receipt=new))


def test_a_row_whose_topic_is_not_its_receipts_is_refused() -> None:
    with pytest.raises(NeverDelivered, match=r"refunds-0@7 \(1\) .*its receipt is of the topic orders"):
        task(opened(), row(7, topic="refunds"))


# --- rows that no delivery can have had


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"offset": 1_000_005}, r"orders-0@1000005 \(1\).*no offset from 100 on"),
        ({"offset": -5}, r"orders-0@-5 \(1\).*offsets begin at 0"),
        ({"deliveryCount": 0}, r"orders-0@7 \(0\).*delivery counts at 1"),
        ({"partition": 10}, r"orders-10@7 \(1\).*does not read this partition"),
    ],
)
def test_a_row_of_no_delivery_is_refused_before_its_dead_letter(dead_letters, wrong, named):
    known = msgspec.structs.replace(WITH_DEAD_LETTERS, ends={"T": {"0": 100}})
    rows = [row(1, "reject"), {**row(7, "reject"), **wrong}]
    with pytest.raises(NeverDelivered, match=f"The row of {named}"):
        task(opened(known), *rows)
    assert not dead_letters.written
    task(opened(known), row(1, "reject"), row(99, "reject"))
    assert len(dead_letters.written) == 2


def test_an_aborted_batch_stages_nothing_and_leaves_no_archive_file(coordinator: Coordinator, tmp_path: Path) -> None:
    of = opened(archive=str(tmp_path))
    said = task(of, row(0, "reject"))
    assert said.files
    task(of, row(1, "reject"))  # its message did not reach the driver
    abort_batch(of, [said, None])
    assert not coordinator.staged
    assert not list(tmp_path.rglob("*.parquet"))


def test_the_archive_is_written_between_the_staging_and_the_commits_end(coordinator, tmp_path, monkeypatch):
    of = opened(archive=str(tmp_path))
    before: list[int] = []
    attempts = iter((0, 1))
    monkeypatch.setattr(
        coordinator, "call_with_rows", lambda *_: before.append(rows_archived(tmp_path)) or staged(next(attempts), 3)
    )
    commit_batch(of, [task(of, row(0, "reject", reason="x")), task(of, row(1), row(2, "reject"))], 0)
    assert (before, rows_archived(tmp_path)) == ([0], 2)
    commit_batch(of, [task(of, row(0), row(2, "reject"))], 0)  # the batch again, and the record is accepted now
    assert (before, rows_archived(tmp_path)) == ([0, 2], 1)


@pytest.mark.parametrize("of_task", [Task("q1", "4"), Task()], ids=["in its query", "in a thread"])
def test_a_replay_replaces_the_archives_rows_of_all_writes_wherever_they_ran(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, of_task: Task
) -> None:
    """Two writes of an attempt, each of an opening of its own, and one write of the replay."""
    monkeypatch.setattr(writer.TaskContext, "get", staticmethod(lambda: of_task))
    for offset in (5, 6):
        of = opened(archive=str(tmp_path))
        commit_batch(of, [task(of, row(offset, "reject"))])
    assert rows_archived(tmp_path) == 2
    coordinator.answer = staged(1)
    of = opened(archive=str(tmp_path))
    commit_batch(of, [task(of, row(5, deliveryCount=2))])
    assert rows_archived(tmp_path) == 0
    coordinator.answer = staged(1, member_id="m2")
    commit_batch(of, [task(of, row(7, "reject"))])
    assert rows_archived(tmp_path) == 1


def test_rows_of_which_none_is_staged_change_nothing_in_the_archive(coordinator: Coordinator, tmp_path: Path) -> None:
    of = opened(archive=str(tmp_path))
    commit_batch(of, [task(of, row(5, "reject"))], 7)
    coordinator.answer = OutcomesStaged(stale=1)
    commit_batch(of, [task(of, row(6, "reject"))], 7)
    assert rows_archived(tmp_path) == 1
    assert not any((tmp_path / "_staging").rglob("*.parquet"))


def test_files_invisible_to_the_driver_are_named_before_anything_is_staged(coordinator, tmp_path):
    of = opened(archive=str(tmp_path))
    said = task(of, row(5, "reject"))
    (tmp_path / said.files[0]).unlink()
    with pytest.raises(ArchiveRowsMissing):
        commit_batch(of, [said], 7)
    assert not coordinator.staged


def rows_archived(path: Path) -> int:
    return int(archive_dataset(str(path)).count_rows())


# --- when the query starts


def test_a_sink_is_opened_with_its_groups_configs(coordinator: Coordinator, tmp_path: Path) -> None:
    given = {
        "kafka.bootstrap.servers": "a:1",
        "kafka.group.id": "billing",
        "share.delivery.count.limit": "3",
        "archive.path": str(tmp_path / "archive"),
    }
    found = open_sink(given, schema(TYPES), overwrite=False)
    assert coordinator.opened == [OpenSink(group_id="billing", configs={"share.delivery.count.limit": "3"})]
    assert (found.opened, found.archive) == (PLAIN, str(tmp_path / "archive"))
    assert set(found.columns.column_indexes) == set(ARROW)


def test_the_error_that_ends_a_sink_reaches_its_group(coordinator, monkeypatch):
    given = {"kafka.bootstrap.servers": "a:1", "kafka.group.id": "billing", "checkpointLocation": "ckpt"}
    monkeypatch.setattr(sink, "driver_pid", lambda: 4711)
    open_sink(given, schema(TYPES), overwrite=False)
    with pytest.raises(OverwriteRefused) as refused:
        open_sink(given, schema(TYPES), overwrite=True)
    stream = ShareGroupStreamWriter(opened())
    coordinator.answer = BatchReclaimed(row="orders-0@7", group_id="billing")
    with pytest.raises(BatchReclaimed):
        stream.commit([], 7)
    first, second = coordinator.told
    assert (first.error, first.text, first.member_id) == ("OverwriteRefused", str(refused.value), "")
    assert (first.client_host, first.client_pid, first.checkpoint) == (socket.gethostname(), 4711, "ckpt")
    assert second.error == "BatchReclaimed"


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_sink_does_not_connect_in_order_to_tell_its_error(monkeypatch: pytest.MonkeyPatch, overwrite: bool) -> None:
    connects: list[str] = []

    def refused(servers: str, *_: object, **__: object) -> None:
        connects.append(servers)
        raise BrokerSecurityFailed(addresses=servers, reason="_AUTHENTICATION")

    monkeypatch.setattr(CoordinatorClient, "connect", refused)
    given = {"kafka.bootstrap.servers": "refused:1", "kafka.group.id": "billing"}
    with pytest.raises(OverwriteRefused if overwrite else BrokerSecurityFailed):
        open_sink(given, schema(TYPES), overwrite=overwrite)
    assert len(connects) == (not overwrite)


def test_the_error_of_a_sinks_task_reaches_the_group_of_its_plan(coordinator, monkeypatch, tmp_path):
    monkeypatch.setenv("SHAREGROUP_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(writer.TaskContext, "get", staticmethod(lambda: Task("q", "7")))
    monkeypatch.setattr(task_client, "client_of", lambda plan: coordinator)
    plan = TaskPlan(group_id="billing", member_id="m1", member_epoch=3, plan_id="i1.7", configs={})
    note("q", "7", plan)
    with pytest.raises(UnknownOutcome):
        ShareGroupStreamWriter(opened()).write(iter([batch(row(0, "acept"))]))
    (said,) = coordinator.told
    assert (said.error, said.member_id, said.member_epoch, said.is_over) == ("UnknownOutcome", "m1", 3, False)


def test_an_outage_is_not_told_to_a_coordinator_that_is_away(coordinator: Coordinator) -> None:
    coordinator.answer = BrokerNotReachable(addresses="a:1", timeout_ms=1, reason="_TRANSPORT")
    with pytest.raises(BrokerNotReachable):
        ShareGroupStreamWriter(opened()).commit([], 7)
    assert not coordinator.told
