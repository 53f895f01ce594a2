"""A sink's requests to a running service: what tests of sinks at the service begin with."""

from coordinator.core.commands import StageRuns
from coordinator.protocol.messages import PartitionOutcomes
from coordinator.protocol.values import AcknowledgeType, OutcomeRun
from tests.support.group_driver import AT_ONCE
from tests.support.running_service import held

EXPLICIT = {"share.acknowledgement.mode": "explicit"}


def begin(running, **configs):
    """m1 reads 0 to 9 in a batch; its plan's number."""
    running.join(starting_offsets="earliest", configs={**AT_ONCE, **configs})
    plan = running.next()
    assert held(plan) == {("orders", 0): [(0, 9)]}
    running.start(plan.plan_id)
    return plan.plan_id


def stage(running, *runs, topic_id="", **fields):
    """``topic_id``: the one that the topic orders has now, if none is named."""
    topic_id = topic_id or running.cluster.found["orders"].topic_id
    outcomes = (PartitionOutcomes(topic_id=topic_id, partition=0, runs=tuple(OutcomeRun(*run) for run in runs)),)
    return running.service.handle(
        StageRuns(group_id="billing", partitions=outcomes if runs else (), rows=len(runs), **fields)
    )


def states(running):
    """``first-last STATE count`` of the only partition, as a person sees it."""
    return [f"{run.first}-{run.last} {run.state} {run.delivery_count}" for run in running.runs()]


def reject(running, first, last, topic="orders"):
    """A query's sink rejects these records of the next batch, which then wait for their dead letters."""
    plan = running.next()
    running.start(plan.plan_id)
    run = (first, last, 1, AcknowledgeType.REJECT, None, False, "no such customer")
    stage(running, run, topic_id=running.cluster.found[topic].topic_id, query_id="q", batch_id=0)
    running.next(plan.plan_id)
