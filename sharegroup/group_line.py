"""The numbers of a group at one moment, which ``sharegroup top`` and the page show in one line. The doctor and
``groups`` show some of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from coordinator.config.group_keys import IN_FLIGHT, PAUSED, RATE
from coordinator.protocol.log_lines import printable
from sharegroup.durations import duration, time_of

if TYPE_CHECKING:
    from coordinator.protocol.admin_messages import HistoryEntry, PlanInFlight, RunInFlight
    from coordinator.protocol.messages import (
        AwaitedRecord,
        GroupDescription,
        MemberDescription,
        PartitionDescription,
        QueryEnding,
        ReleaseBreaker,
    )

_LIMITS = {RATE: "rate", IN_FLIGHT: "in flight"}
"""A word for each limit of a group that may be used up."""
MOST_NAMED = 5
"""A sentence about partitions or members names up to this many."""
LONGEST_NAME = 60
"""A member's name is cut after this many characters."""
HELD = ("ACQUIRED", "IN_PROGRESS")
"""The states of a record that a member holds."""
QUARANTINED = ("quarantined", "failed alone", "trial")
"""The stages of isolation in which a record is delivered alone."""


@dataclass(frozen=True, kw_only=True)
class GroupLine:
    """A group at one moment. ``done``, ``acquired_offsets``: the sums of the start offsets and end offsets, from which
    the rates are computed. Rates are per second; None in the first reading. ``without_dead_letter``: see
    :func:`given_up_without_dead_letter`. ``slowed``: see :func:`slowed_queries`. ``ending``: see
    :func:`ending_queries`. ``waiting``: see :func:`waiting_members`. ``flow``: see :func:`flow_in_a_word`;
    ``paused_lag``: the part of the lag in paused topics. ``oldest_ms``: for how long the record that is
    held for longest has been held."""

    group_id: str
    state: str
    members: int
    lag: int | None
    in_flight: int
    archiving: int
    archived: int
    done: int
    acquired_offsets: int
    oldest_ms: int | None = None
    acquired_rate: float | None = None
    done_rate: float | None = None
    without_dead_letter: int = 0
    slowed: int = 0
    ending: int = 0
    dead_letter_topic_missing: bool = False
    waiting: int = 0
    flow: str = ""
    paused_lag: int = 0

    @property
    def lag_to_do(self) -> int:
        """The records that wait and are not paused, as far as is known."""
        return (self.lag or 0) - self.paused_lag

    @property
    def shown_state(self) -> str:
        return f"{self.state} ({self.flow})" if self.flow else self.state


def who(named: MemberDescription | AwaitedRecord | RunInFlight | PlanInFlight | HistoryEntry) -> str:
    """Returns a member for people: its name, then its id, as ``billing-1 (6f1c0a)``. Any client can choose its name, so
    control characters are escaped."""
    name = printable(named.client_id[:LONGEST_NAME])
    return f"{name} ({named.member_id})" if name else named.member_id


def slowed_queries(description: GroupDescription) -> list[tuple[MemberDescription, ReleaseBreaker]]:
    """Returns the queries that acquire less, because their sinks release most records."""
    return [(member, member.breaker) for member in description.members if member.breaker is not None]


def ending_queries(description: GroupDescription) -> list[tuple[MemberDescription, QueryEnding]]:
    """Returns the queries that ended with a named error, or that keep ending, and how they ended last."""
    return [(member, member.ending) for member in description.members if member.ending is not None]


def in_words(member: MemberDescription, ending: QueryEnding) -> str:
    """Returns how the query ended, in a sentence: with its named error, or how often it was started."""
    over = f" in {duration(ending.last_ms - ending.first_ms)}" if ending.times > 1 else ""
    if not ending.error:
        starts = ending.times + ending.runs
        return f"Query {who(member)} was started {starts} times{over} and finished no batch; no process named an error."
    times = f" {ending.times} times{over}" if ending.times > 1 else ""
    return f"Query {who(member)} has ended{times}: {printable(f'{ending.error}: {ending.text}')}"


def waiting_members(description: GroupDescription) -> list[MemberDescription]:
    """Returns the members of an ordered group that found nothing but partitions that others hold."""
    return [member for member in description.members if member.waits]


class Wait(NamedTuple):
    """A partition of an ordered group, and the record that holds it up."""

    partition: PartitionDescription
    record: AwaitedRecord


def waits_of(description: GroupDescription, *, in_batch: bool = False) -> list[Wait]:
    """Returns the partitions of an ordered group that a released or quarantined record holds up; with ``in_batch``,
    those whose first record a member holds as it holds others. The longest wait is the first."""
    waits = [Wait(p, p.waits_for) for p in description.partitions if p.waits_for is not None]
    chosen = [wait for wait in waits if wait.record.is_in_batch == in_batch]
    return sorted(chosen, key=lambda wait: (wait.record.since_ms is None, wait.record.since_ms))


def waits_in_words(waits: Sequence[Wait], limit: int) -> str:
    """Returns the first MOST_NAMED of these waits, as ``orders-0 for offset 10, released since …``. ``limit``:
    share.delivery.count.limit."""
    more = [f"and {len(waits) - MOST_NAMED} more"] if len(waits) > MOST_NAMED else []
    named = [f"{p.topic}-{p.partition} for {awaited_in_words(record, limit)}" for p, record in waits[:MOST_NAMED]]
    return "; ".join([*named, *more])


def awaited_in_words(awaited: AwaitedRecord, limit: int) -> str:
    """Returns what an ordered partition waits for. ``limit``: share.delivery.count.limit."""
    at = "" if awaited.since_ms is None else f"{time_of(awaited.since_ms)} UTC"
    host = f" on {awaited.client_host}" if awaited.client_host else ""
    held = f"held by {who(awaited)}{host}" if awaited.member_id else ""
    if awaited.is_in_batch:
        return f"offset {awaited.offset}, {held}{at and f' since {at}'}"
    how = f"delivered alone{at and f' since {at}'}" if awaited.is_alone else f"released{at and f' at {at}'}"
    again = f"delivered again from {time_of(awaited.until_ms)} UTC on" if awaited.until_ms is not None else held
    tries = f"{awaited.tries} {'' if awaited.is_alone else f'of {limit} '}tries used up"
    return ", ".join(filter(None, (f"offset {awaited.offset}", how, tries, again)))


def paused(description: GroupDescription) -> list[PartitionDescription]:
    """Returns the partitions of paused topics (share.paused.topics)."""
    from coordinator.config.resolved import GroupConfig

    if not description.configs.get(PAUSED):
        return []
    config = GroupConfig.parse(description.configs)
    return [partition for partition in description.partitions if config.is_paused(partition.topic)]


def flow_in_a_word(description: GroupDescription) -> str:
    """Returns what holds back deliveries now: ``paused`` (all topics), ``2 paused``, ``rate`` or ``in flight``."""
    if stopped := paused(description):
        whole = len(stopped) == len(description.partitions)
        return "paused" if whole else f"{len({each.topic for each in stopped})} paused"
    return _LIMITS.get(description.limited_by, "")


def flow_in_words(description: GroupDescription) -> list[str]:
    """Returns what holds back deliveries now, in sentences."""
    told = []
    if topics := sorted({each.topic for each in paused(description)}):
        more = f" and {len(topics) - MOST_NAMED} more" if len(topics) > MOST_NAMED else ""
        told.append(f"Nothing is acquired from {', '.join(topics[:MOST_NAMED])}{more}: {PAUSED} has them.")
    if limit := description.limited_by:
        told.append(f"{limit}={description.configs.get(limit, '')} is used up now.")
    return told


def topics_without_partitions(description: GroupDescription) -> list[str]:
    """Returns the topics that members with a session subscribe to, and of which the group has no partition."""
    known = {partition.topic for partition in description.partitions}
    named = {topic for member in description.members if member.active for topic in member.topics}
    return sorted(named - known)


def given_up_without_dead_letter(description: GroupDescription) -> int:
    """Returns how many records the group gave up without a dead letter, including those of deleted topics; 0 once the
    group has a dead letter topic."""
    if description.configs.get("errors.deadletterqueue.topic.name"):
        return 0
    of_partitions = sum(sum(p.without_dead_letter.values()) for p in description.partitions)
    return max(of_partitions, sum(description.records.without_dead_letter.values()))


def line_of(
    description: GroupDescription,
    runs: Iterable[RunInFlight],
    now_ms: int,
    *,
    before: GroupLine | None = None,
    elapsed_s: float = 0.0,
) -> GroupLine:
    """Returns the line of a group. ``runs``: the held runs, and perhaps others; ``before``: the group's line
    ``elapsed_s`` ago. If a start offset was set back, there is no rate."""
    partitions = description.partitions
    sinces = [run.since_ms for run in runs if run.state in HELD and run.since_ms is not None]
    done, acquired = sum(p.start_offset for p in partitions), sum(p.end_offset for p in partitions)
    rates: list[float | None] = [None, None]
    if before is not None and elapsed_s > 0:
        changes = (acquired - before.acquired_offsets, done - before.done)
        rates = [change / elapsed_s if change >= 0 else None for change in changes]
    return GroupLine(
        group_id=description.group_id,
        state=description.state.capitalize(),
        members=sum(member.active for member in description.members),
        lag=description.lag,
        in_flight=sum(p.acquired for p in partitions),
        archiving=sum(p.archiving for p in partitions),
        archived=sum(p.archived_total for p in partitions),
        without_dead_letter=given_up_without_dead_letter(description),
        slowed=len(slowed_queries(description)),
        ending=len(ending_queries(description)),
        dead_letter_topic_missing=description.dead_letter_topic_missing,
        waiting=len(waiting_members(description)),
        flow=flow_in_a_word(description),
        paused_lag=sum(each.lag or 0 for each in paused(description)),
        done=done,
        acquired_offsets=acquired,
        oldest_ms=now_ms - min(sinces) if sinces else None,
        acquired_rate=rates[0],
        done_rate=rates[1],
    )
