"""The programs of docs/ without Spark run as they are printed; what they print is the test's to see."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any

import confluent_kafka
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


def exported(page: str, names: dict[str, str], capsys: pytest.CaptureFixture[str]) -> str:
    """What the page's export prints on standard output."""
    capsys.readouterr()
    command, _, _ = printed_command(page, "sharegroup export", names).partition(" > ")
    assert run(shlex.split(command)[1:]) == 0
    return capsys.readouterr().out


def test_a_share_group_begins_where_the_consumer_group_stood(kafka, topic, unique, tmp_path, capsys):
    orders, group, file = topic("orders", partitions=2), unique("group"), tmp_path / "offsets.csv"
    for partition in (0, 1):
        kafka.produce(orders, ["a", "b", "c"], partition=partition)
    wait_until(lambda: commits(kafka, group, {(orders, 0): 1, (orders, 1): 2}), what="the broker takes the offsets")
    names = {"localhost:9092": kafka.bootstrap, "billing": group, "offsets.csv": str(file)}
    assert run(shlex.split(printed_command(GROUPS_PAGE, "sharegroup import", names))[1:]) == 0
    file.write_text(exported(GROUPS_PAGE, names, capsys))
    assert offsets_from_file(str(file)) == {orders: {0: 1, 1: 2}}
    commits(kafka, group, {(orders, 0): 0, (orders, 1): 0})
    back = printed_command(GROUPS_PAGE, "kafka-consumer-groups.sh", names)
    told = kafka.run_tool(GROUPS_TOOL, *shlex.split(back)[1:])
    assert sorted(re.findall(rf"{orders} +(\d) +(\d)", told)) == [("0", "1"), ("1", "2")]


def test_a_share_group_begins_where_a_native_one_stood(kafka, topic, unique):
    orders, group = topic("orders"), unique("group")
    kafka.produce(orders, ["a", "b", "c"])
    kafka.configure_group(group, share_auto_offset_reset="earliest")
    config = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "log_level": 0}
    native = confluent_kafka.ShareConsumer({**config, "share.acknowledgement.mode": "explicit"})
    native.subscribe([orders])
    for message in wait_until(lambda: list(native.poll(1.0)), what="the native group gets records"):
        native.acknowledge(message)
    native.commit_sync(60)
    native.close()
    names = {"localhost:9092": kafka.bootstrap, "billing": group}
    command = printed_command("docs/learn/coming-from/native-share-groups.md", "sharegroup import", names)
    assert run(shlex.split(command)[1:]) == 0
    with Admin({"bootstrap.servers": kafka.bootstrap}) as admin:
        assert admin.list_offsets(group).partitions[0].start_offset == 3


def test_a_share_group_begins_where_a_checkpoint_stood(kafka, topic, unique, tmp_path, capsys):
    page, orders, group = "docs/learn/coming-from/spark-kafka-source.md", topic("orders"), unique("group")
    kafka.produce(orders, ["a", "b", "c"])
    for log, text in (("offsets", f'v1\n{{"conf":{{}}}}\n{{"{orders}":{{"0":2}}}}'), ("commits", "v1\n{}")):
        (tmp_path / log).mkdir()
        (tmp_path / log / "0").write_text(text)
    names = {"/checkpoints/billing": str(tmp_path), "localhost:9092": kafka.bootstrap, "billing": group}
    assert run(shlex.split(printed_command(page, "sharegroup import", names))[1:]) == 0
    offsets = exported(page, names, capsys)
    assert parse_starting_offsets(offsets, (orders,), None) == json.dumps({orders: {"0": 2}}, separators=(",", ":"))


def test_a_group_moves_between_stores(kafka, topic, unique, tmp_path):
    orders, group, file = topic("orders"), unique("group"), tmp_path / "state.db"
    kafka.produce(orders, ["a", "b", "c"])
    config = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "share.auto.offset.reset": "earliest"}
    with ShareConsumer({**config, "share.state.store": f"sqlite:{file}"}) as consumer:
        consumer.subscribe([orders])
        wait_until(lambda: consumer.poll(1.0), what="records come")
        consumer.commit_sync()
    names = {"/var/lib/sharegroup/state.db": str(file), "localhost:9092": kafka.bootstrap, "billing": group}
    command = printed_command("docs/run/state-topic.md", "sharegroup import", names)
    assert run([*shlex.split(command)[1:], "--wait"]) == 0
    with Admin({"bootstrap.servers": kafka.bootstrap}) as admin:
        assert admin.list_offsets(group).partitions[0].start_offset == 3
