"""The state of a share group: its members, plans and share partitions.

:func:`coordinator.core.replay.replay` changes the group, live and on recovery alike; commands read it and return log
records (:func:`coordinator.core.decide.decide`); looks show it (:func:`coordinator.core.look.look`).

Sessions, the deadlines of locks and sessions, ``deadlines_extended_until_ms`` and the time of the next sweep are *soft
state*: their records are not durable, and a new owner begins without them. :meth:`ShareGroup.loaded` sets them after a
load, outside of the log. Every holder then has one session timeout to come back, unless this process served the group
before and knows when it heard the members last (:class:`Heard`).

The theory, on one page
-----------------------

A command is decided on the group as it is, and changes nothing; its log records are appended, and replayed into the
group (:class:`~coordinator.core.commands.Decision`). So the group is a function of its log: two owners that replay the
same records hold the same group, but for soft state.

Four things have a state: a record (TRANSITIONS in :mod:`~coordinator.core.record_state`), a query's plan (TRANSITIONS
in :mod:`~coordinator.core.plan_state`), the isolation of a record that keeps failing (TRANSITIONS in
:mod:`~coordinator.core.isolation`), and a member's session. The decision on one command moves all that it touches, and
its records are one append: no reader of the log sees one half.

Only the record's state is stored. A plan's state is derived from what its member stores (``Member.plan_state``), a
stage of isolation from the run and its plan (``stage_of``). Without a table are: the session (a member has a deadline,
or none), the lock of a ShareConsumer's record (a deadline in :class:`~coordinator.core.due_times.LockIndex`; a query's
lock is its session), a topic (current, deleted, forgotten), and the breaker on releases (open or closed).

What happens to one of the four, and what that does to the others:

* An acquisition moves records by ACQUIRE, and puts the new plan's id on them. The first start of a plan moves the plan
  alone; from then on, a delivery that ends without an outcome counts as a failure. Outcomes that a sink stages move
  nothing either: they wait for the plan's completion. It moves the plan's records by COMPLETE, RELEASE or REJECT; those
  that no sink decided by COMPLETE, or in explicit mode by RELEASE.
* A session that ends loses the locks of the member's records (LOSE_LOCK), and leaves a query's plans as they are. A
  ShareConsumer that leaves by itself releases its records instead. Records IN_PROGRESS whose last signal is fresh stay
  so for a grace period, in either case. A ShareConsumer's record at the limit is given up (LIMIT).
* A query whose session ended may come back: records that still carry its plan's id are its own again (RECLAIM), those
  that another member took are left out. Each later process that starts a started plan has failed the plan once: each
  record moves on in its isolation, and stays in the batch (RECLAIM), leaves the batch for a later one (CUT) or for
  quarantine (QUARANTINE), or is given up (FAIL_TRIAL).
* A record that is quarantined, or fails alone for the first time, takes from all queries of the group the evidence that
  processing works; without it no trial begins, or only after share.poison.solo.timeout.ms. A failed trial takes the
  evidence from its own query.
* The group keeps a plan as long as a run carries its id, and a query's newest plan beyond that.
* A log start that moves archives the records below it that no member holds (LOG_START), and a held record when its
  holder lets it go.

What is ugly, and why it stays:

* A run that lost its lock is AVAILABLE and still carries its plan's id. A state LOST beside AVAILABLE would be plainer.
  But the state log is Kafka's, which has no such state, and Kafka's own tools read it.
* "Completed" is told by the *next* plan's request, so a plan may wait for its completion for hours. Spark calls
  ``commit`` of a source late, or not at all at the end of a run; the next ``latestOffset`` is the first proof that the
  batch's output is durable.
* A query's lock is its session, a ShareConsumer's is a deadline of its own (KIP-932). One of each would cost either a
  renewal for each record of a long batch, or locks that outlive a native consumer's limit.
* A stage of isolation is derived from two counts and a flag of the run, not stored: it has to survive snapshots, splits
  and joins of runs, and Kafka's records, which have no field for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from coordinator.config.group_bounds import GroupBounds
from coordinator.config.resolved import GroupConfig
from coordinator.core.consumer_locks import lock_deadline_ms
from coordinator.core.due_times import DueTimes, LockIndex
from coordinator.core.left_out import LeftOutRange
from coordinator.core.log_records import MemberWaits, PartitionDeleted, TopicForgotten
from coordinator.core.members import AcquiredPlan, Member
from coordinator.core.plan_state import PlanEvent, PlanState, after
from coordinator.core.recent_acquisitions import RecentAcquisitions
from coordinator.core.record_counts import RecordTotals
from coordinator.core.record_state import HELD
from coordinator.core.runs import Progress, Run, Segment
from coordinator.core.share_partition import SharePartition
from coordinator.core.stored_times import ahead
from coordinator.protocol.errors import FencedMemberEpoch, ForeignPlan, StalePlan, UnknownMemberId
from coordinator.protocol.values import SharePartitionKey

MEMBERS_KEPT = 1_000
"""Up to this many members without a session are never forgotten, so that a small group's queries may rest for as long
as they like."""


class Heard(NamedTuple):
    """The soft state of a group at ``at_ms``, which a process keeps when it has to load its own group again. Sessions:
    their ends by member. Locks: the latest end of a ShareConsumer's locks by plan; 0 if it has passed. The other fields
    are those of ShareGroup."""

    at_ms: int
    sessions: dict[str, int]
    locks: dict[int, int]
    unheard: set[str]
    deadlines_extended_until_ms: int


class ShareGroup:
    """The state of one group. Plan ids are ints here; on the wire they carry the group's incarnation."""

    def __init__(self, group_id: str, bounds: GroupBounds | None = None) -> None:
        """``bounds``: the bounds that the coordinator sets to stored configs; they are no part of the state."""
        self.group_id = group_id
        self.incarnation = ""
        self.topic_ids = True
        self.bounds = bounds
        self.config = GroupConfig.parse(None, bounds)
        self.configs: dict[str, str] = {}
        self.topics: dict[str, str] = {}
        self.topic_names: dict[str, str] = {}
        self.gone: dict[str, int] = {}
        """When the group learnt of the deletion, by id of the deleted topic. Records of these topics are archived,
        unless a member holds them."""
        self.partitions: dict[SharePartitionKey, SharePartition] = {}
        self.deleted_partitions: dict[SharePartitionKey, PartitionDeleted] = {}
        """Share partitions whose state an administrator deleted, with what they had handed out."""
        self.altered_by: dict[SharePartitionKey, str] = {}
        """Soft state: who altered the start offset of a share partition last."""
        self.last_altered_after = 0
        """The highest ``altered_after`` of a share partition. Higher plan ids were acquired after all alterations."""
        self.actions: dict[str, bytes] = {}
        """The answers to the last administrators' actions by action id, the oldest first."""
        self.members: dict[str, Member] = {}
        self.plans: dict[int, AcquiredPlan] = {}
        self.last_plan_id = 0
        self.unreported_losses: tuple[LeftOutRange, ...] = ()
        """Records that the logs lost while no plan held them. The query that acquires next reports them."""
        self.decided = 0
        self.rejected = 0
        """How many of the last ``decided`` records sinks rejected (:mod:`coordinator.core.reject_ratio`)."""
        self.deadlines_extended_until_ms = 0
        """Soft state: no session ends before this time, after a load or a stall."""
        self.sessions: dict[str, None] = {}
        """Soft state: the ids of members whose session lives, in the order in which the sessions began. Only
        ``keep_session`` and ``end_session`` change it."""
        self._session_ends = DueTimes()
        self.waiting: dict[str, MemberWaits] = {}
        """Soft state: members of an ordered group that wait for share partitions that others hold, by member id."""
        self.unheard: set[str] = set()
        """Soft state: members that may have had a session with the owner before, and that sent nothing since the
        load."""
        self.assignment_epoch = 0
        self.assignment: dict[str, frozenset[SharePartitionKey]] = {}
        """Soft state: the partitions that are assigned to each ShareConsumer."""
        self.assignment_is_old = True
        """Soft state: members, subscriptions or partitions have changed since the assignment."""
        self.assigned_ms = 0
        """Soft state: when the assignment was made; 0: none was made since the load."""
        self.forgotten_epoch = 0
        """The highest epoch of members that were forgotten: new members get higher ones."""
        self.old_topics: set[str] = set()
        """Ids of topics that a newer topic of the same name replaced, and of which the group still has something."""
        self.dropped = RecordTotals()
        """The counts of share partitions that the group dropped, so that no count of the group ever falls."""
        self.forgotten_topics: dict[str, TopicForgotten] = {}
        """The last forgotten topics, by id; they have a bounded number of share partitions in all."""
        self.ends_kept = 0
        """How many share partitions ``forgotten_topics`` have in all."""
        self.swept_until_ms = 0
        """Soft state: the sweep for members and topics to forget is due after this time."""
        self.holders: dict[int, set[SharePartitionKey]] = {}
        """The share partitions with a run that carries a plan's id, by plan id."""
        self.times_are_ahead = False
        """Soft state: runs have times that are ahead of this owner's clock. The next Expire bounds them."""
        self.locks = LockIndex()
        """Soft state: when the locks of ShareConsumers end."""
        self.recent = RecentAcquisitions()
        """Soft state: the acquisitions of the last second, while the group has a rate."""

    def __repr__(self) -> str:
        return (
            f"<ShareGroup {self.group_id} partitions={len(self.partitions)} members={len(self.members)} "
            f"last_plan_id={self.last_plan_id}>"
        )

    def clear(self) -> None:
        """Forget everything: a deleted group is as if it had never been created."""
        self.__init__(self.group_id, self.bounds)  # type: ignore[misc]

    # --- read by commands, looks and the service

    @property
    def exists(self) -> bool:
        return bool(self.incarnation)

    @property
    def has_records_in_flight(self) -> bool:
        """Whether any share partition of the group has offsets from its start offset to its end offset."""
        return any(partition.start_offset < partition.end_offset for partition in self.partitions.values())

    @property
    def group_epoch(self) -> int:
        """KIP-932's group epoch. It is the assignment's, plus one while the assignment is old."""
        return self.assignment_epoch + (self.exists and self.assignment_is_old)

    def member(self, member_id: str, member_epoch: int) -> Member:
        """The member, if its session lives and this is its epoch.

        Raises:
            UnknownMemberId: the group does not know the member, or its session has ended.
            FencedMemberEpoch: the member has another epoch.
        """
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(member_id=member_id, group_id=self.group_id)
        self.check_epoch(member, member_epoch)
        if not member.active:
            raise UnknownMemberId(member_id=member_id, group_id=self.group_id)
        return member

    def check_epoch(self, member: Member, member_epoch: int) -> None:
        if member_epoch != member.member_epoch:
            raise FencedMemberEpoch(
                member_id=member.member_id,
                group_id=self.group_id,
                holder=member.client,
                current_epoch=member.member_epoch,
                member_epoch=member_epoch,
            )

    def checked_state(self, member: Member, plan_id: int | None, event: PlanEvent) -> PlanState:
        """Returns the state of the member's plan, if that state allows ``event``.

        Raises:
            StalePlan: the plan's state does not allow the event.
        """
        state = member.plan_state(plan_id)
        if after(state, event) is None:
            newest = member.newest
            if newest is not None and newest.plan_id == plan_id:
                raise self.stale(member, plan_id, f"it is {state.value}")
            newest_id = "none" if newest is None else self.plan_id_text(newest.plan_id)
            raise self.stale(member, plan_id, f"it is not this query's newest plan (that is {newest_id})")
        return state

    def stale(self, member: Member, plan_id: int | None, reason: str) -> StalePlan:
        """Returns the error to raise about this plan or start, with the reason."""
        if member.newest is None:
            reason += (
                ", since the group does not know this query"
                " (share.member.retention.ms: it may have been away for longer)"
            )
        return StalePlan(plan_id=self.plan_id_text(plan_id) or "(initial)", member_id=member.member_id, reason=reason)

    def plan_id(self, text: str) -> int | None:
        """Returns the plan id of a plan named on the wire; None for an empty text.

        Raises:
            ForeignPlan: the plan is of another incarnation of the group.
        """
        if not text:
            return None
        incarnation, _, plan_id = text.rpartition(".")
        if incarnation != self.incarnation or not plan_id.isdigit():
            raise ForeignPlan(plan_id=text, group_id=self.group_id, incarnation=self.incarnation)
        return int(plan_id)

    def plan_id_text(self, plan_id: int | None) -> str:
        return f"{self.incarnation}.{plan_id}" if plan_id is not None else ""

    def plan_of(self, run: Run) -> AcquiredPlan | None:
        """Returns the plan whose id the run carries; None if it carries none."""
        return self.plans.get(run.plan_id) if run.plan_id is not None else None

    def progress_of(self, run: Run) -> Progress | None:
        """Returns the signals of the run's holder; None if there are none."""
        plan = self.plan_of(run)
        return run.progress if plan is None else plan.progress_of(run)

    def carrying(self, plan: AcquiredPlan) -> Iterator[tuple[SharePartition, list[Segment]]]:
        """Yield each partition of the plan with its segments that still carry the plan's id, in the plan's order."""
        for topic_id, index, ranges in plan.ranges:
            partition = self.partitions.get(SharePartitionKey(topic_id, index))
            if partition is not None and (segments := partition.carrying(plan.plan_id, ranges)):
                yield partition, segments

    def runs_in(self, plan: AcquiredPlan) -> Iterator[Run]:
        """Yield the runs in the plan's ranges, also those that no longer carry the plan's id. Partitions without a run
        that carries it are left out."""
        for topic_id, index, ranges in plan.ranges:
            partition = self.partitions.get(SharePartitionKey(topic_id, index))
            if partition is not None and plan.plan_id in partition.runs.carried:
                for first, last in ranges:
                    yield from (segment.run for segment in partition.runs.between(first, last))

    def held_by(self, member: Member) -> int:
        """Returns how many records the member holds."""
        return sum(
            partition.held_under(plan.plan_id, ranges)
            for plan in self.plans.values()
            if plan.member_id == member.member_id
            for topic_id, index, ranges in plan.ranges
            if (partition := self.partitions.get(SharePartitionKey(topic_id, index))) is not None
        )

    def is_current(self, topic_id: str) -> bool:
        """Whether the topic exists, as far as the group knows: it was not deleted, and no newer one has its name."""
        return self.topics.get(self.topic_names.get(topic_id, "")) == topic_id and topic_id not in self.gone

    @property
    def waiting_for_dead_letters(self) -> int:
        """How many records were given up and have no dead letter yet."""
        return sum(partition.archiving_count for partition in self.partitions.values())

    def existing_partitions(self) -> dict[str, list[int]]:
        """The share partitions of topics that exist, by topic id."""
        found: dict[str, list[int]] = {}
        for key in self.partitions:
            if self.is_current(key.topic_id):
                found.setdefault(key.topic_id, []).append(key.partition)
        return found

    def initialized(self, topic_id: str, partition: int) -> bool:
        return SharePartitionKey(topic_id, partition) in self.partitions

    def forgotten_end(self, key: SharePartitionKey) -> tuple[int, int]:
        """For a forgotten share partition, the end of what was acquired and the highest delivery count of any record;
        zeros if the group has not kept them."""
        topic = self.forgotten_topics.get(key.topic_id)
        ends = () if topic is None else topic.ends
        return next(((end, highest) for index, end, highest in ends if index == key.partition), (0, 0))

    def totals(self) -> tuple[RecordTotals, int]:
        """The counts of all share partitions that the group has, or had; and how many records are still there."""
        partitions = self.partitions.values()
        reached = RecordTotals(reached=sum(each.reached for each in partitions))
        totals = self.dropped.plus(reached, *(each.counts for each in partitions))
        return totals, sum(each.still_there for each in partitions)

    def plan_partitions(self, member: Member, plan_id: str) -> set[tuple[str, int]]:
        """Returns (topic id, partition) of each partition that may change when the plan ``plan_id`` is started; empty
        if there is no such plan."""
        named = self.plan_id(plan_id)
        is_superseded = member.plan_state(named) is PlanState.SUPERSEDED
        plan = member.newest if is_superseded else self.plans.get(named) if named is not None else None
        return set() if plan is None else {(topic_id, index) for topic_id, index, _ in plan.ranges}

    def next_deadline_ms(self) -> int | None:
        """When Expire next has something to do; None: never. A deadline has passed once it lies before now."""
        earliest = [ends_ms] if (ends_ms := self._session_ends.earliest_ms()) is not None else []
        earliest += [due_ms] if (due_ms := self.locks.next_ms()) is not None else []
        earliest += [self.swept_until_ms] if self.has_forgettable else []
        earliest += [0] if self.times_are_ahead else []
        return min(earliest) + 1 if earliest else None

    @property
    def has_forgettable(self) -> bool:
        """Whether the group may have members or topics to forget."""
        return bool(self.gone) or len(self.members) - len(self.sessions) > MEMBERS_KEPT

    def may_rest(self, now_ms: int) -> bool:
        """Whether no session lives and no record is acquired or delayed, so that a coordinator on demand may leave."""
        if self.sessions:
            return False
        return not any(p.acquired_count or p.runs.due_after(now_ms) is not None for p in self.partitions.values())

    # --- changed by replay

    def keep_session(self, member: Member, deadline_ms: int) -> None:
        """Begin the member's session, or extend it, until ``deadline_ms``."""
        member.session_deadline_ms = deadline_ms
        self.sessions[member.member_id] = None
        self._session_ends.set(member.member_id, deadline_ms)

    def end_session(self, member: Member) -> None:
        """End the member's session, if it lives."""
        member.session_deadline_ms = None
        self.sessions.pop(member.member_id, None)
        self._session_ends.set(member.member_id, None)
        self.waiting.pop(member.member_id, None)

    def heard(self, now_ms: int, expired: Iterable[int] = ()) -> Heard:
        """Returns the soft state now. ``expired``: plans of ShareConsumers whose locks ended by time, in a round that
        did not become durable."""
        locks = dict.fromkeys(expired, 0)
        for plan in self.plans.values():
            for _, segments in self.carrying(plan) if not plan.query else ():
                for _, _, run in segments:
                    if run.deadline_ms is not None:
                        locks[plan.plan_id] = max(self.locks.deadline_ms(run.deadline_ms), locks.get(plan.plan_id, 0))
        ends = {member_id: self.members[member_id].session_deadline_ms for member_id in self.sessions}
        sessions = {member_id: ends_ms for member_id, ends_ms in ends.items() if ends_ms is not None}
        return Heard(now_ms, sessions, locks, set(self.unheard), self.deadlines_extended_until_ms)

    def loaded(self, now_ms: int, heard: Heard | None = None) -> None:
        """Set the soft state after a load, without log records. Every member that holds records has one session timeout
        to come back, and every ShareConsumer's lock lasts at least as long; if the log says that a lock lasts longer,
        it does. The next Expire bounds times that are ahead of this owner's clock.

        ``heard``: what this process knew, if no other process has owned the group since. Then sessions and locks keep
        the time that was left to them: otherwise members that are gone would keep their records for as long as the
        group is loaded again and again. If a session timeout has passed since then, ``heard`` is ignored."""
        deadline_ms = self.deadlines_extended_until_ms = now_ms + self.config.share_session_timeout_ms
        if heard is not None and now_ms - heard.at_ms >= self.config.share_session_timeout_ms:
            heard = None
        away_ms = 0 if heard is None else now_ms - heard.at_ms
        if heard is not None:
            self.deadlines_extended_until_ms = heard.deadlines_extended_until_ms + away_ms
            for member_id, ends_ms in heard.sessions.items():
                if (known := self.members.get(member_id)) is not None:
                    self.keep_session(known, ends_ms + away_ms)
        self.assignment_is_old = True
        self.recent.fill(now_ms)
        self.locks = LockIndex()
        self.times_are_ahead = any(ahead(partition.runs, now_ms) for partition in self.partitions.values())
        for plan in list(self.plans.values()):
            held = [
                (partition, segment)
                for partition, segments in self.carrying(plan)
                for segment in segments
                if segment.run.state in HELD
            ]
            member = self.members[plan.member_id]
            if held and heard is None:
                self.keep_session(member, deadline_ms)
            elif held and plan.query and not member.active:  # its end was decided, but not appended: it is due again
                self.keep_session(member, now_ms)
            if not plan.query:
                at_least_ms = deadline_ms
                if heard is not None:
                    at_least_ms = heard.locks.get(plan.plan_id, heard.sessions.get(plan.member_id, 0)) + away_ms
                self._keep_locks(plan, held, at_least_ms, now_ms)
                plan.ahead_ms = max(0, plan.acquired_ms - now_ms)
        self.unheard = self.members.keys() - self.sessions.keys()
        if heard is not None:
            self.unheard &= heard.unheard
        self.altered_by = {
            key: "" for known in (self.partitions, self.deleted_partitions) for key in known if known[key].altered_after
        }

    def _keep_locks(
        self, plan: AcquiredPlan, held: Iterable[tuple[SharePartition, Segment]], deadline_ms: int, now_ms: int
    ) -> None:
        """Give a ShareConsumer's runs locks that last until ``deadline_ms`` at least, and as long as the log says: the
        config may have been altered since a lock was given. A lock that was given later than now, by this owner's
        clock, lasts for its whole length from now on."""
        for partition, segments in groupby(held, key=itemgetter(0)):
            runs = []
            for _, (first, last, run) in segments:
                logged_ms = max(run.deadline_ms or 0, lock_deadline_ms(plan, run, self.config))
                given_ms = plan.acquired_ms if run.progress is None else run.progress.last_ms
                ends_ms = max(deadline_ms, logged_ms - max(0, given_ms - now_ms))
                runs.append((first, last, run._replace(deadline_ms=ends_ms)))
            partition.apply(runs)
            self.watch_locks(runs)

    def watch_locks(self, runs: Iterable[tuple[int, int, Run]]) -> None:
        ends = {(run.plan_id, run.deadline_ms) for _, _, run in runs if run.deadline_ms is not None}
        for plan_id, kept_ms in ends:
            if plan_id is not None and kept_ms is not None:
                self.locks.watch(plan_id, kept_ms, self.plans)
