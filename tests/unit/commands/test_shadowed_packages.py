"""Another module that has the name of a package of ours is named by its path, in one line, at the first use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sharegroup.shadowed import INSIDE, PackageShadowed, check_packages
from tests.support.imports import ROOT, python_path

USES = {
    "api": ["-c", "import sharegroup; sharegroup.Admin"],
    "command": ["-m", "sharegroup", "--version"],
    "console script": ["-c", "import sharegroup.__main__"],
    "format": ["-c", "import pyspark_sharegroup as p; p.DefaultSource({}).schema()"],
    "writer": ["-c", "import pyspark_sharegroup as p; p.DefaultSource({}).streamWriter(None, False)"],
    "test kit": ["-c", "import sharegroup.testing.pytest"],
}
OF_SPARK = ("format", "writer")
"""The uses that do not import ``sharegroup`` by that name themselves: Python would name the other module's file."""


def foreign(folder: Path, name: str, kind: str) -> Path:
    """A module of that name which is none of ours, in the folder."""
    path = folder / name / "__init__.py" if kind == "package" else folder / f"{name}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text("START = 1\n")
    return path


SHADOWED = [*((name, "package") for name in INSIDE), ("coordinator", "module")]


@pytest.mark.parametrize(
    ("use", "name", "kind"),
    [
        *((use, *shadowed) for use in USES for shadowed in SHADOWED[-2:]),
        *(("api", *shadowed) for shadowed in SHADOWED[:-2]),
        *((use, "sharegroup", "module") for use in OF_SPARK),
    ],
)
def test_the_first_use_says_which_path_shadows_ours(tmp_path: Path, use: str, name: str, kind: str) -> None:
    path = foreign(tmp_path, name, kind)
    environment = {"PYTHONPATH": f"{tmp_path}:{python_path()}"}
    done = subprocess.run([sys.executable, *USES[use]], capture_output=True, text=True, env=environment, cwd="/")
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert f"needs its package {name}, in {ROOT}, " in said and "Rename" in said
    assert f"finds another one first: {path.parent if kind == 'package' else path}." in said
    assert use not in ("command", "console script") or len(done.stderr.splitlines()) == 1


def test_our_own_packages_are_no_finding_however_they_are_found(tmp_path: Path) -> None:
    check_packages()
    link = tmp_path / "link"
    link.symlink_to(ROOT)
    program = "import sharegroup; from sharegroup.shadowed import check_packages; check_packages(); print('ours')"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(link)}, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout == "ours\n", done.stderr


def test_a_loaded_module_of_somebody_else_is_found_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "coordinator", type(sys)("coordinator"))
    with pytest.raises(PackageShadowed, match="none at all"):
        check_packages()


@pytest.mark.parametrize(
    "use",
    [
        *USES.values(),
        ["-m", "sharegroup", "--help"],
        ["-c", "import share_source.driver.reader"],
        ["-c", "import share_sink.writer"],
    ],
)
def test_without_docstrings_nothing_runs_and_the_way_out_is_named(use: list[str]) -> None:
    """The texts of errors are docstrings, which ``python -OO`` drops."""
    environment = {"PYTHONPATH": python_path()}
    done = subprocess.run([sys.executable, "-OO", *use], capture_output=True, text=True, env=environment, cwd="/")
    assert done.returncode == 1
    assert "Use -O or PYTHONOPTIMIZE=1." in done.stderr.splitlines()[-1]
    assert use[0] == "-c" or len(done.stderr.splitlines()) == 1


def imported_beside(folder: Path, module: str) -> subprocess.CompletedProcess[str]:
    """The import of a name of ours where this module is found first."""
    file = foreign(folder, module, "module")
    environment = {"PYTHONPATH": f"{file.parent}:{python_path()}"}
    program = "from sharegroup import ShareConsumer"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd="/")


def test_an_import_names_the_broken_package_that_it_needs(tmp_path: Path) -> None:
    done = imported_beside(tmp_path, "numpy")
    assert "sharegroup.ShareConsumer can't be imported: module 'numpy' has no attribute" in done.stderr
    assert "numpy" in done.stderr.split("The above exception")[0], "with its cause"


@pytest.mark.parametrize("module", ["queue", "logging"])
def test_an_import_names_the_file_with_a_name_of_pythons(tmp_path: Path, module: str) -> None:
    said = imported_beside(tmp_path, module).stderr.splitlines()[-1]
    assert said.startswith("ImportError: sharegroup.ShareConsumer can't be imported: ")
    assert said.endswith(f"Rename {tmp_path / module}.py: a module of Python has the same name")
