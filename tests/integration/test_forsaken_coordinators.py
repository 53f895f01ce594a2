"""A coordinator on demand that nobody calls leaves by itself, also with a batch in flight that it can't give back: its
brokers are away, refuse it, or have lost its state topic. All of its state is in the store."""

import psutil
import pytest

from coordinator.client.client import CoordinatorClient
from coordinator.client.session import MemberSession
from coordinator.protocol.messages import NextPlan
from coordinator.service.stores.kafka.state_topic import STATE_TOPIC
from tests.support.coordinator_process import has_ended
from tests.support.stopped_process import stop_process
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

HASTY = {
    "share.coordinator.idle.timeout.ms": "2000",
    "share.broker.outage.timeout.ms": "2000",
    "share.coordinator.broker.timeout.ms": "10000",
    "share.coordinator.write.timeout.ms": "1000",
    "share.coordinator.metadata.refresh.ms": "500",
}
SESSION = {"share.session.timeout.ms": "6000", "share.heartbeat.interval.ms": "1000"}


def cut(broker):
    broker.proxy.cut()


def cut_silently(broker):
    broker.proxy.cut(silent=True)


def make_the_state_topic_unfit(broker):
    """As a broker does that creates topics by itself: with a retention."""
    broker.recreate_topic(STATE_TOPIC, 3, retention_ms=60_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mishap",
    [
        pytest.param(cut, marks=pytest.mark.soak),
        cut_silently,
        pytest.param(make_the_state_topic_unfit, marks=pytest.mark.soak),
    ],
    ids=lambda mishap: mishap.__name__,
)
def test_a_coordinator_with_a_batch_in_flight_leaves_without_calls(first, runtime, unique, mishap):
    orders = unique("orders")
    first.create_topic(orders)
    first.produce(orders, [b"x"] * 10)
    client = CoordinatorClient.connect(first.proxied_bootstrap, configs=HASTY)
    try:
        query = MemberSession(
            client, unique("group"), "m1", topics=(orders,), starting_offsets="earliest", configs=SESSION
        )
        assert query.call(lambda who: NextPlan(**who)).plan.plan_id
        process = psutil.Process(client.endpoint_of("").pid)
        query.close()
        wait_until(lambda: not query._thread.is_alive(), what="its heartbeats have stopped")
        client.close()
        stop_process(process.pid)  # it sees the mishap as a whole, and while the batch is in flight
        mishap(first)
        process.resume()
        wait_until(lambda: has_ended(process), timeout_s=120, what="the coordinator has left")
    finally:
        first.proxy.heal()
    (log,) = runtime.glob("coordinator-*.log")
    lines = log.read_text().splitlines()
    assert any(" the coordinator ends: nobody has called, and " in line for line in lines), "\n".join(lines[-20:])
    assert len(lines) < 100, f"{len(lines)} lines"
