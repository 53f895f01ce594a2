"""Ways out for queries: checkpoints, plans, members, rows of a sink. Played on a group without a broker."""

import json
from types import SimpleNamespace

from coordinator.core.commands import AlterConfigs, CreateGroup, InitializePartitions, PartitionStart, TopicWithId
from coordinator.protocol import errors
from coordinator.protocol.admin_messages import DeleteGroup
from coordinator.protocol.messages import Heartbeat, JoinGroup, LeaveGroup, NextPlan
from coordinator.service.runtime import transactions
from share_source import errors as source_errors
from share_source.driver.reader_without_start import StreamReaderWithoutStart
from share_source.options import SourceOptions
from sharegroup import complete_run
from tests.support.group_driver import SESSION_MS, TOPIC_ID, GroupDriver, ranges, started_plan
from tests.support.service_sinks import begin, stage
from tests.support.sink_driver import ACCEPT, EXPLICIT, IMPLICIT, REJECT, batch, said, second_batch, states
from tests.support.source_driver import OPTIONS, DriverClient, facts, opening, reading, run_transaction
from tests.ways_out.way import way_out

DAY_MS = 86_400_000
NEW_CHECKPOINT = "with a new checkpointLocation"


def takes_with_a_new_checkpoint(group, records):
    """A query with a new checkpointLocation is a new member, and gets these records."""
    group.pass_time(SESSION_MS + 1)
    group.join("new")
    assert sum(last - first + 1 for first, last, _ in ranges(group.acquire(member="new"))) == records


@way_out(errors.StalePlan, f"Start the query {NEW_CHECKPOINT}")
def a_checkpoint_restored_from_a_backup(scene):
    group, plan = started_plan(20)
    group.complete(plan)
    group.ends[0] = 30
    with scene.refused():
        group.acquire("")
    takes_with_a_new_checkpoint(group, 10)


@way_out(errors.ForeignPlan, f"Start the query {NEW_CHECKPOINT}", "these brokers are another cluster's")
def a_group_deleted_and_created_anew(scene):
    group, plan = started_plan(10)
    group.complete(plan)
    group.pass_time(SESSION_MS + 1)
    group.run(DeleteGroup(group_id="billing", execute=True))
    group.run(CreateGroup(incarnation="j", topic_ids=True))
    group.epochs.clear()
    group.join()
    with scene.refused():
        group.start(plan)
    group.run(
        InitializePartitions(
            topics=(TopicWithId(topic="orders", topic_id=TOPIC_ID),),
            starts=(PartitionStart(topic_id=TOPIC_ID, partition=0, start_offset=0),),
        )
    )
    takes_with_a_new_checkpoint(group, 10)


@way_out(errors.PlanDiffersFromLog, "Give the query a new checkpointLocation")
def a_group_restored_from_a_backup(scene):
    client = DriverClient(GroupDriver(records=20))
    with reading(client) as source:
        end = source.latestOffset(source.initialOffset(), scene.records(10))
    forged = {**end, "plan": {"orders": {**end["plan"]["orders"], "0": "0-4:1"}}}
    with reading(client) as source, scene.refused():
        source.partitions({}, forged)
    takes_with_a_new_checkpoint(client.group, 20)


@way_out(errors.MemberForgotten, f"Start the query {NEW_CHECKPOINT}", "share.member.retention.ms")
def a_query_away_for_longer_than_the_retention(scene):
    from coordinator.core import share_group

    scene.patch.setattr(share_group, "MEMBERS_KEPT", 2)
    group = GroupDriver(records=100)
    for n in range(5):
        group.join(f"m{n}")
        plan = group.acquire("", f"m{n}", 10).plan.plan_id
        group.start(plan, f"m{n}")
        group.complete(plan, f"m{n}")
        group.run(LeaveGroup(group_id="billing", member_id=f"m{n}", member_epoch=group.epochs[f"m{n}"]))
    group.pass_time(9 * DAY_MS)
    with scene.refused():
        group.run(JoinGroup(group_id="billing", member_id="m0", process_id="m0-process-1", member_epoch=1))
    takes_with_a_new_checkpoint(group, 50)


@way_out(errors.FencedMemberEpoch, "or start it with a new checkpointLocation")
def two_queries_on_one_checkpoint(scene):
    group, _ = started_plan(10)
    group.join("m1", "the copy's process")
    group.ends[0] = 20
    with scene.refused():
        group.run(Heartbeat(group_id="billing", member_id="m1", member_epoch=1))
    group.join("new")
    assert ranges(group.acquire(member="new")) == [(10, 19, 1)]


@way_out(errors.DataLoss, "restart it to go on without them", "failOnDataLoss=false")
def records_removed_before_they_were_read(scene):
    client = DriverClient(GroupDriver(records=100))
    with reading(client) as source:
        end = source.latestOffset(source.initialOffset(), scene.records(60))
        source.partitions({}, end)
    client.group.move_log_start(30)
    with reading(client) as source, scene.refused():
        source.partitions({}, end)
    with reading(client) as source:
        (task,) = source.partitions({}, end)
    assert [(first, last) for first, last, _ in task.task.partitions[0].ranges] == [(30, 59)]
    client.group.move_log_start(40)
    with reading(client, failOnDataLoss="false") as source:
        assert source.partitions({}, end)


@way_out(source_errors.ForeignCheckpoint, "set it to billing, or give the query a checkpointLocation of its own")
def a_checkpoint_of_another_group(scene):
    client = DriverClient(GroupDriver(records=10))
    with reading(client) as source:
        end = source.latestOffset(source.initialOffset(), scene.records(10))
    with reading(client, **{"kafka.group.id": "shipping"}) as source, scene.refused():
        source.partitions({}, end)
    with reading(client) as source:
        assert source.partitions({}, end)


@way_out(source_errors.CheckpointOfAnotherSource, "Give the query a new checkpointLocation")
def a_checkpoint_of_sparks_own_source(scene):
    client = DriverClient(GroupDriver(records=10))
    with reading(client) as source, scene.refused():
        source.latestOffset({"orders": {"0": 5}}, scene.records(10))
    with reading(client) as source:
        assert source.latestOffset(source.initialOffset(), scene.records(10))["plan"]


@way_out(source_errors.UnreadableOffset, "Give the query a new checkpointLocation")
def a_checkpoint_that_was_edited(scene):
    client = DriverClient(GroupDriver(records=10))
    with reading(client) as source:
        end = source.latestOffset(source.initialOffset(), scene.records(5))
    with reading(client) as source, scene.refused():
        source.partitions({}, {**end, "plan": 7})
    takes_with_a_new_checkpoint(client.group, 10)


@way_out(source_errors.TriggerOnceRefused, "Use trigger(availableNow=True)")
def trigger_once(scene):
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    client = DriverClient(GroupDriver(records=10))
    with reading(client) as source, scene.refused():
        source.latestOffset(source.initialOffset(), ReadAllAvailable())
    with reading(client) as source:
        source.prepareForTriggerAvailableNow()
        assert source.latestOffset(source.initialOffset(), scene.records(10))["plan"]


@way_out(source_errors.QueryStillRuns, "call complete_run after awaitTermination()")
def complete_run_of_a_running_query(scene):
    client = DriverClient(GroupDriver(records=100))
    with opening(client):
        reader = StreamReaderWithoutStart(SourceOptions.parse(OPTIONS))
        end = reader.latestOffset()
        reader.partitions(reader.initialOffset(), end)
        reader.stop()
        progress = SimpleNamespace(json=json.dumps({"sources": [{"endOffset": json.dumps(end)}]}))
        query = SimpleNamespace(isActive=True, lastProgress=progress, name="nightly", id="1")
        with scene.refused():
            complete_run(query, OPTIONS)
        query.isActive = False
        assert complete_run(query, OPTIONS) == [end["plan_id"]]


@way_out(errors.NoPlanToDecide, "Write the rows of a batch inside its query")
def rows_written_outside_of_their_query(scene):
    running = scene.running()
    running.join(starting_offsets="earliest")
    with scene.refused():
        stage(running, (0, 9, 1, ACCEPT))
    running.start(running.next().plan_id)
    assert stage(running, (0, 9, 1, ACCEPT)).staged == 10


@way_out(errors.SinkOutdated, "start the query again")
def a_sink_of_before_a_deletion(scene):
    group, _ = batch()
    with scene.refused():
        group.stage(said(0, 9, REJECT), incarnation="before")
    assert group.stage(said(0, 9, REJECT), incarnation="i").staged == 10, "as the query's next start names it"


@way_out(errors.BatchReclaimed, "let this process end. The query's newest process continues")
def a_batch_that_a_newer_process_has(scene):
    group, plan = batch(1, **EXPLICIT)
    epoch = group.epochs["m1"]
    group.restart(plan)
    with scene.refused():
        group.stage(plans={plan: epoch})
    assert group.stage(said(0, 0, ACCEPT, 2)).staged == 1
    group.complete(plan)
    assert states(group) == []


@way_out(errors.StaleReceipts, "Start the query again, or set onStaleReceipt=log")
def rows_of_records_delivered_again(scene):
    group, plan = second_batch()
    rows = said(7, 9, REJECT), said(10, 16, REJECT)
    with scene.refused():
        group.stage(*rows, fail_on_stale=True)
    assert group.stage(*rows).stale == 3, "onStaleReceipt=log"
    group.restart(plan)
    assert group.stage(said(10, 19, ACCEPT, 2), fail_on_stale=True).staged == 10, "the replay's rows"


@way_out(errors.TooManyRejects, "Fix the query and start it again; or raise the ratio")
def a_query_that_rejects_most(scene):
    group, plan = batch(200, **{"errors.deadletterqueue.max.reject.ratio": "0.5"})
    group.stage(said(0, 199, REJECT))
    asked = NextPlan(group_id="billing", member_id="m1", member_epoch=group.epochs["m1"], start=plan)
    with scene.refused():
        run_transaction(group, transactions.next_plan(asked, facts(group)))
    group.join()
    again = group.acquire(plan).plan.plan_id
    group.start(again)
    group.stage(said(0, 199, ACCEPT, 2))
    assert group.complete(again).too_many_rejects is None
    assert group.partition().start_offset == 200


@way_out(errors.AcknowledgementModeDiffers, "Set share.acknowledgement.mode=explicit on the source")
def a_sink_in_another_mode_than_its_source(scene):
    group, plan = batch(2, **IMPLICIT)
    with scene.refused():
        group.stage(said(0, 0, ACCEPT), acknowledgement_mode="explicit")
    group.join()
    group.start(plan, acknowledgement_mode="explicit")
    assert group.stage(said(0, 0, ACCEPT, 2), acknowledgement_mode="explicit").staged == 1


@way_out(
    errors.BatchNotNamed, "set outputOnReplay=replaces", "do not call sharegroup.acknowledge for a batch without rows"
)
def a_commit_without_rows_in_a_thread_of_its_own(scene):
    running = scene.running()
    plan = begin(running, **EXPLICIT)
    with scene.refused():
        stage(running)
    stage(running, replaces=True)
    stage(running, (0, 9, 1, ACCEPT))
    assert running.next(plan).plan_id == ""


@way_out(errors.NothingDecided, "write the rows with", "or set share.acknowledgement.mode=implicit")
def explicit_mode_without_a_sink(scene):
    group, plan = started_plan(3, **EXPLICIT)
    asked = NextPlan(group_id="billing", member_id="m1", member_epoch=group.epochs["m1"], start=plan)
    with scene.refused():
        run_transaction(group, transactions.next_plan(asked, facts(group)))
    group.run(AlterConfigs(configs=IMPLICIT))
    group.join()
    again = group.acquire(plan).plan.plan_id
    group.start(again)
    assert not group.complete(again).undecided
    assert states(group) == []


@way_out(errors.NeverDelivered, "Pass topic, partition, offset, deliveryCount and receipt to the sink")
def a_row_with_a_changed_offset(scene):
    group, _ = batch(10)
    with scene.refused():
        group.stage(said(1_000_000, 1_000_000, REJECT))
    assert group.stage(said(0, 9, REJECT)).staged == 10


@way_out(errors.NoneHeld, "Write the rows of a batch inside its query, with topic, partition, offset, deliveryCount")
def rows_of_an_earlier_batch(scene):
    group, _ = second_batch()
    with scene.refused():
        group.stage(said(2, 5, REJECT))
    assert group.stage(said(10, 19, REJECT)).staged == 10
