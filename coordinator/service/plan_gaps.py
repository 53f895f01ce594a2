"""Finds the gaps that the answer to NextPlan depends on: among quarantined offsets, in the plan that the request
completes, and among the offsets of it that no sink decided.

Rule: an offset is a gap only if the log was read over it (:mod:`coordinator.service.brokers.log_gaps`), and only if its
topic still exists.
"""

from __future__ import annotations

import dataclasses

from coordinator.core.commands.view_group import GroupView, LogRange
from coordinator.protocol.messages import NextPlan
from coordinator.protocol.values import OffsetRange
from coordinator.service.brokers.cluster import Cluster
from coordinator.service.brokers.log_gaps import LogGaps, count_offsets
from coordinator.service.brokers.subscription import deleted_topic_ids
from coordinator.service.brokers.undecided_gaps import Asked, UndecidedLooks
from coordinator.service.runtime.transactions import Facts


class PlanGaps:
    """The gaps of the groups' plans. Thread-safe."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._gaps = LogGaps(cluster)
        self._undecided = UndecidedLooks(cluster)

    def add_to(self, facts: Facts, request: NextPlan, view: GroupView) -> Facts:
        """The facts, with what the log says of the offsets that the answer depends on.

        While records are quarantined: which quarantined offsets are gaps, and whether the plan to complete had a record
        at all. In explicit mode: which offsets that no sink decided are gaps, since the completion releases the others;
        ``undecided_left`` says that not all of these offsets are read yet.
        """
        if request.start and view.undecided and not self._gives_back(view):
            # A guess is not allowed: each released record counts a try.
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
        """The gaps without those of deleted topics: the log that was read may be that of a new topic of the same name.
        ``ranges``: what was read."""
        if not gaps:
            return ()
        topics = {log_range.offsets.topic_id: log_range.topic for log_range in ranges}
        gone = deleted_topic_ids(self._cluster, topics, view.group_id, topic_ids=view.topic_ids)
        return tuple(gap for gap in gaps if gap.topic_id not in gone)

    def _gives_back(self, view: GroupView) -> bool:
        """Whether the completion gives the whole plan back, gaps too: no sink of the member has ever decided a record,
        and the plan holds one. One record in the first ranges is enough to know, however large the batch is."""
        return not view.decides and self._gaps.surely_holds_any(view.undecided, read_committed=view.read_committed)

    def forget(self, request: NextPlan) -> None:
        """Drop the reading of the plan that the request has completed."""
        self._undecided.forget(_asked(request))


def _asked(request: NextPlan) -> Asked:
    return request.group_id, request.member_id, request.start
