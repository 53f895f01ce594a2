"""The questions that ``sharegroup check`` asks of the cluster and the state store, as a query, its coordinator and its
executors will ask them.

Rule: each question uses the function that a query uses. Nothing is created, and no group is taken: the brokers are only
asked whether a topic may be created, and the check fences a transactional id of its own."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from filelock import FileLock, Timeout

from coordinator.admin.admin import Admin
from coordinator.client.client import CoordinatorClient
from coordinator.client.endpoints import Endpoints
from coordinator.client.group_options import GroupOptions
from coordinator.client.on_demand import OnDemand, runtime_dir, store_of
from coordinator.config.resolved import CoordinatorConfig, GroupConfig, changed_configs
from coordinator.protocol import errors
from coordinator.protocol.messages import DescribeGroup, GroupDescription
from coordinator.protocol.values import TopicAndPartition
from coordinator.protocol.wire import LaunchSettings
from coordinator.service.brokers.cluster import EARLIEST, KafkaCluster
from coordinator.service.brokers.leaders import NO_LEADER, by_leader
from coordinator.service.brokers.subscription import starting_offsets
from coordinator.service.dead_letters.topic_check import check_dead_letter_topic
from coordinator.service.handlers.read_only import topic_to_read
from coordinator.service.hosts.topics import TO_ANSWER, TO_ASK, lacking
from coordinator.service.process.clock import Clock
from coordinator.service.stores.kafka.group_list import groups_in
from coordinator.service.stores.kafka.group_writer import GroupWriter
from coordinator.service.stores.kafka.ownership import installation_id
from coordinator.service.stores.kafka.state_topic import StateTopic
from coordinator.service.stores.sqlite_store import check_state_file, owner_of
from coordinator.service.stores.store import StoreRefused
from share_source.driver.query_lines import reset_command
from share_source.options import SourceOptions

LEADER_TIMEOUT_MS = 5_000
"""A leader that returns no offsets within this many milliseconds counts as unreachable. Leaders are asked one by one,
while a person waits."""
CONNECT_S = 3.0
"""A token endpoint must accept a connection within this many seconds."""
NAMED = 5
"""A line names up to this many partitions."""
NO_GROUP_ID = "\tcheck"
"""The suffix of the transactional id that is fenced. No group id has a tab, so no group's coordinator is fenced."""


class LeaderNotReachable(errors.BrokerNotReachable):
    """The leader of {partitions} can't be reached from this host: {reason}. Records are read from a partition's leader,
    at the address that it advertises: correct advertised.listeners of the broker, or the name resolution and the
    network of this host and of the executors."""


class TokenEndpointNotReachable(errors.BrokerNotReachable):
    """The token endpoint {address} (kafka.sasl.oauthbearer.token.endpoint.url) can't be reached from this host:
    {reason}. Correct the URL, or this host's name resolution and network."""


class Note(str):
    """A line about something that stops no query, but that a person should know."""

    __slots__ = ()
    result = "note"


def token_endpoint(options: GroupOptions) -> Iterator[str]:
    """Check that the endpoint of OAuth tokens, if the options name one, accepts connections. Raises
    TokenEndpointNotReachable otherwise."""
    url = options.kafka_config.get("sasl.oauthbearer.token.endpoint.url", "").strip()
    if not url:
        return
    parts = urlsplit(url)
    address = host = parts.hostname or ""
    try:
        port = parts.port or (80 if parts.scheme == "http" else 443)
        address = f"{host}:{port}"
        socket.create_connection((host, port), timeout=CONNECT_S).close()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TokenEndpointNotReachable(address=address, reason=reason, timeout_ms=int(CONNECT_S * 1000)) from None
    yield f"the token endpoint {address} takes connections"


class ClusterQuestions:
    """The questions of one side's options. ``metadata``: the cluster's, as cluster_metadata returns it."""

    def __init__(self, options: GroupOptions, metadata: Any) -> None:
        self._options, self._metadata = options, metadata
        self._config = CoordinatorConfig.parse(options.coordinator_configs)
        self._cluster = KafkaCluster(
            options.bootstrap_servers, options.kafka_config, self._config.share_coordinator_broker_timeout_ms
        )
        self._where: dict[str, Any] = {
            "bootstrap_servers": options.bootstrap_servers,
            "kafka_config": dict(options.kafka_config),
            "cluster_id": str(metadata.cluster_id or options.bootstrap_servers),
            "configs": dict(options.coordinator_configs),
        }
        self._settings = LaunchSettings(state_store=self._config.share_state_store, **self._where)

    # --- topics

    def leaders(self, partitions: list[TopicAndPartition]) -> Iterator[str]:
        """Check that each leader of the partitions answers at its advertised address. Raises LeaderNotReachable if one
        does not answer, or if a partition has no leader."""
        addresses = []
        for leader, led in sorted(by_leader(self._metadata, partitions).items()):
            if leader == NO_LEADER:
                raise LeaderNotReachable(partitions=_named(led), reason="the cluster names no leader at present")
            broker = self._metadata.brokers[leader]
            address = f"{broker.host}:{broker.port}"
            asking = KafkaCluster(self._options.bootstrap_servers, self._options.kafka_config, LEADER_TIMEOUT_MS)
            try:
                asking.offsets(led, EARLIEST)
            except errors.BrokerNotReachable as error:
                reason = f"broker {leader} advertises {address} ({error.fields['reason']})"
                raise LeaderNotReachable(partitions=_named(led), reason=reason) from None
            addresses.append(address)
        if addresses:
            yield f"the leaders of {len(partitions)} partition(s) answer at {', '.join(addresses)}"

    def starting_offsets(self, options: SourceOptions, partitions: list[TopicAndPartition]) -> Iterator[str]:
        """Tell where the group begins. For partitions that the group has not begun, startingOffsets is resolved as the
        coordinator does it. Raises InvalidStartingOffsets if startingOffsets lacks such a partition."""
        text = options.starting_offsets or ""
        if not text or not partitions:
            return
        try:
            begun = {each.topic for each in self.group.partitions} if self.group is not None else set()
        except errors.NotAllowed:
            yield Note("where the group stands is not known here: the token has no right read")
            return
        new = [where for where in partitions if where[0] not in begun]
        if not new:
            yield Note(
                f"startingOffsets={text} has no effect: the group has begun all of these partitions, and goes on where "
                f"it is. To read again: {reset_command(options.bootstrap_servers, options.group_id)}"
            )
        if not new or not text.startswith("{"):
            return
        named = json.loads(text)
        for where, at in starting_offsets(self._cluster, text, new, Clock().now_ms(), read_committed=False).items():
            wanted = named[where[0]][str(where[1])]
            if wanted >= 0 and wanted != at:
                yield Note(
                    f"startingOffsets names offset {wanted} of {where[0]}-{where[1]}, and the log has none there: the "
                    f"group begins at {at}"
                )
        yield "startingOffsets names every partition that the group has not begun"

    def dead_letters(self) -> Iterator[str]:
        """Whether the dead letter topic may be written, under these options and the configs that the group keeps.

        Raises:
            ConfigConflict: the options do not go with the group's configs.
            DeadLetterTopicMissing, DeadLetterTopicNotAuthorized, TopicNotWritten: the topic can't be written."""
        if self._config.share_coordinator_endpoint:  # those have a principal of their own
            return
        kept = dict(self.group.configs) if self.group is not None else {}
        config = GroupConfig.parse(changed_configs(kept, self._options.group_configs))
        if topic := config.errors_deadletterqueue_topic_name:
            exists = check_dead_letter_topic(self._cluster, config, is_read=False, creates=False)
            yield f"dead letter topic {topic} {'exists, and may be written' if exists else 'may be created'}"

    # --- the state

    @cached_property
    def group(self) -> GroupDescription | None:
        """The group as its coordinator or the state store describes it; None: it does not exist yet.

        Raises:
            NotAllowed: the query's token lacks the right to read.
            ShareGroupError: neither can be asked."""
        options = self._options
        if not self._config.share_coordinator_endpoint:
            with Admin({**options.kafka_config, **options.coordinator_configs}) as admin:
                found = admin.describe_groups([options.group_id])[options.group_id]
            return None if found.state == "DEAD" else found
        client = CoordinatorClient(Endpoints.of(options.coordinator_configs), retry_timeout_s=CONNECT_S)
        with contextlib.closing(client), contextlib.suppress(errors.GroupIdNotFound):
            return client.ask(DescribeGroup(group_id=options.group_id), options.group_id)
        return None

    def state(self) -> Iterator[str]:
        """Whether a coordinator on demand can keep the group's state.

        Raises:
            StateTopicUnfit, StateTopicNotAuthorized, TransactionsMissing: the cluster does not let it.
            UnsafeDirectory, UnusableFile, StateStoreInUse, StateStoreTooNew, StateStoreTooOld, StateStoreUnreadable:
                the file can't be used."""
        where = f"a coordinator starts on demand ({runtime_dir()})"
        if self._config.share_state_store == "kafka":
            try:
                there = self._state_topic()
            except errors.StateTopicUnfit:  # as the quickstart's, a coordinator may run that keeps the state in a file
                if not self._runs_here("kafka"):
                    raise
                yield f"a coordinator runs on this host ({runtime_dir()}), and keeps the state in a file"
                return
            except errors.StateTopicNotAuthorized as denied:
                if self.group is None or self.group.read_from:
                    raise
                there = Note(
                    f"may not {denied.fields['what']} ({denied.fields['topic']}): another host owns its groups"
                )
            yield type(there)(f"{where}; {there}")
            yield from self._owner()
            yield from self._other_hosts()
            return
        store = store_of(self._config.share_state_store, self._settings.cluster_id)
        if not self._runs_here(store):
            _check_file(Path(store.removeprefix("sqlite:")))
        yield f"{where}; its state is in {store}"

    def _state_topic(self) -> str:
        topic = StateTopic.of(self._cluster, self._options.kafka_config, self._config)
        exists = topic.look()
        if lacking := self._cluster.lacking(topic.name, "READ", "WRITE"):
            raise topic.denied(f"{lacking[0].lower()} it")
        writer = GroupWriter(topic, 0, f"{self._options.group_id}{NO_GROUP_ID}")
        try:
            writer.fence()
        except StoreRefused as refused:
            raise errors.CoordinatorNotAvailable(group_id=self._options.group_id, reason=str(refused)) from None
        finally:
            writer.close()
        return (
            f"the state topic {topic.name} {'exists' if exists else 'is missing, and the first coordinator creates it'}"
        )

    def _owner(self) -> Iterator[str]:
        """Tell which other host owns the group, if any.

        Raises:
            GroupOfAnotherVersion: this version of sharegroup can't ask the owner's version.
            CoordinatorNotAvailable: the owner can't be asked now."""
        group_id = self._options.group_id
        topic = topic_to_read(self._settings, self._config, self._cluster).topic
        owner = None if topic is None else groups_in(topic, [topic.partition_of(group_id)]).get(group_id)
        if owner is None or owner.released or owner.installation_id == installation_id(runtime_dir()):
            return
        if not owner.answers:
            yield Note(
                f"the group was served last by {owner}, which can't be asked over Kafka. If it still runs, a query "
                "here takes the group over, and the queries there end: upgrade sharegroup there, or let all name one "
                "share.coordinator.endpoint"
            )
        elif self.group is not None and self.group.coordinator:
            yield f"{owner} owns the group; this host asks it over Kafka"
        else:
            yield f"{owner} owned the group, and does not answer: the first query or ShareConsumer takes the group"

    def _other_hosts(self) -> Iterator[str]:
        topic = StateTopic.of(self._cluster, self._options.kafka_config, self._config)
        asked = {"ask owners on other hosts": TO_ASK, "answer other hosts": TO_ANSWER}
        is_whole = True
        for what, needed in asked.items():
            if denied := lacking(topic, needed):
                is_whole, named = False, ", ".join(f"{needed[name].title()} on {name}" for name in denied)
                yield Note(f"this host can't {what}, as one alone need not: its principal lacks {named}")
        if is_whole:
            yield "this host may ask owners on other hosts, and answer them"

    def _runs_here(self, store: str) -> bool:
        return OnDemand(state_store=store, **self._where).is_running()


def _check_file(path: Path) -> None:
    """Check that a coordinator could own this state file. Creates nothing. Raises as :meth:`ClusterQuestions.state`."""
    folder = next((each for each in path.parents if each.exists()), path)
    reason = "it is a folder; name a file in it" if path.is_dir() else ""
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        reason = f"{folder} is no folder in which this user can make files"
    if reason:
        raise errors.UnusableFile(key="share.state.store", path=f"sqlite:{path}", reason=reason)
    if not path.exists():
        return
    check_state_file(path)
    with contextlib.suppress(FileNotFoundError):
        if Path(f"{path}.lock").exists():
            try:
                with FileLock(f"{path}.lock", timeout=0):
                    pass
            except Timeout:
                raise errors.StateStoreInUse(path=path, owner=owner_of(path)) from None


def _named(partitions: list[TopicAndPartition]) -> str:
    names = [f"{topic}-{partition}" for topic, partition in partitions]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"
