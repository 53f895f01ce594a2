"""Named errors: one class for each thing that can go wrong, with Kafka's error code where Kafka has one.

The class docstring is the message; ``{fields}`` are filled from the keyword arguments. An error travels over RPC as
its class name and fields, and is raised again as the same class on the other side. The classes are sorted by who
raises them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

from coordinator.protocol.log_lines import printable


class ShareGroupError(Exception):
    """Something went wrong in sharegroup."""

    kafka_error: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    """Kafka's name of the error."""
    retriable: ClassVar[bool] = False
    """Whether the client sends the same request again."""
    of_coordinator: ClassVar[bool] = False
    """Whether the error is about the coordinator itself: its rights, limits, version, connections, disk or log. Whoever
    is to remove the cause has to know the coordinator's host."""

    def __init_subclass__(cls, **attributes: Any) -> None:
        """``attributes``: the class attributes above that differ from those of the base class."""
        super().__init_subclass__()
        for name, value in attributes.items():
            assert name in ShareGroupError.__annotations__, name
            setattr(cls, name, value)

    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        self.on_host = str(fields.get("on_host", ""))  # the host and process that the error is about, if not this one
        template = f"{'On host {on_host}: ' if self.on_host else ''}{' '.join((type(self).__doc__ or '').split())}"
        super().__init__(template.format_map({name: _shown(value) for name, value in fields.items()}))

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self.fields), ()


MAX_SHOWN = 500
"""A sentence shows up to this many characters of a field, whose length a user or a program may choose."""

_END = 150
"""A longer field is cut in its middle, and keeps this many characters of its end, as a reason ends with the way out."""


def _shown(value: Any) -> Any:
    """The value of a field for the sentence: cut, on one line, without control characters."""
    text = str(value)
    if len(text) <= MAX_SHOWN and text.isprintable():
        return value
    if len(text) > MAX_SHOWN:
        text = f"{text[: MAX_SHOWN - _END]}... ({len(text):,} characters) ...{text[-_END:]}"
    return printable(text)


_OF_A_QUERY = re.compile(r"(?<![\w.])kafka\.(?=(?:bootstrap|security|sasl|ssl)\.|oauth_cb)")


def in_words_of_clients(text: str) -> str:
    """Returns the text of an error for a ShareConsumer, an Admin or a command: their properties have no prefix."""
    return _OF_A_QUERY.sub("", text)


@contextmanager
def told_to_clients() -> Iterator[None]:
    """A block whose named errors are in the words of clients."""
    try:
        yield
    except ShareGroupError as error:
        error.args = (in_words_of_clients(str(error)),)
        raise


def error_from_wire(name: str, fields: dict[str, Any], text: str = "") -> ShareGroupError:
    """Returns the error that the other side raised; a RemoteError if this side has no class for it."""
    cls = by_name().get(name)
    return RemoteError(name=name, text=text or fields) if cls is None else cls(**fields)


def by_name() -> dict[str, type[ShareGroupError]]:
    """Returns all classes of named errors, by class name."""
    classes: dict[str, type[ShareGroupError]] = {}
    todo = [ShareGroupError]
    while todo:
        cls = todo.pop()
        classes[cls.__name__] = cls
        todo.extend(cls.__subclasses__())
    return classes


class RemoteError(ShareGroupError):
    """The coordinator answered {name}: {text}"""


# --- requests


class InvalidRequest(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """{what}"""


# --- configuration


class UnknownConfig(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """{key} is not a {scope} key; {hint}."""


class ConfigTypeMismatch(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """{key}={value} is not {expected}."""


class ConfigOutOfBounds(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """{key}={value} is out of bounds: it must be {bounds}."""


class ConfigConflict(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """{key}={value} does not go with {other}={other_value}: {rule}."""


# --- members


class UnknownMemberId(ShareGroupError, kafka_error="UNKNOWN_MEMBER_ID"):
    """Member {member_id} of share group {group_id} has no session. It has to join again, with its last member epoch."""


class FencedMemberEpoch(ShareGroupError, kafka_error="FENCED_MEMBER_EPOCH"):
    """Member {member_id} of share group {group_id} is fenced: another process ({holder}) joined with the same
    checkpoint (its member epoch is {current_epoch}, ours was {member_epoch}). Two queries can't run on one checkpoint,
    nor on a copy of it: stop one of them, or start it with a new checkpointLocation."""


class MemberForgotten(ShareGroupError, kafka_error="UNKNOWN_MEMBER_ID"):
    """Member {member_id} of share group {group_id} was away for longer than share.member.retention.ms, so the group has
    forgotten it. The member held no records. Start the query with a new checkpointLocation. If the query may be stopped
    for so long again, raise share.member.retention.ms."""


class GroupIdNotFound(ShareGroupError, kafka_error="GROUP_ID_NOT_FOUND"):
    """Share group {group_id} does not exist in the state store. Check its name, the cluster and share.state.store. The
    command sharegroup groups --list shows all groups. A sink's kafka.group.id must be that of its source. If the group
    was deleted while its query ran, start the query with a new checkpointLocation."""


# --- a query's plan


class StalePlan(ShareGroupError, kafka_error="INVALID_RECORD_STATE"):
    """Plan {plan_id} of member {member_id} is refused: {reason}. The checkpoint was rolled back, or copied from an
    older state of this query. The plan's records have been completed since, or belong to a newer batch. Start the query
    with a new checkpointLocation: records not yet acknowledged stay with the group."""


class ForeignPlan(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """Plan {plan_id} does not belong to this incarnation of share group {group_id} (now {incarnation}). Possible
    causes: the group or its state store was deleted and created anew; the checkpoint belongs to another group; or these
    brokers are another cluster's. Start the query with a new checkpointLocation; a new group begins at
    startingOffsets."""


class PlanDiffersFromLog(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """The checkpoint and the coordinator disagree about plan {plan_id} of share group {group_id} (member {member_id}):
    {difference}. The checkpoint or the group's state was restored from a backup, or the checkpoint was edited. Nothing
    of the batch was read, and nothing was changed in the group. Give the query a new checkpointLocation: it continues
    with the records that the group has not completed, and records of this batch may be delivered a second time."""


class DataLoss(ShareGroupError, kafka_error="OFFSET_OUT_OF_RANGE"):
    """Share group {group_id} lost {count} record(s) before they were done: {ranges}. They were removed from the log
    (retention, delete-records, or the topic was deleted) and are now archived. A batch that was running at the time may
    have read them. If the query failed, restart it to go on without them; with failOnDataLoss=false a query never fails
    for lost records."""


# --- a ShareConsumer's outcomes and signals


class InvalidRecordState(ShareGroupError, kafka_error="INVALID_RECORD_STATE"):
    """{what}: the record state is invalid. The acknowledgement of delivery could not be completed."""


class RecordNotHeld(InvalidRecordState):
    """Member {member_id} does not hold {offsets}: the lock is over, or the record already has an outcome. Nothing was
    changed; records without an outcome are delivered again. Acknowledge a record before its lock expires; if the work
    takes longer, renew the lock or call mark_in_progress in time."""


class OlderDelivery(InvalidRecordState):
    """{offsets} was delivered {delivered} times. The receipt is of delivery {named}, and the lock of that delivery is
    over. Nothing was changed: only the newest delivery can be acknowledged."""


class LockExtensionOver(InvalidRecordState):
    """The signal was refused: signals extend a lock until {longest_ms} ms after the acquisition at most. The record is
    delivered again. If the work takes longer, raise group.share.in.progress.max.lock.extension.ms."""


class HeldByQuery(InvalidRecordState):
    """Plan {plan_id} belongs to a query, whose locks live as long as its session. Only ShareConsumers send signals."""


class RenewalDisabled(InvalidRecordState):
    """The group has share.renew.acknowledge.enable=false: no lock is renewed. Set it to true, or acknowledge the
    record within its lock."""


# --- sinks


class NoPlanToDecide(ShareGroupError, kafka_error="INVALID_RECORD_STATE"):
    """No query of share group {group_id} has a batch that this sink could decide. Either the rows do not come from a
    running query of this group, or the sink's kafka.group.id or kafka.bootstrap.servers differs from the source's.
    Write the rows of a batch inside its query (writeStream, or foreachBatch), with the source's group and brokers."""


class SinkOutdated(ShareGroupError, kafka_error="INVALID_RECORD_STATE"):
    """The sink of share group {group_id} began before the group was deleted and created anew, so the receipts of its
    rows are no longer valid. Nothing was staged; start the query again."""


class BatchReclaimed(ShareGroupError, kafka_error="FENCED_MEMBER_EPOCH"):
    """A newer process of the query has reclaimed the batch of {row} in share group {group_id}, and these rows are of an
    earlier attempt. Nothing was staged, and this process must not commit the batch: let this process end. The query's
    newest process continues."""


class StaleReceipts(ShareGroupError, kafka_error="INVALID_RECORD_STATE"):
    """{count} row(s) of the batch have a receipt that is no longer valid in share group {group_id}, for example
    {sample}: their records were meanwhile delivered again or decided. Nothing was staged, because onStaleReceipt is
    fail. Start the query again, or set onStaleReceipt=log to leave such rows out."""


class TooManyRejects(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """Share group {group_id}: {rejected} of the last {decided} records were rejected, more than
    errors.deadletterqueue.max.reject.ratio = {ratio} allows. The records that the last batch rejected went back to the
    group as they were. Fix the query and start it again; or raise the ratio, if so many records are really bad."""


class AcknowledgementModeDiffers(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """A sink names share.acknowledgement.mode={own}, but its batch of share group {group_id} was acquired with {other},
    the mode of the source's option or, if the source sets none, of the group. Nothing was staged. Set
    share.acknowledgement.mode={own} on the source, or leave the option off the sink; then start the query again."""


class BatchNotNamed(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """A sink of share group {group_id} wrote no row that the group still holds, so it is not known which batch the sink
    wrote. This is refused with share.acknowledgement.mode=explicit and outputOnReplay=skips: a target that skips the
    replay of a batch it already has could lack this batch's records. Nothing was staged. Do one of these, then start
    the query again: set outputOnReplay=replaces, if a replay replaces the output of its batch; call
    sharegroup.acknowledge in foreachBatch's own thread; or do not call sharegroup.acknowledge for a batch without rows.
    """


class NothingDecided(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """A batch of share group {group_id} began with share.acknowledgement.mode=explicit, and no sink has decided any
    record of its query: the batch was given back as it was. Either write the rows with format("sharegroup") or
    sharegroup.acknowledge, and kafka.group.id={group_id}; or set share.acknowledgement.mode=implicit. Then start the
    query again."""


class NeverDelivered(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """The row of {row} matches no delivery of share group {group_id}: {reason}. Nothing was staged. Pass topic,
    partition, offset, deliveryCount and receipt to the sink as they came from the source."""


class NoneHeld(ShareGroupError, kafka_error="INVALID_RECORD_STATE"):
    """None of the batch's {count} row(s), for example {sample}, matches a record that the query holds in share group
    {group_id}, although the query still holds its whole batch. The rows are those of an earlier batch or of another
    query, or their offsets or deliveryCounts were changed. Nothing was staged. Write the rows of a batch inside its
    query, with topic, partition, offset, deliveryCount and receipt as they came from the source."""


# --- an administrator's requests


class GroupNotEmpty(ShareGroupError, kafka_error="NON_EMPTY_GROUP"):
    """Share group {group_id} has {members} member(s) with a session. Stop its queries and ShareConsumers, and wait for
    share.session.timeout.ms{force}"""


class MembersNotKnown(ShareGroupError, kafka_error="COORDINATOR_LOAD_IN_PROGRESS", retriable=True):
    """The coordinator has just loaded share group {group_id}, and does not know yet whether {members} member(s) without
    records still run. They have {wait_ms} ms more to send a request: ask again after that.{force}"""


class GroupChanged(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """Share group {group_id} has changed since the request was prepared: {what}. Nothing was done. Look at the group,
    and send a new request if it is still wanted."""


class GroupSubscribedToTopic(ShareGroupError, kafka_error="GROUP_SUBSCRIBED_TO_TOPIC"):
    """Member {member_id} of share group {group_id} subscribes to topic {topic}, so the topic's offsets can't be
    deleted. Stop the members that subscribe to it, and wait for share.session.timeout.ms."""


class DeadLettersNotWritten(ShareGroupError, kafka_error="NON_EMPTY_GROUP"):
    """{count} record(s) of share group {group_id} are given up, and their dead letters are not written yet: the dead
    letters would be lost. Wait until the dead letter topic has them, or force the action to go on without them."""


class MemberNotFound(ShareGroupError, kafka_error="UNKNOWN_MEMBER_ID"):
    """Share group {group_id} has no member {member_id}. sharegroup groups --describe --members lists its members."""


class UnknownSharePartition(ShareGroupError, kafka_error="UNKNOWN_TOPIC_OR_PARTITION"):
    """Share group {group_id} has no state of {partition}. sharegroup groups --describe lists its share partitions."""


class RecordsHeld(ShareGroupError, kafka_error="INVALID_RECORD_STATE"):
    """Offsets {first} to {last} of {topic}-{partition} are held by member {member_id} ({holder}) of share group
    {group_id}. Release these records, or the member, and ask again."""


class NotInFlight(ShareGroupError, kafka_error="INVALID_RECORD_STATE"):
    """Share group {group_id} has no records in flight at offsets {first} to {last} of {topic}-{partition}: they were
    never acquired, or are done already."""


class NotAllowed(ShareGroupError, kafka_error="CLUSTER_AUTHORIZATION_FAILED"):
    """{request} needs a token with the right `{needed}`, and the token of this call has {given}. Set
    share.coordinator.token.file to a file with such a token."""


class InvalidReset(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """The offsets can't be reset to {what}: {reason}"""


class InvalidImport(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """Share group {group_id} is not imported: {reason}"""


class GroupExists(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """Share group {group_id} exists, and an import only creates a group: nothing was changed. If an earlier import
    created the group, that import is complete. To import anew, delete the group first (sharegroup groups --delete), or
    import under another name."""


# --- dead letters


class DeadLetterTopicMissing(ShareGroupError, kafka_error="UNKNOWN_TOPIC_OR_PARTITION"):
    """Dead letter topic {topic} (errors.deadletterqueue.topic.name) does not exist in the Kafka cluster at {addresses}.
    Create it (kafka-topics.sh --create --topic {topic}), or let it be created:
    errors.deadletterqueue.auto.create.topics.enable=true."""


class DeadLetterTopicNotAuthorized(ShareGroupError, kafka_error="TOPIC_AUTHORIZATION_FAILED", of_coordinator=True):
    """The Kafka principal may not {what} dead letter topic {topic} (errors.deadletterqueue.topic.name). It needs these
    ACLs on Topic {topic}: Describe and Write, and Create where the topic is to be created."""


class DeadLetterTopicSubscribed(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """Topic {topic} can't be the dead letter topic (errors.deadletterqueue.topic.name) of a group that subscribes to
    it: its dead letters would be delivered again, and fail again. Name another dead letter topic, or leave {topic} out
    of the subscription."""


class DeadLetterTopicInUse(ShareGroupError, kafka_error="NON_EMPTY_GROUP"):
    """{count} record(s) of share group {group_id} wait until their dead letters are written to topic {topic}. Without
    errors.deadletterqueue.topic.name, or with errors.deadletterqueue.on.failure=archive, the records may get no dead
    letter. Wait until the dead letters are written, or name another topic. An administrator can do without them:
    sharegroup configs unset --force, or set --force."""


class OrderInUse(ShareGroupError, kafka_error="NON_EMPTY_GROUP"):
    """share.order of share group {group_id} can't change to {order} now: members hold {count} record(s), or may come
    back for records that they held. Either let each query complete its batch (start it once with Trigger.AvailableNow)
    and close the ShareConsumers, or reset the offsets of the group (sharegroup groups --reset-offsets); then set the
    key again."""


# --- the service


class CoordinatorNotAvailable(
    ShareGroupError, kafka_error="COORDINATOR_NOT_AVAILABLE", retriable=True, of_coordinator=True
):
    """The coordinator of share group {group_id} is not available: {reason}"""


class AdminClosed(CoordinatorNotAvailable, retriable=False, of_coordinator=False):
    """This Admin client is closed. Make another one: sharegroup.Admin(conf)."""


class OutageTooLong(CoordinatorNotAvailable, retriable=False):
    """Share group {group_id} could not be served for {timeout_ms} ms (share.broker.outage.timeout.ms): {reason}.
    Nothing is lost. Once the Kafka brokers ({addresses}) answer, start the program again, or poll again. To let it wait
    longer, raise the timeout.{log}"""


class NotCoordinator(ShareGroupError, kafka_error="NOT_COORDINATOR", retriable=True):
    """This process does not serve {what}: another coordinator does, and clients look for it."""


class GroupTakenOver(ShareGroupError, kafka_error="FENCED_MEMBER_EPOCH"):
    """Share group {group_id} was taken over by {owner}. That process runs an older version of sharegroup, to which this
    version can't send requests. So this query ends, and does not take the group back. No record is lost: the other host
    delivers the group's records. Run this version on all hosts of the group."""


class InternalError(ShareGroupError, of_coordinator=True):
    """The coordinator failed on {what}: {reason}. Nothing was changed; see the coordinator's log. This is a bug."""


class NotAuthorized(ShareGroupError, kafka_error="CLUSTER_AUTHORIZATION_FAILED"):
    """The coordinator at {endpoint} refused the call: the token is wrong. Put the coordinator's token into the file
    that share.coordinator.token.file names, or into SHAREGROUP_COORDINATOR_TOKEN."""


class CoordinatorNotStarted(ShareGroupError, kafka_error="COORDINATOR_NOT_AVAILABLE"):
    """A coordinator for {cluster} could not be started: {reason}. The coordinator's log is {log}"""


class NoCoordinatorHere(ShareGroupError, kafka_error="COORDINATOR_NOT_AVAILABLE"):
    """No coordinator for {cluster} can run on this host: {reason}. Start one elsewhere (`sharegroup coordinator`),
    where this program can reach it, and name it: share.coordinator.endpoint=HOST:PORT."""


class CoordinatorVersionMismatch(ShareGroupError):
    """The coordinator (process {pid}) speaks protocol {theirs}, this program protocol {ours}, and they are
    incompatible. Run the same version of sharegroup on both sides: upgrade the older one. A coordinator that was
    started on demand exits by itself once the queries of its version have stopped; or end process {pid}."""


class UnsafeDirectory(ShareGroupError):
    """{path} can't hold files with secrets: {reason}. Name another directory in {variable}."""


# --- standalone coordinators


class CoordinatorUnreachable(ShareGroupError, kafka_error="COORDINATOR_NOT_AVAILABLE"):
    """No coordinator answers at {endpoints} ({reason}). Check share.coordinator.endpoint and that a coordinator runs
    there. Check also that both sides speak TLS or neither does: set share.coordinator.ssl.ca.location here if
    share.coordinator.ssl.certificate.location is set there."""


class CoordinatorOverloaded(
    ShareGroupError, kafka_error="COORDINATOR_NOT_AVAILABLE", retriable=True, of_coordinator=True
):
    """The coordinator is working on {limit} requests, and takes no more at once. queued.max.requests limits the
    requests of its own clients. Of the requests that other hosts pass on, members may have half as many, and so may
    administrators. Send the request again; if the error persists, run more coordinators."""


class RequestTooLarge(ShareGroupError, kafka_error="INVALID_REQUEST", of_coordinator=True):
    """{name} has {size_bytes} bytes or more, and the coordinator takes {limit_bytes} at most: send less at once, or
    raise the coordinator's socket.request.max.bytes."""


class SubscriptionTooLarge(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """The subscription of member {member_id} of share group {group_id} has {size_bytes} bytes, and a group keeps
    {limit_bytes} bytes of each member at most: subscribe to a pattern instead of a list of topics, or divide the topics
    among several members."""


class GroupMaxSizeReached(ShareGroupError, kafka_error="GROUP_MAX_SIZE_REACHED", of_coordinator=True):
    """Share group {group_id} has {limit} members, as many as the coordinator's group.share.max.size allows. Stop
    members that are not needed, or raise this limit."""


class MaxGroupsReached(ShareGroupError, kafka_error="GROUP_MAX_SIZE_REACHED", of_coordinator=True):
    """Share group {group_id} was not created: the coordinator has {limit} groups, as many as its group.share.max.groups
    allows. Delete groups that nobody uses, or raise this limit."""


class TokenMissing(ShareGroupError, kafka_error="CLUSTER_AUTHORIZATION_FAILED"):
    """A token is needed, and there is none: set share.coordinator.token.file to a file that holds it, or set
    SHAREGROUP_COORDINATOR_TOKEN. The coordinator and all its clients use the same token; sharegroup coordinator
    --make-token FILE makes one."""


class InvalidToken(ShareGroupError):
    """The token in {source} can't be used: {reason}"""


class UnsafeFile(ShareGroupError):
    """{path} holds a secret, and other users may {what} it: run chmod 600 {path}"""


class UnusableFile(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """{key}={path} can't be used: {reason}"""


class InvalidPropertiesFile(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """The configuration file {path} can't be used: {reason}"""


class MissingConfig(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """{key} is not set: {why}"""


class ListenerNotAvailable(ShareGroupError):
    """Could not listen at {listener}: {reason}. Let share.coordinator.listener name another address or port."""


class MetricsNotAvailable(ShareGroupError):
    """The metrics can't be shown on port {port} of 127.0.0.1 (share.coordinator.metrics.port): {reason}. Name another
    port, or 0 for no metrics."""


# --- the state store


class StateStoreInUse(ShareGroupError, kafka_error="COORDINATOR_NOT_AVAILABLE"):
    """State store {path} is in use by another coordinator (process {owner}). Only one coordinator at a time can use it:
    stop the other one, or let share.state.store name another file."""


class StateStoreTooNew(ShareGroupError):
    """State store {path} was written by a newer version of sharegroup: its schema is {found}, and this version reads
    schemas up to {known}. Nothing was changed. Use the newer version, or let share.state.store name another file."""


class StateStoreTooOld(ShareGroupError):
    """State store {path} was written by an older version of sharegroup: its schema is {found}, and this version reads
    {known}. Nothing was changed. Use the older version; or let share.state.store name another file, in which all groups
    begin anew."""


class StateStoreUnreadable(ShareGroupError):
    """State store {path} can't be read: {reason}. Nothing was changed. Restore the file from a copy; or let
    share.state.store name another file, in which all groups begin anew."""


class DiskFull(ShareGroupError, kafka_error="KAFKA_STORAGE_ERROR", of_coordinator=True):
    """{path} can't be written, because its disk is full ({reason}). Free space there, or raise the quota: nothing is
    lost."""


class StateFileGone(ShareGroupError, kafka_error="COORDINATOR_NOT_AVAILABLE"):
    """State store {path} was deleted or replaced while its coordinator ran, so the coordinator no longer serves its
    groups. Stop the coordinator, put the file back together with its -wal file, and start the coordinator again.
    Without the file its groups begin anew, at startingOffsets, and their queries need a new checkpointLocation."""


class GroupStateTooNew(ShareGroupError, of_coordinator=True):
    """The state of share group {group_id} in the state topic was written by a newer version of sharegroup: it has
    {found}, and this version reads format version {known}. Nothing was changed. Run the newer version wherever the
    group's coordinators run, or join another share group."""


class GroupStateTooOld(ShareGroupError, of_coordinator=True):
    """The state of share group {group_id} in the state topic was written by an older version of sharegroup: it has
    {found}, and this version reads format version {known}. Nothing was changed. Run the older version, or join another
    share group; a query then needs a new checkpointLocation."""


class StateTopicUnfit(ShareGroupError, of_coordinator=True):
    """State topic {topic} can't keep the state of share groups: {reason}. Another way is to keep the state in a file,
    for programs on this host only: share.state.store=sqlite:PATH."""


class StateTopicNotAuthorized(ShareGroupError, kafka_error="TOPIC_AUTHORIZATION_FAILED", of_coordinator=True):
    """The Kafka principal may not {what} (state topic {topic}). It needs these ACLs: Create, Describe, DescribeConfigs,
    Read, Write and Delete on Topic {topic}, and Describe and Write on TransactionalId {topic}-* (prefixed). A host that
    may only read the topic can still join groups that another host owns. Or keep the state in a file of this host:
    share.state.store=sqlite:PATH."""


class TransactionsMissing(ShareGroupError, kafka_error="UNSUPPORTED_VERSION"):
    """The state of share groups is kept in topic {topic} with transactions, and the Kafka brokers at {addresses} have
    none ({reason}). Keep the state in a file of this host: share.state.store=sqlite:PATH."""


class StateTopicMissing(ShareGroupError, kafka_error="UNKNOWN_TOPIC_OR_PARTITION", retriable=True):
    """State topic {topic} {what} while coordinators ran: the state of all share groups that was kept in it is lost. The
    coordinator creates the topic again if its ACLs allow that, and groups begin anew, at startingOffsets. Queries that
    ran before end with ForeignPlan: start them with a new checkpointLocation."""


class StateTransactionOpen(ShareGroupError, kafka_error="CONCURRENT_TRANSACTIONS", retriable=True, of_coordinator=True):
    """A transaction has been open in partition {partition} of state topic {topic} since offset {offset}. The records
    after that offset can't be read before the transaction ends, so share group {group_id} waits. As a rule Kafka aborts
    the transaction after its producer's transaction.timeout.ms. If Kafka does not, and a coordinator began the
    transaction, the coordinator that loads {group_id} ends it, or logs why it can't. If it can't, or another program
    began the transaction, end it with kafka-transactions.sh --bootstrap-server {addresses} abort --topic {topic}
    --partition {partition} --start-offset {offset}. Only coordinators should write to this topic."""


class StateRecordUnreadable(ShareGroupError, of_coordinator=True):
    """Record {sequence} of share group {group_id} in state store {path} can't be read: {reason}. It was not skipped, so
    the group is not served; other groups are. Restore the store from a copy, or run the version that wrote it."""


class StateBatchUnreadable(ShareGroupError, retriable=True, of_coordinator=True):
    """A record batch of state topic {topic}, partition {partition}, can't be read at offset {offset}: {reason}. The
    batch may hold state of any share group, so it was not skipped: a group whose state has to be read across the batch
    is not loaded. If only one broker's copy is damaged, let another replica lead the partition: the groups are loaded
    then. Otherwise restore the partition from a copy, and find out who else writes to the topic: only coordinators
    should."""


# --- the Kafka cluster


class TopicNotAuthorized(ShareGroupError, kafka_error="TOPIC_AUTHORIZATION_FAILED", of_coordinator=True):
    """The Kafka principal may not see topic {topic}, or the topic does not exist: without rights, a principal is not
    told which. The principal needs these ACLs on Topic {topic}: Describe and Read."""


class InvalidGroupId(ShareGroupError, kafka_error="INVALID_GROUP_ID"):
    """The share group id {group_id} can't be used: {reason}. A group id has at most 249 characters, like the name of a
    topic, and printable ones only: it appears in each log line, error and state record of the group."""


class UnknownTopic(ShareGroupError, kafka_error="UNKNOWN_TOPIC_OR_PARTITION"):
    """Topic {topic} does not exist in the Kafka cluster at {addresses}. Create it, or correct its name or the cluster's
    address."""


class InvalidTopicPattern(ShareGroupError, kafka_error="INVALID_REGULAR_EXPRESSION"):
    """The pattern {pattern} (subscribePattern, or a ShareConsumer's subscription) can't be used: {problem}. It is a
    regular expression in RE2's syntax (https://github.com/google/re2/wiki/Syntax), which has no lookahead, lookbehind,
    backreference, possessive quantifier or atomic group: write alternatives, as in orders|payments-.*, or subscribe to
    the topics by name."""


class TopicKept(ShareGroupError, kafka_error="INVALID_TOPIC_EXCEPTION"):
    """Topic {topic} can't be read by a share group: {owner} keeps its own state in it. Leave it out of the
    topics to read."""


class TopicNotWritten(ShareGroupError, kafka_error="INVALID_TOPIC_EXCEPTION"):
    """Topic {topic} can take neither dead letters nor redriven records: {why}. Name another topic, in
    errors.deadletterqueue.topic.name or as the redrive's target (to)."""


class TopicNotAllowed(ShareGroupError, kafka_error="TOPIC_AUTHORIZATION_FAILED", of_coordinator=True):
    """{what} may not be {use}: {rule} allows only {pattern}. Name a topic that it allows, or have an administrator of
    the coordinator change {where}."""


class GroupNotAllowed(ShareGroupError, kafka_error="GROUP_AUTHORIZATION_FAILED"):
    """Share group {group_id} may not be used with the token {token}, whose groups= allows only {pattern}. Use such a
    group id, or have an administrator of the coordinator change that token's line in its token file."""


class UnknownPartition(ShareGroupError, kafka_error="UNKNOWN_TOPIC_OR_PARTITION"):
    """Topic {topic} has no partition {partition}: it has {partitions}, numbered from 0. Name partitions that the topic
    has."""


class TopicIdsMissing(ShareGroupError, kafka_error="UNKNOWN_TOPIC_ID"):
    """Share group {group_id} was created on a cluster with topic ids, and this cluster has none for {topic}. Check that
    it is the same cluster: without ids, a topic that was deleted and created anew can't be told from the old one."""


class InvalidStartingOffsets(ShareGroupError, kafka_error="INVALID_REQUEST"):
    """startingOffsets={value} can't be used: {reason}. It is earliest, latest, or for each partition an offset (-2 is
    the earliest, -1 the latest), for example {{"orders": {{"0": 23, "1": -2}}}}."""


# --- the connection to the brokers: an error keeps librdkafka's own reason, without secrets


class BrokerNotReachable(ShareGroupError, kafka_error="NETWORK_EXCEPTION", retriable=True, of_coordinator=True):
    """No Kafka broker of {addresses} could be reached within {timeout_ms} ms ({reason}). Check
    kafka.bootstrap.servers, the network and the security settings."""


class BrokerSecurityFailed(BrokerNotReachable, kafka_error="SASL_AUTHENTICATION_FAILED", retriable=False):
    """The Kafka brokers of {addresses} can't be used with these security settings: {reason}. Waiting does not help:
    check kafka.security.protocol, kafka.sasl.* and kafka.ssl.*, and that the password, certificate or token is still
    the right one."""


class BrokerClosesConnection(BrokerNotReachable):
    """The Kafka brokers of {addresses} accept the connection and close it again: {reason}. This client speaks
    {protocol} (kafka.security.protocol): the listener probably speaks another protocol (PLAINTEXT, SSL, SASL_PLAINTEXT
    or SASL_SSL). Set the listener's protocol, or name the port of a listener that speaks {protocol}."""


class BrokerSpeaksOtherwise(BrokerNotReachable):
    """The listener at {addresses} answers {answer}, and this client speaks {protocol} (kafka.security.protocol).
    {instead}"""


class BrokerHostUnknown(BrokerNotReachable):
    """None of the host names of the Kafka brokers {addresses} can be resolved: {reason}. Correct
    kafka.bootstrap.servers, or the name resolution of this host."""


class BrokerRefused(ShareGroupError, of_coordinator=True):
    """The Kafka cluster at {addresses} refused to {what}: {reason}"""


class InvalidKafkaConfig(ShareGroupError, kafka_error="INVALID_CONFIG"):
    """librdkafka, the Kafka client of sharegroup, does not accept the configuration {key}: {reason}.
    docs/run/java-keys.md lists what becomes of the keys of Java's clients."""
