"""Members of a share group and the plans that they acquired."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import NamedTuple

from coordinator.core.endings import Ending
from coordinator.core.left_out import LeftOutRange
from coordinator.core.log_records import PlanAcquired, PlanKept
from coordinator.core.plan_state import PlanState
from coordinator.core.record_state import HELD
from coordinator.core.release_breaker import Breaker
from coordinator.core.runs import Progress, Run
from coordinator.core.staging import GAP, StagedRun, Verdict
from coordinator.protocol.topic_names import matches
from coordinator.protocol.values import AcknowledgeType, SharePartitionKey, client_in_words

PlanRanges = tuple[tuple[str, int, tuple[tuple[int, int], ...]], ...]


class TaskSignal(NamedTuple):
    """The signals of one Spark task, and the host where the task runs."""

    host: str
    progress: Progress


@dataclass(slots=True)
class AcquiredPlan:
    """A plan: one acquisition of a member. The group keeps a plan while a run carries its id, and a query's newest plan
    longer.

    member_epoch: the epoch that acquired the plan, or reclaimed it last.
    acquired_ms: when the plan was acquired.
    ranges: the offsets that the plan held at its last start, or else its acquisition, by (topic id, partition).
    query: the member is a Spark query.
    trial: the plan's one record is on trial (:mod:`coordinator.core.isolation`).
    started: the delivery in ``member_epoch`` has begun, so that a replay counts as a failure.
    counts_as_evidence: the delivery began after the group last quarantined a record, so that its completion shows that
        processing has worked since then.
    data_loss: offsets that the log lost, reported when the plan was started.
    unreported_losses: offsets that the log lost while no process read the plan; the next start reports them.
    lost_if_completed: those of them that are in no output if the batch completes without another start; then the group
        reports them.
    left_out: offsets that the batch goes on without since the last start.
    superseded_plans: the last hundred plans that this one supersedes, the oldest first.
    reclaims: how often a later process reclaimed the plan, which raises all delivery counts by one. The attempts at the
        batch have this number.
    explicit: in this attempt, records that no sink decides are released (share.acknowledgement.mode as it was when the
        delivery began).
    explicit_attempts: the last two attempts, as values of ``reclaims``, in which a sink wrote in explicit mode.
    replaces: True if all sinks of this attempt said that their target replaces its output of the batch; False if one
        did not say so; None while no sink has written.
    fail_on_data_loss: in this attempt, a task fails if a record is gone when it reads.
    staged: outcomes that sinks decided, by share partition. They take effect when the plan is completed.
    signals: soft state: the signals of this attempt's tasks, by Spark's id of the task, the newest last.
    ahead_ms: soft state: how much later than the load the plan was acquired, by this owner's clock; 0 if it was not.
    batch_id: soft state: Spark's number of the batch, from the sink that staged last; None if no sink has named it.
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
    lost_if_completed: tuple[LeftOutRange, ...] = ()
    left_out: tuple[LeftOutRange, ...] = ()
    superseded_plans: tuple[int, ...] = ()
    reclaims: int = 0
    explicit: bool = False
    explicit_attempts: tuple[int, ...] = ()
    replaces: bool | None = None
    fail_on_data_loss: bool = True
    staged: dict[SharePartitionKey, list[StagedRun]] = field(default_factory=dict)
    signals: dict[int, TaskSignal] = field(default_factory=dict, compare=False)
    ahead_ms: int = field(default=0, compare=False)
    batch_id: int | None = field(default=None, compare=False)

    @property
    def held_since_ms(self) -> int:
        """When the plan was acquired; the time of the load if that was earlier, by this owner's clock."""
        return self.acquired_ms - self.ahead_ms

    @property
    def records(self) -> int:
        """How many records the last delivery held."""
        return sum(last - first + 1 for _, _, ranges in self.ranges for first, last in ranges)

    @property
    def explicit_before(self) -> int | None:
        """The last attempt before this one in which a sink wrote in explicit mode; None: there was none."""
        return max((attempt for attempt in self.explicit_attempts if attempt < self.reclaims), default=None)

    def progress_of(self, run: Run) -> Progress | None:
        """The signals of the run's holder: a ShareConsumer's for these records, or the newest of a query's tasks, which
        is for the whole batch. None: there are none, or nobody holds the run."""
        if run.state not in HELD or not self.signals:
            return run.progress
        return next(reversed(self.signals.values())).progress

    # --- the outcomes of the plan's records, if it completes now (:mod:`coordinator.core.staging`)

    @property
    def replaces_output(self) -> bool:
        """Whether nothing of earlier attempts is left in the target."""
        return self.replaces is True

    def counting(self, run: Run, verdict: Verdict | None) -> Verdict | None:
        """Returns the verdict; None if it is of an earlier attempt whose output was replaced."""
        is_older = verdict is not None and verdict is not GAP and verdict.delivery_count != run.delivery_count
        return None if is_older and self.replaces_output else verdict

    def outcome(self, run: Run, verdict: Verdict | None) -> AcknowledgeType:
        """The outcome of the plan's run. ``verdict``: the verdict on it that counts."""
        if verdict is GAP:
            return AcknowledgeType.GAP
        if verdict is not None and verdict.delivery_count == run.delivery_count:
            return AcknowledgeType(verdict.settled(replaces=self.replaces_output))
        silence = self.silence(run, verdict)
        agrees = verdict is None or verdict.settled(replaces=False) == silence
        return silence if agrees else AcknowledgeType.RELEASE

    def silence(self, run: Run, verdict: Verdict | None) -> AcknowledgeType:
        """The outcome of a record that the last attempt did not mention. In implicit mode the record is accepted. The
        exception is an earlier attempt in explicit mode that did not mention the record either, and whose output may be
        in the target, unless an attempt has named the record since."""
        named = -1 if verdict is None else self.reclaims - (run.delivery_count - verdict.delivery_count)
        unheard = not self.replaces_output and named < max(self.explicit_attempts, default=-1)
        return AcknowledgeType.RELEASE if self.explicit or unheard else AcknowledgeType.ACCEPT

    def is_unread(self, run: Run, verdict: Verdict | None, outcome: AcknowledgeType) -> bool:
        """Whether a record that is gone would be accepted although perhaps no task read it. No row of the last attempt
        names it, and with failOnDataLoss=false tasks skip records that are gone."""
        named = verdict is not None and verdict.delivery_count == run.delivery_count
        return outcome == AcknowledgeType.ACCEPT and not (named or self.fail_on_data_loss)


@dataclass(slots=True)
class Member:
    """A Spark query or a ShareConsumer. All fields but ``session_deadline_ms`` are durable.

    newest: a query's newest plan. completed: the id of the plan that the query completed last; None if it has none.
    evidence: the query completed a batch which shows that processing works.
    decides: a sink has staged outcomes for the member.
    query_id, query_name, checkpoint: what the sink that staged last says about the query; empty: not known.
    seen_ms: when the member was last seen, by the wall clock. This is written rarely: the member may have been there up
        to an eighth of share.member.retention.ms later.
    acquisitions: how many plans the member has acquired. Turns depend on it: which partition comes first, and when a
        record is delivered alone.
    breaker: a query's breaker on releases; None if its last plan was not mostly released.
    ending: how the query's processes ended since it last completed a batch; None if none did.
    session_deadline_ms: when the session ends without a heartbeat; None if the member has no session.
    """

    member_id: str
    member_epoch: int
    process_id: str
    query: bool
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    assign: dict[str, tuple[int, ...]] | None = None
    starting_offsets: str | None = None
    member_name: str = ""
    client_id: str = ""
    client_host: str = ""
    client_pid: int = 0
    fenced_processes: tuple[str, ...] = ()
    newest: AcquiredPlan | None = None
    completed: int | None = None
    evidence: bool = False
    decides: bool = False
    query_id: str = ""
    query_name: str = ""
    checkpoint: str = ""
    seen_ms: int = 0
    acquisitions: int = 0
    breaker: Breaker | None = None
    ending: Ending | None = None
    session_deadline_ms: int | None = None

    @property
    def active(self) -> bool:
        return self.session_deadline_ms is not None

    @property
    def name(self) -> str:
        """The name that people know the member by (MemberDescription)."""
        return self.member_name or self.query_name or self.client_id

    @property
    def client(self) -> str:
        """The member's name, process and host in words, for people."""
        return client_in_words(self.name, self.client_pid, self.client_host)

    @property
    def is_assigned(self) -> bool:
        """Whether the member acquires only from partitions that are assigned to it: it is a ShareConsumer that
        subscribes to topics."""
        return not self.query and self.assign is None and bool(self.topics or self.topic_pattern is not None)

    @property
    def subscription(self) -> tuple[tuple[str, ...], str | None]:
        """The topic names and the pattern to which the member is subscribed."""
        return self.topics, self.topic_pattern

    def subscribes(self, topic: str) -> bool:
        """Whether the topic is in the member's subscription, by name or by pattern."""
        return topic in self.topics if self.topic_pattern is None else matches(self.topic_pattern, topic)

    @property
    def pending(self) -> AcquiredPlan | None:
        """The newest plan, while it is not completed."""
        return self.newest if self.newest is not None and self.newest.plan_id != self.completed else None

    def plan_state(self, plan_id: int | None) -> PlanState:
        """The state of one of this query's plans. None stands for the time before the first plan, and counts as
        COMPLETED until a plan is completed."""
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
    """The ranges followed by ``more``. If ``more`` begins with the last partition of ``ranges``, the two are joined."""
    if ranges and ranges[-1][:2] == more[0][:2]:
        topic_id, index, of_last = ranges[-1]
        return (*ranges[:-1], (topic_id, index, (*of_last, *more[0][2])), *more[1:])
    return (*ranges, *more)


def plan_from(record: PlanAcquired | PlanKept, member: Member) -> AcquiredPlan:
    """Returns the plan of a log record, with the values of all fields that the record and the plan share."""
    shared = {name: getattr(record, name) for name in record.__struct_fields__ if name in _OF_PLAN}
    return AcquiredPlan(query=member.query, **shared)


_OF_PLAN = frozenset(field.name for field in fields(AcquiredPlan))
