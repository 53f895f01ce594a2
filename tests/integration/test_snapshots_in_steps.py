"""A snapshot in steps on a real broker: whoever takes the group between two steps, or after the last one, has all."""

import pytest

from coordinator.core.looks.snapshot import GroupCut
from coordinator.core.record_codec import decode_record, encode_records
from coordinator.core.replay import replay
from coordinator.core.share_group import ShareGroup
from coordinator.service.stores.store import Append
from coordinator.state_log import group_log
from tests.kip932.consumers import ACCEPT, RELEASE, ShareConsumers, batch
from tests.support.group_driver import durable_state
from tests.support.state_records import TOPIC_ID
from tests.support.state_topics import taken

pytestmark = pytest.mark.broker

RUNS = 60


class Stored(ShareConsumers):
    """A group whose every command is an append to the state topic. c1 holds every second record."""

    topic_id = TOPIC_ID

    def __init__(self, store):
        self.store, self.tail = store, []
        super().__init__(end=RUNS, members=1)
        self.fetch("c1", RUNS)
        self.acknowledge_batches(*(batch(at, at, RELEASE) for at in range(0, RUNS, 2)))

    def append(self, records):
        records = tuple(records)
        super().append(records)
        if durable := [record for record in records if record.durable]:
            own = encode_records(durable)
            self.store.append({"billing": Append(self.group, durable, own)}, self.now_ms)
            self.tail += own

    def check_recovery(self):
        """The state topic is read instead."""

    def snapshot_in_steps(self):
        self.tail.clear()
        steps = (encode_records(records) for records in GroupCut(self.group).steps(4))
        return self.store.snapshot_in_steps(self.group, steps, self.tail, self.now_ms)


def loaded(store):
    group = ShareGroup("billing")
    for record in taken(store):
        group = group if record is not None else ShareGroup("billing")
        if record is not None:
            replay(group, decode_record(record))
    return group


@pytest.fixture
def group(open_at, monkeypatch):
    monkeypatch.setattr(group_log, "MOST_RUNS_AT_ONCE", 7)
    store = open_at("one")
    taken(store)
    return Stored(store)


@pytest.mark.slow
@pytest.mark.parametrize("taken_steps", [1, 6, 22])
def test_an_owner_that_dies_between_two_steps_leaves_all(group, open_at, taken_steps):
    steps = group.snapshot_in_steps()
    for number in range(taken_steps):
        next(steps)
        group.acknowledge(ACCEPT, 2 * number + 1)
    assert durable_state(loaded(open_at("two"))) == durable_state(group.group)


def test_the_whole_snapshot_has_all_that_came_between_its_steps(group, open_at, kafka):
    for number, _ in enumerate(group.snapshot_in_steps()):
        if number < RUNS // 2 - 1:
            group.acknowledge(ACCEPT, 2 * number + 1)
    assert number > 20
    group.acknowledge(ACCEPT, RUNS - 1)
    needed = group.store._needed["billing"]
    assert needed > 2, "nothing before the snapshot is needed"
    kafka.delete_records(group.store.topic.name, needed)
    assert durable_state(loaded(open_at("two"))) == durable_state(group.group)
