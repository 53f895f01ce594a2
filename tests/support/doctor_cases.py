"""Groups of each of which a rule of the doctor finds one thing."""

from __future__ import annotations

import msgspec

from coordinator.config.group_keys import DELIVERY_DELAY, PAUSED, RATE, RECORD_TTL
from coordinator.protocol.admin_messages import PlanInFlight, RunInFlight
from coordinator.protocol.messages import (
    AwaitedRecord,
    GroupDescription,
    MemberDescription,
    PartitionDescription,
    QueryEnding,
    RecordCounts,
    ReleaseBreaker,
)
from sharegroup.doctor import rules
from sharegroup.doctor.findings import GroupFacts

NOW_MS = 10_000_000
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
DELAYED = {DELIVERY_DELAY: str(HOUR_MS)}
DLQ = {"errors.deadletterqueue.topic.name": "dlq"}


def partition(**fields):
    base = {"topic": "orders", "topic_id": "T", "partition": 0, "start_offset": 10, "end_offset": 20, "lag": 5}
    return PartitionDescription(**{**base, "acquired": 0, "archived_total": 0, **fields})


def run(first=10, last=None, state="AVAILABLE", **fields):
    where = {"topic": "orders", "topic_id": "T", "partition": 0}
    return RunInFlight(**{**where, **fields}, first=first, last=first if last is None else last, state=state)


def plan(**fields):
    base = {
        "plan_id": "i.1",
        "member_id": "billing-1",
        "query_id": "q",
        "client_id": "nightly",
        "state": "started",
        "acquired_ms": NOW_MS - 5_000,
    }
    return PlanInFlight(**{**base, "records": 4, "held": 4, "attempt": 0, **fields})


def member(member_id="billing-1", active=True, **fields):
    return MemberDescription(member_id=member_id, member_epoch=1, active=active, client_id="nightly", **fields)


def facts(partitions=None, *, state="STABLE", configs=None, members=None, records=None, limited_by="", **fields):
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
        limited_by=limited_by,
    )
    return GroupFacts(description=description, now_ms=NOW_MS, **fields)


SLOWED = ReleaseBreaker(
    since_ms=NOW_MS - 90 * MINUTE_MS,
    until_ms=NOW_MS + MINUTE_MS,
    released=45,
    records=50,
    tries_kept_until_ms=NOW_MS + 60 * MINUTE_MS,
)
HOLDER = {"member_id": "billing-1", "client_id": "nightly", "client_host": "host-1"}
HELD = {**HOLDER, "state": "ACQUIRED", "since_ms": NOW_MS - 6 * MINUTE_MS}
FAILED_ALONE = run(stage="failed alone", failures=5)

ENDED = QueryEnding(
    times=4,
    first_ms=NOW_MS - 5 * MINUTE_MS,
    last_ms=NOW_MS - 2 * MINUTE_MS,
    error="DeadLetterTopicMissing",
    text="Dead letter topic dlq does not exist. Create it.",
)

ORDER = {"share.order": "partition"}


def waiting(**fields):
    """A partition whose record 10 holds up others."""
    return partition(waits_for=AwaitedRecord(offset=10, **{"since_ms": NOW_MS - 6 * MINUTE_MS, **fields}))


ALONE = waiting(stage="failed alone", tries=5)
CASES = {
    "query-keeps-ending": (
        rules.query_keeps_ending,
        facts(members=[member(active=False, ending=ENDED)], configs=DLQ, topics=frozenset({"orders"})),
        [
            "Query nightly (billing-1) has ended 4 times in 3 min: DeadLetterTopicMissing: Dead letter topic dlq does "
            "not exist. Create it.",
            "It ended last 2 min ago",
            "kafka-topics.sh --bootstrap-server localhost:9092 --create --topic dlq",
        ],
    ),
    "query-keeps-ending: once, with another error": (
        rules.query_keeps_ending,
        facts(members=[member(ending=QueryEnding(times=1, first_ms=NOW_MS, last_ms=NOW_MS, error="X", text="Do y."))]),
        ["Query nightly (billing-1) has ended: X: Do y.", "groups --describe", "--members"],
    ),
    "query-keeps-ending: without a word": (
        rules.query_keeps_ending,
        facts(members=[member(ending=msgspec.structs.replace(ENDED, error="", text="", runs=True))]),
        ["Query nightly (billing-1) was started 5 times in 3 min and finished no batch", "log of the query's driver"],
    ),
    "start-offset-held-back: a released record": (
        rules.start_offset_is_held_back,
        facts(runs=(run(not_before_ms=NOW_MS + 30_000, releases=1),)),
        ["orders-0 stays at 10, and 9 later offsets", "offset 10, released, is available in 30 s"],
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
        ["member nightly (billing-1) has held orders-0 offset 10"],
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
        ["give it up; its dead letter goes to dlq."],
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
            "Member nightly (billing-1) on host-1 has held 5 record(s) for 7 min",
            "The longest held are orders-0 offset 15.",
            "sharegroup groups --release-member --bootstrap-server localhost:9092 --group billing --member billing-1 "
            "--execute",
        ],
    ),
    "query-has-no-evidence": (
        rules.query_has_no_evidence,
        facts(runs=(FAILED_ALONE,), plans=(plan(attempt=2), plan(member_id="billing-2", evidence=True))),
        [
            "Query nightly (billing-1) has completed no batch",
            "came back to its batch 2 time(s)",
            "outage of the query's own service",
            "Until that is mended, no quarantined record is archived.",
        ],
    ),
    "query-has-no-evidence: by time, since the group has a dead letter topic": (
        rules.query_has_no_evidence,
        facts(runs=(FAILED_ALONE,), plans=(plan(),), configs=DLQ),
        ["no quarantined record is archived, or not before share.poison.solo.timeout.ms=600000."],
    ),
    "dead-letters-wait: none waits yet": (
        rules.dead_letters_wait,
        facts(configs=DLQ, topics=frozenset({"orders"})),
        ["dead letter topic dlq does not exist", "queries with a sink end", "--create --topic dlq"],
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
        ["2 member(s), nightly (billing-1) first, subscribe to topic ordres", "Correct the name"],
    ),
    "topic-missing: of a group at rest": (
        rules.topic_is_missing,
        facts(state="EMPTY", members=(), topics=frozenset({"payments"})),
        ["has read topic orders, and the cluster does not have it", "--records"],
    ),
    "topics-paused": (
        rules.topics_are_paused,
        facts([partition(acquired=2), partition(topic="refunds")], configs={PAUSED: "orders"}),
        ["3 record(s) of orders-0 wait", "share.paused.topics=orders", "sharegroup groups --resume", "--group billing"],
    ),
    "limit-used-up": (
        rules.limit_is_used_up,
        facts(
            [partition(), partition(topic="refunds")],
            configs={RATE: "200", PAUSED: "refunds"},
            limited_by=RATE,
        ),
        ["5 record(s) of orders-0 wait: share.max.records.per.second=200 is used up now", "sharegroup in-flight"],
    ),
    "timestamp-ahead": (
        rules.timestamp_is_ahead,
        facts(ahead={("orders", 0): (12, NOW_MS + 3 * HOUR_MS)}, configs=DELAYED),
        [
            "orders-0 offset 12 has the timestamp 1970-01-01 05:46:40 UTC, 3 h ahead of the clock",
            "By share.delivery.delay.ms=3600000 no record from it on is first delivered before 1970-01-01 06:46:40 UTC",
            "sharegroup configs set",
            "share.delivery.delay.ms=0",
        ],
    ),
    "timestamp-ahead: with a ttl": (
        rules.timestamp_is_ahead,
        facts(ahead={("orders", 0): (12, NOW_MS + 3 * HOUR_MS)}, configs={RECORD_TTL: "60000"}),
        ["By share.record.ttl.ms=60000 no record from it on is given up before 1970-01-01 05:47:40 UTC."],
    ),
    "timestamp-ahead: microseconds": (
        rules.timestamp_is_ahead,
        facts(ahead={("orders", 0): (12, NOW_MS * 1000)}, configs=DELAYED),
        ["has the timestamp 1970-04-26 17:46:40 UTC, microseconds taken for milliseconds."],
    ),
    "timestamp-ahead: nanoseconds": (
        rules.timestamp_is_ahead,
        facts(ahead={("orders", 0): (12, NOW_MS * 1_000_000)}, configs=DELAYED),
        ["nanoseconds taken for milliseconds."],
    ),
    "start-offset-below-log-start: of a paused topic": (
        rules.start_offset_is_below_the_log,
        facts(log_starts={("orders", 0): 14}, configs={PAUSED: "*"}),
        ["Its topic is paused: resume it."],
    ),
    "record-is-poison: of a paused topic": (
        rules.record_is_poison,
        facts(runs=(FAILED_ALONE,), configs={PAUSED: "orders"}),
        ["It is not delivered while its topic is paused."],
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
            "session of query nightly (billing-1) ended with its batch i.1 unfinished",
            "3 record(s) of it",
            "nothing is to be done",
        ],
    ),
    "session-shorter-than-restart: of a paused topic": (
        rules.session_is_shorter_than_restarts,
        facts(
            members=(member(active=False),),
            plans=(plan(),),
            runs=(run(last=12, plan_id="i.1"),),
            configs={PAUSED: "orders"},
        ),
        ["Other members may take 3 record(s) of it when their topics are resumed."],
    ),
    "session-shorter-than-restart: some of it is paused": (
        rules.session_is_shorter_than_restarts,
        facts(
            members=(member(active=False),),
            plans=(plan(),),
            runs=(run(last=12, plan_id="i.1"), run(topic="refunds", plan_id="i.1")),
            configs={PAUSED: "orders"},
        ),
        ["Other members may take 1 record(s) of it."],
    ),
    "records-too-old": (
        rules.records_are_too_old,
        facts([partition(archived={"ttl": 3, "none": 1})], configs={RECORD_TTL: "60000", **DLQ}),
        ["3 record(s) of orders-0 were given up so far, because they waited longer than share.record.ttl.ms=60000."],
    ),
    "records-too-old: of a deleted topic": (
        rules.records_are_too_old,
        facts([partition()], configs={RECORD_TTL: "60000"}, records=RecordCounts(archived={"ttl": 7})),
        ["7 record(s) were given up so far"],
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
    "partition-waits: a released record": (
        rules.partition_waits,
        facts([waiting(tries=2, until_ms=NOW_MS + MINUTE_MS)], configs=ORDER),
        [
            "1 partition(s) wait for released records: orders-0 for offset 10, released at 1970-01-01 02:40:40.000 "
            "UTC, 2 of 5 tries used up, delivered again from 1970-01-01 02:47:40.000 UTC on.",
            "a shorter share.release.backoff.ms",
        ],
    ),
    "partition-waits: a quarantined record": (
        rules.partition_waits,
        facts([ALONE, partition(partition=1)], configs=ORDER),
        [
            "1 partition(s) wait for records in quarantine: orders-0 for offset 10, delivered alone since "
            "1970-01-01 02:40:40.000 UTC, 5 tries used up.",
            "once a batch of another partition has shown that processing works.",
        ],
    ),
    "partition-waits: a quarantined record, with a dead letter topic": (
        rules.partition_waits,
        facts([ALONE], configs={**ORDER, **DLQ}),
        ["wait for records in quarantine", "works, or after share.poison.solo.timeout.ms=600000."],
    ),
    "partition-waits: for a person": (
        rules.partition_waits,
        facts([ALONE], configs=ORDER, plans=(plan(),)),
        [
            "1 partition(s) wait for a person: orders-0 for offset 10, delivered alone since",
            "The group has no dead letter topic",
            "release it (--release-records)",
            "(errors.deadletterqueue.topic.name)",
            "sharegroup groups --archive-records --bootstrap-server localhost:9092 --group billing --topic orders:0 "
            "--offset 10 --reason 'it failed alone, after 5 tries' --execute",
        ],
    ),
    "partition-waits: a member": (
        rules.partition_waits,
        facts([waiting(**HOLDER)], configs=ORDER),
        [
            "1 partition(s) wait for records that a member holds: orders-0 for offset 10, held by nightly (billing-1) "
            "on host-1 since 1970-01-01 02:40:40.000 UTC.",
            "shorten the trigger",
        ],
    ),
    "member-waits": (
        rules.member_waits,
        facts(members=[member(waits=True), member("billing-2")], configs=ORDER),
        ["1 member(s) wait for partitions that others hold: nightly (billing-1)."],
    ),
    "query-slowed": (
        rules.query_is_slowed,
        facts(members=[member(breaker=SLOWED)]),
        ["its sinks released 45 of 50 records", "Look at the service that the query calls"],
    ),
    "query-slowed: nothing but records that came back is left": (
        rules.query_is_slowed,
        facts(
            [partition(), partition(partition=1, lag=2, archiving=1)],
            members=[member(breaker=SLOWED), member("billing-2", breaker=SLOWED)],
            configs=DLQ,
            runs=(
                *(run(10, 13, delivery_count=31, releases=1), run(14, delivery_count=2, state="ACQUIRED")),
                *(run(7, partition=1, delivery_count=1), run(9, partition=1, state="ARCHIVING")),
            ),
        ),
        [
            "6 record(s) are left, all delivered before, up to 31 times.",
            "share.delivery.count.limit=5 tries goes to the dead letter topic dlq.",
            "the command does so in orders-0. 1 other partition(s) have such records, too.",
            "--topic orders:0 --offset 10-14",
        ],
    ),
    "query-slowed: nothing else is left but in a paused topic": (
        rules.query_is_slowed,
        facts(
            [partition(), partition(topic="refunds")],
            members=[member(breaker=SLOWED)],
            configs={PAUSED: "refunds"},
            runs=(run(10, 14, delivery_count=2),),
        ),
        ["5 record(s) can be delivered, all delivered before, up to 2 times."],
    ),
}
"""By a name that begins with the rule's: the rule, facts of which it has one finding, and what that says."""
