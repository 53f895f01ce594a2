"""Shows people the runs in flight and the plans of a group: one page at a time, since a group may have a million runs.

Rule: a page scans a bounded number of runs, so that the group's other requests wait only briefly.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice

import msgspec

from coordinator.core.isolation import Stage, stage_of
from coordinator.core.looks.description import awaited
from coordinator.core.members import AcquiredPlan, Member
from coordinator.core.record_state import HELD, TERMINAL, RecordState
from coordinator.core.runs import Run, Segment
from coordinator.core.share_group import ShareGroup
from coordinator.core.share_partition import SharePartition
from coordinator.protocol.admin_messages import (
    Cursor,
    InFlightPage,
    ListInFlight,
    ListPlans,
    ListWindows,
    PlanInFlight,
    PlansListed,
    RunInFlight,
    TaskProgress,
    WindowsListed,
)
from coordinator.protocol.errors import InvalidRequest
from coordinator.protocol.messages import AwaitedRecord
from coordinator.protocol.values import SharePartitionKey

MOST_ON_A_PAGE = 1_000
MOST_LOOKED_AT = 5_000
"""A page scans up to this many runs, shown or not, which takes some milliseconds."""
MOST_WINDOWS = 1_000
"""A request with more windows is refused."""
LOOKED_AT_OF_A_PLAN = 1_000
"""A plan is shown with the furthest stage of isolation among its first runs, up to this many."""
MOST_TASKS_SHOWN = 10
"""A plan is shown with the signals of up to this many tasks: those that signalled last."""

_STAGES = list(Stage)


def list_in_flight(group: ShareGroup, command: ListInFlight, now_ms: int) -> InFlightPage:
    """A page of the runs in flight.

    Raises:
        InvalidRequest: a state is unknown.
    """
    states = _states(command.states)
    limit = max(1, min(command.limit, MOST_ON_A_PAGE))
    is_held = command.held_longer_than_ms is not None or command.progress_staleness_ms is not None
    threshold_ms = group.config.group_share_in_progress_staleness_threshold_ms
    page = InFlightPage(now_ms=now_ms, staleness_threshold_ms=threshold_ms)
    shown: list[RunInFlight] = []
    awaited_in = cache(lambda key: awaited(group, group.partitions[key], now_ms))
    for looked_at, (partition, segment) in enumerate(_from(group, command.cursor)):
        if len(shown) == limit or looked_at == MOST_LOOKED_AT:
            cursor = (*partition.key, segment.first)
            return msgspec.structs.replace(page, runs=tuple(shown), cursor=cursor)
        run = segment.run
        if run.state not in states or (is_held and run.state not in HELD):
            continue
        plan = group.plan_of(run)
        if command.member_id and (plan is None or plan.member_id != command.member_id):
            continue
        if is_held and not _is_old(plan, run, command, now_ms):
            continue
        shown.append(_run(group, partition, segment, plan, awaited_in(partition.key)))
    return msgspec.structs.replace(page, runs=tuple(shown))


def list_windows(group: ShareGroup, command: ListWindows, now_ms: int) -> WindowsListed:
    """The first runs in flight of each window. All windows together show up to MOST_ON_A_PAGE runs, and scan up to
    MOST_LOOKED_AT.

    Raises:
        InvalidRequest: there are more than MOST_WINDOWS windows.
    """
    if len(command.windows) > MOST_WINDOWS:
        raise InvalidRequest(what=f"{len(command.windows):,} windows are more than {MOST_WINDOWS:,}.")
    threshold_ms = group.config.group_share_in_progress_staleness_threshold_ms
    left, left_to_look = MOST_ON_A_PAGE, MOST_LOOKED_AT
    pages = []
    for window in command.windows:
        runs: list[RunInFlight] = []
        partition = group.partitions.get(SharePartitionKey(window.topic_id, window.partition))
        cursor: Cursor | None = None
        front = None if partition is None else awaited(group, partition, now_ms)
        for segment in () if partition is None else partition.runs.whole_from(window.first):
            if segment.first > window.last:
                break
            if len(runs) >= min(window.limit, left) or left_to_look == 0:
                cursor = (window.topic_id, window.partition, max(segment.first, window.first))
                break
            left_to_look -= 1
            if segment.run.state not in TERMINAL:
                assert partition is not None
                runs.append(_run(group, partition, segment, group.plan_of(segment.run), front))
        left -= len(runs)
        pages.append(InFlightPage(runs=tuple(runs), cursor=cursor, now_ms=now_ms, staleness_threshold_ms=threshold_ms))
    return WindowsListed(pages=tuple(pages))


def _states(names: tuple[str, ...]) -> frozenset[RecordState]:
    if not names:
        return frozenset(RecordState) - TERMINAL
    if unknown := [name for name in names if name not in RecordState.__members__]:
        raise InvalidRequest(what=f"{unknown[0]} is no state of a record: {', '.join(RecordState.__members__)}.")
    return frozenset(RecordState[name] for name in names)


def _from(group: ShareGroup, cursor: Cursor | None) -> Iterator[tuple[SharePartition, Segment]]:
    """Yield the runs of all partitions from the cursor on, in order; a run that holds the cursor's offset is whole."""
    at = None if cursor is None else (SharePartitionKey(*cursor[:2]), cursor[2])
    for key, partition in sorted(group.partitions.items()):
        if at is None or key > at[0]:
            yield from ((partition, segment) for segment in partition.runs)
        elif key == at[0]:
            yield from ((partition, segment) for segment in partition.runs.whole_from(at[1]))


def _is_old(plan: AcquiredPlan | None, run: Run, command: ListInFlight, now_ms: int) -> bool:
    """Whether the plan was acquired, and the last signal about the run came, as long ago as the command asks. Without a
    signal, the time of the acquisition counts."""
    if plan is None:
        return False
    progress = plan.progress_of(run)
    signal_ms = plan.acquired_ms if progress is None else progress.last_ms
    is_stale = now_ms - signal_ms > (command.progress_staleness_ms or 0)
    return is_stale and now_ms - plan.acquired_ms > (command.held_longer_than_ms or 0)


def _run(
    group: ShareGroup,
    partition: SharePartition,
    segment: Segment,
    plan: AcquiredPlan | None,
    front: AwaitedRecord | None,
) -> RunInFlight:
    """``front``: the record for which the share partition waits."""
    first, last, run = segment
    is_behind = front is not None and front.offset < first and run.state == RecordState.AVAILABLE
    member = None if plan is None else group.members.get(plan.member_id)
    stage = stage_of(run, group.config.share_delivery_count_limit, on_trial=plan is not None and plan.trial)
    progress = group.progress_of(run)
    return RunInFlight(
        topic=group.topic_names[partition.key.topic_id],
        topic_id=partition.key.topic_id,
        partition=partition.key.partition,
        first=first,
        last=last,
        state=run.state.name,
        delivery_count=run.delivery_count,
        failures=run.failures,
        releases=run.releases,
        query_failures=run.query_failures,
        plan_id=group.plan_id_text(run.plan_id),
        member_id="" if plan is None else plan.member_id,
        client_id="" if member is None else member.name,
        client_host="" if member is None else member.client_host,
        since_ms=None if plan is None else plan.acquired_ms,
        first_signal_ms=None if progress is None else progress.first_ms,
        last_signal_ms=None if progress is None else progress.last_ms,
        hint="" if progress is None else progress.hint,
        lock_deadline_ms=None if run.deadline_ms is None else group.locks.deadline_ms(run.deadline_ms),
        not_before_ms=run.not_before_ms,
        stage=stage.value,
        disposition=run.disposition.name.lower() if run.disposition else "",
        reason=run.reason,
        behind=front.offset if front is not None and is_behind else None,
    )


def list_plans(group: ShareGroup, command: ListPlans, now_ms: int) -> PlansListed:
    """The newest plan of each query, by member id."""
    plans = (_plan(group, member) for _, member in sorted(group.members.items()) if member.query)
    return PlansListed(plans=tuple(plan for plan in plans if plan is not None))


def _plan(group: ShareGroup, member: Member) -> PlanInFlight | None:
    plan = member.newest
    if plan is None:
        return None
    keys = {SharePartitionKey(topic_id, index) for topic_id, index, _ in plan.ranges}
    signals = plan.signals if member.pending is plan else {}
    carried = (group.partitions[key].runs.carried.get(plan.plan_id, 0) for key in keys if key in group.partitions)
    return PlanInFlight(
        plan_id=group.plan_id_text(plan.plan_id),
        member_id=member.member_id,
        query_id=member.query_id,
        state=member.plan_state(plan.plan_id).value,
        acquired_ms=plan.acquired_ms,
        records=plan.records,
        held=sum(carried),
        attempt=plan.reclaims,
        batch_id=plan.batch_id,
        stage=_furthest_stage(group, plan).value,
        evidence=member.evidence,
        tasks=tuple(
            TaskProgress(task=task, host=signal.host, **signal.progress._asdict())
            for task, signal in islice(reversed(signals.items()), MOST_TASKS_SHOWN)
        ),
        tasks_total=len(signals),
        client_id=member.name,
    )


def _furthest_stage(group: ShareGroup, plan: AcquiredPlan) -> Stage:
    """The furthest stage of isolation among the first LOOKED_AT_OF_A_PLAN runs of the plan's ranges."""
    limit, furthest = group.config.share_delivery_count_limit, Stage.NORMAL
    for run in islice(group.runs_in(plan), LOOKED_AT_OF_A_PLAN):
        if run.plan_id == plan.plan_id:
            furthest = max(furthest, stage_of(run, limit, on_trial=plan.trial), key=_STAGES.index)
    return furthest
