"""The error of Spark 3.5 and older, which have no Python data sources."""

from __future__ import annotations

import pyspark


class SparkTooOld(ImportError):
    """The format was asked for on a Spark without Python data sources."""

    def __init__(self) -> None:
        super().__init__(
            f"sharegroup needs Spark 4.0 or newer, and this is Spark {pyspark.__version__}. Use Spark 4.0 to 4.3, for "
            "the driver and for the executors (pip install 'pyspark>=4.0,<4.4')."
        )
