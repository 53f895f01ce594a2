"""A job that is started each minute, for a long time: what a group keeps stays below a budget, whatever its age.

Time is simulated. The group's log is cut as a runtime would: a snapshot takes its place after 500 records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from coordinator.core import share_group
from coordinator.core.commands import StageRuns
from coordinator.core.records import decode_record, encode_records
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.messages import OutcomesStaged
from coordinator.protocol.messages import PartitionOutcomes as Outcomes
from coordinator.protocol.values import AcknowledgeType, OutcomeRun
from tests.support.group_driver import GroupDriver, durable_state

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
MEMBER_BYTES = 800
"""In a snapshot, of a member that is gone: what it subscribed to, its epoch, its last plan's number."""


class Size(NamedTuple):
    """What a group came to at its largest."""

    members: int
    snapshot_bytes: int
    snapshot_records: int


class LongLived(GroupDriver):
    """Keeps its last snapshot and what came after it."""

    def __init__(self, snapshot_after: int = 500, **configs: str) -> None:
        self.snapshot_after = snapshot_after
        self.largest = Size(0, 0, 0)
        self.updates, self.runs, self.start = 0, 0, ""
        super().__init__(records=0, partitions=2, **configs)

    def check_recovery(self) -> None:
        pass

    def append(self, records: Any) -> None:
        records = tuple(records)
        data = encode_records(records)
        self.log += data
        self.updates += len(data)
        for record in records:
            self.group.replay(record)
        if self.updates > self.snapshot_after:
            self.log, self.updates = encode_records(self.group.snapshot()), 0
            now = Size(len(self.group.members), sum(map(len, self.log)), len(self.log))
            self.largest = Size(*map(max, zip(self.largest, now, strict=True)))

    def check(self) -> None:
        again = ShareGroup("billing")
        for data in self.log:
            again.replay(decode_record(data))
        assert durable_state(again) == durable_state(self.group)


def run(group: LongLived, member: str, start: str, *, records: int) -> str:
    """A run of the job: it joins, works off what came, half of it decided by a sink, and is gone."""
    group.join(member)
    for partition in group.ends:
        group.ends[partition] += records
    number = group.acquire(start, member, 1_000).plan.plan_id
    if number:
        group.use(number, member)
        first = group.ends[0] - records
        released = OutcomeRun(first, first, 1, AcknowledgeType.RELEASE)
        said = StageRuns(group_id="billing", partitions=(Outcomes(topic="orders", partition=0, runs=(released,)),))
        assert isinstance(group.run(said), OutcomesStaged)
        group.complete(number, member)
    group.pass_time(MINUTE_MS)
    return number or start


def next_member(group: LongLived) -> str:
    group.runs += 1
    return f"{group.runs:036x}"


def each_run_with_a_new_checkpoint(group: LongLived, runs: int, *, records: int) -> None:
    for _ in range(runs):
        run(group, next_member(group), "", records=records)


def one_query_that_is_started_again(group: LongLived, runs: int, *, records: int) -> None:
    for _ in range(runs):
        group.start = run(group, "0" * 36, group.start, records=records)


JOBS = [each_run_with_a_new_checkpoint, one_query_that_is_started_again]


@pytest.mark.parametrize("records", [0, 5], ids=["idle", "busy"])
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.__name__)
def test_what_a_group_keeps_of_a_job_that_is_started_each_minute_is_bounded(
    job: Callable[..., None], records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty hours with a retention of one hour, and the last 50 members."""
    monkeypatch.setattr(share_group, "MEMBERS_KEPT", 50)
    group = LongLived(**{"share.member.retention.ms": str(HOUR_MS)})
    job(group, 1_000, records=records)
    early = group.largest
    job(group, 2_000, records=records)
    group.check()
    assert group.largest.members <= 60 * 9 // 8 + 10 + 5
    assert group.largest.snapshot_bytes <= 5_000 + MEMBER_BYTES * 85
    assert group.largest.snapshot_records <= 3 * 85 + 20
    assert group.largest.snapshot_bytes <= early.snapshot_bytes * 11 // 10, "it does not grow with age"


@pytest.mark.soak
@pytest.mark.parametrize("records", [0, 5], ids=["idle", "busy"])
@pytest.mark.parametrize("job", [each_run_with_a_new_checkpoint, one_query_that_is_started_again])
def test_a_year_of_a_job_that_is_started_each_minute(job: Callable[..., None], records: int) -> None:
    """With what is configured by default: a week, the last thousand."""
    group = LongLived(snapshot_after=50_000)
    job(group, 525_600, records=records)
    group.check()
    assert group.largest.members <= 7 * 1_440 * 9 // 8 + 20
    assert group.largest.snapshot_bytes <= 12_000 * MEMBER_BYTES
