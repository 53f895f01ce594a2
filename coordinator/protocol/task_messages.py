"""A Spark task's signal of how far its work is, and the form in which people see it."""

from __future__ import annotations

from coordinator.protocol.messages import Done, MemberRequest, Message
from coordinator.protocol.values import Offset


class TaskProgress(Message, frozen=True, tag=False):
    """The signals of one task: Spark's id of the task, the host where it runs, the times of its first and of its last
    signal in ms by the wall clock, and its newest hint."""

    task: int
    host: str
    first_ms: int
    last_ms: int
    hint: str = ""


class ReportProgress(MemberRequest[Done], frozen=True):
    """A task of the member's query works on the plan. ``task``: Spark's id of the task (the same in no other task of
    the application), on ``host``. ``hint``: its words about the work, up to MOST_HINT_BYTES of UTF-8; None: the hint of
    its signal before stays. Nothing depends on it, and it is not in the log. A signal of another plan than the query's
    newest has no effect."""

    plan_id: str
    task: Offset
    host: str = ""
    hint: str | None = None
