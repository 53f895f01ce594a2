"""The dispatcher's order of work: which group's worker runs when, and when a coordinator may leave. Fakes take the
place of the workers."""

import threading
from types import SimpleNamespace

import pytest

from coordinator.service.dead_letters import dispatcher as dispatcher_module
from coordinator.service.dead_letters.dispatcher import (
    FIRST_BACKOFF_S,
    JITTER,
    LONGEST_BACKOFF_S,
    DeadLetterDispatcher,
    backoff_s,
)
from coordinator.service.dead_letters.group_worker import PassResult
from tests.support.waiting import wait_until


class Work:
    """Stands where workers do: each pass of a group waits for the test, which says what it left."""

    def __init__(self):
        self.answers = {}
        self.passes = {}
        self.closed = []
        self.changed = threading.Condition()

    def worker(self, group_id, *_, **__):
        worker = SimpleNamespace(group_id=group_id, attempts=0)
        worker.work = lambda: self._work(worker)
        worker.close = lambda: self.closed.append(group_id)
        return worker

    def _work(self, worker):
        with self.changed:
            self.passes[worker.group_id] = self.passes.get(worker.group_id, 0) + 1
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: self.answers.get(worker.group_id), 120)
            left = self.answers[worker.group_id].pop(0)
        if isinstance(left, Exception):
            raise left
        worker.attempts = worker.attempts + 1 if left in (PassResult.BLOCKED, PassResult.WAITING) else 0
        return left

    def answer(self, group_id, *left):
        with self.changed:
            self.answers.setdefault(group_id, []).extend(left)
            self.changed.notify_all()

    def wait_passes(self, group_id, count):
        wait_until(lambda: self.passes.get(group_id, 0) >= count, what=f"{group_id} is worked at {count} times")


@pytest.fixture
def work(monkeypatch):
    standing_in = Work()
    monkeypatch.setattr(dispatcher_module, "GroupWorker", standing_in.worker)
    return standing_in


@pytest.fixture
def having():
    """Groups whose records wait for their dead letters."""
    return {"a", "b", "c", "d", "e"}


@pytest.fixture
def dispatcher(work, having):
    opened = DeadLetterDispatcher(SimpleNamespace(has_dead_letters_due=having.__contains__), None, {}, None)
    yield opened
    opened._closed = True
    for group_id in having:
        work.answer(group_id, *[PassResult.DONE] * 10)
    opened.close()


def test_a_group_without_dead_letters_gets_no_worker_and_no_thread(dispatcher):
    dispatcher.notify({"x", "y"})
    assert dispatcher.may_rest()
    assert not dispatcher._threads


def test_a_coordinator_stays_until_the_dead_letters_are_written(dispatcher, work):
    dispatcher.notify({"a"})
    work.wait_passes("a", 1)
    assert not dispatcher.may_rest()
    work.answer("a", PassResult.DONE)
    wait_until(dispatcher.may_rest, what="nothing waits")
    assert work.closed == ["a"]


def test_the_dispatcher_stays_for_retriable_dead_letters_not_for_permanent_failures(dispatcher, work):
    dispatcher.notify({"a", "b"})
    work.answer("a", PassResult.BLOCKED)
    work.answer("b", PassResult.WAITING)
    wait_until(lambda: dispatcher._slots["a"].is_blocked, what="a is blocked")
    assert not dispatcher.may_rest()
    work.answer("b", PassResult.BLOCKED)
    wait_until(dispatcher.may_rest, what="both are blocked")


def test_a_group_reported_during_its_pass_gets_another_pass(dispatcher, work):
    dispatcher.notify({"a"})
    work.wait_passes("a", 1)
    dispatcher.notify({"a"})
    work.answer("a", PassResult.DONE)
    work.wait_passes("a", 2)
    assert not dispatcher.may_rest()
    work.answer("a", PassResult.DONE)
    wait_until(dispatcher.may_rest)


def test_a_group_that_went_elsewhere_is_dropped(dispatcher, work):
    dispatcher.notify({"a"})
    work.answer("a", PassResult.GROUP_GONE)
    wait_until(dispatcher.may_rest)
    assert work.passes == {"a": 1}


def test_groups_that_wait_hold_up_no_other(dispatcher, work):
    waiting = {"a", "b", "c", "d"}
    dispatcher.notify(waiting)
    for group_id in waiting:
        work.answer(group_id, *[PassResult.WAITING] * 100)  # a busy machine may be slower than the backoff
        work.wait_passes(group_id, 1)
    dispatcher.notify({"e"})
    work.wait_passes("e", 1)


def test_a_group_whose_pass_raises_is_tried_again(dispatcher, work):
    dispatcher.notify({"a"})
    work.answer("a", ValueError("ours"), PassResult.DONE)
    wait_until(dispatcher.may_rest, what="it was tried again")
    assert work.passes == {"a": 2}


@pytest.mark.parametrize(("attempts", "about_s"), [(1, 1), (2, 2), (3, 4), (5, 16), (6, 30), (1_000, 30)])
def test_the_backoff_grows_from_a_second_to_half_a_minute(attempts, about_s):
    assert (FIRST_BACKOFF_S, LONGEST_BACKOFF_S) == (1, 30)
    for _ in range(20):
        assert about_s * (1 - JITTER) <= backoff_s(attempts) <= about_s * (1 + JITTER)
