"""Named errors of several hosts that share groups over Kafka alone."""

from __future__ import annotations

from coordinator.protocol.errors import ShareGroupError


class GroupOfAnotherVersion(ShareGroupError):
    """Share group {group_id} is served by {owner}, which runs a version of sharegroup that this one can't ask. Nothing
    was taken. Run the same version on both hosts, or stop the queries there first."""

    retriable = False


class RequestTooLate(ShareGroupError):
    """A request to share group {group_id} came to its owner, on another host, after its time: nothing was changed. Ask
    again."""

    kafka_error = "REQUEST_TIMED_OUT"
    retriable = True


class HostTopicNotAuthorized(ShareGroupError):
    """The Kafka principal may not {what} (topic {topic}), by which the coordinators of several hosts ask each other.
    Let an administrator create share-group-requests, share-group-admin-requests and share-group-replies with 10
    partitions each; the principal needs Describe, Read and Write on them."""

    kafka_error = "TOPIC_AUTHORIZATION_FAILED"
