"""The table of platforms in docs/run/spark.md agrees with setup.py, without the package registry."""

from __future__ import annotations

import runpy
import sys
from typing import Any
from unittest import mock

import setuptools
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tests.support.imports import ROOT
from tools.resolve_platforms import COMPILED, NOT_SERVED, PYTHONS, SERVED, requirements, written

PAGE = written()
REQUIRED = {line.name: line.specifier for line in map(Requirement, requirements("spark"))}
NEWEST_SPARK = "the newest Spark"


def settings() -> dict[str, Any]:
    """Returns what setup.py gives to setuptools."""
    with mock.patch.object(setuptools, "setup") as found:
        runpy.run_path(str(ROOT / "setup.py"))
    return dict(found.call_args.kwargs)


def python_requires() -> SpecifierSet:
    return SpecifierSet(settings()["python_requires"])


def test_the_table_has_the_rows_and_pythons_that_are_resolved() -> None:
    rows = [*SERVED, *NOT_SERVED, NEWEST_SPARK, *(f"{name}, from" for name in COMPILED)]
    assert list(PAGE) == rows
    assert {tuple(cells) for cells in PAGE.values()} == {PYTHONS}
    assert {said for name in SERVED for said in PAGE[name].values()} == {"yes"}


def test_its_first_python_is_the_oldest_that_installs() -> None:
    oldest = Version(PYTHONS[0])
    assert oldest in python_requires()
    assert Version(f"3.{oldest.minor - 1}") not in python_requires()


def test_an_older_python_lacks_nothing_but_its_version() -> None:
    """pip's last line is then about Python, and not about the first package that needs a newer one."""
    with mock.patch.object(sys, "version_info", (3, 9, 18)):
        assert settings()["install_requires"] == []
    assert settings()["install_requires"]


def test_its_versions_are_those_that_the_requirements_take() -> None:
    """The oldest Python has wheels of the lowest version that is taken."""
    for name in COMPILED:
        versions = {python: Version(said) for python, said in PAGE[f"{name}, from"].items()}
        assert all(version in REQUIRED[name] for version in versions.values()), name
        (lowest,) = (Version(each.version) for each in REQUIRED[name] if each.operator == ">=")
        assert versions[PYTHONS[0]] == lowest, name
    assert all(Version(said) in REQUIRED["pyspark"] for said in PAGE[NEWEST_SPARK].values())
