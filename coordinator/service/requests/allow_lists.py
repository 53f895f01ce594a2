"""The allow lists of a call's token: which groups it may use, and which topics it may name for them.

The lists limit what a request names, and what the group may read while it has the request's dead letter topic: other
members may have wider lists. A stored dead letter topic was named by a token that was allowed to, or that had no lists
then; the coordinator's keys limit it as well."""

from __future__ import annotations

from typing import Any

import msgspec

from coordinator.config.group_keys import DEAD_LETTER_SOURCES, DEAD_LETTER_TOPIC
from coordinator.protocol.admin_messages import (
    AlterGroupConfigs,
    AlterOffsets,
    DecideRecords,
    DeleteOffsets,
    GroupsListed,
    ImportGroup,
    ListGroups,
)
from coordinator.protocol.messages import GroupRequest, JoinGroup, Message, OpenSink, Request
from coordinator.protocol.rights import Caller
from coordinator.protocol.topic_names import EVERYTHING


def check_allowed(caller: Caller, request: Request[Any]) -> None:
    """Check that the caller may use the group of the request, and name its topics. Raises GroupNotAllowed or
    TopicNotAllowed if it may not."""
    if not caller.is_bound:
        return
    if isinstance(request, GroupRequest):
        caller.check_group(request.group_id)
    elif isinstance(request, ListGroups):
        for group_id in filter(None, (*request.group_ids, request.group_id)):
            caller.check_group(group_id)
    for topic in _sources(request):
        caller.topics.check_source(topic)
    if isinstance(request, JoinGroup) and request.topic_pattern is not None:
        caller.topics.check_pattern(request.topic_pattern)
    configs = _configs(request)
    if topic := configs.get(DEAD_LETTER_TOPIC, "").strip():
        caller.topics.check_dead_letters(topic)
    if DEAD_LETTER_SOURCES in configs or DEAD_LETTER_SOURCES in getattr(request, "unset", ()):
        caller.topics.check_pattern(configs.get(DEAD_LETTER_SOURCES, "").strip() or EVERYTHING)


def limited(caller: Caller, request: Request[Any]) -> Request[Any]:
    """Returns the request with the limit of its dead letter topic: the topics that the caller may read."""
    if caller.topics.source == EVERYTHING or not _configs(request).get(DEAD_LETTER_TOPIC, "").strip():
        return request
    field = "set" if isinstance(request, AlterGroupConfigs) else "configs"
    configs = {**_configs(request), DEAD_LETTER_SOURCES: caller.topics.source}
    return msgspec.structs.replace(request, **{field: configs})


def shown_to(caller: Caller, answer: Message) -> Message:
    """The answer without groups that the caller may not use."""
    if not isinstance(answer, GroupsListed) or not caller.is_bound:
        return answer
    groups = tuple(group for group in answer.groups if caller.may_use(group.group_id))
    return msgspec.structs.replace(answer, groups=groups)


def _sources(request: Request[Any]) -> list[str]:
    if isinstance(request, JoinGroup):
        return [*request.topics, *(request.assign or {})]
    if isinstance(request, AlterOffsets):
        return [*request.topics, *request.offsets]
    if isinstance(request, DeleteOffsets):
        return [*request.topics]
    if isinstance(request, ImportGroup):
        return [each.topic for each in request.partitions]
    return [request.topic] if isinstance(request, DecideRecords) else []


def _configs(request: Request[Any]) -> dict[str, str]:
    if isinstance(request, (JoinGroup, OpenSink, ImportGroup)):
        return request.configs
    return request.set if isinstance(request, AlterGroupConfigs) else {}
