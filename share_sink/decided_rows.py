"""``decide``: outcomes that are computed once in an attempt, for the programs of foreachBatch that use them twice.

Rule: what ``acknowledge`` stages and what the program writes are the same rows. Spark computes a DataFrame again in
each job, and a persisted one when an executor is lost, so an outcome of a service or of rand() could differ between
both. Here the rows are a local checkpoint: a lost block fails the job, and so the attempt.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from share_sink.errors import OutcomesMayChange
from share_spark.task_plans import QUERY_ID

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

RECORD = ("topic", "partition", "offset")
OUTCOME = (*RECORD, "deliveryCount", "receipt", "acknowledgement")
"""The columns that decide about a record. A reason or a delay that differs from the one staged does no harm."""
CHANGES = {
    "PYTHON_UDF": "a Python UDF",
    "PYTHON_UDTF": "a Python UDTF",
    "SCALA_UDF": "a UDF of the JVM",
    "EXTERNAL_UDF": "a UDF",
    "CURRENT_LIKE": "the current time",
}
"""Spark's tree patterns of expressions that may have another value when they are computed again."""


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
    >>> df.writeStream.foreachBatch(each).start()  # doctest: +SKIP
    """
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
    """Raise unless the outcomes of ``df`` stay the same when Spark computes them again, as far as its plan shows. It
    shows nothing with Spark Connect, nor where the session does not let Python see Spark's Java.

    Raises:
        OutcomesMayChange: the plan has a UDF, the current time, or an expression that is not deterministic.
    """
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
    """Returns the local checkpoint of ``df``. It is made anew if a stage ran again: tasks of the stage's first attempt
    may go on, and leave other rows under the same name. Nobody has read the rows before."""
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
    """Returns the checkpoint's RDD, as Spark's Java has it."""
    return decided._jdf.queryExecution().logical().rdd()


# --- a plan that may give other outcomes


def _what_changes(df: DataFrame) -> str:
    """Returns what may change an outcome, in words; empty if the plan shows nothing."""
    session = df.sparkSession
    java: Any = session._jvm
    names = {name.lower() for name in df.columns}
    plan = _pruned(java, df.select([name for name in OUTCOME if name.lower() in names]))
    found = _changing(java, plan)
    if found or not any(_is_batch(leaf) for leaf in _items(plan.collectLeaves())):
        return found
    stream, used = _stream_of(java, session), _used(plan)  # each job computes the rows of the stream again, too
    found = _changing(java, _pruned(java, stream.select([name for name in stream.columns if name in used])))
    return found and f"{found} before foreachBatch"


def _pruned(java: Any, df: DataFrame) -> Any:
    """Returns the plan without the columns that ``df`` does not need."""
    return java.org.apache.spark.sql.catalyst.optimizer.ColumnPruning.apply(df._jdf.queryExecution().analyzed())


def _changing(java: Any, plan: Any) -> str:
    patterns = java.org.apache.spark.sql.catalyst.trees.TreePattern
    for name, words in CHANGES.items():
        with suppress(Exception):  # an older Spark has no such pattern
            if plan.containsPattern(patterns.withName(name)):
                return words
    return "" if plan.deterministic() else "an expression that is not deterministic"


def _used(plan: Any) -> set[str]:
    """Returns the names of the columns to which the plan refers."""
    own = {attribute.name() for attribute in _items(plan.references().toSeq())}
    return own.union(*map(_used, _items(plan.children())))


def _is_batch(leaf: Any) -> bool:
    """Whether Spark computes the leaf's rows from something that the plan does not show: not so after a checkpoint."""
    return leaf.getClass().getSimpleName() == "LogicalRDD" and not leaf.rdd().isCheckpointed()


def _stream_of(java: Any, session: SparkSession) -> DataFrame:
    """Returns the rows of the query whose foreachBatch calls, as the query computes them."""
    from pyspark.sql import DataFrame
    from pyspark.sql import SparkSession as Sessions

    known = Sessions.builder.getOrCreate()  # the batch's own session has no queries
    query: Any = known.streams.get(session.sparkContext.getLocalProperty(QUERY_ID) or "")
    plan = query._jsq.streamingQuery().lastExecution().analyzed()
    return DataFrame(java.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan), session)


def _items(found: Any) -> list[Any]:
    """Returns the items of a sequence of Scala's."""
    return [found.apply(number) for number in range(found.size())]
