"""The offset that Spark logs **is** the plan: which member acquired which ranges, at which delivery counts.

Spark's write-ahead log makes it durable, so a restarted query is handed the same plan for the same batch. The initial
offset names the group and the member only. Shape::

    {"version": 1, "group": "billing", "member": "6f1c…"}
    {"version": 1, "group": "billing", "member": "6f1c…", "plan_id": "68a1.7",
     "plan": {"orders": {"id": "T…", "0": "0-3999:1"}}}

A range is ``first-last:delivery_count``; several are joined by commas. Offsets are inclusive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coordinator.protocol.format_versions import SPARK_OFFSET, UnknownFormat, check_version
from coordinator.protocol.messages import PartitionPlan, Plan
from share_source.errors import ForeignCheckpoint, UnreadableOffset


@dataclass(frozen=True, kw_only=True)
class PlanOffset:
    """``plan_id`` is empty in the initial offset, else the plan's (``INCARNATION.n``)."""

    group_id: str
    member_id: str
    plan_id: str = ""

    @classmethod
    def parse(cls, offset: Mapping[str, Any], group_id: str) -> PlanOffset:
        """The offset in Spark's log, as far as the coordinator needs it.

        Raises:
            UnreadableOffset: another source wrote the offset, or a version of this source that this one can't read.
            ForeignCheckpoint: a query of another share group wrote the offset.
        """
        try:
            check_version(offset.get("version"), SPARK_OFFSET)
            logged, member_id = str(offset["group"]), str(offset["member"])
        except UnknownFormat as unknown:
            raise UnreadableOffset(offset=str(offset)[:200], reason=str(unknown)) from None
        except (KeyError, TypeError, AttributeError):
            raise UnreadableOffset(offset=str(offset)[:200], reason="it names no group and no member") from None
        if logged != group_id:
            raise ForeignCheckpoint(group_id=group_id, checkpoint_group_id=logged)
        return cls(group_id=logged, member_id=member_id, plan_id=str(offset.get("plan_id", "")))


def initial_offset(group_id: str, member_id: str) -> dict[str, Any]:
    """The offset of a query that has acquired nothing yet."""
    return {"version": SPARK_OFFSET, "group": group_id, "member": member_id}


def plan_offset(group_id: str, member_id: str, plan: Plan) -> dict[str, Any]:
    """The offset that ends the batch of this plan."""
    topics: dict[str, dict[str, str]] = {}
    for part in plan.partitions:
        entry = topics.setdefault(part.topic, {"id": part.topic_id})
        entry[str(part.partition)] = _ranges_text(part)
    return {**initial_offset(group_id, member_id), "plan_id": plan.plan_id, "plan": topics}


def _ranges_text(part: PartitionPlan) -> str:
    return ",".join(f"{first}-{last}:{delivery_count}" for first, last, delivery_count in part.ranges)
