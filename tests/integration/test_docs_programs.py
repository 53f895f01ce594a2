"""The programs of docs/ without Spark run as they are printed; the functions that they call are the test's."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from share_source import AcknowledgeType, ShareConsumer
from tests.support.imports import ROOT
from tests.support.kafka_broker import KafkaBroker
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.broker]


class Enough(Exception):
    """Ends a program that goes on for ever."""


class Unreachable(Exception):
    """The service is away."""


def printed(page: str, heading: str, number: int = 0) -> str:
    """A program of a page, below the heading."""
    section = re.split(rf"^#+ {re.escape(heading)}$", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE)[1]
    return re.findall(r"^```python\n(.*?)^```", re.split(r"^#+ ", section, flags=re.MULTILINE)[0], re.DOTALL | re.M)[
        number
    ]


class World:
    """A topic and a group, which has begun, in the place of those that the programs name."""

    def __init__(self, kafka: KafkaBroker, topic: str, group: str) -> None:
        self.kafka, self.topic, self.group = kafka, topic, group
        self.config = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "share.auto.offset.reset": "earliest"}
        with ShareConsumer(self.config) as consumer:
            consumer.subscribe([topic])
            consumer.poll(0.1)
        kafka.produce(topic, ["a", "b", "c"])

    def run(self, program: str, **names: object) -> dict[str, Any]:
        """The names of the program after its end."""
        for written, ours in (
            ("localhost:9092", self.kafka.bootstrap),
            ("orders", self.topic),
            ("billing", self.group),
        ):
            program = program.replace(f'"{written}"', f'"{ours}"')
        exec(compile(program, "docs", "exec"), names)
        return names


@pytest.fixture
def world(kafka: KafkaBroker, topic: Callable[..., str], unique: Callable[[str], str]) -> World:
    return World(kafka, topic("orders"), unique("group"))


def test_the_first_share_consumer_prints_each_record(world):
    said = []

    def tell(value, count):
        said.append((value, count))
        if len(said) == 3:
            raise Enough

    with pytest.raises(Enough):
        world.run(printed("docs/do/share-consumer.md", "The first program"), print=tell)
    assert said == [(b"a", 1), (b"b", 1), (b"c", 1)]


def test_the_program_in_explicit_mode_releases_and_rejects(world):
    charged = []

    def charge(value):
        charged.append(value)
        if len(charged) == 4:
            raise Enough
        if value == b"a":
            raise Unreachable
        if value == b"b":
            raise ValueError

    with pytest.raises(Enough):
        world.run(printed("docs/do/share-consumer.md", "Explicit mode"), charge=charge, Unreachable=Unreachable)
    assert charged == [b"a", b"b", b"c", b"a"], "the released record comes again, the rejected one does not"


@pytest.mark.parametrize("heading", ["Long work", "Records in progress"])
def test_the_loops_of_long_work_finish_each_record(world, heading):
    done = []
    names = {
        "AcknowledgeType": AcknowledgeType,
        "steps": lambda message: [lambda: done.append(message.value())],
        "split": lambda value: [value],
        "scan": done.append,
    }
    with ShareConsumer({**world.config, "share.acknowledgement.mode": "explicit"}) as consumer:
        consumer.subscribe([world.topic])

        def finished():
            world.run(printed("docs/do/share-consumer.md", heading), consumer=consumer, **names)
            return set(done) == {b"a", b"b", b"c"}

        wait_until(finished, what="the loop has had each record")
        consumer.commit_sync()


def test_the_asynchronous_program_handles_each_record(world):
    handled = []

    async def handle(message):
        handled.append(message.value())
        if len(handled) == 3:
            raise Enough

    with pytest.raises(Enough):
        world.run(printed("docs/do/share-consumer.md", "asyncio"), handle=handle)
    assert handled == [b"a", b"b", b"c"]


def test_the_program_of_looks_and_actions_resets_the_group(world):
    program = printed("docs/run/watching.md", "Looking at groups, and acting on them").replace("1207", "0")
    with ShareConsumer(world.config) as consumer:
        consumer.subscribe([world.topic])
        wait_until(lambda: consumer.poll(1.0), what="records come")
        consumer.commit_sync()
    assert "admin" in world.run(program)


def test_the_redrives_of_the_page_run_on_an_empty_topic(world, topic):
    program = printed("docs/do/dead-letters.md", "Redrive")
    for written in ("dlq.billing", "orders.retry"):
        program = program.replace(f'"{written}"', f'"{topic(written)}"')
    assert world.run(program)["report"].sent == 0
