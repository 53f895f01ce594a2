"""The AsyncShareConsumer under cancellation; its coordinator and its brokers are stubs."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import ConcurrentModificationException, IllegalStateException

from sharegroup import AsyncShareConsumer, ShareConsumer, UsedAfterFork, WakeupException
from tests.support.share_members import CONFIG, Stubs

SECONDS = 60


def in_a_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @functools.wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


def stubbed() -> tuple[AsyncShareConsumer, Stubs]:
    consumer = AsyncShareConsumer(CONFIG)
    stubs = Stubs(consumer._consumer)
    return consumer, stubs


async def finished_in_the_worker(consumer: AsyncShareConsumer) -> asyncio.Task[object]:
    """A poll that the worker has finished, and whose answer the loop has not delivered."""
    task: asyncio.Task[object] = asyncio.ensure_future(consumer.poll())
    while consumer._cancelled is None:
        await asyncio.sleep(0)
    consumer._cancelled.exception(SECONDS)  # blocks the loop, which delivers nothing meanwhile
    return task


async def cancelled_with_an_answer() -> tuple[AsyncShareConsumer, Stubs]:
    """A consumer whose poll was cancelled after the worker had finished it."""
    consumer, stubs = stubbed()
    await consumer.subscribe(["orders"])
    stubs.answer(1)
    task = await finished_in_the_worker(consumer)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return consumer, stubs


@in_a_loop
async def test_a_cancelled_call_ends_no_later_call() -> None:
    consumer, stubs = stubbed()
    await consumer.subscribe(["orders"])
    poll = asyncio.ensure_future(consumer.poll())
    await asyncio.to_thread(stubs.asked.wait, SECONDS)
    commit = asyncio.ensure_future(consumer.commit_sync())
    await asyncio.sleep(0)
    commit.cancel()
    poll.cancel()
    await asyncio.gather(poll, commit, return_exceptions=True)
    assert await asyncio.wait_for(consumer.subscription(), SECONDS) == ["orders"]
    stubs.answer(0)
    await asyncio.wait_for(consumer.close(), SECONDS)


@in_a_loop
async def test_a_poll_of_a_second_task_is_refused_and_takes_nothing() -> None:
    consumer, stubs = stubbed()
    await consumer.subscribe(["orders"])
    first = asyncio.ensure_future(consumer.poll())
    await asyncio.to_thread(stubs.asked.wait, SECONDS)
    for second in (consumer.poll(), consumer.__anext__()):
        with pytest.raises(ConcurrentModificationException, match="Another task polls"):
            await second
    stubs.answer(1)
    assert [message.offset() for message in await first] == [0]
    await consumer.close()


@in_a_loop
async def test_records_of_a_cancelled_poll_are_not_accepted() -> None:
    consumer, stubs = await cancelled_with_an_answer()
    await consumer.commit_sync()
    assert stubs.outcomes() == []
    assert [message.offset() for message in await consumer.poll()] == [0]
    await consumer.commit_sync()
    assert stubs.outcomes() == [(0, "ACCEPT")]
    await consumer.close()


@in_a_loop
async def test_a_cancelled_late_answer_is_not_accepted() -> None:
    consumer, stubs = stubbed()
    await consumer.subscribe(["orders"])
    stubs.answer(1)
    for rounds in range(3):  # each is cancelled at another await
        task = await finished_in_the_worker(consumer)
        for _ in range(rounds):
            await asyncio.sleep(0)
        task.cancel()
        if not (await asyncio.gather(task, return_exceptions=True))[0]:
            break
        await consumer.commit_sync()
        assert task.cancelled() and stubs.outcomes() == []
    await consumer.close()


@in_a_loop
async def test_a_late_answer_that_fails_leaves_no_wakeup_behind() -> None:
    consumer, stubs = stubbed()
    await consumer.subscribe(["orders"])
    stubs.fail(LookupError("refused"))
    task = await finished_in_the_worker(consumer)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    with pytest.raises(LookupError):
        await consumer.poll()
    stubs.answer(1)
    assert [message.offset() for message in await consumer.poll()] == [0]
    await consumer.close()


@in_a_loop
async def test_after_close_each_method_raises_that_the_consumer_is_closed() -> None:
    consumer, stubs = stubbed()
    await consumer.subscribe(["orders"])
    stubs.answer(2)
    async for _ in consumer:
        break
    await consumer.close()
    for call in (consumer.poll, consumer.__anext__, consumer.subscription, consumer.commit_sync):
        with pytest.raises(IllegalStateException, match="Share consumer closed"):
            await asyncio.wait_for(call(), SECONDS)


@in_a_loop
async def test_a_wakeup_outlives_the_answer_to_a_cancelled_poll() -> None:
    consumer, stubs = await cancelled_with_an_answer()
    consumer.wakeup()
    assert len(await consumer.poll()) == 1
    with pytest.raises(WakeupException):
        await consumer.poll()
    stubs.answer(1)
    assert len(await consumer.poll()) == 1
    await consumer.close()


@in_a_loop
async def test_close_waits_for_a_close_that_was_cancelled() -> None:
    consumer, stubs = stubbed()
    await consumer.subscribe(["orders"])
    leaving = threading.Event()
    stubs.membership.when_leaving = lambda: leaving.wait(SECONDS)
    first = asyncio.ensure_future(consumer.close())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    second = asyncio.ensure_future(consumer.close())
    await asyncio.sleep(0)
    assert not second.done()
    leaving.set()
    await second
    assert stubs.membership.calls.count(("leave", ())) == 1


ARGUMENTS: dict[str, tuple[object, ...]] = {
    "subscribe": (["orders"],),
    "acknowledge": (confluent_kafka.Message(topic="orders", partition=0, offset=0),),
    "acknowledge_offset": ("orders", 0, 0),
    "mark_in_progress": (confluent_kafka.Message(topic="orders", partition=0, offset=0),),
    "set_acknowledgement_commit_callback": (None,),
    "set_sasl_credentials": ("user", "password"),
}
INSIDE = {"hand_out", "hold_back", "forget_wakeup"}
"""Methods of the ShareConsumer that the AsyncShareConsumer calls, after a check of its own."""


def methods(kind: type) -> list[str]:
    public = [name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")]
    dunder = ("__aenter__", "__aexit__", "__anext__") if kind is AsyncShareConsumer else ("__enter__", "__exit__")
    return sorted(set(public) - INSIDE) + [name for name in dunder if hasattr(kind, name)]


async def answer_of(asked: object) -> object:
    return await asked if inspect.isawaitable(asked) else asked


def raises_in_the_child(consumer: object, name: str) -> bool:
    """Whether the method raises UsedAfterFork in a forked child, which a call without an end would leave hanging."""
    pid = os.fork()
    if not pid:
        signal.alarm(SECONDS)
        try:
            asyncio.new_event_loop().run_until_complete(
                answer_of(getattr(consumer, name)(*ARGUMENTS.get(name, (None,) * 3 * name.endswith("exit__"))))
            )
        except UsedAfterFork:
            os._exit(7)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


@pytest.mark.parametrize("name", methods(AsyncShareConsumer))
def test_after_a_fork_each_coroutine_names_the_fork(name: str) -> None:
    consumer, _ = stubbed()
    asyncio.run(answer_of(consumer.subscribe(["orders"])))  # its thread runs: the child has none
    assert raises_in_the_child(consumer, name)


@pytest.mark.parametrize("name", methods(ShareConsumer))
def test_after_a_fork_each_method_names_the_fork(name: str) -> None:
    consumer = ShareConsumer(CONFIG)
    consumer.subscribe(["orders"])
    assert raises_in_the_child(consumer, name)
