"""The actions of an administrator: the brokers are asked first, then one transaction decides.

Rules: an action is one transaction of one group, so a crash leaves all of it or nothing. In that transaction the group
remembers the action, so the action is carried out once (:mod:`coordinator.core.commands.actions`). An action takes a
group from another coordinator only if it is forced and executed, and the group exists."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import msgspec

from coordinator.config.group_keys import DEAD_LETTER_TOPIC, GROUP_KEYS
from coordinator.config.resolved import (
    GROUP_SCOPE,
    GroupConfig,
    changed_configs,
    hint_of_group,
    replaced_configs,
)
from coordinator.core.commands import AlterConfigs
from coordinator.core.commands.actions import Answer, RememberAction, answer_of, check_seen, state_of
from coordinator.core.commands.administer import NO_DEAD_LETTER, AlterStartOffsets
from coordinator.core.commands.membership import alter_configs as decide_configs
from coordinator.core.looks.view import past_ids, reads_topic
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.admin_messages import (
    Action,
    Altered,
    AlteredOffsets,
    AlterGroupConfigs,
    AlterOffsets,
    DeleteOffsets,
    Effect,
    ImportGroup,
    OffsetChanges,
)
from coordinator.protocol.errors import (
    CoordinatorNotAvailable,
    GroupExists,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    GroupTakenOver,
    InvalidReset,
    UnknownConfig,
    UnknownPartition,
    UnknownSharePartition,
    UnknownTopic,
)
from coordinator.service.brokers.cluster import EARLIEST, LATEST, KafkaCluster
from coordinator.service.brokers.subscription import Subscription, TopicIdPartition, id_of
from coordinator.service.brokers.topic_doubts import TopicDoubts
from coordinator.service.dead_letters.topic_check import check_dead_letter_topic
from coordinator.service.runtime.transaction import Access, Groups, Transaction, TransactionSteps, ask, looking
from coordinator.service.runtime.transactions import initialize

Starts = Mapping[TopicIdPartition, int]
T = TypeVar("T", Altered, OffsetChanges)
TAKEN = (
    "The group is taken from {owner}: its queries there end (GroupTakenOver). Whether it has members is known after "
    "that."
)
CUT = (
    "{count} start offset(s) that are asked for lie before or beyond what their logs hold: the log's start or end is "
    "taken."
)
CREATED = "Topic {topic}, which did not exist, is created."
DELETED = "Topic {topic} was deleted: {count} share partition(s) of it are left as they are."
NOT_SHOWN = (
    "The brokers do not show topic {topic} at present, which may be deleted: {count} share partition(s) of it are left "
    "as they are. If it is shown again, reset it by its name."
)
MADE_ANEW = (
    "Topic {topic} was deleted and created anew: {count} share partition(s) of the deleted one are left as they are. A "
    "query or ShareConsumer that joins brings the new one to the group."
)
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")
"""The number of a partition."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResetView:
    """The part of a group's state that a reset needs before it asks the brokers. ``starts``: the start offsets of the
    share partitions of the current topics."""

    incarnation: str
    topic_ids: bool
    read_committed: bool
    topics: Mapping[str, str]
    starts: Starts
    past: frozenset[str]


def alter_offsets(groups: Groups, cluster: KafkaCluster, doubts: TopicDoubts, request: AlterOffsets) -> OffsetChanges:
    """Set the start offsets that the request describes, all of them or none."""
    view = groups.call(request.group_id, _look, Access.PEEK if request.force else Access.SERVE)
    if not view.incarnation:
        raise GroupIdNotFound(group_id=request.group_id)
    chosen, notes = _chosen(cluster, doubts, request, view)
    targets, cut = _targets(cluster, request, view, chosen)
    told = (CUT.format(count=cut),) if cut else ()
    return call_action(groups, request, _alter(request, view, targets, (*told, *notes)))


def act(groups: Groups, request: Action[Any], transaction: Transaction[T]) -> T:
    """Run an action's transaction, as :func:`call_action`. Raises GroupIdNotFound if there is no such group; a forced
    action has not taken it, and wrote nothing."""
    if is_forced(request) and not groups.call(request.group_id, exists, Access.PEEK):
        raise GroupIdNotFound(group_id=request.group_id)
    return call_action(groups, request, transaction)


def done_before(groups: Groups, request: Action[Any]) -> Answer | None:
    """Returns the answer of the action if it was carried out before, without a request to the brokers; else None."""

    if not (request.execute and request.action_id):
        return None
    look = looking(lambda group: answer_of(group, request))
    return groups.call(request.group_id, look, Access.PEEK if _claims(request) else Access.SERVE)


def _once(request: Action[Any], transaction: Transaction[T]) -> Transaction[T]:
    def steps(group: ShareGroup) -> TransactionSteps[T]:
        if (before := answer_of(group, request)) is not None:
            return cast(T, before)
        if group.exists is isinstance(request, ImportGroup):
            error = GroupExists if group.exists else GroupIdNotFound
            raise error(group_id=request.group_id)
        check_seen(group, request)
        state = state_of(group, request)
        found: T = yield from transaction(group)
        answer: T = msgspec.structs.replace(found, state=state)
        if request.execute and request.action_id and group.exists:
            yield from ask(RememberAction(action_id=request.action_id, answer=answer))
        return answer

    return steps


def call_action(groups: Groups, request: Action[Any], transaction: Transaction[T]) -> T:
    """Run the transaction of an action once, on a group that exists, or for an import on one that does not. A forced
    action takes the group from a coordinator of another host if it is executed. If it is not executed, it reads a copy
    of such a group."""
    once: Transaction[T] = _once(request, transaction)
    if isinstance(request, ImportGroup) and not request.execute:
        return groups.call(request.group_id, once, Access.PEEK)
    if request.execute or not is_forced(request):
        return groups.call(request.group_id, once, Access.CLAIM if _claims(request) else Access.SERVE)
    try:
        return groups.call(request.group_id, once)
    except GroupTakenOver as error:
        # A copy has no sessions, so members of the other host do not prevent the dry run.
        answer: T = groups.call(request.group_id, once, Access.PEEK)
        note = TAKEN.format(owner=error.fields.get("owner"))
        return msgspec.structs.replace(answer, notes=(note, *answer.notes))


def is_forced(request: Action[Any]) -> bool:
    """Whether the action is forced; not every action can be."""
    return bool(getattr(request, "force", False))


def _claims(request: Action[Any]) -> bool:
    """Whether the action may take a group that this process does not serve: it is forced, or creates the group."""
    return is_forced(request) or isinstance(request, ImportGroup)


exists: Transaction[bool] = looking(lambda group: group.exists)
"""The transaction that returns whether the group exists."""


def _look(group: ShareGroup) -> TransactionSteps[ResetView]:
    yield from ()
    names = {topic_id: topic for topic, topic_id in group.topics.items()}
    return ResetView(
        incarnation=group.incarnation,
        topic_ids=group.topic_ids,
        read_committed=group.config.share_isolation_level == "read_committed",
        topics=dict(group.topics),
        past=past_ids(group),
        starts={
            TopicIdPartition(names[key.topic_id], *key): partition.start_offset
            for key, partition in sorted(group.partitions.items())
            if key.topic_id in names
        },
    )


def _chosen(
    cluster: KafkaCluster, doubts: TopicDoubts, request: AlterOffsets, view: ResetView
) -> tuple[list[TopicIdPartition], tuple[str, ...]]:
    """The partitions that the request names, including those that the group does not have yet. If the request names no
    topics: all of the group's topics that exist, and notes about those that do not.

    Raises:
        TopicNotAllowed: share.coordinator.source.topics does not allow a topic.
        UnknownTopic, UnknownPartition: the cluster has no such topic or partition.
        InvalidReset: the topic was deleted and created anew, and the group does not know that yet; or offsets are
            asked for, and none are named."""
    named = dict(request.topics)
    if request.to == "offsets":
        named = _named(request.offsets)
    if not named:
        return _existing(cluster, doubts, request, view)
    for topic in named:
        cluster.allowed.check_source(topic)
    found = cluster.topics(named)
    chosen: list[TopicIdPartition] = []
    for topic, partitions in named.items():
        if topic not in found:
            raise UnknownTopic(topic=topic, addresses=cluster.addresses)
        topic_id = id_of(found[topic], request.group_id, topic_ids=view.topic_ids)
        if view.topics.get(topic, topic_id) != topic_id:
            reason = f"topic {topic} was deleted and created anew; a query of the group has to join first"
            raise InvalidReset(what=request.to, reason=reason)
        count = found[topic].partitions
        for index in partitions or range(count):
            if not 0 <= index < count:
                raise UnknownPartition(topic=topic, partition=index, partitions=count)
            chosen.append(TopicIdPartition(topic, topic_id, index))
    return chosen, ()


def _existing(
    cluster: KafkaCluster, doubts: TopicDoubts, request: AlterOffsets, view: ResetView
) -> tuple[list[TopicIdPartition], tuple[str, ...]]:
    """The group's partitions of topics that the cluster has under the group's ids, and notes about the other topics."""
    names = {p.topic_id: p.topic for p in view.starts}
    looked = doubts.look(cluster, names, request.group_id, topic_ids=view.topic_ids, past=view.past)
    texts = {
        **dict.fromkeys(looked.remade, MADE_ANEW),
        **dict.fromkeys(looked.missing, DELETED),
        **dict.fromkeys(looked.in_doubt, NOT_SHOWN),
    }
    notes = tuple(
        texts[topic_id].format(topic=names[topic_id], count=sum(p.topic_id == topic_id for p in view.starts))
        for topic_id in sorted(texts, key=names.__getitem__)
    )
    return [p for p in view.starts if p.topic_id not in texts], notes


def _named(offsets: Mapping[str, Mapping[str, int]]) -> dict[str, tuple[int, ...]]:
    """The topics and partitions of these offsets. Raises InvalidReset if there are none, or not of each topic, or a
    partition is no number."""
    if not offsets or not all(offsets.values()):
        raise InvalidReset(what="offsets", reason="there are none, or a topic has none")
    for topic, of_topic in offsets.items():
        if wrong := [index for index in of_topic if _INDEX.fullmatch(index) is None]:
            raise InvalidReset(what="offsets", reason=f"{topic} has no partition {wrong[0][:20]!r}")
    return {topic: tuple(int(index) for index in of_topic) for topic, of_topic in offsets.items()}


def _targets(
    cluster: KafkaCluster, request: AlterOffsets, view: ResetView, chosen: list[TopicIdPartition]
) -> tuple[Starts, int]:
    """The new start offsets, within what the logs hold, and how many of those asked for are outside of that. Raises
    InvalidReset if the kind of reset is unknown, a shift has no start to begin from, or the brokers give no offsets."""
    where = [p.topic_partition for p in chosen]
    earliest = cluster.offsets(where, EARLIEST)
    latest = cluster.offsets(where, LATEST, read_committed=view.read_committed)
    if missing := [f"{p.topic}-{p.partition}" for p in chosen if p.topic_partition not in latest]:
        raise InvalidReset(what=request.to, reason=f"the brokers give no offsets of {', '.join(missing[:10])}")
    at = cluster.offsets(where, request.value, read_committed=view.read_committed) if request.to == "timestamp" else {}
    targets = {}
    cut = 0
    for p in chosen:
        low, high = earliest[p.topic_partition], latest[p.topic_partition]
        if request.to == "earliest":
            wanted = low
        elif request.to == "latest":
            wanted = high
        elif request.to == "timestamp":
            wanted = at.get(p.topic_partition, high)
        elif request.to == "offset":
            wanted = request.value
        elif request.to == "offsets":
            wanted = request.offsets[p.topic][str(p.partition)]
        elif request.to == "shift" and p in view.starts:
            wanted = view.starts[p] + request.value
        else:
            reason = "the group has no start offset to shift" if request.to == "shift" else "there is no such reset"
            raise InvalidReset(what=request.to, reason=f"{p.topic}-{p.partition}: {reason}")
        targets[p] = min(max(wanted, low), high)
        cut += targets[p] != wanted
    return targets, cut


def _alter(
    request: AlterOffsets, view: ResetView, targets: Starts, notes: tuple[str, ...]
) -> Transaction[OffsetChanges]:
    def transaction(group: ShareGroup) -> TransactionSteps[OffsetChanges]:
        if group.incarnation != view.incarnation:
            raise CoordinatorNotAvailable(group_id=request.group_id, reason="the group was created anew; ask again")
        known = {p: start for p, start in targets.items() if group.initialized(p.topic_id, p.partition)}
        reply = yield from ask(
            AlterStartOffsets(
                starts=tuple((p.topic_id, p.partition, start) for p, start in known.items()),
                execute=request.execute,
                force=request.force,
                by=request.by,
            )
        )
        new = {p: start for p, start in targets.items() if p not in known}
        if request.execute:
            yield from initialize(group, new)
        rows = tuple(
            AlteredOffsets(topic=p.topic, topic_id=p.topic_id, partition=p.partition, before=None, after=start)
            for p, start in new.items()
        )
        return OffsetChanges(
            executed=reply.executed, partitions=(*reply.partitions, *rows), notes=(*notes, *reply.notes)
        )

    return transaction


def delete_offsets(request: DeleteOffsets) -> Transaction[OffsetChanges]:
    """The transaction that deletes the share partitions of the topics."""

    def transaction(group: ShareGroup) -> TransactionSteps[OffsetChanges]:
        starts: list[tuple[str, int, None]] = []
        subscribers: set[str] = set()
        for topic in request.topics:
            keys = sorted(key for key in group.partitions if key.topic_id == group.topics.get(topic))
            if not keys:
                raise UnknownSharePartition(group_id=group.group_id, partition=f"topic {topic}")
            of_topic = {member.member_id for member in group.members.values() if Subscription.of(member).has(topic)}
            for member_id in group.sessions:
                if member_id in of_topic:
                    raise GroupSubscribedToTopic(group_id=group.group_id, topic=topic, member_id=member_id)
            subscribers |= of_topic
            starts += [(key.topic_id, key.partition, None) for key in keys]
        delete = AlterStartOffsets(
            starts=tuple(starts),
            execute=request.execute,
            force=True,
            drop_dead_letters=request.force,
            subscribers=frozenset(subscribers),
            by=request.by,
        )
        return (yield from ask(delete))

    return transaction


def alter_configs(groups: Groups, cluster: KafkaCluster, request: AlterGroupConfigs) -> Altered:
    """Check the configs, then set and unset them."""
    config, is_read = groups.call(request.group_id, _configs_after(request))
    name, created = config.errors_deadletterqueue_topic_name, ""
    is_named = bool(name) and DEAD_LETTER_TOPIC in request.set
    if is_named and not check_dead_letter_topic(cluster, config, is_read=is_read, creates=False):
        created = CREATED.format(topic=name)
        if request.execute:
            check_dead_letter_topic(cluster, config, is_read=is_read)
    return call_action(groups, request, _alter_configs(request, created))


def _texts(request: AlterGroupConfigs) -> dict[str, str]:
    return {**request.set, **dict.fromkeys(request.unset, "")}


def _configs_after(request: AlterGroupConfigs) -> Transaction[tuple[GroupConfig, bool]]:
    def look(group: ShareGroup) -> tuple[GroupConfig, bool]:
        if not group.exists:
            raise GroupIdNotFound(group_id=request.group_id)
        for key in request.unset:
            if key not in GROUP_KEYS and key not in group.configs:
                raise UnknownConfig(key=key, scope=GROUP_SCOPE, hint=hint_of_group(key))
        config = GroupConfig.parse(changed_configs(group.configs, _texts(request)))
        return config, reads_topic(group, config.errors_deadletterqueue_topic_name)

    return looking(look)


def _alter_configs(request: AlterGroupConfigs, created: str) -> Transaction[Altered]:
    def transaction(group: ShareGroup) -> TransactionSteps[Altered]:
        command = AlterConfigs(configs=_texts(request), drop_dead_letters=request.force)
        decide_configs(group, command, 0)  # a dry run is refused as the execution would be
        after = changed_configs(group.configs, command.configs)
        before = replaced_configs(group.configs, after)
        config = GroupConfig.parse(after)
        dropped = 0 if config.errors_deadletterqueue_topic_name else group.waiting_for_dead_letters
        notes = (*([NO_DEAD_LETTER.format(count=dropped)] if dropped else ()), *([created] if created else ()))
        effects = tuple(Effect(what=key, before=text, after=after.get(key, "")) for key, text in before.items())
        if request.execute:
            yield from ask(command)
        return Altered(executed=request.execute, effects=effects, notes=notes)

    return transaction
