"""An outage in the log, and how a query's client rides one out."""

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from coordinator.client import client as client_module
from coordinator.client.client import CoordinatorClient
from coordinator.client.connection import Unreachable
from coordinator.client.endpoints import Endpoints
from coordinator.client.on_demand import OnDemand
from coordinator.kafka.retries import MAX_ATTEMPT_S
from coordinator.protocol.errors import BrokerNotReachable, BrokerSecurityFailed, CoordinatorNotAvailable, InternalError
from coordinator.protocol.messages import DescribeGroup, Done, Heartbeat, JoinGroup, NextPlan
from coordinator.protocol.repeated_lines import Outage
from coordinator.protocol.wire import Endpoint
from coordinator.service.on_demand import write_endpoint
from share_source.options import SourceOptions

AWAY = BrokerNotReachable(addresses="kafka:9092", timeout_ms=15_000, reason="_TRANSPORT")
NOT_AVAILABLE = CoordinatorNotAvailable(group_id="billing", reason="its state store does not answer")
REFUSED = BrokerSecurityFailed(addresses="kafka:9092", reason="Authentication failed: Invalid username or password")
POLL = NextPlan(group_id="billing", member_id="m1", member_epoch=1, start="")
BEAT = Heartbeat(group_id="billing", member_id="m1", member_epoch=1)


class Told:
    """An outage whose clock the test moves; `lines` is what is in the log."""

    def __init__(self, caplog):
        self.now_s = 1_000.0
        self._caplog = caplog
        self.outage = Outage(logging.getLogger("test"), "kafka:9092", clock=lambda: self.now_s)

    @property
    def lines(self):
        return [record.getMessage() for record in self._caplog.records]


@pytest.fixture
def told(caplog):
    return Told(caplog)


def test_an_outage_begins_after_the_last_answer_to_any_request(told):
    told.now_s += 8
    told.outage.failed("orders-1", 1_000.0, "orders-1")
    told.outage.answered("orders-1")
    told.now_s += 1
    told.outage.failed("orders-1", 1_000.0, "orders-1")
    assert told.outage.lasts_s == 1
    told.outage.answered("orders-1")
    assert len(told.lines) == 2 and "answers again after 8 s" in told.lines[1]


def test_an_outage_logs_its_start_each_minute_and_its_end(told):
    for _ in range(130):
        told.outage.failed("NextPlan", 1_000.0, "Connection refused")
        told.now_s += 1
    told.outage.answered("NextPlan")
    assert told.lines == [
        "kafka:9092: no answer for 3 s: Connection refused",
        "kafka:9092: no answer for 63 s: Connection refused",
        "kafka:9092: no answer for 123 s: Connection refused",
        "kafka:9092: answers again after 130 s",
    ]
    assert told.outage.lasts_s == 0


def test_a_failure_of_a_few_seconds_logs_no_outage(told):
    told.outage.failed("NextPlan", 1_000.0, "Connection refused")
    told.now_s += 2
    told.outage.answered("NextPlan")
    assert told.lines == []


def test_an_answer_to_another_kind_of_request_does_not_end_an_outage(told):
    for _ in range(10):
        told.outage.failed("NextPlan", 1_000.0, "Connection refused")
        told.outage.answered("Heartbeat")
        told.now_s += 1
    told.outage.answered("NextPlan")
    assert told.lines == ["kafka:9092: no answer for 3 s: Connection refused", "kafka:9092: answers again after 10 s"]


OF_TEN_SECONDS = ["no answer for 10 s: Connection refused", "answers again after 10 s"]


def said(told):
    return [line.split(": ", 1)[1] for line in told.lines]


def test_a_second_outage_is_logged_separately(told):
    for begun_s in (1_000.0, 5_000.0):
        told.now_s = begun_s + 10
        told.outage.failed("NextPlan", begun_s, "Connection refused")
        told.outage.answered("NextPlan")
    assert said(told) == [*OF_TEN_SECONDS, *OF_TEN_SECONDS]


def test_a_forgotten_request_ends_its_outage(told):
    told.outage.failed("orders-0", 1_000.0, "Connection refused")
    told.outage.forget("orders-0")
    assert told.outage.lasts_s == 0
    told.now_s = 5_010.0
    told.outage.failed("orders-1", 5_000.0, "Connection refused")
    told.outage.answered("orders-1")
    assert said(told) == OF_TEN_SECONDS


# --- the client


class Coordinator:
    """Answers with the errors, one after the other, then with Done; as directory and connection in one."""

    are_several = False
    where = "kafka:9092 kafka"
    naming_log = staticmethod(lambda error: error)

    def __init__(self, *errors, refuses_us=False):
        self.errors = list(errors)
        self.asked = 0
        self.renewed = 0
        self._refuses_us = refuses_us

    def connect(self, group_id=""):
        return self

    def call(self, request, timeout_s=0.0, request_id=""):
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)
        return Done()

    call_with_rows = None
    gone = None
    gave_up = OnDemand(bootstrap_servers="kafka:9092", kafka_config={}, cluster_id="c", state_store="kafka").gave_up

    def renew(self, connection, error):
        self.renewed += 1
        if self._refuses_us:
            raise error


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """The client asks again without a pause."""
    monkeypatch.setattr(
        client_module.tenacity, "wait_random_exponential", lambda **_: client_module.tenacity.wait_none()
    )


def client_of(coordinator, timeout_s=300.0):
    return CoordinatorClient(coordinator, retry_timeout_s=timeout_s)


@pytest.mark.parametrize("request_", [POLL, BEAT], ids=["NextPlan", "Heartbeat"])
@pytest.mark.parametrize("error", [AWAY, NOT_AVAILABLE], ids=["BrokerNotReachable", "CoordinatorNotAvailable"])
def test_a_running_query_retries_while_brokers_are_away(error, request_):
    coordinator = Coordinator(*[error] * 20)
    assert client_of(coordinator).call(request_) == Done()
    assert coordinator.asked == 21


@pytest.mark.parametrize("request_", [POLL, BEAT], ids=["NextPlan", "Heartbeat"])
def test_a_client_that_ends_its_retries_asks_once_more(request_):
    """A consumer that is closed does not wait for the end of an outage."""
    coordinator = Coordinator(*[NOT_AVAILABLE] * 20)
    client = client_of(coordinator)
    client.end_retries(0)
    with pytest.raises(CoordinatorNotAvailable):
        client.call(request_)
    assert coordinator.asked == 1


def connected(monkeypatch, *errors, **options):
    """How often the cluster was asked for its id, with these errors, until there was a client."""
    left, asked = list(errors), []

    def cluster_id(*_):
        asked.append(1)
        if left:
            raise left.pop(0)
        return "c"

    monkeypatch.setattr(client_module, "cluster_id", cluster_id)
    monkeypatch.setattr(OnDemand, "connect", lambda self, group_id="": Coordinator())
    CoordinatorClient.connect("kafka:9092", {}, **options)
    return len(asked)


def started_with(directory, brokers):
    """An endpoint file of a coordinator that was started with these brokers."""
    write_endpoint(
        directory / f"endpoint-{len(brokers)}.json", Endpoint(host="h", port=1, token="t", pid=1, brokers=brokers)
    )


@pytest.fixture
def runtime(monkeypatch, tmp_path):
    """An empty runtime folder, in a process that has reached no brokers."""
    monkeypatch.setattr(client_module, "_reached", set())
    monkeypatch.setenv("SHAREGROUP_RUNTIME_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.mark.parametrize("brokers", ["kafka:9092", "other:9092, Kafka:9092", "kafka:9092,third:9092"])
def test_a_new_sink_retries_during_the_outage_of_its_query(monkeypatch, runtime, brokers):
    started_with(runtime, brokers)
    assert connected(monkeypatch, *[AWAY] * 20, in_batch=True) == 21
    with pytest.raises(BrokerSecurityFailed):
        connected(monkeypatch, REFUSED, in_batch=True)


def test_a_sink_whose_brokers_have_answered_its_process_retries(monkeypatch, runtime):
    assert connected(monkeypatch, in_batch=True) == 1
    assert connected(monkeypatch, *[AWAY] * 20, in_batch=True) == 21


@pytest.mark.parametrize("brokers", ["", "other:9092", "kafka:9093", "kafka:90921"])
def test_a_sink_with_other_brokers_than_every_coordinator_here_fails_soon(monkeypatch, runtime, brokers):
    if brokers:
        started_with(runtime, brokers)
    (runtime / "endpoint-cut.json").write_text("{")
    with pytest.raises(BrokerNotReachable):
        connected(monkeypatch, AWAY, in_batch=True)


def test_a_new_query_fails_at_once_since_its_address_may_be_wrong(monkeypatch):
    with pytest.raises(BrokerNotReachable):
        connected(monkeypatch, AWAY)


def test_brokers_unreachable_at_a_querys_start_are_an_error_at_once():
    coordinator = Coordinator(AWAY)
    join = JoinGroup(group_id="billing", member_id="m1", process_id="p")
    with pytest.raises(BrokerNotReachable):
        client_of(coordinator).call(join)
    assert coordinator.asked == 1


def test_refused_credentials_are_an_error_at_once_in_librdkafkas_words():
    coordinator = Coordinator(REFUSED, refuses_us=True)
    with pytest.raises(BrokerSecurityFailed, match="Invalid username or password"):
        client_of(coordinator).call(POLL)
    assert coordinator.asked == 1


def test_a_coordinator_with_refused_credentials_is_replaced_by_the_querys_own():
    coordinator = Coordinator(REFUSED)
    assert client_of(coordinator).call(POLL) == Done()
    assert coordinator.renewed == 1


def on_another_host(error):
    """The error as of a group's owner on another host."""
    return type(error)(**error.fields, on_host="two (process 7)")


def test_an_owner_s_refused_credentials_end_no_coordinator_of_this_host():
    coordinator = Coordinator(on_another_host(REFUSED))
    with pytest.raises(BrokerSecurityFailed, match=r"^On host two \(process 7\): The Kafka brokers"):
        client_of(coordinator).call(POLL)
    assert coordinator.renewed == 0


def test_an_error_of_an_owner_elsewhere_names_no_log_of_this_host():
    here = OnDemand(bootstrap_servers="kafka:9092", kafka_config={}, cluster_id="c", state_store="kafka")
    for error in (NOT_AVAILABLE, InternalError(what="NextPlan", reason="KeyError")):
        assert ".log" in str(here.naming_log(error))
        assert ".log" not in str(here.naming_log(on_another_host(error)))
    error = here.gave_up("billing", 200, on_another_host(NOT_AVAILABLE))
    assert "On host two (process 7)" in str(error)
    assert ".log" not in str(error)


def test_the_credentials_of_a_standalone_coordinator_are_its_administrator_s():
    endpoints = Endpoints(addresses=(("localhost", 1),), token="a-token-of-some-length")
    with pytest.raises(BrokerSecurityFailed):
        endpoints.renew(SimpleNamespace(), REFUSED)


def test_each_query_retries_for_its_own_five_minutes_by_default():
    options = {"kafka.bootstrap.servers": "k:1", "kafka.group.id": "billing", "subscribe": "orders"}
    assert SourceOptions.parse(options).poll_timeout_ms == 300_000
    patient = SourceOptions.parse({**options, "share.broker.outage.timeout.ms": "900000"})
    assert patient.poll_timeout_ms == 900_000
    hasty = SourceOptions.parse({**options, "share.broker.outage.timeout.ms": "5000"})
    assert hasty.poll_timeout_ms == 120_000
    named = {**options, "share.broker.outage.timeout.ms": "900000", "kafkaConsumer.pollTimeoutMs": "1000"}
    assert SourceOptions.parse(named).poll_timeout_ms == 1_000


def test_a_heartbeat_that_fails_for_a_while_writes_few_lines(caplog):
    client, now_s = client_of(Coordinator(*[NOT_AVAILABLE] * 500)), time.monotonic()
    client._outage = Outage(logging.getLogger("test"), "kafka:9092", clock=lambda: now_s)  # it stands still
    assert client.call(BEAT) == Done()
    assert caplog.records == []


def test_a_closed_client_ends_its_retries_and_connects_no_more(caplog):
    asking, closed = threading.Event(), threading.Event()

    class Away(Coordinator):
        def call(self, request, timeout_s=0.0, request_id=""):
            asking.set()
            assert closed.wait(60)
            return super().call(request)

        def close(self): ...

    coordinator = Away(*[NOT_AVAILABLE] * 5)
    client = client_of(coordinator)
    with ThreadPoolExecutor(1) as thread:
        call = thread.submit(client.call, BEAT)
        assert asking.wait(60)
        client.close()
        closed.set()
        with pytest.raises(CoordinatorNotAvailable):
            call.result(60)
    with pytest.raises(CoordinatorNotAvailable, match="the client is closed"):
        client.call(BEAT)
    assert coordinator.asked == 1
    assert caplog.records == []


class StoppedDirectory:
    """Where a client finds nobody; its process was stopped while it looked, so that an hour has passed."""

    are_several = False
    where = "nowhere"

    def __init__(self, clock):
        self.clock, self.looks = clock, 0

    def connect(self, group_id=""):
        self.looks += 1
        self.clock[0] += 3_600.0
        raise Unreachable("nobody there")

    def gone(self, group_id, reason):
        return CoordinatorNotAvailable(group_id=group_id, reason=reason)


def test_a_client_whose_process_was_stopped_in_a_call_asks_again(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("coordinator.kafka.retries.StopAtDeadline.__init__.__defaults__", (lambda: clock[0],))
    directory = StoppedDirectory(clock)
    client = CoordinatorClient(directory, retry_timeout_s=3 * MAX_ATTEMPT_S)
    with pytest.raises(CoordinatorNotAvailable):
        client.call(DescribeGroup(group_id="billing"))
    assert directory.looks == 3
