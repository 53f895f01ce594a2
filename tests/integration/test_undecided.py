"""Undecided records are read from a real log, in parts; a slow broker fails no query."""

import time

import pyarrow as pa
import pytest

from coordinator.client.client import CoordinatorClient
from coordinator.client.session import MemberSession
from coordinator.protocol.messages import NextPlan, StageOutcomes, StartPlan
from coordinator.protocol.outcome_rows import SCHEMA

pytestmark = pytest.mark.broker


@pytest.mark.soak
def test_a_batch_whose_undecided_records_outlast_a_call_is_completed(kafka, topic, unique, tmp_path):
    """80 MB that a quota of 1 MB/s gives out: each answer comes in time, and the last one completes the batch."""
    name, group = topic(), unique("group")
    for _ in range(8):
        kafka.produce(name, [b"x" * 1_000] * 10_000)
    client = CoordinatorClient.connect(kafka.bootstrap, state_store=f"sqlite:{tmp_path / 'state.db'}")
    session = MemberSession(
        client,
        group,
        "m1",
        topics=(name,),
        configs={"share.acknowledgement.mode": "explicit"},
        starting_offsets="earliest",
    )
    plan = session.call(lambda who: NextPlan(**who, max_records=None)).plan
    session.call(lambda who: StartPlan(**who, plan_id=plan.plan_id))
    topic_id = plan.partitions[0].topic_id
    rows = pa.table([[topic_id], [0], [0], [0], [1], [1], [None], [False], [None]], schema=SCHEMA)
    client.call_with_rows(StageOutcomes(group_id=group, query_id="q", batch_id=0, rows=1), rows)
    slow = ("--bootstrap-server", kafka.bootstrap, "--alter", "--entity-type", "clients", "--entity-name", "sharegroup")
    kafka.run_tool("kafka.admin.ConfigCommand", *slow, "--add-config", "consumer_byte_rate=1000000")
    try:
        began_s, left = time.monotonic(), []
        while (reply := session.call(lambda who: NextPlan(**who, start=plan.plan_id, max_records=None))).undecided_left:
            left.append(reply.undecided_left)
        assert left == sorted(set(left), reverse=True), "each call made progress"
        assert len(left) > 2 and time.monotonic() - began_s > 20, "or nothing was slow"
    finally:
        kafka.run_tool("kafka.admin.ConfigCommand", *slow, "--delete-config", "consumer_byte_rate")
    assert [(r.first, r.last, r.delivery_count) for r in reply.plan.partitions[0].ranges] == [(1, 79_999, 2)]
    session.close(leave=True)
    client.close()
