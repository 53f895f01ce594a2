"""Notices the logs that a group has lost: those of deleted topics, and those that end below what the group acquired."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping

from coordinator.core.commands import ArchiveDeletedTopics, PartitionStart
from coordinator.core.left_out import LeftOutRange, count, in_reply
from coordinator.core.looks.view import GroupView, KnownTopics, known_topics
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.errors import BrokerNotReachable, BrokerRefused, ShareGroupError, TopicIdsMissing
from coordinator.protocol.repeated_lines import LogOnce
from coordinator.protocol.values import TopicAndPartition
from coordinator.service.brokers.broker_watch import BrokerWatch
from coordinator.service.brokers.subscription import Subscription, TopicIdPartition
from coordinator.service.runtime.transaction import Access, Groups, TransactionSteps, ask, looking

MOST_ASKED = 10_000
"""For up to this many missing topics the time of the next request is remembered. Up to this many groups that somebody
looked at are checked."""
MOST_NAMED = 20
"""The log line of a deleted topic names up to this many ranges."""

_log = logging.getLogger(__name__)


class LostLogs:
    """Archives what groups had of deleted topics, and logs each loss once. Thread-safe: its memory only grows, or is
    emptied; :meth:`look_at_groups` is for one thread."""

    def __init__(self, groups: Groups, watch: BrokerWatch) -> None:
        self._groups = groups
        self._watch = watch
        self._once = LogOnce(_log)
        self._asked_gone: dict[tuple[str, str], float] = {}
        self._looked_at: dict[str, KnownTopics | None] = {}
        self.in_doubt = False
        """Whether a topic was missing at the last look at all groups, and did not count as deleted yet."""

    def look_for_deleted(self, view: GroupView, partitions: list[TopicIdPartition]) -> None:
        """Ask the brokers again for subscribed topics that were not found, or were found under another id. Archive what
        the group had of those that are deleted. A missing topic counts as deleted only after a while
        (:mod:`coordinator.service.brokers.topic_doubts`)."""
        subscription = Subscription.of(view.subscribed)
        found = {p.topic_id for p in partitions}
        self._watch.doubts.shown(found)
        topics = {
            topic_id: topic
            for topic_id, topic in view.topics.items()
            if topic_id not in found and subscription.has(topic) and self._may_ask_again(view.group_id, topic_id)
        }
        if not topics or not view.topic_ids:  # without ids a topic that was created again counts as the same topic
            return
        try:
            looked = self._watch.doubts.look(self._watch.cluster, topics, view.group_id, topic_ids=True, past=view.past)
        except (BrokerNotReachable, BrokerRefused, TopicIdsMissing) as error:
            _log.warning("the brokers do not say whether topics are deleted: group=%s %s", view.group_id, error)
            return
        self.archive_deleted(view, {topic_id: topics[topic_id] for topic_id in looked.deleted})

    def note_looked_at(self, group_id: str) -> None:
        """Check the topics of this group from now on, even if no process has loaded it: somebody looks at the group."""
        if len(self._looked_at) >= MOST_ASKED:
            self._looked_at.clear()
        self._looked_at.setdefault(group_id, None)

    def look_at_groups(self) -> None:
        """Archive what groups had of deleted topics: of all groups that are loaded here or were looked at."""
        found = [known for known in self._known_topics() if known.topics and known.topic_ids]
        names = {topic for known in found for topic in known.topics.values()}
        shown: set[str] = set()
        with contextlib.suppress(BrokerNotReachable, BrokerRefused):
            # One group's topic may be the reason: each group asks for its own.
            shown = {topic.topic_id for topic in self._watch.cluster.topics(names).values()}
        self._watch.doubts.shown(shown)
        in_doubt = False
        for known in found:
            if topics := {topic_id: topic for topic_id, topic in known.topics.items() if topic_id not in shown}:
                in_doubt |= self._look_again(known, topics)
        self.in_doubt = in_doubt

    def _known_topics(self) -> list[KnownTopics]:
        """The topics of each group. Of a group that is not loaded here they are read once: its owner sees changes."""

        look = looking(known_topics)
        served = self._groups.served_groups()
        for group_id in [*self._looked_at]:
            if group_id not in served and self._looked_at[group_id] is None:
                with contextlib.suppress(ShareGroupError):
                    self._looked_at[group_id] = self._groups.call(group_id, look, Access.PEEK)
        found = {group_id: known for group_id, known in self._looked_at.items() if known is not None}
        for group_id in served:
            with contextlib.suppress(ShareGroupError):
                found[group_id] = self._groups.call(group_id, look, Access.PEEK)
        return list(found.values())

    def _look_again(self, known: KnownTopics, topics: Mapping[str, str]) -> bool:
        """Ask again for topics that brokers did not show, and archive deleted ones. Returns whether one is in doubt."""
        look = self._watch.doubts.look
        try:
            looked = look(self._watch.cluster, topics, known.group_id, topic_ids=True, past=known.past)
            if looked.deleted:
                self._looked_at.pop(known.group_id, None)
                self.archive_deleted(known, {topic_id: topics[topic_id] for topic_id in looked.deleted})
        except ShareGroupError as error:
            _log.info("could not look for deleted topics, and tries again: group=%s %s", known.group_id, error)
            return False
        return bool(looked.in_doubt)

    def _may_ask_again(self, group_id: str, topic_id: str) -> bool:
        now_s = time.monotonic()
        if now_s < self._asked_gone.get((group_id, topic_id), now_s):
            return False
        if len(self._asked_gone) >= MOST_ASKED:
            self._asked_gone.clear()
        self._asked_gone[group_id, topic_id] = now_s + self._watch.metadata_refresh_s
        return True

    def archive_deleted(self, view: KnownTopics, gone: Mapping[str, str]) -> None:
        if not gone or not view.topic_ids:
            return
        ends = tuple(
            PartitionStart(topic_id=topic_id, partition=partition, start_offset=end)
            for topic_id, topic in gone.items()
            for partition, end in self._watch.last_ends(topic, topic_id, read_committed=view.read_committed).items()
        )
        archive = ArchiveDeletedTopics(topic_ids=tuple(sorted(gone)), ends=ends)

        def transaction(group: ShareGroup) -> TransactionSteps[tuple[frozenset[str], tuple[LeftOutRange, ...]]]:
            known = frozenset(group.gone)
            return known, (yield from ask(archive)).lost

        known, lost = self._groups.call(view.group_id, transaction)
        left_out = in_reply(lost)
        for topic_id, topic in gone.items():
            if topic_id in known:
                continue
            of_topic = [entry for entry in left_out if entry.topic_id == topic_id]
            _log.warning(
                "topic deleted: group=%s topic=%s id=%s lost=%d%s",
                view.group_id,
                topic,
                topic_id,
                count(of_topic),
                f" ({', '.join(map(str, of_topic[:MOST_NAMED]))})" if of_topic else "",
            )

    def report_shrunk(
        self, view: GroupView, partitions: list[TopicIdPartition], ends: Mapping[TopicAndPartition, int]
    ) -> None:
        """Log an error, once for each log that ends below the offsets that the group has acquired: the log has lost
        records, and will give their offsets to new ones. The group goes on where it was. ``ends``: the high watermarks,
        or the last stable offsets if the group reads committed records. Such a group's logs are compared by their high
        watermarks: a last stable offset may lie below what the group acquired earlier."""
        reached_of = {p: view.fetch_from.get((p.topic_id, p.partition), 0) for p in partitions}
        below = [p for p, reached in reached_of.items() if ends.get(p.topic_partition, reached) < reached]
        if below and view.read_committed:
            ends = self._watch.known_ends([p.topic_partition for p in below], read_committed=False)
        for p in below:
            reached = reached_of[p]
            end = ends.get(p.topic_partition, reached)
            if end < reached and self._once.changes(f"{view.group_id} {p.topic}-{p.partition}", reached):
                _log.error(
                    "log shrunk: group=%s %s-%d ends at %d now, and the group has acquired it up to %d (an unclean "
                    "leader election, or a topic made anew on a cluster without topic ids). Records that come at these "
                    "offsets are not delivered: to have them, use a new group id.",
                    view.group_id,
                    p.topic,
                    p.partition,
                    end,
                    reached,
                )
