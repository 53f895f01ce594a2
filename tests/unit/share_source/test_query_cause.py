"""The cause of a query's end is found below what Spark puts around it, and a record's text is never taken for it."""

from __future__ import annotations

import pytest

from share_spark.query_cause import LONGEST, cause_of

FAILED = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
READER = f"{FAILED}[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform "
TASK = f"{FAILED}Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task "
WORKER = TASK + "0.0 in stage 1.0 (TID 1) (host executor driver): org.apache.spark.api.python.PythonException: "
JAVA_FRAMES = (
    "\n\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(Python.scala:1)\n"
)
TRACEBACK = 'Traceback (most recent call last):\n  File "worker.py", line 1, in main\n    process()\n    ^^^^^^^^^\n'
FOREACH_BATCH = (
    f"{FAILED}[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch "
    f"sink. Reason: An exception was raised by the Python Proxy. Return Message: {TRACEBACK}"
)
SENTENCE = "The checkpoint belongs to share group a"
NAMED = f"share_source.errors.ForeignCheckpoint: {SENTENCE}"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"{READER}latestOffset: {NAMED}\n SQLSTATE: 38000", id="the reader"),
        pytest.param(f"{WORKER}{NAMED}\n{JAVA_FRAMES}", id="a task"),
        pytest.param(f"{FOREACH_BATCH}{NAMED}\n{JAVA_FRAMES}", id="foreachBatch"),
        pytest.param(
            f"{FOREACH_BATCH}pyspark.errors.exceptions.captured.PythonException: \n  An exception was thrown from the "
            f"Python worker. Please see the stack trace below.\n{NAMED}\n{JAVA_FRAMES}",
            id="a task of foreachBatch",
        ),
        pytest.param(
            f"{FOREACH_BATCH}py4j.protocol.Py4JJavaError: An error occurred while calling o1.save.\n: "
            f"org.apache.spark.SparkException: Lost task: org.apache.spark.api.python.PythonException: {NAMED}\n",
            id="a task of foreachBatch, by py4j",
        ),
        pytest.param(
            f"[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source sharegroup: {NAMED}\n", id="load"
        ),
    ],
)
def test_a_named_error_is_found(text: str) -> None:
    assert cause_of(text) == ("ForeignCheckpoint", f"ForeignCheckpoint: {SENTENCE}")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"{WORKER}{TRACEBACK}ValueError: 9 is poison\n{JAVA_FRAMES}", id="a task"),
        pytest.param(f"{FOREACH_BATCH}ValueError: 9 is poison\n{JAVA_FRAMES}", id="foreachBatch"),
        pytest.param(
            f"{FOREACH_BATCH}pyspark.errors.exceptions.captured.PythonException: \n{TRACEBACK}"
            f"ValueError: 9 is poison\n{JAVA_FRAMES}",
            id="a task of foreachBatch",
        ),
    ],
)
def test_an_error_of_the_program_is_found_below_spark_s(text: str) -> None:
    assert cause_of(text) == ("", "ValueError: 9 is poison")


@pytest.mark.parametrize(
    "said", [NAMED, f"\n{NAMED}", f"\n{TRACEBACK}{NAMED}", f"PythonException: {NAMED}", f"[PYTHON_X] is: {NAMED}"]
)
def test_what_a_record_says_is_no_named_error(said: str) -> None:
    assert cause_of(f"{WORKER}{TRACEBACK}ValueError: bad {said}\n{JAVA_FRAMES}").name == ""
    assert cause_of(f"{FOREACH_BATCH}ValueError: bad {said}\n{JAVA_FRAMES}").name == ""


def test_an_error_of_java_is_its_last_cause() -> None:
    text = f"{FAILED}Job aborted.\n\tat a.B.c(D.java:1)\nCaused by: java.sql.SQLException: connection refused\n\tat a.B"
    assert cause_of(text) == ("", "java.sql.SQLException: connection refused")
    unresolved = "pyspark.errors.exceptions.captured.AnalysisException: [UNRESOLVED_COLUMN] `amount` is no column"
    assert cause_of(f"{FOREACH_BATCH}{unresolved}\n{JAVA_FRAMES}") == ("", unresolved)
    assert cause_of(f"{FAILED}Job 3 cancelled") == ("", "Job 3 cancelled")
    assert cause_of("Cannot call methods\nand more") == ("", "Cannot call methods")


@pytest.mark.parametrize(
    "said",
    [
        "jdbc:postgresql://billing:GEHEIM@db/x is away",
        'sasl.jaas.config=... password="GEHEIM";',
        "401: {'token': 'GEHEIM'}",
        "Authorization: Bearer GEHEIM",
        "https://host/x?api_key=GEHEIM&a=b",
    ],
)
def test_no_password_is_shown(said: str) -> None:
    shown = cause_of(f"{WORKER}{TRACEBACK}ValueError: {said}\n").text
    assert "GEHEIM" not in shown and "redacted" in shown and shown.startswith("ValueError: ")


def test_a_cause_is_one_line_that_can_be_printed_and_is_short() -> None:
    shown = cause_of(f"{WORKER}{TRACEBACK}ValueError: \x1b[2J{'x' * 10_000}\nsecond\n").text
    assert shown.isprintable() and len(shown) <= LONGEST + 3
