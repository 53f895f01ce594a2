"""The rules of the doctor: each takes facts and yields findings. Pure: no I/O, no clock.

Rule: a finding names its cause with topic, partition, offset and member, and says what to do."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from coordinator.config.group_keys import DELIVERY_DELAY, PAUSED, RECORD_TTL
from coordinator.protocol.admin_messages import RunInFlight
from coordinator.protocol.allowed_topics import DEAD_LETTER_KEY, SOURCE_KEY
from coordinator.protocol.errors import DeadLetterTopicMissing
from coordinator.protocol.messages import PartitionDescription
from coordinator.protocol.topic_names import is_reserved
from sharegroup.doctor.dead_letters_watch import WATCHED_S
from sharegroup.doctor.findings import About, ClusterFacts, Finding, GroupFacts, Severity
from sharegroup.durations import duration, second_of, time_of
from sharegroup.group_line import (
    HELD,
    MOST_NAMED,
    QUARANTINED,
    Wait,
    ending_queries,
    in_words,
    paused,
    slowed_queries,
    waiting_members,
    waits_in_words,
    waits_of,
    who,
)

ERROR, WARNING, NOTE = Severity
OLD_MS = 60_000
"""A finding about a query that ended longer ago than this many milliseconds says how long ago."""
_STAGES = {
    "sliced": "delivered in slices that get smaller with each failure",
    "quarantined": "in quarantine: taken out of the batch, and delivered alone next",
    "failed alone": "in quarantine: failed alone, and waiting for a trial",
    "trial": "on trial: archived if that fails too",
}


def query_keeps_ending(facts: GroupFacts) -> Iterator[Finding]:
    """Queries that ended with a named error, or whose processes end again and again without one."""
    for member, ending in ending_queries(facts.description):
        if ending.error:
            do = "Mend what the error names. Then start the query, unless its scheduler does."
        else:
            do = "Look at the log of the query's driver: its own code raises, the process is killed, or it runs out of "
            do += "memory."
        do += " If the query is gone for good, nothing is to be done."
        ago_ms = facts.now_ms - ending.last_ms
        what = in_words(member, ending) + (f" It ended last {duration(ago_ms)} ago." if ago_ms >= OLD_MS else "")
        command, about = _show_members(facts), About()
        if ending.error == DeadLetterTopicMissing.__name__ and facts.dead_letter_topic_is_missing:
            topic = facts.config.errors_deadletterqueue_topic_name
            command, about = _create(facts, topic), {"name": topic, "is_missing": "yes"}
        yield Finding("query-keeps-ending", ERROR, what, do, command, about)


def _show_members(facts: GroupFacts) -> str:
    return facts.command("groups --describe", "--members")


def _create(facts: GroupFacts, topic: str) -> str:
    return f"kafka-topics.sh --bootstrap-server {facts.bootstrap_server} --create --topic {topic}"


def start_offset_is_held_back(facts: GroupFacts) -> Iterator[Finding]:
    """Partitions whose start offset can't advance, though later records are done. The first run in flight is the cause.
    Where later records wait for it (share.order), :func:`partition_waits` says so."""
    for partition in facts.description.partitions:
        runs = sorted(_runs_of(partition, facts.runs), key=lambda run: run.first)
        if partition.waits_for is not None or not runs or partition.end_offset <= runs[0].last + 1:
            continue
        run, later = runs[0], sum(each.last - each.first + 1 for each in runs if each.first > runs[0].last)
        if later >= partition.end_offset - run.last - 1:  # no later record is done
            continue
        if (reason := _why_held(facts, run)) is not None:
            what = (
                f"The start offset of {partition.topic}-{partition.partition} stays at {partition.start_offset}, and "
            )
            what += f"{partition.end_offset - run.last - 1} later offsets were acquired already: {reason[0]}."
            about: About = {"topic": partition.topic, "partition": partition.partition}
            yield Finding("start-offset-held-back", NOTE, what, reason[1], facts.command("in-flight"), about)


def partition_waits(facts: GroupFacts) -> Iterator[Finding]:
    """Partitions of an ordered group in which records wait for an earlier one, one finding for each way out. There is
    no finding if a member has held the earlier record only briefly: it is working."""
    waits = [wait for wait in waits_of(facts.description) if _has_more(wait)]
    held = [wait for wait in waits_of(facts.description, in_batch=True) if _has_more(wait)]
    solo_ms = facts.config.share_poison_solo_timeout_ms
    has_queue = bool(facts.config.errors_deadletterqueue_topic_name)
    if by_hand := _waits_for_a_person(facts):
        yield _by_hand(facts, by_hand)
    else:
        yield from _waiting(
            facts,
            "records in quarantine",
            [wait for wait in waits if wait.record.is_alone],
            "See the finding about the record. If it fails alone, it is given up once a batch of another partition has "
            f"shown that processing works{f', or after share.poison.solo.timeout.ms={solo_ms}' if has_queue else ''}.",
        )
    yield from _waiting(
        facts,
        "released records",
        [wait for wait in waits if not wait.record.is_alone],
        "Wait, or set a shorter share.release.backoff.ms. Reject records that can never succeed.",
    )
    yield from _waiting(
        facts,
        "records that a member holds",
        [wait for wait in held if facts.now_ms - (wait.record.since_ms or facts.now_ms) > facts.held_long_ms],
        "A query holds its records until its next batch begins: shorten the trigger, or the batch. A ShareConsumer "
        "holds them until it acknowledges them.",
    )


def _waiting(facts: GroupFacts, records: str, waits: list[Wait], do: str) -> Iterator[Finding]:
    if waits:
        what = f"{len(waits)} partition(s) wait for {records}: {_named(facts, waits)}."
        about: About = {"topic": waits[0].partition.topic, "partition": waits[0].partition.partition}
        yield Finding("partition-waits", NOTE, what, do, facts.command("in-flight"), about)


def _named(facts: GroupFacts, waits: list[Wait]) -> str:
    return waits_in_words(waits, facts.config.share_delivery_count_limit)


def _has_more(wait: Wait) -> bool:
    """Whether later records wait for the record that holds up the partition, as far as is known."""
    p = wait.partition
    return p.lag is None or p.lag - p.archiving > max(p.acquired, 1)


def _waits_for_a_person(facts: GroupFacts) -> list[Wait]:
    """Returns the partitions whose first record failed alone, if nothing can show any more that processing works, and
    the group has no dead letter topic: no time archives the record then."""
    alone = [wait for wait in waits_of(facts.description) if wait.record.is_alone]
    has_queue, is_every = (
        facts.config.errors_deadletterqueue_topic_name,
        len(alone) >= len(facts.description.partitions),
    )
    if has_queue or not is_every or any(plan.evidence for plan in facts.plans):
        return []
    return [wait for wait in alone if wait.record.stage == "failed alone"]


def _by_hand(facts: GroupFacts, waits: list[Wait]) -> Finding:
    """Returns the finding about records for which only a person can decide. The command gives up the first of them."""
    partition, record = waits[0]
    topic, index, offset = partition.topic, partition.partition, record.offset
    reason = f"it failed alone, after {record.tries} tries"
    what = f"{len(waits)} partition(s) wait for a person: {_named(facts, waits)}. The group has no dead letter topic, "
    what += "and no partition is left in which a batch could show that processing works."
    do = (
        "Look at the record, and at the log of the query that failed on it. If the record is at fault, give it up. "
        "If the cause is gone, release it (--release-records), or wait: it is tried again. With a dead letter topic "
        "(errors.deadletterqueue.topic.name) such a record is given up after "
        f"share.poison.solo.timeout.ms={facts.config.share_poison_solo_timeout_ms}."
    )
    about: About = {"topic": topic, "partition": index, "first": offset, "last": offset, "reason": reason}
    return Finding("partition-waits", ERROR, what, do, _give_up(facts, topic, index, str(offset), reason), about)


def _give_up(facts: GroupFacts, topic: str, partition: int, offsets: str, reason: str) -> str:
    place = ("--topic", f"{topic}:{partition}", "--offset", offsets)
    return facts.command("groups --archive-records", *place, "--reason", reason, "--execute")


def member_waits(facts: GroupFacts) -> Iterator[Finding]:
    """Members of an ordered group that get no records, because other members hold their partitions."""
    if waiting := waiting_members(facts.description):
        named = _listed(map(who, waiting))
        what = f"{len(waiting)} member(s) wait for partitions that others hold: {named}."
        do = "Nothing: each gets its part of the partitions that are free. Members beyond the number of partitions get "
        do += "records only when others leave."
        yield Finding("member-waits", NOTE, what, do, _show_members(facts))


def record_is_poison(facts: GroupFacts) -> Iterator[Finding]:
    """Records that keep failing, with their stage of isolation. Those that wait for a person have a finding of their
    own, :func:`partition_waits`."""
    told = {(p.topic, p.partition) for p, _ in _waits_for_a_person(facts)}
    failing = (run for run in facts.runs if run.stage in _STAGES and (run.topic, run.partition) not in told)
    worst = sorted(failing, key=lambda run: -run.failures)
    for run in worst[:MOST_NAMED]:
        what = f"{_place(run)} failed {run.failures} time(s), {_STAGES[run.stage]}"
        what += f" ({run.reason})." if run.reason else "."
        yield Finding("record-is-poison", WARNING, what, *_about_poison(facts, run))


def member_holds_too_long(facts: GroupFacts) -> Iterator[Finding]:
    """Members that have held records for long, without a signal of progress."""
    oldest: dict[str, tuple[int, RunInFlight]] = {}
    records: dict[str, int] = defaultdict(int)
    for run in facts.runs:
        since_ms = max(run.since_ms or 0, run.last_signal_ms or 0)
        if run.state not in HELD or not since_ms or facts.now_ms - since_ms <= facts.held_long_ms:
            continue
        records[run.member_id] += run.last - run.first + 1
        if run.member_id not in oldest or since_ms < oldest[run.member_id][0]:
            oldest[run.member_id] = since_ms, run
    for member_id, (since_ms, run) in oldest.items():
        host = f" on {run.client_host}" if run.client_host else ""
        what = f"Member {who(run)}{host} has held {records[member_id]} record(s) for "
        what += f"{duration(facts.now_ms - since_ms)} without a sign of progress. The longest held are {_place(run)}."
        do = "Look at that process. If it hangs, end it, and end its session: its records go to other members at "
        do += "once. Without --execute the command only says how many."
        command = facts.command("groups --release-member", "--member", member_id, "--execute")
        yield Finding("member-holds-too-long", WARNING, what, do, command, {"member": member_id})


def query_has_no_evidence(facts: GroupFacts) -> Iterator[Finding]:
    """Queries that have completed nothing since records were quarantined: the cause may not be the records."""
    waiting = sum(run.last - run.first + 1 for run in facts.runs if run.stage in QUARANTINED)
    config, until = facts.config, ""
    if config.errors_deadletterqueue_topic_name:
        until = f", or not before share.poison.solo.timeout.ms={config.share_poison_solo_timeout_ms}"
    do = "Look at the query's log and at the services that it calls. Until that is mended, no quarantined record is "
    do += f"archived{until}."
    for plan in facts.plans if waiting else ():
        if not plan.evidence and (plan.attempt or not _is_paused(facts)):
            what = f"Query {who(plan)} has completed no batch since the group last quarantined a record"
            what += f", and came back to its batch {plan.attempt} time(s)" if plan.attempt else ""
            what += f": {waiting} quarantined record(s) can't be judged. This is how an outage of the query's own "
            what += "service, its model or its sink looks."
            severity = ERROR if plan.attempt else WARNING
            yield Finding("query-has-no-evidence", severity, what, do, _show_members(facts))


def dead_letters_wait(facts: GroupFacts) -> Iterator[Finding]:
    """Given up records whose dead letters are not written; also a dead letter topic that is missing while members run,
    and that nobody creates: queries with a sink end then, and the next dead letter can't be written."""
    places = [p for p in facts.description.partitions if p.archiving]
    is_missing, config = facts.dead_letter_topic_is_missing, facts.config
    is_stable = facts.description.state == "STABLE"
    count, topic = sum(p.archiving for p in places), config.errors_deadletterqueue_topic_name
    if places and (is_missing or facts.dead_letters_stand_still):
        cause = "which does not exist" if is_missing else f"and none was written in {WATCHED_S:.0f} s"
        what = f"{count} record(s) of {_names(places)} wait for the dead letter topic {topic}, {cause}; they hold back "
        what += "the start offset."
    elif is_missing and is_stable and not config.errors_deadletterqueue_auto_create_topics_enable:
        what = f"The dead letter topic {topic} does not exist, or this user does not see it: queries with a sink end, "
        what += "and no dead letter can be written."
    else:
        return
    about: About = {"name": topic, "is_missing": "yes" if is_missing else "no"}
    do, command = "Create the topic.", _create(facts, topic)
    if not is_missing:
        do = "Look at the topic, its leaders and ACLs; the coordinator writes the dead letters when it can."
        command = f"kafka-topics.sh --bootstrap-server {facts.bootstrap_server} --describe --topic {topic}"
    yield Finding("dead-letters-wait", ERROR, what, do, command, about)


def given_up_without_a_dead_letter(facts: GroupFacts) -> Iterator[Finding]:
    """Records that were given up while the group had no dead letter topic, if it still has none."""
    places = [p for p in facts.description.partitions if p.without_dead_letter]
    counts = Counter(facts.description.records.without_dead_letter)
    of_places = sum((Counter(p.without_dead_letter) for p in places), Counter[str]())
    if facts.config.errors_deadletterqueue_topic_name or not (counts | of_places):
        return
    reasons = {reason.replace("_", " "): count for reason, count in (counts | of_places).items()}
    named = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    gone = (counts - of_places).total()
    of = [*([_names(places)] if places else []), *([f"topics or offsets that were deleted ({gone})"] if gone else [])]
    last = "".join(
        f"; the last of {p.topic}-{p.partition} at offsets {runs[-1].first} to {runs[-1].last}"
        for p in places[:MOST_NAMED]
        if (runs := _given_up(facts, p))
    )
    what = (
        f"{sum(reasons.values())} record(s) of {' and '.join(of)} were given up ({named}{last}), and the group has no "
    )
    what += "dead letter topic: no member gets them again."
    do = (
        "Create a dead letter topic, and name it in errors.deadletterqueue.topic.name, a config of the "
        "group and an option of its queries. The coordinator's log names the offsets in lines 'given up'; until "
        "retention removes them, Kafka's log has the records there (kafka-console-consumer.sh --partition, --offset)."
    )
    yield Finding("given-up-without-dead-letter", ERROR, what, do, *_name_queue(facts))


def query_is_slowed(facts: GroupFacts) -> Iterator[Finding]:
    """Queries whose release breaker is open, and the records that are left, if all of them came back. A query without a
    session acquires nothing, so it has no finding; neither has one in a group that is paused as a whole."""
    if not (slowed := slowed_queries(facts.description)) or _is_paused(facts):
        return
    whats = [
        f"Query {who(member)} has acquired less and later for {duration(facts.now_ms - breaker.since_ms)}: its sinks "
        f"released {breaker.released} of {breaker.records} records, more than share.release.breaker.ratio="
        f"{facts.config.share_release_breaker_ratio} of each batch."
        for member, breaker in slowed
    ]
    tries = "The pauses have added up to a day, so that each release uses up a try."
    if all(breaker.keeps_tries for _, breaker in slowed):
        until_ms = min(breaker.tries_kept_until_ms for _, breaker in slowed)
        tries = f"Releases use up no tries{f' before {time_of(until_ms)} UTC' if until_ms else ''}."
    look = "Look at the service that the query calls, and at the query's log. "
    if left := _came_back(facts):
        yield _tail(facts, left, tries, _together(whats), look)
        return
    do = f"{look}When most records of a batch are not released, the next batch is as large as before. If they are "
    do += "released on purpose, give them a releaseDelayMs, or set the ratio to 1."
    yield Finding("query-slowed", WARNING, f"{_together(whats)} {tries}", do, _show_members(facts))


def _tail(facts: GroupFacts, left: list[RunInFlight], tries: str, queries: str, look: str) -> Finding:
    """Returns the finding about slowed queries to which nothing is left but records that came back. The command gives
    up those of the partition with most of them. ``tries``, ``queries``, ``look``: what is said of the queries."""
    sizes: Counter[tuple[str, int]] = Counter()
    for run in left:
        sizes[run.topic, run.partition] += run.last - run.first + 1
    topic, index = max(sizes, key=lambda key: sizes[key])
    of_it = [run for run in left if (run.topic, run.partition) == (topic, index)]
    first, last = of_it[0].first, of_it[-1].last
    most = max(run.delivery_count for run in left)
    queue = facts.config.errors_deadletterqueue_topic_name
    others = f" {len(sizes) - 1} other partition(s) have such records, too." if len(sizes) > 1 else ""
    word = "can be delivered" if facts.config.is_ordered or paused(facts.description) else "are left"
    reason = f"it came back each time, up to {most} times"
    what = f"{sizes.total()} record(s) {word}, all delivered before, up to {most} times. {tries} A record that has "
    what += f"used up share.delivery.count.limit={facts.config.share_delivery_count_limit} tries "
    what += f"goes to the dead letter topic {queue}. " if queue else "is given up, without a dead letter. "
    do = f"{look}If the service is there, and the records are at fault, give them up: the command does so in "
    do += f"{topic}-{index}.{others} With share.release.breaker.ratio=1 no query is slowed, and releases use up tries "
    do += "at once."
    about: About = {"topic": topic, "partition": index, "first": first, "last": last, "reason": reason}
    command = _give_up(facts, topic, index, f"{first}-{last}", reason)
    return Finding("query-slowed", WARNING, what + queries, do, command, about)


def _came_back(facts: GroupFacts) -> list[RunInFlight]:
    """Returns the records that were delivered before and are not done, if the group can deliver no others: no fresh one
    is left but in paused topics, or, in an ordered group, all others are behind them. If the group can deliver others,
    or that is not known, returns none."""
    found: list[RunInFlight] = []
    undecided = [run for run in facts.runs if run.state != "ARCHIVING"]
    stopped = paused(facts.description)
    for partition in (each for each in facts.description.partitions if each not in stopped):
        runs = _runs_of(partition, undecided)
        if partition.lag is None:
            return []
        left = partition.lag - partition.archiving
        if facts.config.is_ordered:
            runs = runs[:1] if left else []
        elif left != sum(run.last - run.first + 1 for run in runs):
            return []
        if (left and not runs) or any(run.delivery_count <= (run.state in HELD) for run in runs):
            return []
        found += runs
    return found


def _given_up(facts: GroupFacts, partition: PartitionDescription) -> list[RunInFlight]:
    """Returns the runs that were given up without a dead letter, as far as the partition still has them. None if some
    of its given up records have a dead letter."""
    archived = sum(count for reason, count in partition.archived.items() if reason != "none")
    if sum(partition.without_dead_letter.values()) < archived:
        return []
    return [run for run in _runs_of(partition, facts.given_up) if run.disposition]


def dead_letter_topic_is_reserved(facts: GroupFacts) -> Iterator[Finding]:
    """A dead letter topic of Kafka's or of ours, stored by an earlier version: no dead letter is written to it."""
    topic = facts.config.errors_deadletterqueue_topic_name
    if not topic or not is_reserved(topic):
        return
    waiting = sum(p.archiving for p in facts.description.partitions)
    what = f"The dead letter topic {topic} is one of Kafka's or of sharegroup's own: no dead letter is written to it"
    what += f", and {waiting} record(s) wait for one; they hold back the start offset." if waiting else "."
    do = "Name another topic, which only the group's dead letters go to. The waiting dead letters are written to it."
    yield Finding("dead-letter-topic-reserved", ERROR, what, do, *_name_queue(facts))


def topics_are_paused(facts: GroupFacts) -> Iterator[Finding]:
    """Paused topics in which records wait."""
    waiting = [p for p in paused(facts.description) if _left(p)]
    if waiting:
        what = f"{sum(map(_left, waiting))} record(s) of {_names(waiting)} wait: their topics are paused "
        what += f"({PAUSED}={facts.config.share_paused_topics})."
        do = "Nothing, if that is meant: the coordinator's audit log says who paused them, when and why. If it is not "
        do += "meant, resume them."
        yield Finding("topics-paused", NOTE, what, do, facts.command("groups --resume"), {})


def limit_is_used_up(facts: GroupFacts) -> Iterator[Finding]:
    """A rate or a limit of records in flight that is used up while records wait."""
    key, stopped = facts.description.limited_by, paused(facts.description)
    waiting = [p for p in facts.description.partitions if _left(p) and p not in stopped]
    if key and waiting:
        value = facts.description.configs.get(key, "")
        what = f"{sum(map(_left, waiting))} record(s) of {_names(waiting)} wait: {key}={value} is used up now."
        do = "Nothing, if the limit is meant. Members that hold records for long use up a limit of records in flight."
        yield Finding("limit-used-up", NOTE, what, do, facts.command("in-flight"), {"key": key, "value": value})


def timestamp_is_ahead(facts: GroupFacts) -> Iterator[Finding]:
    """Partitions in which a record with a timestamp in the future holds up those behind it, because
    share.delivery.delay.ms and share.record.ttl.ms count from timestamps."""
    delay_ms, ttl_ms = facts.config.share_delivery_delay_ms, facts.config.share_record_ttl_ms
    for p in facts.description.partitions:
        offset, at_ms = facts.ahead.get((p.topic, p.partition), (0, 0))
        if not at_ms or not _left(p):
            continue
        unit = "nanoseconds" if at_ms > facts.now_ms * 500_000 else "microseconds" if at_ms > facts.now_ms * 500 else ""
        what = f"{p.topic}-{p.partition} offset {offset} has the timestamp {second_of(at_ms, ' UTC')}, "
        what += f"{unit} taken for milliseconds" if unit else f"{duration(at_ms - facts.now_ms)} ahead of the clock"
        do = "Correct the producer's clock or unit. Brokers refuse such records by the topic's "
        do += "message.timestamp.after.max.ms."
        command, about = facts.command("groups --describe"), About(key=RECORD_TTL, value=str(ttl_ms))
        if ttl_ms is not None:
            what += f". By {RECORD_TTL}={ttl_ms} no record from it on is given up before "
            what += second_of(at_ms + ttl_ms, " UTC")
        if delay_ms:
            what += f". By {DELIVERY_DELAY}={delay_ms} no record from it on is first delivered before "
            what += second_of(at_ms + delay_ms, " UTC")
            do += f" {DELIVERY_DELAY}=0 delivers the records at once; set the delay again when that time has come, or "
            do += "the log no longer has the record."
            command = facts.command("configs set", f"{DELIVERY_DELAY}=0")
            about = About(key=DELIVERY_DELAY, value="0")
        yield Finding("timestamp-ahead", WARNING, f"{what}.", do, command, about)


def _is_paused(facts: GroupFacts) -> bool:
    """Whether the group is paused as a whole."""
    return 0 < len(paused(facts.description)) == len(facts.description.partitions)


def records_are_too_old(facts: GroupFacts) -> Iterator[Finding]:
    """Records that the group has given up because they waited longer than its ttl."""
    value = facts.description.configs.get(RECORD_TTL, "")
    places = [p for p in facts.description.partitions if p.archived.get("ttl")]
    count = max(sum(p.archived["ttl"] for p in places), facts.description.records.archived.get("ttl", 0))
    if value and count:
        where = f" of {_names(places)}" if places else ""
        what = f"{count} record(s){where} were given up so far, because they waited longer than {RECORD_TTL}={value}."
        do = "Nothing, if the ttl is meant. If it is not, start more members, or set a longer ttl, or unset it."
        command = facts.command("groups --describe", "--records")
        yield Finding("records-too-old", NOTE, what, do, command, {"key": RECORD_TTL, "value": value})


def _left(p: PartitionDescription) -> int:
    """Returns how many records wait in the partition: nobody holds them. 0 if the lag is not known."""
    return max(0, (p.lag or 0) - p.acquired - p.archiving)


def nobody_consumes(facts: GroupFacts) -> Iterator[Finding]:
    """A group without members, though records wait. If no coordinator runs, members are unknown, and this is a warning:
    a scheduled query may just have ended, or another host's coordinator may have the members."""
    stopped = paused(facts.description)
    waiting = [p for p in facts.description.partitions if p.lag and p not in stopped]
    of_places = f"{sum(p.lag or 0 for p in waiting)} record(s) of {_names(waiting)} wait"
    do = (
        "Start a query or a ShareConsumer of this group. If a member runs, compare its kafka.group.id, "
        "share.state.store and share.coordinator.endpoint with this command's."
    )
    match facts.description.state if waiting else "":
        case "EMPTY":
            severity, what = ERROR, f"The group has no member with a session, and {of_places}."
        case "UNKNOWN":
            severity = WARNING
            what = f"No coordinator of the group runs here; {of_places}, and nobody consumes them from this host."
            do += " If the group's coordinator runs on another host, run this command there. A scheduled query that "
            do += "is not running now is no problem."
        case _:
            return
    yield Finding("nobody-consumes", severity, what, do, _show_members(facts))


def topic_is_missing(facts: GroupFacts) -> Iterator[Finding]:
    """Topics that a member with a session subscribes to, and that the cluster lacks: a ShareConsumer, like Kafka's,
    does not report a misspelt topic. Also topics that the group has read, and that were deleted while it was idle."""
    members: dict[str, list[str]] = defaultdict(list)
    for member in facts.description.members if facts.topics is not None else ():
        for topic in member.topics if member.active else ():
            if topic not in (facts.topics or ()):
                members[topic].append(who(member))
    for topic, of_topic in sorted(members.items())[:MOST_NAMED]:
        what = f"{len(of_topic)} member(s), {of_topic[0]} first, subscribe to topic {topic}, and the cluster does not "
        what += "have it, or does not show it to this user: they get none of its records."
        do = "Correct the name in the member's subscription, or create the topic: its records are then read without a "
        do += "restart."
        yield Finding("topic-missing", WARNING, what, do, _show_members(facts))
    counted = {p.topic for p in facts.description.partitions if p.deleted}
    read = {p.topic for p in facts.description.partitions} - counted - members.keys()
    do = "If the topic was deleted, nothing is to be done: once a coordinator has watched the group for a minute, it "
    do += "counts the unfinished records as deleted. If none runs now, the next one does so."
    for topic in sorted(read - facts.topics)[:MOST_NAMED] if facts.topics is not None else ():
        what = f"The group has read topic {topic}, and the cluster does not have it, or does not show it to this user."
        yield Finding("topic-missing", WARNING, what, do, facts.command("groups --describe", "--records"))


def start_offset_is_below_the_log(facts: GroupFacts) -> Iterator[Finding]:
    """Partitions whose log no longer has records that the group has not processed."""
    for p in facts.description.partitions:
        log_start = facts.log_starts.get((p.topic, p.partition), 0)
        if log_start > p.start_offset:
            what = f"The log of {p.topic}-{p.partition} begins at {log_start} and the group's start offset is "
            what += f"{p.start_offset}: retention or a deletion took up to {log_start - p.start_offset} record(s) that "
            what += "it had not finished."
            do = "They are lost to the group, which counts them as archived when a member acquires next. Consume "
            do += "faster, or keep records longer (retention.ms)."
            do += " Its topic is paused: resume it." if facts.config.is_paused(p.topic) else ""
            command = f"kafka-configs.sh --bootstrap-server {facts.bootstrap_server} --describe --topic {p.topic}"
            yield Finding("start-offset-below-log-start", ERROR, what, do, command)


def session_is_shorter_than_restarts(facts: GroupFacts) -> Iterator[Finding]:
    """Queries whose session ended while their batch waits: they are stopped, or restart more slowly than the session
    timeout. No finding once no record waits in the batch, or if no coordinator runs: sessions are unknown then. The
    length of the absence is no evidence, because the query may be gone for good."""
    if facts.description.state == "UNKNOWN":
        return
    active = {member.member_id for member in facts.description.members if member.active}
    waiting, stopped = Counter[str](), Counter[str]()
    for run in facts.runs:
        counted = stopped if facts.config.is_paused(run.topic) else waiting
        counted[run.plan_id] += run.last - run.first + 1 if run.plan_id else 0
    for plan in facts.plans:
        if plan.member_id in active or plan.state not in ("acquired", "started"):
            continue
        if not (count := waiting[plan.plan_id] or stopped[plan.plan_id]):
            continue
        what = (
            f"The session of query {who(plan)} ended with its batch {plan.plan_id} unfinished: the query is stopped, "
        )
        what += f"or its restart takes longer than share.session.timeout.ms={facts.config.share_session_timeout_ms}. "
        what += f"Other members may take {count} record(s) of it"
        what += "." if waiting[plan.plan_id] else " when their topics are resumed."
        do = (
            "If the query is gone for good, nothing is to be done: other members get the records. If it is to keep its "
        )
        do += (
            "batch over a restart, set share.session.timeout.ms, as an option of the query, above its longest restart."
        )
        yield Finding("session-shorter-than-restart", WARNING, what, do, _show_members(facts))


def group_is_in_two_stores(facts: ClusterFacts) -> Iterator[Finding]:
    """Groups of one name in several state stores: their members share nothing."""
    places: dict[str, list[str]] = defaultdict(list)
    for store, group_ids in sorted(facts.stores.items()):
        for group_id in group_ids:
            places[group_id].append(store)
    for group_id, stores in sorted(places.items()):
        if len(stores) > 1:
            what = f"There are {len(stores)} groups named {group_id}, in the stores {' and '.join(stores)}: their "
            what += "members know nothing of each other, and each group gets every record."
            do = "Set the same share.state.store in all queries and ShareConsumers of the group."
            command = f"sharegroup groups --bootstrap-server {facts.bootstrap_server} --describe --group {group_id} "
            command += f"--command-property share.state.store={stores[-1]}"
            yield Finding("group-in-two-stores", ERROR, what, do, command)


def state_topic_is_below_min_insync(facts: ClusterFacts) -> Iterator[Finding]:
    """Partitions of the state topic with fewer replicas in sync than min.insync.replicas: nothing can be written."""
    below = sorted(partition for partition, count in facts.in_sync.items() if count < facts.min_in_sync)
    if below:
        what = f"{len(below)} of {len(facts.in_sync)} partitions of the state topic {facts.state_topic} have fewer "
        what += f"replicas in sync than min.insync.replicas={facts.min_in_sync} (partitions "
        what += f"{_listed(map(str, below))}): the coordinators of their groups can write nothing."
        do = "Start the missing brokers, or wait until their replicas have caught up."
        command = f"kafka-topics.sh --bootstrap-server {facts.bootstrap_server} --describe --topic {facts.state_topic}"
        yield Finding("state-topic-below-min-insync", ERROR, what, do, f"{command} --under-min-isr-partitions")


def topics_are_wide_open(facts: ClusterFacts) -> Iterator[Finding]:
    """A coordinator with several tokens that reads or writes any topic for every member's token."""
    can = {
        SOURCE_KEY: "copy the records of every topic that its principal can read",
        DEAD_LETTER_KEY: "write dead letters to every topic that its principal can write to",
    }
    if facts.open_keys:
        named = " and ".join(f"{can[key]} ({key})" for key in facts.open_keys if key in can)
        what = f"The coordinator has several tokens, and whoever has one with the right `member` can make it {named}."
        do = "Set these keys in each coordinator's properties file, or groups=, topics= and dlq= in the lines of its "
        do += "token file (docs/run/security.md)."
        yield Finding("topics-wide-open", WARNING, what, do)


GROUP_RULES = (
    query_keeps_ending,
    given_up_without_a_dead_letter,
    dead_letter_topic_is_reserved,
    nobody_consumes,
    topics_are_paused,
    limit_is_used_up,
    timestamp_is_ahead,
    records_are_too_old,
    topic_is_missing,
    dead_letters_wait,
    query_is_slowed,
    query_has_no_evidence,
    record_is_poison,
    partition_waits,
    member_waits,
    member_holds_too_long,
    start_offset_is_below_the_log,
    start_offset_is_held_back,
    session_is_shorter_than_restarts,
)
CLUSTER_RULES = (group_is_in_two_stores, state_topic_is_below_min_insync, topics_are_wide_open)


def examine(group: GroupFacts) -> list[Finding]:
    """Returns all findings of a group, the worst first."""
    return _sorted(finding for rule in GROUP_RULES for finding in rule(group))


def examine_cluster(cluster: ClusterFacts) -> list[Finding]:
    """Returns all findings that belong to no single group, the worst first."""
    return _sorted(finding for rule in CLUSTER_RULES for finding in rule(cluster))


def _sorted(found: Iterable[Finding]) -> list[Finding]:
    """Returns the findings, the worst first. Those with the same way out, as for a topic's partitions, become one."""
    alike: dict[tuple[str, Severity, str, str], list[Finding]] = defaultdict(list)
    for each in found:
        alike[each.rule, each.severity, each.do, each.command].append(each)
    merged = (replace(same[0], what=_together([each.what for each in same])) for same in alike.values())
    return sorted(merged, key=lambda finding: list(Severity).index(finding.severity))


def _together(whats: list[str]) -> str:
    more = len(whats) - MOST_NAMED
    return " ".join(whats[:MOST_NAMED]) + (f" There are {more} more such cases." if more > 0 else "")


def _runs_of(partition: PartitionDescription, runs: Iterable[RunInFlight]) -> list[RunInFlight]:
    at = (partition.topic_id, partition.partition)
    return [run for run in runs if (run.topic_id, run.partition) == at]


def _why_held(facts: GroupFacts, run: RunInFlight) -> tuple[str, str] | None:
    """Returns why the first run is still in flight, and what to do; None if a member works on it."""
    if run.state == "ARCHIVING":
        if not (facts.dead_letter_topic_is_missing or facts.dead_letters_stand_still):
            return None
        return f"no dead letter is written yet of {_place(run)}", "See the finding about the dead letter topic."
    if run.stage in QUARANTINED:
        return f"{_place(run)}, {_STAGES[run.stage]}", "See the finding about this record."
    if run.state in HELD:
        since_ms = max(run.since_ms or facts.now_ms, run.last_signal_ms or 0)
        if facts.now_ms - since_ms <= facts.held_long_ms:
            return None
        held = f"member {who(run)} has held {_place(run)} for {duration(facts.now_ms - since_ms)}"
        return held, "See the finding about this member."
    if facts.config.is_paused(run.topic):
        return None
    if run.not_before_ms is not None and run.not_before_ms > facts.now_ms:
        wait = duration(run.not_before_ms - facts.now_ms)
        return f"{_place(run)}, released, is available in {wait}", "Wait, or set a shorter share.release.backoff.ms."
    if run.releases or run.failures:
        return f"no member has taken {_place(run)} again", "Check that the group has members that acquire records."
    return None


def _name_queue(facts: GroupFacts) -> tuple[str, About]:
    name = f"{facts.group_id}-dead-letters"
    return facts.command("configs set", f"errors.deadletterqueue.topic.name={name}"), {"name": name}


def _about_poison(facts: GroupFacts, run: RunInFlight) -> tuple[str, str, About]:
    """Returns the advice about records that keep failing, its command, and what the command is about. Only records that
    failed alone, and that no member holds, are given up by hand: the neighbours in a slice may be good."""
    look = "Look at the record, and at the log of the query that failed on it. "
    if facts.config.is_paused(run.topic):
        look += "It is not delivered while its topic is paused. "
    if run.stage != "failed alone" or run.state in HELD:
        return (
            f"{look}Then wait: it is delivered alone in the end, and a record that fails alone while others succeed is "
            f"archived (share.delivery.count.limit={facts.config.share_delivery_count_limit}).",
            f"kafka-console-consumer.sh --bootstrap-server {facts.bootstrap_server} --topic {run.topic} "
            f"--partition {run.partition} --offset {run.first} --max-messages 1",
            {"topic": run.topic, "partition": run.partition, "first": run.first},
        )
    queue = facts.config.errors_deadletterqueue_topic_name
    reason = f"it failed alone, {run.failures} time(s)"
    return (
        f"{look}If the record is at fault, give it up"
        + (f"; its dead letter goes to {queue}. " if queue else "; it has no dead letter, and stays in Kafka's log. ")
        + "Or wait: it goes on trial when another batch has completed, and is archived if that fails too.",
        _give_up(facts, run.topic, run.partition, f"{run.first}-{run.last}", reason),
        {"topic": run.topic, "partition": run.partition, "first": run.first, "last": run.last, "reason": reason},
    )


def _place(run: RunInFlight) -> str:
    offsets = f"offset {run.first}" if run.first == run.last else f"offsets {run.first} to {run.last}"
    return f"{run.topic}-{run.partition} {offsets}"


def _names(partitions: Iterable[PartitionDescription]) -> str:
    return _listed(f"{p.topic}-{p.partition}" for p in partitions)


def _listed(all_names: Iterable[str]) -> str:
    names = list(all_names)
    return ", ".join(names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")
