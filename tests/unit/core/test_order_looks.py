"""What people see of an ordered group: the record that holds up a partition, and the members that wait."""

from __future__ import annotations

import msgspec
import pytest

from coordinator.core.commands import AcquireForConsumer
from coordinator.core.looks import description
from coordinator.core.looks.measures import MeasureGroup
from coordinator.protocol.admin_messages import ListInFlight
from coordinator.protocol.messages import AwaitedRecord, DescribeGroup
from coordinator.protocol.values import AcknowledgeType, OutcomeRun
from tests.support.group_driver import GroupDriver, fetched

ORDER = {"share.order": "partition"}
BACKOFF_MS = 10_000
WITH_BACKOFF = {**ORDER, "share.release.backoff.ms": str(BACKOFF_MS), "share.release.backoff.jitter": "0"}
RELEASE, REJECT = AcknowledgeType.RELEASE, AcknowledgeType.REJECT


def begun(configs: dict[str, str], records: int = 10, partitions: int = 1) -> tuple[GroupDriver, str]:
    """Query a has started a plan of all records; the group, and the plan's id."""
    group = GroupDriver(records=records, partitions=partitions, **configs)
    group.join("a")
    plan = group.next(member="a").plan.plan_id
    group.start(plan, "a")
    return group, plan


def waits_for(group: GroupDriver, partition: int = 0) -> AwaitedRecord | None:
    return group.run(DescribeGroup(group_id="billing")).partitions[partition].waits_for


def measured(group: GroupDriver) -> tuple[int, int]:
    """How many partitions wait, and the longest wait in ms."""
    measures = group.run(MeasureGroup(group_id="billing"))
    return measures.waiting, measures.longest_wait_ms


def released(**configs: str) -> GroupDriver:
    """Records 2 to 4 were released at the group's time, and 5 to 9 after them."""
    group, plan = begun({**WITH_BACKOFF, **configs})
    group.stage(OutcomeRun(2, 4, 1, RELEASE), OutcomeRun(5, 9, 1, RELEASE, delay_ms=20))
    group.complete(plan, "a")
    return group


def test_a_released_record_holds_up_its_partition_until_its_delay_ends() -> None:
    group = released()
    now_ms = group.now_ms
    group.pass_time(3_000)
    awaited = AwaitedRecord(offset=2, tries=1, since_ms=now_ms, until_ms=now_ms + BACKOFF_MS)
    assert (waits_for(group), measured(group)) == (awaited, (1, 3_000))
    group.pass_time(BACKOFF_MS)
    assert (waits_for(group), measured(group)) == (None, (0, 0)), "it is free"


def test_runs_behind_a_waiting_record_say_so() -> None:
    group = released()
    group.pass_time(3_000)
    runs = group.run(ListInFlight(group_id="billing")).runs
    assert [(run.first, run.behind) for run in runs] == [(2, None), (5, 2)]


def test_no_record_holds_up_a_partition_without_order() -> None:
    group = released(**{"share.order": "none"})
    assert (waits_for(group), measured(group)) == (None, (0, 0))
    assert {run.behind for run in group.run(ListInFlight(group_id="billing")).runs} == {None}


def test_a_record_delivered_alone_holds_up_its_partition_also_while_held() -> None:
    group, plan = begun({**ORDER, "share.delivery.count.limit": "2"}, records=1)
    failed_ms = group.now_ms
    for _ in range(2):
        group.restart(plan, "a")
    group.ends[0] = 10
    group.complete(plan, "a")
    group.pass_time(5_000)
    alone = AwaitedRecord(offset=0, stage="failed alone", tries=2, since_ms=failed_ms)
    assert (waits_for(group), measured(group)) == (alone, (1, 5_000))
    group.next(plan, "a")
    assert waits_for(group) == msgspec.structs.replace(alone, member_id="a")
    assert measured(group) == (1, 5_000)


def test_a_members_batch_holds_up_its_partition_and_counts_as_work() -> None:
    group, _ = begun(ORDER)
    awaited = AwaitedRecord(offset=0, since_ms=group.now_ms, member_id="a")
    assert (waits_for(group), measured(group)) == (awaited, (0, 0))


def test_a_record_that_waits_for_its_dead_letter_is_awaited_by_nobody() -> None:
    group, plan = begun({**ORDER, "errors.deadletterqueue.topic.name": "dead"})
    group.stage(OutcomeRun(0, 9, 1, REJECT))
    group.complete(plan, "a")
    assert (group.partition().archiving_count, waits_for(group), measured(group)) == (10, None, (0, 0))


def test_a_held_record_is_found_behind_some_runs_of_dead_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    group, plan = begun({**ORDER, "errors.deadletterqueue.topic.name": "dead"}, records=2)
    group.stage(OutcomeRun(0, 1, 1, REJECT))
    group.ends[0] = 10
    group.next(plan, "a")
    assert waits_for(group) == AwaitedRecord(offset=2, since_ms=group.now_ms, member_id="a")
    monkeypatch.setattr(description, "MOST_LOOKED_AT", 1)
    assert waits_for(group) is None


# --- members that wait


def waiting(group: GroupDriver) -> list[str]:
    return [member.member_id for member in group.run(DescribeGroup(group_id="billing")).members if member.waits]


def test_a_query_that_finds_everything_held_waits_and_learns_who_holds_it() -> None:
    group, plan = begun(ORDER, partitions=2)
    group.join("b", member_name="nightly")
    assert group.next(member="b").holders == ("a (not known)",)
    assert waiting(group) == ["b"]
    group.complete(plan, "a")
    for index in group.ends:
        group.ends[index] = 20
    assert (group.next(plan, "a").holders, group.next(member="b").holders) == ((), ())
    assert waiting(group) == []


def test_a_member_that_asks_no_more_is_shown_as_waiting_for_seconds() -> None:
    group, _ = begun(ORDER)
    group.join("b")
    group.next(member="b")
    group.pass_time(10_000)
    assert waiting(group) == []


def test_a_member_without_records_in_a_group_without_order_waits_for_nobody() -> None:
    group, _ = begun({})
    group.join("b")
    assert group.next(member="b").holders == ()
    assert waiting(group) == []


def asked(group: GroupDriver, member: str) -> tuple[str, ...]:
    """The holders in the answer to a ShareConsumer."""
    ask = {"group_id": "billing", "member_id": member, "member_epoch": group.epochs[member]}
    return group.run(AcquireForConsumer(**ask, max_records=10, bounds=group.bounds())).holders


def test_a_share_consumer_learns_who_holds_its_partitions() -> None:
    group = GroupDriver(records=10, **ORDER)
    group.join("c1", query=False, member_name="etl")
    group.join("c2", query=False)
    fetched(group, 4)
    assert asked(group, "c2") == ("c1 (etl)",)
    assert waiting(group) == ["c2"]
    assert asked(group, "c1") == (), "it holds records itself"
