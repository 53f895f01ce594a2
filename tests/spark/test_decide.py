"""sharegroup.decide: what a program acknowledges and what it writes are the same rows, also if an executor is lost
between the two and the service behind the outcomes answers otherwise by then."""

import pytest

from tests.support.group_state import describe
from tests.support.share_job import numbers
from tests.support.spark_cluster import SparkCluster
from tests.support.spark_program import SLOW_START, SparkProgram

RECORDS = 20
ROWS = """
import os, tempfile
from pyspark.sql.functions import col, current_timestamp, expr, lit, rand, udf, when
import sharegroup

IDS = ("'t' AS topic", "0 AS partition", "id AS offset", "1 AS deliveryCount", "'r' AS receipt")

@udf("string")
def asked(number):
    return "accept"
"""

pytestmark = [pytest.mark.spark]

# --- within one process


def test_outcomes_are_computed_once_and_held_until_the_block_ends(shared_program):
    """A block that is lost is an error, and no second decision."""
    found = shared_program.get().run(
        ROWS
        + """
def run(spark, times):
    folder = tempfile.mkdtemp()
    @udf("string")
    def answer(number):
        with open(f"{folder}/{number}", "a") as asked:
            asked.write(".")
        return "accept"
    held = lambda: len(spark.sparkContext._jsc.getPersistentRDDs())
    before, blocks, errors = held(), set(), []
    rows = spark.range(0, 4, 1, 2).selectExpr("*", *IDS).withColumn("acknowledgement", answer("id"))
    for _ in range(times):
        with sharegroup.decide(rows) as decided:
            assert decided.columns == rows.columns
            counts = [decided.where("acknowledgement = 'accept'").count() for _ in range(2)]
            blocks.add(held() - before)
        assert counts == [4, 4]
    try:
        decided.count()
    except Exception as error:
        errors.append("Checkpoint block" in str(error))
    asked = {os.path.getsize(f"{folder}/{number}") for number in range(4)}
    return sorted(blocks), held() - before, errors, sorted(asked)
""",
        times=3,
    )
    assert found == [[1], 0, [True], [3]]


CHANGING = {
    "udf": ("rows.withColumn('acknowledgement', asked('id'))", "a Python UDF"),
    "persisted udf": ("rows.withColumn('acknowledgement', asked('id')).persist()", "a Python UDF"),
    "udf of a filter": ("outcome.where(asked('id') == 'accept')", "a Python UDF"),
    "mapInPandas": ("outcome.mapInPandas(lambda frames: frames, outcome.schema)", "a Python UDF"),
    "mapInArrow": ("outcome.mapInArrow(lambda batches: batches, outcome.schema)", "a Python UDF"),
    "rand": ("rows.withColumn('acknowledgement', when(rand() > 0.5, 'release'))", "not deterministic"),
    "now": (
        "rows.withColumn('acknowledgement', expr(\"if(now() > timestamp '2026-01-01', 'release', 'accept')\"))",
        "the current time",
    ),
    "udf of the stream": ("rows.withColumn('acknowledgement', col('said'))", "a Python UDF before foreachBatch"),
}  # fmt: skip
STEADY = {
    "by the record": "rows.withColumn('acknowledgement', when(col('deliveryCount') > 2, 'reject'))",
    "persisted": "outcome.persist()",
    "udf of another column": "outcome.withColumn('score', asked('id'))",
    "now in another column": "outcome.withColumn('at', current_timestamp())",
    "now in a point in time": "outcome.withColumn('releaseAt', expr('now() + interval 5 minutes'))",
    "random delay": "outcome.withColumn('releaseDelayMs', expr('int(1000 * rand())'))",
    "joined with a table": "outcome.join(batch.sparkSession.range(5).toDF('other'), col('other') == col('id'))",
}


def test_changing_outcomes_are_refused_and_others_are_not(shared_program):
    """The refusal comes before the options are looked at, and what is not refused lacks an option."""
    found = shared_program.get().run(
        ROWS
        + """
def run(spark, plans):
    said = {}
    def each(batch, batch_id):
        if batch_id:
            return
        rows = batch.selectExpr("value AS id", "said").selectExpr("*", *IDS)
        outcome = rows.withColumn("acknowledgement", lit("accept"))
        names = {**globals(), "batch": batch, "rows": rows, "outcome": outcome}
        for name, plan in plans.items():
            frame = eval(plan, names)
            for way in ("plain", "decided"):
                try:
                    if way == "plain":
                        sharegroup.acknowledge(frame, batch_id)
                    else:
                        with sharegroup.decide(frame) as decided:
                            sharegroup.acknowledge(decided, batch_id)
                except sharegroup.ShareGroupError as error:
                    said[f"{name}, {way}"] = f"{type(error).__name__}: {error}"
            frame.unpersist()
    globals().update(asked=asked)
    stream = spark.readStream.format("rate").load().withColumn("said", asked("value"))
    query = stream.writeStream.foreachBatch(each).trigger(availableNow=True)
    query.option("checkpointLocation", tempfile.mkdtemp()).start().awaitTermination()
    return said
""",
        plans={**{name: plan for name, (plan, _) in CHANGING.items()}, **STEADY},
    )
    for name, (_, why) in CHANGING.items():
        assert found[f"{name}, plain"].startswith("OutcomesMayChange") and why in found[f"{name}, plain"], name
        assert "with sharegroup.decide(rows) as decided" in found[f"{name}, plain"]
    for name in [*(f"{name}, decided" for name in CHANGING), *(f"{name}, plain" for name in STEADY)]:
        assert found[name].startswith("NoSinkOptions"), (name, found[name])


# --- executors in processes of their own

QUERY = """
import contextlib, os, psutil, sharegroup
from pyspark.sql.functions import col, udf

EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"

def run(spark, options, topic, folder, point, slow_start):
    service, killed = f"{folder}/service", f"{folder}/killed"

    def kill(processes, word):
        with open(service, "w") as answer:
            answer.write("1")
        open(killed, "w").close()
        for process in processes:
            with contextlib.suppress(psutil.Error):
                if word in process.cmdline():
                    process.kill()

    def at(here):
        if here == point and not os.path.exists(killed):
            kill(psutil.Process().children(recursive=True), EXECUTOR)

    @udf("string")
    def ask(number):
        return "accept" if number % 2 == int(open(service).read()) else "reject"

    @udf("int")
    def write(number):
        if point == "write" and not os.path.exists(killed):
            kill(psutil.Process().parents(), EXECUTOR)
        return number

    def each(batch, batch_id):
        number = batch.withColumn("number", col("value").cast("string").cast("int"))
        with sharegroup.decide(number.withColumn("acknowledgement", ask("number"))) as decided:
            at("decided")
            sharegroup.acknowledge(decided, batch_id, {**options, "outputOnReplay": "replaces"})
            at("acknowledged")
            accepted = decided.where("acknowledgement = 'accept'").select(write("number").alias("number"))
            accepted.write.mode("overwrite").parquet(f"{folder}/out/batch={batch_id}")

    spark.createDataFrame([], "nothing int")
    with open(service, "w") as answer:
        answer.write("0")
    errors = []
    while not errors or errors[-1]:
        stream = spark.readStream.format("sharegroup").options(**options).option("subscribe", topic)
        stream = stream.option("startingOffsets", "earliest").load()
        query = stream.writeStream.foreachBatch(each).option("checkpointLocation", f"{folder}/checkpoint")
        try:
            query.trigger(availableNow=True).start().awaitTermination()
            errors.append("")
        except Exception as error:
            if slow_start not in str(error):
                errors.append("a block is lost" if "Checkpoint block" in str(error) else str(error))
            assert len(errors) < 3, errors
    return errors, [row.number for row in spark.read.parquet(f"{folder}/out").collect()]
"""


@pytest.fixture(scope="module")
def cluster():
    with SparkProgram(master="local-cluster[2,1,1024]") as started:
        yield started


@pytest.mark.soak
@pytest.mark.broker
@pytest.mark.parametrize("point", ["decided", "acknowledged", "write"])
def test_a_lost_executor_changes_no_outcome_within_an_attempt(kafka, topic, job, cluster, tmp_path, point):
    """The records that the group has as accepted are those in the output, by the second attempt's answers."""
    orders = topic("orders")
    kafka.produce(orders, numbers(RECORDS))
    queue = job(orders)
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "kafka.group.id": queue.group}
    given = {"options": options, "topic": orders, "folder": str(tmp_path), "point": point}
    errors, written = cluster.run(QUERY, slow_start=SLOW_START, **given)
    assert errors == ["a block is lost", ""]
    assert sorted(written) == list(range(1, RECORDS, 2))
    (partition,) = describe(queue).description.partitions
    assert (partition.accepted, partition.archived, partition.lag) == (RECORDS // 2, {"rejected": RECORDS // 2}, 0)


SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.task.duration.threshold": "500ms",
}
COPIES = """
import os, tempfile
from pyspark.sql.functions import udf
import sharegroup
from tests.support.waiting import wait_until

def run(spark):
    folder = tempfile.mkdtemp()

    @udf("int")
    def ask(number):
        os.makedirs(f"{folder}/{os.getpid()}", exist_ok=True)
        wait_until(lambda: len(os.listdir(folder)) > 1, what="a copy of the task has begun on the other host")
        return os.getpid()

    rows = spark.range(0, 10, 1, 1).selectExpr("'t' AS topic", "0 AS partition", "id AS offset")
    with sharegroup.decide(rows.withColumn("answer", ask("offset"))) as decided:
        answers = [sorted({row.answer for row in decided.collect()}) for _ in range(8)]
        return len(os.listdir(folder)), decided.count(), answers
"""


@pytest.mark.soak
def test_two_copies_of_a_task_are_one_decision(program):
    with SparkCluster() as two_hosts:
        driver = program(master=two_hosts.wait_ready().master, settings=SPECULATION)
        copies, rows, answers = driver.run(COPIES)
    assert copies == 2 and rows == 10
    assert all(len(each) == 1 for each in answers) and len({*map(tuple, answers)}) == 1
