"""DeleteGroup and DeleteOffsets in a crash: before the append, after it, and before the answer. All of it or nothing,
and no record of a group that lives is lost."""

import contextlib
import itertools
import tempfile
from pathlib import Path

import pytest

from coordinator.core.commands import ArchiveDeletedTopics, Expire, InitializePartitions, PartitionStart, TopicWithId
from coordinator.core.commands.forget import SWEEP_MS
from coordinator.protocol.admin_messages import DeleteGroup, DeleteOffsets
from coordinator.protocol.errors import CoordinatorNotAvailable, GroupIdNotFound, MembersNotKnown, UnknownSharePartition
from coordinator.protocol.messages import DescribeGroup, LeaveGroup, PartitionBounds
from coordinator.service.handlers.admin_actions import delete_offsets
from coordinator.service.runtime.transaction import Access, one
from coordinator.service.runtime.transactions import join as join_transaction
from coordinator.service.runtime.transactions import single_command
from coordinator.service.stores.store import StoreRefused
from tests.support.faulty_store import Died
from tests.support.group_driver import durable_state
from tests.support.runtime_service import RECORDS, Service, acquire, complete, join, start_plan

FAULTS = ["refuse", "doubt, not written", "doubt, written", "die before the append", "die after the append"]
NOW = {"group_id": "billing", "execute": True}
ACTIONS = {
    "group": lambda: single_command(DeleteGroup(**NOW)),
    "offsets": lambda: delete_offsets(DeleteOffsets(**NOW, topics=("orders", "mails"))),
}
DONE_BEFORE = (GroupIdNotFound, UnknownSharePartition)
"""The answers to a deletion whose first answer was lost."""
MAILS = tuple(PartitionBounds(topic_id="M", partition=index, log_start=0, end=RECORDS) for index in (0, 1))


class Groups(Service):
    """`billing` has completed a batch, and another one came back when its member left; `shipping` is at work."""

    def __init__(self, path, **options):
        super().__init__(path, **options)
        self.create()
        self.begin_mails()
        self.ask(acquire())
        self.ask(start_plan("i.1"))
        self.ask(complete("i.1"))
        self.ask(acquire("i.1"))
        self.ask(LeaveGroup(group_id="billing", member_id="m1", member_epoch=1))
        self.create("shipping")
        self.ask(acquire(), "shipping")

    def begin_mails(self):
        starts = tuple(PartitionStart(topic_id="M", partition=index, start_offset=0) for index in (0, 1))
        self.ask(InitializePartitions(topics=(TopicWithId(topic="mails", topic_id="M"),), starts=starts))

    def die(self):
        super().die()
        self.now_ms += 1

    def state(self, group_id="billing"):
        """The state as another coordinator would load it."""

        def look(group):
            yield from ()
            return durable_state(group)

        return self.play(look, group_id)

    def answered(self, action):
        """The action, asked again until there is an answer, as a person does."""
        for _ in range(10):
            try:
                return self.play(action())
            except CoordinatorNotAvailable:
                self.now_ms += 2_000
            except MembersNotKnown as error:
                self.now_ms += error.fields["wait_ms"]
            except Died:
                self.die()
            except DONE_BEFORE:
                return None
        raise AssertionError("no answer")


@pytest.fixture
def groups(tmp_path):
    groups = Groups(tmp_path / "state.db")
    yield groups
    groups.store.close()


def after(action, tmp_path):
    """The state after the action where nothing fails."""
    undisturbed = Groups(tmp_path / "undisturbed.db")
    undisturbed.play(action())
    state = undisturbed.state()
    undisturbed.store.close()
    return state


def crash_in(groups, action, fault):
    """The first answer never comes, and another coordinator loads the groups."""
    groups.store.fault = fault
    with pytest.raises((CoordinatorNotAvailable, Died)):
        groups.play(action())
    groups.die()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ACTIONS)
def test_a_crash_in_a_deletion_applies_the_whole_deletion_or_nothing(groups, tmp_path, name, fault):
    before, shipping = groups.state(), groups.state("shipping")
    is_written = fault in ("doubt, written", "die after the append")
    crash_in(groups, ACTIONS[name], fault)
    assert groups.state() == (after(ACTIONS[name], tmp_path) if is_written else before)
    assert groups.state("shipping") == shipping, "another group is as it was"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_group_recreated_after_a_crash_in_its_deletion_begins_empty(groups, fault):
    crash_in(groups, ACTIONS["group"], fault)
    groups.answered(ACTIONS["group"])
    assert groups.state() == []
    groups.create()
    begun = groups.ask(acquire(limit=RECORDS)).plan.partitions
    assert [(r.first, r.last, r.delivery_count) for r in begun[0].ranges] == [(0, RECORDS - 1, 1)]
    kept = groups.state()
    groups.die()
    assert groups.state() == kept, "nothing of the deletion reaches the new group"


@pytest.mark.parametrize("fault", FAULTS)
def test_offsets_initialized_after_a_crash_in_their_deletion_deliver_all_records(groups, fault):
    crash_in(groups, ACTIONS["offsets"], fault)
    groups.answered(ACTIONS["offsets"])
    groups.ask(join("m2", "p2"))
    orders = (TopicWithId(topic="orders", topic_id="T"),)
    groups.ask(InitializePartitions(topics=orders, starts=(PartitionStart(topic_id="T", partition=0, start_offset=0),)))
    groups.begin_mails()
    found, start = {}, ""
    for _ in range(5):
        plan = groups.ask(_more(start)).plan
        if not plan.plan_id:
            break
        for part in plan.partitions:
            for first, last, count in part.ranges:
                found |= {(part.topic, part.partition, offset): count for offset in range(first, last + 1)}
        start = plan.plan_id
        groups.ask(_of_m2(start_plan(start)))
        groups.ask(_of_m2(complete(start)))
    assert len(found) == 3 * RECORDS, "every record is delivered again"
    assert all(found["orders", 0, offset] > 1 for offset in range(200)), "no receipt of before fits"


def test_a_group_outlives_the_late_clean_up_of_its_predecessor(tmp_path):
    """The deletion is in the log, and the coordinator died, or the store failed, before the log was cut."""
    groups = Groups(tmp_path / "state.db", snapshot_after=1)
    groups.store.snapshot_fault = StoreRefused("no room")
    groups.play(ACTIONS["group"]())
    groups.create()
    groups.ask(acquire())
    kept = groups.state()
    groups.die()
    assert groups.state() == kept, "both groups are in the log"
    groups.ask(join(epoch=1))
    groups.ask(start_plan("i.1"))
    kept = groups.state()
    assert groups.store.snapshots, "the log is cut now"
    groups.die()
    assert groups.state() == kept
    groups.store.close()


REQUESTS = {
    "a join": lambda: join_transaction(join("m2", "p2"), topic_ids=True, starts={}),
    "a forced deletion": lambda: single_command(DeleteGroup(**NOW, force=True)),
    "a look": lambda: one(DescribeGroup(group_id="billing")),
}


def test_a_request_in_the_round_of_a_deletion_finds_the_deleted_group():
    """The log has the deletion only after the round: a load in it would bring the deleted group back into memory."""
    for what, access in itertools.product(REQUESTS, Access):
        with tempfile.TemporaryDirectory() as folder:
            groups = Groups(Path(folder) / "state.db")
            deletion = groups.runtime.submit("billing", ACTIONS["group"]())
            after_it = groups.runtime.submit("billing", REQUESTS[what](), access)
            while groups.runtime.has_waiting:
                groups.runtime.step(groups.now_ms)
            assert deletion.result(0).executed
            if what == "a join":
                assert after_it.result(0).created
                assert (set(groups.group.members), groups.group.partitions) == ({"m2"}, {})
                served = groups.state()
                groups.die()
                assert groups.state() == served, "memory is the log's"
            elif what == "a look":
                assert after_it.result(0).state == "DEAD"
            else:
                assert isinstance(after_it.exception(0), GroupIdNotFound)
            groups.store.close()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_crash_while_a_deleted_topic_is_forgotten_keeps_its_counts(groups, fault):
    gone = ArchiveDeletedTopics(topic_ids=("M",), ends=tuple(PartitionStart("M", index, 700) for index in (0, 1)))
    groups.ask(gone)
    before = groups.group.totals()
    assert before[0].deleted == 1_400
    groups.now_ms += SWEEP_MS + 1
    groups.store.fault = fault
    with contextlib.suppress(CoordinatorNotAvailable, Died):
        groups.ask(Expire())
    groups.die()
    is_written = fault in ("doubt, written", "die after the append")
    forgotten = groups.ask(DescribeGroup(group_id="billing")).forgotten
    assert groups.group.totals() == before
    assert forgotten == ({"mails": {"0": 700, "1": 700}} if is_written else {})
    groups.ask(Expire())
    assert {key.topic_id for key in groups.group.partitions} == {"T"}
    assert groups.group.totals() == before
    kept = groups.state()
    groups.die()
    assert groups.state() == kept


def _more(start):
    bounds = (PartitionBounds(topic_id="T", partition=0, log_start=0, end=RECORDS), *MAILS)
    return _of_m2(acquire(start, limit=10 * RECORDS), bounds=bounds)


def _of_m2(command, **fields):
    return type(command)(**{**{n: getattr(command, n) for n in command.__struct_fields__}, "member_id": "m2", **fields})
