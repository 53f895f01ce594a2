"""◆ The source's side of the protocol: what a query's reader asks, asks once, and never asks again."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from coordinator.client.session import MemberSession
from coordinator.core.commands import AlterConfigs, acquisition
from coordinator.core.commands.administer import AlterStartOffsets
from coordinator.core.record_state import RecordState
from coordinator.kafka.damaged_batch import Damage
from coordinator.protocol.errors import DataLoss, FencedMemberEpoch, StalePlan, UnknownMemberId
from coordinator.protocol.messages import (
    DescribeGroup,
    Heartbeat,
    Joined,
    JoinGroup,
    NextPlan,
    ReportEnding,
    StageOutcomes,
    StartPlan,
)
from coordinator.protocol.option_errors import RefusedOption
from coordinator.protocol.receipts import receipt_digest
from coordinator.protocol.values import AcknowledgeType, Disposition, OutcomeRun
from share_source.driver import plan_reader
from share_source.errors import ReadDenied, TriggerOnceRefused
from share_spark import task_client
from tests.support.group_driver import SESSION_MS, TOPIC_ID, GroupDriver
from tests.support.quarantine import quarantined_record
from tests.support.sink_driver import said
from tests.support.source_contract import LIMIT as RECORDS
from tests.support.source_contract import SourceContract
from tests.support.source_driver import DriverClient, reading

LIMIT = ReadMaxRows(RECORDS)


class TestContract(SourceContract):
    def reading(self, client):
        return reading(client)

    def begin(self, source):
        start = source.initialOffset()
        return start, self.ask(source, start)

    def ask(self, source, end):
        return source.latestOffset(end, LIMIT)


def test_partitions_is_asked_for_once_per_process_and_end() -> None:
    client = DriverClient(GroupDriver(records=100))
    with reading(client) as source:
        start = source.initialOffset()
        end = source.latestOffset(start, LIMIT)
        first = source.partitions(start, end)
        client.group.move_log_start(30)
        assert source.partitions(start, end) == first, "a self-union reads the same records twice"
    assert len(client.of(StartPlan)) == 1
    assert client.group.dump() == ["[0..59] ACQUIRED 1 0 1"]


@pytest.mark.parametrize("option", ["minPartitions", "maxRecordsPerPartition"])
def test_options_that_cut_partitions_are_refused_at_an_ordered_group(option: str) -> None:
    client = DriverClient(GroupDriver(records=100, **{"share.order": "partition"}))
    with reading(client, **{option: "2"}) as source, pytest.raises(RefusedOption, match=option):
        source.latestOffset(source.initialOffset(), LIMIT)
    assert not client.of(NextPlan)


def test_an_order_set_while_a_query_runs_holds_for_its_next_tasks() -> None:
    client = DriverClient(GroupDriver(records=50_000))
    with reading(client) as source, pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.cpu_count", lambda: 2)
        end = source.latestOffset(start := source.initialOffset(), ReadMaxRows(20_000))
        assert len(source.partitions(start, end)) == 2
        until = client.group.ends[0]
        client.group.ends[0] = 20_000
        assert source.latestOffset(end, LIMIT) == end
        client.group.run(AlterConfigs(configs={"share.order": "partition"}))
        client.group.ends[0] = until
        assert len(source.partitions(end, source.latestOffset(end, ReadMaxRows(20_000)))) == 1


def test_a_replay_gives_the_rows_of_a_logged_batch_their_receipts() -> None:
    """Spark's log has no digests, and that of an earlier version has none either: the plan's and the topic's ids do."""
    client = DriverClient(GroupDriver(records=100))
    with reading(client) as source:
        start = source.initialOffset()
        end = source.latestOffset(start, LIMIT)
    for _ in range(2):
        with reading(client) as source:
            (task,) = source.partitions(start, end)
        (part,) = task.task.partitions  # type: ignore[attr-defined]
        assert part.digest == receipt_digest("billing", "i", TOPIC_ID) != 0


def test_data_loss_fails_the_query_once_and_a_restart_continues() -> None:
    client = DriverClient(GroupDriver(records=100))
    with reading(client) as source:
        start = source.initialOffset()
        end = source.latestOffset(start, LIMIT)
        source.partitions(start, end)
    client.group.move_log_start(30)
    with reading(client) as source, pytest.raises(DataLoss, match="orders-0 offsets 0 to 29"):
        source.partitions(start, end)
    assert client.group.partition().archived_total == 30, "archived before the query fails"
    with reading(client) as source:
        tasks = source.partitions(start, end)
        assert [t.task.partitions[0].ranges for t in tasks] == [((30, 59, 3),)]  # type: ignore[attr-defined]
    assert client.group.dump() == ["[30..59] ACQUIRED 3 1 1"], "what failed for the loss was no delivery"


def test_the_error_that_ends_a_query_reaches_its_group() -> None:
    client = DriverClient(GroupDriver(records=100))
    with reading(client) as source:
        end = source.latestOffset(source.initialOffset(), LIMIT)
        source.partitions({}, end)
    client.group.move_log_start(30)
    with reading(client) as source, pytest.raises(DataLoss) as lost:
        source.partitions({}, end)
    (said,) = client.of(ReportEnding)
    assert (said.error, said.text, said.member_epoch) == ("DataLoss", str(lost.value), 2)
    with reading(client) as source, pytest.raises(StalePlan) as stale:
        source.latestOffset({**end, "plan_id": "i.9"}, LIMIT)
    (member,) = client.group.run(DescribeGroup(group_id="billing")).members
    assert member.ending is not None
    assert (member.ending.error, member.ending.text, member.ending.times) == ("StalePlan", str(stale.value), 3)


def test_the_error_of_a_reading_task_reaches_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    client = DriverClient(GroupDriver(records=100))
    with reading(client) as source:
        end = source.latestOffset(source.initialOffset(), LIMIT)
        (task,) = source.partitions({}, end)
    denied = ReadDenied(topic="orders", reason="TOPIC_AUTHORIZATION_FAILED")

    def read(of: object) -> Iterator[None]:
        yield None
        raise denied

    monkeypatch.setattr(plan_reader, "read_task", read)
    monkeypatch.setattr(task_client, "client_of", lambda plan: client)
    with pytest.raises(ReadDenied):
        list(source.read(task))
    client.group.pass_time(SESSION_MS + 1)
    (member,) = client.group.run(DescribeGroup(group_id="billing")).members
    assert member.ending is not None
    assert (member.ending.error, member.ending.text, member.ending.times) == ("ReadDenied", str(denied), 1)


def test_what_is_gone_at_completion_is_not_told_as_unread(caplog: pytest.LogCaptureFixture) -> None:
    client = DriverClient(GroupDriver(records=100))
    with reading(client, failOnDataLoss="false") as source:
        end = source.latestOffset(source.initialOffset(), LIMIT)
        source.partitions({}, end)
        client.group.log_starts[0] = 30  # Kafka removes 0 to 29, which the batch has read or has not
        source.partitions(end, source.latestOffset(end, LIMIT))
    (line,) = [record.getMessage() for record in caplog.records if "orders-0 offsets 0 to 29" in record.getMessage()]
    assert "lost 30 record(s)" in line and "before they were read" not in line
    assert "A batch that was running at the time may have read them" in line


def altering(client: DriverClient, start: int, by: str) -> None:
    client.group.run(AlterStartOffsets(starts=((TOPIC_ID, 0, start),), execute=True, force=True, by=by))


def test_a_query_learns_by_name_that_its_start_offsets_were_altered(caplog: pytest.LogCaptureFixture) -> None:
    client = DriverClient(GroupDriver(records=100))
    with reading(client) as source:
        end = source.latestOffset(source.initialOffset(), LIMIT)
        source.partitions({}, end)
        altering(client, 20, "admin alice from here")
        after = source.latestOffset(end, LIMIT)
        assert client.group.dump() == ["[20..59] ACQUIRED 2 0 2", "[60..79] ACQUIRED 1 0 2"], "nothing is acknowledged"
        source.partitions(end, after)
        source.latestOffset(after, LIMIT)
    (line,) = [record.getMessage() for record in caplog.records if "altered" in record.getMessage()]
    assert "an administrator (admin alice from here) altered the start offsets of 1 share" in line
    assert "orders-0 now begins at 20." in line
    assert client.group.dump() == ["[80..99] ACQUIRED 1 0 3"], "nothing after the new start is lost"


def test_an_idle_query_logs_altered_offsets_once_even_after_a_crash(caplog: pytest.LogCaptureFixture) -> None:
    client = DriverClient(GroupDriver(records=60))
    with reading(client) as source:
        end = source.latestOffset(source.initialOffset(), LIMIT)
        source.partitions({}, end)
        assert source.latestOffset(end, LIMIT) == end
        altering(client, 60, "admin alice from here")
        client.group.crash()
        client.group.join(client.asked[0].member_id, client.asked[0].process_id)
        assert source.latestOffset(end, LIMIT) == source.latestOffset(end, LIMIT) == end
    (line,) = [record.getMessage() for record in caplog.records if "altered" in record.getMessage()]
    assert "(named in the coordinator's audit log)" in line and "orders-0 now begins at 60" in line


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(r.levelname, r.getMessage()) for r in caplog.records if "gets" in r.getMessage()]


def test_a_query_is_told_once_that_waiting_dead_letters_hold_it_back(caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(acquisition, "MOST_ARCHIVING", 3)
    client = DriverClient(GroupDriver(records=10, **{"errors.deadletterqueue.topic.name": "orders-dlq"}))
    with reading(client) as source:
        end = source.latestOffset(source.initialOffset(), ReadMaxRows(4))
        source.partitions({}, end)
        client.group.stage(said(0, 2, AcknowledgeType.REJECT))
        assert source.latestOffset(end, LIMIT) == source.latestOffset(end, LIMIT) == end
        client.group.file(0, 2)
        for _ in range(2):
            end = source.latestOffset(end, LIMIT)
    (warned, line), again = told(caplog)
    assert (warned, again) == ("WARNING", ("INFO", "the query gets records again: dead letters are written"))
    assert line.startswith("the query gets no records, because 3 archived records of the group wait")


def test_a_query_is_told_once_who_holds_its_partitions(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    client = DriverClient(GroupDriver(records=10, **{"share.order": "partition"}))
    client.group.join("b", member_name="etl")
    client.group.next(member="b", limit=5)
    with reading(client) as source:
        start = source.initialOffset()
        for _ in range(3):
            assert source.latestOffset(start, LIMIT) == start
    (line,) = [r.getMessage() for r in caplog.records if "waits for partitions" in r.getMessage()]
    assert line.startswith(
        "the query waits for partitions of the ordered share group billing, which other members hold:"
    )
    assert "hold: b (etl)." in line


@pytest.mark.parametrize("mode", ["", "explicit"])
def test_a_query_sends_the_acknowledgement_mode_of_its_options(mode: str) -> None:
    client = DriverClient(GroupDriver(records=100))
    with reading(client, **({"share.acknowledgement.mode": mode} if mode else {})) as source:
        start = source.initialOffset()
        source.partitions(start, source.latestOffset(start, LIMIT))
    assert [request.acknowledgement_mode for request in client.of(StartPlan)] == [mode]


def test_a_batch_without_records_has_a_task_that_names_its_plan() -> None:
    """Its sink could name no batch, and would be refused for as long as another batch in explicit mode runs."""
    client = DriverClient(GroupDriver(records=100))
    with reading(client, failOnDataLoss="false") as source:
        start = source.initialOffset()
        end = source.latestOffset(start, LIMIT)
        client.group.move_log_start(100)
        (task,) = source.partitions(start, end)
        assert (task.plan.plan_id, task.task.partitions) == (end["plan_id"], ())
        assert list(source.read(task)) == []


def test_a_query_warns_of_records_that_a_limit_gives_up(caplog: pytest.LogCaptureFixture) -> None:
    """In explicit mode a sink that decides no record releases each batch."""
    configs = {"share.acknowledgement.mode": "explicit", "share.delivery.count.limit": "2"}
    client = DriverClient(GroupDriver(records=10, **configs))
    with reading(client) as source, caplog.at_level(logging.WARNING):
        offset = source.initialOffset()
        for _ in range(2):
            end = source.latestOffset(offset, LIMIT)
            source.partitions(offset, end)
            client.group.stage(plans={end["plan_id"]: 1})
            offset = end
        assert source.latestOffset(offset, LIMIT) == offset
    (line,) = [each.getMessage() for each in caplog.records if "archived" in each.getMessage()]
    assert "archived 10 record(s)" in line and "orders-0 offsets 0 to 9" in line


def drained(client: DriverClient, work: Callable[[], object] = lambda: None, at: list[Any] | None = None) -> int:
    """Batches of an AvailableNow run; more than ten are a run without an end. ``work``: what is done in each. ``at``:
    the checkpoint's last offset, of a query that ran before; else it is a new one."""
    client.group.pass_time(1)
    at = [] if at is None else at
    with reading(client) as source:
        source.prepareForTriggerAvailableNow()
        start = at[0] if at else source.initialOffset()
        for batches in range(11):
            end = source.latestOffset(start, LIMIT)
            client.group.ends[0] += 10
            at[:] = [end]
            if end == start:
                return batches
            source.partitions(start, end)
            work()
            start = end
    return 11


def test_available_now_drains_the_records_present_at_its_start() -> None:
    client = DriverClient(GroupDriver(records=100))
    assert drained(client) == 2
    assert client.group.partition().start_offset == 100, "what came meanwhile is the next run's"
    assert {request.wait_ms for request in client.of(NextPlan)} == {0}


def test_available_now_waits_while_the_rate_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    group = GroupDriver(records=100, **{"share.max.records.per.second": "30"})
    monkeypatch.setattr(time, "sleep", lambda seconds: group.pass_time(round(seconds * 1_000)))
    began_ms = group.now_ms
    assert drained(DriverClient(group)) == 4
    assert group.partition().start_offset == 100
    assert group.now_ms - began_ms >= 3_000


def test_available_now_does_not_wait_for_the_locks_of_others() -> None:
    client = DriverClient(GroupDriver(records=100))
    client.group.join("m2")
    client.group.acquire(member="m2", limit=30)
    assert drained(client) == 2
    assert client.group.dump()[0] == "[0..29] ACQUIRED 1 0 1"


def test_available_now_does_not_wait_for_backoff() -> None:
    group, plan = quarantined_record()
    group.start(group.next(plan).plan.plan_id)
    group.pass_time(SESSION_MS + 1)
    assert group.partition().runs.due_after(group.now_ms), "it failed alone just now"
    assert drained(DriverClient(group)) == 0


def test_available_now_delivers_a_released_record_once() -> None:
    """The service behind the sink is away. A run uses up one try of each record, however long its batches take; the
    next run gets them all again. Records are released at once, after a backoff, or by a row that wants no delay."""
    for backoff_ms, delay_ms in ((0, None), (1_000, None), (1_000, 0)):
        ratio = {"share.release.breaker.ratio": "1"}
        group = GroupDriver(records=100, **{"share.release.backoff.ms": str(backoff_ms)}, **ratio)

        def release(group: GroupDriver = group, delay_ms: int | None = delay_ms) -> None:
            for first, last, run in list(group.partition().runs):
                if run.state == RecordState.ACQUIRED:
                    group.stage(said(first, last, AcknowledgeType.RELEASE, run.delivery_count, delay_ms=delay_ms))
            group.pass_time(5_000)

        for releases, batches in ((1, 2), (2, 3)):
            assert drained(DriverClient(group), release) == batches
            assert {run.releases for first, last, run in group.partition().runs if last < 100} == {releases}
            group.pass_time(60_000)


def test_available_now_ends_when_the_breaker_opens(caplog: pytest.LogCaptureFixture) -> None:
    """The service is away: each run tries a few records, and the records keep their tries."""
    group = GroupDriver(records=100, **{"share.release.backoff.ms": "1000", "share.release.backoff.jitter": "0"})

    def release() -> None:
        group.stage(*_of_held(group, AcknowledgeType.RELEASE))

    client, at = DriverClient(group), []
    assert drained(client, release, at) == 1, "60 records, all of them released"
    assert drained(client, release, at) == 0, "still in the pause"
    for _ in range(7):
        group.pass_time(400_000)
        assert drained(client, release, at) == 1
    assert max(run.releases for _, _, run in group.partition().runs) == 1
    group.pass_time(400_000)
    assert drained(client, at=at) > 1
    assert client.group.partition().counts.accepted >= 150, "the service is back: a few records, then as many as ever"
    warnings = [record.getMessage() for record in caplog.records if "fewer records" in record.getMessage()]
    assert len(warnings) == 10, "one in each run that met it"
    assert "sinks released 60 of the last 60 records" in warnings[0]
    assert "whose releases use up no tries" in warnings[0]


def test_a_query_says_once_that_it_gets_fewer_records(caplog):
    caplog.set_level(logging.INFO)
    group = GroupDriver(records=100, **{"share.release.backoff.ms": "1000", "share.release.backoff.jitter": "0"})
    client = DriverClient(group)
    with reading(client) as source:
        at = source.initialOffset()
        for outcome in (AcknowledgeType.RELEASE, AcknowledgeType.RELEASE, AcknowledgeType.ACCEPT):
            for _ in range(3):
                end = source.latestOffset(at, LIMIT)
                if end != at:
                    break
                group.pass_time(1_000)
            source.partitions(at, end)
            group.stage(*_of_held(group, outcome))
            at = end
        source.latestOffset(at, LIMIT)
    said_of_it = [record for record in caplog.records if "records as before" in record.getMessage()]
    said_of_it += [record for record in caplog.records if "fewer records" in record.getMessage()]
    assert [record.levelname for record in said_of_it] == ["INFO", "WARNING"]


def _of_held(group: GroupDriver, outcome: AcknowledgeType) -> list[OutcomeRun]:
    return [
        said(first, last, outcome, run.delivery_count)
        for first, last, run in group.partition().runs
        if run.state == RecordState.ACQUIRED
    ]


def test_trigger_once_is_refused_by_name() -> None:
    client = DriverClient(GroupDriver(records=100))
    with reading(client) as source, pytest.raises(TriggerOnceRefused, match="availableNow"):
        source.latestOffset(source.initialOffset(), ReadAllAvailable())
    assert client.asked == [], "refused before it joins"


def test_a_fenced_reader_fails_by_name_and_never_rejoins_by_itself() -> None:
    client = DriverClient(GroupDriver(records=100))
    with reading(client) as old, reading(client) as new:
        start = old.initialOffset()
        end = old.latestOffset(start, LIMIT)
        assert new.latestOffset(start, LIMIT) == {**end, "plan": {"orders": {"id": "T", "0": "0-59:2"}}}
        asked = len(client.asked)
        for _ in range(3):
            with pytest.raises(FencedMemberEpoch):
                old.partitions(start, end)
        assert len(client.asked) == asked + 2, "fenced once, it says so, and asks nothing more"
        assert len(client.of(JoinGroup)) == 2
        assert new.partitions(start, end), "the newer process goes on"


def test_a_lapsed_reader_comes_back_naming_its_epoch() -> None:
    client = DriverClient(GroupDriver(records=100))
    with reading(client) as source:
        start = source.initialOffset()
        end = source.latestOffset(start, LIMIT)
        client.group.pass_time(SESSION_MS + 1)
        assert source.partitions(start, end)
        assert [join.member_epoch for join in client.of(JoinGroup)] == [None, 1]


def timeouts_s(kind: type, *, lapses: bool = False) -> list[float | None]:
    """The timeouts of a session's requests of this kind. ``lapses``: the coordinator refuses the first heartbeat."""
    joined = Joined(member_epoch=1, incarnation="i", session_timeout_ms=SESSION_MS, heartbeat_interval_ms=60_000)
    asked: list[tuple[type, float | None]] = []

    def call(request: object, *, answer_timeout_s: float | None = None) -> Joined:
        asked.append((type(request), answer_timeout_s))
        if lapses and [kind for kind, _ in asked] == [JoinGroup, Heartbeat]:
            raise UnknownMemberId(member_id="m1", group_id="billing")
        return joined

    client: Any = SimpleNamespace(call=call)
    with contextlib.closing(MemberSession(client, "billing", "m1", topics=("orders",))) as session:
        session.call(lambda who: Heartbeat(**who))
    return [timeout_s for of, timeout_s in asked if of is kind]


def test_a_heartbeat_has_a_timeout_of_its_own_well_below_the_session() -> None:
    """A coordinator hangs: the heartbeat is sent again within the session, perhaps to another coordinator."""
    assert timeouts_s(Heartbeat) == [10.0], "a third of a session, 10 s at most"


def test_the_join_of_a_lapsed_session_waits_no_longer_than_a_heartbeat() -> None:
    """A coordinator refuses a heartbeat and hangs: without a timeout no heartbeat goes to its successor in time."""
    assert timeouts_s(JoinGroup, lapses=True) == [None, 10.0], "the first join may wait until the group is loaded"


def replayed_with_damage(mode: str) -> DriverClient:
    """A query whose process dies after it began a batch of 60, of which 20 to 29 can't be read, and so does the next
    one; the third one completes the batch."""
    client = DriverClient(GroupDriver(records=100, **{"share.acknowledgement.mode": mode}))
    with reading(client) as source:
        start = source.initialOffset()
        end = source.latestOffset(start, LIMIT)
        client.damaged = {("orders", 0): [Damage(20, 29, -199, "changed on the disk")]}
        assert len(source.partitions(start, end)) == 1
        assert not client.of(StageOutcomes), "the first delivery is not scanned"
    for replays in (1, 2):
        with reading(client) as source:
            (task,) = source.partitions(start, end)
            assert [(held.first, held.last) for held in task.task.partitions[0].ranges] == [(0, 19), (30, 59)]
            assert len(client.of(StageOutcomes)) == replays
            if replays == 2:
                client.group.stage(OutcomeRun(0, 0, 3, AcknowledgeType.ACCEPT, None, False, ""))
                source.latestOffset(end, LIMIT)
    return client


def test_what_a_replay_cannot_read_is_rejected_and_never_accepted() -> None:
    partition = replayed_with_damage("implicit").group.partition()
    assert partition.counts.archived[Disposition.REJECTED] == partition.archived_total == 10
    assert partition.start_offset == 60, "the others are accepted"


def test_in_explicit_mode_a_replay_rejects_what_cannot_be_read(caplog) -> None:
    partition = replayed_with_damage("explicit").group.partition()
    assert partition.counts.archived[Disposition.REJECTED] == partition.archived_total == 10
    assert partition.start_offset == 1, "the others come again, as the sink decided the first one alone"
    assert "the offsets 20 to 29 can't be read" in caplog.text
