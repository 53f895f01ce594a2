"""The programs that the docs print, in the environments that people have: behind a proxy, after a fork, beside modules
named as Python's own or as ours, without docstrings, with few files, as a user without a home.

Rule: each program of the docs runs in each environment, or has a reason here. A program comes to its end, and is as
silent as the environment has it, or is refused with the way out.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.environments import ENVIRONMENTS, Environment, Place
from tests.support.kafka_broker import KafkaBroker
from tests.support.readme import ENDS, PYTEST, Program, printed, programs, until_idle, with_names

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
    ("queue.py", "docs/do/dead-letters.md: Redrive"): "a redrive needs no module that needs Python's queue",
    ("queue.py", SPARK): "Spark itself can't be imported: py4j needs Python's queue",
    ("secrets.py and email.py", "docs/run/watching.md: Views: groups as tables"): "pandas needs Python's secrets",
}
"""An environment, and a page, or SPARK for all programs with it -> the reason."""
MORE_TOPICS = ("orders.retry", "dlq.billing", "dlq.payments")
RECORDS = 3
RUNS = f"""
import json, sys

def run(program):
    said = []
    def tell(*words):
        said.append(words)
        if len(said) == {RECORDS}:
            sys.exit()
    exec(compile(program, "app.py", "exec"), {{"__name__": "__main__", "print": tell}})

with open("programs.json", encoding="utf-8") as file:
    programs = json.load(file)
for name, program in programs.items():
    try:
        run(program)
    except SystemExit:
        print(name, "has ended", flush=True)
    except Exception as error:
        print(name, "failed:", *f"{{type(error).__name__}} {{error}}".split(), flush=True)
    else:
        print(name, "has ended", flush=True)
"""
"""Runs programs, one after another. One that goes on for ever ends when it has printed a line for each record."""
JOIN = f"""
from confluent_kafka import Producer
from sharegroup import Admin, ShareConsumer

config = {{"bootstrap.servers": BOOT, "group.id": GROUP, "share.auto.offset.reset": "earliest"}}
with ShareConsumer(config) as first, Admin({{"bootstrap.servers": BOOT}}) as admin:
    first.subscribe([TOPIC])
    while not admin.describe_groups([GROUP])[GROUP].partitions:
        first.poll(0.1)
producer = Producer({{"bootstrap.servers": BOOT}})
for _ in range({RECORDS}):
    producer.produce(TOPIC, VALUE)
assert producer.flush(60) == 0
"""
"""Begins the group, and then produces."""
DONE = f"""
from sharegroup import Admin

with Admin({{"bootstrap.servers": BOOT}}) as admin:
    done = sum(each.start_offset for each in admin.list_offsets(GROUP).partitions)
if done != {RECORDS}:
    raise AssertionError(done)
"""
"""Checks after a query that the group is done with each record."""
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


def group_of(program: Program) -> tuple[bool, bool]:
    """Whether it has Spark, and whether it is a test. A group's programs run in one process."""
    return is_of_spark(program), program.page == KIT


def words(group: tuple[bool, bool]) -> str:
    """The group in words."""
    spark, is_test = group
    return f"{'tests' if is_test else 'programs'} {'with' if spark else 'without'} Spark"


RUN_THERE = {
    (name, group): [each for each in programs() if group_of(each) == group and not reason(each, name)]
    for name in ENVIRONMENTS
    for group in dict.fromkeys(map(group_of, programs()))
}
"""The programs that run in one process, by environment and group."""


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


def run_tests(place: Place, tests: list[Program]) -> subprocess.CompletedProcess[str]:
    """Runs tests of the test kit's page, with the page's own set-up."""
    (place.folder / "conftest.py").write_text(printed(KIT, "Set up"))
    names = [f"test_{number}.py" for number in range(len(tests))]
    for name, each in zip(names, tests, strict=True):
        (place.folder / name).write_text(each.text)
    return place.run(*PYTEST, "--basetemp", "base", *names, spark=any(map(is_of_spark, tests)))


def run_programs(place: Place, given: dict[str, str], *, spark: bool) -> dict[str, str]:
    """Runs programs, by their names. Returns what became of each."""
    (place.folder / "app.py").write_text(RUNS)
    (place.folder / "programs.json").write_text(json.dumps(given))
    done = place.run("app.py", spark=spark)
    place.check(done, spark=spark)
    said = {
        name: line.removeprefix(name) for line in done.stdout.splitlines() for name in given if line.startswith(name)
    }
    assert said.keys() == given.keys(), done.stdout + done.stderr
    return said


def with_records(program: Program, kafka: KafkaBroker, unique: Callable[[str], str], place: Place) -> str:
    """The program with records and a group of its own. A query ends when it has read them; the others find the group.
    Where a program is refused, it is refused by itself."""
    topics = {topic: unique(topic) for topic in MORE_TOPICS if f'"{topic}"' in program.text}
    topics["orders"] = orders = unique("orders")
    for topic in topics.values():
        kafka.create_topic(topic)
    group, archive = unique("gruppe-ü"), place.folder / "archive"
    archive.mkdir(exist_ok=True)
    names = {"localhost:9092": kafka.bootstrap, "/data/archive/billing": str(archive)}
    text = with_names(program.text.replace("1207", "0"), {**names, "billing": group, "payments": group, **topics})
    text = text.replace("checkpoints/", f"checkpoints/{orders}/").replace("output/", f"output/{orders}/")
    value = '{"amount": 1}' if "amount" in text else "1"
    if text.endswith(tuple(ENDS)):
        kafka.produce(orders, [value] * RECORDS)
        text = until_idle(text) + DONE
    elif not place.environment.refusal:
        text = JOIN + text
    return f"BOOT, TOPIC, GROUP, VALUE = {kafka.bootstrap!r}, {orders!r}, {group!r}, {value!r}\n{text}"


CHEAP = Program(KIT, "A ShareConsumer", printed(KIT, "A ShareConsumer"))


@pytest.mark.parametrize("name", [name for name in ENVIRONMENTS if not reason(CHEAP, name)])
def test_a_test_of_a_share_consumer_runs_in_each_environment(place: Callable[[str], Place], name: str) -> None:
    here = place(name)
    here.check_end(run_tests(here, [CHEAP]))


@pytest.mark.soak
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    ("name", "group"),
    [pytest.param(*each, id=f"{each[0]}, {words(each[1])}") for each, there in RUN_THERE.items() if there],
)
def test_each_program_of_the_docs_runs_in_each_environment(
    place: Callable[[str], Place], kafka: KafkaBroker, unique: Callable[[str], str], name: str, group: tuple[bool, bool]
) -> None:
    here, there = place(name), RUN_THERE[name, group]
    spark, is_test = group
    if is_test:
        here.check_end(run_tests(here, there), spark=spark)
        return
    said = run_programs(here, {str(each): with_records(each, kafka, unique, here) for each in there}, spark=spark)
    wanted = here.environment.refusal or "has ended"
    assert {program: text for program, text in said.items() if wanted not in text} == {}


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
        assert done.returncode == 0, done.stderr
        assert done.stdout.split("\n") == ["[True, True, True]", "read 1", ""]
