"""The owners of a group in their order, as its log has them."""

from __future__ import annotations

from typing import NamedTuple

from coordinator.service.stores.kafka.log_reader import LogReader
from coordinator.service.stores.kafka.state_topic import STATE_TOPIC
from coordinator.state_log.owner_record import decode_owner
from coordinator.state_log.placement import PLACEMENT_KEY, state_partition_of
from coordinator.state_log.record_keys import GroupOwnerKey, decode_key
from tests.support.kafka_broker import KafkaBroker
from tests.support.state_topics import state_topic

PARTITIONS = 50
"""The state topic has as many, by default."""


class Tenure(NamedTuple):
    """A process that loaded the group as its owner. ``released``: it gave the group up."""

    tenure: str
    pid: int
    began_ms: int
    released: bool


def tenures(broker: KafkaBroker, group_id: str) -> list[Tenure]:
    """The owners of the group, with those alone that pruning has left."""
    found: dict[str, Tenure] = {}
    topic = state_topic(broker, STATE_TOPIC, PARTITIONS)
    with LogReader(topic, state_partition_of(group_id, PARTITIONS)) as reader:
        for message in reader.read_to(reader.end()):
            key = message.key()
            if key != PLACEMENT_KEY and decode_key(key) == GroupOwnerKey(group_id):
                owner = decode_owner(message.value() or b"", group_id)
                began_ms = found[owner.tenure].began_ms if owner.tenure in found else message.timestamp()[1]
                found[owner.tenure] = Tenure(owner.tenure, owner.pid, began_ms, owner.released)
    return list(found.values())
