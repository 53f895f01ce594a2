"""The broker's data path is cut while a query is restarted again and again: an outage is no poison.

Only records are kept back: a query that does not find the cluster asks for no plan, and counts no try. The coordinator
is not behind the cut: a look through the direct address starts it. It has a state of its own, so that no other test's
coordinator is asked.
"""

import pytest

from tests.support.group_state import describe, runs_of
from tests.support.share_job import numbers
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.broker]

RECORDS, BATCH = 100, 25
HELD = str(BATCH + 10)
IMPATIENT = {"kafkaConsumer.pollTimeoutMs": "1000"}


@pytest.mark.soak
@pytest.mark.parametrize(
    ("limit", "quick", "late"),  # restarts within the session and after it: with the first start more than tries
    [pytest.param(2, 1, 1, id="short"), pytest.param(5, 6, 2, id="long")],
)
def test_nothing_is_archived_by_an_outage(kafka, topic, job, start, limit, quick, late):
    """Restarted more often than the delivery limit has tries, within its session and after the session's end.
    The slices begin at a batch, so that few batches are left to deliver in slices when the outage is over."""
    orders = topic("orders")
    kafka.produce(orders, numbers(RECORDS))
    queue = job(
        orders,
        bootstrap=kafka.proxied_bootstrap,
        maxOffsetsPerTrigger=BATCH,
        **{"share.state.store": "sqlite", "share.session.timeout.ms": 5_000, "share.isolation.base": BATCH},
        **{"share.delivery.count.limit": limit},
    )
    assert describe(queue).lag() == -1
    held = start(queue.query("a", hold=(HELD,))).wait_held(HELD)
    assert queue.written() == BATCH
    kafka.proxy.cut(records_only=True)
    try:
        held.stop()
        for attempt in range(quick + late):
            if attempt >= quick:
                wait_until(lambda: describe(queue).active_members() == 0, what="the session is over")
            failed = start(queue.query("a", options=IMPATIENT)).wait_over()
            assert "ReadTimeout" in failed.error(), failed.error()
    finally:
        kafka.proxy.heal()
    assert max(run.failures for run in runs_of(queue)) >= limit  # so it could have been taken for poison
    assert describe(queue).archived() == 0
    last = start(queue.query("a"))
    last.wait(lambda: queue.written() == RECORDS, "all is delivered")
    queue.output().assert_exactly_once(numbers(RECORDS))
    last.wait(lambda: describe(queue).lag() == 0, "the last batch is completed")
    assert describe(queue).archived() == 0
