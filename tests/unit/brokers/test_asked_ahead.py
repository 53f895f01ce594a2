"""The questions to the brokers that a plan's start would ask, asked while Spark logs the plan."""

from concurrent.futures import Executor, Future, ThreadPoolExecutor
from threading import Event
from types import SimpleNamespace

import pytest

from coordinator.protocol.errors import BrokerNotReachable
from coordinator.protocol.messages import PartitionPlan, Plan
from coordinator.protocol.values import AcquiredRange
from coordinator.service.brokers import asked_ahead
from coordinator.service.brokers.asked_ahead import AFTER_REPLY_S, ANSWERS_MS, AfterReplies, AskedAhead, StartFacts
from tests.support.waiting import wait_until

HELD = frozenset({("orders", "id-1", 0)})
PLAN = Plan(
    plan_id="i.1",
    partitions=(PartitionPlan(topic="orders", topic_id="id-1", partition=0, ranges=(AcquiredRange(0, 9, 1),)),),
)


@pytest.fixture
def threads():
    with ThreadPoolExecutor(1) as pool:
        yield pool


class AtOnce(Executor):
    """Threads that have answered when a question was asked."""

    def submit(self, function, /, *arguments, **options):
        done = Future()
        try:
            done.set_result(function(*arguments, **options))
        except BrokerNotReachable as error:
            done.set_exception(error)
        return done


class Clock:
    """A clock that a test moves."""

    def __init__(self):
        self.ms = 0

    def now_ms(self):
        return self.ms


def facts(*gone):
    return StartFacts({("orders", 0): 0}, frozenset(gone))


# --- in the service


def acquired(running):
    """A plan whose question is answered."""
    running.join(starting_offsets="earliest")
    plan = running.next()
    (asked,) = running.service._asked_ahead._asked.values()
    asked.answer.result(30)
    return plan


def test_the_start_of_a_plan_waits_for_no_broker(running, cluster, monkeypatch):
    monkeypatch.setattr(asked_ahead, "ANSWERS_MS", 3_600_000)
    plan = acquired(running)
    cluster.answers.clear()  # a question would wait from here on
    started = running.start(plan.plan_id, acquired_here=True, logged=plan.partitions)
    cluster.answers.set()
    assert started.plan.partitions == plan.partitions


def test_a_replay_asks_the_brokers_again(running, cluster):
    plan = acquired(running)
    cluster.move("orders", end=10, start=4)
    running.join(process="a later one")
    reply = running.start(plan.plan_id, logged=plan.partitions)
    assert [(lost.first, lost.last) for lost in reply.data_loss] == [(0, 3)]


def test_the_same_start_again_asks_the_brokers_again(running, cluster):
    plan = acquired(running)
    running.start(plan.plan_id, acquired_here=True, logged=plan.partitions)
    cluster.unreachable = True
    with pytest.raises(BrokerNotReachable):
        running.start(plan.plan_id, acquired_here=True, logged=plan.partitions)


# --- by itself


def test_an_answer_serves_once():
    asked = AskedAhead(Clock().now_ms)
    asked.ask("g", PLAN, AtOnce(), facts)
    assert asked.take("g", "i.1", HELD) == facts()
    assert asked.take("g", "i.1", HELD) is None


@pytest.mark.parametrize(
    ("gone", "later_ms", "more"),
    [
        pytest.param((), ANSWERS_MS + 1, set(), id="after a second"),
        pytest.param((), 0, {("orders", "id-1", 1)}, id="for a partition that was not asked for"),
        pytest.param(("id-1",), 0, set(), id="of a topic that the broker may not know yet"),
    ],
)
def test_an_answer_does_not_serve(gone, later_ms, more):
    clock = Clock()
    asked = AskedAhead(clock.now_ms)
    asked.ask("g", PLAN, AtOnce(), lambda: facts(*gone))
    clock.ms += later_ms
    assert asked.take("g", "i.1", HELD | more) is None


def test_a_question_that_waits_for_a_thread_is_not_waited_for(threads):
    """Where a broker hangs, all threads wait for it."""
    goes_on = Event()
    busy = threads.submit(goes_on.wait)
    wait_until(busy.running, what="the thread waits")
    asked = AskedAhead(Clock().now_ms)
    asked.ask("g", PLAN, threads, facts)
    taken = asked.take("g", "i.1", HELD)
    goes_on.set()
    assert taken is None


def test_a_question_that_failed_raises_its_named_error_once():
    def refused():
        raise BrokerNotReachable(addresses="fake:9092", timeout_ms=1, reason="_TRANSPORT")

    asked = AskedAhead(Clock().now_ms)
    asked.ask("g", PLAN, AtOnce(), refused)
    with pytest.raises(BrokerNotReachable):
        asked.take("g", "i.1", HELD)
    assert asked.take("g", "i.1", HELD) is None


def test_few_answers_are_kept(monkeypatch):
    monkeypatch.setattr("coordinator.service.brokers.asked_ahead.MOST_KEPT", 2)
    asked = AskedAhead(Clock().now_ms)
    for group_id in ("a", "b", "c"):
        asked.ask(group_id, PLAN, AtOnce(), facts)
    assert asked.take("a", "i.1", HELD) is None
    assert asked.take("c", "i.1", HELD) == facts()


def test_a_question_lets_the_plans_reply_go_first(monkeypatch):
    pauses = []
    monkeypatch.setattr(asked_ahead, "time", SimpleNamespace(sleep=pauses.append))
    with AfterReplies(1) as threads:
        assert threads.submit(lambda: list(pauses)).result(30) == [AFTER_REPLY_S]
