"""One row of the catalogue: what a person writes, and how to run it.

Rule: a row is run as a person would, at the outermost function that needs no Spark session.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import structs
from pyspark.sql.types import StructType

from coordinator.protocol.errors import ShareGroupError
from pyspark_sharegroup import DefaultSource
from share_sink.options import SinkOptions
from share_sink.rows import check_delivered, outcome_rows
from share_sink.sink import Sink, open_sink
from sharegroup.__main__ import run as run_command
from tests.support.sink_rows import PLAIN, REQUIRED, SINK, SINK_AT, TOPIC_ID, batch, row, schema

LISTENING = "localhost:9092"
"""The page shows this in place of the broker's address."""
MASKS = (
    (re.compile(r"\(after \d+ms in state"), "(after N ms in state"),
    (re.compile(r"127\.0\.0\.1:\d{4,5}"), LISTENING),
    (re.compile(r"error:[0-9A-F]{8}:"), "error:"),
    (re.compile(r"=\d+ ms ahead\b"), "=N ms ahead"),
)


@dataclass(frozen=True)
class Place:
    """Where a row is run: a broker with the topic ``orders`` of four partitions, and an empty folder, which is the
    working directory too."""

    bootstrap: str
    folder: Path

    def file(self, name: str, text: str = "", mode: int = 0o600) -> str:
        """The path of a new file with this text."""
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    def source(self, options: Mapping[str, Any]) -> object:
        """``load()`` with these options; None removes one of the three that are needed."""
        base = {"kafka.bootstrap.servers": self.bootstrap, "kafka.group.id": "billing", "subscribe": "orders"}
        given = {name: value for name, value in {**base, **options}.items() if value is not None}
        return DefaultSource({name.lower(): str(value) for name, value in given.items()}).schema()

    def sink(self, options: Mapping[str, Any], columns: StructType | None = None, *, overwrite: bool = False) -> object:
        """``start()`` of a sink with these options, as far as it goes without a coordinator."""
        base = {"kafka.bootstrap.servers": self.bootstrap, "kafka.group.id": "billing"}
        given = {name.lower(): str(value) for name, value in {**base, **options}.items()}
        if columns is None and not overwrite:
            SinkOptions.parse(given).check_kafka_config()
            return None
        return open_sink(given, columns or schema(REQUIRED), overwrite=overwrite)

    def write(self, **columns: object) -> object:
        """A sink's task writes the row of orders-0@57 with these columns."""
        options = SinkOptions.parse({"kafka.bootstrap.servers": self.bootstrap, "kafka.group.id": "billing"})
        taken = (SINK_AT if "releaseAt" in columns else SINK).columns
        of = Sink(options=options, columns=taken, opened=structs.replace(PLAIN, ends={TOPIC_ID: {"0": 100}}))
        rows = batch({**row(57, "accept"), **columns})
        return check_delivered(outcome_rows(rows, of), of)

    def command(self, line: str) -> object:
        """The line that the command prints. ``check`` prints a line a side instead, to standard output."""
        told, printed = io.StringIO(), io.StringIO()
        with contextlib.redirect_stderr(told), contextlib.redirect_stdout(printed):
            status = run_command([word.replace("FOLDER", str(self.folder)) for word in shlex.split(line)])
        assert status in (1, 2), told.getvalue()
        assert not told.getvalue() or (told.getvalue().count("\n"), printed.getvalue()) == (1, ""), told.getvalue()
        return told.getvalue() or printed.getvalue()

    def masked(self, text: str) -> str:
        """The text without what differs from run to run."""
        text = text.replace(str(self.folder), "FOLDER").replace(os.path.realpath(self.folder), "FOLDER")
        text = text.replace(self.bootstrap, LISTENING)
        for pattern, instead in MASKS:
            text = pattern.sub(instead, text)
        return " ".join(text.split())


@dataclass(frozen=True)
class Row:
    """A wrong input."""

    written: str
    run: Callable[[Place], object] = field(compare=False)

    def sentence(self, place: Place) -> str:
        """The text that a person gets.

        Raises:
            AssertionError: nothing is refused.
        """
        before = Path.cwd()
        os.chdir(place.folder)
        try:
            printed = self.run(place)
        except ShareGroupError as error:
            return place.masked(f"{type(error).__name__}: {error}")
        finally:
            os.chdir(before)
        assert isinstance(printed, str), f"{self.written} is taken"
        return place.masked(printed)


def source(written: str, **options: Any) -> Row:
    """A row of one source option, ``NAME=VALUE`` as written; ``options`` come beside it."""
    name, _, value = written.partition("=")
    return Row(written, lambda place: place.source({**options, name: value}))


def reads(written: str) -> Row:
    """A row of subscribePattern or assign, in place of subscribe."""
    return source(written, subscribe=None)


def sources(written: str, options: Mapping[str, Any]) -> Row:
    """A row of several source options."""
    return Row(written, lambda place: place.source(options))


def sink(written: str) -> Row:
    """A row of one sink option, ``NAME=VALUE`` as written."""
    name, _, value = written.partition("=")
    return Row(f"sink: {written}", lambda place: place.sink({name: value}))


def command(line: str) -> Row:
    """A row of a command line."""
    return Row(f"sharegroup {line}".strip(), lambda place: place.command(line))
