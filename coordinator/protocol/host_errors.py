"""Named errors of requests between the hosts of a share group (:mod:`coordinator.protocol.errors`)."""

from __future__ import annotations

from typing import Any

from coordinator.protocol.errors import CoordinatorNotAvailable, NotCoordinator, ShareGroupError


class GroupOfAnotherVersion(ShareGroupError):
    """Share group {group_id} is served by {owner}, which runs a version of sharegroup to which this version can't send
    requests. The group was not taken over. Run the same version on both hosts, or stop the group's queries on that host
    first."""


class OwnedElsewhere(NotCoordinator, kafka_error="NOT_COORDINATOR", retriable=True):
    """This process does not serve share group {group_id}: {owner} serves the group, and gets the requests over
    Kafka."""

    record: Any = None
    """The owner, as the group's log names it; None at a client."""

    @classmethod
    def by(cls, group_id: str, owner: object) -> OwnedElsewhere:
        error = cls(group_id=group_id, owner=str(owner))
        error.record = owner
        return error


class RequestTooLate(ShareGroupError, kafka_error="REQUEST_TIMED_OUT", retriable=True):
    """A request to share group {group_id} reached the group's owner, on another host, too late: nothing was changed.
    Send the request again."""


class OwnerMissing(CoordinatorNotAvailable):
    """Share group {group_id} has no owner that answers; the last owner was {owner}. This host can't take over the
    group: its Kafka principal may not {what}. Start a query of the group on a host that may own groups, or give this
    principal the same ACLs."""


class HostTopicNotAuthorized(ShareGroupError, kafka_error="TOPIC_AUTHORIZATION_FAILED"):
    """The Kafka principal may not {what} (topic {topic}), and requests between the hosts of a share group go through
    such topics. An administrator creates share-group-requests, share-group-admin-requests and share-group-replies with
    kafka-topics.sh --create --partitions 10 --config retention.ms=600000 --config compression.type=uncompressed
    --config max.message.bytes=1048588 --config message.timestamp.type=LogAppendTime --topic NAME. Members need Write on
    share-group-requests and Read on share-group-replies; administrators also Write on share-group-admin-requests; hosts
    that own groups need Read on both request topics, and Read and Write on share-group-replies."""


class HostTopicUnfit(ShareGroupError):
    """Topic {topic} carries requests between the hosts of a share group, and it has {has}: so a single record could
    block the requests of other hosts. This Kafka principal lacks AlterConfigs on the topic. Have an administrator run
    kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config {wanted}."""
