"""Handles the requests: asks the brokers, runs transactions on groups, and waits where a request may wait.

Each request is handled in its caller's thread; only the event loop's thread reads and changes groups. The service keeps
no state of a group. A handler's view of a group may be old, so the transaction that follows decides again."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from math import inf
from typing import Any

import msgspec

from coordinator.config.resolved import ServerConfig
from coordinator.core.commands import StageRuns
from coordinator.core.commands.acquisition import MOST_ARCHIVING
from coordinator.core.looks.view import GroupView, ViewGroup
from coordinator.protocol.allowed_topics import SOURCE_KEY
from coordinator.protocol.errors import BrokerNotReachable, BrokerRefused, CoordinatorNotAvailable, ShareGroupError
from coordinator.protocol.group_ids import check_group_id
from coordinator.protocol.messages import (
    Acknowledge,
    AcknowledgeReply,
    AcquiredReply,
    AcquireRecords,
    DescribeGroup,
    GivenUp,
    GroupDescription,
    GroupRequest,
    Heartbeat,
    Joined,
    JoinGroup,
    LatestOffsets,
    LeaveGroup,
    MarkInProgress,
    MemberRequest,
    NextPlan,
    OffsetsReply,
    OpenSink,
    OutcomesStaged,
    PartitionBounds,
    Plan,
    PlanReply,
    Reply,
    ReportEnding,
    ReportProgress,
    StartPlan,
)
from coordinator.protocol.repeated_lines import LogOnce
from coordinator.protocol.values import TopicAndPartition, client_in_words
from coordinator.service.brokers.asked_ahead import AfterReplies, AskedAhead, StartFacts
from coordinator.service.brokers.broker_watch import BrokerWatch
from coordinator.service.brokers.cluster import EARLIEST, TopicInfo
from coordinator.service.brokers.partition_starts import Start
from coordinator.service.brokers.subscription import Subscription, TopicIdPartition, starting_offsets
from coordinator.service.dead_letters.topic_check import check_dead_letter_topic, is_stored_and_refused
from coordinator.service.handlers.handler_table import Handlers
from coordinator.service.handlers.open_sink import open_sink
from coordinator.service.questions.lags import with_lag
from coordinator.service.questions.lost_logs import LostLogs
from coordinator.service.questions.plan_gaps import PlanGaps
from coordinator.service.questions.record_ttl import RecordTtl, ends_of_older
from coordinator.service.questions.remade_topics import RemadeTopics
from coordinator.service.runtime import transactions
from coordinator.service.runtime.event_loop import PartitionedRuntime
from coordinator.service.runtime.group_limits import GroupLimits
from coordinator.service.runtime.news import News
from coordinator.service.runtime.transaction import Access
from coordinator.service.runtime.transactions import Facts, JoinView

LONGEST_WAIT_MS = 60_000
"""NextPlan and AcquireRecords wait up to this many milliseconds for records."""
LEFT_TO_OTHERS_S = 0.05
"""After this many seconds of waiting a ShareConsumer gets records of partitions that are assigned to others: consumers
that wait for these records have got them by then."""
LOOK_AGAIN_S = 1.0
"""A request that waits for records checks again after this many seconds without news."""
DUE_TOGETHER_S = 0.01
"""A request that waits for a view's time waits at least this many seconds, so that it gets several records at once."""
ASKS_AT_ONCE = 8
"""Each of three kinds of questions to the brokers has this many threads of its own: for log starts, for polls with
acknowledgements, and for acquired plans. A hanging broker soon blocks all threads of one kind, and a query's start must
not wait for those."""
ACKNOWLEDGE_ALONE_AFTER_S = 0.05
"""A poll's acknowledgements wait this many seconds for the brokers. With an answer in that time, they and the
acquisition are one append."""
MOST_NAMED = 10
"""A log line names up to this many topics."""

_log = logging.getLogger(__name__)


class CoordinatorService(Handlers):
    """Answers any request of :mod:`coordinator.protocol.messages`."""

    def __init__(
        self, runtime: PartitionedRuntime, watch: BrokerWatch, news: News, limits: GroupLimits | None = None
    ) -> None:
        self._runtime, self._news = runtime, news
        self._limits = limits or GroupLimits(ServerConfig.parse())
        self._watch = watch
        self._asks = ThreadPoolExecutor(ASKS_AT_ONCE, thread_name_prefix="share-asks")
        self._asks_of_polls = ThreadPoolExecutor(ASKS_AT_ONCE, thread_name_prefix="share-asks-of-polls")
        self._asks_ahead = AfterReplies(ASKS_AT_ONCE, thread_name_prefix="share-asks-ahead")
        self._asked_ahead = AskedAhead(runtime.clock.now_ms)
        self._plan_gaps = PlanGaps(watch)
        self.lost_logs = LostLogs(runtime, watch)
        self._record_ttl = RecordTtl(runtime, watch)
        self._remade_topics = RemadeTopics(watch)
        self._once = LogOnce(_log)
        super().__init__(
            {
                JoinGroup: self._join,
                Heartbeat: self._single_command,
                LeaveGroup: self._single_command,
                ReportEnding: self._single_command,
                AcquireRecords: self._acquire_records,
                Acknowledge: self._acknowledge,
                MarkInProgress: self._single_command,
                # A signal takes no group: nothing depends on it.
                ReportProgress: partial(self._single_command, access=Access.PEEK),
                NextPlan: self._next_plan,
                StartPlan: self._start_plan,
                LatestOffsets: self._latest_offsets,
                DescribeGroup: self._describe,
                OpenSink: lambda request: open_sink(self._runtime, self._watch.cluster, request),
                StageRuns: self._stage,
            }
        )

    def look_at_groups(self) -> None:
        """Archive what groups had of deleted topics, and what is expired where nobody acquires."""
        self.lost_logs.look_at_groups()
        self._record_ttl.look_at_groups()

    # --- members

    def _single_command(self, request: GroupRequest[Reply], access: Access = Access.SERVE) -> Reply:
        return self._runtime.call(request.group_id, transactions.single_command(request), access)

    def _describe(self, request: DescribeGroup) -> GroupDescription:
        self.lost_logs.note_looked_at(request.group_id)
        return with_lag(self._runtime, self._watch.cluster, request)

    def _join(self, request: JoinGroup) -> Joined:
        subscription = Subscription.of(request)
        subscription.check_names()
        for topic in subscription.named:
            self._watch.cluster.allowed.check_source(topic)
        new = request.member_epoch is None
        before = Access.PEEK if new else Access.SERVE
        view = self._runtime.call(request.group_id, transactions.look_before_join(request), before)
        if not view.exists:
            check_group_id(request.group_id)
        topic_ids = view.topic_ids if view.exists else self._watch.cluster.gives_topic_ids()
        if new:
            self._check_dead_letters(request, view)
        try:
            starts, missing = self._starts(request, view, topic_ids=topic_ids)
        except (BrokerNotReachable, BrokerRefused, CoordinatorNotAvailable) as error:
            if new:
                raise
            # A lapsed session must be able to come back while the brokers are unreachable.
            _log.warning("member rejoined while the brokers did not answer: group=%s %s", request.group_id, error)
            starts, missing = {}, ()
        join = self._limits.within(request, transactions.join(request, topic_ids=topic_ids, starts=starts))
        joined = self._runtime.call(request.group_id, join, Access.CLAIM if new else Access.SERVE)
        _log.info(
            "member joined: group=%s member=%s epoch=%d client=(%s)",
            request.group_id,
            request.member_id,
            joined.member_epoch,
            client_in_words(request.member_name or request.client_id, request.client_pid, request.client_host),
        )
        return msgspec.structs.replace(joined, missing=missing)

    def _check_dead_letters(self, request: JoinGroup, view: JoinView) -> None:
        """Check the dead letter topic at the join, and not when the first dead letter can't be written. Raises
        ShareGroupError if the topic is reserved, is not allowed, is missing, can't be written, or is read by the group.
        """
        name = view.config.errors_deadletterqueue_topic_name
        if name and not is_stored_and_refused(self._watch.cluster, name, request.configs):
            is_read = view.reads_dead_letters or Subscription.of(request).has(name)
            check_dead_letter_topic(self._watch.cluster, view.config, is_read=is_read)

    def _starts(
        self, request: JoinGroup, view: JoinView, *, topic_ids: bool
    ) -> tuple[dict[TopicIdPartition, Start], tuple[str, ...]]:
        """The start offsets of subscribed partitions that the group does not have yet, and the topics that the
        subscription names and the cluster does not have. Raises CoordinatorNotAvailable if the brokers do not answer
        the offsets of every new partition."""
        subscription = Subscription.of(request)
        topics = self._read_here(self._watch.topics(subscription, fresh=True), request.group_id)
        if request.member_epoch is None and request.query:  # a ShareConsumer may wait for its topic
            subscription.check(topics, self._watch.cluster)
        partitions = subscription.partitions(topics.values(), request.group_id, topic_ids=topic_ids)
        new = [p for p in partitions if (p.topic_id, p.partition) not in view.fetch_from or p.topic_id in view.gone]
        brought = {p for p in new if not view.known.has(p)}
        earliest = self._watch.cluster.offsets([p.topic_partition for p in new], EARLIEST)
        policy = self._by_policy(request, view, [p.topic_partition for p in new if p in brought])
        unknown = [
            p for p in new if p.topic_partition not in earliest or (p in brought and p.topic_partition not in policy)
        ]
        if missing := [f"{p.topic}-{p.partition}" for p in unknown]:
            # If it were left out now, the partition would begin by another rule later.
            raise CoordinatorNotAvailable(
                group_id=request.group_id, reason=f"the brokers give no offsets of {', '.join(missing)} yet"
            )
        starts = {p: Start(earliest[p.topic_partition], policy.get(p.topic_partition)) for p in new}
        return starts, tuple(topic for topic in subscription.named if topic not in topics)

    def _by_policy(
        self, request: JoinGroup, view: JoinView, topic_partitions: list[TopicAndPartition]
    ) -> dict[TopicAndPartition, int]:
        return starting_offsets(
            self._watch.cluster,
            request.starting_offsets or view.config.share_auto_offset_reset,
            topic_partitions,
            self._runtime.clock.now_ms(),
            read_committed=view.config.share_isolation_level == "read_committed",
        )

    # --- sinks

    def _stage(self, request: StageRuns) -> OutcomesStaged:
        staged = self._runtime.call(request.group_id, transactions.single_command(request))
        contradicting = request.contradicting + staged.contradicted
        if staged.stale or request.lost_replacements or contradicting:
            _log.warning(
                "outcomes staged with losses: group=%s query=%s batch=%d staged=%d stale=%d own_content_not_written=%d "
                "contradicting=%d",
                request.group_id,
                request.query_name or request.query_id,
                request.batch_id,
                staged.staged,
                staged.stale,
                request.lost_replacements,
                contradicting,
            )
        return staged

    # --- plans

    def _next_plan(self, request: NextPlan) -> PlanReply:
        deadline = time.monotonic() + min(request.wait_ms, LONGEST_WAIT_MS) / 1000
        given_up: tuple[GivenUp, ...] = ()
        outcomes: dict[str, int] = {}
        while True:
            news = self._news.count
            view = self._view(request)
            partitions = self._partitions(view)
            self.lost_logs.look_for_deleted(view, partitions)
            of_plan = self._logs_to_check(view) if request.start else ()
            facts = self._facts(request, view, partitions, may_wait=time.monotonic() < deadline)
            facts = self._plan_gaps.add_to(facts, request, view)
            if facts.undecided_left:
                _log.info(
                    "checking which undecided offsets the log has: group=%s member=%s plan=%s offsets_left=%d",
                    request.group_id,
                    request.member_id,
                    request.start,
                    facts.undecided_left,
                )
                return PlanReply(undecided_left=facts.undecided_left)
            facts = dataclasses.replace(facts, of_plan=of_plan) if of_plan else facts
            reply = self._runtime.call(request.group_id, transactions.next_plan(request, facts))
            self._plan_gaps.forget(request)
            given_up += reply.given_up
            outcomes = reply.outcomes or outcomes
            reply = msgspec.structs.replace(reply, given_up=given_up, outcomes=outcomes)
            left_s = deadline - time.monotonic()
            self._log_held_back(request, reply)
            if reply.plan.plan_id:
                self._ask_ahead(view, reply.plan)
            if reply.plan.plan_id or request.until is not None or left_s <= 0:
                return reply
            if not self._waited(view, partitions, news, left_s, LOOK_AGAIN_S):
                return reply

    def _waited(
        self, view: GroupView, partitions: list[TopicIdPartition], news: int, left_s: float, again_s: float
    ) -> bool:
        """Wait until there may be more to acquire than the view had: there is news after ``news``, the view's time has
        come, or ``again_s`` is over. Returns False if the request's ``left_s`` is over before."""
        due_s = inf if view.due_in_ms is None else max(view.due_in_ms / 1000, DUE_TOGETHER_S)
        wait_s = min(left_s, again_s, due_s)
        with self._watch.waiting([p.topic_partition for p in partitions], read_committed=view.read_committed):
            return self._news.wait(news, wait_s) or wait_s < left_s

    def _log_held_back(self, request: NextPlan | AcquireRecords, reply: PlanReply | AcquiredReply) -> None:
        if reply.held_back:
            self._once.warn(
                request.group_id,
                f"nothing is acquired: group={request.group_id} {reply.held_back} records wait for their dead letters "
                f"({MOST_ARCHIVING} at most). Acquisition goes on when dead letters are written; `sharegroup doctor` "
                "says why they are not.",
            )

    def _facts(
        self, request: NextPlan | AcquireRecords, view: GroupView, partitions: list[TopicIdPartition], *, may_wait: bool
    ) -> Facts:
        """The facts of the partitions, with what is expired, and ends that leave out records that are not old enough to
        be delivered."""
        facts = self._record_ttl.add_to(self._newest_facts(request, view, partitions, may_wait=may_wait), view)
        return self._without_delayed(view, facts) if view.delivery_delay_ms else facts

    def _without_delayed(self, view: GroupView, facts: Facts) -> Facts:
        """The facts with the ends of the records that are old enough. A record after an older one with a later
        timestamp waits for that one. Of a partition whose leader does not answer, nothing fresh is delivered."""
        ends, fresh = dict(facts.ends), {}
        for p in facts.partitions:
            first = view.fetch_from.get((p.topic_id, p.partition), facts.log_starts.get(p.topic_partition, 0))
            if ends.get(p.topic_partition, 0) > first:
                fresh[p.topic_partition] = first
        known, committed = {where: ends[where] for where in fresh}, view.read_committed
        older = ends_of_older(self._watch.cluster, known, view.delivery_delay_ms, read_committed=committed)
        for where, first in fresh.items():
            ends[where] = max(first, older.get(where, first))
        return dataclasses.replace(facts, ends=ends, delayed=any(ends[each] < facts.ends[each] for each in fresh))

    def _newest_facts(
        self, request: NextPlan | AcquireRecords, view: GroupView, partitions: list[TopicIdPartition], *, may_wait: bool
    ) -> Facts:
        """The facts of the partitions. The cached ends suffice if they fill the request, or if they are new and the
        caller can wait for the next refresh. Otherwise the brokers are asked."""
        topic_partitions, read_committed = [p.topic_partition for p in partitions], view.read_committed
        log_starts = self._watch.log_starts(topic_partitions)
        ends = self._watch.ends(topic_partitions, read_committed=read_committed)
        known = Facts(partitions=partitions, log_starts=log_starts, ends=ends)
        if request.max_records is not None and transactions.backlog(view, known) >= request.max_records:
            return known
        if may_wait and self._watch.are_new(topic_partitions, read_committed=read_committed):
            return known
        is_query = isinstance(request, NextPlan)
        ask_ends = self._watch.ask_ends if is_query else self._watch.ask_answering_ends
        ends = ask_ends(topic_partitions, read_committed=read_committed)
        self.lost_logs.report_shrunk(view, partitions, ends)
        return Facts(partitions=partitions, log_starts=log_starts, ends=ends)

    def _acquire_records(self, request: AcquireRecords) -> AcquiredReply:
        if request.acknowledgements:
            return self._acknowledge_and_acquire(request)
        began = time.monotonic()
        deadline = began + min(request.wait_ms, LONGEST_WAIT_MS) / 1000
        while True:
            news = self._news.count
            view = self._view(request)
            facts = self._facts_of_poll(request, view, may_wait=time.monotonic() < deadline)
            reply = self._acquired(request, view, facts)
            of_others_in_s = began + LEFT_TO_OTHERS_S - time.monotonic()
            watched = [] if reply.plan_id else self._answering(view, request.without)
            if not reply.plan_id and of_others_in_s <= 0:
                reply = self._acquired_of_others(request, view, watched) or reply
            self._log_held_back(request, reply)
            left_s = deadline - time.monotonic()
            if reply.plan_id or left_s <= 0:
                return reply
            again_s = LOOK_AGAIN_S if of_others_in_s <= 0 else of_others_in_s
            if not self._waited(view, watched, news, left_s, again_s):
                return reply

    def _acquired_of_others(
        self, request: AcquireRecords, view: GroupView, subscribed: list[TopicIdPartition]
    ) -> AcquiredReply | None:
        """Acquire records of partitions that are assigned to other consumers, which left them while this member waited;
        None if there are none."""
        ends = self._watch.ends([p.topic_partition for p in subscribed], read_committed=view.read_committed)
        if not (left := transactions.left_by_others(view, subscribed, ends)):
            return None
        reply = self._acquired(request, view, self._facts(request, view, left, may_wait=True), beyond=True)
        return reply if reply.plan_id else None

    def _answering(self, view: GroupView, without: Collection[tuple[str, int]]) -> list[TopicIdPartition]:
        readable = [p for p in self._partitions(view) if (p.topic_id, p.partition) not in without]
        answering = set(self._watch.answering([p.topic_partition for p in readable]))
        return [p for p in readable if p.topic_partition in answering]

    def _acquired(
        self, request: AcquireRecords, view: GroupView, facts: Facts, *, beyond: bool = False
    ) -> AcquiredReply:
        """The reply of an acquisition, without the records of topics that were created again: the member would read the
        new topic's records. The member holds the omitted records until their locks end; then they count as deleted."""
        remade = self._remade_topics.look({p.topic for p in facts.partitions}, lambda: view)
        acquire = transactions.acquire_records(request, facts, beyond=beyond)
        reply = self._runtime.call(request.group_id, acquire)
        if not reply.partitions:
            return reply
        gone = remade({part.topic_id: part.topic for part in reply.partitions})
        kept = tuple(part for part in reply.partitions if part.topic_id not in gone)
        return msgspec.structs.replace(reply, partitions=kept)

    def _acknowledge_and_acquire(self, request: AcquireRecords) -> AcquiredReply:
        """Acknowledge, and acquire in the same append if the brokers answer soon. Otherwise the acknowledgements are
        applied alone, because their locks may end, and the member asks for records again."""
        view = self._view(request)
        remade = self._remade_topics.look_at_acknowledged(request.acknowledgements, lambda: view)
        asked = self._asks_of_polls.submit(self._facts_of_poll, request, view, may_wait=request.wait_ms > 0)
        try:
            facts = asked.result(ACKNOWLEDGE_ALONE_AFTER_S)
        except (FutureTimeout, ShareGroupError):
            asked.cancel()
            reply = self._runtime.call(request.group_id, transactions.acknowledge_only(request))
        else:
            reply = self._acquired(request, view, facts)
        return msgspec.structs.replace(reply, errors={**remade(), **reply.errors})

    def _acknowledge(self, request: Acknowledge) -> AcknowledgeReply:
        if request.unread:  # the program has seen none of these records
            return self._single_command(request)
        remade = self._remade_topics.look_at_acknowledged(request.partitions, lambda: self._view(request))
        reply = self._single_command(request)
        return msgspec.structs.replace(reply, errors={**remade(), **reply.errors})

    def _facts_of_poll(self, request: AcquireRecords, view: GroupView, *, may_wait: bool) -> Facts:
        """The facts of the partitions that the member acquires from: it can read them, and their leaders answer."""
        subscribed = self._partitions(view)
        self.lost_logs.look_for_deleted(view, subscribed)
        if request.without:
            self._watch.doubt(p.topic_partition for p in subscribed if (p.topic_id, p.partition) in request.without)
        wanted = transactions.to_acquire_from(view, subscribed, request.without)
        answering = self._watch.answering([p.topic_partition for p in wanted])
        if len(answering) < len(wanted):
            wanted = [p for p in wanted if p.topic_partition in answering]
        return self._facts(request, view, wanted, may_wait=may_wait)

    def _start_plan(self, request: StartPlan) -> PlanReply:
        view = self._view(request, request.plan_id)
        subscription = Subscription.of(view.subscribed)
        ahead = None
        if request.acquired_here:
            ahead = self._asked_ahead.take(request.group_id, request.plan_id, view.plan)
        log_starts, gone = ahead or self._start_facts(view, view.plan)
        self._archive_deleted(view, view.plan, gone)
        unsubscribed = frozenset(topic_id for topic, topic_id, _ in view.plan if not subscription.has(topic))
        kept = [TopicIdPartition(*held) for held in sorted(view.plan) if held[1] not in gone | unsubscribed]
        facts = Facts(partitions=kept, log_starts=log_starts, ends={})
        start = transactions.start_plan(request, facts, gone=gone, unsubscribed=unsubscribed)
        reply = self._runtime.call(request.group_id, start)
        for left in (*reply.left_out, *reply.data_loss):
            _log.info(
                "left out of the batch: group=%s plan=%s %s (%s)",
                request.group_id,
                request.plan_id,
                left,
                left.reason,
            )
        return reply

    def _logs_to_check(self, view: GroupView) -> tuple[PartitionBounds, ...]:
        """Returns what the logs hold of the member's plan after its batch. Tasks with failOnDataLoss=false have read no
        more than that. Empty if the completion of the plan does not depend on the logs. Raises CoordinatorNotAvailable
        if a topic is missing, and may come back."""
        if not view.to_check:
            return ()
        log_starts, gone = self._start_facts(view, view.to_check)
        self._archive_deleted(view, view.to_check, gone)
        kept = [TopicIdPartition(*held) for held in view.to_check if held[1] not in gone]
        ends = self._watch.ask_ends([p.topic_partition for p in kept], read_committed=False)
        lost = tuple(
            PartitionBounds(topic_id=topic_id, partition=partition, log_start=0, end=0)
            for _, topic_id, partition in view.to_check
            if topic_id in gone
        )
        return (*lost, *transactions.bounds(kept, Facts(partitions=kept, log_starts=log_starts, ends=ends), None))

    def _archive_deleted(self, view: GroupView, plan: frozenset[tuple[str, str, int]], gone: frozenset[str]) -> None:
        """Archive the group's records of the plan's deleted topics, except topics that it knows to be deleted."""
        names = {topic_id: topic for topic, topic_id, _ in plan}
        self.lost_logs.archive_deleted(view, {topic_id: names[topic_id] for topic_id in gone - view.gone})

    def _ask_ahead(self, view: GroupView, plan: Plan) -> None:
        """Fetch what the plan's start will need. The reader sends the start once Spark has logged the plan."""
        held = frozenset((part.topic, part.topic_id, part.partition) for part in plan.partitions)
        self._asked_ahead.ask(view.group_id, plan, self._asks_ahead, lambda: self._start_facts(view, held))

    def _start_facts(self, view: GroupView, plan: frozenset[tuple[str, str, int]]) -> StartFacts:
        """The brokers' answers about the partitions of a plan (topic, topic id, partition). Raises
        CoordinatorNotAvailable if a topic is missing, and may come back."""
        # Both questions run at once: a batch waits for one round trip instead of two.
        asked = self._asks.submit(self._watch.ask_log_starts, [(topic, index) for topic, _, index in plan])
        names = {topic_id: topic for topic, topic_id, _ in plan}
        looked = self._watch.doubts.look(
            self._watch.cluster, names, view.group_id, topic_ids=view.topic_ids, past=view.past
        )
        if in_doubt := sorted(names[topic_id] for topic_id in looked.in_doubt - view.gone):
            reason = (
                f"the brokers do not show {', '.join(in_doubt)} at present, which may be deleted; it is asked again"
            )
            raise CoordinatorNotAvailable(group_id=view.group_id, reason=reason)
        return StartFacts(asked.result(), looked.not_shown)

    # --- offsets

    def _latest_offsets(self, request: LatestOffsets) -> OffsetsReply:
        now_ms = self._runtime.clock.now_ms()
        view = self._view(request)
        partitions = self._partitions(view)
        found = self._watch.ask_ends([p.topic_partition for p in partitions], read_committed=view.read_committed)
        ends: dict[str, dict[str, int]] = {}
        for p in partitions:
            if p.topic_partition in found:
                ends.setdefault(p.topic, {})[str(p.partition)] = found[p.topic_partition]
        return OffsetsReply(ends=ends, now_ms=now_ms)

    def _view(self, request: MemberRequest[Any], plan_id: str = "") -> GroupView:
        group_id, member_id, epoch = request.group_id, request.member_id, request.member_epoch
        return self._single_command(
            ViewGroup(group_id=group_id, member_id=member_id, member_epoch=epoch, plan_id=plan_id)
        )

    def _partitions(self, view: GroupView) -> list[TopicIdPartition]:
        subscription = Subscription.of(view.subscribed)
        topics = self._read_here(self._watch.topics(subscription), view.group_id)
        return subscription.partitions(topics.values(), view.group_id, topic_ids=view.topic_ids)

    def _read_here(self, found: dict[str, TopicInfo], group_id: str) -> dict[str, TopicInfo]:
        """The topics that the coordinator reads for groups. Logs the other topics that a pattern matches."""
        allowed = self._watch.cluster.allowed
        left_out = sorted(topic for topic in found if not allowed.allows_source(topic))
        if not left_out:
            return found
        names = ", ".join(left_out[:MOST_NAMED]) + (", ..." if len(left_out) > MOST_NAMED else "")
        self._once.warn(
            f"topics {group_id}",
            f"topics are not read: group={group_id} {names}. {SOURCE_KEY} allows {allowed.source} alone.",
        )
        return {topic: info for topic, info in found.items() if allowed.allows_source(topic)}
