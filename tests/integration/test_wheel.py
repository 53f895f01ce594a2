"""The wheel as pip installs it into a fresh environment: what is in it, and the command that it brings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pytest

from tests.support.imports import PACKAGES, ROOT

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1_200)]

LINK = re.compile(r"\]\((?![a-z]+:)[^)]*\)")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, since a build leaves folders behind; pip fetches setuptools for it."""
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in (*PACKAGES, "conf"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", made, source], check=True)
    (found,) = made.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def fresh(wheel, tmp_path_factory):
    """A fresh environment with the wheel alone; its dependencies are those of the tests."""
    folder = tmp_path_factory.mktemp("fresh")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "pip", f"--python={python}", "install", "-q", "--no-deps", wheel], check=True)
    return folder


def run(fresh, *command):
    """The output of a command of the environment, far from the clone."""
    environment = {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib")}
    done = subprocess.run(
        [fresh / "bin" / command[0], *command[1:]], cwd=fresh, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_package_is_there_and_says_that_it_is_annotated(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert all(f"{package}/py.typed" in names for package in PACKAGES)
    assert "sharegroup/demo/first_program.txt" in names
    page = [*(ROOT / "sharegroup" / "web").glob("templates/*"), *(ROOT / "sharegroup" / "web").glob("static/*")]
    assert {str(path.relative_to(ROOT)) for path in page} <= set(names)
    assert not [name for name in names if name.startswith(("tests", "tools", "benchmarks"))]


def test_no_link_of_the_description_is_relative(wheel):
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith("METADATA"))
    text = archive.read(metadata).decode()
    assert "# sharegroup" in text
    assert LINK.findall(text) == []


def test_the_command_and_the_version_are_those_of_the_wheel(fresh):
    version = run(
        fresh, "python", "-c", "import sharegroup; print(sharegroup.__file__, sharegroup.__version__)"
    ).split()
    assert version[0].startswith(str(fresh))
    assert version[1] in run(fresh, "sharegroup", "--version")
    assert 'format("sharegroup")' in run(fresh, "sharegroup", "quickstart", "--print-program")


def test_the_conf_files_are_in_the_environment(fresh):
    for name in ("coordinator.properties", "group.properties"):
        assert (fresh / "share" / "sharegroup" / "conf" / name).read_text() == (ROOT / "conf" / name).read_text()
