"""Finds the records that waited for longer than share.record.ttl.ms, and archives them in groups where nobody acquires.

The brokers' time index bounds them: all records before the first that is young enough are older. A record is never
archived early; one behind a record with a later timestamp is archived when that record is too old as well.

Rule: offsets that were never acquired are archived only after the log was read over them, so that those without a
record count as such. One call reads up to AT_ONCE of them, and the next call goes on. Until then they are not
delivered, unless their log can't be read: a damaged batch must not hold up its partition."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Mapping

from coordinator.core.commands import ArchiveExpired, ExpiredRecords
from coordinator.core.looks.view import KnownTopics, LogRange, known_topics
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.values import OffsetRange, SharePartitionKey, TopicAndPartition
from coordinator.service.brokers.broker_watch import BrokerWatch
from coordinator.service.brokers.cluster import KafkaCluster
from coordinator.service.brokers.log_gaps import LogGaps
from coordinator.service.brokers.subscription import TopicIdPartition
from coordinator.service.runtime.transaction import Access, Groups, looking
from coordinator.service.runtime.transactions import Facts, archive_expired

AT_ONCE = 50_000
"""One call reads the log over up to this many offsets that were never acquired."""


class RecordTtl:
    """The expired records of groups. Thread-safe; :meth:`look_at_groups` is for one thread."""

    def __init__(self, groups: Groups, watch: BrokerWatch) -> None:
        self._groups, self._watch, self._gaps = groups, watch, LogGaps(watch.cluster)
        self._reading: set[str] = set()
        self._last: dict[str, tuple[object, dict[SharePartitionKey, OffsetRange], tuple[OffsetRange, ...]]] = {}
        """By group, what was read last, and the result: while dead letters can't be written, it is asked for again."""

    def look_at_groups(self) -> None:
        """Archive what is expired in each group that is served here."""
        for group_id in self._groups.served_groups():
            with contextlib.suppress(ShareGroupError):
                view = self._groups.call(group_id, looking(known_topics), Access.PEEK)
                facts = self.add_to(self._facts(view), view) if view.waits_from else None
                if facts is not None and facts.expired is not None:
                    self._groups.call(group_id, archive_expired(facts))

    def add_to(self, facts: Facts, view: KnownTopics) -> Facts:
        """Returns the facts, with what is expired. The new ends leave out expired offsets that are not read yet, and
        all that waits in a partition whose leader does not answer, or whose topic may be another one by now."""
        waiting: dict[TopicIdPartition, tuple[int, int]] = {}
        for p in facts.partitions if view.record_ttl_ms is not None else ():
            low, end = facts.log_starts.get(p.topic_partition, 0), facts.ends.get(p.topic_partition, 0)
            first, fresh = view.waits_from.get(SharePartitionKey(p.topic_id, p.partition), (low, low))
            if max(first, low) < end:
                waiting[p] = max(first, low), max(fresh, low)
        if not waiting or view.record_ttl_ms is None:
            return facts
        ends, bounds = dict(facts.ends), {p.topic_partition: facts.ends[p.topic_partition] for p in waiting}
        older = ends_of_older(self._watch.cluster, bounds, view.record_ttl_ms + 1, read_committed=view.read_committed)
        expired = {p: end for p in waiting if (end := older.get(p.topic_partition, 0)) > waiting[p][0]}
        topics = {p.topic_id: p.topic for p in expired}
        doubts = self._watch.doubts
        looked = doubts.look(self._watch.cluster, topics, view.group_id, topic_ids=view.topic_ids, past=view.past)
        for p in waiting:
            if p.topic_partition not in older or p.topic_id in looked.not_shown:
                ends[p.topic_partition] = waiting[p][0]
                expired.pop(p, None)
        if not expired:
            return dataclasses.replace(facts, ends=ends)
        # Asked after the bounds: what lies between the two was in the log. What lies below was removed, and is no less.
        log_starts = {**facts.log_starts, **self._watch.ask_log_starts([p.topic_partition for p in expired])}
        starts = {p: log_starts[p.topic_partition] for p in expired if p.topic_partition in log_starts}
        unread = {p: max(waiting[p][1], start) for p, start in starts.items()}
        read, gaps = self._read(view, {p: (first, expired[p]) for p, first in unread.items()})
        found, is_left = [], False
        for p, first in unread.items():
            key, end = SharePartitionKey(p.topic_id, p.partition), expired[p]
            over = read.get(key, OffsetRange(*key, first, first - 1))
            found.append(ExpiredRecords(**key._asdict(), end=end, read_from=over.first, read_end=over.last + 1))
            if over.first > first:  # the log start has moved
                log_starts[p.topic_partition] = over.first
            if over.last + 1 < end > first and not self._gaps.is_left_alone(key):
                ends[p.topic_partition], is_left = min(ends[p.topic_partition], over.last + 1), True
        archive = ArchiveExpired(ttl_ms=view.record_ttl_ms, expired=tuple(found), gaps=gaps)
        return dataclasses.replace(facts, log_starts=log_starts, ends=ends, expired=archive, expired_left=is_left)

    def _read(
        self, view: KnownTopics, fresh: Mapping[TopicIdPartition, tuple[int, int]]
    ) -> tuple[dict[SharePartitionKey, OffsetRange], tuple[OffsetRange, ...]]:
        """Read the logs over the first AT_ONCE of these offsets. Returns where they were read, and the gaps there;
        nothing if another request of the group reads."""
        ranges, left = [], AT_ONCE
        for p, (first, end) in fresh.items():
            if (count := min(end - first, left)) > 0:
                ranges.append(LogRange(p.topic, OffsetRange(p.topic_id, p.partition, first, first + count - 1)))
                left -= count
        asked, last = (ranges, view.read_committed), self._last.get(view.group_id)
        if last is not None and last[0] == asked:
            return last[1:]
        if not ranges or view.group_id in self._reading:
            return {}, ()
        self._reading.add(view.group_id)
        try:
            read, gaps = self._gaps.read(ranges, read_committed=view.read_committed)
            found = {over.key: over for over in read}
            if len(found) == len(ranges):
                self._last[view.group_id] = asked, found, gaps
            return found, gaps
        finally:
            self._reading.discard(view.group_id)

    def _facts(self, view: KnownTopics) -> Facts:
        """The brokers' facts about the partitions of a group in which something may wait."""
        partitions = [
            TopicIdPartition(view.topics[key.topic_id], *key)
            for key in view.waits_from
            if key.topic_id in view.topics and key.topic_id not in view.past
        ]
        asked = [p.topic_partition for p in partitions]
        ends = self._watch.ask_answering_ends(asked, read_committed=view.read_committed)
        return Facts(partitions=partitions, log_starts=self._watch.log_starts(asked), ends=ends)


def ends_of_older(
    cluster: KafkaCluster, ends: Mapping[TopicAndPartition, int], age_ms: int, *, read_committed: bool
) -> dict[TopicAndPartition, int]:
    """Returns, for each partition whose leader answers, the end of the records that are at least this old: the first
    offset with a younger record by the brokers' time index, and ``ends`` at most. ``ends``: the logs' ends before this
    call; a record that is written during the call is younger, whatever the index says."""
    younger_ms = max(0, int(time.time() * 1000) - age_ms + 1)  # below 0 are Kafka's names of offsets, as -1 of the end
    found, _ = cluster.answered_offsets(ends, younger_ms, read_committed=read_committed) if ends else ({}, ())
    return {where: min(ends[where], offset) for where, offset in found.items()}
