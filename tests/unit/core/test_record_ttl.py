"""Records that waited for longer than share.record.ttl.ms are archived; held records never are."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.config.resolved import GroupConfig
from coordinator.core.commands import ArchiveExpired, ExpiredRecords
from coordinator.core.commands.acquisition import MOST_ARCHIVING
from coordinator.protocol.errors import ConfigConflict
from coordinator.protocol.values import Disposition, OffsetRange
from tests.support.group_driver import TOPIC_ID, GroupDriver, acknowledged, fetched, ranges

TTL, DEAD_LETTERS = "share.record.ttl.ms", "errors.deadletterqueue.topic.name"
RELEASE = 2


def group_of(records: int = 100, **configs: str) -> GroupDriver:
    return GroupDriver(records=records, **{TTL: "60000", **configs})


def expire(group: GroupDriver, end: int, *gaps: tuple[int, int], read: tuple[int, int] | None = None) -> None:
    read_from, read_end = read or (group.partition().end_offset, end)
    expired = ExpiredRecords(topic_id=TOPIC_ID, partition=0, end=end, read_from=read_from, read_end=read_end)
    found = tuple(OffsetRange(TOPIC_ID, 0, first, last) for first, last in gaps)
    group.run(ArchiveExpired(ttl_ms=60_000, expired=(expired,), gaps=found))


def archived(group: GroupDriver) -> dict[str, int]:
    """How many records are archived, by disposition; all offsets are accounted for."""
    partition = group.partition()
    assert partition.unaccounted == 0
    return {Disposition(kind).name: count for kind, count in enumerate(partition.counts.archived) if count}


def test_what_was_never_acquired_is_archived_up_to_the_bound() -> None:
    group = group_of()
    expire(group, 30)
    assert (group.partition().start_offset, group.partition().end_offset) == (30, 30)
    assert archived(group) == {"TTL": 30}
    group.join()
    assert ranges(group.next(limit=5)) == [(30, 34, 1)]


def test_offsets_without_a_record_are_archived_as_such() -> None:
    group = group_of(**{DEAD_LETTERS: "dlq"})
    expire(group, 30, (0, 4), (10, 10), (28, 29))
    assert archived(group) == {"NONE": 8}
    assert group.dump() == [
        "[5..9] ARCHIVING 0 0 -",
        "[10..10] ARCHIVED 0 0 -",
        "[11..27] ARCHIVING 0 0 -",
        "[28..29] ARCHIVED 0 0 -",
    ]
    group.file(5, 9, 0)
    group.file(11, 27, 0)
    assert archived(group) == {"NONE": 8, "TTL": 22}


def test_held_records_stay_and_are_archived_once_they_are_released() -> None:
    group = group_of()
    group.join("c1", query=False)
    fetched(group, 10)
    expire(group, 20)
    assert group.partition().acquired_count == 10
    assert archived(group) == {"TTL": 10}
    assert not acknowledged(group, 0, 4, 1, RELEASE)
    expire(group, 20)
    assert (group.partition().acquired_count, archived(group)) == (5, {"TTL": 15})


@pytest.mark.parametrize(
    "configs", [{}, {"share.release.backoff.ms": "60000"}, {"share.order": "partition"}], ids=["", "delayed", "ordered"]
)
def test_a_released_record_is_archived_whatever_it_waits_for(configs: dict[str, str]) -> None:
    group = group_of(10, **configs)
    group.join("c1", query=False)
    fetched(group, 10)
    assert not acknowledged(group, 3, 9, 1, RELEASE)
    expire(group, 5)
    assert archived(group) == {"TTL": 2}
    assert [line.split()[0] for line in group.dump()] == ["[0..2]", "[3..4]", "[5..9]"]


def test_a_query_that_comes_back_is_told_that_it_lost_the_records() -> None:
    group = group_of(10)
    group.join()
    plan = group.next().plan.plan_id
    group.start(plan)
    group.pass_time(60_000)
    expire(group, 4)
    reply = group.restart(plan)
    assert [(each.first, each.last, each.reason) for each in reply.left_out] == [(0, 3, "lost")]
    assert ranges(reply) == [(4, 9, 2)]


def test_nothing_is_guessed_of_offsets_that_were_not_read() -> None:
    group = group_of()
    expire(group, 30, read=(0, 20))
    assert group.partition().end_offset == 20
    expire(group, 30, read=(25, 30))
    assert group.partition().end_offset == 20, "after a reset, the log was read elsewhere"
    expire(group, 30, read=(10, 25))
    assert group.partition().end_offset == 25


def test_nothing_below_the_log_start_is_archived() -> None:
    group = group_of()
    group.move_log_start(10)
    expire(group, 30, read=(0, 30))
    assert (archived(group), group.partition().counts.removed) == ({"TTL": 20}, 10)


def test_a_bound_below_the_start_offset_changes_nothing() -> None:
    """Another member has been given all that was too old since the bound was asked for."""
    group = group_of(10)
    group.join("c1", query=False)
    fetched(group, 10)
    assert not acknowledged(group, 0, 4, 1, 1)
    assert not acknowledged(group, 5, 9, 1, RELEASE)
    expire(group, 3)
    assert (archived(group), group.partition().start_offset) == ({}, 5)


def test_another_ttl_by_now_archives_nothing() -> None:
    group = group_of(**{TTL: "70000"})
    expire(group, 30)
    assert archived(group) == {}


def test_while_too_many_wait_for_their_dead_letters_nothing_is_archived() -> None:
    group = group_of(2 * MOST_ARCHIVING, **{DEAD_LETTERS: "dlq"})
    expire(group, MOST_ARCHIVING)
    expire(group, MOST_ARCHIVING + 10)
    assert group.partition().end_offset == MOST_ARCHIVING
    group.join()
    assert group.next().held_back == MOST_ARCHIVING


@pytest.mark.parametrize(("ttl", "delay", "refused"), [(1000, 1000, True), (1000, 2000, True), (2000, 1000, False)])
def test_a_ttl_must_be_longer_than_the_delivery_delay(ttl: int, delay: int, refused: bool) -> None:
    texts: dict[str, Any] = {TTL: str(ttl), "share.delivery.delay.ms": str(delay)}
    if not refused:
        assert GroupConfig.parse(texts).share_record_ttl_ms == ttl
        return
    with pytest.raises(ConfigConflict, match="before it may be delivered"):
        GroupConfig.parse(texts)
