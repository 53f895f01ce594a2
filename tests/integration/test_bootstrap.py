"""A clone sets itself up, and says in one line what it misses."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

import tools.bootstrap
from tests.support.imports import ROOT


def bootstrap(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run tools/bootstrap.py in this clone with another environment."""
    command = [sys.executable, str(ROOT / "tools" / "bootstrap.py"), *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)


def java_that_says(directory: Path, text: str) -> Path:
    """A JAVA_HOME whose java prints `text`."""
    java = directory / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    java.chmod(0o755)
    return directory


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("sharegroup: ")
    return line


def test_missing_java_prints_one_line(tmp_path):
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "bootstrap.py")],
        env={**environment, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "Java is missing: install Java 17 or newer" in one_line(done)


def test_a_java_home_without_java_prints_one_line(tmp_path):
    assert "does not run" in one_line(bootstrap(JAVA_HOME=str(tmp_path)))


@pytest.mark.parametrize("said", ['java version "1.8.0_402"', 'openjdk version "11.0.22" 2024-01-16'])
def test_an_old_java_prints_one_line(tmp_path, said):
    assert "is too old" in one_line(bootstrap(JAVA_HOME=str(java_that_says(tmp_path, said))))


def test_an_early_access_java_is_new_enough(tmp_path):
    done = bootstrap(JAVA_HOME=str(java_that_says(tmp_path, 'openjdk version "27-ea" 2027-09-15')))
    assert (done.returncode, done.stderr) == (0, "")


def test_an_invalid_kafka_release_prints_one_line():
    assert "--kafka 3.9: name a release, as" in one_line(bootstrap("--kafka", "3.9"))


def test_bootstrap_does_nothing_when_everything_is_installed():
    done = bootstrap()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_sparks_processes_import_the_installed_pyspark_which_has_byte_code():
    libraries = Path(pyspark.__file__).parent / "python" / "lib"
    assert libraries.is_dir()
    assert not (libraries / "pyspark.zip").exists()


def test_uv_gets_the_settings_of_pips_file_and_variables(tmp_path, monkeypatch):
    """Where a company has an index of its own, pip is told of it, and uv reads nothing of that."""
    settings = tmp_path / "pip.conf"
    settings.write_text("[global]\nindex-url = https://one/simple\nextra-index-url =\n  https://two\n  https://three\n")
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_", "SSL_CERT"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))
    monkeypatch.setenv("PIP_CERT", "/etc/ours.pem")
    assert tools.bootstrap.uv_settings() == {
        "UV_DEFAULT_INDEX": "https://one/simple",
        "UV_INDEX": "https://two https://three",
        "SSL_CERT_FILE": "/etc/ours.pem",
    }


@pytest.mark.parametrize("fails", ["uv", "install"])
def test_pip_installs_where_uv_can_not(monkeypatch, capsys, fails):
    installed = []

    def run(command, advice, **settings):
        if ("uv" in command) == (fails == "install") and any("uv" in each for each in command):
            raise tools.bootstrap.CannotSetUp(advice)
        installed.append(command[2])

    monkeypatch.setattr(tools.bootstrap, "run", run)
    monkeypatch.setattr(tools.bootstrap, "runs", lambda *command: False)
    tools.bootstrap.install(["one"], "check the network")
    assert installed[-1] == "pip"
    assert "pip installs" in capsys.readouterr().out


def test_spark_can_find_the_format_by_itself(tmp_path):
    """As Spark looks for it, from a folder that is not the clone's: the editable install must be a path, not a hook."""
    look = "import pkgutil; print(*[module.name for module in pkgutil.iter_modules()])"
    done = subprocess.run([sys.executable, "-c", look], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "pyspark_sharegroup" in done.stdout.split()
