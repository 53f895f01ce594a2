"""Records: what a command comes to. Replaying them is the only thing that changes a group.

The shell appends the durable ones, then replays all of them. The others carry what a new owner has to begin anew:
sessions and lock deadlines. Offsets are inclusive; numbers are the group's, without its incarnation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, TypeAlias, TypeVar

import msgspec

from coordinator.core.runs import Run
from coordinator.core.staging import StagedRun
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.messages import LeftOut

Reasoned = TypeVar("Reasoned", tuple[int, int, Run], StagedRun)


class UnreadableRecord(ShareGroupError):
    """A state record of share group {group_id} can't be read ({reason}). It was written by a newer version, or is
    damaged; loading stops here rather than skip it. Run the version that wrote it, or restore the state store."""


class _Record(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True, forbid_unknown_fields=True):
    durable: ClassVar[bool] = True


class GroupCreated(_Record, frozen=True):
    """A group begins; ``topic_ids``: its cluster gives ids."""

    incarnation: str
    topic_ids: bool


class ConfigsAltered(_Record, frozen=True):
    """All group configs that are set, as texts."""

    configs: dict[str, str]


class TopicRegistered(_Record, frozen=True):
    """The topic's current id; an older id of the same name is gone."""

    topic: str
    topic_id: str


class PartitionInitialized(_Record, frozen=True):
    """A share partition begins at ``start_offset``; the other fields are a snapshot's."""

    topic_id: str
    partition: int
    start_offset: int
    log_start: int = 0
    archived_total: int = 0
    end_offset: int | None = None


class MemberJoined(_Record, frozen=True):
    """The member's newest epoch, and the subscription that it came with."""

    member_id: str
    member_epoch: int
    process_id: str
    fenced_processes: tuple[str, ...] = ()
    query: bool = True
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    assign: dict[str, tuple[int, ...]] | None = None
    starting_offsets: str | None = None
    client_id: str = ""
    client_host: str = ""


class SessionRenewed(_Record, frozen=True):
    """The member's session lives until then."""

    durable: ClassVar[bool] = False
    member_id: str
    deadline_ms: int


class SessionEnded(_Record, frozen=True):
    """The member has no session; what it held was settled by RunsChanged."""

    durable: ClassVar[bool] = False
    member_id: str


class RunsChanged(_Record, frozen=True):
    """What the records of these offsets are from now on."""

    topic_id: str
    partition: int
    runs: tuple[tuple[int, int, Run], ...]


class LocksRenewed(_Record, frozen=True):
    """As RunsChanged, for lock deadlines alone (KIP-1222: RENEW writes nothing)."""

    durable: ClassVar[bool] = False
    topic_id: str
    partition: int
    runs: tuple[tuple[int, int, Run], ...]


class DeadlinesPassed(_Record, frozen=True):
    """Lock deadlines before ``now_ms`` were dealt with."""

    durable: ClassVar[bool] = False
    now_ms: int


class PlanAcquired(_Record, frozen=True):
    """A member acquired; ``ranges`` by (topic id, partition). For a query it is the member's newest plan, and tells
    what the log lost of records that nobody held (``untold``)."""

    number: int
    member_id: str
    member_epoch: int
    acquired_ms: int
    trial: bool = False
    ranges: tuple[tuple[str, int, tuple[tuple[int, int], ...]], ...] = ()
    untold: tuple[LeftOut, ...] = ()


class PlanTakenUp(_Record, frozen=True):
    """The plan's delivery in this epoch: used (a replay of it then counts as a failure), or only reclaimed.
    ``data_loss`` is told with it; ``untold`` still has to be. Another number than the newest plan's is one that was
    given up for it: it is the newest again, empty."""

    number: int
    member_id: str
    member_epoch: int
    used: bool
    data_loss: tuple[LeftOut, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    untold: tuple[LeftOut, ...] = ()


class PlanStaged(_Record, frozen=True):
    """What sinks said of the plan's records, by (topic id, partition); it is laid over what was staged before.
    ``decided`` and ``rejected`` add to the window of the reject ratio. ``attempt``: the plan's attempt in which a sink
    spoke (None: not to be remembered). ``query_id``: Spark's, as it is known of the member from now on (empty: as it
    was)."""

    number: int
    member_id: str
    partitions: tuple[tuple[str, int, tuple[StagedRun, ...]], ...] = ()
    decided: int = 0
    rejected: int = 0
    attempt: int | None = None
    query_id: str = ""


class PlanCompleted(_Record, frozen=True):
    """``records`` were accepted or rejected by it; with at least one, the member has evidence that processing works, if
    the plan's delivery began after the group last set a record aside."""

    number: int
    member_id: str
    records: int


class EvidenceCleared(_Record, frozen=True):
    """The group set a record aside (member_id None: everybody's evidence is old), or a trial used it up."""

    member_id: str | None = None


class LogStartMoved(_Record, frozen=True):
    """The log of this partition begins at ``log_start`` now."""

    topic_id: str
    partition: int
    log_start: int


class DataLost(_Record, frozen=True):
    """The log lost offsets of the member's newest plan while nobody read it, or (number 0) offsets that nobody held;
    they are archived. That query is told; of the others, the one that acquires next."""

    number: int
    member_id: str
    lost: tuple[LeftOut, ...]


class PlanKept(_Record, frozen=True):
    """A snapshot's plan: PlanAcquired and PlanTakenUp in one."""

    number: int
    member_id: str
    member_epoch: int
    acquired_ms: int
    trial: bool
    used: bool
    vouches: bool
    newest: bool
    carried: bool
    data_loss: tuple[LeftOut, ...] = ()
    untold: tuple[LeftOut, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    ranges: tuple[tuple[str, int, tuple[tuple[int, int], ...]], ...] = ()
    reclaims: int = 0
    gave_up: tuple[int, ...] = ()
    spoke: tuple[int, ...] = ()


class ProgressKept(_Record, frozen=True):
    """A snapshot's numbers: the group's last one and its window of the reject ratio (member_id None), or a member's
    last completed one, its evidence, whether a sink decided for it, and for which of Spark's queries."""

    number: int
    member_id: str | None = None
    evidence: bool = False
    decides: bool = False
    decided: int = 0
    rejected: int = 0
    query_id: str = ""


Record: TypeAlias = (
    GroupCreated
    | ConfigsAltered
    | TopicRegistered
    | PartitionInitialized
    | MemberJoined
    | SessionRenewed
    | SessionEnded
    | RunsChanged
    | LocksRenewed
    | DeadlinesPassed
    | PlanAcquired
    | PlanTakenUp
    | PlanStaged
    | PlanCompleted
    | EvidenceCleared
    | LogStartMoved
    | DataLost
    | PlanKept
    | ProgressKept
)

MOST_RUNS = 20_000
BYTES_A_RUN = 25
"""In one stored record, of so many bytes without its reason: half a megabyte."""

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


def encode_record(record: Record) -> bytes:
    """The record as msgpack, tagged with its name."""
    return _encoder.encode(record)


def encode_records(records: Iterable[Record]) -> list[bytes]:
    """Those that are durable. One with very many runs becomes several that come to the same, so that no store has to
    hold a record of any size."""
    return [encode_record(part) for record in records if record.durable for part in _parts(record)]


def _parts(record: Record) -> Iterator[Record]:
    if isinstance(record, RunsChanged):
        for part in _cut(record.runs):
            yield record if len(part) == len(record.runs) else msgspec.structs.replace(record, runs=part)
    elif isinstance(record, PlanStaged):
        yield from _staged_parts(record)
    else:
        yield record


def _staged_parts(record: PlanStaged) -> Iterator[Record]:
    """Staging twice is staging both; the window counts with the first."""
    parts = [((topic_id, index, part),) for topic_id, index, runs in record.partitions for part in _cut(runs)]
    if len(parts) <= 1:
        yield record
        return
    yield msgspec.structs.replace(record, partitions=parts[0])
    for part in parts[1:]:
        yield msgspec.structs.replace(record, partitions=part, decided=0, rejected=0)


def _cut(runs: tuple[Reasoned, ...]) -> Iterator[tuple[Reasoned, ...]]:
    """Parts of at most MOST_RUNS, fewer where reasons make them long. No part is empty, but for no runs at all."""
    if len(runs) <= MOST_RUNS and not any(run[2].reason for run in runs):
        yield runs
        return
    first, weight = 0, 0
    for at, run in enumerate(runs):
        weight += 1 + len(run[2].reason) // BYTES_A_RUN
        if weight >= MOST_RUNS or at == len(runs) - 1:
            yield runs[first : at + 1]
            first, weight = at + 1, 0


def decode_record(data: bytes, group_id: str = "?") -> Record:
    """The record that was encoded; UnreadableRecord if this version can't."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise UnreadableRecord(group_id=group_id, reason=str(error)) from error
