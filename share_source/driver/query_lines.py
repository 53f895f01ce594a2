"""The log lines of a query's source: ``query started``, ``query reads``, the configs, options without an effect, and
``query ended``.

Rule: the lines show what the coordinator replied, and no query fails because of a line."""

from __future__ import annotations

import json
import logging
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping

from coordinator.client.config_lines import effective_configs, log_joined
from coordinator.client.session import MemberSession
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.messages import GroupDescription, Joined, PartitionDescription, PlanReply
from share_source.executor.reader_choice import reader_choice
from share_source.options import SourceOptions

NAMED = 20
"""The line ``query reads`` names up to this many partitions."""
LONGEST = 200
"""A line shows up to this many characters of an option's value."""

_log = logging.getLogger(__name__)


def log_started(options: SourceOptions, session: MemberSession, *, is_new: bool) -> None:
    """Log ``query started``, ``query reads``, the configs, and each option without an effect or with another effect
    than written. ``is_new``: the query has a new checkpoint."""
    joined = session.joined
    group: GroupDescription | None = None
    try:
        group = session.describe()
        where = _where(group.partitions)
    except ShareGroupError as error:
        where = f"where the group stands is not known: {error}"
    _log.info(
        "query started: group=%s member=%s epoch=%d coordinator=(%s) store=%s reader=%s",
        options.group_id,
        session.member_id,
        joined.member_epoch,
        session.coordinator,
        "the coordinator's" if options.coordinator_configs.get("share.coordinator.endpoint") else options.state_store,
        _reader(),
    )
    _log.info("query reads: %s %s", _subscription(options), where)
    for line in effective_configs(joined.configs, options.group_configs, group.in_force if group else {}):
        _log.info("%s", line)
    log_joined(joined, options.group_configs)
    members = group.members if group else ()
    joins_others = any(each.active and each.member_id != session.member_id for each in members)
    _log_starting_offsets(options, joined, group, is_surprise=is_new and not joins_others)
    if options.topic_pattern is not None and group is not None and not group.partitions:
        _log.warning(
            "subscribePattern=%s matches no topic yet: the query waits for topics, and reads a new one from its "
            "earliest record",
            _short(options.topic_pattern),
        )


def _reader() -> str:
    """Returns the reader of this host, as ``sharegroup --version`` shows it. Executors log theirs, or refuse tasks."""
    try:
        return str(reader_choice())
    except ShareGroupError as error:
        return f"unknown ({error})"


def _where(partitions: Iterable[PartitionDescription]) -> str:
    found = sorted(partitions, key=lambda p: (p.topic, p.partition))
    lag = sum(p.lag or 0 for p in found)
    unknown = any(p.lag is None for p in found)
    named = [
        f"{p.topic}-{p.partition} from {p.start_offset} (lag {'unknown' if p.lag is None else p.lag})"
        for p in found[:NAMED]
    ]
    more = [f"{len(found) - NAMED} more"] if len(found) > NAMED else []
    at_least = "at least " if unknown else ""
    return f"lag={at_least}{lag} partitions={len(found)} ({', '.join([*named, *more]) or 'none yet'})"


def _subscription(options: SourceOptions) -> str:
    if options.topic_pattern is not None:
        return f"subscribePattern {_short(options.topic_pattern)}"
    return _short(",".join(options.topics or (options.assign or {})))


def _log_starting_offsets(
    options: SourceOptions, joined: Joined, group: GroupDescription | None, *, is_surprise: bool
) -> None:
    """Log that startingOffsets have no effect, or that a partition begins elsewhere than they name. ``is_surprise``: a
    person may expect an effect, since the query has a new checkpoint and joins no other members."""
    name, text = "startingOffsets", options.starting_offsets
    if text is None:
        name, text = "share.auto.offset.reset", options.group_configs.get("share.auto.offset.reset", "")
    if text and not joined.created and not joined.begun:
        _log.log(
            logging.WARNING if is_surprise else logging.INFO,
            "%s=%s has no effect: the group exists, and goes on where it is, also with a new checkpoint or after a "
            "pipeline's full refresh. To read again, stop the group's queries, and: %s",
            *(name, _short(text), reset_command(options.bootstrap_servers, options.group_id)),
        )
    if joined.created and group is not None:
        for partition, wanted in _beyond(options.starting_offsets, group.partitions):
            _log.warning(
                "startingOffsets names offset %d of %s-%d, and the log has none there: the group begins at %d",
                *(wanted, partition.topic, partition.partition, partition.start_offset),
            )


def reset_command(bootstrap_servers: str, group_id: str) -> str:
    """Returns the command with which a person lets a group read its topics again."""
    group = f"--bootstrap-server {shlex.quote(bootstrap_servers)} --group {shlex.quote(group_id)}"
    return f"sharegroup groups {group} --reset-offsets --all-topics --to-earliest --execute"


def _beyond(
    starting_offsets: str | None, partitions: Iterable[PartitionDescription]
) -> list[tuple[PartitionDescription, int]]:
    """Returns the partitions that begin elsewhere than startingOffsets says, with the offset in startingOffsets."""
    if not (starting_offsets or "").startswith("{"):
        return []
    named: Mapping[str, Mapping[str, int]] = json.loads(starting_offsets or "")
    wanted = [(p, named.get(p.topic, {}).get(str(p.partition), -1)) for p in partitions]
    return [(p, offset) for p, offset in wanted if 0 <= offset != p.start_offset]


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


_OUTCOMES = ("accepted", "released", "rejected", "deferred")


class QueryCounts:
    """Counts what a process of a query acquired and completed, for the line ``query ended``."""

    def __init__(self) -> None:
        self._batches = self._acquired = self._archived = 0
        self._outcomes: Counter[str] = Counter()
        self._last = "none"

    def __str__(self) -> str:
        outcomes = " ".join(f"{word}={self._outcomes[word]}" for word in _OUTCOMES)
        return (
            f"batches={self._batches} acquired={self._acquired} {outcomes} archived={self._archived} "
            f"last batch: {self._last}"
        )

    def add(self, reply: PlanReply) -> None:
        self._outcomes.update(reply.outcomes)
        self._archived += sum(entry.count for entry in reply.given_up)
        plan = reply.plan
        if plan.plan_id:
            records = sum(held.last - held.first + 1 for part in plan.partitions for held in part.ranges)
            self._batches += 1
            self._acquired += records
            self._last = f"plan {plan.plan_id} with {records} record(s), completed at the next trigger or start"
        elif reply.outcomes:
            self._last = "completed"
