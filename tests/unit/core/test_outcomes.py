"""A sink's outcomes take effect when the plan completes: accept, release with its delay, reject."""

from __future__ import annotations

from coordinator.core.commands import StageRuns
from coordinator.core.record_state import RecordState
from coordinator.protocol.messages import PartitionOutcomes
from tests.support.group_driver import TOPIC_ID, UNSET, GroupDriver, acknowledged, fetched, ranges
from tests.support.sink_driver import ACCEPT, DLQ, REJECT, RELEASE, batch, run_at, said, states


def test_outcomes_of_several_partitions_are_staged_by_one_request() -> None:
    group = GroupDriver(records=5, partitions=2)
    group.join()
    plan = group.next().plan.plan_id
    group.start(plan)
    both = tuple(
        PartitionOutcomes(topic_id=TOPIC_ID, partition=p, runs=(said(p, p, RELEASE), said(4, 4, REJECT)))
        for p in (0, 1)
    )
    assert group.run(StageRuns(group_id="billing", partitions=both)).staged == 4
    group.complete(plan)
    assert [run_at(group, 0).state, group.partition(1).start_offset] == [RecordState.AVAILABLE, 1]
    assert group.partition(0).archived_total == group.partition(1).archived_total == 1


def test_by_default_a_querys_releases_wait_and_a_share_consumers_do_not() -> None:
    """A service is away for a minute: no record has used up its tries by then, with batches on end."""
    group, plan = batch(2, **UNSET)
    group.stage(said(0, 1, RELEASE))
    group.complete(plan)
    assert group.acquire(plan).plan.plan_id == ""
    waits_ms = (run_at(group, 0).not_before_ms or 0) - group.now_ms
    assert 8_000 <= waits_ms <= 12_000
    group.join("c1", query=False)
    group.pass_time(waits_ms)
    assert fetched(group, 10) == [(0, 1, 2)]
    assert acknowledged(group, 0, 1, 2, RELEASE) == {}
    assert fetched(group, 10) == [(0, 1, 3)], "as in Kafka"


def test_a_run_that_began_before_a_release_does_not_get_the_record() -> None:
    group, plan = batch(2)
    group.pass_time(1)
    began_ms = group.now_ms
    group.stage(said(0, 1, RELEASE))
    group.complete(plan)
    assert group.acquire(plan, began_ms=began_ms).plan.plan_id == "", "released at the moment at which it began"
    group.pass_time(10_000)
    assert group.acquire(plan, began_ms=began_ms).plan.plan_id == ""
    assert ranges(group.acquire(plan, began_ms=group.now_ms)) == [(0, 1, 2)]


def test_outcomes_take_effect_when_the_plan_completes() -> None:
    """The driver dies after the sink's commit and before Spark's: all is read again, and then decided once."""
    group, plan = batch(3, **DLQ)
    runs = said(0, 0, ACCEPT), said(1, 1, RELEASE), said(2, 2, REJECT)
    group.stage(*runs)
    assert group.dump() == ["[0..2] ACQUIRED 1 0 1"], "nothing yet"
    assert ranges(group.restart(plan)) == [(0, 2, 2)], "a sink that replaces its output has all of it again"
    group.stage(*(run._replace(delivery_count=2) for run in runs))
    group.complete(plan)
    assert states(group) == ["[1..1] AVAILABLE 2", "[2..2] ARCHIVING 2"]
