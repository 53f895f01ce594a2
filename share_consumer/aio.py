"""The AsyncShareConsumer: a ShareConsumer for asyncio, with the same names. Its methods do not block the event loop.

Rule: a cancelled poll, or a loop that ends early, loses no record. The next poll returns what the program did not get,
and no commit accepts such a record before."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from datetime import datetime
from typing import Any, TypeVar

from confluent_kafka import ConcurrentModificationException, IllegalStateException, Message, Messages

from coordinator.protocol.values import AcknowledgeType
from share_consumer.acknowledgements import AcknowledgementCallback, Committed
from share_consumer.consumer import ShareConsumer
from share_consumer.errors import WakeupException
from share_consumer.message import AnyMessage
from share_consumer.worker import Worker

Answer = TypeVar("Answer")


class AsyncShareConsumer:
    """A ShareConsumer whose methods are coroutines, for one task at a time. Each method does what ShareConsumer's
    method of that name does. ``async for message in consumer`` polls and returns the records one by one. A call waits
    for the call before it, but a second task that polls gets ConcurrentModificationException; :meth:`close` ends a
    poll that waits. In a process forked from the one that made the
    consumer, every method raises UsedAfterFork: the fork has no thread that answers."""

    def __init__(self, config: dict[str, Any] | None = None, /, **more: Any) -> None:
        self._consumer = ShareConsumer(config, **more)
        self._worker = Worker("share-asyncio")
        self._cancelled: Future[Messages] | None = None
        self._unread: deque[Message] = deque()
        self._polls = False
        self._closing: Future[None] | None = None
        self._woken = False
        weakref.finalize(self, self._worker.close).atexit = False

    def __repr__(self) -> str:
        return f"<AsyncShareConsumer {self._consumer!r}>"

    async def __aenter__(self) -> AsyncShareConsumer:
        self._check_open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncShareConsumer:
        return self

    async def __anext__(self) -> Message:
        self._check_open()
        while not self._unread:
            self._unread.extend(await self._held_back(-1))
        message = self._unread.popleft()
        self._consumer.hand_out()
        return message

    async def poll(self, timeout: float = -1) -> Messages:
        """The same as :meth:`ShareConsumer.poll`. After an ``async for`` loop that ended early, it returns the records
        that the loop did not hand out."""
        self._check_open()
        if self._unread:
            messages = Messages._from_list(list(self._unread))
            self._unread.clear()
        else:
            messages = await self._held_back(timeout)
        self._consumer.hand_out(len(messages))  # no await from here on: what is handed out is returned
        return messages

    async def _held_back(self, timeout: float) -> Messages:
        """Poll. A commit accepts none of these records before all of them are handed out. Raises
        ConcurrentModificationException while another task polls: both would get the same records."""
        if self._polls:
            raise ConcurrentModificationException("Another task polls this AsyncShareConsumer: make one for each task.")
        self._polls = True
        try:
            if self._cancelled is not None and (messages := await self._late_answer(self._cancelled)):
                return messages
            return await self._answer(self._worker.submit(lambda: self._poll(timeout)))
        except WakeupException:
            self._woken = False
            raise
        finally:
            self._polls = False

    def _poll(self, timeout: float) -> Messages:
        messages = self._consumer.poll(timeout)
        self._consumer.hold_back()
        return messages

    async def _answer(self, polling: Future[Messages]) -> Messages:
        self._cancelled = polling
        answer = asyncio.wrap_future(polling)
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # a later poll fetches it
        try:
            messages = await asyncio.shield(answer)
        except asyncio.CancelledError:
            self._consumer.wakeup()
            raise
        except BaseException:
            self._cancelled = None
            raise
        self._cancelled = None
        return messages

    async def _late_answer(self, polling: Future[Messages]) -> Messages:
        """Returns the answer to a cancelled poll; empty if the cancellation reached it before any records did."""
        try:
            messages = await self._answer(polling)
        except asyncio.CancelledError:
            raise  # its wakeup is for the poll that may still run
        except WakeupException:
            messages = Messages()
        except BaseException:
            self._forget_wakeup()
            raise
        self._forget_wakeup()  # the answer came first
        return messages

    def _forget_wakeup(self) -> None:
        """Clear the wakeup that a cancellation caused, but not one that the program asked for."""
        self._consumer.forget_wakeup()
        if self._woken:
            self._consumer.wakeup()

    async def subscribe(self, topics: list[str]) -> None:
        await self._call(lambda: self._consumer.subscribe(topics))

    async def unsubscribe(self) -> None:
        await self._call(self._consumer.unsubscribe)

    async def subscription(self) -> list[str]:
        return await self._call(self._consumer.subscription)

    async def acknowledge(
        self,
        message: AnyMessage,
        ack_type: int = AcknowledgeType.ACCEPT,
        *,
        reason: str | None = None,
        delay_ms: int | None = None,
        release_at: datetime | None = None,
    ) -> None:
        note: dict[str, Any] = {"reason": reason, "delay_ms": delay_ms, "release_at": release_at}
        await self._call(lambda: self._consumer.acknowledge(message, ack_type, **note))

    async def mark_in_progress(self, message: AnyMessage, hint: str | None = None) -> None:
        await self._call(lambda: self._consumer.mark_in_progress(message, hint))

    async def acknowledge_offset(
        self,
        topic: str,
        partition: int,
        offset: int,
        ack_type: int = AcknowledgeType.ACCEPT,
        *,
        reason: str | None = None,
        delay_ms: int | None = None,
        release_at: datetime | None = None,
    ) -> None:
        at = topic, partition, offset
        note: dict[str, Any] = {"reason": reason, "delay_ms": delay_ms, "release_at": release_at}
        await self._call(lambda: self._consumer.acknowledge_offset(*at, ack_type, **note))

    async def commit_sync(self, timeout: float = 60) -> Committed:
        return await self._call(lambda: self._consumer.commit_sync(timeout))

    async def commit_async(self) -> None:
        await self._call(self._consumer.commit_async)

    async def set_acknowledgement_commit_callback(self, callback: AcknowledgementCallback | None) -> None:
        """The callback is called in the event loop."""
        self._check_open()
        loop = asyncio.get_running_loop()

        def in_loop(*arguments: Any) -> None:
            assert callback is not None
            loop.call_soon_threadsafe(callback, *arguments)

        chosen = in_loop if callable(callback) else callback
        await self._call(lambda: self._consumer.set_acknowledgement_commit_callback(chosen))

    async def acquisition_lock_timeout_ms(self) -> int | None:
        return await self._call(self._consumer.acquisition_lock_timeout_ms)

    async def metrics(self) -> dict[str, float]:
        return self._consumer.metrics()

    async def set_sasl_credentials(self, username: str, password: str) -> None:
        self._consumer.set_sasl_credentials(username, password)

    def wakeup(self) -> None:
        self._consumer.check_process()
        self._woken = True
        self._consumer.wakeup()

    async def close(self) -> None:
        """A poll that waits ends with WakeupException."""
        self._consumer.check_process()
        if self._closing is None:
            self._unread.clear()
            self._consumer.wakeup()
            self._closing = self._worker.submit(self._consumer.close)
            self._worker.close()
        await asyncio.shield(asyncio.wrap_future(self._closing))  # each time: the call before may have been cancelled

    async def _call(self, function: Callable[[], Answer]) -> Answer:
        self._check_open()
        answer: Answer = await asyncio.wrap_future(self._worker.submit(function))
        return answer

    def _check_open(self) -> None:
        self._consumer.check_process()
        if self._closing is not None:
            raise IllegalStateException("Share consumer closed")
