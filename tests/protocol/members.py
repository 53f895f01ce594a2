"""Spark queries and a ShareConsumer as values: what they ask next, and what an answer makes of them.

What Spark does is taken from docs/trust/facts.md, "Spark": ``offsets/N`` is written after ``latestOffset``,
``commits/N`` after the sink wrote; a new process replays the last logged, uncommitted batch by ``partitions(end)``, and
asks ``latestOffset`` only from a batch that was committed. A query writes to two sinks: one replaces its output of a
(query, batch id), one skips a batch id that it knows; or, where the setting says so, to the first one alone. Where the
setting has a sink of ours, it reads its batch, decides, acknowledges, then writes what it accepts. Sets of records are
bits of an int.

Without a start (``without_start``) the process of a reader knows of Spark's log only what Spark's calls told it, in
share_source.driver.logged_end: ``partitions(end, end)`` first, if there is a log (S25).
"""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

from coordinator.protocol.messages import (
    AcknowledgeReply,
    AcquiredReply,
    Done,
    Joined,
    OutcomesStaged,
    PlanReply,
    ProgressReply,
)
from share_source.driver.logged_end import LoggedEnd
from share_source.errors import LogNotTold
from tests.protocol.happened import bits
from tests.protocol.requests import TOPIC_IDS, Request, Said, number_of_log
from tests.protocol.setting import Setting

ASKED_AGAIN = ("CoordinatorNotAvailable",)
LOCAL = ("tell", "log", "decide", "write", "commit")
"""Phases in which a query needs nobody: Spark tells the reader where its log ends; it writes offsets/N, decides its
records, writes its output, commits/N."""
Named = tuple[str, str]
"""An offset: the member and the plan in it; an initial offset has no plan."""


class Query(NamedTuple):
    """A query's checkpoint and sinks, and its process, if there is one: ``phase`` is what that does next."""

    name: str
    most: int
    member: str = ""
    log_member: str = ""
    """The member id in Spark's log."""
    processes: int = 0
    epoch: int = 0
    joined: bool = False
    phase: str = "down"
    plan: str = ""
    batch: int = 0
    offsets: tuple[str, ...] = ()
    commits: int = 0
    replaced: tuple[int, ...] = ()
    skipped: tuple[int, ...] = ()
    failures: int = 0
    """The number of times that it failed by name."""
    said: Said = ()
    """The outcomes that its sink sends for the batch."""
    at: int = 0
    """The number of entries of Spark's log that its process knows."""
    topic: int = 0
    """The topic of the batch: the number of times that the topic had been created again."""
    mode: str = ""
    """The acknowledgement mode of its batch: the group's when the batch begins; with ``own_mode`` the query's own."""
    own_mode: bool = False
    unread: int = 0
    """The number of records of its batches that were gone when its tasks read."""
    stopped: tuple[str, str, int] = ("", "", 0)
    """A stopped driver before it: its member, the plan that it was given, and the length of Spark's log that it
    knew."""
    departed: bool = False
    """It is never started again."""
    without_start: bool = False
    told: tuple[Named | None, Named | None, bool] = (None, None, False)
    """The reader's knowledge of Spark's log, as in share_source.driver.logged_end.LoggedEnd."""

    def __str__(self) -> str:
        return f"{self.name}: {self.phase}, logged {self.offsets}, committed {self.commits}, wrote {self.replaced}"

    @property
    def up(self) -> bool:
        return self.phase != "down"

    def started(self, mode: str = "") -> Query:
        """A new process: Spark's log has its member id; without a log it is a new member. ``mode``: its mode from now
        on."""
        processes = self.processes + 1
        member = self.log_member if self.offsets else f"{self.name}{processes}"
        replays = len(self.offsets) > self.commits
        phase = "use" if replays else "ask"
        mode = mode or self.mode
        begun = self._replace(member=member, processes=processes, phase=phase, at=len(self.offsets), mode=mode)
        return begun.knows_nothing() if self.without_start else begun

    def knows_nothing(self) -> Query:
        """A new process of a reader that Spark gives no start: it would be somebody new, and Spark tells it at once
        where the log ends, if there is one."""
        phase = "tell" if self.offsets else "ask"
        return self._replace(member=f"{self.name}{self.processes}", phase=phase)

    def died(self) -> Query:
        gone = self._replace(epoch=0, joined=False, phase="down", plan="", batch=0, said=(), at=0, topic=0)
        return gone._replace(told=(None, None, False))

    def stops(self) -> Query:
        """The query after its driver was stopped; the others think that it has died."""
        return self.died()._replace(stopped=(self.member, self.plan, self.at))

    def wakes(self) -> Query:
        """The stopped driver writes its plan into Spark's log, if nobody else has written that entry; and is fenced, or
        dies, before it does more."""
        member, plan, at = self.stopped
        awake = self._replace(stopped=("", "", 0))
        return awake._replace(offsets=(*self.offsets, plan), log_member=member) if at == len(self.offsets) else awake

    def departs(self) -> Query:
        """The query after its process died and is not started again. Its output stays."""
        return self.died()._replace(departed=True)

    def failed(self) -> Query:
        return self.died()._replace(failures=self.failures + 1)

    # --- requests

    def wants(self, log_start: int, topic: int = 0, partitions: int = 1) -> Request | None:
        """The next request of its process; None if it is down, or needs nobody. ``topic``: how often the topic was made
        anew so far; ``partitions``: how many it has."""
        if not self.up or self.phase in LOCAL:
            return None
        if not self.joined:
            process = f"{self.name}-{self.processes}"
            return Request("join query", self.member, self.epoch, process, partitions=partitions)
        if self.phase == "ask":
            start = self.start()
            return Request(
                "next", self.member, self.epoch, start, self.most, log_start, topic=topic, partitions=partitions
            )
        if self.phase == "stage":
            mode = self.mode if self.own_mode else ""
            where = {"topic": self.topic_of_rows(topic), "mode": mode}
            return Request("stage", self.member, self.epoch, self.offsets[-1], said=self.said, **where)
        plan, mode = self.offsets[-1], self.mode if self.phase == "use" and self.own_mode else ""
        at = {"log_start": log_start, "topic": topic, "partitions": partitions}
        return Request(self.phase, self.member, self.epoch, plan, **at, mode=mode)

    def start(self) -> str:
        """The plan that the next request completes: Spark's start, or what the reader knows of it."""
        if self.without_start:
            return self.logged_end().latest_asked(_offset((self.member, "")))["plan_id"]  # type: ignore[no-any-return]
        return self.offsets[self.at - 1] if self.at else ""

    def logged_end(self) -> LoggedEnd:
        end, initial, offered = self.told
        return LoggedEnd(end and _offset(end), initial and _offset(initial), offered)

    def partitions_asked(self, start: Named, end: Named) -> Query:
        """The reader after Spark's ``partitions(start, end)``; it fails by name where it can't know Spark's log."""
        try:
            self.logged_end().partitions_asked(_offset(start), _offset(end))
        except LogNotTold:
            return self.failed()
        return self._replace(member=end[0], told=(end, None, False))

    def topic_of_rows(self, topic: int) -> int:
        """The topic that its rows' receipts name, when ``topic`` is there: the batch's."""
        return self.topic

    def heard(self, answer: Any, error: str, setting: Setting, plan_mode: str) -> Query:
        """The query after this answer to its request."""
        if error == "UnknownMemberId" and self.joined:
            return self._replace(joined=False)
        if error:
            return self if error in ASKED_AGAIN else self.failed()
        if isinstance(answer, Joined):
            return self._replace(epoch=answer.member_epoch, joined=True)
        if isinstance(answer, PlanReply) and self.phase == "ask":
            asked = self._answered(answer.plan.plan_id) if self.without_start else self
            return asked._replace(phase="log", plan=answer.plan.plan_id) if answer.plan.plan_id else asked
        if isinstance(answer, PlanReply):
            if answer.data_loss and setting.fail_on_data_loss:
                return self.failed()
            parts = answer.plan.partitions
            topic = max((TOPIC_IDS.index(p.topic_id) for p in parts), default=0)
            logs = ((number_of_log(p.topic_id, p.partition) * setting.records, p.ranges) for p in parts)
            batch = bits((before + r.first, before + r.last) for before, of_log in logs for r in of_log)
            mode = self.mode if self.own_mode else plan_mode
            held = self._replace(phase="write", batch=batch, topic=topic, mode=mode)
            if not setting.sink:
                return held
            said = (
                (p.partition * setting.records + offset, r.delivery_count, "")
                for p in parts
                for r in p.ranges
                for offset in range(r.first, r.last + 1)
            )
            return held._replace(phase="decide", said=tuple(sorted(said)))
        if isinstance(answer, OutcomesStaged):
            return self._replace(phase="write")
        return self._replace(phase="commit")  # after "complete", which only a mistake asks for

    def _answered(self, plan: str) -> Query:
        committed = (self.member, self.start())
        after = self.logged_end().answered(_offset(committed), _offset((self.member, plan) if plan else committed))
        initial = None if after.initial is None else committed
        return self._replace(told=(self.told[0], initial, after.offered))

    # --- steps without a coordinator

    def decides(self, setting: Setting) -> list[Query]:
        """All outcomes that its sink may send for the batch; those of the whole batch first, if it may send them."""
        ways = product(*(setting.may_say(number % setting.records) for number, _, _ in self.said))
        found = []
        for way in ways:
            said = tuple((number, count, outcome) for (number, count, _), outcome in zip(self.said, way, strict=True))
            if not setting.ordered or _is_in_order(said, setting.records):
                found.append(self._replace(phase="stage", said=said))
        return found

    def goes_on(self, log_start: int, setting: Setting, topic: int = 0) -> Query:
        """The step of a phase in which it needs nobody."""
        if self.phase == "decide":
            return self.decides(setting)[0]
        if self.phase == "tell":
            end = (self.log_member, self.offsets[-1])
            told = self.partitions_asked(end, end)
            return told._replace(phase="use" if len(self.offsets) > self.commits else "ask") if told.up else told
        if self.phase == "log" and self.at < len(self.offsets):
            return self.died()  # a concurrent update of Spark's log
        if self.phase == "log":
            before = (self.member, self.offsets[-1] if self.offsets else "")
            offsets = (*self.offsets, self.plan)
            logged = self._replace(phase="use", offsets=offsets, log_member=self.member, at=len(offsets), plan="")
            return logged.partitions_asked(before, (self.member, self.plan)) if self.without_start else logged
        if self.phase == "write":
            return self.wrote(log_start, setting, topic)
        return self._replace(phase="ask", commits=self.commits + 1, batch=0, said=())

    def wrote(self, log_start: int, setting: Setting, topic: int = 0) -> Query:
        """Tasks read the batch, if no sink of ours has read it before, and the sinks have it, each in its way."""
        gone = self.batch & bits([(0, topic * setting.records + log_start - 1)])
        if setting.sink and self.topic != topic:
            gone = 0
        if gone and setting.fail_on_data_loss:
            return self.failed()
        batch, at = self.batch & ~gone, len(self.offsets) - 1
        if setting.sink:
            for number, _, outcome in self.said:
                partition, offset = divmod(number, setting.records)
                if not self._accepts(outcome):
                    batch &= ~(1 << number_of_log(TOPIC_IDS[self.topic], partition) * setting.records + offset)
        replaced = (*self.replaced[:at], batch)
        skipped = self.skipped if at < len(self.skipped) else (*self.skipped, batch)
        skipped = replaced if setting.replaces else skipped
        unread = self.unread | gone
        return self._replace(phase="commit", batch=batch, replaced=replaced, skipped=skipped, unread=unread)

    def _accepts(self, outcome: str) -> bool:
        return outcome == "accept" or (outcome == "nothing" and self.mode == "implicit")

    def may_have(self, plan: str, offset: int) -> bool:
        """Whether the batch of this plan was read, or is, with that record in it."""
        if plan not in self.offsets:
            return False
        at = self.offsets.index(plan)
        written = (self.replaced[at] | self.skipped[at]) if at < len(self.replaced) else 0
        reads = self.batch if at == len(self.offsets) - 1 else 0
        return bool((written | reads) >> offset & 1)


def _is_in_order(said: Said, records: int) -> bool:
    """Whether each record behind one that comes again is deferred, as ``sharegroup.in_order`` does it."""
    waiting = set[int]()
    for number, _, outcome in said:
        if number // records in waiting and outcome != "defer":
            return False
        if outcome in ("release", "defer"):
            waiting.add(number // records)
    return True


def _offset(named: Named) -> dict[str, str]:
    member, plan = named
    return {"member": member, "plan_id": plan}


class Consumer(NamedTuple):
    """A ShareConsumer that fetches one record at a time, and processes it before it acknowledges. ``outcome``: what it
    does next about the record that it holds. ``processed``: offsets that it has accepted, as far as it knows.
    ``signals``: how often it still may say that it works on the record; ``leaves``: how often it may leave with the
    record in its hands. ``late``: after the end of its session it goes on with the record, and sends its outcome."""

    fetches: int
    signals: int = 0
    leaves: int = 0
    late: bool = False
    epoch: int = 0
    joined: bool = False
    up: bool = True
    offset: int = -1
    count: int = 0
    outcome: str = ""
    processed: int = 0

    def __str__(self) -> str:
        return f"c: holds {self.offset}, processed {self.processed:b}"

    def wants(self, log_start: int) -> Request | None:
        if not self.up or (not self.fetches and self.offset < 0):
            return None
        if not self.joined:
            return Request("join consumer", "c", self.epoch, "c-1")
        if self.offset < 0:
            return Request("fetch", "c", self.epoch, most=1, log_start=log_start)
        return Request(self.outcome, "c", self.epoch, offset=self.offset, count=self.count) if self.outcome else None

    def decides(self, setting: Setting) -> list[Consumer]:
        """The ShareConsumer after each decision that it may make about its record."""
        if not self.up or self.offset < 0 or self.outcome:
            return []
        found = [self._replace(outcome="accept", processed=self.processed | 1 << self.offset)]
        if setting.releases:
            found.append(self._replace(outcome="release"))
        if self.signals:
            found.append(self._replace(outcome="signal", signals=self.signals - 1))
        if self.leaves and self.joined:
            found.append(self._replace(outcome="leave", leaves=self.leaves - 1))
        return found

    def heard(self, answer: Any, error: str, setting: Setting) -> Consumer:
        if error == "UnknownMemberId" and self.late:
            return self._replace(joined=False, outcome="" if self.outcome == "leave" else self.outcome)
        if error == "UnknownMemberId":
            return self._replace(joined=False, offset=-1, count=0, outcome="")
        if error:
            return self if error in ASKED_AGAIN else self.died()
        if isinstance(answer, Joined):
            return self._replace(epoch=answer.member_epoch, joined=True)
        if isinstance(answer, AcquiredReply):
            if not answer.partitions:
                return self
            first, _, count = answer.partitions[0].ranges[0]
            return self._replace(fetches=self.fetches - 1, offset=first, count=count)
        if isinstance(answer, ProgressReply):
            return self._replace(outcome="")
        if isinstance(answer, Done):
            return self._replace(joined=False, outcome="")
        assert isinstance(answer, AcknowledgeReply)
        return self._replace(offset=-1, count=0, outcome="")

    def died(self) -> Consumer:
        return self._replace(up=False, offset=-1, count=0, outcome="", fetches=0)
