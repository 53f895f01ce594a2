"""Finds the gaps that the answer to NextPlan depends on: among quarantined offsets, in the plan that the request
completes, and among that plan's undecided offsets before the completion releases them.

A batch may leave millions of records undecided, and a request must be answered in time. So one request reads for a
limited time, and the next request for the plan continues there. If a query was started again while its first request
still runs, only one of the two requests reads.

Rule: an offset is a gap only if the log was read over it (:mod:`coordinator.service.brokers.log_gaps`), and its topic
still exists. This is never guessed."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from itertools import takewhile

from coordinator.core.looks.view import GroupView, LogRange
from coordinator.protocol.messages import NextPlan
from coordinator.protocol.values import OffsetRange
from coordinator.service.brokers.broker_watch import BrokerWatch
from coordinator.service.brokers.cluster import KafkaCluster
from coordinator.service.brokers.log_gaps import LogGaps, count_offsets, ranges_of
from coordinator.service.runtime.transactions import Facts

CALL_S = 10.0
"""One request reads for up to this many seconds, far fewer than a client waits for its answer."""
AT_ONCE = 50_000
"""One request to the cluster has up to this many offsets."""
KEPT_S = 600.0
"""The reading of a plan is dropped after this many seconds without a request for it. A reader asks again at once, and a
restarted query within minutes. The number of readings has no limit: each is about a plan that its group's memory holds,
and a plan's completion may wait for it."""

Asked = tuple[str, str, str]
"""A plan whose gaps a reader asks for: the group, the member and the plan id."""


class PlanGaps:
    """The gaps of the groups' plans. Thread-safe."""

    def __init__(self, watch: BrokerWatch) -> None:
        self._watch = watch
        self._gaps = LogGaps(watch.cluster)
        self._undecided = UndecidedLooks(watch.cluster)

    def add_to(self, facts: Facts, request: NextPlan, view: GroupView) -> Facts:
        """Returns the facts, with the state in the log of the offsets that the answer depends on.

        While records are quarantined: which quarantined offsets are gaps, and whether the plan to complete had a record
        at all. In explicit mode: which offsets that no sink decided are gaps, because the completion releases the
        others; ``undecided_left`` says that not all of these offsets are read yet."""
        if request.start and view.undecided and not self._gives_back(view):
            # Never guess: each released record counts a try.
            look = self._undecided.go_on(_asked(request), view.undecided, read_committed=view.read_committed)
            if not look.is_done:
                return dataclasses.replace(facts, undecided_left=look.total - look.read)
            gaps = self._of_its_topics(view, tuple(look.gaps), view.undecided)
            processed = view.decides or count_offsets(gaps) < look.total
            facts = dataclasses.replace(facts, undecided_gaps=gaps, processed=processed)
        if not view.quarantined:
            return facts
        gaps = self._gaps.among(view.quarantined, read_committed=view.read_committed)
        gaps = self._of_its_topics(view, gaps, view.quarantined)
        is_unproven = request.start and view.unproven and view.decides
        processed = not is_unproven or self._gaps.holds_any(view.unproven, read_committed=view.read_committed)
        return dataclasses.replace(facts, gaps=gaps, processed=facts.processed and processed)

    def _of_its_topics(
        self, view: GroupView, gaps: tuple[OffsetRange, ...], ranges: tuple[LogRange, ...]
    ) -> tuple[OffsetRange, ...]:
        """The gaps, without those of topics that are not shown under their ids: the log that was read may be a new
        topic's. A topic in doubt loses nothing: an offset that is no gap is released. ``ranges``: what was read."""
        if not gaps:
            return ()
        topics = {log_range.offsets.topic_id: log_range.topic for log_range in ranges}
        looked = self._watch.doubts.look(self._watch.cluster, topics, view.group_id, topic_ids=view.topic_ids)
        return tuple(gap for gap in gaps if gap.topic_id not in looked.not_shown)

    def _gives_back(self, view: GroupView) -> bool:
        """Whether the completion gives the whole plan back, gaps included: no sink of the member has ever decided a
        record, and the plan holds a record. One record in the first ranges is proof enough for any batch."""
        return not view.decides and self._gaps.surely_holds_any(view.undecided, read_committed=view.read_committed)

    def forget(self, request: NextPlan) -> None:
        self._undecided.forget(_asked(request))


class UndecidedLook:
    """The reading of one plan's undecided offsets. Of ``total`` offsets ``read`` are checked; the log has no record at
    ``gaps``. ``asked_s``: the time of the last request for it, in monotonic seconds."""

    def __init__(self, ranges: tuple[LogRange, ...], *, read_committed: bool) -> None:
        self.ranges, self.read_committed = ranges, read_committed
        self.total = count_offsets(held.offsets for held in ranges)
        self.read = 0
        self.gaps: list[OffsetRange] = []
        self.reading = threading.Lock()
        self.asked_s = 0.0
        self._at, self._offset = 0, -1

    @property
    def is_done(self) -> bool:
        return self.read == self.total

    def read_on(self, cluster: KafkaCluster, until_s: float) -> None:
        """Read until every offset is checked, or the monotonic clock reaches ``until_s``. Raises BrokerNotReachable or
        BrokerRefused if the log can't be read; the progress until then is kept."""
        while not self.is_done:
            pieces = self._next_pieces()
            absent, answered = cluster.absent(
                pieces[0].topic_partition, _offsets_of(pieces), read_committed=self.read_committed, until_s=until_s
            )
            self._note(pieces[0].offsets, absent)
            self._advance(answered)
            if time.monotonic() >= until_s:
                return

    def _next_pieces(self) -> list[LogRange]:
        """Returns the next offsets of one partition: a part of a range, or several whole ranges."""
        topic, offsets = self.ranges[self._at]
        begin = max(offsets.first, self._offset)
        piece = offsets._replace(first=begin, last=min(offsets.last, begin + AT_ONCE - 1))
        pieces, room = [LogRange(topic, piece)], AT_ONCE - piece.size
        following = self.ranges[self._at + 1 : self._at + AT_ONCE]
        for held in takewhile(lambda held: held.topic == topic and held.offsets.key == offsets.key, following):
            room -= held.offsets.size
            if room < 0:
                break
            pieces.append(held)
        return pieces

    def _note(self, read: OffsetRange, absent: Sequence[int]) -> None:
        for _, first, last in ranges_of((None, offset) for offset in absent):
            before = self.gaps[-1] if self.gaps else None
            if before is not None and (before.key, before.last) == (read.key, first - 1):
                first = self.gaps.pop().first
            self.gaps.append(read._replace(first=first, last=last))

    def _advance(self, answered: int) -> None:
        self.read += answered
        while answered:
            offsets = self.ranges[self._at].offsets
            begin = max(offsets.first, self._offset)
            taken = min(answered, offsets.last - begin + 1)
            answered -= taken
            self._offset = begin + taken
            if self._offset > offsets.last:
                self._at, self._offset = self._at + 1, -1


class UndecidedLooks:
    """The readings by plan. Thread-safe. Keeps those that were asked for within KEPT_S."""

    def __init__(self, cluster: KafkaCluster, *, call_s: float = CALL_S) -> None:
        self._cluster = cluster
        self._call_s = call_s
        self._looks: OrderedDict[Asked, UndecidedLook] = OrderedDict()
        self._guard = threading.Lock()

    def go_on(self, asked: Asked, ranges: tuple[LogRange, ...], *, read_committed: bool) -> UndecidedLook:
        """Continue the plan's reading for ``call_s``, unless another request does so now, and return it. ``ranges``
        ascend. Raises BrokerNotReachable or BrokerRefused if the log can't be read."""
        until_s = time.monotonic() + self._call_s
        look = self._look(asked, ranges, read_committed=read_committed)
        if look.reading.acquire(timeout=self._call_s):
            try:
                look.read_on(self._cluster, until_s)
            finally:
                look.reading.release()
        return look

    def forget(self, asked: Asked) -> None:
        with self._guard:
            self._looks.pop(asked, None)

    def _look(self, asked: Asked, ranges: tuple[LogRange, ...], *, read_committed: bool) -> UndecidedLook:
        with self._guard:
            look = self._looks.pop(asked, None)
            if look is None or (look.ranges, look.read_committed) != (ranges, read_committed):
                look = UndecidedLook(ranges, read_committed=read_committed)
            self._looks[asked] = look
            look.asked_s = now_s = time.monotonic()
            while next(iter(self._looks.values())).asked_s < now_s - KEPT_S:
                self._looks.popitem(last=False)
            return look


def _offsets_of(pieces: list[LogRange]) -> Sequence[int]:
    spans = [held.offsets.as_range() for held in pieces]
    return spans[0] if len(spans) == 1 else [offset for span in spans for offset in span]


def _asked(request: NextPlan) -> Asked:
    return request.group_id, request.member_id, request.start
