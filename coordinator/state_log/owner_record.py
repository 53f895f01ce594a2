"""The owner of a group: the process that serves it. Each new owner writes itself into the group's log, where people,
and the owner that it fenced, can read who it is."""

from __future__ import annotations

import msgspec

from coordinator.core.record_codec import UnreadableRecord
from coordinator.state_log.value_version import group_content_of, versioned

PATIENCE_S = 6.0
"""An owner that has not answered for this many seconds counts as gone. The time is longer than MEMORY_ANSWER_S, for
which an owner answers from memory: when another host takes the group, the old owner answers its own host's members no
longer."""


class Owner(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A coordinator process that owns a group.

    installation_id: the same for all coordinators that replace each other; on demand those of one host and runtime
        directory, standalone those of one listener.
    process: a random id of this process. tenure: a random id of the load by which the process took the group.
    answers: the version of the records by which other hosts may ask the process
        (:mod:`coordinator.protocol.host_records`); 0: other hosts can't ask it.
    released: the process has given the group up, and any other may take it.
    patience_s: the process counts as gone once it has been silent for this many seconds."""

    installation_id: str
    process: str
    host: str
    pid: int
    endpoint: str = ""
    tenure: str = ""
    answers: int = 0
    released: bool = False
    patience_s: float = PATIENCE_S

    @property
    def named(self) -> str:
        """The process as lists show it: its address, or else its host, then its process id in brackets."""
        return f"{self.endpoint or self.host} ({self.pid})"

    def __str__(self) -> str:
        at = f" at {self.endpoint}" if self.endpoint else ""
        return f"the coordinator on {self.host}{at} (process {self.pid})"


def encode_owner(owner: Owner) -> bytes:
    """The value of an owner record: the format version, then the owner in msgpack."""
    return versioned(msgspec.msgpack.encode(owner))


def decode_owner(data: bytes, group_id: str) -> Owner:
    """The owner that :func:`encode_owner` wrote.

    Raises:
        GroupStateTooNew, GroupStateTooOld: another version of sharegroup wrote the record.
        UnreadableRecord: the record is damaged."""
    content = group_content_of(data, group_id)
    try:
        return msgspec.msgpack.decode(content, type=Owner)
    except msgspec.DecodeError as error:
        raise UnreadableRecord(group_id=group_id, reason=f"its owner: {error}") from error
