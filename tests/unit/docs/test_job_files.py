"""deploy/jobs: what systemd, Databricks, Airflow and EMR would take, and that all call the one script alike."""

from __future__ import annotations

import ast
import configparser
import json
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import jsonschema
import pytest
import yaml

from share_source.options import SourceOptions
from tests.support.imports import ROOT

JOBS = ROOT / "deploy" / "jobs"
DAG_FILE = JOBS / "airflow" / "sharegroup_nightly.py"
SCRIPT = ast.parse((JOBS / "nightly.py").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def bundle():
    return yaml.safe_load((JOBS / "databricks" / "databricks.yml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def service():
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str
    parser.read(JOBS / "systemd" / "sharegroup-nightly.service", encoding="utf-8")
    return parser["Service"]


@pytest.fixture
def dag(monkeypatch):
    """The arguments of the DAG and of its one task, after Airflow has executed the file: a stub that records them."""
    calls = {}

    class Recorded:
        def __init__(self, **arguments):
            assert type(self).__name__ not in calls
            calls[type(self).__name__] = arguments

        def __enter__(self):
            calls["within"] = "DAG"
            return self

        def __exit__(self, *_):
            del calls["within"]

    class DAG(Recorded):
        """A with block, to which the tasks in it belong."""

    class BashOperator(Recorded):
        def __init__(self, **arguments):
            super().__init__(**arguments)
            assert calls["within"] == "DAG"

    modules = {"airflow.sdk": {"DAG": DAG}, "airflow.providers.standard.operators.bash": {"BashOperator": BashOperator}}
    for name, content in modules.items():
        words = name.split(".")
        for length in range(1, len(words)):
            monkeypatch.setitem(sys.modules, ".".join(words[:length]), ModuleType(words[length - 1]))
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    runpy.run_path(str(DAG_FILE))
    return calls


@pytest.fixture(scope="module")
def step():
    """The arguments of EMR's step."""
    (found,) = json.loads((JOBS / "emr" / "step.json").read_text(encoding="utf-8"))
    assert set(found) == {"Name", "ActionOnFailure", "HadoopJarStep"}
    assert found["ActionOnFailure"] in {"TERMINATE_CLUSTER", "CANCEL_AND_WAIT", "CONTINUE"}
    assert found["HadoopJarStep"]["Jar"] == "command-runner.jar"
    return found["HadoopJarStep"]["Args"]


def options_of(words):
    """The options of the source that the arguments of a script give it."""
    return dict(word.split("=", 2)[1:] for word in words if word.startswith("--option="))


def literal(name):
    """The value that the script assigns to this name at its top."""
    (found,) = [node.value for node in SCRIPT.body if isinstance(node, ast.Assign) and node.targets[0].id == name]
    return ast.literal_eval(found)


def arguments():
    """The arguments that the script has."""
    calls = [node for node in ast.walk(SCRIPT) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    return {call.args[0].value for call in calls if call.func.attr == "add_argument"}


def test_the_bundle_has_the_fields_of_a_databricks_job_alone(bundle):
    """By names and types from the reference of Databricks' Jobs API, as far as the bundle uses them."""
    schema = json.loads(Path(__file__).with_name("databricks_job_schema.json").read_text(encoding="utf-8"))
    job = bundle["resources"]["jobs"]["nightly"]
    jsonschema.validate(job, schema)
    with pytest.raises(jsonschema.ValidationError, match="max_retrie"):
        jsonschema.validate({**job, "tasks": [{**job["tasks"][0], "max_retrie": 3}]}, schema)


def test_the_bundle_uses_exactly_the_variables_that_it_declares(bundle):
    (task,) = bundle["resources"]["jobs"]["nightly"]["tasks"]
    program = task["spark_python_task"]
    assert (JOBS / "databricks" / program["python_file"]).resolve() == JOBS / "nightly.py"
    assert {word.split("=")[0] for word in program["parameters"]} <= arguments()
    options = options_of(program["parameters"])
    given = {key: re.sub(r"\$\{var\.\w+\}", "name:9092", value) for key, value in options.items()}
    SourceOptions.parse({**literal("OPTIONS"), **given, "kafka.group.id": "name", "subscribe": "name"})
    used = set(re.findall(r"\$\{var\.(\w+)\}", json.dumps(bundle)))
    assert used == set(bundle["variables"])


def test_systemd_and_airflow_run_the_same_command(service, dag):
    command = shlex.split(service["ExecStart"])
    bash = shlex.split(dag["BashOperator"]["bash_command"])
    assert bash[0] == "exec"  # signals of Airflow reach Spark
    assert command[0].endswith("/spark-submit")
    assert bash[2:] == command[1:]
    assert {word for word in command if word.startswith("--")} - {"--master"} <= arguments()
    options = json.loads((JOBS / "systemd" / "nightly.json").read_text(encoding="utf-8"))
    SourceOptions.parse({**literal("OPTIONS"), **options})


def test_the_step_of_emr_runs_in_the_python_of_its_bootstrap(step):
    assert step[0] == "spark-submit"
    script = next(number for number, word in enumerate(step) if word.endswith("/nightly.py"))
    words = step[script + 1 :]
    assert {word.split("=")[0] for word in words} <= arguments()
    SourceOptions.parse({**literal("OPTIONS"), **options_of(words)})
    (python,) = [word.rpartition("=")[2] for word in step if word.startswith("--conf=spark.pyspark.python=")]
    program = (JOBS / "emr" / "bootstrap.sh").read_text(encoding="utf-8")
    environment = python.removesuffix("/bin/python")
    assert f"-m venv {environment}\n" in program
    assert f"{environment}/bin/pip install " in program


def test_the_bootstrap_action_copies_its_wheel_and_installs_it(tmp_path):
    """With the programs of an EMR node replaced by ones that say how they were called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("aws", "sudo"):
        (folder / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
        (folder / name).chmod(0o755)
    script = JOBS / "emr" / "bootstrap.sh"
    ran = subprocess.run(
        [script, "s3://bucket/some-1.whl"],
        capture_output=True,
        text=True,
        env={"PATH": f"{folder}:/usr/bin:/bin", "TMPDIR": str(tmp_path)},
    )
    assert ran.returncode == 0, ran.stderr
    copied, made, installed = ran.stdout.splitlines()
    assert copied.startswith("aws s3 cp s3://bucket/some-1.whl /")
    assert made.startswith("sudo python3")
    assert installed.endswith(f"/pip install --quiet {copied.split()[-1]}")
    assert copied.endswith("/some-1.whl")


def test_each_scheduler_retries_within_the_session(bundle, service, dag):
    session_s = int(literal("OPTIONS")["share.session.timeout.ms"]) / 1000
    (task,) = bundle["resources"]["jobs"]["nightly"]["tasks"]
    airflow = dag["BashOperator"]
    pauses = [task["min_retry_interval_millis"] / 1000, int(service["RestartSec"].removesuffix("s"))]
    pauses.append(airflow["retry_delay"].total_seconds())
    assert all(0 < pause <= session_s / 2 for pause in pauses)
    assert (task["max_retries"], airflow["retries"], service["Restart"]) == (10, 10, "on-failure")
