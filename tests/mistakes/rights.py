"""Allow lists: what a token, and a coordinator's keys, let the coordinator's principal read and write."""

from __future__ import annotations

from coordinator.config import resolved
from coordinator.protocol.allowed_topics import AllowedTopics
from coordinator.protocol.rights import Caller
from coordinator.service.dead_letters.group_worker import GroupWorker
from coordinator.service.handlers.coordinator_service import CoordinatorService
from coordinator.service.runtime import transactions
from tests.mistakes import rules
from tests.mistakes.mistake import Patch, mistake


@mistake(
    rules.ALLOWED_TOPICS,
    tests=(
        "requests/test_allow_lists::test_a_topic_that_the_key_does_not_allow_is_refused_at_joins",
        "requests/test_allow_lists::test_a_reset_gives_a_group_no_topic_that_is_not_allowed",
        "requests/test_allow_lists::test_a_token_joins_with_the_topics_that_it_is_allowed_alone",
    ),
)
def read_any_topic_for_a_member(patch: Patch) -> None:
    patch.setattr(AllowedTopics, "check_source", lambda self, topic: None)


@mistake(
    rules.ALLOWED_TOPICS,
    tests=("requests/test_allow_lists::test_a_pattern_gets_the_topics_that_the_coordinator_reads_alone",),
)
def give_a_pattern_every_topic_that_it_meets(patch: Patch) -> None:
    patch.setattr(CoordinatorService, "_read_here", lambda self, found, group_id: found)


@mistake(
    rules.ALLOWED_TOPICS,
    tests=(
        "requests/test_allow_lists::test_the_coordinator_writes_dead_letters_to_allowed_topics_alone",
        "requests/test_allow_lists::test_a_token_sets_the_dead_letter_topics_that_it_is_allowed_alone",
    ),
)
def take_any_dead_letter_topic(patch: Patch) -> None:
    patch.setattr(AllowedTopics, "check_dead_letters", lambda self, topic: None)


@mistake(
    rules.ALLOWED_TOPICS,
    tests=("requests/test_allow_lists::test_a_member_reads_nothing_that_the_dead_letter_topic_may_not_get",),
)
def let_a_member_read_what_the_dead_letter_topic_may_not_get(patch: Patch) -> None:
    patch.setattr(transactions, "check_dead_letter_sources", lambda *a: None)


@mistake(
    rules.ALLOWED_TOPICS,
    tests=("requests/test_allow_lists::test_another_dead_letter_topic_has_no_limit_of_the_one_before",),
)
def keep_the_limit_of_another_dead_letter_topic(patch: Patch) -> None:
    patch.setattr(resolved, "DEAD_LETTER_TOPIC", "no.such.key")


@mistake(
    rules.ALLOWED_TOPICS,
    tests=(
        "requests/test_allow_lists::test_records_of_a_topic_that_is_not_allowed_are_not_copied",
        "requests/test_allow_lists::test_records_that_are_not_copied_are_given_up_if_so_configured",
    ),
)
def copy_what_a_group_got_before(patch: Patch) -> None:
    patch.setattr(GroupWorker, "_copied_from_allowed", lambda self, backlog: backlog)


@mistake(
    rules.ALLOWED_TOPICS,
    tests=(
        "requests/test_allow_lists::test_a_token_uses_no_group_that_it_is_not_allowed",
        "requests/test_allow_lists::test_a_list_of_groups_shows_those_that_the_token_may_use",
    ),
)
def let_a_token_use_any_group(patch: Patch) -> None:
    patch.setattr(Caller, "may_use", lambda self, group_id: True)


@mistake(
    rules.ALLOWED_TOPICS,
    tests=("requests/test_allow_lists::test_a_token_joins_with_the_topics_that_it_is_allowed_alone",),
)
def let_a_token_subscribe_by_any_pattern(patch: Patch) -> None:
    patch.setattr(AllowedTopics, "check_pattern", lambda self, pattern: None)
