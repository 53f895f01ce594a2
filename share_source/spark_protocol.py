"""Which protocol this Spark uses with a Python source: decided by what pyspark has, not by its version."""

from __future__ import annotations

from importlib.util import find_spec

HAS_ADMISSION_CONTROL = find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether ``latestOffset(start, limit)`` has arguments, as in Spark 4.2 and newer (SPARK-55304)."""
