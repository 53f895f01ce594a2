"""A query's lines: options without effect, what the query did, and its last line before SIGTERM ends its process."""

import logging
import signal
import subprocess
import sys
import textwrap

import pytest

from coordinator.protocol import messages
from coordinator.protocol.values import AcquiredRange
from share_source.driver.query_lines import QueryCounts, log_started
from share_source.options import SourceOptions
from tests.support.imports import ROOT

OPTIONS = {"kafka.bootstrap.servers": "nowhere:9092", "kafka.group.id": "billing"}


class Session:
    """The answers of a coordinator to a member that has joined."""

    member_id, coordinator = "m1", "process 7 on this host, log l"

    def __init__(self, *partitions, created=True, begun=1, others=()):
        self.joined = messages.Joined(
            member_epoch=1, incarnation="i", session_timeout_ms=1, heartbeat_interval_ms=1, created=created, begun=begun
        )
        self._partitions, self._members = partitions, others

    def describe(self):
        return messages.GroupDescription(
            group_id="billing",
            state="STABLE",
            incarnation="i",
            partitions=self._partitions,
            members=tuple(
                messages.MemberDescription(member_id=each, member_epoch=1, active=True) for each in self._members
            ),
        )


def partition(number, start_offset=0, lag=10):
    where = {"topic": "orders", "topic_id": "t", "partition": number, "start_offset": start_offset}
    return messages.PartitionDescription(**where, end_offset=start_offset, lag=lag, acquired=0, archived_total=0)


@pytest.fixture
def started(caplog):
    """Logs the start of a query with these options; returns its lines."""
    caplog.set_level(logging.INFO)

    def lines(session, is_new=True, **options):
        log_started(SourceOptions.parse({**OPTIONS, **options}), session, is_new=is_new)
        found = [f"{record.levelname} {record.getMessage()}" for record in caplog.records]
        assert found[0].startswith("INFO query started: group=billing member=m1 ")
        return [line for line in found[1:] if not line.startswith("INFO configs")]

    return lines


def test_the_line_reads_is_of_bounded_length(started):
    (line,) = started(Session(*(partition(number) for number in range(1_000))), subscribe="orders")
    assert line.startswith("INFO query reads: orders lag=10000 partitions=1000 (orders-0 from 0 (lag 10), ")
    assert "orders-19 from 0 (lag 10), 980 more)" in line
    assert len(line) < 1_000


def test_a_starting_offset_beyond_the_end_is_named(started):
    offsets = '{"orders": {"0": 5000, "1": 3, "2": -1}}'
    session = Session(partition(0, 100), partition(1, 3), partition(2, 7))
    _, line = started(session, subscribe="orders", startingOffsets=offsets)
    assert line == (
        "WARNING startingOffsets names offset 5000 of orders-0, and the log has none there: the group begins at 100"
    )


@pytest.mark.parametrize(
    ("name", "value"), [("startingOffsets", "earliest"), ("share.auto.offset.reset", "by_duration:PT1H")]
)
@pytest.mark.parametrize(
    ("is_new", "others", "level"),
    [(True, ("m1",), "WARNING"), (False, ("m1",), "INFO"), (True, ("m1", "m2"), "INFO")],
    ids=["a new checkpoint", "a checkpoint that goes on", "a second query of the group"],
)
def test_a_starting_point_of_an_existing_group_has_no_effect(started, name, value, is_new, others, level):
    session = Session(partition(0), created=False, begun=0, others=others)
    _, line = started(session, is_new, subscribe="orders", **{name: value})
    assert line.startswith(f"{level} {name}={value} has no effect: the group exists, and goes on where it is")
    assert line.endswith(
        "sharegroup groups --bootstrap-server nowhere:9092 --group billing --reset-offsets --all-topics --to-earliest "
        "--execute"
    )


def test_a_starting_point_of_a_topic_new_to_its_group_has_effect(started):
    (line,) = started(Session(partition(0), created=False), subscribe="orders", startingOffsets="earliest")
    assert " query reads: " in line


def test_a_pattern_that_matches_no_topic_is_named(started):
    line, warning = started(Session(), subscribePattern="order-.*")
    assert line == "INFO query reads: subscribePattern order-.* lag=0 partitions=0 (none yet)"
    assert warning.startswith("WARNING subscribePattern=order-.* matches no topic yet")


def test_a_query_counts_acquired_and_completed_records():
    counts = QueryCounts()
    ranges = (AcquiredRange(0, 9, 1), AcquiredRange(20, 24, 2))
    held = messages.PartitionPlan(topic="orders", topic_id="t", partition=0, ranges=ranges)
    counts.add(messages.PlanReply(plan=messages.Plan(plan_id="i.1", partitions=(held,))))
    assert str(counts) == (
        "batches=1 acquired=15 accepted=0 released=0 rejected=0 deferred=0 archived=0 last batch: plan i.1 with 15 "
        "record(s), completed at the next trigger or start"
    )
    given_up = (messages.GivenUp(disposition="delivery_limit", count=2, sample=()),)
    counts.add(messages.PlanReply(outcomes={"accepted": 12, "released": 2, "rejected": 1}, given_up=given_up))
    counts.add(messages.PlanReply())
    assert str(counts) == (
        "batches=1 acquired=15 accepted=12 released=2 rejected=1 deferred=0 archived=2 last batch: completed"
    )


def source_process(function):
    """A process that looks like Spark's for a source, calls the function when SIGTERM comes, and waits."""
    program = f"""
        import sys, threading, types
        from share_source.driver import process_end
        sys.modules["__main__"].__spec__ = types.SimpleNamespace(name=process_end.SOURCE_PROCESS)
        process_end.before_sigterm_ends(lambda: {function})
        print("ready", flush=True)
        threading.Event().wait()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "said"), [('print("ended", flush=True)', "ended\n"), ("threading.Event().wait()", ""), ("1 / 0", "")]
)
def test_sigterm_ends_a_sources_process_after_its_function(function, said):
    process = source_process(function)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert (output, process.returncode) == (said, 128 + signal.SIGTERM)


@pytest.mark.parametrize(("mode", "takes"), [("ab", "True"), ("wb", "False")])
def test_a_drivers_file_takes_a_line_only_if_the_driver_appends(tmp_path, mode, takes):
    program = "import os; from share_source.driver.process_end import takes_lines; print(takes_lines(os.getppid()))"
    driver = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}])"
    with (tmp_path / "stderr").open(mode) as stderr:
        command = [sys.executable, "-c", driver]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=stderr, text=True, check=True)
    assert done.stdout.strip() == takes
