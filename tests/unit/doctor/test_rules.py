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

from coordinator.protocol.messages import AwaitedRecord
from sharegroup import configs, groups, in_flight
from sharegroup.__main__ import run as run_command
from sharegroup.cluster_options import connect_options
from sharegroup.doctor import rules
from sharegroup.doctor.command import as_object, report, shell_lines
from sharegroup.doctor.findings import ClusterFacts, Severity
from sharegroup.durations import duration
from sharegroup.progress_bar import console
from tests.support.doctor_cases import (
    ALONE,
    CASES,
    DELAYED,
    DLQ,
    FAILED_ALONE,
    HELD,
    MINUTE_MS,
    NOW_MS,
    ORDER,
    SLOWED,
    facts,
    member,
    partition,
    plan,
    run,
)

ALL_PAUSED = {"share.paused.topics": "*"}


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
def test_a_rule_names_each_member_beside_its_id(case):
    _, given, _ = CASES[case]
    for said in (text for finding in rules.examine(given) for text in (finding.what, finding.do)):
        assert said.count("billing-1") == said.count("nightly (billing-1)")


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
        facts(log_starts={("orders", 0): 10}, configs=DLQ, topics=frozenset({"orders", "dlq"})),
        facts(members=(member(active=False),), plans=(plan(state="completed"),)),
        facts(members=(member(active=False),), plans=(plan(records=0),)),
        facts([partition(lag=0)], state="UNKNOWN", members=(member(active=False),), plans=(plan(),)),
    ],
)
def test_a_healthy_group_has_no_finding(healthy):
    assert rules.examine(healthy) == []


@pytest.mark.parametrize(
    ("rule", "given"),
    [
        (rules.dead_letters_wait, facts([partition(archiving=3)], topics=frozenset({"orders"}))),
        (rules.session_is_shorter_than_restarts, facts(members=(member(active=False),), plans=(plan(),))),
        (rules.dead_letter_topic_is_reserved, facts(configs=DLQ)),
        (rules.dead_letter_topic_is_reserved, facts()),
        (rules.topics_are_paused, facts([partition(acquired=5)], configs=ALL_PAUSED)),
        (rules.nobody_consumes, facts(state="EMPTY", configs=ALL_PAUSED)),
        (rules.start_offset_is_held_back, facts(runs=(run(failures=1),), configs=ALL_PAUSED)),
        (rules.query_has_no_evidence, facts(plans=(plan(),), runs=(FAILED_ALONE,), configs=ALL_PAUSED)),
        (rules.query_is_slowed, facts(members=[member(breaker=SLOWED)], configs=ALL_PAUSED)),
        (rules.timestamp_is_ahead, facts([partition(lag=0)], ahead={("orders", 0): (12, 2 * NOW_MS)}, configs=DELAYED)),
        (rules.given_up_without_a_dead_letter, facts([partition(without_dead_letter={"rejected": 2})], configs=DLQ)),
        (rules.records_are_too_old, facts([partition(archived={"ttl": 2})])),
    ],
    ids=[
        *(
            "the topic is unset",
            "others have finished the batch",
            "its own topic",
            "no topic",
            "all paused ones are held",
        ),
        *("nobody is needed", "a paused record is not taken", "nothing is delivered", "nothing is acquired"),
        *("no record waits behind it", "a topic since then", "no ttl any more"),
    ],
)
def test_a_rule_is_silent_where_nothing_is_to_be_done(rule, given):
    assert list(rule(given)) == []


def test_a_query_that_fails_is_told_of_in_a_paused_group():
    (finding,) = rules.query_has_no_evidence(facts(plans=(plan(attempt=2),), runs=(FAILED_ALONE,), configs=ALL_PAUSED))
    assert finding.severity == Severity.ERROR


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
    assert ("There are 2 more such cases." in one.what) == (count > rules.MOST_NAMED)
    assert len({(each.rule, each.do, each.command) for each in found}) == len(found)


def screen(shown):
    """The lines that a screen of 80 columns shows."""
    console = Console(width=80, file=io.StringIO())
    console.print(shown)
    return [line.rstrip() for line in console.file.getvalue().splitlines() if line.strip()]


def test_a_duration_is_shown_in_two_units_at_most():
    shown = {-5: "0 ms", 350: "350 ms", 12_999: "12 s", 185_000: "3 min 5 s", 7_800_000: "2 h 10 min", 3_600_000: "1 h"}
    assert {time_ms: duration(time_ms) for time_ms in shown} == shown


def test_offsets_that_may_have_a_dead_letter_are_not_named() -> None:
    some = partition(without_dead_letter={"rejected": 2}, archived={"rejected": 3})
    told = facts((some,), given_up=(run(15, 16, "ARCHIVED", disposition="rejected"),))
    (finding,) = rules.given_up_without_a_dead_letter(told)
    assert "offsets 15" not in finding.what


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


def test_a_query_that_is_slowed_is_named_with_since_when_and_why():
    (finding,) = rules.query_is_slowed(facts(members=[member(breaker=SLOWED), member("billing-2")]))
    assert finding.what == (
        "Query nightly (billing-1) has acquired less and later for 1 h 30 min: its sinks released 45 of 50 records, "
        "more than share.release.breaker.ratio=0.5 of each batch. Releases use up no tries before "
        "1970-01-01 03:46:40.000 UTC."
    )


@pytest.mark.parametrize(
    ("configs", "parts", "runs"),
    [
        ({}, {"lag": 6}, [run(10, 14, delivery_count=2)]),
        ({}, {"lag": None}, [run(10, 14, delivery_count=2)]),
        ({}, {}, [run(10, 13, delivery_count=2), run(14, delivery_count=1, state="ACQUIRED")]),
        ({}, {}, [run(10, 13, delivery_count=2), run(14)]),
        (ORDER, {}, []),
        (ORDER, {}, [run(10, delivery_count=1, state="ACQUIRED"), run(11, 14, delivery_count=2)]),
    ],
    ids=["fresh", "unknown", "held first", "given back", "ordered, fresh", "ordered, held first"],
)
def test_a_group_that_can_deliver_others_has_no_tail(configs, parts, runs):
    slowed = [member(breaker=SLOWED)]
    (finding,) = rules.query_is_slowed(facts([partition(**parts)], members=slowed, configs=configs, runs=tuple(runs)))
    assert "delivered before" not in finding.what and not finding.about


@pytest.mark.parametrize(
    "waits",
    [
        {"since_ms": NOW_MS - MINUTE_MS, "member_id": "billing-1"},
        {"until_ms": NOW_MS + MINUTE_MS, "lag": 1},
        {"member_id": "billing-1", "acquired": 4, "lag": 4},
        {"until_ms": NOW_MS + MINUTE_MS, "lag": 3, "archiving": 2},
    ],
    ids=["held briefly", "alone in its partition", "the rest of a batch", "dead letters behind it"],
)
def test_a_record_that_holds_up_no_other_is_no_finding(waits):
    of_partition = {name: waits.pop(name) for name in ("lag", "acquired", "archiving") if name in waits}
    awaited = AwaitedRecord(offset=10, **{"since_ms": NOW_MS - 6 * MINUTE_MS, **waits})
    assert rules.examine(facts([partition(waits_for=awaited, **of_partition)], configs=ORDER)) == []


def test_of_a_thousand_waiting_partitions_the_longest_waits_are_named():
    awaited = [AwaitedRecord(offset=7, since_ms=NOW_MS - number) for number in range(1_000)]
    partitions = [partition(partition=number, waits_for=each) for number, each in enumerate(awaited)]
    (finding,) = rules.partition_waits(facts(partitions, configs=ORDER))
    assert finding.what.startswith("1000 partition(s) wait for released records: orders-999 for offset 7, released")
    assert finding.what.count("for offset 7") == 5
    assert finding.what.endswith("; and 995 more.")


def test_a_person_is_called_only_while_nothing_can_show_that_processing_works():
    def severities(*partitions, **fields) -> list[Severity]:
        return [each.severity for each in rules.partition_waits(facts(partitions, configs=ORDER, **fields))]

    assert severities(ALONE, plans=(plan(),)) == [Severity.ERROR]
    assert severities(ALONE, plans=(plan(evidence=True),)) == [Severity.NOTE]
    assert severities(ALONE, partition(partition=1)) == [Severity.NOTE]


def test_one_record_that_waits_for_a_person_has_one_finding():
    found = rules.examine(facts([ALONE], configs=ORDER, runs=(FAILED_ALONE,)))
    assert [finding.rule for finding in found] == ["partition-waits"]


def test_lines_in_a_pipe_end_with_their_last_word(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    found = [finding for rule, found_in, _ in CASES.values() for finding in rule(found_in)]
    console().print(report("billing", found))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > len(found) and [line for line in lines if line != line.rstrip()] == []
    assert max(map(len, lines)) <= 6 + max(max(len(each.do), len(each.what) + 9, len(each.command)) for each in found)
