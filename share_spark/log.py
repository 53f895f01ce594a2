"""The log of sharegroup in the Python processes that Spark starts: one for a query's source, others for tasks and
sinks.

Spark configures no logging in them (seen): lines would lack time and level, and INFO would be dropped. Spark's own
collection of worker logs (spark.sql.pyspark.worker.logging.enabled) adds a handler to the root logger, which gets these
lines as well. Rule: a program that has configured logging itself gets the lines only in its own form."""

from __future__ import annotations

import logging
import os
import sys

from coordinator.protocol.log_lines import is_logging, log_to_stderr, name_in_lines

LOGGERS = ("coordinator", "share_sink", "share_source")
_COLLECTED = "PYSPARK_SPARK_SESSION_UUID"
"""Spark's variable in a process whose lines Spark collects: then Spark has set the root logger's handler."""


def log_for_query(**names: str) -> None:
    """Write the lines of sharegroup to standard error, from INFO on if the environment says nothing else
    (SHAREGROUP_LOG_LEVEL, SHAREGROUP_LOG_FORMAT). ``names``, as ``group``, stand in each line."""
    name_in_lines(**names)
    if is_logging() or (logging.getLogger().handlers and _COLLECTED not in os.environ):
        return
    # Spark replaces sys.stderr while it collects, and would then have each line twice.
    log_to_stderr(LOGGERS, sys.__stderr__ or sys.stderr)
