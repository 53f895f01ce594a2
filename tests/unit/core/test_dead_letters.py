"""◆ Dead letters (KIP-1191): a record is ARCHIVING until its dead letter is written."""

from __future__ import annotations

from unittest.mock import patch

from coordinator.core.commands import acquisition
from tests.support.group_driver import GroupDriver, fetched, offsets
from tests.support.sink_driver import DLQ, REJECT, batch, said


def test_a_dead_letter_of_an_unknown_partition_is_ignored() -> None:
    group, plan = batch(3, **DLQ)
    group.stage(said(0, 0, REJECT))
    group.complete(plan)
    before = len(group.log)
    group.file(0, 0, partition=9)
    assert (len(group.log), group.partition().archiving_count) == (before, 1)


def waiting(most: int) -> tuple[GroupDriver, str]:
    """A query has completed a plan of four records, of which it rejected as many as ``most``; ten more are there."""
    group, plan = batch(4, **DLQ)
    group.stage(said(0, most - 1, REJECT))
    group.ends[0] += 10
    group.complete(plan)
    assert group.partition().archiving_count == most
    return group, plan


@patch.object(acquisition, "MOST_ARCHIVING", 3)
def test_a_query_acquires_nothing_while_too_many_dead_letters_wait() -> None:
    group, plan = waiting(3)
    reply = group.next(plan)
    assert (reply.plan.plan_id, reply.held_back) == ("", 3)
    group.file(0, 0)
    assert offsets(group.next(plan)) == 10


@patch.object(acquisition, "MOST_ARCHIVING", 3)
def test_a_share_consumer_acquires_nothing_while_too_many_dead_letters_wait() -> None:
    group, _ = waiting(3)
    group.join("c1", query=False)
    assert fetched(group, 10) == []
    group.file(0, 0)
    assert fetched(group, 10) == [(4, 13, 1)]


@patch.object(acquisition, "MOST_ARCHIVING", 3)
def test_a_plan_that_was_acquired_before_too_many_waited_is_replayed() -> None:
    group, plan = waiting(2)
    second = group.next(plan).plan.plan_id
    group.start(second)
    group.join("m2")
    other = group.acquire("", "m2").plan.plan_id
    assert other == ""
    group.stage(said(4, 6, REJECT))
    assert offsets(group.restart(second)) == 10, "its records are held already"
