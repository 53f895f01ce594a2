"""◆ The sink: outcomes are staged and take effect with their plan, an older attempt can only veto, explicit mode burns
nothing, and nothing is archived before its dead letter is known."""

from __future__ import annotations

import pytest

from coordinator.core.commands import Gap, InitializePartitions, PartitionStart, TopicPartitions
from coordinator.core.records import encode_records
from coordinator.protocol.errors import BatchTakenUp, NothingDecided, SinkOutdated
from coordinator.protocol.messages import NextPlan
from coordinator.protocol.values import Disposition
from coordinator.service.runtime import transactions as scripts
from tests.unit.group_driver import SESSION_MS, TOPIC_ID, ranges
from tests.unit.rules.source_driver import facts, played
from tests.unit.rules.test_plans import used_plan
from tests.unit.sink_driver import ACCEPT, DLQ, EXPLICIT, REJECT, RELEASE, batch, from_snapshot, run_at, said, states


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


def test_what_was_staged_is_durable_before_spark_commits() -> None:
    """Spark committed; the coordinator died before the plan was completed: the rejected record is not accepted."""
    group, plan = batch(3, **DLQ)
    group.stage(said(2, 2, REJECT))
    group.crash()
    group.complete(plan)
    assert states(group) == ["[2..2] ARCHIVING 1"]


def test_a_replay_reads_again_what_a_sink_has_already_decided() -> None:
    group, plan = batch(3)
    group.stage(said(0, 1, ACCEPT), said(2, 2, REJECT))
    assert ranges(group.restart(plan)) == [(0, 2, 2)]


def test_the_last_attempts_outcome_counts() -> None:
    """Its reason and its delay, too."""
    group, plan = batch(2, **DLQ)
    group.stage(said(0, 0, REJECT, reason="at first"), said(1, 1, RELEASE, delay_ms=1_000))
    group.restart(plan)
    group.stage(said(0, 0, REJECT, 2, reason="at last"), said(1, 1, RELEASE, 2, delay_ms=9_000))
    group.complete(plan)
    assert run_at(group, 0).reason == "at last"
    assert run_at(group, 1).not_before_ms == group.now_ms + 9_000


def test_attempts_that_disagree_release_the_record() -> None:
    for first, last in ((ACCEPT, REJECT), (REJECT, ACCEPT)):
        group, plan = batch(1, **DLQ)
        group.stage(said(0, 0, first))
        group.restart(plan)
        group.stage(said(0, 0, last, 2))
        group.complete(plan)
        assert states(group) == ["[0..0] AVAILABLE 2"], "one attempt's output has it, the other's has not"


def test_silence_of_the_last_attempt_is_an_outcome() -> None:
    """The first attempt rejected; the second, which Spark committed, had no such row: its output has the record."""
    for configs in ({}, EXPLICIT):
        group, plan = batch(1, **DLQ, **configs)
        group.stage(said(0, 0, REJECT))
        group.restart(plan)
        group.complete(plan)
        assert states(group) == ["[0..0] AVAILABLE 2"]


def test_an_older_attempt_that_agrees_with_silence_vetoes_nothing() -> None:
    group, plan = batch(1, **DLQ)
    group.stage(said(0, 0, ACCEPT))
    group.restart(plan)
    group.complete(plan)
    assert group.partition().start_offset == 1


def test_what_an_older_attempt_passed_over_in_explicit_mode_is_released() -> None:
    """Its output, which a target keeps that skips a batch it knows, has no such record. After a load, too, where that
    attempt's sink had nothing at all to say, and when the last one's request is repeated."""
    for rows in ((said(1, 1, ACCEPT),), ()):
        group, plan = batch(2, **DLQ, **EXPLICIT)
        group.stage(*rows)
        group.restart(plan)
        from_snapshot(group)
        group.join()
        group.use(plan)
        for _ in range(2):
            group.stage(said(0, 0, ACCEPT, 3), *(row._replace(delivery_count=3) for row in rows))
        group.complete(plan)
        assert run_at(group, 0).state.name == "AVAILABLE"


def test_what_was_accepted_and_then_passed_over_in_explicit_mode_is_released() -> None:
    group, plan = batch(2, **EXPLICIT)
    group.stage(said(0, 1, ACCEPT))
    group.restart(plan)
    group.stage(said(1, 1, ACCEPT, 2))
    group.restart(plan)
    group.stage(said(0, 1, ACCEPT, 3))
    group.complete(plan)
    assert states(group) == ["[0..0] AVAILABLE 3", "[1..1] ACKNOWLEDGED 3"]


def test_an_older_attempt_in_which_no_sink_spoke_vetoes_nothing() -> None:
    """Its driver died before, and a target that skips is written to after the sink's commit."""
    group, plan = batch(2, **EXPLICIT)
    group.restart(plan)
    group.stage(said(0, 1, ACCEPT, 2))
    group.stage(said(0, 1, ACCEPT, 2))
    group.complete(plan)
    assert group.partition().start_offset == 2


def test_nothing_said_is_said_for_the_sinks_own_query() -> None:
    """Two queries of one group are in a batch; Spark's query id, known from rows before, says whose a commit without
    rows is, after a load as well."""
    group, plan = batch(1, **EXPLICIT)
    group.join("m2")
    group.ends[0] = 2
    other = group.acquire(member="m2").plan.number
    group.use(other, "m2")
    group.stage(said(1, 1, RELEASE), query_id="of m2")
    group.stage(said(0, 0, RELEASE), query_id="of m1")
    for member, number in (("m1", plan), ("m2", other)):
        group.restart(number, member)
    from_snapshot(group)
    group.stage(query_id="of m2")
    assert [group.group.members[name].newest.spoke for name in ("m1", "m2")] == [(0,), (0, 1)]


def test_a_run_is_staged_on_the_plan_that_carries_its_offset_at_its_count() -> None:
    """What another member took since the lock was lost is that member's to decide, at whatever count it is."""
    group, plan = batch(3, **DLQ, **{"share.acquire.mode": "record_limit"})
    group.pass_time(SESSION_MS + 1)
    group.join("m2")
    taken = group.next(member="m2", limit=1).plan.number
    group.use(taken, member="m2")
    group.join()
    staged = group.stage(said(0, 2, REJECT, 1))
    assert (staged.staged, staged.stale) == (2, 1)
    group.complete(plan)
    assert states(group) == ["[0..0] ACQUIRED 2", "[1..2] ARCHIVING 1"]


def test_a_driver_whose_batch_was_taken_up_since_is_refused() -> None:
    """It was stopped, and its successor died: if it went on to commit what it wrote, 0 would be accepted, 1 nowhere.
    However often the batch was taken up, and after a load."""
    group, plan = batch(3, **DLQ)
    for count in (1, 2):
        group.restart(plan)
        for older in range(1, count + 1):
            with pytest.raises(BatchTakenUp, match=rf"orders-0@0 \({older}\)"):
                group.stage(said(0, 0, REJECT, older), said(1, 1, RELEASE, older), said(2, 2, ACCEPT, older))
        group.log = encode_records(group.group.snapshot())
        group.crash()
    group.stage(said(0, 0, REJECT, 3), said(1, 1, RELEASE, 3), said(2, 2, ACCEPT, 3))
    group.complete(plan)
    assert states(group) == ["[0..0] ARCHIVING 3", "[1..1] AVAILABLE 3", "[2..2] ACKNOWLEDGED 3"]


def test_a_sink_from_before_decides_nothing() -> None:
    """Receipts of the group, or of the topic, that was deleted and made anew look like those of now."""
    group, _ = batch(3)
    with pytest.raises(SinkOutdated):
        group.stage(said(0, 2, REJECT), incarnation="before", topic_ids={"orders": TOPIC_ID})
    group.run(
        InitializePartitions(
            topics=(TopicPartitions(topic="orders", topic_id="T2", partitions=1),),
            starts=(PartitionStart(topic_id="T2", partition=0, start_offset=0),),
        )
    )
    with pytest.raises(SinkOutdated):
        group.stage(said(0, 2, REJECT), incarnation="i", topic_ids={"orders": TOPIC_ID})


def test_a_snapshot_appends_staged_outcomes_again() -> None:
    """Loaded from a snapshot alone, a disagreement is known, and what was rejected is rejected."""
    group, plan = batch(3, **DLQ)
    group.stage(said(0, 0, ACCEPT), said(1, 1, REJECT))
    group.restart(plan)
    group.stage(said(0, 0, REJECT, 2), said(1, 1, REJECT, 2))
    group.log = encode_records(group.group.snapshot())
    group.crash()
    group.complete(plan)
    assert states(group) == ["[0..0] AVAILABLE 2", "[1..1] ARCHIVING 2", "[2..2] ACKNOWLEDGED 2"]


# --- explicit mode


def test_explicit_mode_releases_what_no_sink_decided() -> None:
    group, plan = batch(3, **EXPLICIT)
    group.stage(said(1, 1, ACCEPT))
    group.complete(plan)
    assert states(group) == ["[0..0] AVAILABLE 1", "[1..1] ACKNOWLEDGED 1", "[2..2] AVAILABLE 1"]
    assert run_at(group, 0).releases == 1


def test_gaps_are_told_apart_before_undecided_offsets_are_released() -> None:
    group, plan = batch(3, **EXPLICIT)
    group.stage(said(0, 0, ACCEPT))
    group.complete(plan, gaps=(Gap(topic_id=TOPIC_ID, partition=0, first=1, last=1),))
    assert states(group) == ["[2..2] AVAILABLE 1"]


def test_explicit_mode_without_a_sink_fails_by_name_and_burns_no_delivery() -> None:
    group, plan = used_plan(3, **EXPLICIT, **DLQ)
    for _ in range(10):
        asked = NextPlan(group_id="billing", member_id="m1", member_epoch=group.epochs["m1"], start=plan)
        with pytest.raises(NothingDecided):
            played(group, scripts.next_plan(asked, facts(group)))
        assert run_at(group, 0).tries == 0
        group.join()
        again = group.acquire(plan)
        assert [r[:2] for r in ranges(again)] == [(0, 2)], "the same records"
        plan = again.plan.number
        group.use(plan)


# --- dead letters


def test_nothing_is_archived_before_its_dead_letter_is_known() -> None:
    """Rejected, released at the limit: both wait, hold nobody up, and are not delivered again."""
    group, plan = batch(3, **DLQ, **{"share.delivery.count.limit": "2"})
    group.ends[0] = 6
    group.stage(said(0, 0, REJECT), said(1, 1, RELEASE))
    following = group.next(plan).plan.number  # 1, a second time, and 3 to 5
    group.use(following)
    group.stage(said(1, 1, RELEASE, 2))
    group.complete(following)
    assert states(group)[:2] == ["[0..0] ARCHIVING 1", "[1..1] ARCHIVING 2"]
    assert [run_at(group, n).disposition for n in (0, 1)] == [Disposition.REJECTED, Disposition.DELIVERY_LIMIT]
    assert (group.partition().start_offset, group.partition().archived_total) == (0, 0)
    assert group.acquire(following).plan.number == ""
    group.crash()
    group.file(0, 0)
    group.file(1, 1, count=2)
    assert (group.partition().start_offset, group.partition().archived_total) == (6, 2)


def test_retention_takes_no_record_out_of_the_dead_letter_queue() -> None:
    """The original is gone; that it was given up is told all the same."""
    group, plan = batch(3, **DLQ)
    group.stage(said(0, 1, REJECT))
    group.complete(plan)
    group.move_log_start(3)
    assert states(group) == ["[0..1] ARCHIVING 1"]
    group.file(0, 1)
    assert states(group) == []
