"""KIP-1191, dead letter queues: a record that can't be processed is written to a topic before it is archived.

A test for each promise that the core and the service keep; its docstring names the KIP's section and says the promise
in our words, and where ours differs on purpose, how. What stands in a dead letter: ``tests/unit/test_dead_letter.py``.
ShareConsumers are meant unless a query is named.
"""

from __future__ import annotations

import pytest

from coordinator.config.resolved import GroupConfig
from coordinator.core.record_state import TERMINAL, TRANSITIONS, Event, RecordState, move
from coordinator.protocol.errors import (
    ConfigOutOfBounds,
    DeadLetterTopicMissing,
    DeadLetterTopicSubscribed,
    InvalidRecordState,
)
from coordinator.protocol.values import Disposition
from coordinator.service.dead_letters.topic_check import check_dead_letter_topic
from coordinator.state_log.projection import project
from tests.kip932.consumers import ACCEPT, GAP, LOCK_MS, REJECT, RELEASE, ShareConsumers
from tests.support.fake_cluster import FakeCluster
from tests.support.sink_driver import DLQ, batch, run_at, said, states

TOPIC = "errors.deadletterqueue.topic.name"


def with_queue(*, end: int = 10, **configs: object) -> ShareConsumers:
    """c1 holds all there is, of a group with a dead letter queue."""
    group = ShareConsumers(end=end, **configs)
    group.configure(errors_deadletterqueue_topic_name="dlq.orders", **configs)
    group.fetch("c1")
    return group


def tried(group: ShareConsumers, offset: int = 0, times: int = 1) -> None:
    """Released and acquired so often."""
    for count in range(1, times + 1):
        assert group.acknowledge(RELEASE, offset, count=count) == "NONE"
        group.fetch("c1")


# --- which records are dead letters


def test_a_rejected_record_is_a_dead_letter() -> None:
    """KIP-1191, Proposed Changes: a record that its consumer rejects is written to the dead letter queue."""
    group = with_queue()
    assert group.acknowledge(REJECT, 3) == "NONE"
    assert group.states() == ["0-2 ACQUIRED 1", "3 ARCHIVING 1", "4-9 ACQUIRED 1"]
    assert run_at(group, 3).disposition == Disposition.REJECTED


def test_a_record_released_at_the_delivery_limit_is_a_dead_letter() -> None:
    """KIP-1191, Proposed Changes: so is one that has been delivered as often as it may be."""
    group = with_queue(end=1)
    tried(group, times=4)
    assert group.acknowledge(RELEASE, 0, count=5) == "NONE"
    assert group.states() == ["0 ARCHIVING 5"]
    assert run_at(group, 0).disposition == Disposition.DELIVERY_LIMIT


def test_a_record_whose_lock_runs_out_at_the_delivery_limit_is_a_dead_letter() -> None:
    """KIP-1191, Proposed Changes: also where nobody said anything of it at its last delivery. Ours tells the two apart
    in a header."""
    group = with_queue(end=1)
    tried(group, times=4)
    group.wait(LOCK_MS + 1)
    assert group.states() == ["0 ARCHIVING 5"]
    assert run_at(group, 0).disposition == Disposition.EXPIRED


def test_below_the_delivery_limit_nothing_is_a_dead_letter() -> None:
    """KIP-1191, Proposed Changes: a record that may be delivered again is."""
    group = with_queue(end=1)
    tried(group, times=4)
    assert group.states() == ["0 ACQUIRED 5"]
    assert group.partition().archiving_count == 0


@pytest.mark.parametrize("outcome", [ACCEPT, GAP])
def test_what_was_processed_or_is_no_record_is_no_dead_letter(outcome: int) -> None:
    """KIP-1191, Proposed Changes: accepted records are done; at a gap there is no record to write."""
    group = with_queue(end=1)
    assert group.acknowledge(outcome, 0) == "NONE"
    assert (group.states(), group.window()) == ([], (1, 1))


def test_what_retention_took_is_no_dead_letter() -> None:
    """KIP-1191, Proposed Changes: a dead letter is of a record whose delivery failed; one that the log lost before that
    is archived as KIP-932 has it."""
    group = with_queue()
    group.acknowledge(RELEASE, 0, 9)
    group.move_log_start(6)
    assert group.states() == ["6-9 AVAILABLE 1"]
    assert group.partition().archiving_count == 0


def test_without_a_dead_letter_topic_records_are_archived_as_before() -> None:
    """KIP-1191, Compatibility, Deprecation, and Migration Plan: a group that names no dead letter topic behaves as in
    KIP-932."""
    group = ShareConsumers(end=2)
    group.fetch("c1")
    assert group.acknowledge(REJECT, 0, 1) == "NONE"
    assert (group.states(), group.window()) == ([], (2, 2))
    assert group.partition().archived_total == 2


def test_a_dead_letter_queue_is_the_groups_and_can_be_set_at_any_time() -> None:
    """KIP-1191, Public Interfaces: the topic is a dynamic configuration of the group; it holds for what is given up
    from then on."""
    group = ShareConsumers(end=2)
    group.fetch("c1")
    group.acknowledge(REJECT, 1)
    group.configure(errors_deadletterqueue_topic_name="dlq.orders")
    group.acknowledge(REJECT, 0)
    assert group.states() == ["0 ARCHIVING 1", "1 ARCHIVED 1"]


# --- the state between


def test_archiving_has_the_protocols_number() -> None:
    """KIP-1191, Proposed Changes: the state lies between Acknowledged (2) and Archived (4)."""
    assert int(RecordState.ARCHIVING) == 3
    assert RecordState.ARCHIVING not in TERMINAL


@pytest.mark.parametrize("event", list(Event), ids=lambda event: event.name)
def test_from_archiving_a_record_can_only_be_archived(event: Event) -> None:
    """KIP-1191, Proposed Changes: it was given up, and nothing takes that back; when its dead letter is dealt with, it
    is Archived."""
    if event == Event.FILE:
        assert move(RecordState.ARCHIVING, event) == RecordState.ARCHIVED
    else:
        with pytest.raises(InvalidRecordState):
            move(RecordState.ARCHIVING, event)
    assert [before for (before, what) in TRANSITIONS if what == Event.FILE] == [RecordState.ARCHIVING]


def test_an_archiving_record_is_never_delivered() -> None:
    """KIP-1191, Proposed Changes: a record that is being written to the dead letter queue is not available."""
    group = with_queue()
    group.acknowledge(REJECT, 0, 9)
    assert group.fetch("c2") == []
    group.wait(10 * LOCK_MS)
    assert group.states() == ["0-9 ARCHIVING 1"]


def test_an_archiving_record_is_no_longer_its_consumers() -> None:
    """KIP-1191, Proposed Changes: with the rejection its lock is gone; another outcome for it is refused."""
    group = with_queue()
    group.acknowledge(REJECT, 0, 9)
    assert group.held() == []
    assert group.acknowledge(ACCEPT, 0) == "INVALID_RECORD_STATE"
    assert group.states() == ["0-9 ARCHIVING 1"]


def test_the_start_offset_waits_for_the_dead_letter() -> None:
    """KIP-1191, Proposed Changes: the record is in flight until it is Archived, so SPSO does not pass it. Others flow
    on: ours counts locks and not the width of the window (Kafka: also the in-flight records)."""
    group = with_queue(share_partition_max_record_locks=100)
    group.acknowledge(REJECT, 0, 2)
    group.acknowledge(ACCEPT, 3, 9)
    group.ends[0] = 110
    assert group.window() == (0, 10)
    assert group.fetch("c1") == [(10, 109, 1)]
    group.file(0, 1)
    assert group.window()[0] == 2
    group.file(2, 2)
    assert group.window()[0] == 10


def test_an_archiving_record_is_lag_until_it_is_archived() -> None:
    """KIP-1191, Proposed Changes, and KIP-1226: it is not counted as delivery complete before it is Archived."""
    group = with_queue()
    group.acknowledge(REJECT, 4, 5)
    group.acknowledge(ACCEPT, 6, 9)
    assert group.partition().delivery_complete_count == 4
    assert group.describe().partitions[0].lag == 6
    group.file(5, 5)
    assert group.describe().partitions[0].lag == 5


def test_an_archiving_record_keeps_its_delivery_count() -> None:
    """KIP-1191, Public Interfaces: the dead letter tells how often the record was delivered."""
    group = with_queue(end=1)
    tried(group, times=2)
    group.acknowledge(REJECT, 0, count=3)
    group.crash()
    assert group.states() == ["0 ARCHIVING 3"]
    group.file(0, 0, count=3)
    assert (group.window(), group.partition().archived_total) == ((1, 1), 1)


def test_the_state_log_says_archiving() -> None:
    """KIP-1191, Public Interfaces: share-group state has the state as any other, with SPSO below it."""
    group = with_queue()
    group.acknowledge(ACCEPT, 0, 3)
    group.acknowledge(REJECT, 4, 5)
    projection = project(group.partition())
    assert projection.start_offset == 4
    assert [tuple(found) for found in projection.state_batches] == [(4, 5, RecordState.ARCHIVING, 1)]
    assert projection.delivery_complete_count == 0


# --- failures


def test_after_a_crash_the_dead_letters_that_wait_are_known() -> None:
    """KIP-1191, Proposed Changes: whoever leads the share partition next resumes the writing of what is Archiving. Ours
    knows the cause too, which Kafka infers from the delivery count."""
    group = with_queue(end=1)
    tried(group, times=4)
    group.acknowledge(REJECT, 0, count=5)
    group.crash()
    assert list(group.partition().runs.archiving) == [0]
    assert run_at(group, 0).disposition == Disposition.REJECTED, "at the limit, and still a rejection"


def test_a_dead_letter_that_is_known_twice_archives_once() -> None:
    """KIP-1191, Proposed Changes: in rare cases a record has more than one dead letter, as the two topics are not
    written as one. That changes nothing for the group."""
    group = with_queue()
    group.acknowledge(REJECT, 0, 4)
    group.file(0, 4)
    group.file(0, 4)
    assert (group.window()[0], group.partition().archived_total) == (5, 5)


def test_a_dead_letter_is_written_also_when_retention_took_the_record() -> None:
    """KIP-1191, Proposed Changes: without the record's data then."""
    group = with_queue()
    group.acknowledge(REJECT, 0, 4)
    group.move_log_start(8)
    assert group.states()[0] == "0-4 ARCHIVING 1"
    group.file(0, 4)
    assert group.states() == ["5-9 ACQUIRED 1"], "what its consumer still holds is its to decide"


def test_what_is_archiving_when_the_queue_is_switched_off_is_not_forgotten() -> None:
    """KIP-1191, Proposed Changes: it was given up under a dead letter queue, and has yet to become Archived."""
    group = with_queue(end=2)
    group.acknowledge(REJECT, 0)
    group.configure(errors_deadletterqueue_topic_name="")
    group.acknowledge(REJECT, 1)
    assert group.states() == ["0 ARCHIVING 1", "1 ARCHIVED 1"]
    group.file(0, 0)
    assert group.window() == (2, 2)


# --- configuration


@pytest.mark.parametrize(
    ("key", "default"),
    [
        (TOPIC, ""),
        ("errors.deadletterqueue.copy.record.enable", True),
        ("errors.deadletterqueue.auto.create.topics.enable", False),
    ],
)
def test_configs_have_the_kips_names_and_defaults(key: str, default: object) -> None:
    """KIP-1191, Public Interfaces: their names and defaults. Ours copies the record unless told not to (Kafka: false),
    since a letter without it can't be redriven."""
    assert getattr(GroupConfig.parse(), key.replace(".", "_")) == default


@pytest.mark.parametrize("name", ["__dlq", "__consumer_offsets", "a b", "x" * 250])
def test_a_dead_letter_topic_is_no_internal_topic(name: str) -> None:
    """KIP-1191, Public Interfaces: its name does not begin with two underscores, and is a topic's name."""
    with pytest.raises(ConfigOutOfBounds):
        GroupConfig.parse({TOPIC: name})


def test_a_missing_dead_letter_topic_is_made_only_where_that_is_allowed() -> None:
    """KIP-1191, Public Interfaces, auto-creation: off by default. Ours says what is missing when a query or a sink
    starts, not at the first dead letter."""
    cluster = FakeCluster()
    with pytest.raises(DeadLetterTopicMissing):
        check_dead_letter_topic(cluster, GroupConfig.parse(DLQ), ())
    allowed = {**DLQ, "errors.deadletterqueue.auto.create.topics.enable": "true"}
    assert check_dead_letter_topic(cluster, GroupConfig.parse(allowed), ()) == 1


def test_a_group_does_not_deliver_its_own_dead_letters() -> None:
    """KIP-1191, Proposed Changes; ours: a dead letter queue that its own group subscribes to would be a circle."""
    cluster = FakeCluster()
    cluster.add("dlq.orders")
    with pytest.raises(DeadLetterTopicSubscribed):
        check_dead_letter_topic(cluster, GroupConfig.parse(DLQ), ("orders", "dlq.orders"))


# --- queries


def test_a_querys_rejected_rows_are_dead_letters_when_its_batch_is_committed() -> None:
    """KIP-1191, Proposed Changes; ours: what a sink rejects is given up with its batch. A letter that the sink wrote
    itself precedes that."""
    group, plan = batch(3, **DLQ)
    group.stage(said(0, 0, REJECT, reason="no customer"), said(1, 1, REJECT, letter=True))
    assert states(group) == ["[0..2] ACQUIRED 1"]
    group.complete(plan)
    assert states(group) == ["[0..0] ARCHIVING 1", "[1..1] ARCHIVED 1", "[2..2] ACKNOWLEDGED 1"]
