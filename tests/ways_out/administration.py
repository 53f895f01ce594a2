"""Ways out for administrators, for ShareConsumers' outcomes, and of a group's limits. Played on a group, or on a
service, without a broker."""

from types import SimpleNamespace

from coordinator.config.resolved import ServerConfig
from coordinator.core.commands import AlterConfigs
from coordinator.core.commands.administer import AlterStartOffsets
from coordinator.core.share_group import ShareGroup
from coordinator.protocol import admin_messages, errors, messages
from coordinator.service.runtime.group_limits import GroupLimits
from tests.kip932.consumers import ACCEPT, LOCK_MS, REJECT, RENEW, ShareConsumers
from tests.support.group_driver import SESSION_MS, TOPIC_ID, GroupDriver, started_plan
from tests.ways_out.way import way_out

GROUP = {"group_id": "billing"}
NOW = {**GROUP, "execute": True}
FIRST = {"topic": "orders", "partition": 0, "first": 0, "last": 0, "reason": "a broken record"}


def working(scene):
    """A service whose member m1 holds the records 0 to 9 of orders."""
    running = scene.running()
    running.join(starting_offsets="earliest")
    running.next()
    return running


def resting(scene):
    """A service whose member has left."""
    running = working(scene)
    running.ask(messages.LeaveGroup)
    return running


@way_out(errors.GroupIdNotFound, "Check its name, the cluster and share.state.store")
def a_mistyped_group(scene):
    running = working(scene)
    with scene.refused():
        running.service.handle(messages.OpenSink(group_id="biling"))
    assert running.service.handle(messages.OpenSink(**GROUP)).topics


@way_out(errors.UnknownMemberId, "has to join again")
def a_member_whose_session_has_ended(scene):
    group = GroupDriver(records=10)
    group.join()
    group.pass_time(SESSION_MS + 1)
    beat = messages.Heartbeat(**GROUP, member_id="m1", member_epoch=1)
    with scene.refused():
        group.run(beat)
    group.run(messages.JoinGroup(**GROUP, member_id="m1", process_id="m1-process-1", member_epoch=1))
    group.run(beat)


@way_out(errors.GroupNotEmpty, "Stop its queries and ShareConsumers, and wait for share.session.timeout.ms")
def a_deletion_while_a_query_runs(scene):
    group, plan = started_plan(10)
    group.complete(plan)
    with scene.refused():
        group.run(admin_messages.DeleteGroup(**NOW))
    group.pass_time(SESSION_MS + 1)
    assert group.run(admin_messages.DeleteGroup(**NOW)).executed


@way_out(errors.MembersNotKnown, "ask again after that")
def a_deletion_right_after_a_load(scene):
    group, plan = started_plan(10)
    group.complete(plan)
    group.crash()
    with scene.refused():
        group.run(admin_messages.DeleteGroup(**NOW))
    group.pass_time(SESSION_MS + 1)
    assert group.run(admin_messages.DeleteGroup(**NOW)).executed


@way_out(errors.GroupChanged, "Look at the group, and send a new request")
def a_late_action(scene):
    running = working(scene)
    seen = running.admin.handle(admin_messages.ReleaseMember(**GROUP, member_id="m1")).state
    running.join(process="another")
    with scene.refused():
        running.admin.handle(admin_messages.ReleaseMember(**NOW, member_id="m1", action_id="a1", seen=seen))
    seen = running.admin.handle(admin_messages.ReleaseMember(**GROUP, member_id="m1")).state
    assert running.admin.handle(admin_messages.ReleaseMember(**NOW, member_id="m1", action_id="a2", seen=seen)).executed


@way_out(errors.GroupSubscribedToTopic, "Stop the members that subscribe to it")
def offsets_of_a_topic_that_is_read(scene):
    running = working(scene)
    delete = admin_messages.DeleteOffsets(**NOW, topics=("orders",))
    with scene.refused():
        running.admin.handle(delete)
    running.ask(messages.LeaveGroup)
    assert running.admin.handle(delete).executed


@way_out(errors.DeadLettersNotWritten, "Wait until the dead letter topic has them, or force the action")
def a_deletion_before_the_dead_letters_are_written(scene):
    group = ShareConsumers(end=2, errors_deadletterqueue_topic_name="dlq")
    group.fetch("c1")
    group.acknowledge(REJECT, 0, 1)
    group.pass_time(SESSION_MS + 1)
    with scene.refused():
        group.run(admin_messages.DeleteGroup(**NOW))
    assert group.run(admin_messages.DeleteGroup(**GROUP, force=True)).notes
    group.file(0, 1)
    assert group.run(admin_messages.DeleteGroup(**NOW)).executed


@way_out(errors.DeadLetterTopicInUse, "Wait until the dead letters are written, or name another topic")
def a_dead_letter_topic_that_records_wait_for(scene):
    group = ShareConsumers(end=2, errors_deadletterqueue_topic_name="dlq")
    group.fetch("c1")
    group.acknowledge(REJECT, 0, 1)
    with scene.refused():
        group.configure(errors_deadletterqueue_topic_name="")
    group.configure(errors_deadletterqueue_topic_name="dlq.other")
    group.file(0, 1)
    group.configure(errors_deadletterqueue_topic_name="")


@way_out(
    errors.OrderInUse,
    "let each query complete its batch",
    "or reset the offsets of the group",
    "then set the key again",
)
def an_order_that_changes_under_a_batch(scene):
    ordered = AlterConfigs(configs={"share.order": "partition"})
    group, plan = started_plan(10)
    with scene.refused():
        group.run(ordered)
    group.complete(plan)
    group.run(ordered)
    group, _ = started_plan(10)
    group.pass_time(SESSION_MS + 1)
    with scene.refused():
        group.run(ordered)
    group.run(AlterStartOffsets(starts=((TOPIC_ID, 0, 0),), execute=True))
    group.run(ordered)


@way_out(errors.MemberNotFound, "sharegroup groups --describe --members lists its members")
def a_mistyped_member(scene):
    running = working(scene)
    with scene.refused():
        running.admin.handle(admin_messages.ReleaseMember(**NOW, member_id="m7"))
    (member,) = running.service.handle(messages.DescribeGroup(**GROUP)).members
    assert running.admin.handle(admin_messages.ReleaseMember(**NOW, member_id=member.member_id)).executed


@way_out(errors.UnknownSharePartition, "sharegroup groups --describe lists its share partitions")
def a_partition_that_the_group_does_not_have(scene):
    running = resting(scene)
    with scene.refused():
        running.admin.handle(admin_messages.DeleteOffsets(**NOW, topics=("payments",)))
    (partition,) = running.service.handle(messages.DescribeGroup(**GROUP)).partitions
    assert running.admin.handle(admin_messages.DeleteOffsets(**NOW, topics=(partition.topic,))).executed


@way_out(errors.RecordsHeld, "Release these records, or the member, and ask again")
def an_archival_of_a_held_record(scene):
    running = working(scene)
    archive = admin_messages.DecideRecords(**NOW, decision="archive", **FIRST)
    with scene.refused():
        running.admin.handle(archive)
    running.admin.handle(admin_messages.DecideRecords(**NOW, decision="release", **FIRST))
    assert running.admin.handle(archive).executed


@way_out(errors.NotInFlight, "they were never acquired, or are done")
def an_archival_of_a_record_that_is_not_in_flight(scene):
    group, _ = started_plan(10)
    with scene.refused():
        group.run(admin_messages.DecideRecords(**NOW, decision="release", **{**FIRST, "first": 500, "last": 500}))
    (run,) = group.run(admin_messages.ListInFlight(**GROUP)).runs
    group.run(
        admin_messages.DecideRecords(**NOW, decision="release", **{**FIRST, "first": run.first, "last": run.last})
    )


@way_out(errors.InvalidReset, "can't be reset to", "there are none")
def a_reset_to_no_offsets(scene):
    running = resting(scene)
    with scene.refused():
        running.admin.handle(admin_messages.AlterOffsets(**NOW, to="offsets"))
    assert running.admin.handle(admin_messages.AlterOffsets(**NOW, to="offsets", offsets={"orders": {"0": 5}})).executed


def importing(running, start, action_id):
    """Import the group at this start offset of orders, which has 10 records."""
    at = admin_messages.PartitionPosition(topic="orders", partition=0, start=start)
    return running.admin.handle(admin_messages.ImportGroup(**NOW, action_id=action_id, partitions=(at,)))


@way_out(errors.GroupExists, "To import anew, delete the group first (sharegroup groups --delete)")
def an_import_of_a_group_that_exists(scene):
    running = scene.running()
    importing(running, 5, "a1")
    with scene.refused():
        importing(running, 6, "a2")
    running.admin.handle(admin_messages.DeleteGroup(**NOW))
    assert importing(running, 6, "a3").executed


@way_out(errors.InvalidImport, "is not imported", "the log ends at 10")
def an_import_beyond_the_log(scene):
    running = scene.running()
    with scene.refused():
        importing(running, 11, "a1")
    assert importing(running, 10, "a2").executed


@way_out(errors.TopicIdsMissing, "Check that it is the same cluster")
def a_cluster_without_topic_ids(scene):
    running = scene.running()
    running.join(starting_offsets="earliest")
    cluster, of_this = running.cluster, dict(running.cluster.found)
    cluster.topic_ids = False
    cluster.add("orders", 2)
    with scene.refused():
        running.next()
    cluster.topic_ids, cluster.found = True, of_this
    assert running.next().plan_id


# --- ShareConsumers


@way_out(errors.RecordNotHeld, "Acknowledge a record before its lock expires; if the work takes longer, renew the lock")
def a_record_whose_lock_is_over(scene):
    group = ShareConsumers(end=1)
    group.fetch()
    group.wait(LOCK_MS + 1)
    group.pass_time(1)
    scene.told(group.signal(0))
    group.fetch()
    group.wait(LOCK_MS - 5_000)
    assert group.acknowledge(RENEW, 0, count=2) == "NONE"
    group.wait(LOCK_MS - 5_000)
    assert group.signal(0, count=2) == "NONE"
    group.wait(LOCK_MS)
    assert group.acknowledge(ACCEPT, 0, count=2) == "NONE"


@way_out(errors.OlderDelivery, "only the newest delivery can be acknowledged")
def a_receipt_of_an_older_delivery(scene):
    group = ShareConsumers(end=1)
    group.fetch()
    group.wait(LOCK_MS + 1)
    group.pass_time(1)
    group.fetch()
    scene.told(group.signal(0, count=1))
    assert group.signal(0, count=2) == "NONE"


@way_out(
    errors.LockExtensionOver, "raise group.share.in.progress.max.lock.extension.ms", "The record is delivered again"
)
def work_longer_than_the_extension(scene):
    longest = "group_share_in_progress_max_lock_extension_ms"
    group = ShareConsumers(end=1, **{longest: 100_000})
    group.fetch()
    group.wait(20_000)
    assert group.signal(0) == "NONE"
    group.now_ms += 80_001
    scene.told(group.signal(0))
    group.pass_time(1)
    group.heartbeat("c1") if group.group.members["c1"].active else group.join("c1", query=False)
    group.configure(**{longest: 300_000})
    assert group.fetch() == [(0, 0, 2)]
    for _ in range(10):
        group.wait(20_000)
        assert group.signal(0, count=2) == "NONE"


@way_out(errors.HeldByQuery, "locks live as long as its session")
def a_signal_about_a_querys_record(scene):
    group, plan = started_plan(10)
    batches = (messages.ProgressBatch(first=0, last=0, delivery_count=1),)
    signals = (messages.PartitionProgress(topic_id=TOPIC_ID, partition=0, batches=batches),)
    errors = group.run(messages.MarkInProgress(**GROUP, member_id="m1", member_epoch=1, partitions=signals)).errors
    scene.told(": ".join(errors[f"{TOPIC_ID}:0"]))
    for _ in range(10):
        group.pass_time(30_000)
        group.run(messages.Heartbeat(**GROUP, member_id="m1", member_epoch=1))
    group.complete(plan)
    assert group.partition().start_offset == 10, "held for five minutes without a signal"


@way_out(errors.RenewalDisabled, "Set it to true")
def a_renewal_in_a_group_without(scene):
    group = ShareConsumers(end=1, share_renew_acknowledge_enable=False)
    group.fetch()
    scene.coded(group.acknowledge(RENEW, 0))
    group.configure(share_renew_acknowledge_enable=True)
    assert group.acknowledge(RENEW, 0) == "NONE"


# --- limits


@way_out(errors.SubscriptionTooLarge, "subscribe to a pattern", "divide the topics among several members")
def a_subscription_to_thousands_of_topics(scene):
    group = GroupDriver(records=10)
    topics = tuple(f"{n}-{'x' * 240}" for n in range(5_000))
    with scene.refused():
        group.join(topics=topics)
    group.join(topic_pattern="[0-9]+-x*")
    group.join("m2", topics=topics[:1_000])


def joins(limits, group, member_id):
    """The member joins the group; the limits let it, or don't."""
    request = messages.JoinGroup(group_id=group.group_id, member_id=member_id, process_id="p")
    list(limits.within(request, lambda _: iter(()))(group))


@way_out(errors.GroupMaxSizeReached, "Stop members that are not needed, or raise this limit")
def a_full_group(scene):
    group = ShareGroup("billing")
    group.members = {name: SimpleNamespace(member_id=name, active=True) for name in ("m1", "m2")}
    limits = GroupLimits(ServerConfig.parse({"group.share.max.size": "2"}))
    with scene.refused():
        joins(limits, group, "m3")
    joins(GroupLimits(ServerConfig.parse({"group.share.max.size": "3"})), group, "m3")
    group.members["m2"].active = False
    joins(limits, group, "m3")


@way_out(errors.MaxGroupsReached, "Delete groups that nobody uses, or raise this limit")
def a_group_too_many(scene):
    groups = 1
    limits = GroupLimits(ServerConfig.parse({"group.share.max.groups": "1"}), lambda: groups)
    with scene.refused():
        joins(limits, ShareGroup("billing"), "m1")
    groups = 0
    joins(limits, ShareGroup("billing"), "m1")
