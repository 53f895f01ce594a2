"""Lets Spark find ``format("sharegroup")`` by itself: Spark registers ``DefaultSource`` of every ``pyspark_*`` module.

Rule: this module imports without an error on every Spark that looks for it (4.0 and newer), since Spark swallows an
import error here, and reports that there is no such format. An older Spark does not look for the module; SparkTooOld
names it if a program imports this module."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("pyspark.sql.datasource") is None:
    from pyspark_sharegroup.spark_too_old import SparkTooOld

    raise SparkTooOld

from pyspark_sharegroup.shadowed_format import DefaultSource, check_packages

try:
    check_packages()
except ImportError:
    pass  # the format that was imported above says why
else:
    from pyspark_sharegroup.format import DefaultSource  # type: ignore[assignment]

__all__ = ["DefaultSource"]
