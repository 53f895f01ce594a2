"""A table in PostgreSQL, which the driver writes with psycopg, a batch in one transaction. Spark's JDBC writer has a
transaction in each task; psycopg needs no jar, and works with Spark Connect, where a program has no JVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from share_sink.decided_rows import RECORD
from share_sink.errors import PsycopgMissing, TableNotOpened
from share_sink.tables.spark_table import quoted

if TYPE_CHECKING:
    from psycopg import Connection
    from pyspark.sql import DataFrame

COLUMNS = """
SELECT attname, NOT atthasdef AND attidentity = '' FROM pg_attribute
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""


@dataclass(frozen=True)
class PostgresTable:
    """A table that is there. ``name``: as in PostgreSQL's SQL. ``columns``: whether the rows need the column."""

    database: str = field(repr=False)
    oid: int
    name: str
    columns: dict[str, bool]

    @classmethod
    def open(cls, database: str, table: str) -> PostgresTable:
        """Returns the table, a name as in SQL. Raises PsycopgMissing; TableNotOpened if there is no such table."""
        with _connect(database) as connection:
            names = "SELECT to_regclass(%s)::oid::bigint, to_regclass(%s)::text"
            oid, name = connection.execute(names, [table, table]).fetchone() or (None, "")
            if oid is None:
                raise TableNotOpened(table=table, reason=f"the database {connection.info.dbname} has no such table")
            return cls(database, oid, name, dict(connection.execute(COLUMNS, [oid]).fetchall()))

    def merge(self, rows: DataFrame, columns: Sequence[str]) -> None:
        """Bring the table to the outcomes of the rows, whose last column is the outcome."""
        names = ", ".join(quoted(name, '"') for name in columns)
        keys = [quoted(name, '"') for name in columns if name.lower() in RECORD]
        same = " AND ".join(f"t.{key} = d.{key}" for key in keys)
        none = f"SELECT {names}, '' AS sharegroup_outcome FROM {self.name} WITH NO DATA"  # noqa: S608 - quoted names
        accepted = f"SELECT {names} FROM pg_temp.decided WHERE sharegroup_outcome = 'accept'"  # noqa: S608
        with _connect(self.database) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE TEMP TABLE decided ON COMMIT DROP AS {none}")
            with cursor.copy("COPY pg_temp.decided FROM STDIN") as copy:
                for row in rows.toLocalIterator():
                    copy.write_row(row)
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [self.oid])  # one writer at a time
            cursor.execute(f"DELETE FROM {self.name} AS t USING pg_temp.decided AS d WHERE {same}")  # noqa: S608
            cursor.execute(f"INSERT INTO {self.name} ({names}) {accepted}")


def _connect(database: str) -> Connection:
    """Returns a connection. Each statement sees what was committed before, also the one that follows the lock."""
    try:
        import psycopg
    except ImportError as error:
        raise PsycopgMissing() from error
    connection = psycopg.connect(database)
    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    return connection
