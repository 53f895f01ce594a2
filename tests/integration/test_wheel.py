"""The wheel as pip installs it into a fresh environment: what is in it, and the command that it brings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile

import pytest

from tests.support.imports import PACKAGES, ROOT

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1_200)]

LINK = re.compile(r"\]\((?![a-z]+:)[^)]*\)")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of what a package is made of, since a build leaves folders behind."""
    folder = tmp_path_factory.mktemp("source")
    for name in (*PACKAGES, "conf"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


def build_wheel(source, to, **environment):
    """The wheel that pip makes of a folder or an sdist; pip fetches setuptools for it."""
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", to, source]
    subprocess.run(command, check=True, env={**os.environ, **environment})
    (found,) = to.glob("*.whl")
    return found


def install(wheel, folder):
    """A fresh environment with the wheel alone; its dependencies are those of the tests."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "pip", f"--python={python}", "install", "-q", "--no-deps", wheel], check=True)
    return folder


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    return build_wheel(source, tmp_path_factory.mktemp("wheel"), SHAREGROUP_REQUIRE_NATIVE="1")


@pytest.fixture(scope="module")
def fresh(wheel, tmp_path_factory):
    return install(wheel, tmp_path_factory.mktemp("fresh"))


def run(fresh, *command, **variables):
    """The output of a command of the environment, far from the clone."""
    environment = {**os.environ, "PYTHONPATH": sysconfig.get_path("purelib"), **variables}
    done = subprocess.run(
        [fresh / "bin" / command[0], *command[1:]], cwd=fresh, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_package_is_in_the_wheel_with_a_py_typed_marker(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert all(f"{package}/py.typed" in names for package in PACKAGES)
    assert {"sharegroup/demo/reading_program.txt", "sharegroup/demo/sink_program.txt"} <= names
    page = [*(ROOT / "sharegroup" / "web").glob("templates/*"), *(ROOT / "sharegroup" / "web").glob("static/*")]
    assert {str(path.relative_to(ROOT)) for path in page} <= set(names)
    assert not [name for name in names if name.startswith(("tests", "tools", "benchmarks"))]


def test_one_wheel_for_all_pythons_has_the_compiled_reader(wheel, fresh):
    assert wheel.name.split("-")[2:4] == ["cp310", "abi3"]
    native = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("share_source/executor/native/")}
    assert {"share_source/executor/native/_drain.abi3.so", "share_source/executor/native/_drain.pyi"} < native
    assert not [name for name in native if name.endswith((".c", ".h"))]
    assert "reader: native (librdkafka 2." in run(fresh, "sharegroup", "--version", SHAREGROUP_READER="native")


def test_the_sdist_has_the_sources_of_the_compiled_reader(source, tmp_path):
    subprocess.run([sys.executable, "setup.py", "-q", "sdist", "-d", tmp_path], cwd=source, check=True)
    (made,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(made) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    here = {str(path.relative_to(ROOT)) for path in (ROOT / "share_source" / "executor" / "native").glob("*.[ch]")}
    assert here | {"share_source/executor/native/_drain.pyi", "conf/group.properties"} < names
    assert not [name for name in names if name.endswith(".so")]
    built = build_wheel(made, tmp_path, SHAREGROUP_REQUIRE_NATIVE="1")
    assert "share_source/executor/native/_drain.abi3.so" in zipfile.ZipFile(built).namelist()


def test_the_build_script_makes_a_wheel_for_linux_that_reads(source, tmp_path):
    """The script gets its tools, a compiler among them, from the package registry."""
    clean = shutil.copytree(source, tmp_path / "source", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    (clean / "tools").mkdir()
    script = shutil.copy(ROOT / "tools" / "build_wheel.py", clean / "tools")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (made,) = (clean / "dist").glob("*.whl")
    assert made.stem.split("-")[2:] == ["cp310", "abi3", "manylinux2014_x86_64"]
    assert "share_source/executor/native/_drain.abi3.so" in zipfile.ZipFile(made).namelist()
    libc = re.search(r'the following platform tag: "manylinux_2_(\d+)_', " ".join(done.stdout.split()))
    assert libc and int(libc[1]) <= 17, done.stdout
    version = run(install(made, tmp_path / "fresh"), "sharegroup", "--version", SHAREGROUP_READER="native")
    assert "reader: native (librdkafka 2." in version


def test_without_a_compiler_the_install_succeeds_and_reads_with_python(source, tmp_path):
    clean = shutil.copytree(source, tmp_path / "source", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    made = build_wheel(clean, tmp_path, CC="no-such-compiler")
    assert not [name for name in zipfile.ZipFile(made).namelist() if name.endswith(".so")]
    folder = install(made, tmp_path / "fresh")
    version = run(folder, "sharegroup", "--version", SHAREGROUP_READER="auto")
    assert "reader: python (no compiled reader: " in version


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
