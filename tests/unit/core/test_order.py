"""share.order=partition: one holder of a partition's records at a time, in offset order (docs/learn/order.md)."""

from __future__ import annotations

import pytest

from coordinator.core.commands import AlterConfigs
from coordinator.protocol.errors import OrderInUse
from coordinator.protocol.messages import (
    JoinGroup,
)
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
