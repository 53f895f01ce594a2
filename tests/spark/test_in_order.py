"""Order by partition in queries: sharegroup.in_order defers what follows a release, and kills change no order."""

from __future__ import annotations

import json
import random

import pytest

from benchmarks.order import divided_s, owner_killed_s
from sharegroup.__main__ import run
from tests.support.group_state import describe, forget_clients
from tests.support.kafka_broker import KafkaBroker
from tests.support.share_job import numbers
from tests.support.sink_chaos import BY_COUNT, STOP, VICTIMS, SinkChaos, chaos_job
from tests.support.sink_reckoning import reckon_in_order
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark]

RUN = """
import sharegroup

def run(spark, rows, columns):
    found = spark.createDataFrame([tuple(row) for row in rows], columns)
    ordered = sharegroup.in_order(found.repartition(3))
    assert ordered.columns == found.columns
    return [list(row) for row in ordered.orderBy("topic", "partition", "offset").collect()]
"""


def test_what_follows_a_release_of_its_partition_is_deferred_without_its_delay(shared_program):
    """Other rows of the released record itself are not."""
    said = {
        ("t", 0): ["accept", "release", "accept", None, "reject", "release"],
        ("t", 1): ["reject", None, "accept"],
        ("u", 0): ["defer", "accept"],
    }
    rows = [[*key, at, word, None] for key, words in said.items() for at, word in enumerate(words)]
    rows += [["v", 0, 1, "release", 7], ["v", 0, 1, "release", 7], ["v", 0, 2, "release", 8], ["v", 0, 3, "defer", 9]]
    columns = "topic string, partition int, offset long, acknowledgement string, "
    found = shared_program.get().run(RUN, rows=rows, columns=f"{columns} releaseDelayMs long")
    assert shared_program.get().run(RUN, rows=rows, columns=f"{columns} releaseAt long") == found
    expected = ["accept", "release", *["defer"] * 4, "reject", None, "accept", "defer", "defer"]
    seen = [tuple(row[3:]) for row in found]
    assert seen == [*((word, None) for word in expected), *[("release", 7)] * 2, *(("defer", None), ("defer", 9))]


@pytest.mark.broker
def test_a_query_that_releases_accepts_each_partition_in_order(kafka, topic, job, shared_program, start):
    orders = topic("orders", 2)
    kafka.produce(orders, numbers(40))
    queue = job(orders, **{"share.order": "partition", "share.release.backoff.ms": "200"})
    released = "if(text = '7' AND deliveryCount = 1, 'release', 'accept')"
    sink = queue.sink_options(outputOnReplay="replaces")
    columns = {"acknowledgement": released}
    start(queue.query("a", sink="acknowledge+replace", sink_options=sink, columns=columns, in_order=True))
    wait_until(lambda: describe(queue).lag() == 0, what="all records are done")
    rows = queue.output().rows
    accepted = rows[rows["acknowledgement"] == "accept"].sort_values("batch", kind="stable")
    for _, of_partition in accepted.groupby("partition"):
        assert list(of_partition["offset"]) == list(range(len(of_partition)))
    assert len(accepted) == 40 and len(rows) > 41, "some were released, and deferred"


# --- two queries that are killed, or stopped

HOT, RECORDS, SEED = 8, 3_000, 20261128


@pytest.mark.slow
@pytest.mark.broker
def test_two_queries_accept_each_key_in_order_though_one_is_killed(kafka, topic, job, program, start):
    """Half of the records have one of eight hot keys, the others a key each. A seed chooses which are released at
    first, and which are rejected. The output is replaced by batch, and no lock is lost."""
    chance = random.Random(SEED)
    keys = {n: f"hot {chance.randrange(HOT)}" if chance.random() < 0.5 else f"cold {n}" for n in numbers(RECORDS)}
    released, rejected = chance.sample(numbers(RECORDS), 8), chance.sample(numbers(RECORDS), 60)
    orders = topic("orders", 4)
    kafka.produce(orders, keys, keys=list(keys.values()))
    limits = {"share.session.timeout.ms": "300000", "share.release.backoff.ms": "200"}
    queue = job(orders, maxOffsetsPerTrigger=500, **{"share.order": "partition", **limits})
    outcome = f"""case when text in ({listed(rejected)}) then 'reject'
                       when text in ({listed(released)}) and deliveryCount = 1 then 'release' else 'accept' end"""
    sink = {
        "sink": "acknowledge+replace",
        "sink_options": queue.sink_options(outputOnReplay="replaces"),
        "columns": {"acknowledgement": outcome},
        "in_order": True,
    }
    driver = program()
    killed = driver.start_query(queue.query("a", hold=tuple(numbers(RECORDS // 2, RECORDS // 2)), **sink))
    killed.wait_written()
    start(queue.query("b", **sink)).wait_written()
    killed.wait(killed.spec.held, "it is in the middle of a batch")
    driver.kill()
    start(queue.query("a", **sink)).wait(lambda: describe(queue).lag() == 0, "all records are done")

    rows = queue.output().by_work().rows
    accepted = list(rows[rows["acknowledgement"] == "accept"]["value"])
    assert sorted(accepted) == sorted(keys.keys() - set(rejected)), "none is missing, and none is there twice"
    assert set(rows["query"]) == {"a", "b"}
    for key in set(keys.values()):
        of_key = [int(value) for value in accepted if keys[value] == key]
        assert of_key == sorted(of_key), f"{key} is accepted in the order in which it was produced"


def listed(values):
    return ", ".join(f"'{value}'" for value in values)


KILLED = (*VICTIMS, "driver", "coordinator")
STOPPED = (STOP, "driver", STOP)


@pytest.mark.soak
@pytest.mark.broker
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    ("harm", "session_ms", "poison"),
    [pytest.param(KILLED, 300_000, True, id="kills"), pytest.param(STOPPED, 10_000, False, id="lost locks")],
)
def test_each_key_is_accepted_in_order_though_queries_are_harmed(program, tmp_path, capsys, harm, session_ms, poison):
    """One of 1,000 records is released until its second or third delivery, one of 20 is rejected; in the form without
    lost locks one kills the work until it is given up. The sinks decide by the delivery count, which kills raise."""
    with KafkaBroker() as broker:
        job = chaos_job(
            broker,
            tmp_path,
            **{
                "share.order": "partition",
                "share.session.timeout.ms": str(session_ms),
                "share.release.backoff.ms": "500",
                "share.poison.solo.timeout.ms": "10000",
                "maxOffsetsPerTrigger": "1000",
                "share.isolation.base": "1000",
            },
        )
        given = {"columns": BY_COUNT, "sink_options": {"outputOnReplay": "replaces"}, "victims": harm}
        chaos = SinkChaos(job, broker, program, SEED, ("a", "b"), in_order=True, **given)
        problems = []
        try:
            chaos.produce(20_000, poison=poison, transient=0.001, hot=HOT)
            chaos.run(len(harm), 1_500, lambda: problems.extend(found_by_the_doctor(job, capsys)))
            result = reckon_in_order(chaos)
        finally:
            forget_clients()
    print(result)
    assert not result.problems and not problems, (result, problems)
    assert result.numbers["keys"] > 9_000 and (result.numbers["seen by both queries"] or not chaos.loses_locks)


@pytest.mark.soak
@pytest.mark.broker
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("play", [divided_s, owner_killed_s])
def test_queries_divide_partitions_and_take_over_in_order(kafka, tmp_path, play):
    """The play waits until each query has a partition of its own, and until one has taken over the other's."""
    job = play(kafka, tmp_path / "play").job
    rows = job.output().last_deliveries().by_work().rows
    assert set(rows["query"]) == {"a", "b"}
    for partition in (0, 1):
        offsets = list(rows[rows["partition"] == partition]["offset"])
        assert offsets == list(range(len(offsets)))
    records = describe(job).description.records
    assert (records.accepted, records.unaccounted) == (len(rows), 0)


def found_by_the_doctor(job, capsys):
    """The doctor's errors and warnings about the group."""
    capsys.readouterr()
    run(["doctor", "--bootstrap-server", job.bootstrap, "--group", job.group, "--json"])
    found = json.loads(capsys.readouterr().out)
    return [each for each in found if each["group_id"] == job.group and each["severity"] != "note"]
