"""The plan in Spark's log is compared with the coordinator's answer before any record is read."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from coordinator.protocol.format_versions import SPARK_OFFSET
from coordinator.protocol.messages import LeftOut, PartitionPlan, Plan, PlanReply
from coordinator.protocol.values import AcquiredRange
from share_source.errors import PlanDiffersFromLog, UnreadableOffset
from share_source.plan_check import check_plan
from share_source.plan_offset import PlanOffset, plan_offset
from tests.support.group_driver import SESSION_MS, TOPIC_ID, GroupDriver
from tests.support.quarantine import quarantined_record
from tests.support.source_driver import DriverClient, reading

LIMIT = ReadMaxRows(60)
STRICT = {"share.acquire.mode": "record_limit"}
"""Another member takes as many records as it asks for, not a whole run of them."""


def part(
    *ranges: tuple[int, int, int], topic: str = "orders", topic_id: str = "T", partition: int = 0
) -> PartitionPlan:
    acquired = tuple(AcquiredRange(*r) for r in ranges)
    return PartitionPlan(topic=topic, topic_id=topic_id, partition=partition, ranges=acquired)


def plan(*parts: PartitionPlan) -> Plan:
    return Plan(plan_id="i.7", partitions=parts)


def left_out(first: int, last: int, reason: str, **fields: Any) -> LeftOut:
    of = {"topic": "orders", "topic_id": "T", "partition": 0, "count": last - first + 1, **fields}
    return LeftOut(first=first, last=last, reason=reason, **of)


def logged(*parts: PartitionPlan) -> PlanOffset:
    return PlanOffset.parse(plan_offset("billing", "m1", plan(*parts)), "billing")


LOGGED = logged(
    part((0, 9, 1), (10, 19, 2)), part((5, 5, 3), partition=1), part((7, 8, 1), topic="bills", topic_id="B")
)


def check(*parts: PartitionPlan, acquired_here: bool = True, offset: PlanOffset = LOGGED, **fields: Any) -> None:
    check_plan(offset, PlanReply(plan=plan(*parts), **fields), acquired_here=acquired_here)


WHOLE = LOGGED.partitions()


def test_the_log_is_read_as_it_was_written() -> None:
    assert PlanOffset.parse(plan_offset("billing", "m1", plan(*WHOLE)), "billing").partitions() == WHOLE
    assert logged().partitions() == ()


@pytest.mark.parametrize("broken", [7, {"orders": 7}, {"orders": {"0": "0-9:1"}}, {"orders": {"id": "T", "0": "0-9"}}])
def test_ranges_that_this_source_did_not_write_are_refused_by_name(broken: Any) -> None:
    offset = PlanOffset.parse(
        {"version": SPARK_OFFSET, "group": "billing", "member": "m1", "plan_id": "i.7", "plan": broken}, "billing"
    )
    with pytest.raises(UnreadableOffset, match=r"i\.7"):
        check(offset=offset)


@pytest.mark.parametrize("acquired_here", [True, False])
@pytest.mark.parametrize(
    ("answered", "named"),
    [
        ([part((0, 20, 2)), *WHOLE[1:]], "orders-0 offsets 20 to 20.*it holds 0 to 9, 10 to 19"),
        ([part((100, 119, 2))], "orders-0 offsets 100 to 119"),
        ([*WHOLE, part((0, 0, 1), partition=2)], "orders-2 offsets 0 to 0.*nothing of this partition"),
        ([*WHOLE, part((0, 0, 1), topic="more", topic_id="M")], "more-0 offsets 0 to 0"),
        ([part((0, 9, 1), topic_id="U")], "topic orders has the id T in the checkpoint, and U"),
        ([part((0, 19, 1)), *WHOLE[1:]], "orders-0 offsets 10 to 19 have the delivery count 2 .* and 1"),
    ],
)
def test_an_answer_beyond_the_log_is_refused_by_name(
    answered: list[PartitionPlan], named: str, acquired_here: bool
) -> None:
    with pytest.raises(PlanDiffersFromLog, match=named) as raised:
        check(*answered, acquired_here=acquired_here)
    text = str(pickle.loads(pickle.dumps(raised.value)))
    assert all(word in text for word in ("i.7", "billing", "m1", "new checkpointLocation", "backup"))


def test_a_missing_range_without_a_reason_is_refused_in_the_process_that_acquired_it() -> None:
    with pytest.raises(PlanDiffersFromLog, match="orders-0 offsets 4 to 6"):
        check(part((0, 3, 1), (7, 19, 2)), *WHOLE[1:])
    with pytest.raises(PlanDiffersFromLog, match="bills-0 offsets 7 to 8"):
        check(*WHOLE[:2])
    with pytest.raises(PlanDiffersFromLog, match="orders-0 offsets 6 to 6"):
        check(part((0, 3, 1), (7, 19, 2)), *WHOLE[1:], left_out=(left_out(4, 5, "lost"),))
    with pytest.raises(PlanDiffersFromLog, match="orders-0 offsets 4 to 6"):
        check(part((0, 3, 1), (7, 19, 2)), *WHOLE[1:], left_out=(left_out(4, 6, "lost", partition=1),))


def test_a_later_process_may_miss_what_the_answers_before_left_out() -> None:
    check(part((0, 3, 2), (7, 19, 3)), acquired_here=False)
    check(acquired_here=False)


@pytest.mark.parametrize("reason", ["lost", "cut", "quarantined", "archived", "unsubscribed"])
def test_missing_offsets_with_a_reason_pass(reason: str) -> None:
    check(part((0, 3, 2), (7, 19, 3)), *WHOLE[1:], left_out=(left_out(4, 6, reason),))
    check(part((0, 3, 2), (7, 19, 3)), *WHOLE[1:], data_loss=(left_out(0, 6, "data_loss"),))


def test_losses_that_are_summed_up_explain_all_that_they_may_mean() -> None:
    check(part((0, 0, 2)), *WHOLE[1:], left_out=(left_out(1, 19, "lost", count=12),))
    check(part((0, 0, 2)), *WHOLE[1:], data_loss=(left_out(1, 1, "end_unknown", count=0),))
    unnamed = left_out(-1, -1, "lost", topic="", topic_id="", partition=-1, count=40)
    check(part((0, 0, 2)), left_out=(unnamed,))


# --- with a real group


def read_in(client: DriverClient, start: Any, end: Any, **options: str) -> list[tuple[int, int, int]]:
    """What the tasks of a new process read."""
    with reading(client, **options) as source:
        tasks: Any = source.partitions(start, end)
        return [tuple(r) for task in tasks for part in task.task.partitions for r in part.ranges]


def begun(group: GroupDriver, **options: str) -> tuple[DriverClient, Any, Any]:
    """A query whose first process logged a plan, read it, and died."""
    client = DriverClient(group)
    with reading(client, **options) as source:
        start = source.initialOffset()
        end = source.latestOffset(start, LIMIT)
        source.partitions(start, end)
    return client, start, end


def test_a_replay_passes_with_the_counts_that_rose() -> None:
    client, start, end = begun(GroupDriver(records=100))
    assert read_in(client, start, end) == [(0, 59, 2)]
    assert read_in(client, start, end) == [(0, 59, 3)]


def test_a_replay_of_another_plan_fails_before_a_record_is_read() -> None:
    client, start, end = begun(GroupDriver(records=100))
    end["plan"]["orders"]["0"] = "0-49:1"
    with pytest.raises(PlanDiffersFromLog, match="orders-0 offsets 50 to 59"):
        read_in(client, start, end)


def test_a_group_that_was_restored_and_gave_the_plan_id_again_is_found_out() -> None:
    """The backup is of before the plan; the records below it were acquired by others since."""
    _, start, end = begun(GroupDriver(records=100))
    member_id = end["member"]
    restored = GroupDriver(records=100)
    restored.join("m2")
    restored.join(member_id)
    restored.acquire(member="m2", limit=30)
    reply = restored.acquire(member=member_id, limit=60)
    forged = {**end, "plan_id": reply.plan.plan_id}
    with pytest.raises(PlanDiffersFromLog, match="orders-0 offsets 60 to 89"):
        read_in(DriverClient(restored), start, forged)


def test_a_replay_after_records_were_lost_to_another_member_passes() -> None:
    client, start, end = begun(GroupDriver(records=100, **STRICT))
    lapse(client)
    assert read_in(client, start, end) == [(10, 59, 2)]
    assert read_in(client, start, end) == [(10, 59, 3)], "the second answer does not name them any more"


def test_replays_that_isolation_cuts_and_quarantines_pass_to_the_end() -> None:
    client, start, end = begun(GroupDriver(records=10_000), **{"share.delivery.count.limit": "5"})
    sizes = [sum(last - first + 1 for first, last, _ in read_in(client, start, end)) for _ in range(7)]
    assert sizes[0] == 60 and sizes[-1] == 0 and sorted(sizes, reverse=True) == sizes, sizes
    assert 1 in sizes or 46 in sizes, "isolation cut the plan"


def test_a_failed_trial_passes_as_an_empty_batch() -> None:
    group, number = quarantined_record()
    member_id = next(iter(group.epochs))
    reply = group.next(number)
    end = plan_offset("billing", member_id, reply.plan)
    client, start = DriverClient(group), {"version": SPARK_OFFSET, "group": "billing", "member": member_id}
    assert read_in(client, start, end), "the delivery that fails"
    assert [read_in(client, start, end) for _ in range(2)] == [[], []]


def test_a_replay_of_a_topic_that_is_not_subscribed_any_more_passes_as_an_empty_batch() -> None:
    client, start, end = begun(GroupDriver(records=100))
    client.unsubscribed = frozenset({TOPIC_ID})
    assert [read_in(client, start, end) for _ in range(2)] == [[], []]


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_replay_after_data_loss_passes(fails: str) -> None:
    client, start, end = begun(GroupDriver(records=100), failOnDataLoss="false")
    client.group.move_log_start(30)
    assert read_in(client, start, end, failOnDataLoss="false") == [(30, 59, 2)]
    assert read_in(client, start, end, failOnDataLoss=fails) == [(30, 59, 3)]


def test_data_loss_before_the_first_start_passes_in_the_process_that_acquired() -> None:
    client = DriverClient(GroupDriver(records=100))
    with reading(client, failOnDataLoss="false") as source:
        start = source.initialOffset()
        end = source.latestOffset(start, LIMIT)
        client.group.move_log_start(30)
        assert source.partitions(start, end)


def lapse(client: DriverClient) -> None:
    """The session ends and another member takes what it can."""
    client.group.pass_time(SESSION_MS + 1)
    client.group.join("m2")
    client.group.acquire(member="m2", limit=10)


def lapse_and_lose_data(client: DriverClient) -> None:
    client.group.pass_time(SESSION_MS + 1)
    client.group.move_log_start(20)


@pytest.mark.parametrize("between", [lapse, lapse_and_lose_data])
def test_a_session_that_lapsed_between_acquire_and_start_passes(between: Callable[[DriverClient], None]) -> None:
    client = DriverClient(GroupDriver(records=100, **STRICT))
    with reading(client, failOnDataLoss="false") as source:
        start = source.initialOffset()
        end = source.latestOffset(start, LIMIT)
        between(client)
        assert source.partitions(start, end)


@pytest.mark.parametrize("between", [lapse, lapse_and_lose_data])
def test_an_answer_that_was_lost_and_asked_for_again_later_passes(between: Callable[[DriverClient], None]) -> None:
    """◆ The plan was started by the request whose answer was lost; the second answer names what it lost since."""
    client = DriverClient(GroupDriver(records=100, **STRICT))
    with reading(client, failOnDataLoss="false") as source:
        start = source.initialOffset()
        end = source.latestOffset(start, LIMIT)
        client.group.epochs[end["member"]] = 1
        client.group.use(end["plan_id"], member=end["member"])
        between(client)
        assert source.partitions(start, end)


def test_a_superseded_plan_that_comes_back_passes_as_an_empty_batch() -> None:
    """A driver that had been stopped logs its plan after its successor acquired another one instead."""
    client = DriverClient(GroupDriver(records=100))
    with reading(client) as stopped:
        start = stopped.initialOffset()
        end = stopped.latestOffset(start, LIMIT)
    client.group.pass_time(SESSION_MS + 1)
    client.group.join("m2")
    client.group.acquire(member="m2", limit=60)
    with reading(client) as successor:
        assert successor.latestOffset(start, LIMIT)["plan_id"] != end["plan_id"]
    assert read_in(client, start, end) == []
