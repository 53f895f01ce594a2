"""Format versions: ours is read back, and a newer one, an older one and a missing one are refused by name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.protocol.format_versions import ARCHIVE, HIGHEST, STATE_RECORDS, UnknownFormat, check_version
from coordinator.protocol.messages import Message, Plan
from share_sink.archive.compaction import compact
from share_sink.errors import ArchiveFormatUnknown
from share_source.driver.plan_offset import PlanOffset, initial_offset, plan_offset
from share_source.errors import CheckpointOfAnotherSource, ForeignCheckpoint, UnreadableOffset
from tests.support import formats
from tests.support.archives import batch, read, rejected


def test_messages_and_records_have_the_fields_that_their_number_describes() -> None:
    """docs/adr/0023 says when a number rises; ``python -m tests.support.formats`` writes the file anew."""
    assert formats.text() == formats.GOLDEN.read_text("utf-8")


def test_a_renamed_field_another_type_and_a_new_number_change_the_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    class Before(Message, frozen=True, tag="Sent"):
        offset: int

    class Renamed(Message, frozen=True, tag="Sent"):
        first: int

    class Retyped(Message, frozen=True, tag="Sent"):
        offset: str = ""

    shown = [list(formats.lines_of(each)) for each in (Before, Renamed, Retyped)]
    assert shown == [["offset: int"], ["first: int"], ["offset: str = ''"]]
    before = formats.text()
    monkeypatch.setattr(formats, "STATE_RECORDS", 99)
    assert before.replace(f"STATE_RECORDS {STATE_RECORDS}", "STATE_RECORDS 99") == formats.text()


@pytest.mark.parametrize(
    ("found", "shown", "is_newer"),
    [
        (4, "format version 4", True),
        (2, "format version 2", False),
        *((found, "no format version", False) for found in (None, 0, -1, HIGHEST + 1, True, "3", 3.0)),
    ],
)
def test_a_version_that_is_not_ours_is_refused(found: object, shown: str, is_newer: bool) -> None:
    with pytest.raises(UnknownFormat, match=f"it has {shown}, and this version of sharegroup reads format version 3"):
        check_version(found, 3)
    assert UnknownFormat(found, 3).is_newer == is_newer
    check_version(3, 3)


# --- the offsets in Spark's log


@pytest.mark.parametrize("offset", [initial_offset("billing", "m1"), plan_offset("billing", "m1", Plan(plan_id="i.7"))])
def test_an_offset_of_ours_is_read_back_from_sparks_log(offset: dict[str, Any]) -> None:
    logged = json.loads(json.dumps(offset))
    assert logged["version"] == 1
    parsed = PlanOffset.parse(logged, "billing")
    assert (parsed.group_id, parsed.member_id, parsed.plan_id) == ("billing", "m1", offset.get("plan_id", ""))


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ({"version": 2}, "it has format version 2, and this version of sharegroup reads format version 1"),
        ({}, "it has no format version"),
        ({"version": None}, "it has no format version"),
        ({"version": "1"}, "it has no format version"),
    ],
)
def test_an_offset_of_another_version_is_refused_with_the_remedies(version: dict[str, Any], reason: str) -> None:
    """The version is checked before the group, which another version may name otherwise."""
    offset = {"group": "audit", "member": "m1", "plan_id": "i.7", **version}
    with pytest.raises(
        UnreadableOffset, match=rf"{reason}.*new checkpointLocation.*or run the\s+version that wrote it"
    ):
        PlanOffset.parse(offset, "billing")


@pytest.mark.parametrize(
    "offset", [{"version": 1}, {"version": 1, "group": "billing"}, {}, None, [1], {"orders": {}, "a": 1}]
)
def test_an_offset_of_an_unknown_form_is_refused(offset: Any) -> None:
    with pytest.raises(CheckpointOfAnotherSource, match="written by another source"):
        PlanOffset.parse(offset, "billing")


NAMES, NUMBERS = st.text(min_size=1, max_size=9), st.integers(-2, 2**63 - 1)
LEAVES = st.none() | st.booleans() | NUMBERS | st.text(max_size=9)
ANY_JSON = st.recursive(LEAVES, lambda each: st.lists(each) | st.dictionaries(NAMES, each))


@given(ANY_JSON)
def test_any_offset_of_another_source_is_refused_in_one_sentence(offset: Any) -> None:
    with pytest.raises(CheckpointOfAnotherSource, match="new checkpointLocation") as raised:
        PlanOffset.parse(offset, "billing", starts_at=offset)
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    ("offset", "source"),
    [
        ({"version": {"0": 17}}, "Spark's Kafka source"),
        (5, "a source whose offset is one number, as Spark's rate and socket sources"),
        ({"logOffset": 3}, "Spark's file source"),
        ({"offset": 10, "timestamp": 1000}, "Spark's rate-micro-batch source"),
        ({"version": 1, "snapshot_id": 7, "position": 0, "scan_all_files": False}, "Iceberg's source"),
        ({"sourceVersion": 1, "reservoirId": "r", "reservoirVersion": 4, "index": -1}, "Delta Lake's source"),
    ],
)
def test_a_checkpoint_of_another_source_is_refused_by_its_name(offset: Any, source: str) -> None:
    with pytest.raises(CheckpointOfAnotherSource, match=rf"written by {source}.*new checkpointLocation"):
        PlanOffset.parse(offset, "billing", starts_at=offset)


KAFKA_START, KAFKA_END = {"orders": {"1": 40, "0": 17}}, {"orders": {"1": 50, "0": 20}}


@pytest.mark.parametrize(
    ("starts_at", "advice"),
    [
        (KAFKA_START, re.escape("""startingOffsets='{"orders":{"0":17,"1":40}}'""")),
        (initial_offset("billing", "m1"), "startingOffsets from the file sources/0/0"),
        ({"orders": {str(n): 1_000_000 for n in range(1_000)}}, "folder offsets whose number is in its folder commits"),
    ],
)
def test_after_sparks_kafka_source_no_uncommitted_record_is_skipped(starts_at: Any, advice: str) -> None:
    """The end of a batch that Spark did not commit is no offset to continue at."""
    with pytest.raises(CheckpointOfAnotherSource, match=advice) as raised:
        PlanOffset.parse(KAFKA_END, "billing", starts_at=starts_at)
    assert 'startingOffsets=\'{"orders":{"0":20' not in str(raised.value)


def test_an_offset_of_another_group_is_refused() -> None:
    with pytest.raises(ForeignCheckpoint):
        PlanOffset.parse(initial_offset("audit", "m1"), "billing")


# --- the archive's journal


def journal(archive: Path) -> Path:
    (path,) = archive.glob("_journal/*.json")
    return path


def test_an_archives_journal_names_its_version_and_is_read_back(tmp_path: Path) -> None:
    batch(tmp_path, 3, rejected("orders", 7))
    assert json.loads(journal(tmp_path).read_bytes())["version"] == ARCHIVE
    batch(tmp_path, 3, rejected("orders", 8), attempt_number=1)
    assert read(tmp_path) == [("orders", 8)]


@pytest.mark.parametrize(
    ("content", "reason"),
    [('{"version": 3, "files": []}', "it has format version 3"), ('{"files": []}', "it has no format version")],
)
def test_an_archives_journal_of_another_version_is_refused_and_changes_no_row(
    tmp_path: Path, content: str, reason: str
) -> None:
    batch(tmp_path, 3, rejected("orders", 7))
    journal(tmp_path).write_text(content)
    before = {path: path.read_bytes() for path in tmp_path.glob("[d_][aj]*/**/*") if path.is_file()}
    refused = rf"_journal/.*\.json of the archive {tmp_path} .*{reason}.*another folder"
    with pytest.raises(ArchiveFormatUnknown, match=refused):
        batch(tmp_path, 3, rejected("orders", 8), attempt_number=1)
    with pytest.raises(ArchiveFormatUnknown, match=refused):
        compact(str(tmp_path))
    assert {path: path.read_bytes() for path in before} == before
    assert read(tmp_path) == [("orders", 7)]


def test_an_archive_of_the_version_before_is_read_and_compacted(tmp_path: Path) -> None:
    """A batch of this version finds no journal of before; compaction keeps the files that such a journal names."""
    files = [file for number in (3, 4) for file in batch(tmp_path, number, rejected("orders", number))]
    journal(tmp_path).unlink()
    yesterday = "date=2026-01-01/topic=orders"
    (tmp_path / yesterday).mkdir(parents=True)
    names = [f"{yesterday}/{'a' * 16}-{number}-0-0.parquet" for number in (3, 4, 5)]
    for name in names:
        (tmp_path / name).write_bytes((tmp_path / files[0]).read_bytes())
    before = {"version": 1, "batch": 5, "run": "r", "attempt": 0, "files": names[2:]}
    (tmp_path / "_journal" / f"{'a' * 16}.json").write_text(json.dumps(before))
    batch(tmp_path, 5, rejected("orders", 5), attempt_number=1)
    assert compact(str(tmp_path)).before == 2
    assert (tmp_path / names[2]).exists()
    assert len(read(tmp_path)) == 6
