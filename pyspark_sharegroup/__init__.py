"""Lets Spark find ``format("sharegroup")`` by itself: Spark registers ``DefaultSource`` of every ``pyspark_*`` module.

Rule: this module imports on every Spark that looks for it (4.0 and newer). Spark swallows an import error here, and
then reports that there is no such format; instead a Spark that is too old is named when the format is used.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_sharegroup.format import DefaultSource
else:
    has_admission_control = find_spec("pyspark.sql.streaming.datasource") is not None
    module = "format" if has_admission_control else "spark_too_old"
    DefaultSource = import_module(f"pyspark_sharegroup.{module}").DefaultSource

__all__ = ["DefaultSource"]
