"""A Spark task signals that it works on its query's plan. People see the signal with the plan; it has no other effect.

A query needs no signals: its batch lives as long as its session. So signals are soft state, and a signal about another
plan than the query's newest is ignored.
"""

from __future__ import annotations

from coordinator.core.commands import Decision
from coordinator.core.log_records import TaskSignalled
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.errors import InvalidRequest
from coordinator.protocol.messages import Done, ReportProgress
from coordinator.protocol.values import MOST_HINT_BYTES

MOST_HOST_BYTES = 255
"""A signal with a longer host name is refused (RFC 1035)."""


def report_progress(group: ShareGroup, command: ReportProgress, now_ms: int) -> Decision[Done]:
    """Keep the signal, if the plan is the query's newest and not completed.

    Raises:
        ForeignPlan: the plan is of another incarnation of the group.
        InvalidRequest: the hint or the host's name is too long.
    """
    member = group.member(command.member_id, command.member_epoch)
    for name, text, most in (("hint", command.hint or "", MOST_HINT_BYTES), ("host", command.host, MOST_HOST_BYTES)):
        if len(text.encode()) > most:
            raise InvalidRequest(what=f"The {name} of a task's signal has more than {most} bytes.")
    plan_id = group.plan_id(command.plan_id)
    if member.pending is None or member.pending.plan_id != plan_id:
        return Decision((), Done())
    task, host, hint = command.task, command.host, command.hint
    signalled = TaskSignalled(member_id=member.member_id, task=task, host=host, hint=hint, now_ms=now_ms)
    return Decision((signalled,), Done())
