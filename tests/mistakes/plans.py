"""Plans: which records a plan id still means, which plan a process is given, and what the log lost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from coordinator.core import failed_deliveries, plan_state
from coordinator.core.commands import acquire_for_query as acquire_plan
from coordinator.core.commands import complete_plan, membership, partitions, reclaim_plan
from coordinator.core.commands.reclaim_plan import Reclaim
from coordinator.core.looks import snapshot
from coordinator.core.members import Member
from coordinator.core.plan_state import PlanEvent, PlanState
from coordinator.core.record_state import RecordState
from coordinator.core.runs import Run, Segment
from coordinator.core.share_partition import SharePartition
from coordinator.service.brokers.partition_starts import Known
from tests.mistakes import rules
from tests.mistakes.mistake import Patch, Seeds, SmallWorld, mistake
from tests.protocol.members import Query
from tests.protocol.setting import Budget
from tests.protocol.worlds import ONE_RECORD, SLICES, STOPPED, TWO, TWO_SINKS


@mistake(
    rules.RUN_KEEPS_ITS_PLAN_ID, explorer=(SmallWorld(TWO, Budget(1, expiries=1, pauses=1)),), simulator=(Seeds(),)
)
def match_by_count_instead_of_plan_id(patch: Patch) -> None:
    def carrying(self: SharePartition, number: int, ranges: Iterable[tuple[int, int]]) -> list[Segment]:
        return [s for f, e in ranges for s in self.runs.between(f, e) if s.run.state in (0, 1)]

    patch.setattr(SharePartition, "carrying", carrying)


@mistake(
    rules.RUN_KEEPS_ITS_PLAN_ID,
    rules.REPLAY_RECLAIMS_ALL,
    explorer=(SmallWorld(ONE_RECORD, Budget(1, expiries=1, pauses=1)),),
)
def clear_the_plan_id_at_expiry(patch: Patch) -> None:
    right = membership.query_lost_lock
    patch.setattr(membership, "query_lost_lock", lambda *a: right(*a)._replace(plan_id=None))


@mistake(rules.RUN_KEEPS_ITS_PLAN_ID, explorer=(SmallWorld(SLICES, Budget(1, crashes=1)),))
def keep_the_plan_id_on_a_cut(patch: Patch) -> None:
    def returned(self: reclaim_plan.Reclaim, key: Any, segment: Segment) -> None:
        self._leave_out(key, segment, segment.run._replace(state=RecordState.AVAILABLE), "cut")

    patch.setattr(reclaim_plan.Reclaim, "_return", returned)


@mistake(
    rules.SUPERSEDED_PLAN_STARTS_EMPTY,
    explorer=(SmallWorld(STOPPED, Budget(2, expiries=1, stops=1)),),
    simulator=(Seeds("stopped drivers"),),
)
def refuse_a_superseded_plan_for_ever(patch: Patch) -> None:
    """Spark has logged it, and asks for it at each start."""
    patch.delitem(plan_state.TRANSITIONS, (PlanState.SUPERSEDED, PlanEvent.START))


@mistake(
    rules.OLD_PLAN_IS_REFUSED, tests=("core/test_plans::test_of_two_drivers_on_one_checkpoint_the_first_to_start_wins",)
)
def start_a_superseded_plan_in_spite_of_the_newest(patch: Patch) -> None:
    """The newest one is used: it is in Spark's log, and this one can't be."""
    right = Member.plan_state

    def state(self: Member, plan_id: int) -> PlanState:
        is_superseded = self.pending is not None and plan_id in self.pending.superseded_plans
        return PlanState.SUPERSEDED if is_superseded else right(self, plan_id)

    patch.setattr(Member, "plan_state", state)


@mistake(
    rules.SUPERSEDED_PLAN_STARTS_EMPTY,
    explorer=(SmallWorld(STOPPED, Budget(2, expiries=1, stops=1)),),
    simulator=(Seeds("stopped drivers"),),
)
def keep_what_superseded_the_plan(patch: Patch) -> None:
    right = reclaim_plan.Reclaim._leave_out

    def leave_out(self: Reclaim, key: Any, segment: Segment, run: Run, reason: str) -> None:
        if self.plan.superseded_plans:
            run = segment.run
        right(self, key, segment, run, reason)

    patch.setattr(reclaim_plan.Reclaim, "_leave_out", leave_out)


@mistake(
    rules.SUPERSEDED_PLAN_STARTS_EMPTY,
    tests=("core/test_plans::test_a_superseded_plan_outlives_the_coordinator",),
    explorer=(SmallWorld(STOPPED, Budget(2, expiries=1, stops=1)),),
)
def forget_superseded_plans_in_snapshots(patch: Patch) -> None:
    """With the coordinator: a snapshot does not have them."""
    right = snapshot._plan_record
    patch.setattr(
        snapshot, "_plan_record", lambda self, plan: msgspec.structs.replace(right(self, plan), superseded_plans=())
    )


@mistake(rules.UNSTARTED_PLAN_COMES_BACK, simulator=(Seeds(),))
def return_an_unstarted_plan_unchanged_to_any_process(patch: Patch) -> None:
    patch.setattr(reclaim_plan.Reclaim, "later_process", property(lambda self: False))


@mistake(rules.UNSTARTED_PLAN_COMES_BACK, explorer=(SmallWorld(ONE_RECORD, Budget(1, lost=1)),))
def acquire_anew_while_a_plan_is_not_started(patch: Patch) -> None:
    patch.setattr(acquire_plan, "_pending_again", lambda *a: None)


@mistake(
    rules.DATA_LOSS_FAILS_ONCE,
    tests=("share_source/test_source_reader::test_data_loss_fails_the_query_once_and_a_restart_continues",),
    explorer=(SmallWorld(TWO, Budget(1, retention=1)),),
)
def report_losses_without_archiving(patch: Patch) -> None:
    right = reclaim_plan.Reclaim._sort_out

    def sort_out(self: reclaim_plan.Reclaim, key: Any, segment: Segment, log_start: int) -> None:
        if segment.last < log_start:
            self.data_loss.append(
                reclaim_plan.left_out_entry(self.group, key, segment.first, segment.last, "data_loss")
            )
        else:
            right(self, key, segment, log_start)

    patch.setattr(reclaim_plan.Reclaim, "_sort_out", sort_out)


@mistake(rules.LATER_TOPIC_BEGINS_AT_EARLIEST, simulator=(Seeds("topics", 2),))
def begin_a_later_topic_by_the_policy_of_the_first_to_join(patch: Patch) -> None:
    patch.setattr(Known, "has", lambda self, p: p.topic in self.topics)


@mistake(
    rules.LATER_PARTITION_BEGINS_AT_EARLIEST,
    explorer=(SmallWorld(ONE_RECORD, Budget(1, partitions=1)),),
    simulator=(Seeds("topics"),),
)
def begin_a_later_partition_by_the_policy_of_the_next_to_join(patch: Patch) -> None:
    """Of a topic that the group reads; topics that come later begin as they should."""
    right = Known.has
    patch.setattr(Known, "has", lambda self, p: p.topic not in self.topics and right(self, p))


@mistake(rules.LOSS_IS_REPORTED_ONCE, explorer=(SmallWorld(ONE_RECORD, Budget(1, topics=1)),), model=0)
def lose_without_a_report(patch: Patch) -> None:
    """Records that the log lost while no member held them are in no plan's report."""
    patch.setattr(partitions, "data_lost", lambda *a: [])


@mistake(rules.LOSS_IS_REPORTED_ONCE, model=0)
def complete_a_batch_without_reporting_its_losses(patch: Patch) -> None:
    """Those of the time after its query's session."""
    patch.setattr(complete_plan, "data_lost", lambda group, lost, of_plan: failed_deliveries.data_lost(group, lost))


@mistake(rules.LOSS_IS_REPORTED_ONCE, model=0)
def report_accepted_records_as_lost(patch: Patch) -> None:
    patch.setattr(failed_deliveries, "_is_lost", lambda *a, **fields: True)


@mistake(rules.TOPIC_IS_ITS_ID, explorer=(SmallWorld(TWO_SINKS, Budget(1, topics=1)),))
def take_the_topics_id_when_the_sink_opens(patch: Patch) -> None:
    """Not from the plan: the batch was read before the topic was made anew."""
    patch.setattr(Query, "topic_of_rows", lambda self, topic: topic)
