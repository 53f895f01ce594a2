"""A ShareConsumer and the command line in a sandbox: what it forbids is named, and a standalone coordinator is the way
out."""

import contextlib
import subprocess
import sys

import pytest

from tests.support.far_host import FarBroker, far_host
from tests.support.sandbox import VARIABLE, sandbox_folder
from tests.support.standalone import Certificates, StandaloneProcess, command, environment

pytestmark = pytest.mark.broker

CONSUMER = """
import sys
from sharegroup import ShareConsumer
config = {"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "share.auto.offset.reset": "earliest"}
with ShareConsumer(config | dict(option.split("=") for option in sys.argv[4:])) as consumer:
    consumer.subscribe([sys.argv[3]])
    found = []
    while len(found) < 3:
        found += [message.value().decode() for message in consumer.poll(5.0)]
    print(found)
"""
REASONS = {
    "execve,execveat": "a process can't be started (Operation not permitted",
    "listen": "it can't listen at 127.0.0.1:0",
}


@pytest.fixture
def in_sandbox(tmp_path, own_runtime):
    """Runs a command under the sandbox to its end; the calls that it forbids are the first argument."""
    folder = sandbox_folder(tmp_path / "sandbox")

    def run(forbidden, *arguments):
        given = environment({VARIABLE: forbidden})
        given["PYTHONPATH"] = f"{folder}:{given['PYTHONPATH']}"
        return subprocess.run(arguments, capture_output=True, text=True, timeout=120, env=given, check=False)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("forbidden", REASONS)
def test_a_sandbox_without_processes_or_listeners_is_named(kafka, topic, unique, in_sandbox, forbidden):
    consumer = in_sandbox(forbidden, sys.executable, "-c", CONSUMER, kafka.bootstrap, unique("group"), topic("orders"))
    assert consumer.returncode == 1
    last = consumer.stderr.splitlines()[-1]
    assert f"No coordinator for {kafka.bootstrap} can run on this host: {REASONS[forbidden]}" in last
    assert "name it: share.coordinator.endpoint=HOST:PORT" in last


@pytest.mark.slow
def test_a_sandboxed_consumer_works_with_a_standalone_coordinator(kafka, topic, unique, in_sandbox, tmp_path):
    orders, group, forbidden = topic("orders"), unique("group"), ",".join(REASONS)
    kafka.produce(orders, ["a", "b", "c"])
    with contextlib.closing(StandaloneProcess(tmp_path, {"bootstrap.servers": kafka.bootstrap})) as coordinator:
        way_out = {
            "share.coordinator.endpoint": coordinator.wait_ready().endpoint,
            "share.coordinator.token.file": coordinator.token_file,
        }
        options = [f"{key}={value}" for key, value in way_out.items()]
        consumer = in_sandbox(forbidden, sys.executable, "-c", CONSUMER, kafka.bootstrap, group, orders, *options)
        assert (consumer.returncode, consumer.stdout) == (0, "['a', 'b', 'c']\n"), consumer.stderr
        asked = ["groups", "--bootstrap-server", kafka.bootstrap, "--list"]
        asked += [f"--command-property={option}" for option in options]
        listed = in_sandbox(forbidden, *command(asked))
        assert listed.returncode == 0, listed.stderr
        assert group in listed.stdout.split()


@pytest.mark.soak
def test_without_loopback_the_named_remedy_works(unique, own_runtime, tmp_path):
    """The test needs root, and `ip` of iproute2."""
    group = unique("group")
    with far_host() as host, FarBroker(host.here) as broker:
        subprocess.run(["ip", "-n", host.name, "link", "set", "lo", "down"], check=True)
        broker.create_topic("orders")
        broker.produce("orders", ["a", "b", "c"])
        program = [sys.executable, "-c", CONSUMER, broker.far_bootstrap, group, "orders"]
        consumer = host.run(*program)
        assert "which may be cut off from the host's own network" in consumer.stderr.splitlines()[-1]

        certificates = Certificates(tmp_path, host.here)
        configs = {"bootstrap.servers": broker.bootstrap, "share.coordinator.listener": f"{host.here}:0"}
        with contextlib.closing(StandaloneProcess(tmp_path, configs | certificates.configs)) as coordinator:
            way_out = {
                "share.coordinator.endpoint": coordinator.wait_ready().endpoint,
                "share.coordinator.token.file": coordinator.token_file,
                "share.coordinator.ssl.ca.location": certificates.ca,
            }
            consumer = host.run(*program, *(f"{key}={value}" for key, value in way_out.items()))
        assert (consumer.returncode, consumer.stdout) == (0, "['a', 'b', 'c']\n"), consumer.stderr
