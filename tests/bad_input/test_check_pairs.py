"""`sharegroup check` names every wrong option that load() or the sink names: the catalogue is run through both."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from sharegroup.__main__ import run
from tests.bad_input.catalogue import OF_QUERIES
from tests.bad_input.golden import line, sentences
from tests.bad_input.row import Place


class CheckedPlace(Place):
    """A place where options of a source or of a sink are checked by `sharegroup check`, and not by load()."""

    def source(self, options: Mapping[str, Any]) -> object:
        base = {"kafka.bootstrap.servers": self.bootstrap, "kafka.group.id": "billing", "subscribe": "orders"}
        return self._check("--options", {**base, **options})

    def sink(self, options: Mapping[str, Any], columns: StructType | None = None, *, overwrite: bool = False) -> object:
        if columns is not None or overwrite:  # wrong rows and modes are no options
            return super().sink(options, columns, overwrite=overwrite)
        base = {"kafka.bootstrap.servers": self.bootstrap, "kafka.group.id": "billing"}
        return self._check("--sink-options", {**base, **options})

    def _check(self, option: str, options: Mapping[str, Any]) -> str:
        given = {name: str(value) for name, value in options.items() if value is not None}
        path = Path(tempfile.mkdtemp(dir=self.folder)) / "options.json"
        path.write_text(json.dumps(given))
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            status = run(["check", option, str(path), "--json"])
        wrong = [each for each in json.loads(printed.getvalue()) if each["error"]]
        assert status == 1, "check says ok"
        return f"{wrong[0]['error']}: {wrong[0]['what']}"


OPTIONS = [row for rows in OF_QUERIES.values() for row in rows]


def one_for_each_error():
    """The first row of each error."""
    golden = sentences()
    return list({golden[line(row.written)].partition(":")[0]: row for row in reversed(OPTIONS)}.values())


@pytest.mark.parametrize(
    "rows", [one_for_each_error(), pytest.param(OPTIONS, marks=pytest.mark.slow)], ids=["each error", "each row"]
)
def test_check_says_what_load_and_sink_say(rows, embedded, monkeypatch):
    monkeypatch.delenv("SHAREGROUP_COORDINATOR_TOKEN", raising=False)
    embedded.create_topic("orders")
    golden = sentences()
    for row in rows:
        with tempfile.TemporaryDirectory(prefix="sg-bad-") as folder:
            said = row.sentence(CheckedPlace(embedded.bootstrap_servers, Path(folder)))
        assert line(said) == golden[line(row.written)], row.written
