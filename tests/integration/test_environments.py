"""The programs that the docs print, in the environments that people have: behind a proxy, after a fork, beside modules
named as Python's own or as ours, without docstrings, with few files, as a user without a home.

Rule: each program of the docs runs in each environment, or has a reason here. A program comes to its end, and is as
silent as the environment has it, or is refused with the way out.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.environments import ENVIRONMENTS, Environment, Place
from tests.support.kafka_broker import KafkaBroker
from tests.support.readme import END, PYTEST, Program, printed, programs, until_idle, with_names

KIT = "docs/do/test-your-query.md"
SPARK = "Spark"
WITHOUT = {
    "docs/do/cookbook.md": "it writes into a table of Delta Lake or PostgreSQL: tests/spark/test_tables.py runs it",
    f"{KIT}: Set up": "it is part of each test of its page",
    "docs/learn/order.md: Order": "it is a part of a program",
    "docs/learn/order.md: In parallel within a query": "it is a part of a program",
}
"""The programs and pages that no environment runs, and the reason."""
NOT_THERE = {
    ("queue.py", KIT): "whether pytest has imported Python's queue before depends on its plugins",
}
"""An environment, and a page, or SPARK for all programs with it -> the reason."""
MORE_TOPICS = ("orders.retry", "dlq.billing", "dlq.payments")
RECORDS = 3
HEAD = f"""
import builtins, sys

def print(*words, said=[]):
    builtins.print(*words, flush=True)
    said.append(words)
    if len(said) == {RECORDS}:
        sys.exit()

"""
"""Comes before a program: a program that goes on for ever ends when it has printed a line for each record."""
JOIN = f"""
from confluent_kafka import Producer
from sharegroup import ShareConsumer

with ShareConsumer({{"bootstrap.servers": BOOT, "group.id": GROUP, "share.auto.offset.reset": "earliest"}}) as first:
    first.subscribe([TOPIC])
    first.poll(0.1)
producer = Producer({{"bootstrap.servers": BOOT}})
for _ in range({RECORDS}):
    producer.produce(TOPIC, VALUE)
assert producer.flush(60) == 0
"""
"""Begins the group, and then produces."""
DONE = """
from sharegroup import Admin

with Admin({"bootstrap.servers": BOOT}) as admin:
    print("done", sum(each.start_offset for each in admin.list_offsets(GROUP).partitions))
"""
"""Says after a query how many records the group is done with."""
FORKS = """
import multiprocessing
from sharegroup import Admin, ShareConsumer, UsedAfterFork

config = {"bootstrap.servers": BOOT, "group.id": GROUP, "share.auto.offset.reset": "earliest"}

def refused(call):
    try:
        call()
    except UsedAfterFork as error:
        return "before the fork" in str(error)

def child():
    calls = [
        lambda: ShareConsumer(config),
        lambda: admin.describe_groups([GROUP]),
        lambda: Admin({"bootstrap.servers": BOOT}).describe_groups([GROUP]),
    ]
    print(list(map(refused, calls)), flush=True)

def read(config):
    with ShareConsumer(config) as consumer:
        consumer.subscribe([TOPIC])
        while not consumer.poll(1.0):
            pass
        yield

def run(target):
    worker = multiprocessing.get_context("fork").Process(target=target)
    worker.start()
    worker.join()

with Admin({"bootstrap.servers": BOOT}) as admin:
    for _ in read(config):
        admin.describe_groups([GROUP])
        run(child)
run(lambda: print("read", len(list(read({**config, "group.id": GROUP + "-child"})))))
"""
"""Its first child is forked while connections are open, its second one after they were closed."""


def reason(program: Program, environment: str) -> str:
    """Why the program can't run there; empty: it can."""
    kinds = (program.page, str(program), *([SPARK] if is_of_spark(program) else []))
    return next((why for kind in kinds if (why := WITHOUT.get(kind) or NOT_THERE.get((environment, kind)))), "")


def is_of_spark(program: Program) -> bool:
    return "pyspark" in program.text or "spark," in program.text


PAIRS = [
    pytest.param(program, name, marks=[pytest.mark.spark] if is_of_spark(program) else [], id=f"{name}: {program}")
    for name in ENVIRONMENTS
    for program in programs()
    if not reason(program, name)
]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Callable[[str], Place]]:
    """Makes the folder of a program, whose coordinators end with the test."""
    made: list[Place] = []

    def make(name: str) -> Place:
        made.append(Place(tmp_path, ENVIRONMENTS[name]))
        return made[-1]

    yield make
    for each in made:
        each.close()


def run_test(place: Place, program: Program) -> subprocess.CompletedProcess[str]:
    """Runs a test of the test kit's page, with the page's own set-up."""
    (place.folder / "conftest.py").write_text(printed(KIT, "Set up"))
    (place.folder / "test_it.py").write_text(program.text)
    return place.run(*PYTEST, "--basetemp", "base", "test_it.py", spark=is_of_spark(program))


def run_program(
    place: Place, program: Program, kafka: KafkaBroker, unique: Callable[[str], str]
) -> subprocess.CompletedProcess[str]:
    """Runs a program with records and a group of its own. A query ends when it has read them; the others find the
    group."""
    topics = {topic: unique(topic) for topic in MORE_TOPICS if f'"{topic}"' in program.text}
    topics["orders"] = orders = unique("orders")
    for topic in topics.values():
        kafka.create_topic(topic)
    group, archive = unique("gruppe-ü"), place.folder / "archive"
    archive.mkdir()
    ours = {
        "localhost:9092": kafka.bootstrap,
        "billing": group,
        "payments": group,
        "/data/archive/billing": str(archive),
    }
    text = with_names(program.text.replace("1207", "0"), {**ours, **topics})
    value = '{"amount": 1}' if "amount" in text else "1"
    if text.endswith(END):
        kafka.produce(orders, [value] * RECORDS)
        text = until_idle(text) + DONE
    elif not place.environment.refusal:
        text = JOIN + text
    where = f"BOOT, TOPIC, GROUP, VALUE = {kafka.bootstrap!r}, {orders!r}, {group!r}, {value!r}\n"
    (place.folder / "app.py").write_text(where + HEAD + text, encoding="utf-8")
    return place.run("app.py", spark=is_of_spark(program))


CHEAP = Program(KIT, "A ShareConsumer", printed(KIT, "A ShareConsumer"))


@pytest.mark.parametrize("name", [name for name in ENVIRONMENTS if not reason(CHEAP, name)])
def test_a_test_of_a_share_consumer_runs_in_each_environment(place: Callable[[str], Place], name: str) -> None:
    here = place(name)
    here.check(run_test(here, CHEAP))


@pytest.mark.soak
@pytest.mark.broker
@pytest.mark.parametrize(("program", "name"), PAIRS)
def test_each_program_of_the_docs_runs_in_each_environment(
    place: Callable[[str], Place], kafka: KafkaBroker, unique: Callable[[str], str], program: Program, name: str
) -> None:
    here = place(name)
    done = run_test(here, program) if program.page == KIT else run_program(here, program, kafka, unique)
    here.check(done, spark=is_of_spark(program))
    if program.text.endswith(END) and not here.environment.refusal:
        assert f"done {RECORDS}" in done.stdout


def test_each_reason_is_one_of_a_program_and_an_environment() -> None:
    known = {SPARK, *map(str, programs()), *(program.page for program in programs())}
    assert known >= {*WITHOUT, *(kind for _, kind in NOT_THERE)}
    assert ENVIRONMENTS.keys() >= {name for name, _ in NOT_THERE}


@pytest.mark.broker
def test_a_child_forked_beside_open_connections_is_refused_by_name(
    tmp_path: Path, kafka: KafkaBroker, topic: Callable[..., str], unique: Callable[[str], str]
) -> None:
    orders = topic("orders")
    kafka.produce(orders, ["a"])
    with contextlib.closing(Place(tmp_path, Environment())) as place:
        where = f"BOOT, TOPIC, GROUP = {kafka.bootstrap!r}, {orders!r}, {unique('group')!r}"
        (place.folder / "app.py").write_text(where + FORKS)
        done = place.run("app.py")
        place.check(done)
        assert done.stdout.split("\n") == ["[True, True, True]", "read 1", ""]
