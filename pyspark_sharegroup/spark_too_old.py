"""The format ``sharegroup`` on Spark 4.0 and 4.1, which lack ``pyspark.sql.streaming.datasource`` (SPARK-55304).

Rule: nothing is imported here but pyspark's oldest data source API.
"""

from __future__ import annotations

from typing import Any

import pyspark
from pyspark.sql.datasource import DataSource


class SparkTooOld(Exception):
    """The format was used on a Spark without admission control for Python sources."""

    def __init__(self) -> None:
        super().__init__(
            f"sharegroup needs Spark 4.2 or newer, and this is Spark {pyspark.__version__}. Use Spark 4.2 or 4.3, for "
            "the driver and for the executors (pip install 'pyspark>=4.2,<4.4')."
        )


class DefaultSource(DataSource):
    """Names the Spark that is needed, whatever the format is used for."""

    def __init__(self, options: Any) -> None:
        raise SparkTooOld

    @classmethod
    def name(cls) -> str:
        return "sharegroup"
