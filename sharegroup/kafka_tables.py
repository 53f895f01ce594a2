"""Tables as kafka-share-groups.sh prints them: its headings, its column widths, and - for unknown values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coordinator.protocol.admin_messages import AlteredOffsets, GroupListing
from coordinator.protocol.log_lines import printable
from coordinator.protocol.messages import GroupDescription, MemberDescription, PartitionDescription, RecordCounts

MISSING = "-"
_NAME = 15
"""A column of names has at least this many characters."""


def state_name(state: str) -> str:
    """Returns the state as Kafka's tools write it: Empty, Stable, Dead, Unknown."""
    return state.capitalize()


def listing(groups: Iterable[GroupListing]) -> list[str]:
    """Returns the lines of --list --state."""
    rows = [(each.group_id, state_name(each.state)) for each in groups]
    return _lines(("GROUP", "STATE"), rows, [_width(0, rows), 0])


def offsets(group_id: str, partitions: Iterable[PartitionDescription], *, verbose: bool) -> list[str]:
    """Returns the lines of --describe --offsets. The leader epoch exists only in Kafka's own groups, so it is -."""
    epoch = ((MISSING,), ("LEADER-EPOCH",), (-13,)) if verbose else ((), (), ())
    rows = [
        (group_id, p.topic, str(p.partition), *epoch[0], str(p.start_offset), _known(p.lag))
        for p in _sorted(partitions)
    ]
    widths = [_width(0, rows), _width(1, rows), 10, *(13 for _ in epoch[2]), 13, 0]
    return ["", *_lines(("GROUP", "TOPIC", "PARTITION", *epoch[1], "START-OFFSET", "LAG"), rows, widths)]


def records(description: GroupDescription) -> list[str]:
    """Returns the lines of --describe --records, a table that Kafka lacks: the fate of each partition's records. The
    last line counts everything that the group reads or has read, including deleted topics."""
    counted: list[tuple[str, str, PartitionDescription | RecordCounts]] = [
        (p.topic, str(p.partition), p) for p in _sorted(description.partitions)
    ]
    counted.append(("(all)", MISSING, description.records))
    rows = [
        (
            *(description.group_id, topic, partition),
            *map(str, (each.accepted, each.given_up, each.archived.get("none", 0), each.removed, each.deleted)),
            *map(str, (each.skipped, each.repeated)),
        )
        for topic, partition, each in counted
    ]
    head = (
        *("GROUP", "TOPIC", "PARTITION", "ACCEPTED", "ARCHIVED", "NO-RECORD", "REMOVED", "TOPIC-DELETED"),
        *("SKIPPED", "REPEATED"),
    )
    return ["", *_lines(head, rows, [_width(0, rows), _width(1, rows), 10, 10, 10, 10, 10, 14, 10, 0])]


def _sorted(partitions: Iterable[PartitionDescription]) -> list[PartitionDescription]:
    return sorted(partitions, key=lambda each: (each.topic, each.partition))


def states(description: GroupDescription, *, verbose: bool) -> list[str]:
    """Returns the lines of --describe --state."""
    coordinator = description.coordinator or MISSING
    row = [description.group_id, coordinator, state_name(description.state)]
    head, widths = ["GROUP", "COORDINATOR (ID)", "STATE"], [_width(0, [row]), max(25, len(coordinator)), 15]
    if verbose:
        row += [str(description.group_epoch), str(description.assignment_epoch)]
        head, widths = [*head, "GROUP-EPOCH", "ASSIGNMENT-EPOCH"], [*widths, 12, 17]
    active = sum(member.active for member in description.members)
    return ["", *_lines([*head, "#MEMBERS"], [[*row, str(active)]], [*widths, 0])]


def members(group_id: str, described: Iterable[MemberDescription], *, verbose: bool) -> list[str]:
    """Returns the lines of --describe --members, only for members with a session, as in Kafka. HOST includes the
    process id."""
    rows = []
    for member in described:
        if not member.active:
            continue
        count = member.assigned_total
        text = ";".join(f"{each.topic}:{','.join(map(str, each.partitions))}" for each in member.assignment)
        host = f"{member.client_host} ({member.client_pid})" if member.client_pid else member.client_host
        names = [printable(name) or MISSING for name in (member.member_id, host, member.client_id)]
        epoch = (str(member.member_epoch),) if verbose else ()
        rows.append((group_id, *names, str(count), *epoch, text or MISSING))
    head = ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", *(("MEMBER-EPOCH",) * verbose), "ASSIGNMENT")
    widths = [*(_width(column, rows) for column in range(4)), 12, *((13,) * verbose), 0]
    return ["", *_lines(head, rows, widths)]


def new_offsets(group_id: str, altered: Iterable[AlteredOffsets]) -> list[str]:
    """Returns the lines of --reset-offsets."""
    rows = [(group_id, each.topic, str(each.partition), _known(each.after)) for each in altered]
    return ["", *_lines(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows, [_width(0, rows), _width(1, rows), 10, 0])]


def statuses(topics: Sequence[str]) -> list[str]:
    """Returns the lines of --delete-offsets, after all these topics were deleted."""
    rows = [(topic, "Successful") for topic in topics]
    return ["", *_lines(("TOPIC", "STATUS"), rows, [_width(0, rows), 0])]


def _known(number: int | None) -> str:
    return MISSING if number is None else str(number)


def _width(column: int, rows: Iterable[Sequence[str]]) -> int:
    return max(_NAME, *(len(row[column]) for row in rows), 0)


def _lines(head: Sequence[str], rows: Iterable[Sequence[str]], widths: Sequence[int]) -> list[str]:
    """Returns the lines of a table. A width of 0 marks the last column, which is not padded."""
    return [
        " ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip(" ")
        for row in (head, *rows)
    ]
