"""A coordinator on demand knows the groups of those that it takes the place of, and of no others."""

import shutil

import pytest

from coordinator.client.on_demand import OnDemand
from coordinator.config.secret_files import RUNTIME_VARIABLE
from coordinator.service.stores.kafka.ownership import installation_id


def test_each_listener_of_a_host_has_its_own_installation_id():
    """A standalone coordinator that is started again takes its groups back at once, and none of its neighbour's."""
    one, two = "127.0.0.1:9394", "127.0.0.1:9395"
    assert installation_id(one) == installation_id(one) != installation_id(two)


def test_each_runtime_directory_has_its_own_installation_id(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    assert installation_id(one) == installation_id(one) != installation_id(two)


def test_the_installation_id_survives_the_deletion_of_its_folder(tmp_path):
    one = tmp_path / "one"
    one.mkdir()
    before = installation_id(one)
    shutil.rmtree(one)
    assert installation_id(one) == before
    one.mkdir()
    assert installation_id(one) == before
    (tmp_path / "link").symlink_to(one)
    assert installation_id(tmp_path / "link") == before


BY_NAME, BY_BOOT, BY_NETWORK = "socket.gethostname", "pathlib.Path.read_text", "os.readlink"


@pytest.mark.parametrize("differ", [BY_NAME, BY_BOOT, BY_NETWORK])
def test_hosts_share_a_runtime_directory_and_no_files_or_id(differ, monkeypatch, tmp_path):
    """Containers may have one host name."""
    monkeypatch.setenv(RUNTIME_VARIABLE, str(tmp_path))
    directory = OnDemand(bootstrap_servers="b:1", kafka_config={}, cluster_id="a-cluster", state_store="kafka")
    files, ids = set(), set()
    for host in ("one", "two"):
        monkeypatch.setattr(differ, lambda *asked, host=host, **_: host)
        files |= {directory.endpoint_path, directory.log_path, directory._lock_path}
        ids.add(installation_id(tmp_path))
    assert (len(files), len(ids)) == (6, 2)
