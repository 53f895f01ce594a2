"""A coordinator on demand: found or started, one for all, killed at any time, gone when idle; and members' sessions."""

import gc
import json
import os
import random
import resource
import signal
import socket
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from coordinator.client import connection, on_demand
from coordinator.client.client import CoordinatorClient
from coordinator.client.session import MemberSession
from coordinator.kafka import cluster_metadata
from coordinator.protocol.errors import CoordinatorVersionMismatch, UnsafeDirectory
from coordinator.protocol.format_versions import PROTOCOL
from coordinator.protocol.messages import DescribeGroup, LatestOffsets, NextPlan, StartPlan
from coordinator.service.stores.sqlite_store import SqliteStore
from tests.support.coordinator_process import has_ended, kill
from tests.support.stopped_process import stop_process
from tests.support.waiting import wait_until

SECRET = "s3cret-of-the-broker"
RECORDS = 1_000


@pytest.fixture
def connect(embedded, runtime, tmp_path):
    """Clients of one coordinator; more of them on each call."""
    clients = []

    def new(**options):
        options.setdefault("state_store", f"sqlite:{tmp_path / 'state.db'}")
        client = CoordinatorClient.connect(embedded.bootstrap_servers, {"sasl.password": SECRET}, **options)
        clients.append(client)
        return client

    yield new
    for client in clients:
        client.close()


@pytest.fixture
def orders(embedded, unique):
    """A topic with RECORDS records."""
    name = unique("orders")
    embedded.create_topic(name)
    producer = Producer({"bootstrap.servers": embedded.bootstrap_servers, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(name, str(number).encode(), partition=number % 4)
    assert producer.flush(30) == 0
    return name


@pytest.fixture
def join(orders):
    sessions = []

    def new(client, member="m1", **options):
        session = MemberSession(client, "billing", member, topics=(orders,), starting_offsets="earliest", **options)
        sessions.append(session)
        return session

    yield new
    for session in sessions:
        session.close()


def endpoint_file(runtime):
    (path,) = runtime.glob("endpoint-*.json")
    return path


# --- one coordinator


def test_processes_that_start_at_once_get_one_coordinator(connect, embedded, runtime, tmp_path):
    program = (
        "import sys; from coordinator.client.client import CoordinatorClient as C;"
        "print(C.connect(sys.argv[1], {}, sys.argv[2]).endpoint_of('').pid)"
    )
    arguments = [sys.executable, "-c", program, embedded.bootstrap_servers, f"sqlite:{tmp_path / 'state.db'}"]
    children = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    pids = {child.communicate(timeout=180)[0].strip() for child in children}
    assert pids == {str(connect().endpoint_of("").pid)}


def test_a_process_with_two_thousand_open_files_starts_a_coordinator(connect):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(2_000)]
    try:
        assert connect().endpoint_of("").pid > 0
    finally:
        for number in files:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_clients_that_come_and_go_leave_no_files_open(connect, embedded):
    connect()  # the coordinator stays, and with it what its start opened
    gc.disable()
    try:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            cluster_metadata.cluster_id(embedded.bootstrap_servers, {})
            connect().close()
        wait_until(lambda: len(os.listdir("/proc/self/fd")) < before + 5, what="gRPC keeps one, Kafka's clients none")
    finally:
        gc.enable()


def test_two_stores_of_one_cluster_have_two_coordinators(connect, tmp_path):
    assert connect().endpoint_of("").pid != connect(state_store=f"sqlite:{tmp_path / 'other.db'}").endpoint_of("").pid


def test_an_unnamed_state_file_is_the_clusters_own_in_the_state_directory(connect, monkeypatch, tmp_path):
    monkeypatch.setenv(on_demand.STATE_VARIABLE, str(tmp_path / "states"))
    connect(state_store="sqlite")
    connect(state_store="sqlite")
    assert len(list((tmp_path / "states").glob("mockCluster*.db"))) == 1


def test_the_coordinator_outlives_its_starters_terminal_and_listens_on_loopback_only(connect):
    process = psutil.Process(connect().endpoint_of("").pid)
    assert os.getsid(process.pid) == process.pid != os.getsid(0)
    listening = [each for each in process.net_connections() if each.status == "LISTEN"]
    assert {each.laddr.ip for each in listening} <= {"127.0.0.1", "::ffff:127.0.0.1"}


# --- killed


def test_after_a_kill_the_next_call_finds_the_state_kept(connect, join):
    client = connect()
    session = join(client)
    plan = session.call(lambda who: NextPlan(**who, max_records=100)).plan
    killed = client.endpoint_of("").pid
    kill(killed)
    assert session.call(lambda who: NextPlan(**who, max_records=100)).plan == plan
    assert client.endpoint_of("").pid != killed
    assert session.member_epoch == 1


def test_a_call_that_waits_while_the_coordinator_is_killed_is_answered(connect, join, orders, embedded):
    client = connect()
    session = join(client)
    number = session.call(lambda who: NextPlan(**who)).plan.plan_id
    session.call(lambda who: StartPlan(**who, plan_id=number))
    answers = []

    def wait_for_records():
        answers.append(session.call(lambda who: NextPlan(**who, start=number, wait_ms=20_000)))

    thread = threading.Thread(target=wait_for_records)
    thread.start()
    wait_until(lambda: client.call(DescribeGroup(group_id="billing")).partitions[0].acquired == 0, what="it waits")
    kill(client.endpoint_of("").pid)
    producer = Producer({"bootstrap.servers": embedded.bootstrap_servers, "log_level": 0})
    producer.produce(orders, b"new", partition=0)
    assert producer.flush(30) == 0
    thread.join(120)
    assert answers[0].plan.partitions[0].ranges == ((250, 250, 1),)


def start_next(session, start):
    """The next plan, which is started; one without an id: there is none."""
    plan = session.call(lambda who: NextPlan(**who, start=start, max_records=4)).plan
    if plan.plan_id:
        session.call(lambda who: StartPlan(**who, plan_id=plan.plan_id))
    return plan


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_with_coordinators_killed_each_record_is_completed_in_exactly_one_plan(connect, join, seed):
    chance = random.Random(seed)
    client = connect()
    session = join(client)
    done, number, finished = [], "", threading.Event()

    def kill_now_and_then():
        for _ in range(5):
            if finished.wait(chance.uniform(0.05, 0.4)):
                return
            kill(client.endpoint_of("").pid)

    killer = threading.Thread(target=kill_now_and_then)
    killer.start()
    while True:
        plan = start_next(session, number)
        if not plan.plan_id:
            break
        number = plan.plan_id
        done += [(p.partition, o) for p in plan.partitions for r in p.ranges for o in range(r.first, r.last + 1)]
    finished.set()
    killer.join()
    assert sorted(done) == [(p, o) for p in range(4) for o in range(RECORDS // 4)], f"seed {seed}"
    assert session.member_epoch == 1


@pytest.mark.slow
@pytest.mark.parametrize("left", ["dead process", "another program's port", "garbage", "nothing"])
def test_a_stale_endpoint_file_is_replaced(connect, runtime, left):
    killed = connect().endpoint_of("").pid
    path = endpoint_file(runtime)
    kill(killed)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        if left == "another program's port":
            path.write_text(json.dumps({**json.loads(path.read_text()), "port": other.getsockname()[1]}))
        elif left == "garbage":
            path.write_bytes(b"\x00{")
        elif left == "nothing":
            path.unlink()
        assert connect().endpoint_of("").pid != killed


# --- stopped


@pytest.mark.slow
def test_a_coordinator_stopped_for_longer_than_a_session_ends_no_session(connect, join):
    """m1 is in a batch, m2 asks for records all the time; both live, and nobody hears them for a while."""
    configs = {"share.session.timeout.ms": "3000"}
    first, second = join(connect(), configs=configs), join(connect(), "m2", configs=configs)
    plan = first.call(lambda who: NextPlan(**who)).plan
    first.call(lambda who: StartPlan(**who, plan_id=plan.plan_id))
    coordinator = psutil.Process(connect().endpoint_of("").pid)
    stop_process(coordinator.pid)
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(second.call, lambda who: NextPlan(**who, wait_ms=1_000))
        with pytest.raises(psutil.TimeoutExpired):  # the kernel's wait for its exit is the clock
            coordinator.wait(3.5)  # after 5 s gRPC would end the connections
        coordinator.send_signal(signal.SIGCONT)
        assert asked.result().plan.plan_id == ""
    assert second.call(lambda who: NextPlan(**who)).plan.plan_id == ""
    assert first.call(lambda who: NextPlan(**who, start=plan.plan_id)).plan.plan_id == ""
    assert connect().call(DescribeGroup(group_id="billing")).partitions[0].start_offset == RECORDS // 4
    assert connect().endpoint_of("").pid == coordinator.pid


# --- leaving


@pytest.mark.slow
def test_an_idle_coordinator_leaves_and_is_started_again(connect, join, runtime):
    client = connect(configs={"share.coordinator.idle.timeout.ms": "1000"})
    session = join(client)
    first = psutil.Process(client.endpoint_of("").pid)
    session.call(lambda who: LatestOffsets(**who))
    session.close(leave=True)
    wait_until(lambda: not list(runtime.glob("endpoint-*.json")), what="its endpoint file is gone")
    wait_until(lambda: has_ended(first), what="it has ended")
    assert client.call(DescribeGroup(group_id="billing")).state == "EMPTY"


def test_sigterm_removes_the_endpoint_file_and_releases_the_store(connect, runtime, tmp_path):
    kill(connect().endpoint_of("").pid, signal.SIGTERM)
    assert not list(runtime.glob("endpoint-*.json"))
    SqliteStore(tmp_path / "state.db").close()


# --- secrets


def test_secrets_are_nowhere_that_others_can_read(connect, runtime, join):
    client = connect()
    join(client).call(lambda who: NextPlan(**who))
    process = psutil.Process(client.endpoint_of("").pid)
    path = endpoint_file(runtime)
    token = json.loads(path.read_text())["token"]
    (log,) = runtime.glob("coordinator-*.log")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(log.stat().st_mode) == 0o600
    assert "joined" in log.read_text()
    for text in (" ".join(process.cmdline()), str(process.environ()), log.read_text(), repr(client)):
        assert SECRET not in text
        assert token not in text
    assert SECRET not in path.read_text()
    assert SECRET not in repr(client._directory)


def test_a_runtime_directory_that_others_can_write_to_is_refused(embedded, monkeypatch, tmp_path):
    tmp_path.chmod(0o777)
    monkeypatch.setenv(on_demand.RUNTIME_VARIABLE, str(tmp_path))
    with pytest.raises(UnsafeDirectory, match="others may write to it"):
        CoordinatorClient.connect(embedded.bootstrap_servers)


def test_without_a_usable_runtime_directory_the_user_gets_a_private_one(monkeypatch, tmp_path):
    monkeypatch.delenv(on_demand.RUNTIME_VARIABLE)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file" / "none"))
    monkeypatch.setattr(on_demand.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(on_demand.platformdirs, "user_runtime_dir", lambda *_, **__: str(tmp_path / "file" / "none"))
    directory = on_demand.runtime_dir()
    assert directory == Path(tmp_path) / f"sharegroup-{os.getuid()}"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


# --- errors by name


def test_a_coordinator_of_another_version_is_refused_and_not_replaced(connect, runtime, monkeypatch):
    """The endpoint file names the coordinator's protocol version, and so do its answers."""
    connect()
    before = endpoint_file(runtime).read_bytes()
    assert json.loads(before)["protocol"] == PROTOCOL
    monkeypatch.setattr(connection, "PROTOCOL", PROTOCOL + 1)
    with pytest.raises(CoordinatorVersionMismatch, match=rf"protocol {PROTOCOL} .*protocol {PROTOCOL + 1}, .*upgrade"):
        connect()
    assert endpoint_file(runtime).read_bytes() == before
