"""The examples of a deployment: what Kubernetes and systemd would take, with keys that the coordinator knows."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import jsonschema
import kubernetes_validate
import pytest
import yaml

from coordinator.service import standalone_config
from sharegroup.__main__ import run
from tests.support.imports import ROOT

UNIT = ROOT / "deploy" / "systemd" / "sharegroup-coordinator.service"
KEDA = yaml.safe_load((ROOT / "deploy" / "keda" / "scaled-object.yaml").read_text(encoding="utf-8"))
KUBERNETES = ROOT / "deploy" / "kubernetes"
MANIFEST = KUBERNETES / "coordinators.yaml"
HAND_OVER = KUBERNETES / "hand_over.sh"
# Oldest and newest that the package has schemas of, of those that Kubernetes still supported when this was written.
VERSIONS = ("1.31", kubernetes_validate.latest_version())


@pytest.fixture(scope="module")
def objects():
    return {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))}


@pytest.fixture(scope="module")
def container(objects):
    found, _ = objects["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    return found


@pytest.fixture(scope="module")
def agent(objects):
    """The container that sends the metrics on."""
    _, found = objects["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_the_manifests_fit_kubernetes_schemas(objects, workers, version):
    assert set(objects) == {"ConfigMap", "Service", "PodDisruptionBudget", "StatefulSet"}
    assert set(workers) == {"ConfigMap", "Deployment"}
    for each in (*objects.values(), *workers.values()):
        kubernetes_validate.validate(each, version, strict=True)


def test_the_parts_of_the_manifest_name_each_other(objects, container, agent):
    three = objects["StatefulSet"]["spec"]
    labels = three["template"]["metadata"]["labels"]
    assert three["replicas"] == 3
    assert three["serviceName"] == objects["Service"]["metadata"]["name"]
    assert objects["Service"]["spec"]["clusterIP"] == "None"
    for selector in (
        objects["Service"]["spec"]["selector"],
        three["selector"]["matchLabels"],
        objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
    ):
        assert selector == labels
    pod = three["template"]["spec"]
    mounts = [mount["name"] for each in (container, agent) for mount in each["volumeMounts"]]
    assert {volume["name"] for volume in pod["volumes"]} == set(mounts)
    (conf,) = [volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume]
    assert conf == objects["ConfigMap"]["metadata"]["name"]


def test_the_manifest_has_no_secret_and_keeps_its_files_private(objects):
    assert "Secret" not in objects
    volumes = objects["StatefulSet"]["spec"]["template"]["spec"]["volumes"]
    modes = [volume["secret"]["defaultMode"] for volume in volumes if "secret" in volume]
    assert modes == [0o440, 0o440]


def test_the_coordinator_reads_the_configuration_file_of_the_pods(objects, container, tmp_path):
    path = tmp_path / "coordinator.properties"
    path.write_text(objects["ConfigMap"]["data"]["coordinator.properties"])
    names = {each["name"] for each in container["env"]}
    found = standalone_config.read_config(str(path), dict.fromkeys(names, "x"))
    port = container["ports"][0]["containerPort"]
    assert found.server.share_coordinator_listener == f"0.0.0.0:{port}"
    assert found.server.share_coordinator_advertised_listener == f"x.sharegroup-coordinator.x.svc:{port}"
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    for file in (
        found.config.share_coordinator_token_file,
        found.server.share_coordinator_ssl_certificate_location,
        found.server.share_coordinator_ssl_key_location,
        container["command"][container["command"].index("--config") + 1],
        container["readinessProbe"]["exec"]["command"][-1],
    ):
        assert any(file.startswith(mount + "/") for mount in mounts)


def test_the_metrics_of_the_pods_come_to_the_prometheus_that_keda_asks(objects, container, agent):
    data = objects["ConfigMap"]["data"]
    (port,) = re.findall(r"^share\.coordinator\.metrics\.port=(\d+)$", data["coordinator.properties"], re.MULTILINE)
    file = next(word.partition("=")[2] for word in agent["args"] if word.startswith("--config.file="))
    folder, _, name = file.rpartition("/")
    assert folder in {mount["mountPath"] for mount in agent["volumeMounts"] if mount["name"] == "conf"}
    config = yaml.safe_load(data[name])
    (scraped,) = config["scrape_configs"]
    assert scraped["static_configs"] == [{"targets": [f"127.0.0.1:{port}"]}]
    (label,) = config["global"]["external_labels"].values()
    assert label.strip("${}") in {each["name"] for each in agent["env"]}
    (written,) = config["remote_write"]
    (trigger,) = KEDA["spec"]["triggers"]
    assert written["url"] == f"{trigger['metadata']['serverAddress']}/api/v1/write"


def unit():
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str
    parser.read(UNIT, encoding="utf-8")
    return parser


def test_the_commands_of_both_are_the_command_line_s(container, capsys):
    commands = [
        container["command"],
        container["startupProbe"]["exec"]["command"],
        container["readinessProbe"]["exec"]["command"],
        unit()["Service"]["ExecStart"].split(),
    ]
    for program, *arguments in commands:
        assert program.rpartition("/")[2] == "sharegroup"
        config = arguments.index("--config") + 1
        assert run([*arguments[:config], "none", *arguments[config + 1 :]]) == 1
        assert "InvalidPropertiesFile: The configuration file none " in capsys.readouterr().err


def test_systemd_takes_each_unit(tmp_path):
    """By systemd itself where it is installed, with a program of this host; else by its sections and keys."""
    units = [path for path in (ROOT / "deploy").rglob("*") if path.suffix in (".service", ".timer")]
    assert len(units) == 3
    for path in units:
        text = re.sub(r"(?m)^(ExecStart(?:Pre)?=)\S+", rf"\g<1>{sys.executable}", path.read_text(encoding="utf-8"))
        (tmp_path / path.name).write_text(text)
        parser = configparser.RawConfigParser(strict=False)
        parser.optionxform = str
        parser.read(path, encoding="utf-8")
        assert {"Unit"} < set(parser.sections()) <= {"Unit", "Install", "Service", "Timer"}
        assert all(re.fullmatch(r"[A-Z][A-Za-z]+", key) for section in parser.sections() for key in parser[section])
    if program := shutil.which("systemd-analyze"):
        command = [program, "verify", "--man=no", *(tmp_path / path.name for path in units)]
        found = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (found.returncode, found.stderr) == (0, "")


@pytest.fixture(scope="module")
def workers():
    """The objects of the pods without Spark, by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all((KUBERNETES / "workers.yaml").read_text("utf-8"))}


def test_the_pods_of_workers_have_a_runtime_folder_of_their_own(workers):
    pod = workers["Deployment"]["spec"]["template"]["spec"]
    (worker,) = pod["containers"]
    env = {each["name"]: each.get("value") for each in worker["env"]}
    mounts = {mount["mountPath"]: mount["name"] for mount in worker["volumeMounts"]}
    folder = mounts[os.path.dirname(env["SHAREGROUP_RUNTIME_DIR"])]
    assert [list(volume) for volume in pod["volumes"] if volume["name"] == folder] == [["name", "emptyDir"]]
    assert worker["command"][0] == HAND_OVER.name
    conf, _, program = worker["command"][-1].rpartition("/")
    assert program in workers["ConfigMap"]["data"]
    assert pod["volumes"][0]["configMap"]["name"] == workers["ConfigMap"]["metadata"]["name"]
    assert mounts[conf] == pod["volumes"][0]["name"]
    assert worker["securityContext"]["readOnlyRootFilesystem"]


def test_the_spark_application_has_the_fields_of_the_operator_alone():
    """By names and types from the operator's reference, as far as the manifest uses them."""
    manifest = yaml.safe_load((KUBERNETES / "spark.yaml").read_text("utf-8"))
    schema = json.loads((ROOT / "tests" / "unit" / "docs" / "spark_application_schema.json").read_text("utf-8"))
    jsonschema.validate(manifest, schema)
    job = manifest["spec"]["template"]
    named = {volume["name"] for volume in job["volumes"]}
    assert named == {mount["name"] for mount in job["driver"]["volumeMounts"]}
    with pytest.raises(jsonschema.ValidationError, match="onFailureRetrys"):
        jsonschema.validate(
            {**manifest, "spec": {**manifest["spec"], "template": {**job, "restartPolicy": {"onFailureRetrys": 3}}}},
            schema,
        )


COORDINATOR = """
import pathlib, signal, sys
def told(*_):
    pathlib.Path(sys.argv[1]).touch()
    sys.exit()
signal.signal(signal.SIGTERM, told)
print("ready", flush=True)
signal.pause()
"""


@pytest.mark.parametrize("status", [0, 3])
def test_the_container_ends_its_coordinator_after_its_program(tmp_path, status):
    """By SIGTERM, which comes to the first process alone; the status is the program's."""
    left = tmp_path / "left"
    command = [sys.executable, "-c", COORDINATOR, str(left)]
    coordinator = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert coordinator.stdout.readline() == "ready\n"
        (tmp_path / "endpoint-1.json").write_text(json.dumps({"host": "127.0.0.1", "pid": coordinator.pid}))
        program = f"trap 'test ! -e {left} && exit {status}' TERM; echo runs; for _ in $(seq 1200); do sleep 0.05; done"
        environment = {**os.environ, "SHAREGROUP_RUNTIME_DIR": str(tmp_path)}
        container = subprocess.Popen(
            [HAND_OVER, "sh", "-c", program], stdout=subprocess.PIPE, text=True, env=environment
        )
        assert container.stdout.readline() == "runs\n"
        container.send_signal(signal.SIGTERM)
        assert container.wait(60) == status
        assert left.exists()
    finally:
        coordinator.kill()
        coordinator.communicate()


def test_a_container_without_a_coordinator_ends_with_its_program(tmp_path):
    environment = {**os.environ, "SHAREGROUP_RUNTIME_DIR": str(tmp_path)}
    assert subprocess.run([HAND_OVER, "sh", "-c", "exit 5"], env=environment, timeout=60).returncode == 5
