"""Tries, setting aside and evidence where configs change and failures repeat (docs/protocol.md)."""

from __future__ import annotations

from typing import TypeVar

import pytest

from coordinator.core import records
from coordinator.core.commands import AlterConfigs, Expire
from coordinator.core.isolation import integer_root, isolation_class, slice_size
from coordinator.core.record_state import RecordState
from coordinator.core.runs import Run
from coordinator.core.share_group import ShareGroup
from coordinator.core.staging import Verdict
from coordinator.protocol.messages import LeaveGroup
from coordinator.protocol.values import AcknowledgeType
from tests.support.group_driver import (
    SESSION_MS,
    TOPIC_ID,
    GroupDriver,
    acknowledged,
    durable_state,
    fetched,
    offsets,
    ranges,
)
from tests.support.quarantine import quarantined_record, started_trial

RELEASE = 2
Stored = TypeVar("Stored", records.RunsChanged, records.PlanStaged)


def alter(group: GroupDriver, limit: int) -> None:
    group.run(AlterConfigs(configs={"share.delivery.count.limit": str(limit)}))


def released_often(times: int) -> GroupDriver:
    """One record that a consumer gave back so often."""
    group = GroupDriver(records=1, **{"share.delivery.count.limit": "10"})
    group.join("c1", query=False)
    for count in range(1, times + 1):
        assert fetched(group, 1) == [(0, 0, count)]
        assert acknowledged(group, 0, 0, count, RELEASE) == {}
    return group


def test_a_record_that_never_failed_is_not_set_aside_however_low_the_limit_becomes() -> None:
    group = released_often(3)
    alter(group, 3)
    group.join()
    group.next()
    group.pass_time(SESSION_MS + 1)
    assert group.dump() == ["[0..0] AVAILABLE 4 0 4"], "nobody read the plan: no failure, so it keeps its number"
    assert group.partition().runs.quarantined == []


def test_releases_count_among_the_tries_of_a_record_that_fails() -> None:
    group = released_often(3)
    alter(group, 4)
    group.join()
    plan = group.next().plan.plan_id
    group.use(plan)
    back = group.restart(plan)
    assert (ranges(back), [out.reason for out in back.left_out]) == ([], ["quarantined"])
    assert group.dump() == ["[0..0] AVAILABLE 4 1 -"], "three releases and a failure: set aside"


def test_a_lost_lock_at_the_limit_sets_aside_too() -> None:
    group = released_often(3)
    alter(group, 4)
    group.join()
    group.use(group.next().plan.plan_id)
    group.pass_time(SESSION_MS + 1)
    assert len(group.partition().runs.quarantined) == 1
    assert group.partition().archived_total == 0


def test_failing_alone_again_is_no_news() -> None:
    """Only the first time makes evidence old; an outage can begin no more than once for a record."""
    group, plan = quarantined_record()
    since_ms = group.partition().runs.first().run.failed_alone_ms  # type: ignore[union-attr]
    for _ in range(2):
        alone = group.next(plan).plan.plan_id
        group.use(alone)
        group.ends[0] += 3
        group.join("m2")
        good = group.acquire(group_start(group), "m2").plan.plan_id
        group.use(good, "m2")
        group.restart(alone)
        group.complete(good, "m2")
        assert group.group.members["m2"].evidence, "it still stands"
        assert group.partition().runs.first().run.failed_alone_ms == since_ms  # type: ignore[union-attr]
        plan = alone
        group.pass_time(31_000)


def group_start(group: GroupDriver) -> str:
    return group.group.plan_id_text(group.group.members["m2"].completed)


def test_the_backoff_doubles_with_each_failure_alone() -> None:
    group, plan = quarantined_record()
    waits = []
    for _ in range(7):
        plan = group.next(plan).plan.plan_id
        group.use(plan)
        group.restart(plan)
        waits.append(group.partition().runs.first().run.not_before_ms - group.now_ms)  # type: ignore[union-attr, operator]
        group.pass_time(31_000)
        group.join()
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]


def test_a_query_that_leaves_in_a_trial_is_no_judgement() -> None:
    group, plan = quarantined_record(records=10)
    started_trial(group, plan)
    group.run(LeaveGroup(group_id="billing", member_id="m1", member_epoch=group.epochs["m1"]))
    assert group.partition().archived_total == 0
    assert group.partition().runs.first().run.trials_lost == 1  # type: ignore[union-attr]


def test_a_trial_that_nobody_began_to_read_is_none() -> None:
    group, plan = quarantined_record(records=10)
    other = group.next(plan)
    group.use(other.plan.plan_id)
    trial = group.next(other.plan.plan_id)
    assert trial.plan.trial
    group.pass_time(SESSION_MS + 1)
    first = group.partition().runs.first()
    assert first is not None
    assert (first.run.failures, first.run.trials_lost) == (5, 0)
    assert group.restart(trial.plan.plan_id).left_out == ()
    assert group.partition().archived_total == 0


def test_a_second_lost_trial_takes_its_querys_evidence_alone() -> None:
    group, plan = quarantined_record(records=10)
    started_trial(group, plan)
    group.pass_time(SESSION_MS + 1)
    group.join("m2")
    group.ends[0] = 12
    good = group.acquire(member="m2").plan.plan_id
    group.use(good, "m2")
    trial = group.next(good, "m2").plan.plan_id
    group.use(trial, "m2")
    group.run(Expire())
    assert group.group.members["m1"].evidence
    group.pass_time(SESSION_MS + 1)
    assert (group.group.members["m1"].evidence, group.group.members["m2"].evidence) == (True, False)


@pytest.mark.parametrize("ends", ["session", "replay"])
def test_one_record_of_many_that_is_set_aside_makes_all_evidence_old(ends: str) -> None:
    group = GroupDriver(records=1, **{"share.delivery.count.limit": "2"})
    group.join("m3")
    good = group.acquire(member="m3").plan.plan_id
    group.use(good, "m3")
    group.complete(good, "m3")
    assert group.group.members["m3"].evidence
    group.join()
    group.ends[0] = 2
    group.use(group.next().plan.plan_id)
    group.pass_time(SESSION_MS + 1)
    group.join("m2")
    group.ends[0] = 10
    mixed = group.acquire(member="m2")
    assert ranges(mixed) == [(1, 1, 2), (2, 9, 1)], "one that failed once, and fresh ones"
    group.use(mixed.plan.plan_id, "m2")
    if ends == "session":
        group.pass_time(SESSION_MS + 1)
    else:
        group.restart(mixed.plan.plan_id, "m2")
    assert len(group.partition().runs.quarantined) == 1
    assert not group.group.members["m3"].evidence


def test_a_batch_of_no_record_is_no_evidence() -> None:
    group = GroupDriver(records=5)
    group.join()
    plan = group.next().plan.plan_id
    group.use(plan)
    group.pass_time(SESSION_MS + 1)
    group.join("m2")
    taken = group.acquire(member="m2")
    assert offsets(taken) == 5
    group.join()
    group.use(plan)
    group.complete(plan)
    assert not group.group.members["m1"].evidence
    group.complete(taken.plan.plan_id, "m2")
    assert not group.group.members["m2"].evidence, "nobody read it"


@pytest.mark.parametrize("degree", range(1, 6))
def test_a_root_is_the_largest_number_whose_power_is_not_too_large(degree: int) -> None:
    for value in [*range(70), *(base**degree + over for base in (8, 10, 64) for over in (-1, 0, 1))]:
        root = integer_root(value, degree)
        assert root**degree <= value < (root + 1) ** degree


@pytest.mark.parametrize(("limit", "first"), [(2, None), (3, 2), (4, 2), (5, 3), (6, 3), (9, 5), (10, 5)])
def test_isolation_begins_with_half_of_the_tries_and_never_at_two(limit: int, first: int | None) -> None:
    """What may be delivered together follows the same threshold as how many."""
    for current in range(1, limit + 3):
        isolated = first is not None and current >= first
        assert isolation_class(current - 1, limit) == (min(current, limit) if isolated else 0)
        assert (slice_size(current, limit, 100_000) is not None) == isolated


@pytest.mark.parametrize("leaves", [True, False])
def test_a_record_whose_query_goes_away_while_it_is_tried_alone_failed_alone(leaves: bool) -> None:
    """As a replay would say it: aside still, with its first backoff, and no trial is lost."""
    group, plan = quarantined_record()
    group.use(group.next(plan).plan.plan_id)
    if leaves:
        group.run(LeaveGroup(group_id="billing", member_id="m1", member_epoch=group.epochs["m1"]))
    else:
        group.pass_time(SESSION_MS + 1)
    alone = group.partition().runs.first()
    assert alone is not None
    run = alone.run
    assert (run.state, run.failures, run.plan_id, run.trials_lost) == (RecordState.AVAILABLE, 6, None, 0)
    assert (run.last_tried_ms, run.not_before_ms) == (group.now_ms, group.now_ms + 1_000)
    assert not group.group.may_rest(group.now_ms), "its backoff is to be waited for"
    assert group.group.may_rest(group.now_ms + 1_000)


def test_a_trial_that_failed_takes_its_querys_evidence_alone() -> None:
    group, plan = quarantined_record(records=10)
    group.join("m2")
    group.ends[0] = 20
    good = group.acquire(member="m2", limit=10).plan.plan_id
    group.use(good, "m2")
    other = group.next(plan).plan.plan_id
    group.use(other)
    group.complete(good, "m2")
    trial = group.next(other)
    assert trial.plan.trial
    group.use(trial.plan.plan_id)
    group.restart(trial.plan.plan_id)
    assert group.partition().archived_total == 1
    assert (group.group.members["m1"].evidence, group.group.members["m2"].evidence) == (False, True)


def test_a_record_with_very_many_runs_becomes_several_that_come_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    assert records.MOST_BYTES == 512 * 1024, "well below the megabyte that Kafka takes by default"
    monkeypatch.setattr(records, "MOST_BYTES", 120)
    runs = tuple((offset, offset, Run(RecordState.ACQUIRED, 1 + offset % 2)) for offset in range(40))
    for count in (0, 1, 3, 7, 40):
        whole = records.RunsChanged(topic_id=TOPIC_ID, partition=2, runs=runs[:count])
        parts = stored(whole)
        assert (len(parts) == 1) == (count <= 3)
        assert {(part.topic_id, part.partition) for part in parts} == {(TOPIC_ID, 2)}
        assert tuple(run for part in parts for run in part.runs) == runs[:count]


def test_reasons_make_stored_records_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_BYTES", 1_000)
    for length, fewest in ((1, 1), (100, 2), (900, 10)):
        runs = tuple((n, n, Verdict(1, AcknowledgeType.REJECT, reason="x" * length)) for n in range(10))
        whole = records.PlanStaged(plan_id=1, member_id="m1", partitions=((TOPIC_ID, 0, runs),))
        parts = stored(whole)
        assert fewest <= len(parts) <= 2 * fewest
        assert tuple(run for part in parts for run in part.partitions[0][2]) == runs


def test_the_window_and_the_attempt_of_a_staging_in_parts_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_BYTES", 130)
    runs = tuple((n, n, Verdict(1, AcknowledgeType.ACCEPT)) for n in range(3))
    partitions = ((TOPIC_ID, 0, runs), (TOPIC_ID, 1, runs[:1]))
    whole = records.PlanStaged(
        plan_id=7, member_id="m1", partitions=partitions, decided=4, rejected=3, attempt=2, query_id="q"
    )
    said = [(part.plan_id, part.decided, part.rejected, part.attempt, part.query_id) for part in stored(whole)]
    assert said == [(7, 4, 3, 2, "q"), (7, 0, 0, 2, "q")]
    assert [part.partitions for part in stored(whole)] == [
        ((TOPIC_ID, 0, runs[:2]),),
        ((TOPIC_ID, 0, runs[2:]), (TOPIC_ID, 1, runs[:1])),
    ]
    nothing = records.PlanStaged(plan_id=7, member_id="m1", attempt=2)
    assert stored(nothing) == [nothing]


def test_a_plan_of_very_many_ranges_is_stored_in_parts_and_comes_back_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_BYTES", 300)
    group = GroupDriver(records=1_000, partitions=3)
    group.join()
    group.append(
        [
            records.RunsChanged(
                topic_id=TOPIC_ID,
                partition=p,
                runs=tuple(
                    (n, n, Run(RecordState.ACKNOWLEDGED if n % 2 else RecordState.AVAILABLE, 1)) for n in range(50)
                ),
            )
            for p in range(3)
        ]
    )
    number = group.acquire(limit=None).plan.plan_id
    plan = group.group.plans[group.group.plan_id(number)]
    group.append([])
    for said in (group.log, records.encode_records(group.group.snapshot())):
        again = ShareGroup("billing")
        parts = [part for data in said for part in records.encode_records([records.decode_record(data)])]
        assert any(isinstance(records.decode_record(data), records.RangesAdded) for data in parts)
        for data in parts:
            again.replay(records.decode_record(data))
        assert again.plans[plan.plan_id].ranges == plan.ranges
        assert durable_state(again) == durable_state(group.group)


def stored(record: Stored) -> list[Stored]:
    found = [records.decode_record(data) for data in records.encode_records([record])]
    assert all(type(part) is type(record) for part in found)
    return found  # type: ignore[return-value]


def test_sixteen_fenced_processes_of_a_member_are_remembered() -> None:
    group = GroupDriver()
    for number in range(20):
        group.join(process=f"p{number}")
    assert group.group.members["m1"].fenced_processes == tuple(f"p{number}" for number in range(3, 19))
