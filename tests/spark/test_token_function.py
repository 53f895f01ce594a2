"""A query of Spark's whose tokens a function signs (kafka.oauth_cb): its driver, its coordinator and the executors'
workers call the function."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.conftest import JobFactory, QueryStart
from tests.support.secured_broker import SecuredBroker
from tests.support.share_job import numbers

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.broker]


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[SecuredBroker]:
    broker = SecuredBroker(tmp_path)
    yield broker
    broker.close()


def test_driver_coordinator_and_executors_call_the_function(
    secured: SecuredBroker, job: JobFactory, start: QueryStart, tmp_path: Path
) -> None:
    orders = secured.broker.create_topic(partitions=2)
    config = {key: value for key, value in secured.configs["OAUTHBEARER"].items() if "oauthbearer" not in key}
    config |= {
        "oauth_cb": "tests.support.iam_signer:token",
        "sasl.oauthbearer.config": str(secured.tokens.write_key(tmp_path / "signer.pem")),
    }
    bootstrap = config.pop("bootstrap.servers")
    queue = job(orders, bootstrap=bootstrap, **{f"kafka.{key}": value for key, value in config.items()})
    for first in (0, 100):
        secured.broker.produce(orders, numbers(100, first=first))
        assert start(queue.query("a", trigger="available_now")).wait_over().error() == ""
    queue.output().assert_exactly_once(set(numbers(200)))
    processes = set((tmp_path / "calls").read_text().split())
    assert len(processes) > 2  # the driver, its coordinator, and workers
