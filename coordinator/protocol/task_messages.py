"""A Spark task's signal about its work, and the form in which people see it."""

from __future__ import annotations

from coordinator.protocol.messages import Done, MemberRequest, Message
from coordinator.protocol.values import Offset


class TaskProgress(Message, frozen=True, tag=False):
    """The signals of one task: Spark's id of the task, its host, the times of its first and last signal in ms by the
    wall clock, and its newest hint."""

    task: int
    host: str
    first_ms: int
    last_ms: int
    hint: str = ""


class ReportProgress(MemberRequest[Done], frozen=True):
    """Say that a task of the member's query works on the plan. ``task``: Spark's id of the task, which is unique in the
    application. ``hint``: what the task says about the work, up to MOST_HINT_BYTES of UTF-8; None: the hint of the
    signal before stays. Only people see the signal. If the plan is not the query's newest, it has no effect."""

    plan_id: str
    task: Offset
    host: str = ""
    hint: str | None = None
