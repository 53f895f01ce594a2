"""◆ A coordinator on demand leaves when it is idle, and not while a record is held, delayed or waits."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator.core.log_records import RunsChanged, SessionEnded
from coordinator.core.record_state import RecordState
from coordinator.core.replay import replay
from coordinator.core.runs import Run
from coordinator.service import on_demand
from coordinator.service.brokers.topic_doubts import TopicDoubts
from coordinator.service.dead_letters.dispatcher import DeadLetterDispatcher
from tests.support.fake_cluster import FakeCluster
from tests.support.group_driver import SESSION_MS, TOPIC_ID, GroupDriver, started_plan
from tests.support.quarantine import quarantined_record
from tests.support.sink_driver import DLQ, REJECT, batch, said


class Looks:
    """Stands for the order to end: it is given after a number of looks."""

    def __init__(self, group: GroupDriver, most: int) -> None:
        self.group = group
        self.left = most

    def wait(self, timeout_s: float) -> bool:
        self.left -= 1
        return self.left < 0


def dispatcher_of(group: GroupDriver) -> DeadLetterDispatcher:
    """The dead letter dispatcher, told of the group; nobody works in it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", lambda self: None)
        runtime: Any = SimpleNamespace(has_dead_letters_due=lambda group_id: group.partition().archiving_count > 0)
        dispatcher = DeadLetterDispatcher(runtime, FakeCluster(), {}, TopicDoubts(60.0))
        dispatcher.notify(["billing"])
        return dispatcher


def why_it_left(
    group: GroupDriver,
    *,
    away_s: float = 0.0,
    unloaded: bool = False,
    looks: int = 50,
    outage_ms: int = 300_000,
    in_doubt: bool = False,
) -> str:
    """The reason for which an on-demand coordinator without requests leaves: idle, if it may leave by itself.
    ``away_s``: for how long its brokers have been away. ``unloaded``: another group can't be loaded. ``in_doubt``: a
    topic may be deleted."""
    coordinator: Any = SimpleNamespace()
    coordinator.config = SimpleNamespace(
        share_coordinator_idle_timeout_ms=1_000, share_broker_outage_timeout_ms=outage_ms
    )
    coordinator.cluster = SimpleNamespace(away_s=away_s)
    coordinator.runtime = SimpleNamespace(
        may_rest=lambda *, loaded=False: (loaded or not unloaded) and group.group.may_rest(group.now_ms)
    )
    coordinator.dispatcher = dispatcher_of(group)
    coordinator.service = SimpleNamespace(lost_logs=SimpleNamespace(in_doubt=in_doubt))
    coordinator.requests = SimpleNamespace(idle_s=1e9)
    told: Any = Looks(group, looks)
    return on_demand.wait_until_idle(coordinator, told)


def test_a_coordinator_leaves_when_idle_but_not_while_a_member_is_there() -> None:
    group, plan = started_plan()
    group.complete(plan)
    assert why_it_left(group) == "it was told to"
    group.pass_time(SESSION_MS + 1)
    assert why_it_left(group) == "it was idle"


def test_a_coordinator_stays_while_a_topic_may_be_deleted() -> None:
    """Else each of several short-lived coordinators would doubt, and none would count the loss."""
    assert why_it_left(GroupDriver(), in_doubt=True) == "it was told to"
    assert why_it_left(GroupDriver()) == "it was idle"


def test_a_coordinator_stays_while_a_record_is_acquired() -> None:
    group, _ = started_plan()
    replay(group.group, SessionEnded(member_id="m1"))
    assert group.dump() == ["[0..99] ACQUIRED 1 0 1"]
    assert why_it_left(group) == "it was told to"


def test_a_coordinator_leaves_without_calls_and_brokers() -> None:
    group, _ = started_plan()
    assert why_it_left(group, away_s=300) == "it was told to"
    assert why_it_left(group, away_s=302) == "nobody has called, and no broker answered, for 301 s"


def test_a_coordinator_leaves_without_calls_when_its_groups_cannot_be_loaded() -> None:
    group, plan = started_plan()
    assert why_it_left(group, unloaded=True, outage_ms=1_000) == "it was told to", "another group is held"
    group.complete(plan)
    group.pass_time(SESSION_MS + 1)
    reason = "nobody has called, and its groups could not be loaded, for 2 s"
    assert why_it_left(group, unloaded=True, outage_ms=1_000) == reason
    assert why_it_left(group, unloaded=True, outage_ms=1_000, looks=15) == "it was told to"


def test_a_coordinator_stays_while_a_dead_letter_waits() -> None:
    group, plan = batch(1, **DLQ)
    group.stage(said(0, 0, REJECT))
    group.complete(plan)
    group.pass_time(SESSION_MS + 1)
    assert why_it_left(group) == "it was told to"
    group.file(0, 0)
    assert why_it_left(group) == "it was idle"


def test_a_coordinator_leaves_when_dead_letters_need_a_person() -> None:
    group, plan = batch(1, **DLQ)
    group.stage(said(0, 0, REJECT))
    group.complete(plan)
    dispatcher = dispatcher_of(group)
    assert not dispatcher.may_rest()
    dispatcher._slots["billing"].is_blocked = True
    assert dispatcher.may_rest()


def test_a_coordinator_stays_while_a_record_is_delayed() -> None:
    group = GroupDriver(records=10)
    later = Run(RecordState.AVAILABLE, 1, releases=1, not_before_ms=group.now_ms + 60_000)
    replay(group.group, RunsChanged(topic_id=TOPIC_ID, partition=0, runs=((0, 4, later),)))
    assert why_it_left(group) == "it was told to"
    group.pass_time(60_000)
    assert why_it_left(group) == "it was idle"


def test_a_coordinator_stays_while_a_quarantined_record_backs_off() -> None:
    group, plan = quarantined_record()
    group.start(group.next(plan).plan.plan_id)
    group.pass_time(SESSION_MS + 1)
    assert why_it_left(group) == "it was told to"
    group.pass_time(31_000)
    assert why_it_left(group) == "it was idle"
