"""Pythons with and without this project, and spark-submit far from the clone, as users of a cluster have them.

Rule: nothing that is submitted sees the clone, or the environment of the tests by its name: a Python here has the other
packages through a path entry, and the project only where a test puts it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.support.imports import PACKAGES, ROOT
from tests.support.java_options import SHORT_LIVED, SPARK_OPTIONS
from tests.support.share_job import ShareJob
from tests.support.spark_program import SPARK_CONFIG

SUBMIT_TIMEOUT_S = 300
_UNSET = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV", "SPARK_HOME")


def bare_python(folder: Path) -> Path:
    """A fresh environment with all packages but this project; its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    # A path entry: the .pth files of that folder, among them this project's, are not read.
    (_site_packages(folder) / "others.pth").write_text(f"{_tested_spark()}\n{sysconfig.get_path('purelib')}\n")
    return python


def full_python(folder: Path) -> Path:
    """A fresh environment that has this project, too; its Python."""
    python = bare_python(folder)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, _site_packages(folder) / package, ignore=shutil.ignore_patterns("__pycache__"))
    return python


def packed(environment: Path, archive: Path) -> Path:
    """The environment as an archive, with its folders at the top."""
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(environment, arcname=".")
    return archive


def zipped(archive: Path) -> Path:
    """This project's packages as a zip file, which a wheel is as well."""
    with zipfile.ZipFile(archive, "w") as file:
        for package in PACKAGES:
            for path in sorted((ROOT / package).rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    file.write(path, path.relative_to(ROOT))
    return archive


def cluster_environment(python: Path | None = None) -> dict[str, str]:
    """The environment of a host where nobody has set up Python for Spark; `python3` is this one."""
    found = {key: value for key, value in os.environ.items() if key not in _UNSET}
    if python is not None:
        found["PATH"] = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    return found


@dataclass(frozen=True)
class Submitted:
    """One spark-submit that has ended."""

    status: int
    log: str
    done: bool
    """Whether the program reached its last line."""


def submit(
    job: ShareJob,
    folder: Path,
    *arguments: str,
    environment: Mapping[str, str],
    settings: Mapping[str, str] | None = None,
    register: bool = False,
) -> Submitted:
    """Run tests.support.submitted_program with spark-submit until it ends, in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    program = shutil.copy(Path(__file__).with_name("submitted_program.py"), folder / "program.py")
    given = {
        "options": job.query("submitted").options,
        "sink_options": job.sink_options(),
        "out": str(job.directory / "out" / "query=submitted"),
        "checkpoint": str(job.directory / "checkpoints" / "submitted"),
        "done": str(folder / "done"),
        "register": register,
    }
    (folder / "program.json").write_text(json.dumps(given))
    java = " ".join((f"-Djava.io.tmpdir={folder}", *SPARK_OPTIONS))
    config = {
        **{key: value for key, value in SPARK_CONFIG.items() if key != "spark.driver.memory"},
        "spark.local.dir": str(folder),
        "spark.python.unix.domain.socket.dir": str(folder),
        "spark.executor.memory": "640m",
        "spark.driver.extraJavaOptions": java,
        "spark.executor.extraJavaOptions": " ".join(SPARK_OPTIONS),
        **(settings or {}),
    }
    command = [str(Path(_tested_spark()) / "pyspark" / "bin" / "spark-submit"), *arguments]
    for key, value in config.items():
        command += ["--conf", f"{key}={value}"]
    with (folder / "submit.log").open("wb") as log:
        done = subprocess.run(
            [*command, program, str(folder / "program.json")],
            cwd=folder,
            env={**environment, "SPARK_LAUNCHER_OPTS": " ".join(SHORT_LIVED)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            timeout=SUBMIT_TIMEOUT_S,
            check=False,
        )
    text = (folder / "submit.log").read_text(errors="replace")
    return Submitted(done.returncode, text, (folder / "done").exists())


def _tested_spark() -> Path:
    """The folder that has the pyspark of the tests, which may be an older one of .build."""
    return Path(pyspark.__file__).parents[1]


def _site_packages(environment: Path) -> Path:
    (found,) = (environment / "lib").glob("python3*/site-packages")
    return found
