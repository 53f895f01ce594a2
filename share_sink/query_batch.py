"""Reads from Spark's log of offsets which groups and topics a query's batch is of, with the topics' ids.

Spark writes the batch's offsets into ``offsets/N`` below the query's checkpointLocation before it makes a sink's writer
(seen). An offset of this format names the group and the plan (share_source.plan_offset). Rule: a log that cannot be
read is no error; the result is None, for "not known".
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from coordinator.protocol.format_versions import SPARK_OFFSET

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

Batch = dict[str, dict[str, str]]
"""Group id -> topic -> the topic's id in the plan that the batch is made of."""

_FIRST_OFFSET = 2
"""Lines before a file's first offset: the log's version, and Spark's metadata of the batch."""


def parse_batch(text: str) -> Batch:
    """The batch of one file of ``offsets/``. Offsets of other sources are ignored; a topic that two plans name with
    different ids is left out."""
    batch: Batch = {}
    unsure: set[tuple[str, str]] = set()
    for offset in _offsets(text.splitlines()[_FIRST_OFFSET:]):
        topics = batch.setdefault(offset["group"], {})
        for topic, plan in (offset.get("plan") or {}).items():
            if topics.setdefault(topic, plan["id"]) != plan["id"]:
                unsure.add((offset["group"], topic))
    for group_id, topic in unsure:
        del batch[group_id][topic]
    return batch


def _offsets(lines: Iterable[str]) -> Iterable[dict[str, Any]]:
    for line in lines:
        try:
            offset = json.loads(line)
        except ValueError:
            continue
        if not isinstance(offset, dict) or offset.get("version") != SPARK_OFFSET:
            continue
        if isinstance(offset.get("group"), str) and "member" in offset:
            yield offset


def batch_at(checkpoint: str) -> Batch | None:
    """The newest batch of the query with this checkpointLocation; None unless the location is a folder of this host."""
    location = urlsplit(checkpoint)
    if location.scheme not in ("", "file"):
        return None
    folder = os.path.join(unquote(location.path) if location.scheme else checkpoint, "offsets")
    try:
        newest = max((int(name) for name in os.listdir(folder) if name.isdigit()), default=None)
        if newest is None:
            return None
        with open(os.path.join(folder, str(newest)), encoding="utf-8") as file:
            return parse_batch(file.read())
    except (OSError, ValueError, TypeError, KeyError):
        return None


def batch_of_session(session: SparkSession, batch_id: int) -> Batch | None:
    """The batch of the query whose foreachBatch calls, read with Spark's own file system; None if the process has no
    access to the driver's JVM (Spark Connect), or no query runs in this session."""
    try:
        query_id = session.sparkContext.getLocalProperty("sql.streaming.queryId")
        return _logged(session, query_id, batch_id) if query_id else None
    except Exception as error:  # noqa: BLE001 - sessions without a JVM raise errors of their own; Spark's internals may change
        _log.debug("the query's offsets are not read: %s", error)
        return None


def _logged(session: SparkSession, query_id: str, batch_id: int) -> Batch | None:
    """The logged batch of an active query. foreachBatch has a session of its own; the state that all sessions share has
    the queries of all sessions (seen)."""
    jvm: Any = session.sparkContext._jvm
    java: Any = session._jsparkSession
    query = java.sharedState().activeStreamingQueries().get(jvm.java.util.UUID.fromString(query_id))
    if query is None:
        return None
    path = jvm.org.apache.hadoop.fs.Path(f"{query.resolvedCheckpointRoot()}/offsets/{batch_id}")
    stream = path.getFileSystem(java.sessionState().newHadoopConf()).open(path)
    try:
        return parse_batch(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()
