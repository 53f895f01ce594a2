"""A table of Delta Lake or Apache Iceberg, which Spark writes.

Rule: a write is one commit, and the commit itself refuses what the table has, because a driver may be paused at any
time, and go on when its successor has written the batch."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from share_sink.columns import ACKNOWLEDGEMENT
from share_sink.decided_rows import RECORD
from share_sink.errors import RecordTwice, TableNotOpened, TableUnfit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRIES = 6
"""A write that conflicts with another one is tried so often, with pauses of up to 8 s. Then the batch fails."""
CONFLICTS = re.compile(
    r"Concurrent(Append|Delete\w+)Exception|DELTA_CONCURRENT_(APPEND|DELETE)|CommitFailedException"
    r"|Found (new )?conflicting|[Mm]issing (required|data) files"
)
"""Errors that say: another write was first, and this one has changed nothing."""
ICEBERG_NEEDS = {
    "append_once": ("write.wap.enabled", "false", "true"),
    "merge_once": ("write.merge.isolation-level", "serializable", "serializable"),
}
"""By the function, a table's property, its default, and the value with which Iceberg refuses a second write."""
_staging = Lock()


@dataclass(frozen=True)
class SparkTable:
    """A table that is there. ``name``: as in SQL. ``columns``: whether the rows need the column, as they do."""

    session: SparkSession
    name: str
    kind: str
    catalog: str
    columns: dict[str, bool]

    @classmethod
    def open(cls, session: SparkSession, name: str, call: str) -> SparkTable:
        """Returns the table, for the function ``call``. Raises TableNotOpened if Spark does not know it, and TableUnfit
        if it can't keep what the function promises."""
        from pyspark.errors import PySparkException

        try:
            rows = session.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
            columns = dict.fromkeys(session.table(name).columns, True)
        except PySparkException as error:
            raise TableNotOpened(table=name, reason=str(error).splitlines()[0].rstrip(".")) from error
        told = {row[0]: row[1] for row in rows}  # facts of the table come last, below its columns
        kind = told.get("Provider", "a view").lower()
        if kind not in ("delta", "iceberg"):
            instead = f"Name a table of Delta Lake or Iceberg, to which alone {call} writes once"
            raise TableUnfit(table=name, reason=f"it is {kind}", instead=instead)
        if kind == "iceberg":
            key, default, needed = ICEBERG_NEEDS[call]
            found = {row[0]: row[1] for row in session.sql(f"SHOW TBLPROPERTIES {name}").collect()}.get(key, default)
            if found.lower() != needed:
                reason = f"its {key} is {found}, with which Iceberg may write a record twice"
                instead = f"Run ALTER TABLE {name} SET TBLPROPERTIES ('{key}' = '{needed}')"
                raise TableUnfit(table=name, reason=reason, instead=instead)
        return cls(session, name, kind, told.get("Name", "").split(".")[0], columns)

    def append(self, rows: DataFrame, query_id: str, batch_id: int) -> None:
        """Append the rows, unless the table has this batch of the query."""
        if self.kind == "iceberg":
            self._append_to_iceberg(rows, f"{query_id}/{batch_id}")
        else:
            once = {"txnAppId": query_id, "txnVersion": str(batch_id)}
            rows.writeTo(self.name).options(**once).append()

    def merge(self, rows: DataFrame, columns: Sequence[str]) -> None:
        """Bring the table to the outcomes of the rows. Raises RecordTwice if a record has several rows."""
        for topic, partition, offset, count in rows.groupBy(*RECORD).count().where("count > 1").limit(1).collect():
            raise RecordTwice(table=self.name, record=f"{topic}-{partition}@{offset}", rows=count)
        names, view = list(map(quoted, columns)), f"sharegroup_{uuid.uuid4().hex}"
        statement = f"""
            MERGE INTO {self.name} AS t USING {view} AS d
            ON {" AND ".join(f"t.{name} = d.{name}" for name in RECORD)}
            WHEN MATCHED AND d.{ACKNOWLEDGEMENT} <> 'accept' THEN DELETE
            WHEN MATCHED THEN UPDATE SET {", ".join(f"t.{name} = d.{name}" for name in names)}
            WHEN NOT MATCHED AND d.{ACKNOWLEDGEMENT} = 'accept' THEN
                INSERT ({", ".join(names)}) VALUES ({", ".join(f"d.{name}" for name in names)})
            """  # noqa: S608 - a person's own table
        rows.createOrReplaceTempView(view)
        try:
            self._until_no_other_was_first(statement)
        finally:
            self.session.catalog.dropTempView(view)

    def _append_to_iceberg(self, rows: DataFrame, batch: str) -> None:
        """Stage the rows under the batch as their write-audit-publish id, and publish them: in that commit Iceberg
        refuses an id that the table has."""
        mark = uuid.uuid4().hex
        with _staging:  # the setting is that of all threads of the session
            self.session.conf.set("spark.wap.id", batch)
            try:
                rows.writeTo(self.name).option("snapshot-property.sharegroup.write", mark).append()
            finally:
                self.session.conf.unset("spark.wap.id")
        staged = f"SELECT snapshot_id FROM {self.name}.snapshots WHERE summary['sharegroup.write'] = '{mark}'"  # noqa: S608
        ((snapshot,),) = self.session.sql(staged).collect()
        table = self.name.replace("'", "\\'")
        publish = f"CALL {quoted(self.catalog)}.system.cherrypick_snapshot('{table}', {snapshot})"
        try:
            self._until_no_other_was_first(publish)
        except Exception as error:  # py4j's too
            if "Duplicate request to cherry pick wap id" not in str(error):
                raise

    def _until_no_other_was_first(self, write: str) -> None:
        """Run the statement, again after a conflict, with the table as it is then: Iceberg's catalogs keep it 30 s."""
        is_conflict = retry_if_exception(lambda error: CONFLICTS.search(str(error)) is not None)
        wait, stop = wait_random_exponential(0.5, max=8), stop_after_attempt(TRIES)
        refresh = [f"REFRESH TABLE {self.name}"] if self.kind == "iceberg" else []
        for attempt in Retrying(retry=is_conflict, stop=stop, wait=wait, reraise=True):
            with attempt:
                for statement in (*refresh, write):
                    self.session.sql(statement)


def quoted(name: str, mark: str = "`") -> str:
    """Returns the identifier as in SQL."""
    return mark + name.replace(mark, 2 * mark) + mark
