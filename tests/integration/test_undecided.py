"""Undecided records are read from a real log, in parts; a slow broker fails no query."""

import time

import pyarrow as pa
import pytest

from coordinator.client.client import CoordinatorClient
from coordinator.client.session import MemberSession
from coordinator.core.looks.view import LogRange
from coordinator.protocol.messages import NextPlan, StageOutcomes, StartPlan
from coordinator.protocol.outcome_rows import SCHEMA
from coordinator.protocol.values import OffsetRange
from coordinator.service.brokers.cluster import KafkaCluster
from coordinator.service.questions.plan_gaps import UndecidedLook, UndecidedLooks

pytestmark = pytest.mark.broker

ASKED = ("group", "m1", "i.1")


def gaps(look: UndecidedLook) -> list[tuple[int, int]]:
    return [(gap.first, gap.last) for gap in look.gaps]


@pytest.mark.slow
def test_a_log_is_read_by_parts_that_go_on_from_each_other(kafka, topic):
    name = topic()
    for _ in range(3):
        kafka.produce_transaction(name, [b"x"] * 4)  # and a marker, at 4, 9 and 14
    looks = UndecidedLooks(KafkaCluster(kafka.bootstrap, {}, 15_000), call_s=0.0)
    ranges = tuple(LogRange(name, OffsetRange("id", 0, *ends)) for ends in ((0, 9), (11, 14)))
    reached = []
    while not reached or reached[-1] < 14:
        look = looks.go_on(ASKED, ranges, read_committed=False)
        reached.append(look.read)
    assert reached == sorted(set(reached)) and len(reached) > 1, "each part goes on from the one before"
    assert gaps(look) == [(4, 4), (9, 9), (14, 14)]
    assert gaps(looks.go_on(ASKED, ranges, read_committed=False)) == gaps(look), "and is not read again"


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
