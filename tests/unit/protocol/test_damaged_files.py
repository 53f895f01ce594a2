"""Every small file that sharegroup writes and reads back, with damaged content: recovery, or one named error. Files of
the user, and the checkpoint, are in test_hostile_files."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from coordinator.client.on_demand import RunningHere, has_coordinator_for
from coordinator.protocol.errors import StateStoreInUse
from coordinator.protocol.wire import Endpoint, LaunchSettings, decode_endpoint
from coordinator.service.on_demand import keep_endpoint, remove_endpoint
from coordinator.service.stores.sqlite_store import SqliteStore
from share_sink.archive.compaction import compact
from share_sink.errors import ArchiveFormatUnknown
from share_spark.task_plans import TaskPlan, note, noted
from tests.support.archives import batch, read, rejected

WHOLE = {"host": "127.0.0.1", "port": 1, "token": "t" * 43, "pid": 1}
NO_JSON = [b"", b"\0" * 64, b"\xff\xfe{", b"{", b"null", b"7", b"[]", b'"x"', b"[" * 100_000, b"1" * 5_000]
DAMAGED = [*NO_JSON, b"{}", b'{"version": 1}', b'{"version": 1, "batch": "x", "files": 7, "merged": []}']
ENDPOINTS = [
    {**WHOLE, name: value}
    for name, values in {
        "port": (70_000, 0, -1, "1", None, 2**70),
        "host": ("", "a b", "a/b", "\0", 7),
        "token": ("", "a\nb", "ä", None),
        "pid": ("x", None),
    }.items()
    for value in values
]


def test_a_damaged_endpoint_file_is_no_coordinator(runtime_dir: Path) -> None:
    for content in [*DAMAGED, *(json.dumps(each).encode() for each in ENDPOINTS)]:
        here = RunningHere(bootstrap_servers="a:1", kafka_config={}, cluster_id="damaged", state_store="kafka")
        here.endpoint_path.write_bytes(content)
        try:
            assert not here.is_running()
            assert not has_coordinator_for("a:1")
            endpoint = Endpoint(**WHOLE)
            of_cluster = {"bootstrap_servers": "a:1", "kafka_config": {}, "state_store": "kafka", "configs": {}}
            settings = LaunchSettings(**of_cluster, endpoint_path=str(here.endpoint_path))
            assert keep_endpoint(settings, endpoint) is None
            assert decode_endpoint(here.endpoint_path.read_bytes()) == endpoint, "else no client finds the coordinator"
            remove_endpoint(here.endpoint_path, endpoint)
            assert not here.endpoint_path.exists()
        finally:
            here.endpoint_path.unlink(missing_ok=True)


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_note_of_a_plan_is_no_note(content: bytes, runtime_dir: Path) -> None:
    plan = TaskPlan(group_id="of-damaged-notes", member_id="m1", member_epoch=1, plan_id="i.1", configs={})
    note("damaged", "7", plan)
    (path,) = (each for each in (runtime_dir / "tasks").glob("*.json") if b"of-damaged-notes" in each.read_bytes())
    try:
        assert noted("damaged", "7") == [plan]
        path.write_bytes(content)
        assert noted("damaged", "7") == []
    finally:
        path.unlink()


@pytest.mark.parametrize("content", [b"", b"\xff", b"\0", b"7\n8"])
def test_a_damaged_owner_of_a_state_file_is_an_unknown_process(content: bytes, tmp_path: Path) -> None:
    with contextlib.closing(SqliteStore(tmp_path / "state.db")):
        (tmp_path / "state.db.owner").write_bytes(content)
        with pytest.raises(StateStoreInUse, match="process unknown"):
            SqliteStore(tmp_path / "state.db")


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_journal_of_an_archive_is_named_and_nothing_is_changed(content: bytes, tmp_path: Path) -> None:
    batch(tmp_path, 3, rejected("orders", 7))
    (journal,) = tmp_path.glob("_journal/*.json")
    journal.write_bytes(content)
    for use in (lambda: batch(tmp_path, 3, rejected("orders", 8), attempt_number=1), lambda: compact(str(tmp_path))):
        with pytest.raises(ArchiveFormatUnknown, match=rf"_journal/.* of the archive {tmp_path} is damaged, or"):
            use()
    assert read(tmp_path) == [("orders", 7)]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_note_of_a_compaction_is_named(content: bytes, tmp_path: Path) -> None:
    batch(tmp_path, 3, rejected("orders", 7))
    (tmp_path / "_compacting").mkdir()
    (tmp_path / "_compacting" / "x.json").write_bytes(content)
    with pytest.raises(ArchiveFormatUnknown, match=r"_compacting/x.json of the archive .* is damaged, or"):
        compact(str(tmp_path))
    assert read(tmp_path) == [("orders", 7)]
