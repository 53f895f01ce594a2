"""Named errors: one base, one class for each thing that can go wrong, with Kafka's error code where Kafka has one.

The class docstring is the message; ``{fields}`` are filled from the keyword arguments. An error travels over RPC as
its class name and fields, and is raised again as the same class on the other side.
"""

from __future__ import annotations

from typing import Any, ClassVar


class ShareGroupError(Exception):
    """Something went wrong in sharegroup."""

    kafka_error: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    retriable: ClassVar[bool] = False

    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        template = " ".join((type(self).__doc__ or "").split())
        super().__init__(template.format_map(fields))

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.fields))


def _rebuild(cls: type[ShareGroupError], fields: dict[str, Any]) -> ShareGroupError:
    return cls(**fields)


def error_from_wire(name: str, fields: dict[str, Any], text: str = "") -> ShareGroupError:
    """Rebuild the error that the other side raised; one that this side has no class for becomes RemoteError."""
    known = by_name().get(name)
    return RemoteError(name=name, text=text or fields) if known is None else known(**fields)


def by_name() -> dict[str, type[ShareGroupError]]:
    """All error classes by class name."""
    found: dict[str, type[ShareGroupError]] = {}
    todo = [ShareGroupError]
    while todo:
        cls = todo.pop()
        found[cls.__name__] = cls
        todo.extend(cls.__subclasses__())
    return found


class RemoteError(ShareGroupError):
    """The coordinator answered {name}: {text}"""


# --- the state machine


class InvalidRecordState(ShareGroupError):
    """{what}: the record state is invalid. The acknowledgement of delivery could not be completed."""

    kafka_error = "INVALID_RECORD_STATE"


class InvalidRequest(ShareGroupError):
    """{what}"""

    kafka_error = "INVALID_REQUEST"


# --- members


class UnknownMemberId(ShareGroupError):
    """Member {member_id} of share group {group_id} has no live session; join again, naming the member epoch."""

    kafka_error = "UNKNOWN_MEMBER_ID"


class FencedMemberEpoch(ShareGroupError):
    """Member {member_id} of share group {group_id} is fenced: another process joined with the same checkpoint
    (its member epoch is {current_epoch}, ours was {member_epoch}). Two queries can't run on one checkpoint, nor on a
    copy of it: stop one of them, or start it with a new checkpointLocation."""

    kafka_error = "FENCED_MEMBER_EPOCH"


class GroupIdNotFound(ShareGroupError):
    """Share group {group_id} does not exist in this coordinator's state store."""

    kafka_error = "GROUP_ID_NOT_FOUND"


# --- plans


class StalePlan(ShareGroupError):
    """Plan {number} of member {member_id} is refused: {reason}. The checkpoint was rolled back or copied from an older
    state of this query; its records were delivered and completed since, or belong to a newer batch. Start the query
    with a new checkpointLocation: records not yet acknowledged stay with the group."""

    kafka_error = "INVALID_RECORD_STATE"


class ForeignPlan(ShareGroupError):
    """Plan {number} does not belong to this incarnation of share group {group_id} (now {incarnation}): the group, or
    its state store, was deleted and created anew, or the checkpoint belongs to another group. Start the query with a
    new checkpointLocation."""

    kafka_error = "INVALID_REQUEST"


class DataLoss(ShareGroupError):
    """Share group {group_id} lost {count} record(s) before they were read: {ranges}. They were removed from the log
    (retention, delete-records, or the topic was deleted) and are now archived. Restart the query to go on without them,
    or set failOnDataLoss=false to never fail for this."""

    kafka_error = "OFFSET_OUT_OF_RANGE"


# --- the service


class CoordinatorNotAvailable(ShareGroupError):
    """The coordinator of share group {group_id} is not available: {reason}"""

    kafka_error = "COORDINATOR_NOT_AVAILABLE"
    retriable = True


class NotCoordinator(ShareGroupError):
    """This process does not serve {what}: another coordinator of the fleet does. Ask any of them which one."""

    kafka_error = "NOT_COORDINATOR"
    retriable = True


class GroupTakenOver(ShareGroupError):
    """Share group {group_id} was taken over by {owner}, where a newer query of the group has started; this one ends,
    and does not take it back by itself. Its records are safe: they are delivered there. Run all queries of the group
    on one host, or let them share a standalone coordinator: name it in share.coordinator.endpoint."""

    kafka_error = "FENCED_MEMBER_EPOCH"


class InternalError(ShareGroupError):
    """The coordinator failed on {what}: {reason}. Nothing was changed; its log says more. This is a bug."""


class NotAuthorized(ShareGroupError):
    """The coordinator refused the call: its token is missing or wrong."""

    kafka_error = "CLUSTER_AUTHORIZATION_FAILED"


class CoordinatorNotStarted(ShareGroupError):
    """A coordinator for {cluster} could not be started: {reason}. Its log: {log}"""

    kafka_error = "COORDINATOR_NOT_AVAILABLE"


class CoordinatorVersionMismatch(ShareGroupError):
    """The coordinator that runs for this cluster (process {pid}) is of version {theirs}, this program of version
    {ours}, and they don't understand each other. Stop the queries of the other version; the coordinator leaves by
    itself then, or end process {pid}."""


class UnsafeDirectory(ShareGroupError):
    """{path} is not safe for files that hold secrets: {reason}. Name another directory in {variable}."""


# --- the state store


class StateStoreInUse(ShareGroupError):
    """State store {path} is in use by another coordinator (process {owner}). One at a time owns it: stop that one, or
    let share.state.store name another file."""

    kafka_error = "COORDINATOR_NOT_AVAILABLE"


class StateStoreTooNew(ShareGroupError):
    """State store {path} was written by a newer version of sharegroup: its schema is {found}, this version knows up to
    {known}. Nothing was changed. Use the newer version, or let share.state.store name another file."""


class StateStoreUnreadable(ShareGroupError):
    """State store {path} can't be read: {reason}. Nothing was changed. Restore the file from a copy, or let
    share.state.store name another one: its groups begin anew then."""


class StateRecordUnreadable(ShareGroupError):
    """Record {sequence} of share group {group_id} in state store {path} can't be read: {reason}. It was not skipped, so
    the group is not served; others are. Restore the file from a copy, or run the version that wrote it."""


# --- the Kafka cluster


class BrokerNotReachable(ShareGroupError):
    """No Kafka broker of {addresses} could be reached within {timeout_ms} ms ({reason}). Check
    kafka.bootstrap.servers, the network and the security settings."""

    kafka_error = "NETWORK_EXCEPTION"


class BrokerRefused(ShareGroupError):
    """The Kafka cluster at {addresses} refused to {what}: {reason}"""


class InvalidKafkaConfig(ShareGroupError):
    """Kafka client configuration {key} is not accepted by librdkafka, which this project reads Kafka with: its name or
    its value is wrong. Java's client and librdkafka differ in some names (ssl.ca.location, not ssl.truststore.*)."""

    kafka_error = "INVALID_CONFIG"


class UnknownTopic(ShareGroupError):
    """Topic {topic} does not exist in the Kafka cluster at {addresses}."""

    kafka_error = "UNKNOWN_TOPIC_OR_PARTITION"


class UnknownPartition(ShareGroupError):
    """Topic {topic} has no partition {partition} (it has {partitions}): correct the option assign."""

    kafka_error = "UNKNOWN_TOPIC_OR_PARTITION"


class TopicIdsMissing(ShareGroupError):
    """Share group {group_id} was created on a cluster that gives topic ids, and this one gives none for {topic}. Is it
    the same cluster? Without ids a topic that was deleted and created anew can't be told from the old one."""

    kafka_error = "UNKNOWN_TOPIC_ID"


class InvalidStartingOffsets(ShareGroupError):
    """startingOffsets={value} can't be used: {reason}. It is earliest, latest, or for each partition an offset (-2 is
    the earliest, -1 the latest), as {{"orders": {{"0": 23, "1": -2}}}}."""

    kafka_error = "INVALID_REQUEST"


# --- configuration


class UnknownConfig(ShareGroupError):
    """{key} is not a {scope} key; the nearest known one is {nearest}."""

    kafka_error = "INVALID_CONFIG"


class ConfigTypeMismatch(ShareGroupError):
    """{key}={value} is not {expected}."""

    kafka_error = "INVALID_CONFIG"


class ConfigOutOfBounds(ShareGroupError):
    """{key}={value} is out of bounds: it must be {bounds}."""

    kafka_error = "INVALID_CONFIG"


class ConfigNotAvailable(ShareGroupError):
    """{key}={value} can't be set yet: it belongs to {room}, which this version has not built. Remove it; what holds now
    is {default}."""

    kafka_error = "INVALID_CONFIG"


class ConfigConflict(ShareGroupError):
    """{key}={value} does not go with {other}={other_value}: {rule}."""

    kafka_error = "INVALID_CONFIG"
