"""The brokers are away for longer than a session, with the coordinator's state in them: a query goes on when they are
back, with each record once, with few lines in its log; and query.stop() does not wait for them."""

import re

import pytest

from coordinator.client import on_demand
from tests.support.share_job import numbers
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.broker]

HASTY = {
    "share.coordinator.broker.timeout.ms": 5_000,
    "share.coordinator.write.timeout.ms": 1_000,
    "share.session.timeout.ms": 4_000,
}
OUTAGE_S = 120
LINES = 10
"""An outage of two minutes writes at most this number of lines to a log."""
SPARKS_OWN = ("Traceback", "  File ", "BrokenPipeError")
"""Lines that Spark's Python daemon writes about a worker that ended, with an outage or without."""


def logged_outage_s(program):
    """How long the outage lasts by the program's log."""
    return max(map(int, re.findall(r"no answer for (\d+) s", program.log())), default=0)


@pytest.fixture
def runtime(runtime_dir, unique):
    """A runtime folder, and so a coordinator, of the test's own."""
    directory = runtime_dir / unique("run")
    directory.mkdir(mode=0o700)
    return directory


@pytest.fixture
def own_program(program, kafka, runtime):
    yield program(**{on_demand.RUNTIME_VARIABLE: str(runtime)})
    kafka.proxy.heal()


def held(program, spec, starts=5):
    """The query, held in its work at 100; begun again where the brokers stood still at its first join, which has no
    patience with them."""
    try:
        return program.start_query(spec).wait_held("100")
    except AssertionError as late:
        if "BrokerNotReachable" not in str(late) or starts == 1:
            raise
        return held(program, spec, starts - 1)


def test_a_query_waits_for_its_brokers_and_a_stop_does_not(kafka, topic, job, own_program):
    orders = topic("orders")
    kafka.produce(orders, numbers(500))
    queue = job(orders, bootstrap=kafka.proxied_bootstrap, maxOffsetsPerTrigger=500, **HASTY)
    query = held(own_program, queue.query("a", hold=("100",)))
    kafka.proxy.cut()
    query.spec.release()  # the batch is written and committed, and what comes after it has to wait
    own_program.wait_said("no answer for")
    kafka.produce(orders, numbers(500, first=500))
    kafka.proxy.heal()
    query.wait(lambda: queue.written() == 1_000, "it goes on")
    own_program.wait_said("answers again after")

    queue.output().assert_exactly_once(numbers(1_000))

    before = own_program.log().count("kafka: no answer for")
    kafka.proxy.cut()
    wait_until(lambda: own_program.log().count("kafka: no answer for") > before, what="it waits again")
    query.stop()
    assert query.error() == ""


@pytest.mark.soak
def test_a_query_with_defaults_survives_an_outage_of_two_minutes(kafka, topic, job, own_program, runtime):
    orders = topic("orders")
    kafka.produce(orders, numbers(500))
    queue = job(orders, bootstrap=kafka.proxied_bootstrap, maxOffsetsPerTrigger=500)
    query = held(own_program, queue.query("a", hold=("100",)))
    (coordinators_log,) = runtime.glob("coordinator-*.log")
    before, coordinators_before = len(own_program.log().splitlines()), len(coordinators_log.read_text().splitlines())
    kafka.proxy.cut()
    query.spec.release()
    wait_until(lambda: logged_outage_s(own_program) >= OUTAGE_S, timeout_s=400, what="two minutes are over")
    kafka.produce(orders, numbers(500, first=500))
    kafka.proxy.heal()
    query.wait(lambda: queue.written() == 1_000, "it goes on")
    queue.output().assert_exactly_once(numbers(1_000))
    own_program.wait_said("answers again after")
    lines = [line for line in own_program.log().splitlines()[before:] if not line.startswith(SPARKS_OWN)]
    print("the driver's log:", *lines, sep="\n")
    assert len(lines) <= LINES, "\n".join(lines)
    said = coordinators_log.read_text().splitlines()[coordinators_before:]
    warnings = [line for line in said if " WARNING " in line or " ERROR " in line]
    print("the coordinator's log:", *warnings, sep="\n")
    assert len(warnings) <= LINES, "\n".join(warnings)
