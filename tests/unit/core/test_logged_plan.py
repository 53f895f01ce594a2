"""◆ The plan in Spark's log is compared with the group's plan before anything of a start is appended."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from coordinator.config.resolved import ServerConfig
from coordinator.core.commands import StartOrReclaimPlan
from coordinator.core.commands.acquisition import MAX_RANGES
from coordinator.core.commands.logged_plan import check_held, check_missing
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.errors import DataLoss, InvalidRequest, PlanDiffersFromLog
from coordinator.protocol.format_versions import SPARK_OFFSET
from coordinator.protocol.messages import JoinGroup, LeftOut, PartitionPlan, Plan, PlanReply, StartPlan
from coordinator.protocol.values import AcquiredRange
from coordinator.protocol.wire import decode_request, encode
from share_source.driver.plan_offset import PlanOffset, plan_offset
from share_source.errors import UnreadableOffset
from tests.support.group_driver import SESSION_MS, GroupDriver, durable_state, ranges
from tests.support.quarantine import quarantined_record, started_trial
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
    start = StartOrReclaimPlan(
        group_id="billing",
        member_id="m1",
        member_epoch=1,
        plan_id="i.7",
        logged=offset.partitions(),
        acquired_here=acquired_here,
    )
    group = ShareGroup("billing")
    check_held(group, start, parts)
    check_missing(group, start, PlanReply(plan=plan(*parts), **fields))


WHOLE = LOGGED.partitions()


def test_a_logged_plan_parses_back_to_its_ranges() -> None:
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
        ([part((0, 9, 1), topic_id="U")], "topic orders has the id T in the checkpoint, and U in the group's plan"),
        (
            [part((0, 19, 1)), *WHOLE[1:]],
            "orders-0 offsets 10 to 19 have the delivery count 2 in the checkpoint, and 1 in the group's plan",
        ),
    ],
)
def test_an_answer_beyond_the_log_is_refused_by_name(
    answered: list[PartitionPlan], named: str, acquired_here: bool
) -> None:
    with pytest.raises(PlanDiffersFromLog, match=named) as raised:
        check(*answered, acquired_here=acquired_here)
    text = str(pickle.loads(pickle.dumps(raised.value)))
    assert all(word in text for word in ("i.7", "billing", "m1", "new checkpointLocation", "backup"))


@pytest.mark.parametrize(
    ("in_log", "named"),
    [
        ((), "nothing of this partition"),
        ((0, 2, 4), "0 to 0, 2 to 2, 4 to 4"),
        ((0, 2, 4, 6), "0 to 0, 2 to 2, 4 to 4 and more"),
    ],
)
def test_a_refusal_names_the_first_three_ranges_of_the_log(in_log: tuple[int, ...], named: str) -> None:
    parts = (part(*((offset, offset, 1) for offset in in_log)),) if in_log else ()
    with pytest.raises(PlanDiffersFromLog, match=rf"the checkpoint does not \(it holds {named}\)"):
        check(part((50, 50, 1)), offset=logged(*parts))


@pytest.mark.parametrize("offset", [0, 5, 9, 10, 15, 19, 20, 25, 29])
def test_a_lower_delivery_count_is_found_in_any_range_of_the_log(offset: int) -> None:
    """A group restored from a backup would hand out receipts of before a second time."""
    in_log = logged(part((0, 9, 2), (10, 19, 3), (20, 29, 4)))
    count = 2 + offset // 10
    check(part((offset, offset, count)), offset=in_log, acquired_here=False)
    named = f"orders-0 offsets {offset} to {offset} have the delivery count {count} .* and {count - 1} in"
    with pytest.raises(PlanDiffersFromLog, match=named):
        check(part((offset, offset, count - 1)), offset=in_log)


def test_the_acquiring_process_refuses_a_missing_range_without_a_reason() -> None:
    told = "orders-0 offsets 4 to 6, and the group's plan neither holds them nor says why it leaves them out"
    with pytest.raises(PlanDiffersFromLog, match=told):
        check(part((0, 3, 1), (7, 19, 2)), *WHOLE[1:])
    with pytest.raises(PlanDiffersFromLog, match="bills-0 offsets 7 to 8"):
        check(*WHOLE[:2])
    with pytest.raises(PlanDiffersFromLog, match="orders-0 offsets 6 to 6"):
        check(part((0, 3, 1), (7, 19, 2)), *WHOLE[1:], left_out=(left_out(4, 5, "lost"),))
    with pytest.raises(PlanDiffersFromLog, match="orders-0 offsets 4 to 6"):
        check(part((0, 3, 1), (7, 19, 2)), *WHOLE[1:], left_out=(left_out(4, 6, "lost", partition=1),))


def test_a_later_process_may_miss_ranges_that_earlier_answers_left_out() -> None:
    check(part((0, 3, 2), (7, 19, 3)), acquired_here=False)
    check(acquired_here=False)


@pytest.mark.parametrize("reason", ["lost", "cut", "quarantined", "archived", "unsubscribed"])
def test_missing_offsets_with_a_reason_pass(reason: str) -> None:
    check(part((0, 3, 2), (7, 19, 3)), *WHOLE[1:], left_out=(left_out(4, 6, reason),))
    check(part((0, 3, 2), (7, 19, 3)), *WHOLE[1:], data_loss=(left_out(0, 6, "data_loss"),))


def test_a_summed_up_loss_explains_every_missing_range_that_it_may_cover() -> None:
    check(part((0, 0, 2)), *WHOLE[1:], left_out=(left_out(1, 19, "lost", count=12),))
    check(part((0, 0, 2)), *WHOLE[1:], data_loss=(left_out(1, 1, "end_unknown", count=0),))
    unnamed = left_out(-1, -1, "lost", topic="", topic_id="", partition=-1, count=40)
    check(part((0, 0, 2)), left_out=(unnamed,))


@pytest.mark.parametrize("wrong", [((9, 5, 1),), ((10, 19, 1), (0, 9, 1)), ((0, 9, 1), (9, 12, 1))])
def test_logged_ranges_that_are_reversed_or_overlap_are_refused(wrong: tuple[tuple[int, int, int], ...]) -> None:
    start = StartOrReclaimPlan(
        group_id="billing", member_id="m1", member_epoch=1, plan_id="i.7", logged=(part(*wrong),)
    )
    with pytest.raises(InvalidRequest, match="orders-0 are not ascending and disjoint"):
        check_held(ShareGroup("billing"), start, ())


# --- with a real group


def refused_unchanged(group: GroupDriver, plan_id: str, *logged: PartitionPlan, **fields: Any) -> None:
    """A start that says this log is refused, and the group is as before, also what a snapshot of it holds."""
    before = (durable_state(group.group), list(group.log), group.dump())
    with pytest.raises(PlanDiffersFromLog):
        group.start(plan_id, logged=logged, **fields)
    assert (durable_state(group.group), group.log, group.dump()) == before


def test_a_start_that_differs_from_the_log_changes_nothing() -> None:
    """◆ Each refused restart would else count as a failed delivery."""
    group = GroupDriver(records=100)
    group.join()
    plan_id = group.next().plan.plan_id
    refused_unchanged(group, plan_id, part((0, 49, 1)))
    group.start(plan_id, logged=(part((0, 99, 1)),), acquired_here=True)
    for _ in range(10):
        group.join()
        refused_unchanged(group, plan_id, part((0, 49, 1)))
    assert group.dump() == ["[0..99] ACQUIRED 1 0 1"]
    assert ranges(group.restart(plan_id, logged=(part((0, 99, 1)),))) == [(0, 99, 2)]


def test_a_plan_on_trial_that_differs_from_the_log_is_not_archived() -> None:
    """◆ A replay of a trial archives its record, which nobody would have read."""
    group, number = quarantined_record(records=10)
    trial = started_trial(group, number)
    group.join()
    refused_unchanged(group, trial, part((1, 9, 1)))
    assert group.dump()[0] == "[0..0] ACQUIRED 6 5 3"
    assert (group.restart(trial).plan.partitions, group.partition().archived_total) == ((), 1)


def test_a_missing_range_without_a_reason_changes_nothing() -> None:
    """◆ Its records would be accepted with the batch, and nobody has read them."""
    group = GroupDriver(records=100)
    group.join()
    plan_id = group.next().plan.plan_id
    refused_unchanged(group, plan_id, part((0, 109, 1)), acquired_here=True)
    group.start(plan_id, logged=(part((0, 109, 1)),))


def test_a_superseded_plan_reports_nothing_beyond_its_log() -> None:
    group = GroupDriver(records=100)
    group.join("m1")
    first = group.acquire(limit=60).plan.plan_id
    group.pass_time(SESSION_MS + 1)
    group.join("m2")
    group.acquire(member="m2", limit=60)
    group.join("m1")
    assert group.acquire().plan.plan_id != first
    refused_unchanged(group, first, part((0, 59, 1)), acquired_here=True)
    assert group.start(first, logged=(part((0, 59, 1)),)).plan.partitions == ()


def test_the_largest_logged_plan_fits_in_a_request() -> None:
    """10,000 scattered ranges of the largest numbers, each in a partition of the longest topic name."""
    most = 2**63 - 1
    ranges_of_one = tuple(AcquiredRange(most - 2 * n - 1, most - 2 * n, 32_767) for n in range(MAX_RANGES))
    one_each = tuple(
        PartitionPlan(topic="t" * 249, topic_id="T" * 22, partition=2**31 - n, ranges=ranges_of_one[n : n + 1])
        for n in range(1, MAX_RANGES + 1)
    )
    for logged_plan in ((PartitionPlan(topic="t", topic_id="T", partition=0, ranges=ranges_of_one),), one_each):
        start = StartPlan(group_id="g", member_id="m", member_epoch=1, plan_id="i.7", logged=logged_plan)
        body = encode(start)
        assert len(body) * 10 < ServerConfig.parse().socket_request_max_bytes
        assert decode_request("StartPlan", body) == start


def test_the_reader_sends_its_log_with_the_start() -> None:
    client = DriverClient(GroupDriver(records=100))
    with reading(client) as source:
        start = source.initialOffset()
        end = source.latestOffset(start, LIMIT)
        source.partitions(start, end)
    read_in(client, start, end)
    sent = [(request.logged, request.acquired_here) for request in client.of(StartPlan)]
    held = PlanOffset.parse(end, "billing").partitions()
    assert sent == [(held, True), (held, False)]


def read_in(client: DriverClient, start: Any, end: Any, **options: str) -> list[tuple[int, int, int]]:
    """The ranges that the tasks of a new process read."""
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


def test_a_replay_of_another_plan_fails_before_a_record_is_read() -> None:
    client, start, end = begun(GroupDriver(records=100))
    end["plan"]["orders"]["0"] = "0-49:1"
    with pytest.raises(PlanDiffersFromLog, match="orders-0 offsets 50 to 59"):
        read_in(client, start, end)


def test_a_restored_group_that_repeats_a_plan_id_is_refused() -> None:
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


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_replay_after_data_loss_passes(fails: str) -> None:
    client, start, end = begun(GroupDriver(records=100), failOnDataLoss="false")
    client.group.move_log_start(30)
    assert read_in(client, start, end, failOnDataLoss="false") == [(30, 59, 2)]
    assert read_in(client, start, end, failOnDataLoss=fails) == [(30, 59, 3)]


def lapse(client: DriverClient) -> None:
    """The session ends and another member takes what it can."""
    client.group.pass_time(SESSION_MS + 1)
    client.group.join("m2")
    client.group.acquire(member="m2", limit=10)


def lapse_and_lose_data(client: DriverClient) -> None:
    client.group.pass_time(SESSION_MS + 1)
    client.group.move_log_start(20)


@pytest.mark.parametrize("between", [lapse, lapse_and_lose_data])
def test_an_answer_that_was_lost_and_asked_for_again_later_passes(between: Callable[[DriverClient], None]) -> None:
    """◆ The plan was started by the request whose answer was lost; the second answer names what it lost since."""
    client = DriverClient(GroupDriver(records=100, **STRICT))
    with reading(client, failOnDataLoss="false") as source:
        start = source.initialOffset()
        end = source.latestOffset(start, LIMIT)
        client.group.epochs[end["member"]] = 1
        client.group.start(end["plan_id"], member=end["member"])
        between(client)
        assert source.partitions(start, end)


def test_a_lost_report_of_data_loss_is_answered_whole_again() -> None:
    """The start that reports losses is not the plan's start; what it left out is also missing from the next answer."""
    client = DriverClient(GroupDriver(records=100, **STRICT))
    with reading(client) as source:
        start = source.initialOffset()
        end = source.latestOffset(start, LIMIT)
        client.group.move_log_start(20)
        client.group.pass_time(SESSION_MS + 1)
        client.group.join("m2")
        client.group.acquire(member="m2", limit=10)
        client.group.epochs[end["member"]] = 1
        process = client.group.group.members[end["member"]].process_id
        client.group.run(JoinGroup(group_id="billing", member_id=end["member"], process_id=process, member_epoch=1))
        lost = client.group.start(end["plan_id"], member=end["member"])
        assert lost.data_loss and lost.left_out
        with pytest.raises(DataLoss):
            source.partitions(start, end)


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
