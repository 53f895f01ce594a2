"""Where a group to import stands now: Kafka's own share groups and consumer groups, a checkpoint of Spark's Kafka
source, and a group in another state store.

Rule: a source is read only while nobody works there: a group with members is refused. What can't be seen (whether a
query runs on the checkpoint) shows when the position changes between the dry run and the execution."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient

from coordinator.admin.admin import Admin
from coordinator.config.resolved import CoordinatorConfig
from coordinator.kafka.librdkafka import new_client
from coordinator.protocol.admin_messages import GroupPosition, PartitionPosition, PositionRun
from coordinator.protocol.errors import GroupNotEmpty, InvalidImport, MembersNotKnown
from coordinator.service.brokers.cluster import EARLIEST, LATEST, KafkaCluster
from coordinator.service.stores.kafka.log_reader import LogReader
from coordinator.service.stores.kafka.state_topic import StateTopic
from coordinator.state_log.kafka_values import apply_update, decode_snapshot, decode_update
from coordinator.state_log.placement import state_partition_of
from coordinator.state_log.primitives import INT16
from coordinator.state_log.record_keys import ShareSnapshotKey, ShareUpdateKey, decode_key, group_of
from coordinator.state_log.record_values import ShareSnapshotValue, StateBatch
from sharegroup.cluster_options import kafka_config

STATE_TOPIC, GROUPS_TOPIC = "__share_group_state", "__consumer_offsets"
_MEMBER, _GROUP = 10, 11
"""Kafka's types of the records of a share group's members, and of its epoch."""
LOG_VERSION = "v1"
"""The version of the offset log that Spark 3 and 4 write."""
ANSWER_S = 30.0
"""Brokers have this many seconds to answer about a consumer group."""
_STATES = {0: "AVAILABLE", 1: "AVAILABLE", 2: "ACKNOWLEDGED", 4: "ARCHIVED"}
"""What becomes of Kafka's delivery states. ARCHIVING, 3, is refused: Kafka has still to write a dead letter."""
OF_PLANS = (
    "{count} record(s) of batches that queries did not complete there are delivered here: complete the last batches "
    "first (sharegroup.complete_run), and begin the queries with a new checkpointLocation here."
)
AGAIN = "Batch {number} began and was not committed: its records are delivered here once more."
Read = tuple[GroupPosition, tuple[str, ...]]
"""A position, and notes about it."""


class Sources:
    """The sources of an import into the group. ``conf``: as of ``settings``. ``topics``: only these; empty: all."""

    def __init__(self, group_id: str, conf: Mapping[str, str], topics: Iterable[str], timeout_ms: int) -> None:
        self._group_id, self._conf, self._topics = group_id, conf, frozenset(topics)
        self._cluster = KafkaCluster(conf["bootstrap.servers"], kafka_config(conf), timeout_ms)

    def __repr__(self) -> str:
        return f"<Sources {self._group_id}>"

    def share_group(self, native: str) -> Read:
        """The position of a share group of Kafka's own, out of the topics in which brokers keep it. Records whose lock
        has not ended are AVAILABLE. Raises InvalidImport: there is no such group, or it has members, or it changed
        while it was read."""
        epoch = self._epoch_without_members(native)
        states = self._native_states(native)
        if self._epoch_without_members(native) != epoch:
            raise self._refused(f"share group {native} had members while it was read: stop them, and try again.")
        names = self._names()
        found = []
        for (topic_id, index), state in sorted(states.items()):
            topic = names.get(topic_id)
            if topic is None or state.start_offset is None:
                continue
            runs = tuple(self._native_run(topic, index, batch) for batch in state.state_batches)
            at = PartitionPosition(topic=topic, topic_id=topic_id, partition=index, start=state.start_offset, runs=runs)
            found.append(at)
        return GroupPosition(partitions=tuple(found)), ()

    def consumer_group(self, consumers: str) -> Read:
        """The committed offsets of a consumer group. Raises InvalidImport: there is no such group, or it has members,
        or the brokers refuse."""
        client = new_client(AdminClient, {"log_level": "0", **kafka_config(self._conf)})
        wanted = ConsumerGroupTopicPartitions(consumers)
        try:
            described = client.describe_consumer_groups([consumers], request_timeout=ANSWER_S)[consumers].result()
            committed = client.list_consumer_group_offsets([wanted], request_timeout=ANSWER_S)[consumers].result()
        except KafkaException as error:
            raise self._refused(f"the brokers do not show consumer group {consumers}: {error.args[0].str()}.") from None
        if described.state not in (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD):
            members = len(described.members)
            raise self._refused(f"consumer group {consumers} has {members} member(s): stop them, and try again.")
        offsets = {(each.topic, each.partition): each.offset for each in committed.topic_partitions}
        if not offsets:
            raise self._refused(f"consumer group {consumers} has no committed offset.")
        return self._starts({at: offset for at, offset in offsets.items() if offset >= 0}), ()

    def checkpoint(self, path: str) -> Read:
        """The start offsets of the first batch that a query with Spark's Kafka source has not committed. Raises
        InvalidImport: the folder is no checkpoint, or has no committed batch, or not one Kafka source."""
        root = Path(path.removeprefix("file://").removeprefix("file:"))
        begun, committed = (
            {int(file.name) for file in root.glob(f"{log}/*") if file.name.isdecimal()}
            for log in ("offsets", "commits")
        )
        if not (both := begun & committed):
            reason = f"{path} has no batch in offsets/ that is in commits/ too: name a checkpointLocation on this host."
            raise self._refused(reason)
        lines = (root / "offsets" / str(max(both))).read_text("utf-8").splitlines()
        if lines[:1] != [LOG_VERSION]:
            raise self._refused(
                f"{path}/offsets is of another version than {LOG_VERSION}: begin a query at startingOffsets."
            )
        sources = [each for each in map(_kafka_offsets, lines[2:]) if each and self._topics.issubset(each)]
        if len(sources) != 1:
            names = "; ".join(", ".join(sorted(each)) for each in sources) or "none"
            reason = f"one of the query's sources must be Kafka's, with the topics of --topic; {path} has: {names}."
            raise self._refused(reason)
        offsets = {(topic, int(p)): at for topic, of in sources[0].items() for p, at in of.items()}
        later = tuple(AGAIN.format(number=number) for number in sorted(begun) if number > max(both))
        return self._starts(offsets), later

    def store(self, name: str) -> Read:
        """The position of the group of the same name in another state store, with its configs.

        Raises:
            GroupIdNotFound: that store has no such group.
            GroupNotEmpty, MembersNotKnown: it has members there, or may have.
            InvalidImport: records wait there for their dead letters."""
        conf = {key: value for key, value in self._conf.items() if not key.startswith("share.coordinator.")}
        with Admin({**conf, "share.state.store": name}) as admin:
            found = admin.position(self._group_id)
        if found.members:
            raise GroupNotEmpty(group_id=self._group_id, members=found.members, force=".")
        if found.unheard and found.wait_ms and not found.read_from:  # nobody serves a store that is read
            how = {"members": found.unheard, "wait_ms": found.wait_ms, "force": ""}
            raise MembersNotKnown(group_id=self._group_id, **how)
        if found.archiving:
            reason = f"{found.archiving:,} record(s) wait there for their dead letters: let the coordinator write them."
            raise self._refused(reason)
        kept = tuple(each for each in found.partitions if each.topic in (self._topics or {each.topic}))
        notes = (OF_PLANS.format(count=f"{found.of_plans:,}"),) if found.of_plans else ()
        return GroupPosition(partitions=kept, configs=found.configs), notes

    def _refused(self, reason: str) -> InvalidImport:
        return InvalidImport(group_id=self._group_id, reason=reason)

    def _starts(self, offsets: Mapping[tuple[str, int], int]) -> GroupPosition:
        return GroupPosition(
            partitions=tuple(
                PartitionPosition(topic=topic, partition=index, start=offset)
                for (topic, index), offset in sorted(offsets.items())
                if topic in (self._topics or {topic})
            )
        )

    # --- a native share group

    def _epoch_without_members(self, native: str) -> bytes:
        """The record of the group's epoch, which each join and leave raises."""
        epoch: bytes | None = None
        members: set[bytes] = set()
        partitions = self._partitions(GROUPS_TOPIC)
        where = [state_partition_of(native, partitions)] if partitions else []
        for key, value in self._records(GROUPS_TOPIC, where, native):
            (kind,) = INT16.unpack_from(key)
            if kind == _GROUP:
                epoch = value
            elif kind == _MEMBER:
                members.discard(key) if value is None else members.add(key)
        if epoch is None:
            raise self._refused(f"Kafka has no share group {native}.")
        if members:
            reason = f"share group {native} has {len(members)} member(s): stop them, and wait until it is Empty"
            raise self._refused(f"{reason} (kafka-share-groups.sh --describe --state).")
        return epoch

    def _native_states(self, native: str) -> dict[tuple[str, int], ShareSnapshotValue]:
        states: dict[tuple[str, int], ShareSnapshotValue] = {}
        for key, value in self._records(STATE_TOPIC, range(self._partitions(STATE_TOPIC)), native):
            decoded = decode_key(key)
            if not isinstance(decoded, ShareSnapshotKey | ShareUpdateKey):
                continue
            at = (decoded.topic_id, decoded.partition)
            if value is None:
                states.pop(at, None)
            elif isinstance(decoded, ShareSnapshotKey):
                states[at] = decode_snapshot(value, native)
            elif at in states:
                states[at] = apply_update(states[at], decode_update(value, native))
        return states

    def _native_run(self, topic: str, index: int, batch: StateBatch) -> PositionRun:
        if batch.delivery_state not in _STATES:
            reason = f"{topic}-{index} has records whose dead letters Kafka has not written yet: wait, and try again."
            raise self._refused(reason)
        return PositionRun(batch.first_offset, batch.last_offset, _STATES[batch.delivery_state], batch.delivery_count)

    def _names(self) -> dict[str, str]:
        """The topics of the cluster, or those of --topic, by topic id."""
        wanted = self._topics or {name for name in self._cluster.topic_names() if not name.startswith("__")}
        return {info.topic_id: name for name, info in self._cluster.topics(wanted).items()}

    def _partitions(self, topic: str) -> int:
        found = self._cluster.topics([topic]).get(topic)
        return 0 if found is None else found.partitions

    def _records(self, topic: str, partitions: Iterable[int], group_id: str) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield key and value of the group's records in these partitions, each in order, up to their present ends."""
        log = StateTopic.of(self._cluster, kafka_config(self._conf), CoordinatorConfig.parse({}))
        at = [(topic, index) for index in partitions]
        earliest, ends = self._cluster.offsets(at, EARLIEST), self._cluster.offsets(at, LATEST)
        for where, end in ends.items():
            if earliest.get(where, 0) == end:
                continue
            with LogReader(dataclasses.replace(log, name=topic), where[1], committed=False) as reader:
                for message in reader.read_to(end):
                    key = message.key()
                    if key is not None and group_of(key) == group_id:
                        yield key, message.value()


def _kafka_offsets(line: str) -> dict[str, dict[str, int]]:
    """The offsets that Spark's Kafka source has written in a line of the log; empty for a line of another kind."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    is_kafkas = isinstance(found, dict) and all(
        isinstance(of, dict) and all(p.isdecimal() and isinstance(at, int) for p, at in of.items())
        for of in found.values()
    )
    return found if is_kafkas else {}
