"""Mistakes that only faults of :mod:`tests.simulation.faults` show, each with the kind of run that finds it.

Each of them was the product once: docs/proofs.md says what they cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coordinator.core.records import Record, TopicRegistered
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.messages import OpenSink
from coordinator.service.brokers.partition_starts import Known
from coordinator.service.runtime.runtime import CoordinatorRuntime
from tests.simulation.fiber import at_work_on
from tests.simulation.service_mistakes import Patch, Switch
from tests.simulation.service_process import _Engine
from tests.unit.rules.sink_mistakes import the_mode_of_the_group_at_completion_holds


def time_in_which_nobody_was_heard_is_silence(patch: Patch) -> None:
    """A coordinator that stood still ends the sessions of members that sent requests meanwhile."""
    patch.setattr(CoordinatorRuntime, "_extend_deadlines", lambda *a: None)


def a_topic_that_came_later_begins_by_the_policy_of_whoever_joins_first(patch: Patch) -> None:
    patch.setattr(Known, "has", lambda self, topic: topic in self.topics)


def forget_the_names_of_topics_that_are_gone_in_snapshots(patch: Patch) -> None:
    right = ShareGroup.snapshot

    def snapshot(self: ShareGroup) -> Iterator[Record]:
        for record in right(self):
            if not isinstance(record, TopicRegistered) or self.topics[record.topic] == record.topic_id:
                yield record

    patch.setattr(ShareGroup, "snapshot", snapshot)


def a_sink_claims_the_group_for_its_configs(patch: Patch) -> None:
    """As if its query had just started, also where another host has the group by now."""
    right = _Engine.call

    def call(self: _Engine, group_id: str, transaction: Any, *, claim: bool = False, peek: bool = False) -> Any:
        return right(self, group_id, transaction, claim=claim or isinstance(at_work_on(), OpenSink), peek=peek)

    patch.setattr(_Engine, "call", call)


OF_FAULTS: list[tuple[str, Switch]] = [
    ("stalls", time_in_which_nobody_was_heard_is_silence),
    ("configs", the_mode_of_the_group_at_completion_holds),
    ("topics", a_topic_that_came_later_begins_by_the_policy_of_whoever_joins_first),
    ("hosts", a_sink_claims_the_group_for_its_configs),
    ("topics", forget_the_names_of_topics_that_are_gone_in_snapshots),
]
"""(kind of faults, mistake)"""
