"""The searches for mistakes that take longer than others: `make soak` runs them, and `make test-all` the rest.

Rule: each mistake is found by one search at least that is not among these (tests/unit/docs/test_rules.py). A search is
long if it takes more than about a second of CPU time, and another one finds its mistake sooner.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.mistakes.mistake import Mistake, Seeds

NONE = frozenset[str]()
EXPLORER = frozenset(
    {
        "a_stale_signal_keeps_the_lock",
        "accept_by_silence_what_an_earlier_attempt_passed_over",
        "carry_out_a_request_for_an_earlier_owner",
        "extend_a_lock_for_ever",
        "forget_superseded_plans_in_snapshots",
        "forget_that_an_attempt_passed_the_record_over",
        "forget_the_names_of_deleted_topics_in_snapshots",
        "forget_what_the_target_does_in_snapshots",
        "give_each_lock_a_session_after_a_load",
        "keep_what_superseded_the_plan",
        "leave_decided_records_out_of_a_replay",
        "leave_staged_outcomes_out_of_snapshots",
        "nobody_comes_back_after_a_load",
        "refuse_a_superseded_plan_for_ever",
        "take_a_group_without_reading_ones_own_record",
        "take_signals_for_an_older_delivery",
    }
)
SIMULATOR = frozenset(
    {
        "begin_a_later_partition_by_the_policy_of_the_next_to_join-topics",
        "count_a_stall_as_silence-stalls",
        "count_no_failure_for_released_work-signals",
        "extend_a_lock_for_ever-signals",
        "forget_disagreements_in_snapshots-sinks",
        "forget_that_attempts_disagree-sinks",
        "forget_the_receipt-faults",
        "forget_work_in_progress_at_a_load-signals",
        "give_each_lock_a_session_after_a_load-signals",
        "keep_the_partitions_of_a_lost_member-faults",
        "leave_staged_outcomes_out_of_snapshots-sinks",
        "let_retention_archive_archiving_records-sinks",
        "log_a_member_that_is_back_at_its_first_heartbeat_only-members",
        "match_rows_by_their_offsets-sinks",
        "renew_below_the_start_offset_without_a_word-faults",
        "take_signals_for_an_older_delivery-signals",
        "take_signals_for_what_another_has_done-signals",
        "take_signals_of_any_member-signals",
        "wait_for_a_heartbeat_as_long_as_for_any_answer-stalls",
    }
)
LONG = {"model": NONE, "explorer": EXPLORER, "simulator": SIMULATOR, "year": NONE}
"""The names of the searches by harness, as in :func:`searches`."""


def name_of(mistake: Mistake, seeds: Seeds | None = None) -> str:
    """The name of a search: that of its mistake, in the simulator with the scenario."""
    return mistake.name if seeds is None else f"{mistake.name}-{seeds.scenario or 'faults'}"


def searches(mistake: Mistake) -> Iterator[tuple[str, str]]:
    """The harness and the name of each search for the mistake, without the unit tests, which are all short."""
    if mistake.model is not None:
        yield "model", name_of(mistake)
    if mistake.year:
        yield "year", name_of(mistake)
    for _ in mistake.explorer:
        yield "explorer", name_of(mistake)
    for seeds in mistake.simulator:
        yield "simulator", name_of(mistake, seeds)


def search(harness: str, name: str, *values: object) -> Any:
    """The parameters of a search's test, which is marked `soak` if it is a long one."""
    return pytest.param(*values, id=name, marks=[pytest.mark.soak] if name in LONG[harness] else [])


def is_found_by_a_short_search(mistake: Mistake) -> bool:
    return bool(mistake.unit_tests) or any(name not in LONG[harness] for harness, name in searches(mistake))
