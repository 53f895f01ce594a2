"""Fixtures of the unit tests."""

import shutil
import subprocess

import pytest


@pytest.fixture
def cluster():
    """Brokers with the topic orders: one partition with ten records. A module may have its own."""
    from tests.support.fake_cluster import cluster_with_orders  # as below

    return cluster_with_orders(end=10)


@pytest.fixture
def running(cluster, tmp_path, monkeypatch):
    """The service on `cluster`, with its state in a file. It looks at a missing topic again without a pause."""
    from coordinator.service.brokers import subscription  # here, so that tests of the core load no service
    from tests.support.running_service import Running

    monkeypatch.setattr(subscription, "PAUSES_S", (0.0,) * len(subscription.PAUSES_S))
    running = Running(tmp_path / "state.db", cluster)
    yield running
    running.close()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 160 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        shutil.which("mount") is None
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", str(disk)], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("a file system can't be mounted here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)
