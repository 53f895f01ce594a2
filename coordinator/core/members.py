"""Members of a share group and the plans that they acquired."""

from __future__ import annotations

from dataclasses import dataclass, field

from coordinator.core.left_out import LeftOutRange
from coordinator.core.plan_state import PlanState
from coordinator.core.records import PlanAcquired, PlanKept
from coordinator.core.staging import StagedRun
from coordinator.protocol.values import SharePartitionKey

PlanRanges = tuple[tuple[str, int, tuple[tuple[int, int], ...]], ...]


@dataclass(slots=True)
class AcquiredPlan:
    """An acquisition. It is kept while a run carries its plan_id, and as its query's newest plan beyond that.

    ``ranges``: what it still holds; taking it up leaves out what it lost. ``member_epoch``: the epoch that acquired it,
    or came back to it last. ``started``: that delivery has begun. ``counts_as_evidence``: it began after the group last
    set a record aside, so that its completion says that processing works *since then*. ``data_loss``: told when it was
    taken up; ``unreported_losses``: lost while nobody read it, to be told when it is taken up next.
    ``superseded_plans``: the plans that were given up for it, one after the other, since nothing of them was left to
    read (the last hundred). ``staged``: what sinks said of its records; it takes effect when the plan is completed.
    ``reclaims``: how often a later process came back to it, each time with all counts raised by one; it numbers the
    attempts at its batch. ``explicit``: in this attempt silence is a release (share.acknowledgement.mode as it was when
    its delivery began). ``explicit_attempts``: the last two attempts in which a sink staged something where silence is
    a release, as these numbers. ``replaces``: all sinks of this attempt said that their target replaces what it holds
    of the batch (None: none has staged anything; False: one did not say so).
    """

    plan_id: int
    member_id: str
    member_epoch: int
    acquired_ms: int
    ranges: PlanRanges
    query: bool
    trial: bool = False
    started: bool = False
    counts_as_evidence: bool = False
    data_loss: tuple[LeftOutRange, ...] = ()
    unreported_losses: tuple[LeftOutRange, ...] = ()
    left_out: tuple[LeftOutRange, ...] = ()
    superseded_plans: tuple[int, ...] = ()
    reclaims: int = 0
    explicit: bool = False
    explicit_attempts: tuple[int, ...] = ()
    replaces: bool | None = None
    staged: dict[SharePartitionKey, list[StagedRun]] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """How many records its last delivery held."""
        return sum(last - first + 1 for _, _, ranges in self.ranges for first, last in ranges)

    @property
    def explicit_before(self) -> int | None:
        """The last attempt before this one in which a sink staged something."""
        return max((attempt for attempt in self.explicit_attempts if attempt < self.reclaims), default=None)


@dataclass(slots=True)
class Member:
    """A Spark query or a ShareConsumer. All but ``session_deadline_ms`` (None: no live session) is durable.
    ``seen_ms``: when it was last known to be there, by the wall clock; seldom written, so it may have been there an
    eighth of share.member.retention.ms later. ``decides``: a sink has staged outcomes for it. ``query_id``: Spark's, as
    the sink named it that staged last with rows of this member (empty: none has)."""

    member_id: str
    member_epoch: int
    process_id: str
    query: bool
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    assign: dict[str, tuple[int, ...]] | None = None
    starting_offsets: str | None = None
    client_id: str = ""
    client_host: str = ""
    fenced_processes: tuple[str, ...] = ()
    newest: AcquiredPlan | None = None
    completed: int = 0
    evidence: bool = False
    decides: bool = False
    query_id: str = ""
    seen_ms: int = 0
    session_deadline_ms: int | None = None

    @property
    def active(self) -> bool:
        return self.session_deadline_ms is not None

    @property
    def pending(self) -> AcquiredPlan | None:
        """The newest plan, as long as it is not completed."""
        return self.newest if self.newest is not None and self.newest.plan_id != self.completed else None

    def plan_state(self, plan_id: int) -> PlanState:
        """The state of one of this query's plans. Plan id 0, which precedes the first plan, counts as COMPLETED until a
        plan is completed."""
        if plan_id == self.completed:
            return PlanState.COMPLETED
        newest = self.pending
        if newest is None:
            return PlanState.REPLACED
        if plan_id == newest.plan_id:
            return PlanState.STARTED if newest.started else PlanState.ACQUIRED
        nobody_read_newest = not (newest.started or newest.data_loss)
        if nobody_read_newest and plan_id in newest.superseded_plans:
            return PlanState.SUPERSEDED
        return PlanState.REPLACED


def with_ranges(ranges: PlanRanges, more: PlanRanges) -> PlanRanges:
    """The first of those that are added may go on with the partition that was the last one."""
    if ranges and ranges[-1][:2] == more[0][:2]:
        topic_id, index, of_last = ranges[-1]
        return (*ranges[:-1], (topic_id, index, (*of_last, *more[0][2])), *more[1:])
    return (*ranges, *more)


def plan_from(record: PlanAcquired | PlanKept, member: Member) -> AcquiredPlan:
    """The plan as it was acquired, or as a snapshot has it."""
    return AcquiredPlan(
        record.plan_id,
        record.member_id,
        record.member_epoch,
        record.acquired_ms,
        record.ranges,
        member.query,
        trial=record.trial,
    )
