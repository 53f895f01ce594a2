"""The Spark session of a thread: Spark looks there for a data source, and a new thread has none."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def use_session(session: SparkSession) -> None:
    """Make the session this thread's; pyspark does that whenever it makes a DataFrame of rows."""
    session.createDataFrame([], "nothing int")
