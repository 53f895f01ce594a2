"""Which protocol this Spark speaks with a Python source, by what pyspark has rather than by its version."""

from __future__ import annotations

from importlib.util import find_spec

HAS_ADMISSION_CONTROL = find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether ``latestOffset(start, limit)`` has arguments: Spark 4.2 and newer (SPARK-55304)."""
