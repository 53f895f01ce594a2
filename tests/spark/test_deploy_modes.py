"""spark-submit to a standalone cluster, whose executors get this project in each of Spark's ways, or in none."""

import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support.share_job import numbers
from tests.support.spark_cluster import SparkCluster
from tests.support.submitted_job import bare_python, cluster_environment, full_python, packed, submit, zipped

pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(900)]

RECORDS = 2_000


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    """A Python that has all packages but this project."""
    return bare_python(tmp_path_factory.mktemp("without") / "environment")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A Python that has this project as well."""
    return full_python(tmp_path_factory.mktemp("installed") / "environment")


@pytest.fixture(scope="module")
def cluster(without):
    """Two workers whose `python3` has not this project."""
    with SparkCluster(cluster_environment(without)) as found:
        yield found.wait_ready()


@pytest.fixture
def queue(kafka, topic, job):
    orders = topic("orders", partitions=2)
    kafka.produce(orders, numbers(RECORDS))
    return job(orders, minPartitions=2, maxOffsetsPerTrigger=RECORDS // 2)


@pytest.fixture
def folder():
    """Where spark-submit runs: a short path, since sockets lie in it."""
    with tempfile.TemporaryDirectory(prefix="sgs-", ignore_cleanup_errors=True) as found:
        yield Path(found)


@pytest.fixture
def run(cluster, queue, folder):
    """Submits the program to the cluster, from that folder."""

    def submitted(*arguments, register=False, **environment):
        given = ["--master", cluster.master, *map(str, arguments)]
        variables = {**cluster_environment(), **{name: str(value) for name, value in environment.items()}}
        return submit(queue, folder, *given, environment=variables, register=register)

    return submitted


def places(queue, submitted):
    """Where the executors had the project from, once the whole output is right."""
    assert submitted.status == 0, submitted.log[-5000:]
    assert submitted.done
    output = queue.output()
    output.assert_exactly_once(numbers(RECORDS))
    assert output.delivery_counts() == {1}
    return set(output.rows["place"])


def refused(queue, submitted):
    """The log of a run that wrote nothing."""
    assert submitted.status != 0, submitted.log[-5000:]
    assert not len(queue.output())
    return submitted.log


def test_client_mode_with_the_package_installed_on_each_host(run, queue, installed):
    assert all(place.startswith(str(installed.parents[1])) for place in places(queue, run(PYSPARK_PYTHON=installed)))


def test_spark_refuses_cluster_mode_for_a_python_program(queue, folder):
    """Spark refuses before it asks for the master, which is not there."""
    given = ["--master", "spark://127.0.0.1:1", "--deploy-mode", "cluster"]
    log = refused(queue, submit(queue, folder, *given, environment=cluster_environment()))
    assert "Cluster deploy mode is currently not supported for python applications on standalone clusters" in log


def test_an_archive_serves_executors_and_the_driver_that_unpacked_it(run, queue, installed, cluster, folder, tmp_path):
    archive = packed(installed.parents[1], tmp_path / "environment.tar.gz")
    here = folder / "environment"
    here.mkdir()
    subprocess.run(["tar", "-xzf", archive, "-C", here], check=True)
    done = run("--archives", f"{archive}#environment", PYSPARK_PYTHON="./environment/bin/python")
    assert all(str(cluster.directory) in place or place.startswith("./") for place in places(queue, done))


def test_the_drivers_own_python_is_asked_of_executors_too(run, queue, installed, tmp_path):
    """The command in Spark's guide: PYSPARK_DRIVER_PYTHON=python, where only the driver's host has that."""
    archive = packed(installed.parents[1], tmp_path / "environment.tar.gz")
    (tmp_path / "bin").mkdir()
    own = tmp_path / "bin" / "drivers-own-python"
    own.write_text(f'#!/bin/sh\nexec {installed} "$@"\n')
    own.chmod(0o755)
    path = f"{own.parent}:{cluster_environment()['PATH']}"
    given = {"PYSPARK_DRIVER_PYTHON": own.name, "PYSPARK_PYTHON": "./environment/bin/python", "PATH": path}
    log = refused(queue, run("--archives", f"{archive}#environment", **given))
    assert f'Cannot run program "{own.name}"' in log


def test_py_files_serve_with_their_name_in_pythonpath(run, queue, without, folder):
    """The driver has the file where it runs, and Spark copies it to where each executor runs."""
    archive = zipped(folder / "sharegroup.zip")
    done = run("--py-files", archive, PYSPARK_PYTHON=without, PYTHONPATH=archive.name)
    assert all(archive.name in place for place in places(queue, done))


@pytest.mark.parametrize("register", [False, True])
def test_py_files_alone_are_not_found(run, queue, without, tmp_path, register):
    log = refused(queue, run("--py-files", zipped(tmp_path / "s.zip"), PYSPARK_PYTHON=without, register=register))
    assert ("No module named 'pyspark_sharegroup'" if register else "[DATA_SOURCE_NOT_FOUND]") in log


def test_a_driver_without_the_package_finds_no_format(run, queue, without):
    assert "[DATA_SOURCE_NOT_FOUND]" in refused(queue, run(PYSPARK_PYTHON=without))


def test_executors_without_the_package_name_the_missing_module(run, queue, installed):
    """PYSPARK_PYTHON is not set, and `python3` is another one on the executors' hosts."""
    log = refused(queue, run(PATH=f"{installed.parent}:{cluster_environment()['PATH']}"))
    assert "ModuleNotFoundError: No module named 'pyspark_sharegroup'" in log
