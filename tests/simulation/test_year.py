"""A job that is started each minute: memory, snapshots and the state log stay below a budget, whatever the group's age.

Other lengths: ``YEAR_MINUTES=43200 python -m pytest --soak tests/simulation/test_year.py``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

import pytest

from coordinator.core import share_group
from coordinator.core.replays import partition_replay as partitions
from tests.mistakes.catalogue import MISTAKES
from tests.mistakes.long_searches import name_of, search
from tests.mistakes.mistake import Make, Patch
from tests.simulation.year import (
    HOUR_MS,
    MINUTE_MS,
    Job,
    Size,
    a_new_checkpoint_each_time,
    all_kinds_in_turn,
    dated_topics,
    the_same_checkpoint_each_time,
)

DAY = 1_440
YEAR = int(os.environ.get("YEAR_MINUTES", "525600"))
WEEK_MS = 7 * 24 * HOUR_MS
JOBS = (a_new_checkpoint_each_time, the_same_checkpoint_each_time, all_kinds_in_turn, dated_topics)
FOUND_HERE = [
    search("year", name_of(mistake), mistake.make, mistake.year) for mistake in MISTAKES.values() if mistake.year
]


@pytest.fixture(autouse=True)
def few_ends_are_kept(monkeypatch: Patch) -> None:
    """So that the ends of forgotten topics are some from the first hours on."""
    monkeypatch.setattr(partitions, "ENDS_KEPT", 20)
    monkeypatch.setattr(logging.root.manager, "disable", logging.WARNING)  # pytest keeps each line


def check(job: Job, minutes: int, each: Callable[[Job], None], *, retention_ms: int) -> None:
    """The budget holds for the run, and it is no larger in its last part than before."""
    retention = retention_ms // MINUTE_MS  # one member a minute; and a sweep's time
    budget = Size.budget(max(retention, share_group.MEMBERS_KEPT) + retention // 8 + 20)
    early, late = job.run_for(minutes // 2, each, budget), job.run_for(minutes - minutes // 2, each, budget)
    print(f"{minutes} minutes, {job.delivered} records, {job.meter.snapshots} snapshots\n{early}\n{late}\n{budget}")
    early = early._replace(live_bytes=late.live_bytes)  # the log grows from snapshot to snapshot
    grown = [what for what, a, b in zip(Size._fields, early, late, strict=True) if a and b > a * 5 // 4 + 100]
    assert not grown, f"{grown} grow with the number of runs: {early}, then {late}"


@pytest.mark.parametrize("minutes", [DAY // 2, pytest.param(3 * DAY // 2, marks=pytest.mark.soak)])
@pytest.mark.parametrize("records", [pytest.param(0, id="idle", marks=pytest.mark.slow), pytest.param(3, id="busy")])
@pytest.mark.parametrize(
    "each",
    [
        pytest.param(a_new_checkpoint_each_time, marks=pytest.mark.slow),
        pytest.param(the_same_checkpoint_each_time, marks=pytest.mark.slow),
        all_kinds_in_turn,
        dated_topics,
    ],
    ids=lambda each: each.__name__,
)
def test_the_state_of_a_job_started_each_minute_is_bounded(
    each: Callable[[Job], None], records: int, minutes: int, monkeypatch: Patch
) -> None:
    """Half a day, or a day and a half, with a retention of one hour and the last 50 members."""
    monkeypatch.setattr(share_group, "MEMBERS_KEPT", 50)
    check(Job(retention_ms=HOUR_MS, records=records), minutes, each, retention_ms=HOUR_MS)


@pytest.mark.soak
@pytest.mark.parametrize("days", [3, 30])
def test_days_of_a_job_that_is_started_each_minute(days: int) -> None:
    """With the last thousand members, and a retention of six hours."""
    check(Job(retention_ms=6 * HOUR_MS, records=2), days * DAY, all_kinds_in_turn, retention_ms=6 * HOUR_MS)


@pytest.mark.soak
@pytest.mark.parametrize("each", JOBS, ids=lambda each: each.__name__)
def test_a_year_of_a_job_that_is_started_each_minute(each: Callable[[Job], None]) -> None:
    """As configured by default: the last thousand members, a retention of a week."""
    check(Job(retention_ms=WEEK_MS, records=2), YEAR, each, retention_ms=WEEK_MS)


@pytest.mark.slow
@pytest.mark.parametrize(("mistake", "job"), FOUND_HERE)
def test_the_mistake_is_found(mistake: Make, job: str, monkeypatch: Patch) -> None:
    """Within half a day."""
    each = next(each for each in JOBS if each.__name__ == job)
    monkeypatch.setattr(share_group, "MEMBERS_KEPT", 50)
    mistake(monkeypatch)
    with pytest.raises(AssertionError) as found:
        check(Job(retention_ms=HOUR_MS, records=3), DAY // 2, each, retention_ms=HOUR_MS)
    print(found.value)
