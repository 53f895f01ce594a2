"""Queries and ShareConsumers in one group: who had a delivery, by his policy it is judged."""

from __future__ import annotations

import pytest

from coordinator.core.commands import AlterConfigs, AssignPartitions
from coordinator.protocol.values import AcknowledgeType
from tests.support.group_driver import SESSION_MS, GroupDriver, acknowledged, fetched, from_snapshot

LIMIT = 5
LOCK_MS = 30_000


def failed_by_a_query(failures: int, records: int = 10) -> GroupDriver:
    """A query's outage has failed all records: replays, and at last its session ended. Then c1 joins."""
    group = GroupDriver(records=records)
    group.join()
    plan = group.next().plan.plan_id
    group.start(plan)
    for _ in range(failures - 1):
        group.restart(plan)
    group.pass_time(SESSION_MS + 1)
    assert group.partition().runs.first().run.failures == failures  # type: ignore[union-attr]
    group.join("c1", query=False)
    group.run(AssignPartitions())
    return group


def tried_by_the_consumer(group: GroupDriver, how: str) -> None:
    """c1 acquires, and releases its records or loses its locks."""
    got = fetched(group, 100)
    assert got
    if how == "lost":
        group.pass_time(LOCK_MS + 1)
        group.join("c1", query=False)
        return
    for first, last, count in got:
        assert not acknowledged(group, first, last, count, AcknowledgeType.RELEASE)


@pytest.mark.parametrize("how", ["released", "lost"])
@pytest.mark.parametrize("failures", [LIMIT - 1, LIMIT])
def test_an_outage_of_a_query_leaves_a_consumer_all_its_tries(how: str, failures: int) -> None:
    group = failed_by_a_query(failures, records=1)
    for _ in range(LIMIT - 1):
        tried_by_the_consumer(group, how)
        assert not group.partition().archived_total
        from_snapshot(group)
        group.join("c1", query=False)
        group.run(AssignPartitions())
    tried_by_the_consumer(group, how)
    assert group.partition().archived_total == 1, "as Kafka does, at its own limit"


def test_one_release_of_a_consumer_gives_up_nothing_a_query_failed() -> None:
    group = failed_by_a_query(LIMIT - 1)
    assert fetched(group, 100) == [(0, 9, LIMIT)], "and its policy of bad records begins anew"
    acknowledged(group, 0, 9, LIMIT, AcknowledgeType.RELEASE)
    assert not group.partition().archived_total


def test_one_lost_lock_of_a_consumer_gives_up_nothing_a_query_failed() -> None:
    group = failed_by_a_query(LIMIT - 1)
    tried_by_the_consumer(group, "lost")
    assert not group.partition().archived_total


def test_a_lowered_limit_counts_a_consumers_own_tries() -> None:
    group = failed_by_a_query(3)
    group.run(AlterConfigs(configs={"share.delivery.count.limit": "2", "share.release.backoff.ms": "0"}))
    tried_by_the_consumer(group, "released")
    assert not group.partition().archived_total
    tried_by_the_consumer(group, "lost")
    assert group.partition().archived_total


def test_failures_of_consumers_count_for_queries_as_before() -> None:
    """They lead to isolation; they give nothing up in a query's hands."""
    group = GroupDriver(records=1)
    group.join("c1", query=False)
    group.run(AssignPartitions())
    for _ in range(LIMIT - 1):
        tried_by_the_consumer(group, "lost")
    group.pass_time(SESSION_MS + 1)
    group.join()
    plan = group.next().plan.plan_id
    group.start(plan)
    group.restart(plan)
    run = group.partition().runs.first().run  # type: ignore[union-attr]
    assert (run.quarantined, run.failures, run.query_failures) == (True, LIMIT, 1)
    assert not group.partition().archived_total
