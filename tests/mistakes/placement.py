"""Where groups lie: the number of partitions among which they are placed; and which installation has them."""

from __future__ import annotations

from dataclasses import replace

from coordinator.service.stores.kafka import partition_count as group_placement
from coordinator.service.stores.kafka.ownership import LivingOwner
from coordinator.service.stores.kafka.state_topic import StateTopic
from tests.mistakes import rules
from tests.mistakes.mistake import Patch, mistake


@mistake(
    rules.PLACEMENT_HOLDS, tests=("stores/test_placement_by_record::test_a_partition_that_is_added_moves_no_group",)
)
def place_groups_among_all_partitions_that_there_are(patch: Patch) -> None:
    right = group_placement.prepared
    patch.setattr(group_placement, "prepared", lambda topic: replace(right(topic), partitions=topic.ensure()))


@mistake(
    rules.PLACEMENT_HOLDS,
    tests=(
        "stores/test_placement_by_record::test_a_partition_that_is_added_moves_no_group",
        "stores/test_placement_by_record::test_a_topic_that_is_found_without_records_keeps_its_number",
    ),
)
def place_groups_as_configured(patch: Patch) -> None:
    right = group_placement.prepared
    patch.setattr(group_placement, "prepared", lambda topic: replace(right(topic), partitions=topic.partitions))


@mistake(
    rules.PLACEMENT_HOLDS,
    tests=("stores/test_placement_by_record::test_of_two_coordinators_that_begin_at_once_the_first_record_decides",),
)
def trust_the_number_that_this_process_wrote(patch: Patch) -> None:
    """The log is not read again."""
    written: list[int] = []
    write, read = group_placement.record, group_placement.recorded

    def record(topic: StateTopic, partitions: int) -> None:
        write(topic, partitions)
        written.append(partitions)

    patch.setattr(group_placement, "record", record)
    patch.setattr(group_placement, "recorded", lambda topic: written.pop() if written else read(topic))


@mistake(
    rules.PLACEMENT_HOLDS,
    tests=("stores/test_placement_by_record::test_without_a_placement_record_a_group_in_another_partition_is_named",),
)
def trust_the_setting_where_the_number_is_lost(patch: Patch) -> None:
    patch.setattr(group_placement, "_number_by_groups", lambda topic, partitions: min(topic.partitions, partitions))


@mistake(
    rules.PLACEMENT_HOLDS,
    tests=("stores/test_placement_by_record::test_fewer_partitions_than_groups_are_placed_among_are_refused",),
)
def place_groups_among_partitions_that_are_not_there(patch: Patch) -> None:
    right = group_placement.prepared

    def prepared(topic: StateTopic) -> StateTopic:
        try:
            return right(topic)
        except group_placement.StateTopicUnfit:
            found = group_placement.recorded(topic)
            assert found is not None
            return replace(topic, partitions=found)

    patch.setattr(group_placement, "prepared", prepared)


@mistake(
    rules.PLACEMENT_HOLDS,
    tests=("stores/test_placement_by_record::test_a_placement_record_that_pruning_moves_during_the_read_is_found",),
)
def read_the_number_once(patch: Patch) -> None:
    def recorded(topic: StateTopic) -> int | None:
        with group_placement.LogReader(topic, 0, committed=False) as reader:
            messages = list(reader.read_to(reader.end()))
        numbers = (group_placement._placement_in(topic, message) for message in messages)
        return next((number for number in numbers if number is not None), None)

    patch.setattr(group_placement, "recorded", recorded)


@mistake(
    rules.LOST_GROUP_IS_NOT_TAKEN_BACK,
    tests=("stores/test_group_ownership::test_no_group_is_taken_back_from_an_owner_that_is_not_asked",),
)
def take_back_what_was_lost(patch: Patch) -> None:
    patch.setattr(LivingOwner, "check", lambda *_, **__: None)
