"""Records that a ShareConsumer acquires ahead of its program."""

from __future__ import annotations

from typing import Any

from coordinator.core.commands import acknowledge
from coordinator.core.commands.acquire_for_consumer import PartitionFetch
from share_consumer import pace
from share_consumer.ahead import Acquired, Ahead
from tests.mistakes import rules
from tests.mistakes.mistake import Patch, Seeds, mistake


@mistake(
    rules.AHEAD_IS_NO_FAILURE,
    tests=(
        "core/test_acquire_records::test_a_throttled_run_is_not_acquired_ahead_of_a_program",
        "core/test_acquire_records::test_a_quarantined_record_is_not_acquired_ahead_of_a_program",
    ),
)
def acquire_records_near_their_limit_ahead(patch: Patch) -> None:
    right = PartitionFetch.take

    def take(self: PartitionFetch) -> None:
        self.ahead = False
        right(self)

    patch.setattr(PartitionFetch, "take", take)


@mistake(
    rules.AHEAD_IS_HELD,
    tests=(
        "share_consumer/test_ahead::test_a_refused_renewal_drops_its_records_and_no_others",
        "share_consumer/test_ahead::test_records_whose_renewal_is_refused_during_the_read_are_dropped",
    ),
)
def hand_out_what_could_not_be_renewed(patch: Patch) -> None:
    patch.setattr(Acquired, "drop", lambda self, gone: None)


@mistake(
    rules.AHEAD_IS_HELD,
    tests=(
        "share_consumer/test_ahead::test_after_a_lapse_of_the_session_locks_are_renewed_first",
        "share_consumer/test_ahead::test_waiting_records_of_a_lapsed_session_need_a_renewal",
    ),
)
def hand_out_what_a_lapsed_session_had(patch: Patch) -> None:
    right = Ahead.look

    def look(self: Ahead, most: int, now_s: float, joins: Any) -> Any:
        for each in self._waiting:
            each.joins = joins
        return right(self, most, now_s, joins)

    patch.setattr(Ahead, "look", look)
    patch.setattr(Ahead, "needs_renewal", lambda self, now_s, joins, lives_until_s: False)


@mistake(
    rules.AHEAD_IS_HELD,
    tests=("core/test_renew::test_a_renewal_below_the_start_offset_returns_that_the_records_are_done",),
    simulator=(Seeds(first=165),),
)
def renew_below_the_start_offset_without_a_word(patch: Patch) -> None:
    patch.setattr(acknowledge, "_done_below", lambda group, command: {})


@mistake(
    rules.READ_AHEAD_IS_READ_SOON,
    tests=("share_consumer/test_pace::test_no_more_is_asked_for_than_is_read_in_a_while",),
)
def acquire_ahead_whatever_reading_takes(patch: Patch) -> None:
    patch.setattr(pace, "MOST_READ_S", 1e9)
