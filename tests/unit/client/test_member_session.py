"""The heartbeats of a member's session: an idle ShareConsumer sends none, so that others get its partitions."""

import logging
import threading

import pytest

from coordinator.client.endings import tell_ending
from coordinator.client.session import MemberSession
from coordinator.protocol.errors import (
    BrokerRefused,
    CoordinatorNotAvailable,
    InvalidRequest,
    UnknownMemberId,
    UnknownTopic,
)
from coordinator.protocol.messages import (
    AcquiredReply,
    AcquireRecords,
    Done,
    Heartbeat,
    Joined,
    LeaveGroup,
    MarkInProgress,
)
from coordinator.protocol.values import MOST_ENDING_TEXT
from coordinator.protocol.wire import decode_request, encode
from tests.support.waiting import wait_until

IDLE_AFTER_S = 300.0


class Coordinator:
    """Answers a member at once, and keeps the types of its requests. ``lapses``: as many questions for records find no
    session, and the member comes back under another epoch."""

    def __init__(self):
        self.asked = []
        self.lapses, self.epoch = 0, 1

    def call(self, request, **_):
        self.asked.append(type(request))
        if isinstance(request, AcquireRecords):
            if self.lapses:
                self.lapses, self.epoch = self.lapses - 1, self.epoch + 1
                raise UnknownMemberId(member_id=request.member_id, group_id=request.group_id)
            return AcquiredReply(plan_id="i.1", lock_timeout_ms=600_000)
        if isinstance(request, LeaveGroup):
            return Done()
        return Joined(member_epoch=self.epoch, incarnation="i", session_timeout_ms=45_000, heartbeat_interval_ms=1)

    @property
    def heartbeats(self):
        return self.asked.count(Heartbeat)


class CountedWaits(threading.Event):
    """An event that counts the waits that began."""

    waits = 0

    def wait(self, timeout=None):
        self.waits += 1
        return super().wait(timeout)


@pytest.fixture
def coordinator():
    return Coordinator()


@pytest.fixture
def session(coordinator):
    made = MemberSession(coordinator, "billing", "m1", query=False, topics=("orders",), idle_after_s=IDLE_AFTER_S)
    wait_until(lambda: coordinator.heartbeats, what="the member sends heartbeats")
    made._closed = CountedWaits()
    yield made
    made.close()


def test_a_refused_join_is_told_also_if_the_coordinator_is_away():
    class Refuses(Coordinator):
        def call(self, request, **_):
            raise UnknownTopic(topic="orders", addresses="a:1")

        def ask_connected(self, request, answer_timeout_s, group_id):
            self.asked.append(request)
            raise CoordinatorNotAvailable(group_id=group_id, reason="it is away")

    coordinator = Refuses()
    with pytest.raises(UnknownTopic):
        MemberSession(coordinator, "billing", "m1", topics=("orders",))
    (said,) = coordinator.asked
    assert (said.error, said.group_id, said.member_id, said.member_epoch) == ("UnknownTopic", "billing", "m1", None)
    assert said.process_id, "the join may be durable"


def test_a_long_sentence_keeps_its_way_out(coordinator):
    coordinator.ask_connected = lambda request, *_: coordinator.asked.append(request)
    tell_ending(coordinator, "billing", InvalidRequest(what=f"\x1b{'x' * 5_000} Do this."), member_id="m1")
    tell_ending(coordinator, "billing", BrokerRefused(addresses="a" * 900, what="b" * 900, reason="c" * 900))
    for said in coordinator.asked:
        assert decode_request(type(said).__name__, encode(said)) == said
        assert len(said.text) <= MOST_ENDING_TEXT and said.text.isprintable()
    assert coordinator.asked[0].text.endswith("Do this.") and coordinator.asked[1].text.endswith("ccc")


def test_an_idle_member_sends_no_heartbeat_until_its_next_request(session, coordinator, caplog):
    with caplog.at_level(logging.WARNING):
        session._asked_s -= IDLE_AFTER_S
        said = "has asked for nothing for 3"  # 300 s, and as many as the test has run
        wait_until(lambda: said in caplog.text, what="the member is idle")
        before, waited = coordinator.heartbeats, session._closed.waits
        wait_until(lambda: session._closed.waits > waited + 3, what="more heartbeats were due")
        assert coordinator.heartbeats == before
        assert caplog.text.count("has asked for nothing") == 1
    session.call(lambda who: AcquireRecords(**who, max_records=1))
    wait_until(lambda: coordinator.heartbeats > before, what="the member sends heartbeats again")


def test_a_member_without_a_subscription_leaves_when_its_locks_have_ended(coordinator):
    session = MemberSession(
        coordinator, "billing", "m1", query=False, idle_after_s=0.0, lock_s=600.0, leaves_when_idle=True
    )
    wait_until(lambda: coordinator.heartbeats > 3, what="the member stays while its locks last")
    assert LeaveGroup not in coordinator.asked
    session._asked_s -= 601
    wait_until(lambda: LeaveGroup in coordinator.asked, what="the member leaves")
    assert not session.close(leave=True), "it left once"


def test_a_signal_keeps_its_member_for_as_long_as_its_record(session, coordinator):
    session.call(lambda who: MarkInProgress(**who, partitions=()))
    assert session.lock_s == 90


def test_a_member_is_not_idle_while_its_locks_last(session, coordinator):
    session.call(lambda who: AcquireRecords(**who, max_records=1))
    session._asked_s -= IDLE_AFTER_S + 60
    before = coordinator.heartbeats
    wait_until(lambda: coordinator.heartbeats > before + 1, what="the member sends heartbeats")
    session._asked_s -= IDLE_AFTER_S
    wait_until(lambda: session._idle_s > 0, what="the lock and the interval are over")


def test_a_request_is_built_again_after_a_rejoin_with_the_later_epoch(session, coordinator):
    epochs = []

    def question(who):
        epochs.append(who["member_epoch"])
        return AcquireRecords(**who, max_records=1)

    coordinator.lapses = 2
    assert session.call(question).plan_id == "i.1"
    assert epochs == [1, 2, 3]
