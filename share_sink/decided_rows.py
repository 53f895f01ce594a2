"""``decide``: computes outcomes once in an attempt, for programs of foreachBatch that use them twice.

Rule: the rows that ``acknowledge`` stages and that the program writes are the same. Spark computes a DataFrame again in
each job, and a persisted one if an executor is lost. So an outcome from a service or from rand() could differ between
the two. Here the rows are a local checkpoint: a lost block fails the job, and so the attempt."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from share_sink.columns import check_rows
from share_sink.errors import OutcomesMayChange
from share_spark.task_plans import QUERY_ID

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

RECORD = ("topic", "partition", "offset")
OUTCOME = (*RECORD, "deliveryCount", "receipt", "acknowledgement")
"""The columns that decide about a record. Another reason or delay than the staged one does no harm."""
CHANGES = {
    "PYTHON_UDF": "a Python UDF",
    "PYTHON_UDTF": "a Python UDTF",
    "SCALA_UDF": "a UDF of the JVM",
    "EXTERNAL_UDF": "a UDF",
    "CURRENT_LIKE": "the current time",
}
"""Spark's tree patterns of expressions whose value may change when they are computed again."""
_END = "\0"


@contextmanager
def decide(df: DataFrame) -> Iterator[DataFrame]:
    """Compute the rows of ``df`` once, and hold them for the body of the ``with`` statement.

    For foreachBatch, where ``df`` is the batch with the column ``acknowledgement``, and the program both acknowledges
    its rows and writes them. Returns the rows as a DataFrame. Executors hold them in memory, or on their disks, until
    the body ends. If an executor is lost before, the job that reads its rows fails ("Checkpoint block ... not found"):
    let the error end the query, and Spark replays the batch when the query starts again.

    >>> def each(batch, batch_id):
    ...     with decide(batch.withColumn("acknowledgement", outcome("value"))) as decided:
    ...         acknowledge(decided, batch_id)
    ...         decided.where("acknowledgement = 'accept'").write.mode("append").parquet("billing")
    >>> df.writeStream.foreachBatch(each).start()  # doctest: +SKIP"""
    check_rows(df, "decide")
    session = df.sparkSession
    if str(session.conf.get("spark.speculation", "false")).lower() == "true":
        # Both copies of a task may leave a block of one name. Behind a shuffle, which has one output of each task, both
        # hold the same rows.
        df = df.repartition(*RECORD)
    context = _context_of(session)
    if context is None:  # Spark Connect: the server lets go of the rows once the client has
        yield df.localCheckpoint()
        return
    decided = _computed_once(context, df)
    try:
        yield decided
    finally:
        _blocks(decided).unpersist(False)


def refuse_changing(df: DataFrame) -> None:
    """Raise OutcomesMayChange if the plan of ``df`` has a UDF, the current time, or an expression that is not
    deterministic: Spark could then compute other outcomes the next time. With Spark Connect, or if the session hides
    Spark's Java from Python, the plan is not visible, and nothing is raised."""
    found = ""
    with suppress(Exception):  # py4j's errors too
        found = _what_changes(df)
    if found:
        raise OutcomesMayChange(found=found)


# --- a DataFrame that is computed once


def _context_of(session: SparkSession) -> SparkContext | None:
    from pyspark.errors import PySparkException

    try:
        return session.sparkContext
    except PySparkException:
        return None


def _computed_once(context: SparkContext, df: DataFrame) -> DataFrame:
    """Returns the local checkpoint of ``df``, made again if a stage ran twice: tasks of the stage's first attempt may
    still run, and leave other rows under the same name. Nobody has read the rows yet."""
    while True:
        tag = f"sharegroup-decide-{uuid.uuid4().hex}"
        context.addJobTag(tag)
        try:
            decided = df.localCheckpoint()
        finally:
            context.removeJobTag(tag)
        if not _ran_again(context, tag):
            return decided
        _blocks(decided).unpersist(False)


def _ran_again(context: SparkContext, tag: str) -> bool:
    """Whether a stage of the jobs with this tag had a second attempt, as far as Spark's status tracker knows."""
    java: Any = context._jsc.sc()
    with suppress(Exception):  # its queue is not empty after two seconds
        java.listenerBus().waitUntilEmpty(2_000)  # the tracker is told through it
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in java.statusTracker().getJobIdsForTag(tag)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    return any(stage.currentAttemptId > 0 for stage in stages if stage)


def _blocks(decided: DataFrame) -> Any:
    """Returns the checkpoint's RDD, a Java object."""
    return decided._jdf.queryExecution().logical().rdd()


# --- a plan that may give other outcomes


def _what_changes(df: DataFrame) -> str:
    """Returns in words what may change an outcome; empty if the plan shows nothing. This runs in each batch, and py4j
    makes each call of Java slow, so results that stay the same are cached."""
    from pyspark.sql import SparkSession as Sessions

    session = df.sparkSession
    spark = _spark_of(session._jvm)
    names = {name.lower() for name in df.columns}
    plan = spark.pruned(df, [name for name in OUTCOME if name.lower() in names])
    found = spark.changing(plan)
    if found or not any(_is_batch(leaf) for leaf in _items(plan.collectLeaves())):
        return found
    query_id = session.sparkContext.getLocalProperty(QUERY_ID) or ""
    query: Any = Sessions.builder.getOrCreate().streams.get(query_id)  # the batch's own session has no queries
    found = _changing_before(query_id, str(query.runId), frozenset(_used(plan)))
    return found and f"{found} before foreachBatch"


@lru_cache(maxsize=100)
def _changing_before(query_id: str, run_id: str, used: frozenset[str]) -> str:
    """Returns what may change these columns of the query's rows, which each job computes again. A run has one plan."""
    from pyspark.sql import DataFrame
    from pyspark.sql import SparkSession as Sessions

    session = Sessions.builder.getOrCreate()
    java: Any = session._jvm
    query: Any = session.streams.get(query_id)
    plan = query._jsq.streamingQuery().lastExecution().analyzed()
    stream = DataFrame(java.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan), session)
    spark = _spark_of(java)
    return spark.changing(spark.pruned(stream, [name for name in stream.columns if name in used]))


class _Spark:
    """Spark's Java classes, looked up once."""

    def __init__(self, java: Any) -> None:
        catalyst = java.org.apache.spark.sql.catalyst
        self._pruning = catalyst.optimizer.ColumnPruning
        self._seq = java.PythonUtils.toSeq
        self._patterns: dict[str, Any] = {}
        for name, words in CHANGES.items():
            with suppress(Exception):  # an older Spark has no such pattern
                self._patterns[words] = catalyst.trees.TreePattern.withName(name)
        self._any = self._seq(list(self._patterns.values()))

    def pruned(self, df: DataFrame, names: list[str]) -> Any:
        """Returns the plan of ``df`` without the columns that ``names`` do not need."""
        quoted = [f"`{name.replace('`', '``')}`" for name in names]
        return self._pruning.apply(df._jdf.selectExpr(self._seq(quoted)).queryExecution().analyzed())

    def changing(self, plan: Any) -> str:
        """Returns in words what may change a value of the plan's rows; empty if the plan shows nothing."""
        if plan.containsAnyPattern(self._any):
            return next(words for words, pattern in self._patterns.items() if plan.containsPattern(pattern))
        return "" if plan.deterministic() else "an expression that is not deterministic"


@lru_cache(maxsize=1)
def _spark_of(java: Any) -> _Spark:
    return _Spark(java)


def _used(plan: Any) -> set[str]:
    """Returns the names of the columns that the plan refers to."""
    said = plan.references().toSeq().mkString(_END)  # as name#id
    own = {column.rpartition("#")[0] for column in said.split(_END)}
    return own.union(*map(_used, _items(plan.children())))


def _is_batch(leaf: Any) -> bool:
    """Whether the plan does not show how Spark computes the rows of this leaf. A checkpoint's rows stay."""
    return leaf.getClass().getSimpleName() == "LogicalRDD" and not leaf.rdd().isCheckpointed()


def _items(found: Any) -> list[Any]:
    """Returns a sequence of Scala's as a list."""
    return [found.apply(number) for number in range(found.size())]
