"""share.order=partition: what people see of it, and when it can be altered. tests/scenarios has its rules."""

from __future__ import annotations

import pytest

from coordinator.core.commands import AcquireForConsumer, AlterConfigs
from coordinator.core.looks import description
from coordinator.protocol.admin_messages import ListInFlight
from coordinator.protocol.errors import OrderInUse
from coordinator.protocol.messages import AwaitedRecord, DescribeGroup, JoinGroup
from coordinator.protocol.values import AcknowledgeType, OutcomeRun
from coordinator.service.runtime import transactions
from tests.support.group_driver import SESSION_MS, GroupDriver, fetched, ranges
from tests.support.source_driver import run_transaction

ORDER = {"share.order": "partition"}
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


def ordered(records: int = 100, partitions: int = 1, **configs: str) -> GroupDriver:
    """A group in order with two queries, a and b."""
    group = GroupDriver(records=records, partitions=partitions, **{**ORDER, **configs})
    group.join("a")
    group.join("b")
    return group


def begun(group: GroupDriver, start: str = "", member: str = "a", limit: int | None = None) -> str:
    """The id of a plan that the member has acquired and started."""
    plan_id = group.next(start, member, limit).plan.plan_id
    group.start(plan_id, member)
    return plan_id


# --- members that share the partitions


def test_the_part_of_an_available_now_run_is_what_it_may_acquire() -> None:
    """It may not acquire partition 0, whose first record it has released, but partition 1."""
    group = ordered(records=10, partitions=2)
    began_ms = group.now_ms
    plan = begun(group, limit=2)
    group.stage(OutcomeRun(0, 0, 1, RELEASE), partition=0)
    group.next(member="b")
    group.complete(plan, "a")
    group.ends[0] = 30
    assert ranges(group.acquire(plan, "a", began_ms=began_ms), 1) == [(1, 9, 1)]


# --- ShareConsumers


def consumers(records: int = 10, **configs: str) -> GroupDriver:
    group = GroupDriver(records=records, **{**ORDER, **configs})
    group.join("c1", query=False)
    group.join("c2", query=False)
    return group


# --- the config


@pytest.mark.parametrize(("before", "after"), [("none", "partition"), ("partition", "none")])
def test_order_does_not_change_while_records_are_held(before: str, after: str) -> None:
    group = GroupDriver(records=10, **{"share.order": before})
    group.join("a")
    plan = begun(group)
    with pytest.raises(OrderInUse, match="10 record"):
        group.run(AlterConfigs(configs={"share.order": after}))
    group.complete(plan, "a")
    group.run(AlterConfigs(configs={"share.order": after}))
    assert group.group.config.share_order == after


def test_order_may_change_once_its_share_consumers_are_gone() -> None:
    group = consumers()
    fetched(group, 4)
    with pytest.raises(OrderInUse, match="4 record"):
        group.run(AlterConfigs(configs={"share.order": "none"}))
    group.pass_time(SESSION_MS + 1)
    group.run(AlterConfigs(configs={"share.order": "none"}))
    assert not group.group.config.is_ordered


def test_order_does_not_change_while_a_query_may_come_back() -> None:
    group = GroupDriver(records=10)
    group.join("a")
    begun(group)
    group.pass_time(SESSION_MS + 1)
    with pytest.raises(OrderInUse):
        group.run(AlterConfigs(configs={"share.order": "partition"}))


@pytest.mark.parametrize("member", ["a", "another"])
def test_a_join_that_would_change_the_order_in_use_changes_nothing(member: str) -> None:
    group = GroupDriver(records=10)
    group.join("a")
    begun(group)
    before = list(group.log)
    request = JoinGroup(group_id="billing", member_id=member, process_id="later", configs=ORDER)
    with pytest.raises(OrderInUse):
        run_transaction(group, transactions.join(request, topic_ids=True, starts={}))
    assert (group.log, list(group.group.sessions)) == (before, ["a"])


BACKOFF_MS = 10_000
WITH_BACKOFF = {**ORDER, "share.release.backoff.ms": str(BACKOFF_MS), "share.release.backoff.jitter": "0"}
RELEASE_LOOKS, REJECT_LOOKS = AcknowledgeType.RELEASE, AcknowledgeType.REJECT


def begun_with(configs: dict[str, str], records: int = 10, partitions: int = 1) -> tuple[GroupDriver, str]:
    """Query a has started a plan of all records; the group, and the plan's id."""
    group = GroupDriver(records=records, partitions=partitions, **configs)
    group.join("a")
    plan = group.next(member="a").plan.plan_id
    group.start(plan, "a")
    return group, plan


def waits_for(group: GroupDriver, partition: int = 0) -> AwaitedRecord | None:
    return group.run(DescribeGroup(group_id="billing")).partitions[partition].waits_for


def released(**configs: str) -> GroupDriver:
    """Records 2 to 4 were released at the group's time, and 5 to 9 after them."""
    group, plan = begun_with({**WITH_BACKOFF, **configs})
    group.stage(OutcomeRun(2, 4, 1, RELEASE_LOOKS), OutcomeRun(5, 9, 1, RELEASE_LOOKS, delay_ms=20))
    group.complete(plan, "a")
    return group


def test_runs_behind_a_waiting_record_say_so() -> None:
    group = released()
    group.pass_time(3_000)
    runs = group.run(ListInFlight(group_id="billing")).runs
    assert [(run.first, run.behind) for run in runs] == [(2, None), (5, 2)]


def test_no_record_holds_up_a_partition_without_order() -> None:
    group = released(**{"share.order": "none"})
    assert {run.behind for run in group.run(ListInFlight(group_id="billing")).runs} == {None}


def test_a_held_record_is_found_behind_some_runs_of_dead_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    group, plan = begun_with({**ORDER, "errors.deadletterqueue.topic.name": "dead"}, records=2)
    group.stage(OutcomeRun(0, 1, 1, REJECT_LOOKS))
    group.ends[0] = 10
    group.next(plan, "a")
    assert waits_for(group) == AwaitedRecord(offset=2, since_ms=group.now_ms, member_id="a")
    monkeypatch.setattr(description, "MOST_LOOKED_AT", 1)
    assert waits_for(group) is None


def paused(group: GroupDriver, topics: str = "orders") -> tuple[AwaitedRecord | None, set[int | None], list[str]]:
    """The record that holds up the partition while these topics are paused, the records that runs in flight wait for,
    and the members that wait."""
    group.run(AlterConfigs(configs={"share.paused.topics": topics}))
    behind = {run.behind for run in group.run(ListInFlight(group_id="billing")).runs}
    return waits_for(group), behind, waiting(group)


def test_records_of_a_paused_topic_wait_for_no_other_record() -> None:
    group = released()
    awaited, _, _ = before = paused(group, "clicks")
    assert awaited is not None and awaited.offset == 2
    assert paused(group) == (None, {None}, [])
    assert paused(group, "") == before


def test_records_of_a_paused_topic_wait_for_the_member_that_holds_one() -> None:
    group, plan = begun_with(ORDER)
    group.join("b")
    awaited, _, _ = paused(group)
    assert awaited is not None and (awaited.offset, awaited.member_id) == (0, "a")
    assert group.next(member="b").holders == () and waiting(group) == [], "it waits for the pause"
    group.complete(plan, "a")
    assert paused(group)[0] is None


# --- members that wait


def waiting(group: GroupDriver) -> list[str]:
    return [member.member_id for member in group.run(DescribeGroup(group_id="billing")).members if member.waits]


def test_a_query_that_finds_everything_held_waits_and_learns_who_holds_it() -> None:
    group, plan = begun_with(ORDER, partitions=2)
    group.join("b", member_name="nightly")
    assert group.next(member="b").holders == ("a (not known)",)
    assert waiting(group) == ["b"]
    group.complete(plan, "a")
    for index in group.ends:
        group.ends[index] = 20
    assert (group.next(plan, "a").holders, group.next(member="b").holders) == ((), ())
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
