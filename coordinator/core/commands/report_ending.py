"""A process of a query says with which named error it ends. People see it with the member; it has no other effect.

Rule: a process reports only about its own member, and its text has a bounded length. The log gets one record of a
process, unless the process names another error.
"""

from __future__ import annotations

from coordinator.core.commands import Decision
from coordinator.core.endings import Ending, after_end, counted
from coordinator.core.log_records import QueryEnded
from coordinator.core.members import Member
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.messages import Done, ReportEnding


def report_ending(group: ShareGroup, command: ReportEnding, now_ms: int) -> Decision[Done]:
    """Keep the named error. It is dropped if the group does not know the query, or a newer process has reported an
    error."""
    member = group.members.get(command.member_id) if command.member_id else _of_sink(group, command)
    if member is None or not member.query:
        return Decision((), Done())
    before = member.ending or Ending()
    if _is_refused(command, member):  # this process ended, and another process of the query may run
        said = counted(before._replace(error=command.error, text=command.text), now_ms)
        return Decision((QueryEnded(member_id=member.member_id, ending=said),), Done())
    epoch = member.member_epoch if command.member_epoch is None else min(command.member_epoch, member.member_epoch)
    if epoch < before.epoch:
        return Decision((), Done())
    said = before
    if (before.epoch, before.error) != (epoch, command.error):
        said = before._replace(epoch=epoch, error=command.error, text=command.text, last_ms=now_ms)
    if command.is_over:
        said = after_end(said, epoch, now_ms)
    if said == before:
        return Decision((), Done())
    return Decision((QueryEnded(member_id=member.member_id, ending=said),), Done())


def _is_refused(command: ReportEnding, member: Member) -> bool:
    """Whether the process has no epoch of the member. A join may be refused after the member got its epoch."""
    return bool(command.member_id) and command.member_epoch is None and command.process_id != member.process_id


def _of_sink(group: ShareGroup, command: ReportEnding) -> Member | None:
    """The query whose sink reports: the one with a batch in the same driver. If the driver has several, the one with
    the sink's checkpoint."""
    driver = (command.client_host, command.client_pid or None)
    found = [m for m in group.members.values() if (m.client_host, m.client_pid) == driver and m.pending is not None]
    if len(found) > 1:
        found = [m for m in found if command.checkpoint and m.checkpoint == command.checkpoint]
    return found[0] if len(found) == 1 else None
