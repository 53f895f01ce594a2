"""A coordinator on demand that load() starts, and does not wait for: there is one, whoever asks for it meanwhile."""

import contextlib

import psutil
import pytest

from coordinator.client.on_demand import OnDemand
from coordinator.kafka.cluster_metadata import cluster_id
from coordinator.protocol.errors import UnknownTopic
from pyspark_sharegroup import DefaultSource
from tests.support.coordinator_process import kill
from tests.support.standalone import write_secret
from tests.support.waiting import wait_until


@pytest.fixture
def runtime(runtime):
    """The runtime folder of the test. At the end its coordinators are killed, also those that do not serve yet."""
    yield runtime
    for process in coordinators(runtime):
        kill(process.pid)


@pytest.fixture
def directory(kafka, runtime):
    return OnDemand(
        bootstrap_servers=kafka.bootstrap,
        kafka_config={},
        cluster_id=cluster_id(kafka.bootstrap, {}),
        state_store="kafka",
    )


def coordinators(runtime):
    """The coordinators of the runtime folder, also those that do not serve yet."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if "coordinator.service" in process.cmdline() and process.cwd() == str(runtime):
                found.append(process)
    return found


def load(kafka, topic, **options):
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "kafka.group.id": "billing", "subscribe": topic, **options}
    return DefaultSource(given).schema()


def test_one_coordinator_is_started_for_starts_ahead_and_a_client_meanwhile(directory, runtime):
    assert [directory.start_ahead(), directory.start_ahead()] == [True, False]
    (started,) = wait_until(lambda: coordinators(runtime), what="its process runs")
    connection = directory.connect()
    assert connection.endpoint.pid == started.pid
    assert not directory.start_ahead(), "one runs"
    assert coordinators(runtime) == [started]
    connection.close()


def test_a_coordinator_that_dies_before_serving_delays_no_client(directory, runtime):
    assert directory.start_ahead()
    (started,) = wait_until(lambda: coordinators(runtime), what="its process runs")
    kill(started.pid)
    connection = directory.connect()
    assert connection.endpoint.pid != started.pid
    connection.close()


def test_a_coordinator_that_serves_holds_no_start_lock(directory, runtime):
    directory.start_ahead()
    directory.connect().close()
    (endpoint,) = runtime.glob("endpoint-*.json")
    kill(coordinators(runtime)[0].pid)
    endpoint.unlink()
    assert directory.start_ahead()


def test_load_starts_the_coordinator_of_its_cluster(kafka, unique, directory, runtime):
    kafka.create_topic(topic := unique("orders"))
    load(kafka, topic)
    wait_until(directory.endpoint_path.exists, what="it serves")
    connection = directory.connect()
    assert [process.pid for process in coordinators(runtime)] == [connection.endpoint.pid]
    connection.close()


def test_a_refused_load_or_one_for_a_standalone_coordinator_starts_none(kafka, unique, runtime, tmp_path):
    with pytest.raises(UnknownTopic):
        load(kafka, unique("no-such-topic"))
    kafka.create_topic(topic := unique("orders"))
    token = write_secret(tmp_path / "token", "t" * 40)
    load(kafka, topic, **{"share.coordinator.endpoint": "nowhere:1", "share.coordinator.token.file": str(token)})
    assert coordinators(runtime) == []
