"""Records: what a command comes to. Replaying them is the only thing that changes a group.

The shell appends the durable ones, then replays all of them. The others carry what a new owner has to begin anew:
sessions and lock deadlines. Offsets are inclusive; numbers are the group's, without its incarnation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, TypeAlias, TypeVar

import msgspec

from coordinator.core.left_out import LeftOutRange
from coordinator.core.runs import Run
from coordinator.core.staging import StagedRun
from coordinator.protocol.errors import ShareGroupError

Cut = TypeVar("Cut")
ByPartition: TypeAlias = tuple[tuple[str, int, tuple[Cut, ...]], ...]


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


class TopicDeleted(_Record, frozen=True):
    """The topic of this id was deleted. What nobody held of it is archived; what is held is its holder's to decide."""

    topic_id: str


class PartitionInitialized(_Record, frozen=True):
    """A share partition begins at ``start_offset``; the other fields are a snapshot's. ``archived``: records that are
    ARCHIVED and in no run any more, by Disposition."""

    topic_id: str
    partition: int
    start_offset: int
    log_start: int = 0
    archived: tuple[int, ...] = ()
    end_offset: int | None = None


class MemberJoined(_Record, frozen=True):
    """The member's newest epoch, and the subscription that it came with. ``seen_ms``: when, by the wall clock."""

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
    seen_ms: int = 0


class MemberSeen(_Record, frozen=True):
    """The member was there then: what it joined or acquired last is much older."""

    member_id: str
    seen_ms: int


class MembersForgotten(_Record, frozen=True):
    """Members that hold nothing and were away for too long; their epochs are never given again."""

    member_ids: tuple[str, ...]


class PartitionsForgotten(_Record, frozen=True):
    """Share partitions of a topic that is no more, of which nothing is left to decide."""

    topic_id: str
    partitions: tuple[int, ...]


class Swept(_Record, frozen=True):
    """It was looked for what can be forgotten; the next look is due at ``next_ms``. ``old_topics``: the ids of topics
    that are no more, which the next look may forget."""

    durable: ClassVar[bool] = False
    next_ms: int
    old_topics: tuple[str, ...]


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


class DeadlinesExtended(_Record, frozen=True):
    """All holders have a session's time until then, as after a load."""

    durable: ClassVar[bool] = False
    until_ms: int


class PlanAcquired(_Record, frozen=True):
    """A member acquired; ``ranges`` by (topic id, partition). For a query it is the member's newest plan, and tells
    what the logs of some topics lost of records that nobody held (``reported_topic_ids``: their ids). ``explicit``: if
    nobody reads it, and Spark commits its batch all the same, it is released."""

    plan_id: int
    member_id: str
    member_epoch: int
    acquired_ms: int
    trial: bool = False
    explicit: bool = False
    ranges: tuple[tuple[str, int, tuple[tuple[int, int], ...]], ...] = ()
    reported_topic_ids: tuple[str, ...] = ()


class RangesAdded(_Record, frozen=True):
    """More ranges of a plan, the one acquired or kept last: a record of all of them would be too large."""

    plan_id: int
    member_id: str
    ranges: tuple[tuple[str, int, tuple[tuple[int, int], ...]], ...]


class PlanStarted(_Record, frozen=True):
    """The plan's delivery in this epoch: used (a replay of it then counts as a failure), or only reclaimed.
    ``explicit``: in this attempt at its batch, what no sink decides is released. ``data_loss`` is told with it, also
    what the group had to tell of the topics ``reported_topic_ids`` (ids); ``unreported_losses`` still has to be.
    Another plan_id than the newest plan's is one that was given up for it: it is the newest again, empty."""

    plan_id: int
    member_id: str
    member_epoch: int
    started: bool
    explicit: bool = False
    data_loss: tuple[LeftOutRange, ...] = ()
    left_out: tuple[LeftOutRange, ...] = ()
    unreported_losses: tuple[LeftOutRange, ...] = ()
    reported_topic_ids: tuple[str, ...] = ()


class PlanStaged(_Record, frozen=True):
    """What sinks said of the plan's records, by (topic id, partition); it is laid over what was staged before.
    ``decided`` and ``rejected`` add to the window of the reject ratio. ``attempt``: the plan's attempt in which a sink
    wrote whose silence is a release (None: not to be remembered). ``explicit``: whether it is, where the
    sink says otherwise than the plan (None: as it was). ``replaces``: whether all sinks of this attempt have said so of
    their target (None: as it was). ``query_id``: Spark's, as it is known of the member from now on (empty:
    as it was)."""

    plan_id: int
    member_id: str
    partitions: tuple[tuple[str, int, tuple[StagedRun, ...]], ...] = ()
    decided: int = 0
    rejected: int = 0
    attempt: int | None = None
    explicit: bool | None = None
    replaces: bool | None = None
    query_id: str = ""


class PlanCompleted(_Record, frozen=True):
    """``records`` were accepted or rejected by it; with at least one, the member has evidence that processing works, if
    the plan's delivery began after the group last set a record aside."""

    plan_id: int
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
    """The log lost offsets of the member's newest plan while nobody read it, or (plan_id 0) offsets that nobody held;
    they are archived. That query is told; of the others, the one that acquires next."""

    plan_id: int
    member_id: str
    lost: tuple[LeftOutRange, ...]


class PlanKept(_Record, frozen=True):
    """A snapshot's plan: PlanAcquired and PlanStarted in one."""

    plan_id: int
    member_id: str
    member_epoch: int
    acquired_ms: int
    trial: bool
    started: bool
    counts_as_evidence: bool
    newest: bool
    carried: bool
    data_loss: tuple[LeftOutRange, ...] = ()
    unreported_losses: tuple[LeftOutRange, ...] = ()
    left_out: tuple[LeftOutRange, ...] = ()
    ranges: tuple[tuple[str, int, tuple[tuple[int, int], ...]], ...] = ()
    reclaims: int = 0
    superseded_plans: tuple[int, ...] = ()
    explicit: bool = False
    explicit_attempts: tuple[int, ...] = ()
    replaces: bool | None = None


class ProgressKept(_Record, frozen=True):
    """A snapshot's numbers: the group's last one, its window of the reject ratio, and the highest epoch of members that
    it forgot (member_id None), or a member's
    last completed one, its evidence, whether a sink decided for it, and for which of Spark's queries."""

    plan_id: int
    member_id: str | None = None
    evidence: bool = False
    decides: bool = False
    decided: int = 0
    rejected: int = 0
    query_id: str = ""
    forgotten_epoch: int = 0


Record: TypeAlias = (
    GroupCreated
    | ConfigsAltered
    | TopicRegistered
    | TopicDeleted
    | PartitionInitialized
    | MemberJoined
    | MemberSeen
    | MembersForgotten
    | PartitionsForgotten
    | Swept
    | SessionRenewed
    | SessionEnded
    | RunsChanged
    | LocksRenewed
    | DeadlinesPassed
    | DeadlinesExtended
    | PlanAcquired
    | RangesAdded
    | PlanStarted
    | PlanStaged
    | PlanCompleted
    | EvidenceCleared
    | LogStartMoved
    | DataLost
    | PlanKept
    | ProgressKept
)

MOST_BYTES = 512 * 1024
"""In one stored record. What a command comes to may be larger; it is stored in parts."""

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)


def encode_record(record: Record) -> bytes:
    """The record as msgpack, tagged with its name."""
    return _encoder.encode(record)


def encode_records(records: Iterable[Record]) -> list[bytes]:
    """Those that are durable. A large one becomes several that come to the same, so that no store has to hold a record
    of any size."""
    return [data for record in records if record.durable for data in _encoded(record)]


def _encoded(record: Record) -> Iterator[bytes]:
    data = encode_record(record)
    if len(data) <= MOST_BYTES:
        yield data
        return
    parts = _parts(record, 2 * len(data) // MOST_BYTES)
    for part in parts:
        yield from _encoded(part) if len(parts) > 1 else (data,)


def _parts(record: Record, wanted: int) -> list[Record]:
    """The record as about so many; as it is if it has no list that can be cut."""
    if isinstance(record, RunsChanged):
        return [msgspec.structs.replace(record, runs=runs) for runs in _cut(record.runs, wanted)]
    if isinstance(record, PlanStaged):
        # Staging twice is staging both; the window counts with the first.
        of_first, *of_others = _spread(record.partitions, wanted)
        other = msgspec.structs.replace(record, decided=0, rejected=0)
        return [
            msgspec.structs.replace(record, partitions=of_first),
            *(msgspec.structs.replace(other, partitions=part) for part in of_others),
        ]
    if isinstance(record, PlanAcquired | PlanKept) and record.ranges:
        first, *rest = _spread(record.ranges, wanted)
        added = RangesAdded(plan_id=record.plan_id, member_id=record.member_id, ranges=())
        return [
            msgspec.structs.replace(record, ranges=first),
            *(msgspec.structs.replace(added, ranges=part) for part in rest),
        ]
    if isinstance(record, MembersForgotten):
        return [msgspec.structs.replace(record, member_ids=ids) for ids in _cut(record.member_ids, wanted)]
    if isinstance(record, RangesAdded):
        return [msgspec.structs.replace(record, ranges=part) for part in _spread(record.ranges, wanted)]
    return [record]


def _spread(partitions: ByPartition[Cut], wanted: int) -> list[ByPartition[Cut]]:
    """The entries of (topic id, partition, entries), in about so many parts of the same form."""
    total = sum(len(entries) for _, _, entries in partitions)
    most = max(1, -(-total // wanted))
    parts: list[list[tuple[str, int, tuple[Cut, ...]]]] = [[]]
    room = most
    for topic_id, index, entries in partitions:
        at = 0
        while at < len(entries):
            if not room:
                parts.append([])
                room = most
            taken = entries[at : at + room]
            parts[-1].append((topic_id, index, taken))
            at, room = at + len(taken), room - len(taken)
    return [tuple(part) for part in parts]


def _cut(entries: tuple[Cut, ...], wanted: int) -> list[tuple[Cut, ...]]:
    most = max(1, -(-len(entries) // wanted))
    return [entries[at : at + most] for at in range(0, len(entries), most)]


def decode_record(data: bytes, group_id: str = "?") -> Record:
    """The record that was encoded; UnreadableRecord if this version can't."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise UnreadableRecord(group_id=group_id, reason=str(error)) from error
