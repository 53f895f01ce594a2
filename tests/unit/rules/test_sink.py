"""◆ The sink: outcomes are staged and take effect with their plan, an older attempt can only veto, explicit mode burns
nothing, and nothing is archived before its dead letter is known."""

from __future__ import annotations

import pytest

from coordinator.core.commands import AlterConfigs, InitializePartitions, PartitionStart, TopicPartitions
from coordinator.core.records import encode_records
from coordinator.protocol.errors import BatchReclaimed, NothingDecided, SinkOutdated
from coordinator.protocol.messages import NextPlan
from coordinator.protocol.values import Disposition, OffsetRange
from coordinator.service.runtime import transactions
from tests.support.group_driver import SESSION_MS, TOPIC_ID, from_snapshot, ranges, started_plan
from tests.support.sink_driver import (
    ACCEPT,
    DLQ,
    EXPLICIT,
    IMPLICIT,
    REJECT,
    RELEASE,
    batch,
    run_at,
    said,
    states,
)
from tests.support.source_driver import facts, played


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
    other = group.acquire(member="m2").plan.plan_id
    group.use(other, "m2")
    group.stage(said(1, 1, RELEASE), query_id="of m2")
    group.stage(said(0, 0, RELEASE), query_id="of m1")
    for member, number in (("m1", plan), ("m2", other)):
        group.restart(number, member)
    from_snapshot(group)
    group.stage(query_id="of m2")
    assert [group.group.members[name].newest.explicit_attempts for name in ("m1", "m2")] == [(0,), (0, 1)]


def test_where_the_target_replaces_its_output_the_last_attempt_alone_counts() -> None:
    """Of an earlier attempt nothing is left, neither what it said nor what it passed over; after a load, too."""
    for configs, first, last, after in (
        ({}, ACCEPT, REJECT, ["[0..0] ARCHIVING 3"]),
        ({}, REJECT, ACCEPT, []),
        ({}, RELEASE, ACCEPT, []),
        ({}, ACCEPT, RELEASE, ["[0..0] AVAILABLE 3"]),
        ({}, REJECT, None, []),
        (EXPLICIT, None, ACCEPT, []),
        (EXPLICIT, ACCEPT, None, ["[0..0] AVAILABLE 3"]),
    ):
        group, plan = batch(2, **DLQ, **configs)
        for count, outcome in ((1, first), (2, first), (3, last)):
            if count > 1:
                group.restart(plan)
            rows = [] if outcome is None else [said(0, 0, outcome, count)]
            group.stage(*rows, said(1, 1, ACCEPT, count), replaces=True)
        from_snapshot(group)
        group.join()
        group.complete(plan)
        assert [state for state in states(group) if not state.startswith("[1")] == after, (first, last)


def test_unless_all_sinks_of_the_last_attempt_say_that_the_target_replaces_older_attempts_veto() -> None:
    """A target that skips may hold what an earlier attempt wrote, whatever was said of the target then."""
    for last in ([True, False], [False, True], [False], []):
        for configs in ({}, EXPLICIT):
            group, plan = batch(3, **DLQ, **configs)
            group.stage(said(0, 0, RELEASE), said(2, 2, RELEASE), replaces=True)
            group.restart(plan)
            for replaces in last:
                group.stage(said(0, 1, ACCEPT, 2), said(2, 2, ACCEPT, 2), replaces=replaces)
            group.complete(plan)
            assert states(group)[:1] == ["[0..2] AVAILABLE 2" if configs else "[0..0] AVAILABLE 2"], last


def test_sinks_of_one_attempt_that_disagree_release_the_record_whatever_the_target_does() -> None:
    """One of its outputs has the record, the other has not. Of an attempt before, that is nothing."""
    group, plan = batch(2, **DLQ)
    group.stage(said(0, 1, ACCEPT), replaces=True)
    group.stage(said(0, 0, REJECT), replaces=True)
    group.restart(plan)
    group.stage(said(0, 1, ACCEPT, 2), replaces=True)
    group.stage(said(1, 1, REJECT, 2), replaces=True)
    group.stage(said(1, 1, REJECT, 2), replaces=True)
    group.complete(plan)
    assert states(group) == ["[1..1] AVAILABLE 2"]


def test_a_commit_without_rows_speaks_for_the_target_of_its_own_query_alone() -> None:
    """0 was rejected; in the last attempt it is accepted by silence, and whose commit that is has to be known."""
    for query_id, after in (("q", []), ("another", ["[0..0] AVAILABLE 2"]), ("", ["[0..0] AVAILABLE 2"])):
        group, plan = batch(1, **DLQ)
        group.stage(said(0, 0, REJECT), query_id="q" if query_id else "", replaces=True)
        group.restart(plan)
        group.stage(query_id=query_id, replaces=True)
        group.complete(plan)
        assert states(group) == after


def test_a_run_is_staged_on_the_plan_that_carries_its_offset_at_its_count() -> None:
    """What another member took since the lock was lost is that member's to decide, at whatever count it is."""
    group, plan = batch(3, **DLQ, **{"share.acquire.mode": "record_limit"})
    group.pass_time(SESSION_MS + 1)
    group.join("m2")
    taken = group.next(member="m2", limit=1).plan.plan_id
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
            with pytest.raises(BatchReclaimed, match=rf"orders-0@0 \({older}\)"):
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


def test_the_mode_is_the_one_that_the_attempt_began_with() -> None:
    """The batch passed 5 to 9 over, they are in no output, and Spark committed it; or no sink said anything at all.
    Before the plan is completed the query is started again with the other mode, or another query is. Or the other way
    round: they are in the output."""
    rows = said(0, 4, ACCEPT)
    for began, then, outcomes, after in (
        (EXPLICIT, IMPLICIT, [rows], ["[5..9] AVAILABLE 1"]),
        (EXPLICIT, IMPLICIT, [], ["[0..9] AVAILABLE 1"]),
        (IMPLICIT, EXPLICIT, [rows], []),
        (IMPLICIT, EXPLICIT, [], []),
    ):
        for starts in ("m1", "m2"):
            group, plan = batch(10, **began)
            for outcome in outcomes:
                group.stage(outcome)
            group.join(starts)
            group.run(AlterConfigs(configs=then))
            from_snapshot(group)
            group.join()
            group.complete(plan)
            assert states(group) == after


def test_a_querys_own_mode_holds_for_it_whatever_another_one_sets() -> None:
    group, plan = batch(2, **EXPLICIT)
    group.complete(plan)
    plan = group.acquire(plan).plan.plan_id
    group.run(AlterConfigs(configs=IMPLICIT))  # another query of the group begins
    group.use(plan, acknowledgement_mode="explicit")
    group.stage(said(0, 0, ACCEPT, 2))
    group.complete(plan)
    assert states(group) == ["[1..1] AVAILABLE 2"]


def test_a_mode_that_the_sink_alone_has_holds_for_its_first_batch() -> None:
    """Spark makes the sink's writer when the batch has begun. One that has no rows of a batch, and whose query is not
    known yet, releases all that may be meant; it is no reason to accept anything."""
    for own, rows, after in (
        ("explicit", (said(0, 0, ACCEPT),), ["[1..1] AVAILABLE 1"]),
        ("explicit", (), ["[0..1] AVAILABLE 1"]),
        ("implicit", (said(1, 1, RELEASE),), ["[1..1] AVAILABLE 1"]),
        ("implicit", (), ["[0..1] AVAILABLE 1"]),
    ):
        group, plan = batch(2, **(IMPLICIT if own == "explicit" else EXPLICIT))
        group.stage(*rows, acknowledgement_mode=own)
        from_snapshot(group)
        group.complete(plan)
        assert states(group) == after


def test_what_an_attempt_in_explicit_mode_passed_over_is_released_in_implicit_mode_too() -> None:
    """The first attempt's output, which a target keeps that skips a batch it knows, has 0 alone; the driver died before
    Spark's commit, and the query is started again in implicit mode. What a later attempt says of 2 and 3 is no help: 2
    was passed over, and 3 since it was named."""
    group, plan = batch(4, **EXPLICIT)
    group.stage(said(0, 0, ACCEPT), said(3, 3, ACCEPT))
    group.restart(plan)
    group.stage(said(0, 0, ACCEPT, 2))
    group.run(AlterConfigs(configs=IMPLICIT))
    group.restart(plan)
    group.stage(said(2, 2, ACCEPT, 3))
    group.complete(plan)
    assert states(group) == ["[1..3] AVAILABLE 3"]


def test_gaps_are_told_apart_before_undecided_offsets_are_released() -> None:
    group, plan = batch(3, **EXPLICIT)
    group.stage(said(0, 0, ACCEPT))
    group.complete(plan, gaps=(OffsetRange(topic_id=TOPIC_ID, partition=0, first=1, last=1),))
    assert states(group) == ["[2..2] AVAILABLE 1"]


def test_explicit_mode_without_a_sink_fails_by_name_and_burns_no_delivery() -> None:
    group, plan = started_plan(3, **EXPLICIT, **DLQ)
    for _ in range(10):
        asked = NextPlan(group_id="billing", member_id="m1", member_epoch=group.epochs["m1"], start=plan)
        with pytest.raises(NothingDecided):
            played(group, transactions.next_plan(asked, facts(group)))
        assert run_at(group, 0).tries == 0
        group.join()
        again = group.acquire(plan)
        assert [r[:2] for r in ranges(again)] == [(0, 2)], "the same records"
        plan = again.plan.plan_id
        group.use(plan)


# --- dead letters


def test_nothing_is_archived_before_its_dead_letter_is_known() -> None:
    """Rejected, released at the limit: both wait, hold nobody up, and are not delivered again."""
    group, plan = batch(3, **DLQ, **{"share.delivery.count.limit": "2"})
    group.ends[0] = 6
    group.stage(said(0, 0, REJECT), said(1, 1, RELEASE))
    following = group.next(plan).plan.plan_id  # 1, a second time, and 3 to 5
    group.use(following)
    group.stage(said(1, 1, RELEASE, 2))
    group.complete(following)
    assert states(group)[:2] == ["[0..0] ARCHIVING 1", "[1..1] ARCHIVING 2"]
    assert [run_at(group, n).disposition for n in (0, 1)] == [Disposition.REJECTED, Disposition.DELIVERY_LIMIT]
    assert (group.partition().start_offset, group.partition().archived_total) == (0, 0)
    assert group.acquire(following).plan.plan_id == ""
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
