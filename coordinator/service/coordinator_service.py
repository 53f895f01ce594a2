"""Requests of members become commands: looks up what only the broker knows, runs the scripts, waits where one may wait.

Each request is handled in its caller's thread; whatever touches a group happens in the engine's. Nothing here keeps
state of a group: what a handler knows of one is a view that may be old, and the script that follows decides anew.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from coordinator.config.resolved import ServerConfig
from coordinator.protocol.errors import (
    BrokerNotReachable,
    BrokerRefused,
    CoordinatorNotAvailable,
    InvalidRequest,
    TopicIdsMissing,
)
from coordinator.protocol.messages import (
    Acknowledge,
    AcquiredReply,
    AcquireRecords,
    DescribeGroup,
    Heartbeat,
    Joined,
    JoinGroup,
    LatestOffsets,
    LeaveGroup,
    NextPlan,
    OffsetsReply,
    OpenSink,
    OutcomesStaged,
    PlanReply,
    StageOutcomes,
    UsePlan,
)
from coordinator.service.brokers.broker_watch import BrokerWatch
from coordinator.service.brokers.cluster import EARLIEST, Where
from coordinator.service.brokers.deleted_topics import gone_topic_ids
from coordinator.service.brokers.log_gaps import Gaps, count_offsets
from coordinator.service.brokers.subscription import Subscription, TopicPartitionId, starting_offsets
from coordinator.service.dead_letters.topic_check import check_dead_letter_topic
from coordinator.service.open_state import Engined
from coordinator.service.runtime import transactions as scripts
from coordinator.service.runtime.group_limits import GroupLimits
from coordinator.service.runtime.runtime import one
from coordinator.service.runtime.transactions import Facts, View
from coordinator.service.sinks import open_sink

LONGEST_WAIT_MS = 60_000
LOOK_AGAIN_S = 1.0
ASKS_AT_ONCE = 8

_log = logging.getLogger(__name__)


class CoordinatorService:
    """Answers any request of :mod:`coordinator.protocol.messages`."""

    def __init__(self, engine: Engined, watch: BrokerWatch, limits: GroupLimits | None = None) -> None:
        self._engine = engine
        self._limits = limits or GroupLimits(ServerConfig.parse())
        self._watch = watch
        self._asks = ThreadPoolExecutor(ASKS_AT_ONCE, thread_name_prefix="share-asks")
        self._gaps = Gaps(watch.cluster)
        self._shrunk: set[tuple[str, Where, int]] = set()
        self._news = threading.Condition()
        self._news_count = 0
        self._handlers: dict[type[Any], Callable[[Any], Any]] = {
            JoinGroup: self._join,
            Heartbeat: self._as_it_is,
            LeaveGroup: self._as_it_is,
            AcquireRecords: self._acquire_records,
            Acknowledge: self._as_it_is,
            NextPlan: self._next_plan,
            UsePlan: self._use_plan,
            LatestOffsets: self._latest_offsets,
            DescribeGroup: self._describe,
            OpenSink: lambda request: open_sink(self._engine, self._watch.cluster, request),
            StageOutcomes: self._stage,
        }

    def __repr__(self) -> str:
        return f"<CoordinatorService {self._engine!r}>"

    def handle(self, request: Any) -> Any:
        """The reply, or a ShareGroupError."""
        handler = self._handlers.get(type(request))
        if handler is None or not request.group_id:
            raise InvalidRequest(what=f"{type(request).__name__} needs a group id.")
        return handler(request)

    def tell_news(self, groups: object = None) -> None:
        """Something changed that a waiting member may be waiting for."""
        with self._news:
            self._news_count += 1
            self._news.notify_all()

    # --- members

    def _as_it_is(self, request: Any) -> Any:
        return self._engine.call(request.group_id, scripts.describe(request))

    def _join(self, request: JoinGroup) -> Joined:
        new = request.member_epoch is None
        view = self._engine.call(request.group_id, scripts.look_before_join(request), peek=new)
        topic_ids = view.topic_ids if view.exists else self._watch.cluster.gives_topic_ids()
        if new:
            self._check_dead_letters(request, view)
        try:
            starts = self._starts(request, view, topic_ids=topic_ids)
        except (BrokerNotReachable, BrokerRefused, CoordinatorNotAvailable) as error:
            if new:
                raise
            # A session that lapsed must come back while the broker is away, too.
            _log.warning("rejoined without a look at the broker: group=%s %s", request.group_id, error)
            starts = {}
        join = self._limits.within(request, scripts.join(request, topic_ids=topic_ids, starts=starts))
        joined = self._engine.call(request.group_id, join, claim=new)
        _log.info("joined: group=%s member=%s epoch=%d", request.group_id, request.member_id, joined.member_epoch)
        return joined

    def _check_dead_letters(self, request: JoinGroup, view: View) -> None:
        """What is wrong with the dead letter topic is found now, not when a record has nowhere to go."""
        name = view.config.errors_deadletterqueue_topic_name if view.config is not None else ""
        if view.config is not None and name:
            is_own = name in view.known_topics or Subscription.of(request).has(name)
            check_dead_letter_topic(self._watch.cluster, view.config, {name} if is_own else ())

    def _starts(self, request: JoinGroup, view: View, *, topic_ids: bool) -> dict[TopicPartitionId, int]:
        """Start offsets of the subscribed partitions that the group does not have yet."""
        subscription = Subscription.of(request)
        topics = self._watch.topics(subscription, fresh=True)
        if request.member_epoch is None:
            subscription.check(topics, self._watch.cluster)
        partitions = subscription.partitions(topics.values(), request.group_id, topic_ids=topic_ids)
        new = [p for p in partitions if (p.topic_id, p.partition) not in view.fetch_from]
        # Partitions added to a topic that the group has, and a topic that was made anew, begin at their earliest.
        grown = {p for p in new if p.topic in view.known_topics}
        policy = [p for p in new if p not in grown]
        found = self._watch.cluster.offsets([p.where for p in grown], EARLIEST)
        found |= starting_offsets(
            self._watch.cluster,
            view.auto_offset_reset,
            [p.where for p in policy],
            self._engine.clock.now_ms(),
            read_committed=view.read_committed,
        )
        if missing := [f"{p.topic}-{p.partition}" for p in new if p.where not in found]:
            # Left out, they would begin by another rule than the one that holds now.
            raise CoordinatorNotAvailable(
                group_id=request.group_id, reason=f"the brokers give no offsets of {', '.join(missing)} yet"
            )
        return {p: found[p.where] for p in new}

    # --- sinks

    def _stage(self, request: StageOutcomes) -> OutcomesStaged:
        staged = self._engine.call(request.group_id, scripts.describe(request))
        assert isinstance(staged, OutcomesStaged)
        if staged.stale or request.lost_replacements:
            _log.warning(
                "staged: group=%s query=%s batch=%d staged=%d stale=%d lost_replacements=%d",
                request.group_id,
                request.query_id,
                request.batch_id,
                staged.staged,
                staged.stale,
                request.lost_replacements,
            )
        return staged

    # --- plans

    def _next_plan(self, request: NextPlan) -> PlanReply:
        deadline = time.monotonic() + min(request.wait_ms, LONGEST_WAIT_MS) / 1000
        while True:
            news = self._news_count
            view = self._look(request)
            partitions = self._partitions(view, request.group_id)
            facts = self._facts(request, view, partitions, may_wait=time.monotonic() < deadline)
            facts = self._with_gaps(request, view, facts)
            reply = self._engine.call(request.group_id, scripts.next_plan(request, facts))
            left_s = deadline - time.monotonic()
            if reply.plan.number or request.until is not None or left_s <= 0:
                return reply
            with self._watch.waiting([p.where for p in partitions], read_committed=view.read_committed):
                if not self._wait_for_news(news, min(left_s, LOOK_AGAIN_S)) and left_s <= LOOK_AGAIN_S:
                    return reply

    def _wait_for_news(self, seen: int, timeout_s: float) -> bool:
        with self._news:
            return self._news.wait_for(lambda: self._news_count != seen, timeout_s)

    def _facts(
        self, request: NextPlan | AcquireRecords, view: View, partitions: list[TopicPartitionId], *, may_wait: bool
    ) -> Facts:
        """Known ends if they fill the request, or if they are new and the caller can wait for the next ones."""
        wheres = [p.where for p in partitions]
        log_starts = self._watch.log_starts(wheres)
        ends = self._watch.ends(wheres, read_committed=view.read_committed)
        known = Facts(partitions=partitions, log_starts=log_starts, ends=ends)
        if request.max_records is not None and _backlog(view, known) >= request.max_records:
            return known
        if may_wait and self._watch.are_new(wheres, read_committed=view.read_committed):
            return known
        ends = self._watch.ask_ends(wheres, read_committed=view.read_committed)
        self._say_shrunk(request.group_id, view, partitions, ends)
        return Facts(partitions=partitions, log_starts=log_starts, ends=ends)

    def _acquire_records(self, request: AcquireRecords) -> AcquiredReply:
        view = self._look(request)
        facts = self._facts(request, view, self._partitions(view, request.group_id), may_wait=False)
        return self._engine.call(request.group_id, scripts.acquire_records(request, facts))

    def _with_gaps(self, request: NextPlan, view: View, facts: Facts) -> Facts:
        """Only while records are set aside: is there anything in what they, and what is told of them, rest on? And, in
        explicit mode, in what is about to be released?"""
        if request.start and view.undecided and not self._gives_back(view):
            # No guess will do: what is released counts a try.
            gaps = self._gaps.absent(view.undecided, read_committed=view.read_committed)
            processed = view.decides or count_offsets(gaps) < count_offsets(view.undecided)
            facts = dataclasses.replace(facts, undecided_gaps=gaps, processed=processed)
        if not view.set_aside:
            return facts
        gaps = self._gaps.among(view.set_aside, read_committed=view.read_committed)
        unproven = request.start and view.unproven and view.decides
        processed = not unproven or self._gaps.holds_any(view.unproven, read_committed=view.read_committed)
        return dataclasses.replace(facts, gaps=gaps, processed=facts.processed and processed)

    def _gives_back(self, view: View) -> bool:
        """No sink has ever decided anything, and there is a record: all of the plan is given back, gaps too. To know
        that, one record is enough, of a batch of any size: it is looked for in the first ranges."""
        return not view.decides and self._gaps.surely_holds_any(view.undecided, read_committed=view.read_committed)

    def _say_shrunk(
        self, group_id: str, view: View, partitions: list[TopicPartitionId], ends: Mapping[Where, int]
    ) -> None:
        """A log that ends below what was acquired of it has lost records, and will give their offsets to others. Said
        once; the group goes on where it was."""
        for p in partitions:
            reached = view.fetch_from.get((p.topic_id, p.partition), 0)
            end = ends.get(p.where, reached)
            if end < reached and (group_id, p.where, reached) not in self._shrunk:
                self._shrunk.add((group_id, p.where, reached))
                _log.error(
                    "log shrunk: group=%s %s-%d ends at %d now, and the group has acquired it up to %d (an unclean "
                    "leader election, or a topic made anew on a cluster without topic ids). Records that come at these "
                    "offsets are not delivered: to have them, use a new group id.",
                    group_id,
                    p.topic,
                    p.partition,
                    end,
                    reached,
                )

    def _use_plan(self, request: UsePlan) -> PlanReply:
        look = scripts.look(request.group_id, request.member_id, request.member_epoch, number=request.number)
        view = self._engine.call(request.group_id, look)
        assert view.subscription is not None
        # Both at once: one round trip in each batch's way instead of two.
        asked = self._asks.submit(self._watch.ask_log_starts, [(topic, index) for topic, _, index in view.plan])
        names = {topic_id: topic for topic, topic_id, _ in view.plan}
        gone = gone_topic_ids(self._watch.cluster, names, request.group_id, topic_ids=view.topic_ids)
        unsubscribed = frozenset(topic_id for topic, topic_id, _ in view.plan if not view.subscription.has(topic))
        kept = [TopicPartitionId(*held) for held in sorted(view.plan) if held[1] not in gone | unsubscribed]
        facts = Facts(partitions=kept, log_starts=asked.result(), ends={})
        take_up = scripts.use_plan(request, facts, gone=gone, unsubscribed=unsubscribed)
        reply = self._engine.call(request.group_id, take_up)
        for left in (*reply.left_out, *reply.data_loss):
            _log.info("left out: group=%s plan=%s %s", request.group_id, request.number, left)
        return reply

    # --- offsets, and people

    def _latest_offsets(self, request: LatestOffsets) -> OffsetsReply:
        view = self._look(request)
        partitions = self._partitions(view, request.group_id)
        found = self._watch.ask_ends([p.where for p in partitions], read_committed=view.read_committed)
        ends: dict[str, dict[str, int]] = {}
        for p in partitions:
            if p.where in found:
                ends.setdefault(p.topic, {})[str(p.partition)] = found[p.where]
        return OffsetsReply(ends=ends)

    def _describe(self, request: DescribeGroup) -> Any:
        description = self._engine.call(request.group_id, scripts.describe(request), peek=True)
        partitions = [TopicPartitionId(p.topic, p.topic_id, p.partition) for p in description.partitions]
        read_committed = description.configs.get("share.isolation.level") == "read_committed"
        try:
            ends = self._watch.cluster.offsets([p.where for p in partitions], -1, read_committed=read_committed)
        except (BrokerNotReachable, BrokerRefused, TopicIdsMissing) as error:
            _log.warning("described without lag: group=%s %s", request.group_id, error)
            return description
        facts = Facts(partitions=partitions, log_starts=dict.fromkeys(ends, 0), ends=ends)
        bounds = scripts.bounds(partitions, facts, None)
        return self._engine.call(request.group_id, one(msgspec.structs.replace(request, bounds=bounds)), peek=True)

    # --- inside

    def _look(self, request: NextPlan | AcquireRecords | LatestOffsets) -> View:
        look = scripts.look(request.group_id, request.member_id, request.member_epoch)
        return self._engine.call(request.group_id, look)

    def _partitions(self, view: View, group_id: str) -> list[TopicPartitionId]:
        assert view.subscription is not None
        topics = self._watch.topics(view.subscription)
        return view.subscription.partitions(topics.values(), group_id, topic_ids=view.topic_ids)


def _backlog(view: View, facts: Facts) -> int:
    """Records that were never acquired, as far as the ends are known."""
    return sum(
        max(0, facts.ends.get(p.where, 0) - view.fetch_from.get((p.topic_id, p.partition), facts.log_starts[p.where]))
        for p in facts.partitions
        if p.where in facts.log_starts
    )
