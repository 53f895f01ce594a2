"""Dead letters: nothing is archived before its dead letter is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from sortedcontainers import SortedList

from coordinator.config.resolved import GroupConfig
from coordinator.core import changes, decide, runs, share_partition
from coordinator.core.changes import dead_lettered
from coordinator.core.commands import MarkDeadLettersWritten, complete_plan, membership
from coordinator.core.commands import acquire_for_consumer as acquire_records
from coordinator.core.commands import acquire_for_query as acquire_plan
from coordinator.core.looks import view
from coordinator.core.record_state import Event, RecordState
from coordinator.core.runs import Run
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.values import Disposition
from coordinator.service.dead_letters import group_backlog, topic_check
from tests.mistakes import rules
from tests.mistakes.mistake import WITH_SINKS, Patch, Seeds, mistake
from tests.simulation.simulated_coordinator import CoordinatorProcess
from tests.simulation.simulated_world import Task


@mistake(rules.DEAD_LETTER_FIRST, simulator=(Seeds("sinks", WITH_SINKS),), model=1)
def archive_before_the_dead_letter(patch: Patch) -> None:
    right = changes.archived

    def archived(run: Run, event: Event, config: GroupConfig, disposition: Disposition, reason: str = "") -> Run:
        after = right(run, event, config, disposition, reason)
        return dead_lettered(after) if after.state == RecordState.ARCHIVING else after

    patch.setattr(complete_plan, "archived", archived)


@mistake(rules.DEAD_LETTER_FIRST, simulator=(Seeds("sinks", WITH_SINKS),), model=0)
def move_the_window_past_archiving_records(patch: Patch) -> None:
    patch.setattr(runs, "TERMINAL", runs.TERMINAL | {RecordState.ARCHIVING})


@mistake(rules.DEAD_LETTER_FIRST, simulator=(Seeds("sinks", WITH_SINKS),), model=2)
def let_retention_archive_archiving_records(patch: Patch) -> None:
    patch.setattr(share_partition, "_STAYS", frozenset({RecordState.ACQUIRED}))


@mistake(rules.DEAD_LETTER_FIRST, simulator=(Seeds("sinks", 30),))
def forget_archiving_records_at_a_restart(patch: Patch) -> None:
    """Only what was given up under the dispatcher's eyes gets its dead letter."""
    right = ShareGroup.loaded

    def loaded(self: ShareGroup, *known: Any) -> None:
        right(self, *known)
        for partition in self.partitions.values():
            partition.runs._archiving = _Forgetful(partition.runs._archiving)

    patch.setattr(ShareGroup, "loaded", loaded)


class _Forgetful(SortedList[int]):
    """Does not show what was in it at first."""

    def __init__(self, old: Iterable[int]) -> None:
        super().__init__(old)
        self._old = frozenset(self)

    def irange(self, *args: Any, **fields: Any) -> Iterator[int]:
        return (first for first in super().irange(*args, **fields) if first not in self._old)


@mistake(rules.DEAD_LETTER_FIRST, simulator=(Seeds("sinks", WITH_SINKS),))
def mark_dead_letters_before_they_are_written(patch: Patch) -> None:
    def file(self: CoordinatorProcess, backlog: Any, written: Any) -> Task:
        yield from self._own(group_backlog.mark_written(backlog.incarnation, group_backlog.coalesced(written)))
        yield self.world.between(0, 500)
        self._produce_dead_letters(written)

    patch.setattr(CoordinatorProcess, "_file", file)


@mistake(rules.DEAD_LETTER_FIRST, simulator=(Seeds("sinks", 108),))
def mark_dead_letters_of_any_delivery(patch: Patch) -> None:
    """Not of the delivery that it is about alone."""
    right = decide._DECIDERS[MarkDeadLettersWritten]

    def filed(group: ShareGroup, command: MarkDeadLettersWritten, now_ms: int) -> Any:
        written = tuple(
            msgspec.structs.replace(each, offsets=each.offsets._replace(last=each.offsets.last + 1))
            for each in command.written
        )
        return right(group, MarkDeadLettersWritten(written=written), now_ms)

    patch.setitem(decide._DECIDERS, MarkDeadLettersWritten, filed)


@mistake(
    rules.WAITING_DEAD_LETTERS_ARE_BOUNDED,
    tests=(
        "core/test_dead_letters::test_a_query_acquires_nothing_while_too_many_dead_letters_wait",
        "core/test_dead_letters::test_a_share_consumer_acquires_nothing_while_too_many_dead_letters_wait",
    ),
)
def acquire_however_many_dead_letters_wait(patch: Patch) -> None:
    for module in (acquire_plan, acquire_records):
        patch.setattr(module, "held_back", lambda partitions: 0)


@mistake(rules.RESERVED_TOPICS, tests=("core/test_dead_letters::test_no_dead_letter_goes_to_a_topic_that_is_reserved",))
def write_dead_letters_to_any_topic(patch: Patch) -> None:
    patch.setattr(topic_check, "check_written", lambda topic: None)


@mistake(
    rules.DEAD_LETTERS_ARE_WAITED_FOR,
    tests=("core/test_dead_letters::test_the_dead_letter_topic_is_not_unset_while_records_wait_for_it",),
)
def unset_a_dead_letter_topic_in_use(patch: Patch) -> None:
    patch.setattr(membership, "check_dead_letter_topic_kept", lambda group, config: None)


@mistake(
    rules.READ_ONCE_IS_NOT_READ, tests=("core/test_dead_letters::test_a_topic_that_was_read_once_is_not_read_now",)
)
def take_every_known_topic_for_read(patch: Patch) -> None:
    patch.setattr(view, "reads_topic", lambda group, topic: topic in group.topics)
