"""A program with a ShareConsumer, for tests that kill it: it prints each record that it got, and each that it has
accepted. ``python -m tests.support.consumer_program JSON``: the constructor's configuration, the topic, ``asyncio``:
with an AsyncShareConsumer, ``hold``: accept nothing from the record at this number on, and ``together``: up to this
number, accept a poll's records by one commit. A line on standard input has it close its consumer; with ``works``, it
signals progress of each record until there is a line, and then accepts the record."""

from __future__ import annotations

import asyncio
import inspect
import json
import select
import sys
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaException, Message

from sharegroup import AsyncShareConsumer, ShareConsumer

SIGNAL_S = 0.2
"""The program sends a signal every 0.2 seconds."""


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


async def accept(consumer: Any, messages: list[Message]) -> None:
    """Accepts the records by one commit, and prints of each whether it was."""
    for message in messages:
        await answer(consumer.acknowledge(message))
    errors = {at.partition: error for at, error in (await answer(consumer.commit_sync())).items()}
    for message in messages:
        print(f"{'accepted' if errors[message.partition()] is None else 'refused'} {shown(message)}", flush=True)


def shown(message: Message) -> str:
    return f"{message.partition()} {message.offset()} {message.delivery_count()}"


async def main(arguments: dict[str, Any]) -> None:
    """Polls and accepts records until it is closed by a line of standard input, or killed."""
    make = AsyncShareConsumer if arguments.get("asyncio") else ShareConsumer
    consumer: Any = make({**arguments["config"], "share.acknowledgement.mode": "explicit"})
    await answer(consumer.subscribe([str(arguments["topic"])]))
    print("ready", flush=True)
    hold, together, count = arguments.get("hold", sys.maxsize), arguments.get("together", 0), 0
    while count <= hold and not is_told():
        messages = await answer(consumer.poll(1.0))
        for message in messages:
            print(f"got {shown(message)}", flush=True)
        due = messages[: hold - count]
        count += len(messages)
        for at_once in [due] if due and count <= together else [[each] for each in due]:
            if arguments.get("works"):
                await work(consumer, at_once[0])
            await accept(consumer, at_once)
        if count > hold:
            print(f"holds {shown(messages[len(due)])}", flush=True)
            sys.stdin.readline()
    await answer(consumer.close())


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
