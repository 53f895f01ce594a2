"""Opens a sink (:class:`~coordinator.protocol.messages.OpenSink`): sets its configs, checks its dead letter topic, and
returns the incarnation and the topic ids whose rows it takes."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.config.resolved import GroupConfig, changed_configs, replaced_configs
from coordinator.core.commands import AlterConfigs
from coordinator.core.looks.view import reads_topic
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.errors import GroupIdNotFound
from coordinator.protocol.messages import OpenSink, SinkOpened
from coordinator.service.brokers.cluster import KafkaCluster
from coordinator.service.dead_letters.topic_check import check_dead_letter_topic, is_stored_and_refused
from coordinator.service.runtime.transaction import Groups, Transaction, TransactionSteps, ask, looking


@dataclass(frozen=True, kw_only=True, slots=True)
class SinkView:
    """The group's state that a sink needs. ``incarnation`` is empty if the group does not exist. ``config`` includes
    the sink's own configs; ``replaced``: the group's earlier values of the configs that the sink changes.
    ``reads_dead_letters``: whether the group reads the dead letter topic now."""

    incarnation: str
    topics: dict[str, str]
    old_topics: tuple[str, ...]
    ends: dict[str, dict[str, int]]
    config: GroupConfig
    reads_dead_letters: bool
    replaced: dict[str, str]


def open_sink(groups: Groups, cluster: KafkaCluster, request: OpenSink) -> SinkOpened:
    """Set the sink's configs and return the values that it works with.

    Raises:
        GroupIdNotFound: the group does not exist; a sink is opened after its query's source has joined.
        GroupTakenOver: another coordinator owns the group. A sink is no new member, so it neither takes a group over
            nor reads another owner's.
        ShareGroupError: a config is refused, or the dead letter topic is missing, can't be written, or is the group's
            own."""
    view = groups.call(request.group_id, looking(lambda group: _view(group, request)))
    if not view.incarnation:
        raise GroupIdNotFound(group_id=request.group_id)
    topic, partitions = view.config.errors_deadletterqueue_topic_name, 0
    if is_stored_and_refused(cluster, topic, request.configs):
        topic = ""  # the coordinator holds the dead letters, and says why
    if topic:
        partitions = check_dead_letter_topic(cluster, view.config, is_read=view.reads_dead_letters)
    replaced = view.replaced
    if replaced:
        view = groups.call(request.group_id, _set_configs(request))
    return SinkOpened(
        incarnation=view.incarnation,
        topics=view.topics,
        old_topics=view.old_topics,
        ends=view.ends,
        dead_letter_topic=topic,
        dead_letter_partitions=partitions,
        copy_record=view.config.errors_deadletterqueue_copy_record_enable,
        delivery_count_limit=view.config.share_delivery_count_limit,
        replaced=replaced,
    )


def _view(group: ShareGroup, request: OpenSink) -> SinkView:
    ends: dict[str, dict[str, int]] = {topic_id: {} for topic_id in group.topic_names}
    configs = changed_configs(group.configs, request.configs)
    config = GroupConfig.parse(configs)
    for key, partition in group.partitions.items():
        ends[key.topic_id][str(key.partition)] = partition.end_offset
    return SinkView(
        incarnation=group.incarnation,
        topics=dict(group.topic_names),
        old_topics=tuple(topic_id for topic_id in group.topic_names if not group.is_current(topic_id)),
        ends=ends,
        config=config,
        reads_dead_letters=reads_topic(group, config.errors_deadletterqueue_topic_name),
        replaced=replaced_configs(group.configs, configs),
    )


def _set_configs(request: OpenSink) -> Transaction[SinkView]:
    def transaction(group: ShareGroup) -> TransactionSteps[SinkView]:
        yield from ask(AlterConfigs(configs=dict(request.configs)))
        return _view(group, request)

    return transaction
