"""Groups: how one is created, configured, where it begins, and what is durable (KIP-932, groups)."""

from __future__ import annotations

import pytest

from coordinator.config.group_bounds import GroupBounds
from coordinator.config.resolved import GroupConfig
from coordinator.core.commands import AlterConfigs, CreateGroup
from coordinator.core.decide import decide
from coordinator.core.log_records import PartitionInitialized, PlanAcquired
from coordinator.core.record_codec import decode_record
from coordinator.core.replay import replay
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.admin_messages import DeleteGroup
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.messages import Heartbeat, JoinGroup, NextPlan
from coordinator.service.brokers.partition_starts import Start
from coordinator.service.brokers.subscription import TopicIdPartition, starting_offsets
from coordinator.service.runtime import transactions
from tests.kip932.consumers import ShareConsumers
from tests.support.fake_cluster import FakeCluster
from tests.support.group_driver import TOPIC_ID, UNSET, GroupDriver
from tests.support.source_driver import facts, run_transaction

HOUR_MS = 3_600_000


def test_a_group_made_anew_keeps_to_the_coordinators_bounds() -> None:
    group = ShareGroup("billing", GroupBounds({"share.session.timeout.ms": (50_000, 60_000)}))
    made, again = (CreateGroup(incarnation=incarnation, topic_ids=True) for incarnation in "ij")
    for command in (made, DeleteGroup(group_id="billing", execute=True), again):
        for record in decide(group, command, 0).records:
            replay(group, record)
    assert (group.incarnation, group.config.share_session_timeout_ms) == ("j", 50_000)


def test_a_resolved_start_offset_is_appended_before_the_first_acquire() -> None:
    """Latest was 100; the process dies before anything is acquired; 20 records more, and they are not skipped."""
    group = GroupDriver(partitions=0)
    request = JoinGroup(group_id="billing", member_id="m1", process_id="p")
    where = TopicIdPartition("orders", TOPIC_ID, 0)
    joined = run_transaction(group, transactions.join(request, topic_ids=True, starts={where: Start(100, 100)}))
    group.crash()
    group.ends, group.log_starts = {0: 120}, {0: 7}
    group.run(request)
    asked = NextPlan(group_id="billing", member_id="m1", member_epoch=joined.member_epoch)
    assert [
        tuple(r) for r in run_transaction(group, transactions.next_plan(asked, facts(group))).plan.partitions[0].ranges
    ] == [(100, 119, 1)]


def test_a_later_partitions_start_is_appended_before_its_first_acquire() -> None:
    group = GroupDriver(records=0)
    group.join()
    group.ends, group.log_starts = {0: 0, 1: 50}, {0: 0, 1: 10}
    asked = NextPlan(group_id="billing", member_id="m1", member_epoch=1)
    run_transaction(group, transactions.next_plan(asked, facts(group)))
    appended = [decode_record(data) for data in group.log]
    starts = [n for n, r in enumerate(appended) if isinstance(r, PartitionInitialized) and r.partition == 1]
    acquires = [n for n, r in enumerate(appended) if isinstance(r, PlanAcquired)]
    assert starts and starts[0] < acquires[0]
    assert group.partition(1).start_offset == 10


@pytest.mark.parametrize(
    ("reset", "read_committed", "start"),
    [
        ("latest", False, 100),
        ("latest", True, 90),
        ("earliest", False, 20),
        ("by_duration:PT1H", False, 60),
        ("by_duration:PT10M", False, 100),
        ("by_duration:P1D", False, 40),
    ],
)
def test_a_new_group_begins_at_the_offset_of_the_reset_strategy(reset: str, read_committed: bool, start: int) -> None:
    """KIP-932, Group configuration, share.auto.offset.reset (KIP-1106 for by_duration): at the log's end, which is the
    last stable offset under read_committed, at its first record, or at the first record that is not older."""
    cluster = FakeCluster()
    cluster.add("orders", start=20, end=100)
    cluster.stable["orders", 0] = 90
    now_ms = 100 * HOUR_MS
    cluster.timestamps["orders", 0] = {now_ms - 3 * HOUR_MS: 40, now_ms - HOUR_MS: 60}
    where = ("orders", 0)
    assert starting_offsets(cluster, reset, [where], now_ms, read_committed=read_committed) == {where: start}


@pytest.mark.parametrize("text", ["none", "by_duration", "by_duration:1h", "by_duration:-PT1H"])
def test_no_other_reset_strategy_is_taken(text: str) -> None:
    """KIP-932, Group configuration: anything else is INVALID_CONFIG when it is set, not when a member joins."""
    with pytest.raises(ShareGroupError) as refused:
        ShareConsumers().configure(share_auto_offset_reset=text)
    assert refused.value.kafka_error == "INVALID_CONFIG"


def test_an_empty_text_unsets_a_config() -> None:
    group = GroupDriver(**{**UNSET, "share.delivery.count.limit": "3", "errors.deadletterqueue.topic.name": "dlq"})
    group.run(AlterConfigs(configs={"share.delivery.count.limit": "", "errors.deadletterqueue.topic.name": " "}))
    assert group.group.configs == {}
    assert group.group.config == GroupConfig.parse()
    assert group.recovered().configs == {}


def process(member: str, name: str, epoch: int | None = None, **fields: object) -> JoinGroup:
    """A process joins, as a new one or naming the epoch that it had."""
    return JoinGroup(group_id="billing", member_id=member, process_id=name, member_epoch=epoch, query=False, **fields)


def test_the_isolation_level_is_the_groups() -> None:
    """KIP-932, Reading transactional records: share.isolation.level belongs to the group, read_uncommitted by default,
    and each member is told which one holds."""
    group = ShareConsumers(members=0)
    assert group.run(process("c1", "p")).isolation_level == "read_uncommitted"
    group.configure(share_isolation_level="read_committed")
    assert group.run(process("c2", "p")).isolation_level == "read_committed"
    beat = Heartbeat(group_id="billing", member_id="c1", member_epoch=1)
    assert group.run(beat).isolation_level == "read_committed"


def test_a_refused_config_changes_nothing() -> None:
    """KIP-932, Group configuration: a key that does not exist or a value that can't be is INVALID_CONFIG, and none of
    the others in the request is set."""
    group = ShareConsumers()
    for bad in ({"share_session_timeout_ms": "soon"}, {"share_record_lock_duration_ms": 1}, {"share_colour": "red"}):
        with pytest.raises(ShareGroupError) as refused:
            group.configure(share_isolation_level="read_committed", **bad)
        assert refused.value.kafka_error == "INVALID_CONFIG"
    assert group.group.configs == {}
