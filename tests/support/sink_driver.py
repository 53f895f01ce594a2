"""A query and its sink on a group, without a shell: what tests of outcomes begin with."""

from __future__ import annotations

from typing import Any

from coordinator.core.runs import Run
from coordinator.protocol.values import AcknowledgeType, OutcomeRun
from tests.support.group_driver import GroupDriver, started_plan

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
DLQ = {"errors.deadletterqueue.topic.name": "dlq.orders"}
EXPLICIT = {"share.acknowledgement.mode": "explicit"}
IMPLICIT = {"share.acknowledgement.mode": "implicit"}


def said(first: int, last: int, outcome: AcknowledgeType, count: int = 1, **fields: Any) -> OutcomeRun:
    """Rows first..last, delivered at ``count``."""
    return OutcomeRun(first, last, count, outcome, **fields)


def batch(records: int = 10, **configs: str) -> tuple[GroupDriver, str]:
    """m1 reads all records in a batch; the group, and the batch's plan id."""
    return started_plan(records, **configs)


def second_batch(first: int = 10, second: int = 10, **configs: str) -> tuple[GroupDriver, str]:
    """m1 has completed a batch of the first records, and has started the next one. Returns the group and the plan."""
    group, plan = batch(first, **configs)
    group.ends[0] = first + second
    plan = group.next(plan, limit=second).plan.plan_id
    group.start(plan)
    return group, plan


def states(group: GroupDriver) -> list[str]:
    """``[first..last] STATE count``, neighbours alike merged."""
    found: list[tuple[int, int, str]] = []
    for first, last, run in group.partition().runs:
        text = f"{run.state.name} {run.delivery_count}"
        if found and found[-1][1] == first - 1 and found[-1][2] == text:
            first = found.pop()[0]
        found.append((first, last, text))
    return [f"[{first}..{last}] {text}" for first, last, text in found]


def run_at(group: GroupDriver, offset: int) -> Run:
    segment = group.partition().runs.at(offset)
    assert segment is not None
    return segment.run
