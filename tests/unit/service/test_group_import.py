"""An import creates a group in one append: sent twice, after a crash, and refused where there is no place for it."""

from __future__ import annotations

import msgspec
import pytest

from coordinator.config.resolved import ServerConfig
from coordinator.protocol.admin_messages import DeleteGroup, ImportGroup, PartitionPosition, PositionRun, ReadPosition
from coordinator.protocol.errors import (
    CoordinatorNotAvailable,
    GroupExists,
    InvalidImport,
    MaxGroupsReached,
    TopicNotAllowed,
    UnknownConfig,
    UnknownPartition,
    UnknownTopic,
)
from coordinator.protocol.messages import DescribeGroup
from coordinator.protocol.rights import Tokens
from coordinator.service.handlers.admin_requests import AdminService
from coordinator.service.requests import audit
from coordinator.service.requests.allow_lists import check_allowed
from coordinator.service.runtime.group_limits import GroupLimits
from tests.support import running_service
from tests.support.fake_cluster import cluster_with_orders
from tests.support.running_service import held

RUNS = (PositionRun(3, 4, "ACKNOWLEDGED", 1), PositionRun(6, 6, "AVAILABLE", 2))
AT_TWO = PartitionPosition(topic="orders", partition=0, start=2, runs=RUNS)
IMPORT = ImportGroup(group_id="billing", partitions=(AT_TWO,), execute=True, action_id="a1")
LEFT = {("orders", 0): [(2, 2), (5, 5), (6, 6), (7, 9)]}


@pytest.fixture
def running():
    with running_service.serving(cluster_with_orders(end=10)) as found:
        yield found


def delivered(running):
    running.join()
    return held(running.next())


def changed(request=IMPORT, **fields):
    return msgspec.structs.replace(request, **fields)


def test_the_group_goes_on_where_the_source_stood(running):
    dry = running.admin.handle(changed(execute=False))
    assert not dry.executed
    with pytest.raises(Exception, match="does not exist"):
        running.service.handle(DescribeGroup(group_id="billing"))
    done = running.admin.handle(changed(configs={"share.delivery.count.limit": "9"}))
    assert (done.executed, done.effects) == (True, dry.effects)
    assert running.service.handle(DescribeGroup(group_id="billing")).configs == {"share.delivery.count.limit": "9"}
    assert delivered(running) == LEFT


def test_an_import_that_is_sent_twice_is_carried_out_once(running):
    first = running.admin.handle(IMPORT)
    assert running.admin.handle(IMPORT) == first
    running.engine._forget("billing")  # another owner loads the group
    assert running.admin.handle(IMPORT) == first
    with pytest.raises(GroupExists):
        running.admin.handle(changed(action_id="a2"))
    with pytest.raises(GroupExists):
        running.admin.handle(changed(execute=False))
    assert delivered(running) == LEFT


@pytest.mark.parametrize("is_written", [True, False])
def test_a_crash_leaves_a_whole_group_or_none(running, is_written):
    running.store.fault = "doubt, written" if is_written else "doubt, not written"
    with pytest.raises(CoordinatorNotAvailable):
        running.admin.handle(IMPORT)
    again = changed(action_id="another person's")
    if is_written:
        with pytest.raises(GroupExists):
            running.admin.handle(again)
    else:
        running.admin.handle(again)
    assert delivered(running) == LEFT


def test_a_deleted_group_may_be_imported_anew(running):
    running.admin.handle(IMPORT)
    running.admin.handle(DeleteGroup(group_id="billing", execute=True, action_id="a2"))
    running.admin.handle(changed(action_id="a3"))
    assert delivered(running) == LEFT


def test_a_start_below_the_log_is_moved_and_said(running):
    running.cluster.move("orders", 10, start=4)
    done = running.admin.handle(IMPORT)
    (note,) = done.notes
    assert note == "orders-0: the log begins at 4 only, so the start is moved there from 2; what lay before is gone."
    assert delivered(running) == {("orders", 0): LEFT["orders", 0][1:]}


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"partitions": (changed(AT_TWO, start=11),)}, InvalidImport, "at offset 11, and the log ends at 10"),
        ({"partitions": (changed(AT_TWO, runs=(PositionRun(3, 10, "ARCHIVED"),)),)}, InvalidImport, "at offset 11"),
        ({"partitions": (changed(AT_TWO, topic_id="old"),)}, InvalidImport, "was deleted and created anew"),
        ({"partitions": ()}, InvalidImport, "no position in any topic"),
        ({"partitions": (AT_TWO, AT_TWO)}, InvalidImport, "is there twice"),
        ({"partitions": (changed(AT_TWO, runs=(PositionRun(3, 3, "ACQUIRED"),)),)}, InvalidImport, "is no state"),
        ({"partitions": (changed(AT_TWO, topic="nope"),)}, UnknownTopic, "nope"),
        ({"partitions": (changed(AT_TWO, partition=7),)}, UnknownPartition, "7"),
        ({"configs": {"share.nonsense": "1"}}, UnknownConfig, "share.nonsense"),
    ],
)
def test_what_this_cluster_can_not_take_is_refused(running, fields, error, words):
    with pytest.raises(error, match=words):
        running.admin.handle(changed(**fields))
    assert running.admin.handle(IMPORT).executed, "nothing of it is left"


def test_a_group_too_many_is_refused(running):
    limits = GroupLimits(ServerConfig.parse({"group.share.max.groups": "1"}), lambda: 1)
    admin = AdminService(running.runtime, running.cluster, None, running.watch.doubts, limits)
    with pytest.raises(MaxGroupsReached):
        admin.handle(IMPORT)


def test_a_token_imports_only_what_it_may_name():
    (_, caller), _ = Tokens.parse(
        f"admin ada:{'x' * 16} groups=bill.* topics=payments dlq=dead\nmember:{'y' * 16}", "the test"
    ).holders
    with pytest.raises(TopicNotAllowed):
        check_allowed(caller, IMPORT)
    with pytest.raises(TopicNotAllowed):
        check_allowed(caller, changed(partitions=(), configs={"errors.deadletterqueue.topic.name": "other"}))


def test_the_audit_log_names_partitions_and_no_runs(running, caplog):
    caplog.set_level("INFO", "sharegroup.audit")
    ((_, caller),) = Tokens.parse("x" * 16, "the test").holders
    audit.begun(caller, "here", IMPORT)
    audit.ended(caller, "here", IMPORT, running.admin.handle(IMPORT))
    begun, done = caplog.messages
    assert '"type":"ImportGroup"' in begun and '"start":2' in begun
    assert "ACKNOWLEDGED" not in begun + done
    assert "start 2, 2 done beyond it, 1 to deliver again" in done


def test_a_read_position_is_what_was_imported(running):
    running.admin.handle(IMPORT)
    (read,) = running.admin.handle(ReadPosition(group_id="billing")).partitions
    fresh = (PositionRun(2, 2, "AVAILABLE"), RUNS[0], PositionRun(5, 5, "AVAILABLE"), RUNS[1])
    assert (read.start, read.runs) == (2, fresh)
