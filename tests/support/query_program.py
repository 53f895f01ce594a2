"""A user's program in a process of its own: one Spark session, and the queries that it is told to run.

Rule: all that a test learns of it stands in files, so that a program that was killed still has said what it did.
Commands come as JSON lines on its standard input; when that ends the program ends, so none outlives its test. What
happens to a query is appended to the events file that its start names, one JSON object a line.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, expr
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery, StreamingQueryListener

from sharegroup import complete_run, keep_running
from tests.support.query_sinks import each_batch, is_stream_sink
from tests.support.query_spec import QuerySpec
from tests.support.query_work import decided, worked_on


class EventFile:
    """Appends what happened, whole lines only."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()

    def add(self, event: str, **fields: Any) -> None:
        with self._lock, open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, **fields}) + "\n")


class Progress(StreamingQueryListener):
    """Spark's own reports, into the events file of the query; with the tasks of the query's largest stage so far."""

    def __init__(self, spark: SparkSession) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self.files: dict[str, EventFile] = {}
        """The event files by the name of the query that starts."""
        self._files_of_runs: dict[str, EventFile] = {}
        self._stages: dict[str, tuple[int, int]] = {}
        """Each run's newest job that was read, and the tasks of its largest stage: to read all jobs in each report
        would delay the session's other listeners by minutes."""

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """A late report goes to the file of its own query: the next query of that name has another file."""
        if event.name in self.files:
            self._files_of_runs[str(event.runId)] = self.files[event.name]

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        report = json.loads(event.progress.json)
        events = self._files_of_runs.get(report["runId"])
        if events is not None:
            fields = {"batch": report["batchId"], "rows": report["numInputRows"], "sources": report["sources"]}
            events.add("progress", **fields, tasks=self._largest_stage(report["runId"]))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing: a test waits for what happened."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Does nothing: the thread that awaits the query writes the event."""

    def _largest_stage(self, run_id: str) -> int:
        newest, largest = self._stages.get(run_id, (-1, 0))
        jobs = [job for job in self._tracker.getJobIdsForGroup(run_id) if job > newest]
        infos = [self._tracker.getJobInfo(job) for job in jobs]
        stages = [self._tracker.getStageInfo(stage) for job in infos if job for stage in job.stageIds]
        largest = max([largest, *(stage.numTasks for stage in stages if stage)])
        self._stages[run_id] = (max([newest, *jobs]), largest)
        return largest


class Program:
    """The session and its queries."""

    def __init__(self, config: dict[str, str]) -> None:
        builder = SparkSession.builder.appName("sharegroup-test")
        for key, value in config.items():
            builder = builder.config(key, value)
        self.spark = builder.getOrCreate()
        self._progress = Progress(self.spark)
        self.spark.streams.addListener(self._progress)
        self._frames: dict[str, DataFrame] = {}

    def obey(self, command: dict[str, Any]) -> None:
        if command["do"] == "start":
            spec = QuerySpec.from_json(command["spec"])
            threading.Thread(target=self._run, args=(spec, EventFile(command["events"])), daemon=True).start()
        elif command["do"] == "stop":
            for query in self.spark.streams.active:
                if query.name == command["name"]:
                    query.stop()
        elif command["do"] == "run":
            answer = Path(command["to"])
            answer.with_suffix(".new").write_text(json.dumps(self._result(command), default=str))
            answer.with_suffix(".new").rename(answer)

    def _result(self, command: dict[str, Any]) -> dict[str, Any]:
        """Runs the function ``run`` of the code. Returns its result, or the text of its error."""
        names: dict[str, Any] = {}
        try:
            exec(command["code"], names)
            return {"result": names["run"](self.spark, **command["arguments"])}
        except Exception:  # noqa: BLE001 - the test gets every error
            return {"error": traceback.format_exc()}

    def _run(self, spec: QuerySpec, events: EventFile) -> None:
        self._progress.files[spec.name] = events
        # In a thread of its own Spark finds a Python sink only once the thread has an active session, which this gives.
        self.spark.createDataFrame([], "nothing int")
        if spec.kept:
            self._keep(spec, events)
            return
        try:
            query = self._start(spec, events)
        except Exception as error:  # noqa: BLE001 - the test gets every error
            events.add("refused", error=_text(error))
            return
        events.add("started", run=str(query.runId))
        try:
            query.awaitTermination()
            if spec.completes:
                complete_run(query, spec.options)
        except StreamingQueryException as error:
            events.add("ended", error=_text(error))
        else:
            events.add("ended", error="")

    def _keep(self, spec: QuerySpec, events: EventFile) -> None:
        def start() -> StreamingQuery:
            query = self._start(spec, events)
            events.add("started", run=str(query.runId))
            return query

        try:
            keep_running(start)
        except Exception as error:  # noqa: BLE001 - the test gets every error
            events.add("ended", error=_text(error))
        else:
            events.add("ended", error="")

    def _start(self, spec: QuerySpec, events: EventFile) -> StreamingQuery:
        rows = worked_on(self._shaped(spec), spec)
        if is_stream_sink(spec):
            rows = decided(rows, spec)
        writer = rows.writeStream.queryName(spec.name)
        writer = writer.option("checkpointLocation", str(spec.checkpoint_path)).options(**spec.sink_options)
        if spec.trigger == "available_now":
            writer = writer.trigger(availableNow=True)
        elif spec.trigger == "once":
            writer = writer.trigger(once=True)
        elif spec.trigger != "default":
            writer = writer.trigger(processingTime=spec.trigger)
        return self._with_sink(writer, spec, events).start()

    def _shaped(self, spec: QuerySpec) -> DataFrame:
        if spec.frame and spec.frame in self._frames:
            frame = self._frames[spec.frame]
        else:
            frame = self.spark.readStream.format(spec.source).options(**spec.options).load()
            self._frames[spec.frame] = frame
        if spec.shape == "self_union":
            return frame.union(frame)
        if spec.shape == "self_join":
            joined = frame.alias("l").join(frame.alias("r"), expr("l.value = r.value"))
            return joined.select("l.*", col("r.offset").alias("other_offset"))
        return frame

    def _with_sink(self, writer: DataStreamWriter, spec: QuerySpec, events: EventFile) -> DataStreamWriter:
        if is_stream_sink(spec):
            return writer.format(spec.sink)
        write = each_batch(spec)

        def written(batch: DataFrame, batch_id: int) -> None:
            write(batch, batch_id)
            events.add("written", batch=batch_id)
            if spec.sink == "stop":
                next(query for query in self.spark.streams.active if query.name == spec.name).stop()

        return writer.foreachBatch(written)


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def main() -> None:
    """Runs the commands on standard input until it ends."""
    program = Program(json.loads(Path(sys.argv[1]).read_text()))
    Path(sys.argv[1]).with_suffix(".ready").write_text(program.spark.version)
    for line in sys.stdin:
        program.obey(json.loads(line))
    program.spark.stop()
    os._exit(0)  # threads that still await a query hold nothing


if __name__ == "__main__":
    main()
