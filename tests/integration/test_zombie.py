"""A zombie: the owner of a group is stopped, another coordinator takes over, and the first one goes on.

It answers nothing by itself any more, and nothing of it is visible (docs/trust/guarantees.md, "What a takeover
keeps").
"""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from coordinator.client.connection import Connection
from coordinator.client.session import MemberSession
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.messages import Acknowledge, DescribeGroup, Heartbeat, NextPlan, StartPlan
from coordinator.protocol.wire import Endpoint
from tests.chaos.audit import audited
from tests.support.standalone import TOKEN, two_coordinators
from tests.support.state_topics import state_topic

pytestmark = pytest.mark.broker

RECORDS = 100


@pytest.fixture
def standalone(kafka, tmp_path):
    """Two coordinators, and a client of both."""
    with two_coordinators(tmp_path, kafka.bootstrap) as running_and_client:
        yield running_and_client


def asked(direct, request):
    """The heir answers, or the zombie refuses."""
    with contextlib.suppress(ShareGroupError):
        direct.call(request)


def start_and_complete(session, plan_id):
    """The id of the next plan; empty: there is none."""
    session.call(lambda who: StartPlan(**who, plan_id=plan_id))
    return session.call(lambda who: NextPlan(**who, start=plan_id, max_records=10)).plan.plan_id


@pytest.mark.slow
def test_a_zombie_asks_its_heir_and_none_of_its_records_is_visible(kafka, standalone, topic, unique):
    running, client = standalone
    orders, group = topic("orders"), unique("billing")
    kafka.produce(orders, [str(number) for number in range(RECORDS)])
    with contextlib.closing(MemberSession(client, group, "m1", topics=(orders,), starting_offsets="earliest")) as m1:
        plan = m1.call(lambda who: NextPlan(**who, max_records=10, wait_ms=10_000)).plan
        m1.call(lambda who: StartPlan(**who, plan_id=plan.plan_id))
        (zombie,) = [each for each in running if each.said(f"member joined: group={group} ")]
        (heir,) = [each for each in running if each is not zombie]
        zombie.pause()
        # The client finds the heir.
        after = m1.call(lambda who: NextPlan(**who, start=plan.plan_id, max_records=10)).plan
        assert heir.said(f"group loaded: group={group} ")
        assert after.plan_id != plan.plan_id

        host, port = zombie.address
        who = {"group_id": group, "member_id": "m1", "member_epoch": m1.member_epoch}
        requests = (
            NextPlan(**who, start=plan.plan_id),
            StartPlan(**who, plan_id=plan.plan_id),
            Acknowledge(**who, partitions=()),
            DescribeGroup(group_id=group),
        )
        direct = Connection(Endpoint(host=host, port=port, token=TOKEN, pid=0))
        with contextlib.closing(direct), ThreadPoolExecutor(1) as thread:
            heartbeat = thread.submit(asked, direct, Heartbeat(**who))  # the first that it finds when it goes on
            zombie.resume()
            heartbeat.result()
            for request in requests:
                asked(direct, request)
        assert zombie.said(f"this process was fenced: group={group} by ")
        assert zombie.said(f"requests are passed on over Kafka: group={group} to ")

        number = after.plan_id
        while number:
            number = start_and_complete(m1, number)
        (partition,) = client.call(DescribeGroup(group_id=group)).partitions
        assert (partition.start_offset, partition.lag, partition.archived_total) == (RECORDS, 0, 0)
    audit = audited(state_topic(kafka, "share-group-state", 50), group)
    assert audit.problems == []
    assert len(audit.owners) == 2
