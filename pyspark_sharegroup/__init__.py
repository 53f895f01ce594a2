"""Lets Spark find ``format("sharegroup")`` by itself: Spark registers ``DefaultSource`` of every ``pyspark_*`` module.

Rule: this module imports on every Spark that looks for it (4.0 and newer). Spark swallows an import error here, and
then reports that there is no such format. An older Spark looks for no such module, and is named when a program imports
this one.
"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("pyspark.sql.datasource") is None:
    from pyspark_sharegroup.spark_too_old import SparkTooOld

    raise SparkTooOld

from sharegroup.shadowed import check_packages

try:
    check_packages()
except ImportError:
    from pyspark_sharegroup.shadowed_format import DefaultSource
else:
    from pyspark_sharegroup.format import DefaultSource  # type: ignore[assignment]

__all__ = ["DefaultSource"]
