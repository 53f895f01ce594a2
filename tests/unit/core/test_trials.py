"""◆ Trials and evidence: a quarantined record is archived only by a failed trial, and an outage is no evidence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coordinator.core.commands import Expire
from coordinator.protocol.messages import LeaveGroup
from tests.support.group_driver import SESSION_MS, GroupDriver, offsets, ranges, started_plan
from tests.support.quarantine import quarantined_plan, quarantined_record, started_trial

DEAD_LETTERS: dict[str, Any] = {"errors_deadletterqueue_topic_name": "dead", "share_poison_solo_timeout_ms": 600_000}


@pytest.mark.parametrize(("waited_ms", "trial"), [(599_999, False), (600_000, True)])
def test_a_dead_letter_topic_lets_a_trial_begin_without_evidence_in_time(waited_ms: int, trial: bool) -> None:
    group, plan = quarantined_plan()
    group.group.config = replace(group.group.config, **DEAD_LETTERS)
    assert group.partition().runs.first().run.failed_alone_ms == group.now_ms  # type: ignore[union-attr]
    group.now_ms += waited_ms
    assert not group.group.members["m1"].evidence
    group.join()
    assert group.next(plan).plan.trial == trial


def test_a_reclaimed_trial_is_still_a_trial() -> None:
    group, plan = quarantined_plan()
    group.ends[0] = 10
    other = group.next(plan)
    group.start(other.plan.plan_id)
    trial = group.next(other.plan.plan_id)
    assert trial.plan.trial
    group.join()
    again = group.acquire(other.plan.plan_id)
    assert (again.plan.plan_id, again.plan.trial) == (trial.plan.plan_id, True)
    assert group.start(trial.plan.plan_id).plan.trial


def test_a_query_that_leaves_judges_no_trial() -> None:
    group, plan = quarantined_record(records=10)
    started_trial(group, plan)
    group.run(LeaveGroup(group_id="billing", member_id="m1", member_epoch=group.epochs["m1"]))
    assert group.partition().archived_total == 0
    assert group.partition().runs.first().run.trials_lost == 1  # type: ignore[union-attr]


def test_a_trial_that_never_started_does_not_count() -> None:
    group, plan = quarantined_record(records=10)
    other = group.next(plan)
    group.start(other.plan.plan_id)
    trial = group.next(other.plan.plan_id)
    assert trial.plan.trial
    group.pass_time(SESSION_MS + 1)
    first = group.partition().runs.first()
    assert first is not None
    assert (first.run.failures, first.run.trials_lost) == (5, 0)
    assert group.restart(trial.plan.plan_id).left_out == ()
    assert group.partition().archived_total == 0


@pytest.mark.parametrize("ends", ["session", "replay"])
def test_one_quarantined_record_of_many_makes_all_evidence_old(ends: str) -> None:
    group = GroupDriver(records=1, **{"share.delivery.count.limit": "2"})
    group.join("m3")
    good = group.acquire(member="m3").plan.plan_id
    group.start(good, "m3")
    group.complete(good, "m3")
    assert group.group.members["m3"].evidence
    group.join()
    group.ends[0] = 2
    group.start(group.next().plan.plan_id)
    group.pass_time(SESSION_MS + 1)
    group.join("m2")
    group.ends[0] = 10
    mixed = group.acquire(member="m2")
    assert ranges(mixed) == [(1, 1, 2), (2, 9, 1)], "one that failed once, and fresh ones"
    group.start(mixed.plan.plan_id, "m2")
    if ends == "session":
        group.pass_time(SESSION_MS + 1)
    else:
        group.restart(mixed.plan.plan_id, "m2")
    assert len(list(group.partition().runs.quarantined())) == 1
    assert not group.group.members["m3"].evidence


def test_an_empty_batch_is_no_evidence() -> None:
    group = GroupDriver(records=5)
    group.join()
    plan = group.next().plan.plan_id
    group.start(plan)
    group.pass_time(SESSION_MS + 1)
    group.join("m2")
    taken = group.acquire(member="m2")
    assert offsets(taken) == 5
    group.join()
    group.start(plan)
    group.complete(plan)
    assert not group.group.members["m1"].evidence
    group.complete(taken.plan.plan_id, "m2")
    assert not group.group.members["m2"].evidence, "nobody read it"


def test_a_failed_trial_archives_and_uses_up_its_querys_evidence_alone() -> None:
    group, plan = quarantined_record(records=10)
    group.join("m2")
    group.ends[0] = 20
    good = group.acquire(member="m2", limit=10).plan.plan_id
    group.start(good, "m2")
    other = group.next(plan).plan.plan_id
    group.start(other)
    group.complete(good, "m2")
    trial = group.next(other)
    assert trial.plan.trial
    group.start(trial.plan.plan_id)
    assert [o.reason for o in group.restart(trial.plan.plan_id).left_out] == ["archived"]
    assert group.partition().archived_total == 1
    assert (group.group.members["m1"].evidence, group.group.members["m2"].evidence) == (False, True)


def test_no_trial_begins_without_evidence() -> None:
    group, plan = quarantined_record()
    for _ in range(12):
        taken = group.next(plan)
        assert not taken.plan.trial
        assert taken.plan.plan_id, "nothing else is there: alone"
        plan = taken.plan.plan_id
        group.start(plan)
        group.restart(plan)
        group.pass_time(31_000)
    assert group.partition().archived_total == 0


def test_a_trial_is_judged_when_its_query_comes_back() -> None:
    group, plan = quarantined_record(records=10)
    trial = started_trial(group, plan)
    group.pass_time(SESSION_MS + 1)
    assert group.partition().archived_total == 0, "Spark may have committed it"
    group.restart(trial)
    assert group.partition().archived_total == 1


def test_a_second_lost_trial_counts_as_a_failed_trial() -> None:
    group, plan = quarantined_record(records=10)
    started_trial(group, plan)
    group.pass_time(SESSION_MS + 1)
    group.join("m2")
    group.ends[0] = 12
    other = group.acquire(member="m2")
    group.start(other.plan.plan_id, "m2")
    second = group.next(other.plan.plan_id, "m2")
    assert second.plan.trial
    group.start(second.plan.plan_id, "m2")
    group.run(Expire())
    assert group.group.members["m1"].evidence
    group.pass_time(SESSION_MS + 1)
    assert group.partition().archived_total == 1
    evidence = (group.group.members["m1"].evidence, group.group.members["m2"].evidence)
    assert evidence == (True, False), "the trial used up its own query's evidence alone"


def test_quarantine_makes_all_evidence_old() -> None:
    group, plan = started_plan(2, **{"share.acquire.mode": "record_limit"})
    group.ends[0] = 3
    group.join("m2")
    late = group.acquire(member="m2").plan.plan_id
    group.start(late, "m2")
    for _ in range(5):
        group.restart(plan)
    group.complete(late, "m2")
    assert not group.group.members["m2"].evidence, "its batch began before the record was quarantined"


def test_a_record_fails_alone_before_its_trial() -> None:
    group, plan = started_plan(3, **{"share.delivery.count.limit": "2"})
    group.restart(plan)
    assert ranges(group.restart(plan)) == []
    first = group.next(plan)
    group.start(first.plan.plan_id)
    second = group.next(first.plan.plan_id)
    assert group.group.members["m1"].evidence
    assert ranges(second) == [(1, 1, 3)]
    assert not second.plan.trial
    group.start(second.plan.plan_id)
    group.restart(second.plan.plan_id)
    assert group.partition().archived_total == 0
    assert not group.group.members["m1"].evidence, "an outage may have begun"
