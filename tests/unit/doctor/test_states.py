"""The doctor on states that the core itself came to: it names the cause of each."""

from __future__ import annotations

from string import Formatter

import pytest

import share_sink.errors
import share_source.errors
from coordinator.client.endings import tell_ending
from coordinator.core.commands import AlterConfigs
from coordinator.core.looks.description import describe_group
from coordinator.core.release_breaker import TRIES_KEPT_MS
from coordinator.protocol import errors, option_errors
from coordinator.protocol.admin_messages import DecideRecords, ListInFlight, ListPlans
from sharegroup.doctor.findings import GroupFacts
from sharegroup.doctor.rules import examine
from sharegroup.durations import time_of
from tests.support.group_driver import SESSION_MS, GroupDriver, started_plan
from tests.support.quarantine import quarantined_record, started_trial
from tests.support.sink_driver import DLQ, REJECT, RELEASE, batch, said

LIMIT = 5


class Asked:
    """Stands where a connected CoordinatorClient does."""

    def __init__(self, group: GroupDriver) -> None:
        self._group = group

    def ask_connected(self, request, answer_timeout_s, group_id):
        return self._group.run(request)


def findings(group: GroupDriver, **fields) -> dict[str, str]:
    """The sentences of the doctor about the group now, by rule."""
    facts = GroupFacts(
        description=describe_group(group.group, group.bounds(), group.now_ms),
        runs=group.run(ListInFlight(group_id="billing")).runs,
        plans=group.run(ListPlans(group_id="billing")).plans,
        now_ms=group.now_ms,
        log_starts={("orders", partition): start for partition, start in group.log_starts.items()},
        topics=frozenset({"orders", *DLQ.values()}),
        **fields,
    )
    return {finding.rule: finding.what for finding in examine(facts)}


def test_a_healthy_query_has_no_findings():
    group, plan = started_plan(10)
    assert findings(group) == {}
    group.ends[0] = 20
    group.next(plan)
    assert findings(group) == {}


def test_a_record_that_fails_always_is_named_with_its_stage():
    group, plan = quarantined_record(LIMIT, records=10)
    found = findings(group)
    assert found["record-is-poison"] == (
        f"orders-0 offset 0 failed {LIMIT} time(s), in quarantine: failed alone, and waiting for a trial."
    )
    trial = started_trial(group, plan)
    found = findings(group)
    assert found["record-is-poison"].endswith("on trial: archived if that fails too.")
    assert "query-has-no-evidence" not in found, "another batch has completed"
    group.restart(trial)
    assert "record-is-poison" not in findings(group), "it is archived"


def test_an_outage_of_a_querys_own_service_is_named():
    group, _ = quarantined_record(LIMIT, records=1)
    found = findings(group)
    assert found["query-has-no-evidence"].startswith("Query m1 has completed no batch since")
    assert "1 quarantined record(s) can't be judged" in found["query-has-no-evidence"]
    assert "outage of the query's own service" in found["query-has-no-evidence"]


def test_a_member_that_holds_locks_and_does_nothing_is_named():
    group, _ = started_plan(10)
    group.ends[0] = 20
    group.join("m2")
    other = group.next(member="m2").plan.plan_id
    group.start(other, "m2")
    group.complete(other, "m2")
    for _ in range(10):
        group.pass_time(SESSION_MS - 1_000)
        group.join("m1", process="m1-process-1")  # it lives: its heartbeats renew its locks
    found = findings(group)
    assert found["member-holds-too-long"].startswith("Member m1 has held 10 record(s) for 7 min 20 s")
    assert "member m1 has held orders-0 offsets 0 to 9" in found["start-offset-held-back"]
    assert findings(group, held_long_ms=3_600_000) == {}


def test_a_dead_letter_topic_that_is_down_is_named():
    group, plan = batch(3, **DLQ)
    group.stage(said(0, 0, REJECT, reason="no customer"))
    group.complete(plan)
    found = findings(group, dead_letters_stand_still=True)
    assert "1 record(s) of orders-0 wait for the dead letter topic" in found["dead-letters-wait"]
    assert "no dead letter is written yet of orders-0 offset 0" in found["start-offset-held-back"]
    group.file(0, 0)
    assert findings(group) == {}


def test_a_poison_that_waits_for_a_person_is_named():
    group, plan = started_plan(1, **{"share.delivery.count.limit": str(LIMIT), "share.order": "partition"})
    for _ in range(LIMIT):
        group.restart(plan)
    group.ends[0] = 10
    told = findings(group)["partition-waits"]
    assert told.startswith("1 partition(s) wait for a person: orders-0 for offset 0, delivered alone since")
    by_hand = {"decision": "archive", "topic": "orders", "partition": 0, "first": 0, "last": 0, "reason": "bad"}
    group.run(DecideRecords(group_id="billing", execute=True, **by_hand))
    assert "partition-waits" not in findings(group)


@pytest.mark.parametrize(
    ("configs", "told"),
    [
        ({}, "40 record(s) are left, all delivered before, up to 2 times. "),
        (DLQ, "5 tries goes to the dead letter topic dlq.orders."),
        ({"share.order": "partition"}, "5 record(s) can be delivered, all delivered before"),
    ],
)
def test_the_first_finding_names_a_tail_of_released_records(configs, told):
    steady = {"share.release.backoff.ms": "10000", "share.release.backoff.jitter": "0"}
    group, plan = batch(40, **steady, **configs)
    group.stage(said(0, 39, RELEASE))
    group.complete(plan)
    group.pass_time(10_000)
    group.join(process="m1-process-1")
    plan = group.next(plan).plan.plan_id
    group.start(plan)
    group.stage(said(0, 4, RELEASE, 2))
    group.complete(plan)
    found = findings(group)
    assert next(iter(found)) == "query-slowed" and told in found["query-slowed"]
    kept_until = time_of(group.now_ms + 20_000 + TRIES_KEPT_MS - 30_000)
    assert f"Releases use up no tries before {kept_until} UTC. A record that has used up " in found["query-slowed"]
    by_hand = {"decision": "archive", "topic": "orders", "partition": 0, "first": 0, "last": 39, "reason": "bad"}
    group.run(DecideRecords(group_id="billing", execute=True, **by_hand))
    assert "delivered before" not in findings(group).get("query-slowed", ""), "given up, they are gone"


def test_a_session_that_ends_before_its_query_is_back_is_named():
    group, plan = started_plan(10)
    group.run(AlterConfigs(configs={"share.session.timeout.ms": str(SESSION_MS)}))
    group.join("m2")
    group.pass_time(SESSION_MS - 1_000)
    group.join("m2", process="m2-process-1")
    group.pass_time(2_000)
    told = findings(group)["session-shorter-than-restart"]
    assert told.startswith(f"The session of query m1 ended with its batch {plan} unfinished: ")
    group.restart(plan)
    assert "session-shorter-than-restart" not in findings(group)


MODULES = {each.__name__ for each in (errors, option_errors, share_sink.errors, share_source.errors)}
NAMED = sorted((name, error) for name, error in errors.by_name().items() if error.__module__ in MODULES)


@pytest.mark.parametrize(("name", "error"), NAMED, ids=[name for name, _ in NAMED])
def test_the_first_line_is_the_error_with_which_the_query_ended(name, error):
    fields = {field for _, field, _, _ in Formatter().parse(error.__doc__ or "") if field}
    raised = error(**dict.fromkeys(fields, "x"))
    group, plan = batch(3, **DLQ)
    group.stage(said(0, 0, REJECT, reason="no customer"))
    for _ in range(4):
        client = Asked(group)
        tell_ending(client, "billing", raised, member_id="m1", member_epoch=group.epochs["m1"])
        group.pass_time(60_000)
        group.restart(plan)
    found = list(findings(group, dead_letters_stand_still=True).values())
    assert found[0].startswith(f"Query m1 has ended 4 times in 3 min: {name}: ")
    way_out = " ".join(str(raised).split())
    assert found[0].removesuffix(" It ended last 1 min ago.").endswith(way_out[-200:]), "the sentence has its way out"


def test_a_query_that_keeps_ending_without_a_word_is_named():
    group, plan = started_plan(10)
    for _ in range(3):
        group.pass_time(20_000)
        group.restart(plan)
    assert findings(group)["query-keeps-ending"] == (
        "Query m1 was started 4 times in 40 s and finished no batch; no process named an error."
    )
    group.complete(plan)
    assert findings(group) == {}
