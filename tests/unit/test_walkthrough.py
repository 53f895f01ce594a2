"""The protocol's stories (docs/protocol.md), each told to the core step by step."""

from __future__ import annotations

import pytest

from coordinator.protocol.errors import FencedMemberEpoch, StalePlan, StaleReceipts, UnknownMemberId
from coordinator.protocol.receipt_errors import NoneHeld
from coordinator.protocol.values import AcknowledgeType, OutcomeRun
from tests.support.group_driver import SESSION_MS, GroupDriver, offsets, ranges


def one_batch_done() -> tuple[GroupDriver, str]:
    """Story 1 up to its second batch: plan i.2 is acquired and used."""
    group = GroupDriver()
    group.join()
    first = group.next()
    group.use(first.plan.plan_id)
    second = group.next(first.plan.plan_id)
    group.use(second.plan.plan_id)
    return group, second.plan.plan_id


def test_one_micro_batch() -> None:
    group = GroupDriver()
    assert group.join() == 1
    first = group.next()
    assert first.plan.plan_id == "i.1"
    assert ranges(first) == [(0, 3999, 1)]
    assert group.dump() == ["[0..3999] ACQUIRED 1 0 1"]
    assert group.next() == first, "a plan not yet used comes back unchanged to the same process"
    assert ranges(group.use("i.1")) == [(0, 3999, 1)]
    assert ranges(group.use("i.1")) == [(0, 3999, 1)], "a self-union asks twice"
    second = group.next("i.1")
    assert ranges(second) == [(4000, 7999, 1)]
    assert group.partition().start_offset == 4000
    group.complete("i.1")
    assert group.dump() == ["[4000..7999] ACQUIRED 1 0 2"], "completing twice is harmless"


def test_restart_within_the_session_reclaims_the_batch_as_it_was() -> None:
    group, plan = one_batch_done()
    replay = group.restart(plan)
    assert ranges(replay) == [(4000, 7999, 2)]
    assert group.dump() == ["[4000..7999] ACQUIRED 2 1 2"]


def test_the_old_reader_is_fenced_by_name() -> None:
    group, plan = one_batch_done()
    group.join()
    group.epochs["m1"] = 1
    with pytest.raises(FencedMemberEpoch, match="another process joined"):
        group.use(plan)
    with pytest.raises(FencedMemberEpoch):
        group.join(process="m1-process-1")


def test_the_coordinator_dies_too() -> None:
    group, plan = one_batch_done()
    group.crash()
    group.pass_time(SESSION_MS)
    assert ranges(group.restart(plan)) == [(4000, 7999, 2)]


def test_after_an_hour_another_member_has_a_part() -> None:
    group, plan = one_batch_done()
    group.pass_time(3_600_000)
    assert group.dump() == ["[4000..7999] AVAILABLE 1 1 2"]
    group.join("m2")
    other = group.acquire(member="m2", limit=4000)
    assert ranges(other) == [(4000, 7999, 2)]
    replay = group.restart(plan)
    assert ranges(replay) == []
    assert [(o.first, o.last, o.reason) for o in replay.left_out] == [(4000, 7999, "lost")]


def test_a_batch_that_spark_committed_is_accepted_an_hour_later() -> None:
    group, plan = one_batch_done()
    group.pass_time(3_600_000)
    group.join()
    reply = group.next(plan)
    assert group.partition().start_offset == 8000
    assert ranges(reply) == [(8000, 9999, 1)]


def test_a_plan_acquired_but_not_logged_is_reclaimed_without_failure() -> None:
    group, plan = one_batch_done()
    lost = group.next(plan)
    group.join()
    again = group.next(plan)
    assert again.plan.plan_id == lost.plan.plan_id
    assert ranges(again) == [(8000, 9999, 2)]
    assert group.dump() == ["[8000..9999] ACQUIRED 2 0 3"]


def test_rolled_back_checkpoints_are_refused_by_name() -> None:
    group, plan = one_batch_done()
    with pytest.raises(StalePlan, match=r"i\.2 was delivered and not completed"):
        group.acquire("i.1")
    with pytest.raises(StalePlan, match="rolled back"):
        group.use("i.1")
    group.next(plan)
    with pytest.raises(StalePlan):
        group.acquire("i.1")
    with pytest.raises(StalePlan):
        group.restart("i.2")


def test_poison_story() -> None:
    """Story 3: a UDF raises on 5000; the query fails and is restarted each time."""
    group, plan = one_batch_done()
    assert ranges(group.restart(plan)) == [(4000, 7999, 2)]
    third = group.restart(plan)
    assert ranges(third) == [(4000, 6153, 3)], "the slice of c = 3"
    assert group.dump() == ["[4000..6153] ACQUIRED 3 2 2", "[6154..7999] AVAILABLE 2 2 -"]
    fourth = group.restart(plan)
    assert ranges(fourth) == [(4000, 4045, 4)], "the slice of c = 4"
    assert "[4046..6153] AVAILABLE 3 3 -" in group.dump()
    plan = group.next(plan).plan.plan_id
    assert group.dump()[0] == "[4046..4091] ACQUIRED 4 3 3", "slices of 46, oldest first, and nothing else with them"
    assert group.partition().end_offset == 8000
    group.use(plan)
    left, archived_at = drain(group, plan, poison=5000)
    assert left == 0
    assert archived_at == 5000
    assert group.partition().start_offset == 10_000
    assert group.partition().archived_total == 1


def drain(group: GroupDriver, start: str, poison: int, limit: int = 500) -> tuple[int, int]:
    """Go on as a job scheduler would until nothing is left; what was archived."""
    for _ in range(limit):
        plan = group.next(start)
        if not plan.plan.plan_id:
            break
        start = plan.plan.plan_id
        taken = group.use(start)
        tries = 0
        while any(first <= poison <= last for first, last, _ in ranges(taken)):
            tries += 1
            assert tries < 10
            taken = group.restart(start)
    return group.partition().end_offset - group.partition().start_offset, poison


def test_a_lapsed_session_comes_back_naming_its_epoch() -> None:
    group, plan = one_batch_done()
    group.pass_time(SESSION_MS + 1)
    with pytest.raises(UnknownMemberId):
        group.use(plan)
    assert offsets(group.restart(plan)) == 4000


def a_sink_decides() -> tuple[GroupDriver, str, tuple[OutcomeRun, ...]]:
    """Story 4: plan i.3 has 8000 to 9999; a sink has staged what its rows say."""
    group = GroupDriver(**{"errors.deadletterqueue.topic.name": "dlq.orders"})
    group.join()
    plan = ""
    for _ in range(3):
        plan = group.next(plan).plan.plan_id
        group.use(plan)
    assert group.dump() == ["[8000..9999] ACQUIRED 1 0 3"]
    rows = (
        OutcomeRun(8000, 8000, 1, AcknowledgeType.ACCEPT),
        OutcomeRun(8001, 8001, 1, AcknowledgeType.RELEASE, delay_ms=60_000),
        OutcomeRun(8002, 8002, 1, AcknowledgeType.REJECT, letter=True),
        OutcomeRun(8003, 9999, 1, AcknowledgeType.ACCEPT),
    )
    assert group.stage(*rows).staged == 2_000
    assert group.dump() == ["[8000..9999] ACQUIRED 1 0 3"], "nothing took effect yet"
    return group, plan, rows


def test_a_sink_decides_and_the_plan_completes() -> None:
    group, plan, _ = a_sink_decides()
    assert group.next(plan).plan.plan_id == ""
    assert group.dump() == [
        "[8001..8001] AVAILABLE 1 0 -",
        "[8002..8002] ARCHIVED 1 0 -",
        "[8003..9999] ACKNOWLEDGED 1 0 -",
    ]
    group.pass_time(60_000)
    group.join(process="m1-process-1")
    assert ranges(group.acquire(plan)) == [(8001, 8001, 2)]


def test_a_replay_stages_again_and_where_it_disagrees_the_record_is_released() -> None:
    for first in (AcknowledgeType.RELEASE, AcknowledgeType.ACCEPT):
        group, plan, rows = a_sink_decides()
        assert ranges(group.restart(plan)) == [(8000, 9999, 2)], "8001 too: nothing took effect"
        again = [row._replace(delivery_count=2) for row in rows]
        again[1] = again[1]._replace(outcome=first)
        group.stage(*again)
        group.complete(plan)
        assert group.dump()[0] == "[8001..8001] AVAILABLE 2 1 -"


def test_a_late_acknowledgement_is_refused() -> None:
    group, plan, rows = a_sink_decides()
    group.complete(plan)
    group.pass_time(60_000)
    group.join(process="m1-process-1")
    group.use(group.acquire(plan).plan.plan_id)
    with pytest.raises(StaleReceipts):
        group.stage(rows[1], fail_on_stale=True)
    with pytest.raises(NoneHeld):
        group.stage(rows[1])
