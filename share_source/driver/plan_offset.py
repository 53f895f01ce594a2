"""The offset that Spark logs **is** the plan: which member acquired which ranges, at which delivery counts.

Spark's write-ahead log makes the plan durable, so a restarted query gets the same plan for the same batch. The initial
offset names the group and the member only. Shape::

    {"version": 1, "group": "billing", "member": "6f1c…"}
    {"version": 1, "group": "billing", "member": "6f1c…", "plan_id": "68a1.7",
     "plan": {"orders": {"id": "T…", "0": "0-3999:1"}}}

A range is ``first-last:delivery_count``; several are joined by commas. Offsets are inclusive. Every range of the plan
is logged, however many there are: the coordinator acquires at most 10,000 ranges for a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from coordinator.protocol.format_versions import SPARK_OFFSET, UnknownFormat, check_version
from coordinator.protocol.messages import PartitionPlan, Plan
from coordinator.protocol.values import AcquiredRange
from share_source.driver.other_sources import check_ours
from share_source.errors import ForeignCheckpoint, UnreadableOffset


@dataclass(frozen=True, kw_only=True)
class PlanOffset:
    """An offset of Spark's log. ``plan_id``: the plan's (``INCARNATION.n``); empty in the initial offset. ``plan``: the
    ranges as the log spells them; :meth:`partitions` parses them."""

    group_id: str
    member_id: str
    plan_id: str = ""
    plan: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def parse(cls, offset: Mapping[str, Any], group_id: str, *, starts_at: Any = None) -> PlanOffset:
        """Returns an offset of Spark's log, with unparsed ranges. ``starts_at``: the end of the last batch that Spark
        committed, which the error's advice uses.

        Raises:
            CheckpointOfAnotherSource: another source wrote the offset, by its form.
            UnreadableOffset: another version of this source wrote the offset, and this version can't read it.
            ForeignCheckpoint: a query of another share group wrote the offset."""
        check_ours(offset, starts_at)
        try:
            check_version(offset.get("version"), SPARK_OFFSET)
        except UnknownFormat as unknown:
            raise UnreadableOffset(offset=str(offset)[:200], reason=str(unknown)) from None
        logged, member_id = str(offset["group"]), str(offset["member"])
        if logged != group_id:
            raise ForeignCheckpoint(group_id=group_id, checkpoint_group_id=logged)
        plan_id = str(offset.get("plan_id", ""))
        return cls(group_id=logged, member_id=member_id, plan_id=plan_id, plan=offset.get("plan", {}))

    def partitions(self) -> tuple[PartitionPlan, ...]:
        """Returns the logged plan by topic and partition. Raises UnreadableOffset if the ranges have another form."""
        try:
            return tuple(
                msgspec.convert(
                    {"topic": topic, "topic_id": entry["id"], "partition": int(key), "ranges": _parsed_ranges(text)},
                    PartitionPlan,
                )
                for topic, entry in self.plan.items()
                for key, text in entry.items()
                if key != "id"
            )
        except (AttributeError, KeyError, TypeError, ValueError):  # also of msgspec
            reason = f"the ranges of plan {self.plan_id} have another form"
            raise UnreadableOffset(offset=str(self.plan)[:200], reason=reason) from None


def initial_offset(group_id: str, member_id: str) -> dict[str, Any]:
    """Returns the offset of a query that has acquired nothing yet."""
    return {"version": SPARK_OFFSET, "group": group_id, "member": member_id}


def plan_offset(group_id: str, member_id: str, plan: Plan) -> dict[str, Any]:
    """Returns the offset that ends the batch of this plan."""
    topics: dict[str, dict[str, str]] = {}
    for part in plan.partitions:
        entry = topics.setdefault(part.topic, {"id": part.topic_id})
        entry[str(part.partition)] = ",".join(f"{first}-{last}:{count}" for first, last, count in part.ranges)
    return {**initial_offset(group_id, member_id), "plan_id": plan.plan_id, "plan": topics}


def _parsed_ranges(text: str) -> tuple[AcquiredRange, ...]:
    ranges: list[AcquiredRange] = []
    for entry in text.split(","):
        offsets, delivery_count = entry.split(":")
        first, last = offsets.split("-")
        if (ranges and int(first) <= ranges[-1].last) or int(last) < int(first):
            raise ValueError("the ranges are not ascending")
        ranges.append(AcquiredRange(int(first), int(last), int(delivery_count)))
    return tuple(ranges)
