"""The service behind the queries of a group is away for longer than five deliveries take: no record uses up its tries,
and each is delivered when the service is back. The coordinator is one on demand, the broker real."""

import threading
from collections import Counter

import pytest

from coordinator.admin.admin import Admin
from coordinator.client.client import CoordinatorClient
from coordinator.protocol.values import AcknowledgeType
from sharegroup.group_line import slowed_queries
from tests.support.plain_query import PlainQuery
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

RECORDS, LIMIT = 40, 5
CONFIGS = {
    "share.release.backoff.ms": "200",
    "share.release.backoff.max.ms": "400",
    "share.delivery.count.limit": str(LIMIT),
}


@pytest.mark.slow
def test_an_outage_uses_up_no_tries_and_all_is_delivered_after_it(kafka, topic, unique, tmp_path):
    name, group, store = topic(), unique("group"), f"sqlite:{tmp_path / 'state.db'}"
    kafka.produce(name, [b"x"] * RECORDS)
    away, deliveries = threading.Event(), Counter()
    away.set()

    def outcome(offset):
        deliveries[offset] += 1
        return AcknowledgeType.RELEASE if away.is_set() else AcknowledgeType.ACCEPT

    def described():
        return admin.describe_groups([group])[group]

    client = CoordinatorClient.connect(kafka.bootstrap, state_store=store)
    with (
        Admin({"bootstrap.servers": kafka.bootstrap, "share.state.store": store}) as admin,
        PlainQuery(client, group, "a", name, outcome, CONFIGS, most=1_000),
        PlainQuery(client, group, "b", name, outcome, CONFIGS, most=1_000),
    ):
        wait_until(lambda: max(deliveries.values(), default=0) > 2 * LIMIT, what="records came more often than LIMIT")
        during = described()
        (partition,) = during.partitions
        assert (partition.archived_total, partition.archiving) == (0, 0)
        assert max(run.releases for run in admin.all_in_flight(group)) == 1
        assert all(breaker.keeps_tries for _, breaker in slowed_queries(during))
        assert slowed_queries(during)
        away.clear()
        wait_until(lambda: described().partitions[0].accepted == RECORDS, what="all are accepted")
        wait_until(lambda: slowed_queries(described()) == [], what="no query is slowed any more")
    client.close()
