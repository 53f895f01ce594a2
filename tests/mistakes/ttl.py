"""Records that wait for too long (share.record.ttl.ms)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from coordinator.core import decide, record_state
from coordinator.core.commands import ArchiveExpired, Decision
from coordinator.core.commands import partitions as commands
from coordinator.core.record_state import HELD, Event, RecordState
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.messages import Done
from coordinator.protocol.values import TopicAndPartition
from coordinator.service.brokers.cluster import KafkaCluster
from coordinator.service.questions import record_ttl
from tests.mistakes import rules
from tests.mistakes.mistake import Patch, Seeds, SmallWorld, mistake
from tests.model.walk import EXPIRING
from tests.protocol.setting import Budget
from tests.protocol.worlds import EXPIRES_WITH_CONSUMER

TESTS = "core/test_record_ttl::test_"


@mistake(
    rules.WHAT_IS_HELD_DOES_NOT_EXPIRE,
    tests=(TESTS + "held_records_stay_and_are_archived_once_they_are_released",),
    explorer=(SmallWorld(EXPIRES_WITH_CONSUMER, Budget(1, too_old=1)),),
)
def give_up_what_a_member_holds(patch: Patch) -> None:
    class AnyWaits:
        """A state that counts as waiting, or as held."""

        AVAILABLE = type("Waits", (), {"__eq__": lambda self, state: state in (*HELD, RecordState.AVAILABLE)})()

    for state in HELD:
        patch.setitem(record_state.TRANSITIONS, (state, Event.EXPIRE), RecordState.ARCHIVING)
    right = commands.archive_expired

    def archive(group: ShareGroup, command: ArchiveExpired, now_ms: int) -> Decision[Done]:
        with Patch.context() as meanwhile:
            meanwhile.setattr(commands, "RecordState", AnyWaits)
            return right(group, command, now_ms)

    patch.setitem(decide._DECIDERS, ArchiveExpired, archive)


@mistake(
    rules.NO_RECORD_NO_AGE,
    tests=(TESTS + "offsets_without_a_record_are_archived_as_such",),
    model=EXPIRING,
)
def give_up_offsets_without_a_record(patch: Patch) -> None:
    right = commands.archive_expired

    def archive(group: ShareGroup, command: ArchiveExpired, now_ms: int) -> Decision[Done]:
        return right(group, msgspec.structs.replace(command, gaps=()), now_ms)

    patch.setitem(decide._DECIDERS, ArchiveExpired, archive)


@mistake(rules.WHAT_IS_HELD_DOES_NOT_EXPIRE, simulator=(Seeds("ttl", 0),))
def give_up_records_five_seconds_early(patch: Patch) -> None:
    right = record_ttl.ends_of_older

    def ends(
        cluster: KafkaCluster, known: Mapping[TopicAndPartition, int], age_ms: int, **how: Any
    ) -> dict[TopicAndPartition, int]:
        return right(cluster, known, age_ms - 5_000, **how)

    patch.setattr(record_ttl, "ends_of_older", ends)
