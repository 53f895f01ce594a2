"""KIP-932, groups: members and their epochs and sessions, where a group begins, what is durable, errors and configs.

As in ``test_kip932.py``: a test for each promise, its section and what it says in the docstring.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.config.resolved import GROUP_KEYS, GroupConfig
from coordinator.core.describe import describe_group
from coordinator.core.share_group import ShareGroup
from coordinator.protocol import errors
from coordinator.protocol.errors import FencedMemberEpoch, GroupIdNotFound, ShareGroupError, UnknownMemberId
from coordinator.protocol.messages import Heartbeat, Joined, JoinGroup
from coordinator.service.brokers.subscription import starting_offsets
from tests.kip932.consumers import ACCEPT, LOCK_MS, REJECT, RELEASE, SESSION_MS, ShareConsumers
from tests.support.fake_cluster import FakeCluster

HOUR_MS = 3_600_000


def state_of(group: ShareGroup) -> str:
    return describe_group(group).state


def process(member: str, name: str, epoch: int | None = None, **fields: object) -> JoinGroup:
    """A process joins, as a new one or naming the epoch that it had."""
    return JoinGroup(group_id="billing", member_id=member, process_id=name, member_epoch=epoch, query=False, **fields)


# --- membership


def test_a_group_is_dead_empty_or_stable() -> None:
    """KIP-932, Share group states: Dead is what does not exist, Empty what has no members, Stable what has some."""
    assert state_of(ShareGroup("nobody")) == "DEAD"
    group = ShareConsumers(members=0)
    assert state_of(group.group) == "EMPTY"
    group.join("c1", query=False)
    group.join("c2", query=False)
    assert state_of(group.group) == "STABLE"
    group.leave("c1")
    assert state_of(group.group) == "STABLE"
    group.leave("c2")
    assert state_of(group.group) == "EMPTY"


def test_a_group_whose_members_vanish_becomes_empty() -> None:
    """KIP-932, Share group states: members that went without a word leave as well, when their sessions are over."""
    group = ShareConsumers()
    group.pass_time(SESSION_MS + 1)
    assert state_of(group.group) == "EMPTY"


def test_an_empty_group_keeps_its_place() -> None:
    """KIP-932, Share group membership: the state of the partitions does not hang on members; who joins later goes on
    where the others stopped."""
    group = ShareConsumers(end=10)
    group.fetch("c1", 6)
    group.acknowledge(ACCEPT, 0, 2)
    group.acknowledge(ACCEPT, 4)
    for member in ("c1", "c2", "c3"):
        group.leave(member)
    group.pass_time(HOUR_MS)
    group.join("c4", query=False)
    assert group.fetch("c4") == [(3, 3, 2), (5, 5, 2), (6, 9, 1)]


def test_nobody_joins_a_group_that_does_not_exist() -> None:
    """KIP-932, Error codes: GROUP_ID_NOT_FOUND. (The service creates a group before its first member joins.)"""
    driver = ShareConsumers(members=0)
    driver.group = ShareGroup("billing")
    with pytest.raises(GroupIdNotFound):
        driver.run(process("c1", "p"))


def test_a_member_begins_with_epoch_1() -> None:
    """KIP-932, ShareGroupHeartbeat API: joining gives a member its epoch, which it names from then on."""
    assert ShareConsumers(members=1).epochs == {"c1": 1}


def test_asking_again_gives_the_same_epoch() -> None:
    """KIP-932, ShareGroupHeartbeat API: a join whose answer was lost can be asked for again by the same process."""
    group = ShareConsumers(members=1)
    assert group.join("c1", "c1-process-1", query=False) == 1


def test_a_new_process_of_a_member_fences_the_one_before() -> None:
    """KIP-932, Rebalance process: the epoch rises when the member joins anew, and an older one is fenced, for good.
    Ours says so for a member id that its checkpoint keeps over restarts; Kafka's ids live as long as a process."""
    group = ShareConsumers(members=1)
    assert group.join("c1", "second", query=False) == 2
    with pytest.raises(FencedMemberEpoch):
        group.run(Heartbeat(group_id="billing", member_id="c1", member_epoch=1))
    with pytest.raises(FencedMemberEpoch):
        group.run(process("c1", "c1-process-1"))
    with pytest.raises(FencedMemberEpoch):
        group.run(process("c1", "c1-process-1", epoch=1))


def test_an_epoch_outlives_session_and_coordinator() -> None:
    """KIP-932, Share group membership: the group's members are durable, so that an epoch is not given twice."""
    group = ShareConsumers(members=1)
    group.pass_time(SESSION_MS + 1)
    group.crash()
    assert group.join("c1", "second", query=False) == 2


def heartbeat(group: ShareConsumers) -> None:
    group.heartbeat("c1")


def fetch(group: ShareConsumers) -> None:
    group.fetch("c1")


def acknowledge(group: ShareConsumers) -> None:
    group.acknowledge(ACCEPT, 0)


def leave(group: ShareConsumers) -> None:
    group.leave("c1")


REQUESTS = [heartbeat, fetch, acknowledge, leave]
each_request = pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.__name__)
Request = Callable[[ShareConsumers], None]


@each_request
@pytest.mark.parametrize("epoch", [0, 2, 4])
def test_a_request_with_another_epoch_is_fenced(request_: Request, epoch: int) -> None:
    """KIP-932, ShareGroupHeartbeat API: FENCED_MEMBER_EPOCH for an epoch that is not the member's, older or newer. Ours
    asks for the epoch in every request, so that a fenced process can neither fetch nor acknowledge."""
    group = ShareConsumers(end=10)
    group.fetch("c1")
    group.join("c1", "second", query=False)
    assert group.join("c1", "third", query=False) == 3
    before = group.states()
    group.epochs["c1"] = epoch
    with pytest.raises(FencedMemberEpoch):
        request_(group)
    assert group.states() == before


@each_request
def test_a_request_of_nobody_is_refused(request_: Request) -> None:
    """KIP-932, ShareGroupHeartbeat API: UNKNOWN_MEMBER_ID for a member that the group does not have."""
    group = ShareConsumers(members=0)
    group.epochs["c1"] = 1
    with pytest.raises(UnknownMemberId):
        request_(group)


# --- sessions


def test_a_session_lasts_for_its_timeout_from_the_last_heartbeat_on() -> None:
    """KIP-932, Heartbeat and session: share.session.timeout.ms, 45 s by default, without a heartbeat end a session."""
    group = ShareConsumers(members=1)
    group.pass_time(SESSION_MS - 1)
    group.heartbeat("c1")
    group.pass_time(SESSION_MS)
    assert state_of(group.group) == "STABLE"
    group.pass_time(1)
    assert state_of(group.group) == "EMPTY"


def test_the_group_says_how_often_to_send_heartbeats() -> None:
    """KIP-932, ShareGroupHeartbeat API: join and heartbeat answer with the interval, and it can be altered while
    members are there."""
    group = ShareConsumers(members=1)
    beat = Heartbeat(group_id="billing", member_id="c1", member_epoch=1)
    assert isinstance(reply := group.run(beat), Joined)
    assert (reply.heartbeat_interval_ms, reply.session_timeout_ms) == (5_000, SESSION_MS)
    group.configure(share_heartbeat_interval_ms=9_000)
    assert group.run(beat).heartbeat_interval_ms == 9_000


def test_a_member_without_a_session_has_to_join_again() -> None:
    """KIP-932, Heartbeat and session: after its session a member is unknown, until it joins; ours keeps its epoch if
    it is the same process and nobody else came in its name."""
    group = ShareConsumers(members=1)
    group.pass_time(SESSION_MS + 1)
    for request in REQUESTS[:3]:
        with pytest.raises(UnknownMemberId):
            request(group)
    assert group.run(process("c1", "c1-process-1", epoch=1)).member_epoch == 1
    group.heartbeat("c1")


def test_records_of_a_lost_member_are_available_again() -> None:
    """KIP-932, Heartbeat and session: with its session a member loses its records, before their locks are over; the
    other members keep theirs."""
    group = ShareConsumers(end=20, share_record_lock_duration_ms=HOUR_MS)
    group.fetch("c1", 10)
    group.fetch("c2", 10)
    group.pass_time(SESSION_MS)
    group.heartbeat("c2")
    group.pass_time(1)
    assert group.states() == ["0-9 AVAILABLE 1", "10-19 ACQUIRED 1"]
    assert group.held() == ["10-19 c2"]


def test_leaving_releases_what_a_member_holds() -> None:
    """KIP-932, Share group membership: who leaves gives its records back at once, at the count that they have; the
    others keep theirs."""
    group = ShareConsumers(end=20)
    group.fetch("c1", 10)
    group.fetch("c2", 10)
    group.leave("c1")
    assert group.states() == ["0-9 AVAILABLE 1", "10-19 ACQUIRED 1"]
    assert group.fetch("c3") == [(0, 9, 2)]


# --- where a group begins


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
def test_a_new_group_begins_where_the_reset_strategy_says(reset: str, read_committed: bool, start: int) -> None:
    """KIP-932, Group configuration, share.auto.offset.reset (KIP-1106 for by_duration): at the log's end, which is the
    last stable offset under read_committed, at its first record, or at the first record that is not older."""
    cluster = FakeCluster()
    cluster.add("orders", start=20, end=100)
    cluster.stable["orders", 0] = 90
    now_ms = 100 * HOUR_MS
    cluster.timestamps["orders", 0] = {now_ms - 3 * HOUR_MS: 40, now_ms - HOUR_MS: 60}
    where = ("orders", 0)
    assert starting_offsets(cluster, reset, [where], now_ms, read_committed=read_committed) == {where: start}


def test_a_group_begins_at_the_end_if_nothing_is_said() -> None:
    """KIP-932, Group configuration: share.auto.offset.reset is latest by default."""
    assert GroupConfig.parse().share_auto_offset_reset == "latest"


@pytest.mark.parametrize("text", ["none", "by_duration", "by_duration:1h", "by_duration:-PT1H", ""])
def test_no_other_reset_strategy_is_taken(text: str) -> None:
    """KIP-932, Group configuration: anything else is INVALID_CONFIG when it is set, not when a member joins."""
    with pytest.raises(ShareGroupError) as refused:
        ShareConsumers().configure(share_auto_offset_reset=text)
    assert refused.value.kafka_error == "INVALID_CONFIG"


def test_a_start_offset_is_found_once() -> None:
    """KIP-932, Managing durable share-partition state: what the strategy came to is written before anything is
    acquired, and no later answer of the log moves it."""
    group = ShareConsumers(start=40)
    group.crash()
    group.initialize(70)
    assert group.window() == (40, 40)


# --- what is durable


def test_what_was_decided_outlives_the_coordinator() -> None:
    """KIP-932, Managing durable share-partition state: SPSO, the states of the records in the window and the delivery
    counts of those that failed are there again after another process has taken over."""
    group = ShareConsumers(end=20)
    group.fetch("c1", 10)
    group.acknowledge(ACCEPT, 0, 2)
    group.acknowledge(RELEASE, 4)
    group.acknowledge(REJECT, 5)
    group.acknowledge(ACCEPT, 6)
    group.wait(LOCK_MS + 1)
    before = ["3-4 AVAILABLE 1", "5 ARCHIVED 1", "6 ACKNOWLEDGED 1", "7-9 AVAILABLE 1"]
    assert group.states() == before
    group.crash()
    assert (group.window(), group.states()) == ((3, 10), before)


def test_an_acquisition_outlives_the_coordinator() -> None:
    """KIP-932, Managing durable share-partition state: ours differs. Kafka never writes that a record is Acquired: a
    new leader has it Available, at the count before. Ours writes acquisitions to records of its own, so that no count
    is given twice; the holder has one session timeout to go on, and may acknowledge what it was given before."""
    group = ShareConsumers(end=10)
    group.fetch("c1")
    group.crash()
    assert group.held() == ["0-9 c1"]
    assert group.acknowledge(ACCEPT, 0, 4) == "NONE"
    group.pass_time(SESSION_MS)
    assert group.held() == ["5-9 c1"]
    group.pass_time(1)
    group.join("c2", "later", query=False)
    assert group.fetch("c2") == [(5, 9, 2)]


def test_what_is_refused_writes_nothing() -> None:
    """KIP-932, Managing durable share-partition state: a request that fails changes neither memory nor what is
    durable."""
    group = ShareConsumers(end=10)
    group.fetch("c1")
    written, before = len(group.log), group.states()
    assert group.acknowledge(ACCEPT, 0, 9, member="c2") == "INVALID_RECORD_STATE"
    group.epochs["c1"] = 7
    for request in REQUESTS:
        with pytest.raises(FencedMemberEpoch):
            request(group)
    assert (len(group.log), group.states()) == (written, before)


# --- isolation level, errors, configs


def test_the_isolation_level_is_the_groups() -> None:
    """KIP-932, Reading transactional records: share.isolation.level belongs to the group, read_uncommitted by default,
    and each member is told which one holds."""
    group = ShareConsumers(members=0)
    assert group.run(process("c1", "p")).isolation_level == "read_uncommitted"
    group.configure(share_isolation_level="read_committed")
    assert group.run(process("c2", "p")).isolation_level == "read_committed"
    beat = Heartbeat(group_id="billing", member_id="c1", member_epoch=1)
    assert group.run(beat).isolation_level == "read_committed"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidRecordState, "INVALID_RECORD_STATE"),
        (errors.InvalidRequest, "INVALID_REQUEST"),
        (errors.UnknownMemberId, "UNKNOWN_MEMBER_ID"),
        (errors.FencedMemberEpoch, "FENCED_MEMBER_EPOCH"),
        (errors.GroupIdNotFound, "GROUP_ID_NOT_FOUND"),
        (errors.CoordinatorNotAvailable, "COORDINATOR_NOT_AVAILABLE"),
        (errors.UnknownTopic, "UNKNOWN_TOPIC_OR_PARTITION"),
        (errors.ConfigOutOfBounds, "INVALID_CONFIG"),
    ],
)
def test_errors_have_kafkas_codes(error: type[ShareGroupError], code: str) -> None:
    """KIP-932, Error codes: what goes wrong is named as Kafka names it."""
    assert error.kafka_error == code


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("share.auto.offset.reset", "latest"),
        ("share.heartbeat.interval.ms", 5_000),
        ("share.isolation.level", "read_uncommitted"),
        ("share.record.lock.duration.ms", 30_000),
        ("share.session.timeout.ms", 45_000),
    ],
)
def test_a_group_is_configured_by_kafkas_keys_and_defaults(key: str, default: object) -> None:
    """KIP-932, Group configuration: the keys that a group has of its own, and what holds when they are not set."""
    assert GROUP_KEYS[key].default == default
    assert getattr(GroupConfig.parse(), GROUP_KEYS[key].attribute) == default


def test_a_config_that_is_refused_changes_nothing() -> None:
    """KIP-932, Group configuration: a key that does not exist or a value that can't be is INVALID_CONFIG, and none of
    the others in the request is set."""
    group = ShareConsumers()
    for bad in ({"share_session_timeout_ms": "soon"}, {"share_record_lock_duration_ms": 1}, {"share_colour": "red"}):
        with pytest.raises(ShareGroupError) as refused:
            group.configure(share_isolation_level="read_committed", **bad)
        assert refused.value.kafka_error == "INVALID_CONFIG"
    assert group.group.configs == {}
