"""A query's membership: its session with the coordinator, as its options say."""

from __future__ import annotations

from coordinator.client.client import CoordinatorClient
from coordinator.client.session import MemberSession
from coordinator.config.resolved import CoordinatorConfig
from share_source.options import SourceOptions


def open_session(options: SourceOptions, member_id: str) -> MemberSession:
    """Find or start the coordinator, and join. What is wrong with the group's configs or the subscription is raised
    here, by name."""
    config = CoordinatorConfig.parse(options.coordinator_configs)
    client = CoordinatorClient.connect(
        options.bootstrap_servers,
        options.kafka_config,
        options.state_store,
        config.share_coordinator_endpoint or None,
        configs=options.coordinator_configs,
    )
    return MemberSession(
        client,
        options.group_id,
        member_id,
        topics=options.topics,
        topic_pattern=options.topic_pattern,
        assign=options.assign,
        configs=options.group_configs,
        starting_offsets=options.starting_offsets,
    )
