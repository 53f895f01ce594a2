"""A coordinator's bounds of what its groups set, and its defaults (KIP-932, KIP-1240, KIP-1263)."""

from typing import Any

import pytest

from coordinator.config.resolved import GroupConfig, ServerConfig, in_force
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


LIMITS = {
    "share.record.lock.duration.ms": ("15000", "14999", "60001"),
    "share.delivery.count.limit": ("3", "2", "11"),
    "share.partition.max.record.locks": ("2000", "199", "4001"),
}
OF_LIMITS = {
    **{f"group.{key}": default for key, (default, _, _) in LIMITS.items()},
    "group.share.min.record.lock.duration.ms": "15000",
    "group.share.max.record.lock.duration.ms": "60000",
    "group.share.min.delivery.count.limit": "3",
    "group.share.min.partition.max.record.locks": "200",
    "group.share.max.partition.max.record.locks": "4000",
}


@pytest.mark.parametrize("key", LIMITS)
def test_lock_time_tries_and_locks_have_bounds_and_a_default(key: str) -> None:
    bounds = ServerConfig.parse(OF_LIMITS).group_bounds
    default, below, above = LIMITS[key]
    attribute = key.replace(".", "_")
    assert getattr(GroupConfig.parse({}, bounds), attribute) == int(default)
    for text, nearest in ((below, int(below) + 1), (above, int(above) - 1)):
        with pytest.raises(ConfigOutOfBounds, match=f"group.share.min.{key[6:]} and group.share.max.{key[6:]}"):
            bounds.check({key: text})
        assert getattr(GroupConfig.parse({key: text}, bounds), attribute) == nearest
        assert in_force({key: text}, bounds)[key] == str(nearest)
    within = str(int(default) + 1)
    assert getattr(GroupConfig.parse({key: within}, bounds), attribute) == int(within) and not bounds.check({key: ""})
    assert key not in in_force({key: within}, bounds) and in_force({}, bounds)[key] == default


def test_without_keys_of_the_coordinator_the_tables_hold() -> None:
    bounds = ServerConfig.parse().group_bounds
    texts = {"share.delivery.count.limit": "10", "share.session.timeout.ms": "6000"}
    assert GroupConfig.parse(texts, bounds) == GroupConfig.parse(texts)
    assert in_force(texts, bounds) == in_force(texts, None) == {}
    with pytest.raises(ConfigOutOfBounds, match=r"group\.share\.max\.delivery\.count\.limit"):
        bounds.check({"share.delivery.count.limit": "11"})


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
        ({"group.share.min.record.lock.duration.ms": "5001"}, {"group.share.max.record.lock.duration.ms": "5000"}),
        ({"group.share.delivery.count.limit": "4"}, {"group.share.min.delivery.count.limit": "5"}),
        ({"group.share.partition.max.record.locks": "101"}, {"group.share.max.partition.max.record.locks": "100"}),
    ],
)
def test_bounds_that_contradict_each_other_stop_a_coordinator_by_name(
    low: dict[str, str], high: dict[str, str]
) -> None:
    with pytest.raises(ConfigConflict) as refused:
        ServerConfig.parse({**low, **high})
    assert all(key in str(refused.value) for key in (*low, *high))
