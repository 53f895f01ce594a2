"""The format ``sharegroup`` where its packages can't be imported: each use says why."""

from __future__ import annotations

import os
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any

from pyspark.sql.datasource import DataSource

_OURS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "sharegroup")


def check_packages() -> None:
    """Run the check of sharegroup.shadowed, found by its folder. An import of sharegroup could run somebody else's
    sharegroup.py, in each of Spark's workers."""
    spec = PathFinder.find_spec("sharegroup.shadowed", [_OURS])
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.check_packages()


class DefaultSource(DataSource):
    """A format whose methods raise the error of check_packages. If this package's import raised it, Spark would hide
    the error, and report that there is no such format."""

    @classmethod
    def name(cls) -> str:
        return "sharegroup"

    def schema(self) -> Any:
        check_packages()

    def writer(self, schema: Any, overwrite: bool) -> Any:
        check_packages()

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        check_packages()

    def streamReader(self, schema: Any) -> Any:  # noqa: N802 - Spark's name
        check_packages()

    def reader(self, schema: Any) -> Any:
        check_packages()
