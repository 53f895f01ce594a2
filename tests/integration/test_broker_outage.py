"""Brokers that are away are ridden out: by the asking query's patience, with few lines in the logs."""

import contextlib
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from coordinator.client import on_demand
from coordinator.client.client import CoordinatorClient
from coordinator.client.session import MemberSession
from coordinator.protocol.messages import NextPlan, StartPlan
from coordinator.protocol.values import AcquiredRange
from share_source.executor import consumers
from share_source.executor.offset_ranges import PartitionRanges
from share_source.executor.range_reader import ReadTask
from share_source.executor.task_reader import read_task
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

SESSION_S = 6
OUTAGE_S = 12
"""Longer than a session, and longer than the coordinator retries to reach the brokers."""
HASTY = {"share.coordinator.broker.timeout.ms": "6000", "share.coordinator.write.timeout.ms": "1000"}
SESSION = {"share.session.timeout.ms": str(SESSION_S * 1000)}


@pytest.fixture
def orders(kafka, topic):
    name = topic()
    kafka.produce(name, [b"x"] * 30)
    yield name
    kafka.proxy.heal()


@pytest.fixture
def query(kafka, orders, unique, runtime):
    """Members of one group, each with a client of its own as each query has: `query("m1", patience_ms=5_000)`."""
    group, opened = unique("group"), contextlib.ExitStack()

    def new(member, store="kafka", patience_ms=300_000):
        configs = {**HASTY, "share.broker.outage.timeout.ms": str(patience_ms)}
        client = CoordinatorClient.connect(kafka.proxied_bootstrap, {}, store, configs=configs)
        opened.callback(client.close)
        session = MemberSession(client, group, member, topics=(orders,), starting_offsets="earliest", configs=SESSION)
        opened.callback(session.close)
        return session

    with opened:
        yield new


def take(session, start="", most=10):
    return session.call(lambda who: NextPlan(**who, start=start, max_records=most, wait_ms=0)).plan


def held(plan):
    return [(r.first, r.last) for p in plan.partitions for r in p.ranges]


def outage_of(session):
    return session._client._outage


@pytest.mark.parametrize(
    ("store", "silent"),
    [
        pytest.param("kafka", False, id="state in Kafka", marks=pytest.mark.soak),
        pytest.param("kafka", True, id="state in Kafka, packets dropped", marks=pytest.mark.slow),
        pytest.param("sqlite", False, id="state in a file"),
    ],
)
def test_queries_keep_their_batches_through_an_outage_longer_than_their_sessions(
    kafka, query, runtime, tmp_path, caplog, store, silent
):
    where = store if store == "kafka" else f"sqlite:{tmp_path / 'state.db'}"
    first, second = query("m1", where), query("m2", where)
    plan = take(first)
    first.call(lambda who: StartPlan(**who, plan_id=plan.plan_id))
    kafka.proxy.cut(silent=silent)
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(take, second, most=100)  # more than is known of the log's end
        wait_until(lambda: outage_of(second).lasts_s > OUTAGE_S, what="the outage has lasted")
        assert not asked.done()
        kafka.proxy.heal()
        assert held(asked.result(120)) == [(10, 29)]
    assert not take(first, plan.plan_id).plan_id
    lines = [record.getMessage() for record in caplog.records]
    assert sum("no answer for" in line for line in lines) in (1, 2), lines
    wait_until(lambda: outage_of(first).lasts_s == outage_of(second).lasts_s == 0, what="it is over for both")
    (path,) = runtime.glob("coordinator-*.log")
    wait_until(lambda: path.read_text().count("answers again") == 1, what="the coordinator says that they answer")
    log = path.read_text()
    assert log.count("no answer for") == 1, log
    told = [line for line in log.splitlines() if "the process was paused" not in line]  # a slow machine
    assert sum(" WARNING " in line or " ERROR " in line for line in told) <= 10, log


@pytest.mark.slow
def test_a_coordinator_that_dies_in_an_outage_is_restarted_after_the_outage(kafka, query, runtime):
    session = query("m1")
    plan = take(session)
    session.call(lambda who: StartPlan(**who, plan_id=plan.plan_id))
    kafka.proxy.cut()
    os.kill(next(reversed(on_demand._children)), signal.SIGKILL)
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(take, session, plan.plan_id)
        wait_until(lambda: outage_of(session).lasts_s > SESSION_S, what="the outage has lasted")
        assert not asked.done()
        kafka.proxy.heal()
        assert held(asked.result(120)) == [(10, 19)]


@pytest.mark.slow
def test_a_task_waits_through_an_outage_with_few_log_lines(kafka, orders, reader, caplog, capfd):
    kafka.proxy.cut()
    ranges = PartitionRanges(orders, 0, (AcquiredRange(0, 29, 1),), "")
    task = ReadTask(partitions=(ranges,), kafka_config={"bootstrap.servers": kafka.proxied_bootstrap})
    with ThreadPoolExecutor(1) as thread, contextlib.closing(consumers.cache()):
        read = thread.submit(lambda: sum(batch.num_rows for batch in read_task(task)))
        wait_until(lambda: "no answer for" in caplog.text, what="the task says what it waits for")
        kafka.proxy.heal()
        assert read.result(120) == 30
    told = [record.getMessage() for record in caplog.records if record.name.startswith("share_source.")]
    assert [line for line in told if "Connection refused" in line] == told[:1]
    assert "answers again after" in told[-1]
    assert "|FAIL|" not in capfd.readouterr().err
