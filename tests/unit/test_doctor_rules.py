"""The doctor's rules: each names its cause where it is there, and is silent where it is not."""

from __future__ import annotations

import dataclasses
import io
import shlex

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from coordinator.protocol.admin_messages import PlanInFlight, RunInFlight
from coordinator.protocol.messages import (
    GroupDescription,
    MemberDescription,
    PartitionDescription,
    RecordCounts,
    ReleaseBreaker,
)
from sharegroup import configs, groups, in_flight
from sharegroup.__main__ import run as run_command
from sharegroup.cluster_options import connect_options
from sharegroup.doctor import rules
from sharegroup.doctor.command import as_object, report, shell_lines
from sharegroup.doctor.findings import ClusterFacts, GroupFacts, Severity
from sharegroup.durations import duration

NOW_MS = 10_000_000
MINUTE_MS = 60_000
DLQ = {"errors.deadletterqueue.topic.name": "dlq"}


def partition(**fields):
    base = {"topic": "orders", "topic_id": "T", "partition": 0, "start_offset": 10, "end_offset": 20, "lag": 5}
    return PartitionDescription(**{**base, "acquired": 0, "archived_total": 0, **fields})


def run(first=10, last=None, state="AVAILABLE", **fields):
    where = {"topic": "orders", "topic_id": "T", "partition": 0}
    return RunInFlight(**where, first=first, last=first if last is None else last, state=state, **fields)


def plan(**fields):
    base = {
        "plan_id": "i.1",
        "member_id": "billing-1",
        "query_id": "q",
        "state": "started",
        "acquired_ms": NOW_MS - 5_000,
    }
    return PlanInFlight(**{**base, "records": 4, "held": 4, "attempt": 0, **fields})


def member(member_id="billing-1", active=True, **fields):
    return MemberDescription(member_id=member_id, member_epoch=1, active=active, **fields)


def facts(partitions=None, *, state="STABLE", configs=None, members=None, records=None, **fields):
    members = [member()] if members is None else members
    description = GroupDescription(
        group_id="billing",
        state=state,
        incarnation="i",
        partitions=tuple(partitions or [partition()]),
        members=tuple(members),
        members_total=len(members),
        configs=configs or {},
        records=records or RecordCounts(),
    )
    return GroupFacts(description=description, now_ms=NOW_MS, **fields)


HELD = {"state": "ACQUIRED", "member_id": "billing-1", "client_host": "host-1", "since_ms": NOW_MS - 6 * MINUTE_MS}
FAILED_ALONE = run(stage="failed alone", failures=5)

CASES = {
    "start-offset-held-back: a released record": (
        rules.start_offset_is_held_back,
        facts(runs=(run(not_before_ms=NOW_MS + 30_000, releases=1),)),
        ["orders-0 stays at 10, and 9 later offsets", "offset 10, released, comes again in 30 s"],
    ),
    "start-offset-held-back: a quarantined record": (
        rules.start_offset_is_held_back,
        facts(runs=(FAILED_ALONE,)),
        ["offset 10, in quarantine: failed alone"],
    ),
    "start-offset-held-back: a dead letter": (
        rules.start_offset_is_held_back,
        facts(runs=(run(state="ARCHIVING"),), dead_letters_stand_still=True),
        ["no dead letter is written yet of orders-0 offset 10"],
    ),
    "start-offset-held-back: a member": (
        rules.start_offset_is_held_back,
        facts(runs=(run(**HELD),)),
        ["member billing-1 has held orders-0 offset 10"],
    ),
    "start-offset-held-back: nobody takes it": (
        rules.start_offset_is_held_back,
        facts(runs=(run(failures=1),)),
        ["no member has taken orders-0 offset 10 again"],
    ),
    "record-is-poison": (
        rules.record_is_poison,
        facts(runs=(FAILED_ALONE,)),
        [
            "orders-0 offset 10 failed 5 time(s)",
            "waiting for a trial",
            "it has no dead letter",
            "sharegroup groups --archive-records --bootstrap-server localhost:9092 --group billing --topic orders:0 "
            "--offset 10-10 --reason 'it failed alone, 5 time(s)' --execute",
        ],
    ),
    "record-is-poison: with a dead letter topic": (
        rules.record_is_poison,
        facts(runs=(FAILED_ALONE,), configs=DLQ),
        ["give it up with this command; its dead letter goes to dlq."],
    ),
    "record-is-poison: in a slice": (
        rules.record_is_poison,
        facts(runs=(run(10, 19, stage="sliced", failures=3),)),
        ["Then wait: it is delivered alone in the end", "--topic orders --partition 0 --offset 10 --max-messages 1"],
    ),
    "member-holds-too-long": (
        rules.member_holds_too_long,
        facts(runs=(run(10, 13, **HELD), run(15, 15, **{**HELD, "since_ms": NOW_MS - 7 * MINUTE_MS}))),
        [
            "Member billing-1 on host-1 has held 5 record(s) for 7 min",
            "orders-0 offset 15 first",
            "sharegroup groups --release-member --bootstrap-server localhost:9092 --group billing --member billing-1 "
            "--execute",
        ],
    ),
    "query-has-no-evidence": (
        rules.query_has_no_evidence,
        facts(runs=(FAILED_ALONE,), plans=(plan(attempt=2), plan(member_id="billing-2", evidence=True))),
        [
            "Query billing-1 has completed no batch",
            "came back to its batch 2 time(s)",
            "outage of the query's own service",
            "Nothing is archived meanwhile.",
        ],
    ),
    "query-has-no-evidence: by time, since the group has a dead letter topic": (
        rules.query_has_no_evidence,
        facts(runs=(FAILED_ALONE,), plans=(plan(),), configs=DLQ),
        ["Nothing is archived meanwhile, for share.poison.solo.timeout.ms=600000."],
    ),
    "dead-letters-wait: the topic is not there": (
        rules.dead_letters_wait,
        facts([partition(archiving=3)], configs=DLQ, topics=frozenset({"orders"})),
        ["3 record(s) of orders-0 wait for the dead letter topic dlq, which does not exist", "--create --topic dlq"],
    ),
    "dead-letters-wait: none is written": (
        rules.dead_letters_wait,
        facts([partition(archiving=3)], configs=DLQ, topics=frozenset({"dlq"}), dead_letters_stand_still=True),
        ["wait for the dead letter topic dlq, and none was written in 5 s", "--describe --topic dlq"],
    ),
    "nobody-consumes": (
        rules.nobody_consumes,
        facts(state="EMPTY", members=()),
        ["no member with a session, and 5 record(s) of orders-0"],
    ),
    "nobody-consumes: no coordinator runs": (
        rules.nobody_consumes,
        facts(state="UNKNOWN", members=(member(active=False),)),
        ["No coordinator of the group runs here; 5 record(s) of orders-0 wait", "sharegroup groups --describe"],
    ),
    "topic-missing": (
        rules.topic_is_missing,
        facts(
            members=[
                member(topics=("orders", "ordres")),
                member("billing-2", topics=("ordres",)),
                member("billing-3", active=False, topics=("old",)),
            ],
            topics=frozenset({"orders"}),
        ),
        ["2 member(s), billing-1 first, subscribe to topic ordres", "Correct the name"],
    ),
    "start-offset-below-log-start": (
        rules.start_offset_is_below_the_log,
        facts(log_starts={("orders", 0): 14}),
        ["log of orders-0 begins at 14 and the group's start offset is 10", "up to 4 record(s)"],
    ),
    "session-shorter-than-restart": (
        rules.session_is_shorter_than_restarts,
        facts(members=(member(active=False),), plans=(plan(),), runs=(run(last=12, plan_id="i.1"),)),
        [
            "session of query billing-1 ended with its batch i.1 unfinished",
            "3 record(s) of it",
            "nothing is to be done",
        ],
    ),
    "given-up-without-dead-letter": (
        rules.given_up_without_a_dead_letter,
        facts((partition(without_dead_letter={"rejected": 2, "delivery_limit": 3}),)),
        ["5 record(s) of orders-0 were given up (3 delivery limit, 2 rejected)", "errors.deadletterqueue.topic.name"],
    ),
    "given-up-without-dead-letter: the last offsets are known": (
        rules.given_up_without_a_dead_letter,
        facts(
            (partition(without_dead_letter={"rejected": 3}, archived={"rejected": 3, "none": 2}),),
            given_up=(
                run(12, state="ARCHIVED"),
                run(15, 16, "ARCHIVED", disposition="rejected"),
                run(18, state="ARCHIVED"),
            ),
        ),
        ["3 record(s) of orders-0 were given up (3 rejected; the last of orders-0 at offsets 15 to 16)"],
    ),
    "given-up-without-dead-letter: of a deleted topic": (
        rules.given_up_without_a_dead_letter,
        facts(
            (partition(without_dead_letter={"rejected": 2}),), records=RecordCounts(without_dead_letter={"rejected": 9})
        ),
        ["9 record(s) of orders-0 and topics or offsets that were deleted (7) were given up (9 rejected)"],
    ),
    "dead-letter-topic-reserved": (
        rules.dead_letter_topic_is_reserved,
        facts((partition(archiving=4),), configs={"errors.deadletterqueue.topic.name": "share-group-state"}),
        ["dead letter topic share-group-state is one of Kafka's", "4 record(s) wait", "billing-dead-letters"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_rule_names_its_cause_and_its_remedy(case):
    rule, found_in, says = CASES[case]
    (finding,) = rule(found_in)
    assert finding.rule == case.partition(":")[0]
    assert finding.do
    told = " ".join(as_object("billing", finding).values())
    for part in says:
        assert part in told


@pytest.mark.parametrize("case", CASES)
def test_a_command_of_a_finding_can_be_pasted(case, monkeypatch, capsys):
    def opened(*arguments, **more):
        raise click.ClickException("the command line is accepted")

    for module in (configs, groups, in_flight):
        monkeypatch.setattr(module, "opened", opened)
    rule, found_in, _ = CASES[case]
    (finding,) = rule(found_in)
    program, *arguments = shlex.split(finding.command)
    if program == "sharegroup":
        assert run_command(arguments) == 1
        assert capsys.readouterr().err == "sharegroup: the command line is accepted\n"
    else:
        assert program in ("kafka-topics.sh", "kafka-configs.sh", "kafka-console-consumer.sh")


def test_a_command_connects_as_the_doctor_did_and_shows_no_secret():
    given = {"share.coordinator.endpoint": "host:9394", "sasl.password": "geheim", "security.protocol": "SASL_SSL"}
    words = connect_options("my files/client.properties", given)
    (finding,) = rules.member_holds_too_long(facts(runs=(run(**HELD),), connect_options=words))
    assert "--command-config 'my files/client.properties'" in finding.command
    assert "--command-property share.coordinator.endpoint=host:9394" in finding.command
    assert "--command-property security.protocol=SASL_SSL" in finding.command
    assert "sasl.password=" in finding.command
    assert "geheim" not in finding.command
    assert connect_options(None, {}) == ()


WORDS = st.lists(st.text(min_size=1, max_size=12).filter(lambda word: "\n" not in word), min_size=1, max_size=20)


@given(WORDS, st.integers(10, 60))
def test_a_command_in_several_lines_is_the_same_to_a_shell(words, width):
    lines = shell_lines(shlex.join(words), width)
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == words, "a shell removes a backslash and line end"
    most = max(len(shlex.quote(word)) for word in words) + len("   \\")
    assert all(len(part) <= max(width, most) for part in lines)


@pytest.mark.parametrize(
    "healthy",
    [
        facts([partition(lag=0)], state="EMPTY", members=()),
        facts([partition(end_offset=11)], runs=(run(),)),
        facts(runs=(run(**{**HELD, "since_ms": NOW_MS - MINUTE_MS}),)),
        facts(runs=(run(**{**HELD, "last_signal_ms": NOW_MS - MINUTE_MS, "state": "IN_PROGRESS"}),)),
        facts(runs=(run(10, 19),)),
        facts(plans=(plan(),)),
        facts(log_starts={("orders", 0): 10}, configs=DLQ, topics=frozenset()),
        facts(members=(member(active=False),), plans=(plan(state="completed"),)),
        facts(members=(member(active=False),), plans=(plan(records=0),)),
        facts([partition(lag=0)], state="UNKNOWN", members=(member(active=False),), plans=(plan(),)),
    ],
)
def test_a_healthy_group_has_no_finding(healthy):
    assert rules.examine(healthy) == []


def test_groups_of_one_name_in_two_stores_are_named():
    stores = {"kafka": frozenset({"billing", "audit"}), "sqlite:s.db": frozenset({"billing"})}
    (finding,) = rules.examine_cluster(ClusterFacts(stores=stores))
    assert "2 groups named billing, in the stores kafka and sqlite:s.db" in finding.what
    assert finding.command.endswith("--group billing --command-property share.state.store=sqlite:s.db")


def test_a_state_topic_below_its_minimum_in_sync_is_named():
    topic = {"state_topic": "share-group-state", "min_in_sync": 2}
    (finding,) = rules.examine_cluster(ClusterFacts(**topic, in_sync={0: 2, 1: 1, 2: 0}))
    assert "2 of 3 partitions of the state topic share-group-state" in finding.what
    assert "(partitions 1, 2)" in finding.what
    assert rules.examine_cluster(ClusterFacts(**topic, in_sync={0: 2})) == []


def test_topics_that_no_list_limits_are_named_with_their_keys():
    keys = ("share.coordinator.source.topics", "share.coordinator.dead.letter.topics")
    (finding,) = rules.examine_cluster(ClusterFacts(open_keys=keys))
    assert (finding.rule, finding.severity) == ("topics-wide-open", Severity.WARNING)
    assert all(key in finding.what for key in keys) and "token file" in finding.do
    (finding,) = rules.examine_cluster(ClusterFacts(open_keys=keys[1:]))
    assert keys[0] not in finding.what
    assert rules.examine_cluster(ClusterFacts()) == []


def test_the_worst_findings_come_first_and_fit_a_screen():
    found = rules.examine(
        facts([partition(archiving=1)], state="EMPTY", configs=DLQ, runs=(FAILED_ALONE, run(12, **HELD)))
    )
    severities = [finding.severity for finding in found]
    assert severities == sorted(severities, key=list(Severity).index)
    assert {Severity.ERROR, Severity.WARNING, Severity.NOTE} == set(severities)
    assert max(map(len, screen(report("billing", found)))) <= 80
    assert screen(report("audit", [])) == ["Group audit", "  nothing is wrong"]


@pytest.mark.parametrize("count", [1, 2, rules.MOST_NAMED, rules.MOST_NAMED + 2])
def test_findings_of_several_partitions_with_one_way_out_are_one(count):
    numbers = range(count)
    log_starts = {("orders", number): 14 for number in numbers}
    found = rules.examine(facts([partition(partition=number) for number in numbers], log_starts=log_starts))
    (one,) = [finding for finding in found if finding.rule == "start-offset-below-log-start"]
    named = [number for number in numbers if f"The log of orders-{number} begins at 14" in one.what]
    assert len(named) == min(count, rules.MOST_NAMED)
    assert ("The same is so 2 more time(s)." in one.what) == (count > rules.MOST_NAMED)
    assert len({(each.rule, each.do, each.command) for each in found}) == len(found)


def screen(shown):
    """The lines that a screen of 80 columns shows."""
    console = Console(width=80, file=io.StringIO())
    console.print(shown)
    return [line.rstrip() for line in console.file.getvalue().splitlines() if line.strip()]


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (-5, "0 ms"),
        (350, "350 ms"),
        (12_999, "12 s"),
        (185_000, "3 min 5 s"),
        (7_800_000, "2 h 10 min"),
        (3_600_000, "1 h"),
    ],
)
def test_a_duration_is_shown_in_two_units_at_most(time_ms, text):
    assert duration(time_ms) == text


def test_no_topic_is_missing_where_the_group_names_none() -> None:
    """The group unset its topic while records waited, and the coordinator archives them."""
    assert not list(rules.dead_letters_wait(facts([partition(archiving=3)], topics=frozenset({"orders"}))))


def test_a_batch_that_others_have_finished_is_no_finding() -> None:
    assert list(rules.session_is_shorter_than_restarts(facts(members=(member(active=False),), plans=(plan(),)))) == []


def test_offsets_that_may_have_a_dead_letter_are_not_named() -> None:
    some = partition(without_dead_letter={"rejected": 2}, archived={"rejected": 3})
    told = facts((some,), given_up=(run(15, 16, "ARCHIVED", disposition="rejected"),))
    (finding,) = rules.given_up_without_a_dead_letter(told)
    assert "offsets 15" not in finding.what


def test_a_dead_letter_topic_of_the_groups_own_is_no_finding() -> None:
    assert not list(rules.dead_letter_topic_is_reserved(facts(configs=DLQ)))
    assert not list(rules.dead_letter_topic_is_reserved(facts()))


def test_a_dead_letter_topic_ends_the_finding_about_records_without_one() -> None:
    given_up = (partition(without_dead_letter={"rejected": 2}),)
    assert list(rules.given_up_without_a_dead_letter(facts(given_up, configs=DLQ))) == []


@pytest.mark.parametrize("later_ms", [60 * MINUTE_MS, 24 * 60 * MINUTE_MS, 7 * 24 * 60 * MINUTE_MS])
def test_no_remedy_and_no_finding_depends_on_how_late_one_looks(later_ms) -> None:
    """The rules about a holder without progress say how long that is: their remedies are the same, however long."""
    of_time = "start-offset-held-back: a released record"  # its delay is over by then, and nobody has taken it
    for case, (rule, found_in, _) in CASES.items():
        if case == of_time:
            continue
        later = dataclasses.replace(found_in, now_ms=found_in.now_ms + later_ms)
        before = [(each.rule, each.severity, each.do, each.command) for each in rule(found_in)]
        after = [(each.rule, each.severity, each.do, each.command) for each in rule(later)]
        assert after in (before, []), case


SLOWED = ReleaseBreaker(since_ms=NOW_MS - 90 * MINUTE_MS, until_ms=NOW_MS + MINUTE_MS, released=45, records=50)


def test_a_query_that_is_slowed_is_named_with_since_when_and_why():
    (finding,) = rules.query_is_slowed(facts(members=[member(breaker=SLOWED), member("billing-2")]))
    assert finding.what == (
        "Query billing-1 has acquired less and later for 1 h 30 min: its sinks released 45 of 50 records, more than "
        "share.release.breaker.ratio=0.5 of each batch. Releases use up no tries."
    )
