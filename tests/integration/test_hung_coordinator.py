"""A coordinator that hangs: whoever talks to it notices, finds the one that takes its place, and keeps its session."""

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from coordinator.client import connection, on_demand
from coordinator.client.client import CoordinatorClient
from coordinator.client.connection import Connection, Unreachable
from coordinator.client.session import MemberSession, heartbeat_timeout_s
from coordinator.protocol.messages import DescribeGroup, Joined, NextPlan, StageOutcomes, StartPlan
from coordinator.protocol.wire import Endpoint
from tests.support.coordinator_process import has_ended
from tests.support.stopped_process import stop_process
from tests.support.waiting import wait_until

RECORDS = 100
WHO = {"group_id": "billing", "member_id": "m1", "member_epoch": 1}
CALLS = [NextPlan(**WHO, start=""), StartPlan(**WHO, plan_id="i.1"), StageOutcomes(group_id="billing")]


@pytest.fixture
def runtime(runtime):
    """The processes of coordinators in the test's own runtime folder, which end with it."""
    pids = set()
    yield pids
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(pid).kill()


def test_a_call_to_a_stopped_process_on_this_host_ends_soon(embedded, runtime, tmp_path):
    """The kernel of a stopped process takes the connection and the request; only the process itself would answer a
    ping."""
    store = f"sqlite:{tmp_path / 'state.db'}"
    client = CoordinatorClient.connect(embedded.bootstrap_servers, {}, store)
    runtime.add(client.endpoint_of("").pid)
    stop_process(client.endpoint_of("").pid)
    direct = client._connections[""]
    with ThreadPoolExecutor(len(CALLS)) as threads:
        calls = [threads.submit(direct.call, request, 3600.0) for request in CALLS]
        failed = [wait_until(each.exception, what="the call ends") for each in calls]
    assert all(isinstance(error, Unreachable) for error in failed)
    client.close()


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.parametrize("session_ms", [8_000, pytest.param(3_000, marks=pytest.mark.soak)])
def test_the_takeover_of_a_hung_coordinator_ends_no_session(kafka, topic, unique, runtime, session_ms):
    """m1 is in a batch; its coordinator is stopped; a second query of the host starts another one, and asks."""
    orders, group = topic("orders"), unique("billing")
    kafka.produce(orders, [str(number) for number in range(RECORDS)])
    configs = {"share.session.timeout.ms": str(session_ms)}
    options = {"topics": (orders,), "starting_offsets": "earliest", "configs": configs}
    with contextlib.ExitStack() as stack:
        clients = [CoordinatorClient.connect(kafka.bootstrap)]
        stack.callback(clients[0].close)
        hung = clients[0].endpoint_of("").pid
        runtime.add(hung)
        first = stack.enter_context(contextlib.closing(MemberSession(clients[0], group, "m1", **options)))
        plan = first.call(lambda who: NextPlan(**who, start="")).plan
        first.call(lambda who: StartPlan(**who, plan_id=plan.plan_id))
        stop_process(hung)
        clients.append(CoordinatorClient.connect(kafka.bootstrap))
        stack.callback(clients[1].close)
        runtime.add(clients[1].endpoint_of("").pid)
        assert clients[1].endpoint_of("").pid != hung
        second = stack.enter_context(contextlib.closing(MemberSession(clients[1], group, "m2", **options)))
        for _ in range(2):  # two sessions long
            assert second.call(lambda who: NextPlan(**who, start="", wait_ms=session_ms)).plan.plan_id == ""
        assert first.call(lambda who: NextPlan(**who, start=plan.plan_id)).plan.plan_id == ""
        (partition,) = clients[1].call(DescribeGroup(group_id=group)).partitions
        assert (partition.start_offset, partition.lag) == (RECORDS, 0)
        replaced = psutil.Process(hung)
        replaced.resume()
        wait_until(lambda: has_ended(replaced), what="the coordinator that was replaced leaves")
        assert second.call(lambda who: NextPlan(**who, start="")).plan.plan_id == ""


def test_an_unanswered_heartbeat_is_sent_again_well_within_the_session():
    for session_ms in (1_000, 10_000, 45_000, 3_600_000):
        joined = Joined(
            member_epoch=1,
            incarnation="i",
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=min(5_000, session_ms // 3),
            isolation_level="read_uncommitted",
        )
        assert heartbeat_timeout_s(joined) * 1000 + joined.heartbeat_interval_ms < 0.7 * session_ms


def test_a_slow_coordinator_is_asked_again_and_no_other_is_started(runtime, monkeypatch):
    """The endpoint file names the coordinator; a late answer is no reason to start another one."""
    asked = []

    def check_health(self, timeout_s):
        asked.append(timeout_s)
        if len(asked) < 5:
            raise connection.NoAnswer("slow")

    monkeypatch.setattr(Connection, "check_health", check_health)
    monkeypatch.setattr(on_demand.OnDemand, "_start", lambda self: pytest.fail("another one is started"))
    directory = on_demand.OnDemand(bootstrap_servers="b:1", kafka_config={}, cluster_id="c", state_store="kafka")
    endpoint = Endpoint(host="127.0.0.1", port=1, token="t", pid=1)
    directory.endpoint_path.write_text(json.dumps({"host": "127.0.0.1", "port": 1, "token": "t", "pid": 1}))
    found = directory.connect()
    assert (found.endpoint.pid, len(asked)) == (endpoint.pid, 5)
