"""The small world: queries, perhaps a ShareConsumer, requests under way, one coordinator process after the other.

A world is a value; :func:`Steps.of` is all that can happen next. What goes wrong is paid from a
:class:`~tests.protocol.setting.Budget`, everything else is free.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from coordinator.protocol.messages import AcknowledgeReply, Done, Joined, PlanReply, ProgressReply
from tests.protocol.coordinators import Coordinators, Served
from tests.protocol.happened import bits, out_of_order
from tests.protocol.hosts import Hosts
from tests.protocol.members import LOCAL, Consumer, Query
from tests.protocol.requests import NOTICE, OPEN_SINK, PAUSE, RESUME, TOO_OLD, TOPIC_IDS, Request
from tests.protocol.setting import LOCK_MS, SESSION_MS, Budget, Setting
from tests.protocol.work import LEAVE, SIGNAL, Work, wrong_after, wrong_answer

FAULTS = ("die before the append", "die after the append", "refuse", "doubt, written")
AT_OLD = " at the old coordinator"
FAILURES = 2
"""A query that failed by name is started again at most this often while the world is explored; at the end it always
is."""


class World(NamedTuple):
    """``live`` is the memory of the coordinator that owns the group, ``old`` (0: none) that of the one before. The rest
    says where the guarantee makes exceptions, and what broke it on the way; records are bits. ``topic``: how often the
    topic was made anew; ``partitions``: how many it has; ``before``: records that were gone before the group knew;
    ``counted``: those that it counted as lost before they were acquired. ``work``: the ShareConsumer's on its record,
    where it signals. ``hosts``: the coordinators of two hosts, where there are two: ``live`` and ``old`` are 0 then."""

    live: int
    log: int
    old: int
    queries: tuple[Query, ...]
    consumer: Consumer
    flight: tuple[Request, ...] = ()
    log_start: int = 0
    lost: int = 0
    lapsed: int = 0
    cut: int = 0
    archived: int = 0
    complaint: str = ""
    topic: int = 0
    partitions: int = 1
    before: int = 0
    counted: int = 0
    work: Work = Work()
    hosts: Hosts | None = None

    def with_query(self, index: int, query: Query) -> World:
        return self._replace(queries=(*self.queries[:index], query, *self.queries[index + 1 :]))


class Asked(NamedTuple):
    """A request and its result; they become a text only when a trace is printed."""

    request: Request
    served: Served
    note: str = ""

    def __str__(self) -> str:
        answer, error = self.served.answer, self.served.error
        told = error or ("no answer" if answer is None else "done")
        if isinstance(answer, PlanReply):
            held = ", ".join(f"{r.first}-{r.last}:{r.delivery_count}" for p in answer.plan.partitions for r in p.ranges)
            told = f"plan {answer.plan.plan_id} of {held or 'nothing'}" if answer.plan.plan_id else "nothing to do"
        return f"{self.request}{self.note}: {told}"


def other_mode(mode: str) -> str:
    return "implicit" if mode == "explicit" else "explicit"


Label = str | Asked
Step = tuple[Label, World, Budget]


class Steps:
    """All that can happen next, through the real core."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.coordinators = Coordinators(setting)

    def __repr__(self) -> str:
        return f"<Steps {self.setting} {self.coordinators!r}>"

    def begin(self) -> World:
        served = self.coordinators.begin()
        mode, own = self.setting.acknowledgement_mode, self.setting.own_mode
        named = zip("abcdef", self.setting.most, strict=False)
        without = self.setting.without_start
        queries = tuple(Query(name, most, mode=mode, own_mode=own, without_start=without) for name, most in named)
        signals = self.setting.signals
        consumer = Consumer(self.setting.fetches, signals, leaves=min(signals, 1), late=signals > 0)
        return World(served.memory, served.log, 0, queries, consumer, partitions=self.setting.partitions)

    def of(self, world: World, budget: Budget) -> Iterator[Step]:
        """The steps; of a query that needs nobody only its own, since all others come to the same before and after."""
        for index, query in enumerate(world.queries):
            if query.phase in LOCAL and not (query.phase == "write" and (budget.retention or budget.topics)):
                yield from self._alone(world, index, budget)
                return
        for index, query in enumerate(world.queries):
            if query.phase in LOCAL:
                yield from self._alone(world, index, budget)
            elif query.up:
                yield from self._asks(world, index, budget)
            elif query.failures < FAILURES and not query.departed:
                yield f"{query.name} is started", world.with_query(index, query.started()), budget
                if query.own_mode and (left := budget.spend("configs")):
                    mode = other_mode(query.mode)
                    yield f"{query.name} is started in {mode} mode", world.with_query(index, query.started(mode)), left
                yield from self._wakes(world, index, budget)
        yield from self._consumer(world, budget)
        yield from self._flight(world, budget)
        yield from self._coordinators(world, budget)
        yield from self._time(world, budget)
        yield from self._configs(world, budget)
        if left := budget.spend("stoppages"):
            yield *(self.resumed(world) or self._administered(world, PAUSE)), left
        yield from self._topics(world, budget)
        yield from self._too_old(world, budget)
        if world.log_start < self.setting.records and (left := budget.spend("retention")):
            yield f"the log loses record {world.log_start}", world._replace(log_start=world.log_start + 1), left

    def for_one_owner(self, world: World) -> World:
        """The world with the coordinator to which the group comes when nothing goes wrong any more."""
        return world

    # --- members

    def _alone(self, world: World, index: int, budget: Budget) -> Iterator[Step]:
        query = world.queries[index]
        if query.phase == "decide":
            for decided in query.decides(self.setting):
                said = ", ".join(f"{outcome} {number}" for number, _, outcome in decided.said)
                defers = any(outcome == "defer" for _, _, outcome in decided.said)
                left = budget.spend("deferrals") if defers else budget
                if left is not None:
                    yield f"{query.name} decides: {said or 'nothing'}", world.with_query(index, decided), left
        else:
            yield f"{query.name} does: {query.phase}", self.goes_on(world, index), budget
        if left := budget.spend("crashes"):
            yield f"{query.name} dies before it does: {query.phase}", world.with_query(index, query.died()), left
        yield from self._departs(world, index, budget)
        if query.phase == "log" and not query.stopped[1] and (left := budget.spend("stops")):
            yield f"{query.name} is stopped before it does: log", world.with_query(index, query.stops()), left
        yield from self._wakes(world, index, budget)

    def _departs(self, world: World, index: int, budget: Budget) -> Iterator[Step]:
        if sum(not query.departed for query in world.queries) > 1 and (left := budget.spend("departures")):
            query = world.queries[index]
            yield f"{query.name} dies, and never comes back", world.with_query(index, query.departs()), left

    def _wakes(self, world: World, index: int, budget: Budget) -> Iterator[Step]:
        query = world.queries[index]
        if query.stopped[1]:
            yield (
                f"the stopped driver of {query.name} logs {query.stopped[1]}",
                world.with_query(index, query.wakes()),
                budget,
            )

    def goes_on(self, world: World, index: int) -> World:
        """The query takes its next step that needs nobody else."""
        return world.with_query(index, world.queries[index].goes_on(world.log_start, self.setting, world.topic))

    def _asks(self, world: World, index: int, budget: Budget) -> Iterator[Step]:
        query = world.queries[index]
        request = query.wants(world.log_start, world.topic, world.partitions)
        assert request is not None
        yield *self.call(world, index), budget
        yield from self._wakes(world, index, budget)
        if world.old:
            yield *self.call(world, index, old=True), budget
        if left := budget.spend("crashes"):
            yield f"{query.name} dies", world.with_query(index, query.died()), left
        yield from self._departs(world, index, budget)
        yield from self._gets_lost(world, request, budget)
        if left := budget.spend("restarts"):
            for fault in FAULTS:
                yield *self.call(world, index, fault=fault), left

    def _gets_lost(self, world: World, request: Request, budget: Budget) -> Iterator[Step]:
        """The member that asked gets no answer and asks again; the first request is served now, or arrives later."""
        if left := budget.spend("lost"):
            after, served = self._at(world, request)
            yield Asked(request, served, ", and the answer is lost"), after, left
        if (left := budget.spend("delays")) and request not in world.flight:
            flight = tuple(sorted((*world.flight, request)))
            yield f"{request} is under way; it will be asked again", world._replace(flight=flight), left

    def call(self, world: World, index: int, *, old: bool = False, fault: str = "") -> tuple[Label, World]:
        """The query sends its next request, and gets the answer."""
        query = world.queries[index]
        request = query.wants(world.log_start, world.topic, world.partitions)
        assert request is not None
        after, served = self._at(world, request, old=old, fault=fault)
        asked = Asked(request, served, AT_OLD if old else f" ({fault})" * bool(fault))
        if served.answer is None and not served.error:
            return asked, after
        plan = query.offsets[-1].rpartition(".")[2] if query.phase == "use" and query.offsets else ""
        mode = self.coordinators.mode_of(after.log, int(plan)) if plan else ""
        return asked, after.with_query(index, query.heard(served.answer, served.error, self.setting, mode))

    def _consumer(self, world: World, budget: Budget) -> Iterator[Step]:
        consumer = world.consumer
        for decided in consumer.decides(self.setting):
            yield f"c decides: {decided.outcome}", world._replace(consumer=decided), budget
        yield from self._stranger(world, budget)
        request = consumer.wants(world.log_start)
        if consumer.offset >= 0 and (left := budget.spend("crashes")):
            yield "c dies", world._replace(consumer=consumer.died()), left
        if request is None:
            return
        after, served = self._at(world, request)
        heard = consumer.heard(served.answer, served.error, self.setting)
        yield Asked(request, served), after._replace(consumer=heard), budget
        yield from self._gets_lost(world, request, budget)

    def _stranger(self, world: World, budget: Budget) -> Iterator[Step]:
        """Another ShareConsumer decides the record that this one holds; reported only if it succeeds."""
        consumer = world.consumer
        if not self.setting.signals or consumer.offset < 0:
            return
        joined, served = self._at(world, Request("join consumer", "d", 0, "d-1"))
        for kind in (SIGNAL, "accept") if isinstance(served.answer, Joined) else ():
            epoch = served.answer.member_epoch
            request = Request(kind, "d", epoch, offset=consumer.offset, count=consumer.count)
            after, said = self._at(joined, request)
            if after.complaint:
                yield Asked(request, said), after, budget

    # --- coordinators

    def _at(self, world: World, request: Request, *, old: bool = False, fault: str = "") -> tuple[World, Served]:
        """The request is served; its sender has no answer yet."""
        memory = world.old if old else world.live
        served = self.coordinators.serve(memory, world.log, request, fenced=old, fault=fault)
        after = self._after(world, served, old=old)
        if fault:  # whoever answers next has loaded the log
            after = after._replace(work=after.work.loaded())
        return self._worked(world, after, request, served) if self.setting.signals else after, served

    def _worked(self, world: World, after: World, request: Request, served: Served) -> World:
        """The world after the request as to the ShareConsumer's work, and what is wrong with the answer."""
        before, now = (self.coordinators.held(at.log, 0) for at in (world, after))
        answer, taken, wrong = served.answer, before != now, ""
        if request.kind == SIGNAL:
            taken = isinstance(answer, ProgressReply) and not answer.errors
        elif request.kind == LEAVE:
            taken = isinstance(answer, Done)
        lapsed = int(request.kind == LEAVE and before.member == request.member)
        if isinstance(answer, AcknowledgeReply | ProgressReply):
            wrong = wrong_answer(request, before, world.work, taken)
        work = after.work.after(request, now, taken)
        return after._replace(work=work, lapsed=after.lapsed | lapsed, complaint=after.complaint or wrong)

    def _after(self, world: World, served: Served, *, old: bool = False) -> World:
        log, live = served.log, world.live
        if not old:
            # A process that died, or could not load what it had dropped: another one loads the log.
            live = served.memory or self.coordinators.load(log).memory
        work = world.work if old or served.memory else world.work.loaded()
        happened, failed = served.happened, "the runtime failed" if served.error == "InternalError" else ""
        if self.setting.ordered and not failed:
            failed = out_of_order(self.coordinators.runs(log), self.setting.records)
        lost = world.lost
        for offset, number in happened.taken:
            if any(query.may_have(f"i.{number}", offset) for query in world.queries):
                lost |= 1 << offset
        return world._replace(
            live=live,
            log=log,
            old=served.memory if old else world.old,
            lost=lost,
            lapsed=world.lapsed | happened.lapsed,
            cut=world.cut | happened.cut,
            archived=world.archived | happened.archived,
            counted=world.counted | happened.counted,
            work=work,
            complaint=world.complaint or happened.complaint or failed,
        )

    def _flight(self, world: World, budget: Budget) -> Iterator[Step]:
        for request in world.flight:
            left = tuple(other for other in world.flight if other != request)
            arrived = world._replace(flight=left)
            for old in (False, True) if world.old else (False,):
                after, served = self._at(arrived, request, old=old)
                yield Asked(request, served, ", late" + AT_OLD * old), after, budget

    def _coordinators(self, world: World, budget: Budget) -> Iterator[Step]:
        if left := budget.spend("restarts"):
            yield "the coordinator dies", self._loaded(world), left
        if left := budget.spend("takeovers"):
            yield "another coordinator takes the group", self._loaded(world)._replace(old=world.live), left
        if left := budget.spend("stalls"):
            yield "the coordinator stands still for a session timeout", self._stands_still(world), left

    def _loaded(self, world: World) -> World:
        return world._replace(live=self.coordinators.load(world.log).memory, work=world.work.loaded())

    def _stands_still(self, world: World) -> World:
        served = self.coordinators.stands_still(world.live, world.log, SESSION_MS + 1)
        after = self._after(world, served)
        ended = set(self.coordinators.sessions(world.live)) - set(self.coordinators.sessions(after.live))
        complaint = (
            f"time in which nobody was heard has ended the session of {', '.join(sorted(ended))}" if ended else ""
        )
        old = self.coordinators.older(world.old, SESSION_MS + 1) if world.old else 0
        return after._replace(old=old, complaint=after.complaint or complaint)

    # --- configs and topics

    def _configs(self, world: World, budget: Budget) -> Iterator[Step]:
        """A sink is opened: it sets configs, and acquires nothing."""
        left = budget.spend("configs")
        if left is None:
            return
        config = self.coordinators.config(world.log)
        limit = 2 if config.share_delivery_count_limit != 2 else 5
        texts = [f"share.delivery.count.limit={limit}"]
        if self.setting.sink:  # without one, a query in explicit mode fails by name
            texts.append(f"share.acknowledgement.mode={other_mode(config.share_acknowledgement_mode)}")
        for text in texts:
            request = Request(OPEN_SINK, "", 0, text)
            after, served = self._at(world, request)
            yield Asked(request, served), after, left

    def _topics(self, world: World, budget: Budget) -> Iterator[Step]:
        """The topic is made anew (not where a ShareConsumer reads it), and the coordinator finds it out; or it gets a
        partition (where members and sinks name records by their offset alone, it has one)."""
        is_last = world.topic + 1 == len(TOPIC_IDS)
        if not self.setting.fetches and not is_last and world.partitions == 1 and (left := budget.spend("topics")):
            first = world.topic * self.setting.records
            is_known = world.topic in self.coordinators.partitions(world.log)
            lost = world.log_start if is_known else self.setting.records
            before = world.before | bits([(first, first + lost - 1)])
            anew = world._replace(topic=world.topic + 1, log_start=0, before=before)
            yield "the topic is deleted and made anew", anew, left
        if (
            not self.setting.fetches
            and not self.setting.sink
            and not world.topic
            and (left := budget.spend("partitions"))
        ):
            yield "the topic gets a partition", world._replace(partitions=world.partitions + 1), left
        if (found := self.notices(world)) is not None:
            yield *found, budget

    def _too_old(self, world: World, budget: Budget) -> Iterator[Step]:
        """The first record, or all of them, are too old by now."""
        left = budget.spend("too_old") if self.setting.ttl else None
        for end in {1, self.setting.records} if left is not None else ():
            request = Request(TOO_OLD, "", 0, log_start=world.log_start, offset=end, topic=world.topic)
            after, served = self._at(world, request)
            yield Asked(request, served), after, left

    def notices(self, world: World) -> tuple[Label, World] | None:
        """The coordinator searches deleted topics, if it has not found them all."""
        if not world.topic:
            return None
        request = Request(NOTICE, "", 0, topic=world.topic)
        after, served = self._at(world, request)
        return None if after == world else (Asked(request, served), after)

    def resumed(self, world: World) -> tuple[Label, World] | None:
        """All topics are resumed, if they are paused."""
        paused = self.coordinators.config(world.log).share_paused_topics
        return self._administered(world, RESUME) if paused else None

    def _administered(self, world: World, kind: str) -> tuple[Label, World]:
        request = Request(kind, "", 0)
        after, served = self._at(world, request)
        return Asked(request, served), after

    # --- time

    def _time(self, world: World, budget: Budget) -> Iterator[Step]:
        alive = {query.member for query in world.queries if query.up} | ({"c"} if world.consumer.up else set())
        for member in self.coordinators.sessions(world.live):
            left = budget.spend("expiries", "pauses") if member in alive else budget.spend("expiries")
            if left is not None:
                yield f"the session of {member} ends", self.time_passes(world, frozenset({member})), left
        locks = any(run.deadline_ms is not None for run in self.coordinators.runs(world.live).values())
        if locks and (left := budget.spend("expiries")):
            yield "a lock duration passes", self.time_passes(world, frozenset()), left

    def time_passes(self, world: World, silent: frozenset[str]) -> World:
        """A session timeout without a word of these members; a lock duration if there are none."""
        ms = (SESSION_MS if silent else LOCK_MS) + 1
        served = self.coordinators.time_passes(world.live, world.log, ms, silent)
        after = self._after(world, served)
        if self.setting.signals:
            after = self._worked_on(world, after, ms)
        return after._replace(old=self.coordinators.older(world.old, ms) if world.old else 0)

    def _worked_on(self, world: World, after: World, ms: int) -> World:
        """The world after so much time as to the ShareConsumer's work, and what time did wrong."""
        before, now = (self.coordinators.held(at.log, 0) for at in (world, after))
        work = world.work.later(ms) if now.member else Work()
        wrong = wrong_after(before, now, world.work.later(ms))
        gone = before.member not in self.coordinators.sessions(after.live)
        if gone and now.in_progress:
            work = work._replace(orphaned=True)
        return after._replace(work=work, complaint=after.complaint or wrong)
