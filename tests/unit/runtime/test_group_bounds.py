"""A coordinator's bounds of what its groups set: sessions, heartbeats, assignments (KIP-932, KIP-1263)."""

from typing import Any

import pytest

from coordinator.config.resolved import GroupConfig, ServerConfig
from coordinator.core.log_records import ConfigsAltered, GroupCreated
from coordinator.core.replay import replay
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.admin_messages import AlterGroupConfigs
from coordinator.protocol.errors import ConfigConflict, ConfigOutOfBounds
from coordinator.protocol.messages import JoinGroup, OpenSink
from coordinator.service.runtime.group_limits import GroupLimits

SHORT = {"share.session.timeout.ms": "44999"}
BOUNDS = {"group.share.min.session.timeout.ms": "45000", "group.share.max.session.timeout.ms": "60000"}


@pytest.mark.parametrize(
    "request_",
    [
        JoinGroup(group_id="billing", member_id="m1", process_id="p", configs=SHORT),
        OpenSink(group_id="billing", configs=SHORT),
        AlterGroupConfigs(group_id="billing", set=SHORT),
    ],
    ids=lambda request: type(request).__name__,
)
def test_a_config_out_of_the_coordinators_bounds_is_refused_when_set(request_: Any) -> None:
    GroupLimits(ServerConfig.parse()).check_configs(request_)
    with pytest.raises(ConfigOutOfBounds, match=r"between 45000 and 60000 \(group\.share\.min\.session"):
        GroupLimits(ServerConfig.parse(BOUNDS)).check_configs(request_)


def test_a_session_that_returns_sets_nothing_and_is_not_refused() -> None:
    limits = GroupLimits(ServerConfig.parse(BOUNDS))
    limits.check_configs(JoinGroup(group_id="billing", member_id="m1", process_id="p", configs=SHORT, member_epoch=1))
    within = {"share.session.timeout.ms": "45000", "share.heartbeat.interval.ms": ""}
    limits.check_configs(JoinGroup(group_id="billing", member_id="m1", process_id="p", configs=within))


def test_a_stored_value_out_of_newer_bounds_counts_as_the_nearest() -> None:
    """The value stays stored: under the earlier bounds it holds again."""
    loaded = {}
    for name, bounds in (("wide", {}), ("narrow", BOUNDS)):
        group = ShareGroup("billing", ServerConfig.parse(bounds).group_bounds)
        replay(group, GroupCreated(incarnation="i", topic_ids=True))
        replay(group, ConfigsAltered(configs=SHORT))
        loaded[name] = (group.config.share_session_timeout_ms, group.configs["share.session.timeout.ms"])
    assert loaded == {"wide": (44_999, "44999"), "narrow": (45_000, "44999")}


def test_clamped_values_leave_room_for_a_heartbeat() -> None:
    bounds = {"group.share.max.session.timeout.ms": "6000", "group.share.min.heartbeat.interval.ms": "900"}
    stored = {"share.session.timeout.ms": "60000", "share.heartbeat.interval.ms": "20000"}
    config = GroupConfig.parse(stored, ServerConfig.parse(bounds).group_bounds)
    assert (config.share_session_timeout_ms, config.share_heartbeat_interval_ms) == (6_000, 2_000)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ({"group.share.min.session.timeout.ms": "50000"}, {"group.share.max.session.timeout.ms": "49999"}),
        ({"group.share.min.heartbeat.interval.ms": "5001"}, {"group.share.max.heartbeat.interval.ms": "5000"}),
        ({"group.share.min.assignment.interval.ms": "2"}, {"group.share.max.assignment.interval.ms": "1"}),
        ({"group.share.min.heartbeat.interval.ms": "5000"}, {"group.share.min.session.timeout.ms": "5000"}),
    ],
)
def test_bounds_that_contradict_each_other_stop_a_coordinator_by_name(
    low: dict[str, str], high: dict[str, str]
) -> None:
    with pytest.raises(ConfigConflict) as refused:
        ServerConfig.parse({**low, **high})
    assert all(key in str(refused.value) for key in (*low, *high))
