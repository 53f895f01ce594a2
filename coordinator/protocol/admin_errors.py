"""Named errors of an administrator's requests; their form is that of coordinator.protocol.errors, which has them too:
import them from there."""

from __future__ import annotations

from coordinator.protocol.error_base import ShareGroupError


class GroupNotEmpty(ShareGroupError):
    """Share group {group_id} has {members} member(s) with a session. Stop its queries and ShareConsumers, and wait for
    share.session.timeout.ms{force}"""

    kafka_error = "NON_EMPTY_GROUP"


class MembersNotKnown(ShareGroupError):
    """The coordinator of share group {group_id} has just loaded it. {members} member(s) that hold no records may be
    there, and have up to {wait_ms} ms more to say so: ask again then.{force}"""

    kafka_error = "COORDINATOR_LOAD_IN_PROGRESS"
    retriable = True


class GroupChanged(ShareGroupError):
    """Share group {group_id} has changed since the request was prepared: {what}. Nothing was done. Look at the group,
    and send a new request if it is still wanted."""

    kafka_error = "INVALID_REQUEST"


class GroupSubscribedToTopic(ShareGroupError):
    """Member {member_id} of share group {group_id} subscribes to topic {topic}: its offsets can't be deleted. Stop the
    members that subscribe to it, and wait for share.session.timeout.ms."""

    kafka_error = "GROUP_SUBSCRIBED_TO_TOPIC"


class DeadLettersNotWritten(ShareGroupError):
    """{count} record(s) of share group {group_id} are given up, and their dead letters are not written yet; they would
    be lost. Wait until the dead letter topic has them, or force the action to go on without them."""

    kafka_error = "NON_EMPTY_GROUP"


class MemberNotFound(ShareGroupError):
    """Share group {group_id} has no member {member_id}. sharegroup groups --describe --members lists its members."""

    kafka_error = "UNKNOWN_MEMBER_ID"


class UnknownSharePartition(ShareGroupError):
    """Share group {group_id} has no state of {partition}. sharegroup groups --describe lists its share partitions."""

    kafka_error = "UNKNOWN_TOPIC_OR_PARTITION"


class RecordsHeld(ShareGroupError):
    """Offsets {first} to {last} of {topic}-{partition} are held by member {member_id} of share group {group_id}.
    Release these records, or the member, and ask again."""

    kafka_error = "INVALID_RECORD_STATE"


class NotInFlight(ShareGroupError):
    """Share group {group_id} has no records in flight at offsets {first} to {last} of {topic}-{partition}: they were
    never acquired, or are done."""

    kafka_error = "INVALID_RECORD_STATE"


class NotAllowed(ShareGroupError):
    """{request} needs a token with the right {needed}, and the token of this call has {given}. Name a file with such a
    token in share.coordinator.token.file."""

    kafka_error = "CLUSTER_AUTHORIZATION_FAILED"


class InvalidReset(ShareGroupError):
    """The offsets can't be reset to {what}: {reason}"""

    kafka_error = "INVALID_REQUEST"
