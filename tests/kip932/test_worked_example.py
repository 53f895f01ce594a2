"""KIP-932, "Examples with share-group state": what the core shows is the KIP's example, word for word."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.config.resolved import GroupConfig
from coordinator.core.commands import acknowledge, acquire_records, membership
from coordinator.core.records import RunsChanged
from coordinator.core.runs import Run
from coordinator.core.share_partition import SharePartition
from tests.kip932.worked_example import GOLDEN, Example


def test_the_worked_example_comes_out_as_the_kip_has_it() -> None:
    assert Example().play(GOLDEN) == GOLDEN


def test_acquired_is_nowhere_in_what_is_durable_in_kafkas_terms() -> None:
    said = [line for line in GOLDEN.splitlines() if line.startswith(("  update", "  older", "  durable"))]
    assert len(said) > 20
    assert not [line for line in said if "ACQUIRED" in line]


# --- mistakes that the example finds


def give_a_count_back(patch: pytest.MonkeyPatch) -> None:
    right = acknowledge.released

    def released(run: Run, config: GroupConfig) -> Run:
        return right(run._replace(delivery_count=run.delivery_count - 1), config)

    patch.setattr(acknowledge, "released", released)


def keep_the_lock_at_its_deadline(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(membership, "consumer_lost_lock", lambda run, config: run)


def fresh_records_before_those_that_came_back(patch: pytest.MonkeyPatch) -> None:
    def take(self: acquire_records.PartitionFetch) -> None:
        self._take_fresh()
        self._take_returned()

    patch.setattr(acquire_records.PartitionFetch, "take", take)


def never_move_the_start_offset(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SharePartition, "_advance", lambda self: None)


def forget_to_append_runs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RunsChanged, "durable", False)


MISTAKES = [
    give_a_count_back,
    keep_the_lock_at_its_deadline,
    fresh_records_before_those_that_came_back,
    never_move_the_start_offset,
    forget_to_append_runs,
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_is_found(mistake: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    with pytest.raises((AssertionError, LookupError, ValueError)):
        test_the_worked_example_comes_out_as_the_kip_has_it()


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("110 AVAILABLE 1\n  window", "110 AVAILABLE 2\n  window"),
        ("older     delta 113-118 ACKNOWLEDGED 1", "older     delta 113-117 ACKNOWLEDGED 1"),
        ("or        checkpoint 120", "or        checkpoint 119"),
        ("window    110 113", "window    110 114"),
        ("acquire c1 110 120", "acquire c1 110 121"),
    ],
)
def test_another_example_is_not_what_comes_out(right: str, wrong: str) -> None:
    assert right in GOLDEN
    other = GOLDEN.replace(right, wrong)
    assert Example().play(other) != other
