"""The import of a group: the brokers are asked about its topics, then one transaction creates the group.

Rule: creation, configs, start offsets, runs and the answer to the action are one append. So a crash leaves a whole
group or none, and the same action that is sent again gets the answer of the first."""

from __future__ import annotations

import uuid

import msgspec

from coordinator.config.resolved import GroupConfig
from coordinator.core.commands import AlterConfigs, CreateGroup
from coordinator.core.commands.import_position import ImportPosition
from coordinator.core.commands.membership import alter_configs
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.admin_messages import Altered, ImportGroup, PartitionPosition
from coordinator.protocol.errors import GroupExists, InvalidImport, UnknownPartition, UnknownTopic
from coordinator.protocol.group_ids import check_group_id
from coordinator.service.brokers.cluster import EARLIEST, LATEST, KafkaCluster
from coordinator.service.brokers.subscription import TopicIdPartition, id_of
from coordinator.service.dead_letters.topic_check import check_dead_letter_topic
from coordinator.service.handlers.admin_actions import call_action, exists
from coordinator.service.runtime.group_limits import GroupLimits
from coordinator.service.runtime.transaction import Access, Groups, Transaction, TransactionSteps, ask
from coordinator.service.runtime.transactions import initialize

EARLIEST_RECORD = "{where}: the source has no position there. The group begins at the earliest record."
CUT = "{where}: the log begins at {low} only, so the start is moved there from {start}; what lay before is gone."


def import_group(groups: Groups, cluster: KafkaCluster, limits: GroupLimits, request: ImportGroup) -> Altered:
    """Create the group at the position that the request describes. Raises as :class:`ImportGroup`, and as
    check_dead_letter_topic for its configs."""
    check_group_id(request.group_id)
    if groups.call(request.group_id, exists, Access.PEEK):  # else it would be taken from its owner, and then refused
        raise GroupExists(group_id=request.group_id)
    config = GroupConfig.parse(request.configs)
    topic_ids = cluster.gives_topic_ids()
    partitions, notes = _within_logs(cluster, request, topic_ids=topic_ids)
    if name := config.errors_deadletterqueue_topic_name:
        is_read = any(name == each.topic for each in partitions)
        check_dead_letter_topic(cluster, config, is_read=is_read, creates=request.execute)

    def transaction(group: ShareGroup) -> TransactionSteps[Altered]:
        limits.check_new(request.group_id)
        alter = AlterConfigs(configs=request.configs)
        alter_configs(group, alter, 0)  # checked first: a refused import changes nothing
        reply = yield from ask(ImportPosition(partitions=partitions, execute=False))
        if request.execute:
            yield from ask(CreateGroup(incarnation=uuid.uuid4().hex[:8], topic_ids=topic_ids))
            yield from ask(alter)
            starts = {TopicIdPartition(each.topic, each.topic_id, each.partition): each.start for each in partitions}
            yield from initialize(group, starts)
            reply = yield from ask(ImportPosition(partitions=partitions, execute=True))
        return msgspec.structs.replace(reply, notes=notes)

    create: Transaction[Altered] = transaction
    return call_action(groups, request, create)


def _within_logs(
    cluster: KafkaCluster, request: ImportGroup, *, topic_ids: bool
) -> tuple[tuple[PartitionPosition, ...], tuple[str, ...]]:
    """The positions with the topic ids of this cluster, none before the start of its log, and the notes about those
    that were moved.

    Raises:
        TopicNotAllowed: share.coordinator.source.topics does not allow a topic.
        UnknownTopic, UnknownPartition: the cluster has no such topic or partition.
        InvalidImport: there is no position, or one of another topic of that name, or beyond the end of its log; or the
            brokers give no offsets."""
    group_id = request.group_id
    if not request.partitions:
        raise InvalidImport(group_id=group_id, reason="the source has no position in any topic that exists here.")
    names = {each.topic for each in request.partitions}
    for topic in sorted(names):
        cluster.allowed.check_source(topic)
    found = cluster.topics(names)
    where = [(each.topic, each.partition) for each in request.partitions]
    earliest, latest = cluster.offsets(where, EARLIEST), cluster.offsets(where, LATEST)
    positions, notes = [], []
    for at, each in zip(where, request.partitions, strict=True):
        if each.topic not in found:
            raise UnknownTopic(topic=each.topic, addresses=cluster.addresses)
        if each.partition >= found[each.topic].partitions:
            raise UnknownPartition(topic=at[0], partition=at[1], partitions=found[each.topic].partitions)
        name, topic_id = f"{at[0]}-{at[1]}", id_of(found[each.topic], group_id, topic_ids=topic_ids)
        if each.topic_id not in ("", topic_id):
            reason = (
                f"topic {each.topic} was deleted and created anew since the source read it: leave it out (--topic)."
            )
            raise InvalidImport(group_id=group_id, reason=reason)
        if at not in earliest or at not in latest:
            raise InvalidImport(group_id=group_id, reason=f"the brokers give no offsets of {name} now: try again.")
        beyond = max((each.start, *(run.last + 1 for run in each.runs[-1:])))
        if beyond > latest[at]:
            reason = f"the source has {name} at offset {beyond}, and the log ends at {latest[at]}: another cluster, or "
            raise InvalidImport(group_id=group_id, reason=f"{reason}records were lost. Leave the topic out (--topic).")
        if each.start < earliest[at]:
            notes.append(CUT.format(where=name, low=earliest[at], start=each.start))
        start = max(each.start, earliest[at])
        positions.append(msgspec.structs.replace(each, topic_id=topic_id, start=start))
    left = sorted({(topic, index) for topic in names for index in range(found[topic].partitions)} - {*where})
    notes += [EARLIEST_RECORD.format(where=f"{topic}-{index}") for topic, index in left]
    return tuple(positions), tuple(notes)
