"""The format ``sharegroup`` where its packages can't be imported: each use says why."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource

from sharegroup.shadowed import check_packages


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
