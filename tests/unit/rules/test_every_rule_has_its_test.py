"""The ◆ rules of docs/protocol.md, each with the tests that hold it and the mistakes that these tests find.

A rule without a test, a test that no mistake makes fail, and a mistake that stands for no rule are failures. Rules of
the Kafka store and of fleets are held by their own tests.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

from tests.unit.rules import test_given_up_plans as given_up
from tests.unit.rules import test_isolation as isolation
from tests.unit.rules import test_plans as plans
from tests.unit.rules import test_shell as shell
from tests.unit.rules import test_sink as sink
from tests.unit.rules import test_source as source
from tests.unit.rules.test_mistakes import ALL_MISTAKES

Test = Callable[[], None]
RULES: dict[str, tuple[tuple[Test, str], ...]] = {
    "1 on demand: it does not leave while anything is ACQUIRED, delayed, or waiting for a letter that can be written": (
        (shell.test_on_demand_does_not_leave_while_a_dead_letter_waits, "leave_while_a_dead_letter_waits"),
        (
            shell.test_on_demand_leaves_when_the_letters_that_wait_need_a_person,
            "wait_for_letters_that_nobody_can_write",
        ),
        (plans.test_on_demand_may_rest, "rest_while_members_are_there"),
        (shell.test_on_demand_leaves_when_it_is_idle_but_not_while_a_member_is_there, "leave_when_nobody_asks"),
        (shell.test_on_demand_does_not_leave_while_something_is_acquired, "leave_while_something_is_acquired"),
        (shell.test_on_demand_does_not_leave_while_something_is_delayed, "leave_while_something_is_delayed"),
        (
            shell.test_on_demand_does_not_leave_while_a_record_that_was_set_aside_backs_off,
            "leave_while_something_is_delayed",
        ),
    ),
    "2 the start offset that a policy resolved is appended before the first acquire": (
        (
            shell.test_the_start_offset_that_a_policy_resolved_is_appended_before_the_first_acquire,
            "do_not_append_the_start_offset",
        ),
        (
            shell.test_the_start_offset_that_a_policy_resolved_is_appended_before_the_first_acquire,
            "resolve_the_start_offset_at_the_first_acquire",
        ),
        (
            shell.test_a_partition_that_came_later_has_its_start_appended_before_its_first_acquire,
            "acquire_without_a_start_offset",
        ),
    ),
    "2 every acquisition is durable": (
        (plans.test_every_acquisition_is_durable, "acquire_without_appending"),
        (plans.test_after_a_load_every_holder_has_one_session_to_come_back, "nobody_comes_back_after_a_load"),
        (plans.test_after_a_load_every_holder_has_one_session_to_come_back, "no_time_to_come_back_after_a_load"),
    ),
    "2 a snapshot appends live plans, numbers and staged outcomes again": (
        (plans.test_a_snapshot_appends_live_plans_and_numbers_again, "leave_live_plans_out_of_snapshots"),
        (plans.test_a_snapshot_appends_live_plans_and_numbers_again, "leave_numbers_out_of_snapshots"),
        (sink.test_a_snapshot_appends_staged_outcomes_again, "leave_staged_outcomes_out_of_snapshots"),
        (sink.test_a_snapshot_appends_staged_outcomes_again, "forget_disagreements_in_snapshots"),
    ),
    "2 a newest plan without runs replays empty": (
        (plans.test_newest_plan_without_runs_replays_empty, "forget_newest_plans_without_runs"),
    ),
    "2 a run keeps its number when its lock runs out; release, a cut, setting aside, another acquisition clear it": (
        (plans.test_a_run_keeps_its_number_when_its_lock_runs_out, "clear_the_number_at_expiry"),
        (plans.test_state_and_count_alone_never_match, "match_by_count_instead_of_number"),
        (plans.test_release_cut_and_setting_aside_clear_the_number, "keep_the_number_on_release"),
        (plans.test_release_cut_and_setting_aside_clear_the_number, "keep_the_number_on_a_cut"),
        (plans.test_release_cut_and_setting_aside_clear_the_number, "keep_the_number_on_setting_aside"),
    ),
    "2 limits compare tries, never the delivery count": (
        (isolation.test_limits_compare_tries_never_the_delivery_count, "compare_the_delivery_count"),
        (isolation.test_limits_compare_tries_never_the_delivery_count, "throttle_by_count"),
        (isolation.test_a_consumers_record_is_archived_at_the_limit, "consumers_never_reach_the_limit"),
        (
            isolation.test_failures_give_nothing_up_that_a_query_releases,
            "count_failures_against_what_a_query_releases",
        ),
        (
            isolation.test_a_record_that_was_set_aside_and_is_released_is_as_any_released_one,
            "what_was_set_aside_stays_so_when_it_is_released",
        ),
    ),
    "2 failures: one at most for a delivery, and only of a plan that was durably marked used": (
        (isolation.test_a_delivery_is_one_failure_at_most, "count_a_delivery_twice"),
        (plans.test_used_is_durable_so_that_a_replay_counts_after_a_crash, "use_without_appending"),
        (plans.test_a_plan_never_used_burns_a_count_and_no_try, "count_a_failure_for_plans_never_used"),
    ),
    "2 isolation looks at failures only: a release is none": (
        (isolation.test_isolation_looks_at_failures_only, "isolate_by_releases_too"),
    ),
    "2 the cut comes first: only the kept slice is counted": (
        (isolation.test_the_cut_comes_first, "forget_that_the_cut_comes_first"),
        (isolation.test_the_cut_comes_first, "forget_the_cut"),
        (plans.test_a_loss_is_said_once, "tell_every_loss_again"),
    ),
    "2 a failed trial archives the record and uses up its evidence": (
        (isolation.test_failed_trial_archives_and_uses_up_evidence, "a_trial_uses_up_nothing"),
        (isolation.test_failed_trial_archives_and_uses_up_evidence, "never_judge_a_trial"),
        (isolation.test_a_trial_is_judged_when_its_query_comes_back, "never_judge_a_trial"),
        (isolation.test_a_second_trial_lost_is_a_failed_one, "never_judge_a_lost_trial"),
        (isolation.test_a_failure_at_the_limit_sets_aside, "archive_at_the_limit"),
        (isolation.test_no_trial_without_evidence, "always_on_trial"),
        (isolation.test_setting_aside_makes_all_evidence_old, "any_completion_is_evidence"),
        (
            isolation.test_what_failed_among_others_fails_alone_before_its_trial,
            "forget_that_failures_make_evidence_old",
        ),
        (isolation.test_what_failed_among_others_fails_alone_before_its_trial, "trial_before_failing_alone"),
    ),
    "3 a query's locks live as long as its session; the renewal cap never applies to them": (
        (plans.test_limits_of_time_never_end_a_querys_lock, "a_lock_duration_for_queries_too"),
        (plans.test_the_renewal_cap_never_applies_to_a_query, "renew_a_query_up_to_the_cap"),
    ),
    "3 time in which the coordinator heard nobody is nobody's silence": (
        (
            plans.test_time_in_which_nobody_was_heard_ends_no_session_and_no_lock,
            "count_time_in_which_nobody_was_heard",
        ),
        (
            plans.test_who_is_gone_loses_its_records_also_where_nobody_is_heard_again_and_again,
            "give_a_full_session_each_time_nobody_was_heard",
        ),
    ),
    "3 the epoch is appended and outlives the session; a fenced reader fails by name and never rejoins by itself": (
        (plans.test_fenced_reader_never_rejoins, "skip_the_epoch_check"),
        (plans.test_epoch_outlives_the_session, "forget_fenced_processes"),
        (plans.test_epoch_outlives_the_session, "do_not_append_the_epoch"),
        (plans.test_epoch_outlives_the_session, "lapsed_readers_ignore_newer_epochs"),
        (source.test_a_fenced_reader_fails_by_name_and_never_rejoins_by_itself, "a_fenced_reader_joins_again"),
        (source.test_a_fenced_reader_fails_by_name_and_never_rejoins_by_itself, "a_fenced_reader_asks_on"),
        (
            source.test_a_lapsed_reader_comes_back_naming_its_epoch,
            "a_lapsed_reader_comes_back_as_a_new_process",
        ),
    ),
    "4.1 an unused plan comes back unchanged to the same process only; a later one reclaims it": (
        (plans.test_a_later_process_reclaims, "return_an_unused_plan_unchanged_to_anybody"),
    ),
    "4.2 partitions() is idempotent per process and end": (
        (plans.test_partitions_is_idempotent_per_process_and_end, "reclaim_at_each_call"),
        (source.test_partitions_is_asked_for_once_per_process_and_end, "ask_for_a_plan_at_each_call"),
    ),
    "4.3 a replay reclaims all that still carries the number, also what a sink has already decided": (
        (plans.test_reclaim_takes_all_that_carries_the_number, "clear_the_number_at_expiry"),
        (sink.test_a_replay_reads_again_what_a_sink_has_already_decided, "leave_what_is_decided_out_of_a_replay"),
    ),
    "4.3 data loss is archived, fails the query once by name, and goes on after a restart": (
        (plans.test_offsets_below_log_start_are_archived_then_fail_once, "tell_losses_without_archiving"),
        (
            source.test_data_loss_fails_the_query_once_by_name_and_goes_on_after_a_restart,
            "a_plan_that_fails_for_a_loss_is_used",
        ),
        (source.test_data_loss_fails_the_query_once_by_name_and_goes_on_after_a_restart, "never_fail_for_a_loss"),
        (
            source.test_data_loss_fails_the_query_once_by_name_and_goes_on_after_a_restart,
            "tell_losses_without_archiving",
        ),
    ),
    "4.3 a plan that is completed, or not the newest, is refused by name": (
        (plans.test_an_old_plan_is_refused_by_name, "take_any_plan_up"),
        (
            given_up.test_of_two_drivers_on_one_checkpoint_the_first_to_use_its_plan_wins,
            "take_a_given_up_plan_up_in_spite_of_the_newest",
        ),
    ),
    "4.3 a plan that was given up and is in Spark's log, while nobody used the newest one, is taken up empty": (
        (
            given_up.test_it_is_taken_up_empty_and_what_took_its_place_goes_back,
            "refuse_a_plan_that_was_given_up_for_ever",
        ),
        (
            given_up.test_it_is_taken_up_empty_and_what_took_its_place_goes_back,
            "keep_what_took_the_place_of_a_given_up_plan",
        ),
        (given_up.test_its_state_outlives_the_coordinator, "forget_what_was_given_up"),
    ),
    "4 AvailableNow drains what was there, without waiting for delays, backoff or others' locks": (
        (source.test_available_now_drains_what_was_there_when_it_began_and_ends, "available_now_has_no_end"),
        (source.test_available_now_drains_what_was_there_when_it_began_and_ends, "available_now_is_not_known"),
        (
            source.test_available_now_does_not_wait_for_the_locks_of_others,
            "available_now_until_everything_is_acknowledged",
        ),
        (source.test_available_now_does_not_wait_for_backoff, "backoff_is_over_at_once"),
    ),
    "4 Trigger.Once is refused by name": ((source.test_trigger_once_is_refused_by_name, "take_trigger_once"),),
    "4.5 explicit mode releases what no sink decided, gaps told apart; without a sink the query fails by name": (
        (sink.test_explicit_mode_releases_what_no_sink_decided, "accept_what_no_sink_decided"),
        (sink.test_gaps_are_told_apart_before_undecided_offsets_are_released, "release_gaps"),
        (
            sink.test_explicit_mode_without_a_sink_fails_by_name_and_burns_no_delivery,
            "release_without_asking_for_a_sink",
        ),
        (
            sink.test_explicit_mode_without_a_sink_fails_by_name_and_burns_no_delivery,
            "count_a_try_of_what_is_given_back",
        ),
        (
            sink.test_explicit_mode_without_a_sink_fails_by_name_and_burns_no_delivery,
            "complete_without_a_sink_and_only_say_so",
        ),
    ),
    "4.5 the acknowledgement mode is that with which the attempt at the batch began, whatever the group's is now": (
        (
            sink.test_the_mode_is_the_one_that_the_attempt_began_with,
            "the_mode_of_the_group_at_completion_holds",
        ),
        (sink.test_the_mode_is_the_one_that_the_attempt_began_with, "forget_the_mode_in_snapshots"),
        (
            sink.test_a_querys_own_mode_holds_for_it_whatever_another_one_sets,
            "the_groups_mode_holds_for_a_query_that_has_its_own",
        ),
        (
            sink.test_a_mode_that_the_sink_alone_has_holds_for_its_first_batch,
            "a_sinks_own_mode_is_not_asked_for",
        ),
        (
            sink.test_what_an_attempt_in_explicit_mode_passed_over_is_released_in_implicit_mode_too,
            "what_an_attempt_passed_over_is_accepted_by_a_later_ones_silence",
        ),
    ),
    "5 the driver's commit stages, durably; it takes effect when the plan completes": (
        (sink.test_outcomes_take_effect_when_the_plan_completes, "a_commit_takes_effect_at_once"),
        (sink.test_what_was_staged_is_durable_before_spark_commits, "stage_without_appending"),
    ),
    "5 the last attempt's outcome counts, its silence too; an older one can only veto: two that disagree release": (
        (sink.test_the_last_attempts_outcome_counts, "the_first_attempt_counts"),
        (sink.test_attempts_that_disagree_release_the_record, "forget_that_attempts_disagree"),
        (sink.test_silence_of_the_last_attempt_is_an_outcome, "silence_is_none"),
        (sink.test_silence_of_the_last_attempt_is_an_outcome, "an_older_attempt_has_no_veto"),
        (sink.test_an_older_attempt_that_agrees_with_silence_vetoes_nothing, "an_older_attempt_always_vetoes"),
        *(
            (sink.test_what_an_older_attempt_passed_over_in_explicit_mode_is_released, mistake)
            for mistake in (
                "an_older_attempts_silence_is_unheard",
                "forget_which_attempts_spoke_in_snapshots",
                "a_commit_without_rows_says_nothing",
            )
        ),
        (
            sink.test_what_was_accepted_and_then_passed_over_in_explicit_mode_is_released,
            "forget_that_an_attempt_was_passed_over",
        ),
        (
            sink.test_an_older_attempt_in_which_no_sink_spoke_vetoes_nothing,
            "every_attempt_is_taken_for_one_that_spoke",
        ),
        (sink.test_nothing_said_is_said_for_the_sinks_own_query, "a_commit_without_rows_is_everybodys"),
        (sink.test_nothing_said_is_said_for_the_sinks_own_query, "forget_whose_query_it_is_in_snapshots"),
    ),
    "5 where all sinks of the last attempt say that the target replaces its output, that attempt alone counts": (
        (
            sink.test_where_the_target_replaces_its_output_the_last_attempt_alone_counts,
            "an_older_attempt_vetoes_though_its_output_is_replaced",
        ),
        (
            sink.test_where_the_target_replaces_its_output_the_last_attempt_alone_counts,
            "forget_what_the_target_does_in_snapshots",
        ),
        *(
            (
                sink.test_unless_all_sinks_of_the_last_attempt_say_that_the_target_replaces_older_attempts_veto,
                mistake,
            )
            for mistake in (
                "every_target_is_taken_for_one_that_replaces",
                "one_sink_of_an_attempt_that_replaces_is_enough",
                "what_an_earlier_attempt_said_of_its_target_holds",
            )
        ),
        (
            sink.test_sinks_of_one_attempt_that_disagree_release_the_record_whatever_the_target_does,
            "sinks_of_one_attempt_are_taken_for_attempts",
        ),
        (
            sink.test_a_commit_without_rows_speaks_for_the_target_of_its_own_query_alone,
            "a_commit_without_rows_speaks_for_any_target",
        ),
    ),
    "5 staging is fenced: by the incarnation, the topic ids, and the delivery count of each offset": (
        (
            sink.test_a_run_is_staged_on_the_plan_that_carries_its_offset_at_its_count,
            "match_rows_by_their_offsets",
        ),
        (sink.test_a_sink_from_before_decides_nothing, "take_rows_of_any_life_of_the_group"),
        (sink.test_a_sink_from_before_decides_nothing, "take_rows_of_any_topic_of_that_name"),
        (
            sink.test_a_driver_whose_batch_was_taken_up_since_is_refused,
            "let_a_driver_commit_what_its_successor_took_up",
        ),
        (sink.test_a_driver_whose_batch_was_taken_up_since_is_refused, "forget_reclaims_in_snapshots"),
    ),
    "5 lossless: nothing is archived before its dead letter is known": (
        (sink.test_nothing_is_archived_before_its_dead_letter_is_known, "archive_without_waiting_for_the_letter"),
        (
            sink.test_nothing_is_archived_before_its_dead_letter_is_known,
            "the_window_passes_over_what_waits_for_its_letter",
        ),
        (
            sink.test_retention_takes_no_record_out_of_the_dead_letter_queue,
            "retention_takes_what_waits_for_its_letter",
        ),
    ),
}
OF_NO_RULE = {"do_not_merge", "forget_the_receipt"}
"""Mistakes against what the design says without a ◆."""


def test_every_rule_has_a_test_and_a_mistake_that_it_finds() -> None:
    found = {(test, mistake.__name__) for mistake, test in ALL_MISTAKES}
    missing = [(rule, pair) for rule, pairs in RULES.items() for pair in pairs or (None,) if pair not in found]
    assert missing == []


def test_every_mistake_stands_for_a_rule() -> None:
    named = {pair for pairs in RULES.values() for pair in pairs}
    free = {(test, m.__name__) for m, test in ALL_MISTAKES if m.__name__ not in OF_NO_RULE} - named
    assert free == set()


def test_tests_of_rules_are_collected() -> None:
    modules: tuple[ModuleType, ...] = (given_up, isolation, plans, shell, sink, source)
    for test, _ in (pair for pairs in RULES.values() for pair in pairs):
        assert any(getattr(module, test.__name__, None) is test for module in modules)
