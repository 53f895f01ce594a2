"""A program with a ShareConsumer, for tests that kill it: it prints each record that it got, and each that it has
accepted. ``python -m tests.support.consumer_program JSON``: the constructor's configuration, the topic, ``asyncio``:
with an AsyncShareConsumer, and ``hold``: accept nothing from the record at this number on. A line on standard input
has it close its consumer; with ``works``, it signals progress of each record until there is a line, and then accepts
the record."""

from __future__ import annotations

import asyncio
import inspect
import json
import select
import sys
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaException, Message

from share_source import AsyncShareConsumer, ShareConsumer

SIGNAL_S = 0.2
"""Seconds between two signals."""


async def answer(asked: Any) -> Any:
    """The answer of either consumer."""
    return await asked if inspect.isawaitable(asked) else asked


def is_told(within_s: float = 0.0) -> bool:
    """Whether there is a line on standard input, or its end."""
    return bool(select.select([sys.stdin], [], [], within_s)[0])


async def work(consumer: Any, message: Message) -> None:
    """Signals progress until there is a line to read. A signal that is refused ends no work."""
    while not is_told(SIGNAL_S):
        with suppress(KafkaException):
            await answer(consumer.mark_in_progress(message, "working"))
        await answer(consumer.commit_async())
    sys.stdin.readline()


async def accept(consumer: Any, message: Message) -> None:
    """Accepts the record, and prints whether it was."""
    await answer(consumer.acknowledge(message))
    (error,) = (await answer(consumer.commit_sync())).values()
    print(f"{'accepted' if error is None else 'refused'} {shown(message)}", flush=True)


def shown(message: Message) -> str:
    return f"{message.partition()} {message.offset()} {message.delivery_count()}"


async def main(arguments: dict[str, Any]) -> None:
    """Polls, and accepts record by record, until it is told to close, or killed."""
    make = AsyncShareConsumer if arguments.get("asyncio") else ShareConsumer
    consumer: Any = make({**arguments["config"], "share.acknowledgement.mode": "explicit"})
    await answer(consumer.subscribe([str(arguments["topic"])]))
    print("ready", flush=True)
    left = arguments.get("hold", sys.maxsize)
    while left >= 0 and not is_told():
        messages = await answer(consumer.poll(1.0))
        for message in messages:
            print(f"got {shown(message)}", flush=True)
        for message in messages:
            left -= 1
            if left < 0:
                print(f"holds {shown(message)}", flush=True)
                sys.stdin.readline()
                break
            if arguments.get("works"):
                await work(consumer, message)
            await accept(consumer, message)
    await answer(consumer.close())


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
