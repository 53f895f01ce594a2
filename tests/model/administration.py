"""An administrator's steps: new start offsets of a share partition, records decided by hand, and deletions.

A deletion is followed by what comes after it in life: the topic's offsets, or the group, begin anew. Between the two
the coordinator may die.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from coordinator.core.commands import CompletePlan, CreateGroup, InitializePartitions, PartitionStart, TopicWithId
from coordinator.core.commands.administer import AlterStartOffsets
from coordinator.core.looks.snapshot import snapshot_of
from coordinator.protocol.admin_messages import DecideRecords, DeleteGroup, DeleteOffsets
from coordinator.protocol.errors import ForeignPlan
from coordinator.service.handlers.admin_actions import delete_offsets as deletion_of_offsets
from tests.model.compare import share_partition_key, topic_id_of
from tests.model.state import Partition
from tests.model.steps import Steps

NOW = {"group_id": "billing", "execute": True}
BY_HAND = "by hand"


def alter_start(steps: Steps, index: int, start: int, *, force: bool) -> None:
    """The share partition begins anew at ``start``; ``force``: also while the group has members."""
    now_ms = steps.core.now_ms
    command = AlterStartOffsets(starts=((*share_partition_key(index), start),), execute=True, force=force)
    naive = functools.partial(steps.model.alter_start, index, start, force=force, now_ms=now_ms)
    reply = steps.both(f"alter {index} {start} {force}", command, naive)
    if reply is not None:
        steps.model.settle()
        steps.comparison.spso[index] = steps.model.partitions[index].start


def decide_by_hand(steps: Steps, index: int, first: int, last: int, decision: str) -> None:
    """Archive or release records of the newest topic by hand."""
    where: dict[str, Any] = {"topic": "orders", "partition": share_partition_key(index).partition}
    command = DecideRecords(**NOW, **where, first=first, last=last, decision=decision, reason=BY_HAND)
    naive = functools.partial(steps.model.decide_by_hand, index, first, last, decision, BY_HAND)
    steps.both(f"{decision} {index} {first} {last}", command, naive)


def delete_offsets(steps: Steps, start: Callable[[int], int], *, force: bool, crash: Callable[[], None]) -> None:
    """The share partitions of the newest topic are deleted, and begin anew where ``start`` says. ``force``: although
    dead letters wait. ``crash``: what happens in between."""
    request = DeleteOffsets(**NOW, topics=("orders",), force=force)
    indexes = steps.core.logs()
    naive = functools.partial(steps.model.delete_offsets, indexes, force=force, now_ms=steps.core.now_ms)
    if steps.both(f"delete_offsets {force}", functools.partial(_run, steps, request), naive) is None:
        return
    crash()
    steps.comparison.compare()
    _begin(steps, {index: start(index) for index in indexes})


def _run(steps: Steps, request: DeleteOffsets) -> Any:
    """The service's transaction on the core."""
    transaction = deletion_of_offsets(request)(steps.core.group)
    command = next(transaction)
    try:
        while True:
            command = transaction.send(steps.core.run(command))
    except StopIteration as stop:
        return stop.value


def _begin(steps: Steps, starts: dict[int, int]) -> None:
    """The partitions of the newest topic get their start offsets."""
    named = TopicWithId(topic="orders", topic_id=topic_id_of(steps.core.topic))
    given = tuple(PartitionStart(**share_partition_key(i)._asdict(), start_offset=s) for i, s in starts.items())
    naive = functools.partial(steps.model.begin_anew, starts)
    steps.both(f"begin {starts}", InitializePartitions(topics=(named,), starts=given), naive)
    steps.comparison.spso |= starts


def delete_group(steps: Steps, *, force: bool, crash: Callable[[], None]) -> bool:
    """The group is deleted, and another one of its name is made. Plans of the first are refused by the second. False:
    the deletion was refused. ``force``, ``crash``: as of delete_offsets."""
    members = {name: steps.newest(name) for name in steps.model.members}
    plans = [steps.core.group.plan_id_text(number) for number in members.values() if number]
    naive = functools.partial(steps.model.check_deletable, force=force, now_ms=steps.core.now_ms)
    if steps.both(f"delete_group {force}", DeleteGroup(**NOW, force=force), naive) is None:
        return False
    steps.forget_group()
    crash()
    assert not steps.core.group.exists and not list(snapshot_of(steps.core.group)), "a deleted group leaves nothing"
    steps.core.run(CreateGroup(incarnation=f"i{len(steps.trace)}", topic_ids=True))
    steps.model.partitions = {index: Partition() for index in steps.core.logs()}
    _begin(steps, {index: steps.core.log_starts[index] for index in steps.core.logs()})
    for plan_id in plans:
        _check_refused(steps, plan_id)
    return True


def _check_refused(steps: Steps, plan_id: str) -> None:
    steps.join_anew("q1")
    complete = CompletePlan(member_id="q1", member_epoch=steps.epochs["q1"], plan_id=plan_id)
    try:
        steps.core.run(complete)
    except ForeignPlan:
        return
    raise AssertionError(f"plan {plan_id} of a deleted group was completed")
