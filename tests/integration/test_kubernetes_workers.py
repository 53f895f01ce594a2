"""The program of deploy/kubernetes/workers.yaml runs as in its pods: SIGTERM ends it, then its coordinator in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
import yaml

from sharegroup import Admin
from tests.support.imports import ROOT, python_path
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

KUBERNETES = ROOT / "deploy" / "kubernetes"


@pytest.fixture
def program(tmp_path):
    """The file of the ConfigMap."""
    (conf, _) = yaml.safe_load_all((KUBERNETES / "workers.yaml").read_text(encoding="utf-8"))
    path = tmp_path / "worker.py"
    path.write_text(conf["data"]["worker.py"], encoding="utf-8")
    return path


def test_a_pod_works_and_hands_its_groups_over_at_its_end(kafka, topic, unique, program, tmp_path):
    orders, group, runtime = topic("orders"), unique("group"), tmp_path / "volume" / "own"
    runtime.parent.mkdir()
    kafka.produce(orders, ['{"amount": 1}', "broken", '{"amount": 2}'])
    environment = {
        **os.environ,
        "PYTHONPATH": python_path(),
        "BOOTSTRAP_SERVERS": kafka.bootstrap,
        "GROUP": group,
        "TOPIC": orders,
        "POD_NAME": "pod-1",
        "SHAREGROUP_RUNTIME_DIR": str(runtime),
    }
    log = tmp_path / "log"

    def done():
        with Admin({"bootstrap.servers": kafka.bootstrap}) as admin:
            return not sum(each.lag or 0 for each in admin.list_offsets(group).partitions)

    with log.open("wb") as out:
        pod = subprocess.Popen(
            [KUBERNETES / "hand_over.sh", sys.executable, program], stdout=out, stderr=out, env=environment
        )
    try:
        wait_until(lambda: log.read_text().count("amount") == 2 and done(), what="the records are done")
    finally:
        pod.send_signal(signal.SIGTERM)
        status = pod.wait(240)
    assert status == 0, log.read_text()
    (coordinator,) = runtime.glob("coordinator-*.log")
    assert "the coordinator has ended" in coordinator.read_text().splitlines()[-1]
    assert not list(runtime.glob("endpoint-*.json"))
