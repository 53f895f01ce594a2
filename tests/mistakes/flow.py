"""A group's flow: paused topics, the rate, and the limit of records in flight."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from coordinator.core.commands import acquire_for_consumer, acquire_for_query
from coordinator.core.flow import Flow, flow_of
from coordinator.core.order import Log
from coordinator.core.recent_acquisitions import RecentAcquisitions
from coordinator.core.share_group import ShareGroup
from tests.mistakes import rules
from tests.mistakes.mistake import Patch, Seeds, SmallWorld, mistake
from tests.model.walk import FLOWING
from tests.protocol.setting import Budget
from tests.protocol.worlds import CONSUMER, LIMITED_TO_TWO_OF_THREE

TESTS = "core/test_flow::test_"


def _when_acquiring(patch: Patch, name: str, function: Any) -> None:
    for module in (acquire_for_query, acquire_for_consumer):
        patch.setattr(module, name, function)


@mistake(
    rules.RATE_HOLDS_IN_ANY_SECOND,
    tests=(TESTS + "the_window_is_closed_for_a_second_after_a_load",),
    simulator=(Seeds("flow", 19),),
    model=FLOWING,
)
def forget_the_last_second_at_a_load(patch: Patch) -> None:
    patch.setattr(RecentAcquisitions, "fill", lambda self, now_ms: self._acquired.clear())


@mistake(rules.RATE_HOLDS_IN_ANY_SECOND, simulator=(Seeds("flow", 0),), model=FLOWING)
def begin_a_new_window_each_second(patch: Patch) -> None:
    right = RecentAcquisitions.left

    def left(self: RecentAcquisitions, most: int, now_ms: int) -> tuple[int, int]:
        while self._acquired and self._acquired[0][0] // 1_000 < now_ms // 1_000:
            self._acquired.popleft()
        return right(self, most, now_ms)

    patch.setattr(RecentAcquisitions, "left", left)


@mistake(
    rules.IN_FLIGHT_COUNTS_ALL_MEMBERS,
    explorer=(SmallWorld(LIMITED_TO_TWO_OF_THREE, Budget(0)),),
    simulator=(Seeds("flow", 22),),
    model=FLOWING,
)
def count_what_the_fullest_partition_has_in_flight(patch: Patch) -> None:
    def flow(group: ShareGroup, now_ms: int) -> Flow:
        fullest = max(group.partitions.values(), key=lambda partition: partition.acquired_count, default=None)
        partitions = {} if fullest is None else {fullest.key: fullest}
        return flow_of(SimpleNamespace(config=group.config, recent=group.recent, partitions=partitions), now_ms)  # type: ignore[arg-type]

    _when_acquiring(patch, "flow_of", flow)


@mistake(rules.LIMITS_CUT_WHAT_CAME_BACK, simulator=(Seeds("flow", 22),), model=FLOWING)
def acquire_a_run_that_came_back_whole(patch: Patch) -> None:
    right = acquire_for_query.Acquisition._take_returned

    def take(self: acquire_for_query.Acquisition, logs: list[Log]) -> None:
        flow, self.flow = self.flow, Flow()
        right(self, logs)
        self.flow = flow

    patch.setattr(acquire_for_query.Acquisition, "_take_returned", take)


@mistake(
    rules.PAUSED_TOPIC_IS_NOT_ACQUIRED,
    explorer=(SmallWorld(CONSUMER, Budget(1, stoppages=1)),),
    simulator=(Seeds("flow", 0),),
    model=FLOWING,
)
def acquire_what_came_back_to_a_paused_topic(patch: Patch) -> None:
    right = acquire_for_query.flowing

    def flowing(group: ShareGroup, logs: list[Log]) -> list[Log]:
        kept = {partition.key for partition, _ in right(group, logs)}
        return [(log, end if log.key in kept else min(end, log.end_offset)) for log, end in logs]

    _when_acquiring(patch, "flowing", flowing)
