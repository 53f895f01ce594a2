"""The programs of docs/ without Spark run as they are printed; what they print is the test's to see."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from share_source.offset_options import parse_starting_offsets
from sharegroup import Admin, ShareConsumer, offsets_from_file
from sharegroup.__main__ import run
from tests.support.kafka_broker import KafkaBroker
from tests.support.readme import printed, printed_command, with_names
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.broker]


class Enough(Exception):
    """Ends a program that goes on for ever."""


class World:
    """A topic with records and a group, which has begun, in the place of those that the programs name."""

    def __init__(self, kafka: KafkaBroker, topic: str, group: str, values: Sequence[str] = ("a", "b", "c")) -> None:
        self.kafka, self.topic, self.group = kafka, topic, group
        self.config = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "share.auto.offset.reset": "earliest"}
        with ShareConsumer(self.config) as consumer, Admin({"bootstrap.servers": kafka.bootstrap}) as admin:
            consumer.subscribe([topic])
            while not admin.describe_groups([group])[group].partitions:
                consumer.poll(0.1)
        kafka.produce(topic, list(values))

    def run(self, program: str, **names: object) -> dict[str, Any]:
        """The names of the program after its end."""
        ours = {"localhost:9092": self.kafka.bootstrap, "orders": self.topic, "billing": self.group}
        exec(compile(with_names(program, ours), "docs", "exec"), names)
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


def test_the_program_in_explicit_mode_releases_and_rejects(kafka, topic, unique):
    world = World(kafka, topic("orders"), unique("group"), ['{"amount": 1}', "broken", '{"amount": 2}'])
    amounts = []

    def service(amount):
        amounts.append(amount)
        if len(amounts) == 1:
            raise ConnectionError
        if len(amounts) == 3:
            raise Enough

    with pytest.raises(Enough):
        world.run(printed("docs/do/share-consumer.md", "Explicit mode"), print=service)
    assert amounts == [1, 2, 1], "the released record comes again, the rejected one does not"


@pytest.mark.parametrize("section", ["Records in progress", "asyncio"])
def test_a_program_works_on_each_record(world, section):
    values = []

    def work(value):
        values.append(value)
        if len(values) == 3:
            raise Enough

    with pytest.raises(Enough):
        world.run(printed("docs/do/share-consumer.md", section), print=work)
    assert values == [b"a", b"b", b"c"]


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


GROUPS_PAGE = "docs/learn/coming-from/consumer-groups.md"
GROUPS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def commits(kafka: KafkaBroker, group: str, offsets: dict[tuple[str, int], int]) -> bool:
    """Whether a consumer commits the offsets: not while the broker creates its topic of offsets."""
    old = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    try:
        old.commit(offsets=[TopicPartition(*at, offset) for at, offset in offsets.items()], asynchronous=False)
    except KafkaException:
        return False
    finally:
        old.close()
    return True


def test_a_share_group_begins_where_the_consumer_group_of_its_name_stood(kafka, topic, unique, tmp_path):
    orders, group, file = topic("orders", partitions=2), unique("group"), str(tmp_path / "offsets.csv")
    for partition in (0, 1):
        kafka.produce(orders, ["a", "b", "c"], partition=partition)
    wait_until(lambda: commits(kafka, group, {(orders, 0): 1, (orders, 1): 2}), what="the broker takes the offsets")
    names = {"localhost:9092": kafka.bootstrap, "billing": group, "offsets.csv": file}
    exporting, _, _ = printed_command(GROUPS_PAGE, "kafka-consumer-groups.sh", names).partition(" > ")
    exported = kafka.run_tool(GROUPS_TOOL, *shlex.split(exporting)[1:])
    (tmp_path / "offsets.csv").write_text(exported)
    offsets = offsets_from_file(file)
    assert offsets == {orders: {0: 1, 1: 2}}
    assert parse_starting_offsets(json.dumps(offsets), (orders,), None) == json.dumps(
        {orders: {"0": 1, "1": 2}}, separators=(",", ":")
    )
    World(kafka, orders, group, values=()).run(printed(GROUPS_PAGE, "Where the old group stands"))
    assert run(shlex.split(printed_command(GROUPS_PAGE, "sharegroup groups", names))[1:]) == 0
    with Admin({"bootstrap.servers": kafka.bootstrap}) as admin:
        found = {each.partition: each.start_offset for each in admin.list_offsets(group).partitions}
    assert found == {0: 1, 1: 2}
