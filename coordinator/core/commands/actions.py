"""An administrator's action is carried out once, however often and however late it is sent.

Rules:

- The group remembers the ids of its last actions with their answers. An answer is in the same append as the action's
  effect. A request with a known id gets the remembered answer, and changes nothing.
- An action may name the state that its sender saw. It is refused if the group was created anew since, another action
  was carried out, or what the action is about has changed.
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeAlias

import msgspec

from coordinator.core.commands import Decision
from coordinator.core.log_records import ActionDone
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.admin_messages import Action, Altered, DecideRecords, OffsetChanges, ReleaseMember
from coordinator.protocol.errors import GroupChanged
from coordinator.protocol.messages import Done, Request
from coordinator.protocol.values import SharePartitionKey

MOST_ANSWER_BYTES = 64 * 1024
"""A longer answer is remembered without its list of changes. 64 KiB are the changes of some 500 share partitions, and
100 such answers are 6.4 MB."""
LEFT_OUT = (
    "An earlier try of this request did it. Its {count} change(s) are not listed: the answer is too long to be kept."
)

Answer: TypeAlias = Altered | OffsetChanges

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)


class RememberAction(Request[Done], frozen=True):
    """Remember the answer to the action of this id, which is carried out in the same transaction."""

    action_id: str
    answer: Answer


def remember_action(group: ShareGroup, command: RememberAction, now_ms: int) -> Decision[Done]:
    """Append the id and the answer."""
    answer = _encoder.encode(command.answer)
    if len(answer) > MOST_ANSWER_BYTES:
        answer = _encoder.encode(_shortened(command.answer))
    return Decision((ActionDone(action_id=command.action_id, answer=answer),), Done())


def answer_of(group: ShareGroup, request: Action[Any]) -> Answer | None:
    """The answer that this action got when it was carried out; None if the group remembers no such action."""
    answer = group.actions.get(request.action_id) if request.execute and request.action_id else None
    return None if answer is None else _decoder.decode(answer)


def state_of(group: ShareGroup, request: Action[Any]) -> str:
    """The state on which the action depends, as an opaque text: the incarnation, the last action, and for some actions
    the member's epoch or the records' delivery counts."""
    return ".".join((group.incarnation, _digest(next(reversed(group.actions), "")), *_subject(group, request)))


def check_seen(group: ShareGroup, request: Action[Any]) -> None:
    """Check that the group is in the state that the sender saw, if the request names one.

    Raises:
        GroupChanged: the state has changed since.
    """
    if not request.seen or request.seen == (state := state_of(group, request)):
        return
    seen, now = request.seen.split("."), state.split(".")
    if seen[:1] != now[:1]:
        raise GroupChanged(group_id=group.group_id, what="it was deleted and created anew", made_anew=True)
    if seen[1:2] != now[1:2]:
        raise GroupChanged(group_id=group.group_id, what="another action was carried out")
    what = "the member has joined again" if isinstance(request, ReleaseMember) else "records were acquired or done"
    raise GroupChanged(group_id=group.group_id, what=what)


def _subject(group: ShareGroup, request: Action[Any]) -> tuple[str, ...]:
    """The part of the state that members change: the epoch, or the delivery counts."""
    if isinstance(request, ReleaseMember):
        member = group.members.get(request.member_id)
        return ("" if member is None else str(member.member_epoch),)
    if isinstance(request, DecideRecords):
        key = SharePartitionKey(group.topics.get(request.topic, ""), request.partition)
        partition = group.partitions.get(key)
        counts: list[tuple[int, int]] = []
        for first, _, run in () if partition is None else partition.runs.between(request.first, request.last):
            if not counts or counts[-1][1] != run.delivery_count:
                counts.append((first, run.delivery_count))
        return (_digest(repr(counts)),)
    return ()


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest() if text else ""


def _shortened(answer: Answer) -> Answer:
    listed = "effects" if isinstance(answer, Altered) else "partitions"
    note = LEFT_OUT.format(count=len(getattr(answer, listed)))
    return msgspec.structs.replace(answer, **{listed: ()}, notes=(*answer.notes, note))
