"""KIP-932, records: their states, locks and delivery counts, and how a share partition moves over its log.

One test for each promise, named for it; its docstring names the KIP's section and says the promise in our words, and
where ours differs on purpose, how. ShareConsumers are meant unless a query is named. The rest of the KIP:
``test_kip932_acknowledge.py``, ``test_kip932_groups.py``, and its worked example in ``kip932/``.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from coordinator.core.record_state import Event, RecordState, move
from coordinator.protocol.errors import InvalidRecordState
from coordinator.protocol.values import AcknowledgeType
from tests.kip932.consumers import ACCEPT, GAP, LOCK_MS, REJECT, RELEASE, ShareConsumers, batch

S, E = RecordState, Event
STATES = (S.AVAILABLE, S.ACQUIRED, S.ACKNOWLEDGED, S.ARCHIVED)
EVENTS = (E.ACQUIRE, E.ACCEPT, E.RELEASE, E.REJECT, E.GAP, E.LOSE_LOCK, E.LIMIT)
MOVES = {
    (S.AVAILABLE, E.ACQUIRE): S.ACQUIRED,
    (S.ACQUIRED, E.ACCEPT): S.ACKNOWLEDGED,
    (S.ACQUIRED, E.RELEASE): S.AVAILABLE,
    (S.ACQUIRED, E.REJECT): S.ARCHIVING,
    (S.ACQUIRED, E.GAP): S.ARCHIVED,
    (S.ACQUIRED, E.LOSE_LOCK): S.AVAILABLE,
    (S.ACQUIRED, E.LIMIT): S.ARCHIVING,
    (S.AVAILABLE, E.RELEASE): S.AVAILABLE,
    (S.AVAILABLE, E.REJECT): S.ARCHIVING,
}
"""Archived is reached by way of ARCHIVING, in one step where no dead letter is wanted (KIP-1191). The last two are
ours: a query whose lock ran out, and whose records nobody took, completes its batch all the same."""


def release(group: ShareConsumers, count: int) -> None:
    assert group.acknowledge(RELEASE, 0, count=count) == "NONE"


def lose_the_lock(group: ShareConsumers, count: int) -> None:
    group.wait(LOCK_MS + 1)


def give_up(group: ShareConsumers, count: int) -> None:
    group.leave()
    group.join("c1", query=False)


FAILURES = [release, lose_the_lock, give_up]
each_failure = pytest.mark.parametrize("fail", FAILURES, ids=lambda fail: fail.__name__)
Failure = Callable[[ShareConsumers, int], None]

# --- states


@pytest.mark.parametrize(("state", "event"), list(product(STATES, EVENTS)), ids=lambda value: value.name)
def test_a_record_moves_only_as_the_states_let_it(state: RecordState, event: Event) -> None:
    """KIP-932, In-flight records: from Available a ShareConsumer can only acquire a record; from Acquired it is
    acknowledged, available again, or archived; nothing leaves the last two. Anything else is refused and changes
    nothing."""
    if (state, event) in MOVES:
        assert move(state, event) == MOVES[state, event]
    else:
        with pytest.raises(InvalidRecordState):
            move(state, event)


def test_states_and_acknowledge_types_have_the_protocols_numbers() -> None:
    """KIP-932, Share-group state records and ShareAcknowledge API: the bytes by which states and types are known."""
    assert {state.name: int(state) for state in STATES} == {
        "AVAILABLE": 0,
        "ACQUIRED": 1,
        "ACKNOWLEDGED": 2,
        "ARCHIVED": 4,
    }
    assert [(t.name, int(t)) for t in AcknowledgeType][:4] == [("GAP", 0), ("ACCEPT", 1), ("RELEASE", 2), ("REJECT", 3)]


def test_an_acquired_record_is_nobody_elses() -> None:
    """KIP-932, In-flight records: while one consumer has a record acquired, no other is given it."""
    group = ShareConsumers(end=10)
    assert group.fetch("c1") == [(0, 9, 1)]
    assert group.fetch("c2") == []
    assert group.held() == ["0-9 c1"]


def test_consumers_share_one_partition() -> None:
    """KIP-932, Share groups: several consumers work on a partition at once, each on records of its own."""
    group = ShareConsumers(end=25)
    assert [group.fetch(member, 10) for member in ("c1", "c2", "c3")] == [[(0, 9, 1)], [(10, 19, 1)], [(20, 24, 1)]]


def test_an_accepted_record_is_done() -> None:
    """KIP-932, In-flight records: what its consumer accepts is Acknowledged, and never delivered again."""
    group = ShareConsumers(end=3)
    group.fetch()
    assert group.acknowledge(ACCEPT, 1) == "NONE"
    assert group.states() == ["0 ACQUIRED 1", "1 ACKNOWLEDGED 1", "2 ACQUIRED 1"]
    group.wait(LOCK_MS + 1)
    assert group.fetch("c2") == [(0, 0, 2), (2, 2, 2)]


def test_a_released_record_is_available_at_once() -> None:
    """KIP-932, In-flight records: a record that its consumer gives back can be acquired again, by anybody; that is its
    next delivery."""
    group = ShareConsumers(end=3)
    group.fetch()
    assert group.acknowledge(RELEASE, 1) == "NONE"
    assert group.states() == ["0 ACQUIRED 1", "1 AVAILABLE 1", "2 ACQUIRED 1"]
    assert group.fetch("c2") == [(1, 1, 2)]


def test_a_rejected_record_is_archived() -> None:
    """KIP-932, In-flight records: what its consumer rejects is Archived at its first delivery already, and never
    delivered again."""
    group = ShareConsumers(end=3)
    group.fetch()
    assert group.acknowledge(REJECT, 1) == "NONE"
    assert group.states() == ["0 ACQUIRED 1", "1 ARCHIVED 1", "2 ACQUIRED 1"]
    group.wait(LOCK_MS + 1)
    assert group.fetch("c2") == [(0, 0, 2), (2, 2, 2)]


# --- acquisition locks


def test_a_lock_lasts_for_the_lock_duration_and_no_longer() -> None:
    """KIP-932, In-flight records: a record whose consumer neither acknowledges it nor comes back is available again
    when its lock is over: after share.record.lock.duration.ms, 30 s by default."""
    group = ShareConsumers(end=10)
    group.fetch()
    group.wait(LOCK_MS)
    assert group.states() == ["0-9 ACQUIRED 1"]
    group.pass_time(1)
    assert group.states() == ["0-9 AVAILABLE 1"]
    assert group.fetch("c2") == [(0, 9, 2)]


def test_each_delivery_has_a_lock_of_its_own() -> None:
    """KIP-932, In-flight records: a lock is timed from its own acquisition; what was fetched later is held longer."""
    group = ShareConsumers(end=20)
    group.fetch("c1", 10)
    group.wait(1_000)
    group.fetch("c1", 10)
    group.wait(LOCK_MS - 999)
    assert group.states() == ["0-9 AVAILABLE 1", "10-19 ACQUIRED 1"]


def test_another_lock_duration_holds_from_the_next_acquisition_on() -> None:
    """KIP-932, Group configuration: the duration can be altered at any time; locks that run keep theirs."""
    group = ShareConsumers(end=20)
    group.fetch("c1", 10)
    group.configure(share_record_lock_duration_ms=2 * LOCK_MS)
    group.fetch("c1", 10)
    group.wait(LOCK_MS + 1)
    assert group.states() == ["0-9 AVAILABLE 1", "10-19 ACQUIRED 1"]
    group.wait(LOCK_MS)
    assert group.states() == ["0-19 AVAILABLE 1"]


def test_an_acknowledgement_after_the_lock_is_refused() -> None:
    """KIP-932, In-flight records: who comes too late has lost the record, also while nobody else has taken it."""
    group = ShareConsumers(end=10)
    group.fetch()
    group.wait(LOCK_MS + 1)
    assert group.acknowledge(ACCEPT, 0, 9) == "INVALID_RECORD_STATE"
    assert group.states() == ["0-9 AVAILABLE 1"]


def test_an_acknowledgement_of_an_older_delivery_is_refused() -> None:
    """KIP-932, In-flight records: an acknowledgement is for a record that its sender holds now. Ours asks for more: it
    names the delivery count, so that a consumer which lost a record and was given it again can't end the new delivery
    by what it knows of the old."""
    group = ShareConsumers(end=10)
    group.fetch("c1")
    group.wait(LOCK_MS + 1)
    assert group.fetch("c1") == [(0, 9, 2)]
    assert group.acknowledge(ACCEPT, 0, 9, count=1) == "INVALID_RECORD_STATE"
    assert group.states() == ["0-9 ACQUIRED 2"]
    assert group.acknowledge(ACCEPT, 0, 9, count=2) == "NONE"


def test_only_its_holder_acknowledges_a_record() -> None:
    """KIP-932, In-flight records: an acknowledgement by a member that does not hold the record is refused."""
    group = ShareConsumers(end=10)
    group.fetch("c1")
    assert group.acknowledge(ACCEPT, 0, 9, member="c2") == "INVALID_RECORD_STATE"
    assert group.held() == ["0-9 c1"]


def test_the_lock_duration_does_not_end_a_querys_locks() -> None:
    """KIP-932, In-flight records: ours differs for Spark's queries. Their locks live as long as their session, so that
    a long batch keeps its records."""
    group = ShareConsumers(end=10)
    group.join("q")
    group.acquire(member="q")
    group.wait(10 * LOCK_MS)
    assert group.states() == ["0-9 ACQUIRED 1"]


# --- delivery count and limit


@each_failure
def test_a_delivery_raises_the_count_and_nothing_lowers_it(fail: Failure) -> None:
    """KIP-932, In-flight records: the count rises when a record is acquired, and stays when the delivery fails."""
    group = ShareConsumers(end=1)
    assert group.fetch() == [(0, 0, 1)]
    fail(group, 1)
    assert group.states() == ["0 AVAILABLE 1"]
    assert group.fetch() == [(0, 0, 2)]


@each_failure
def test_a_record_is_archived_when_its_last_delivery_fails(fail: Failure) -> None:
    """KIP-932, In-flight records: share.delivery.count.limit says how often a record is delivered. The delivery that
    reaches it takes place; when it fails too, the record is Archived. Ours counts what failed or was released, so
    that an acquisition which nobody read costs nothing; for ShareConsumers both are the same."""
    group = ShareConsumers(end=1, share_delivery_count_limit=3)
    for count in (1, 2, 3):
        assert group.fetch() == [(0, 0, count)]
        fail(group, count)
    assert group.fetch() == []
    assert (group.window(), group.describe().partitions[0].archived_total) == ((1, 1), 1)


def test_the_limit_is_five_deliveries_by_default() -> None:
    """KIP-932, Broker configuration: five deliveries, if nothing else is said."""
    group = ShareConsumers(end=1)
    for count in range(1, 6):
        assert group.fetch() == [(0, 0, count)]
        release(group, count)
    assert group.fetch() == []


def test_the_last_delivery_can_succeed() -> None:
    """KIP-932, In-flight records: the limit is judged when a delivery fails, not when it begins."""
    group = ShareConsumers(end=1, share_delivery_count_limit=2)
    group.fetch()
    release(group, 1)
    assert group.fetch() == [(0, 0, 2)]
    assert group.acknowledge(ACCEPT, 0, count=2) == "NONE"
    assert (group.window(), group.describe().partitions[0].archived_total) == ((1, 1), 0)


def test_no_count_of_failures_archives_a_querys_record() -> None:
    """KIP-932, In-flight records: ours differs for Spark's queries. At the limit their record is set aside, to be
    delivered alone, since a batch that fails says nothing of each record in it; only a failed trial archives it."""
    group = ShareConsumers(end=1, share_delivery_count_limit=2)
    group.join("q")
    number = group.acquire(member="q").plan.plan_id
    group.use(number, "q")
    for _ in range(2):
        group.restart(number, "q")
    assert group.states() == ["0 AVAILABLE 2"]
    assert group.describe().partitions[0].runs[0]["quarantined"]


# --- SPSO and SPEO


def test_the_window_begins_empty() -> None:
    """KIP-932, In-flight records: SPSO and SPEO begin at the start offset, with nothing between them."""
    assert ShareConsumers(start=40).window() == (40, 40)


def test_the_end_offset_moves_with_fresh_records() -> None:
    """KIP-932, In-flight records: SPEO moves when records are acquired that never were before, and only then."""
    group = ShareConsumers()
    group.fetch("c1", 10)
    assert group.window() == (0, 10)
    group.acknowledge(RELEASE, 0, 9)
    group.fetch("c2", 10)
    assert group.window() == (0, 10)


def test_the_start_offset_moves_over_what_is_done_and_stops_at_what_is_not() -> None:
    """KIP-932, In-flight records: SPSO is the first offset that is neither Acknowledged nor Archived; it moves over
    all that became so in a row. Nothing in between is forgotten meanwhile."""
    group = ShareConsumers(end=10)
    group.fetch()
    group.acknowledge(ACCEPT, 3, 5)
    group.acknowledge(REJECT, 6)
    assert (group.window(), group.states()) == (
        (0, 10),
        ["0-2 ACQUIRED 1", "3-5 ACKNOWLEDGED 1", "6 ARCHIVED 1", "7-9 ACQUIRED 1"],
    )
    group.acknowledge(ACCEPT, 0, 2)
    assert (group.window(), group.states()) == ((7, 10), ["7-9 ACQUIRED 1"])
    group.acknowledge(RELEASE, 7)
    group.acknowledge(ACCEPT, 8, 9)
    assert group.window() == (7, 10)


def test_an_empty_window_stands_at_its_end() -> None:
    """KIP-932, In-flight records: when everything is done SPSO has reached SPEO, and the next records are fresh."""
    group = ShareConsumers()
    group.fetch("c1", 10)
    group.acknowledge(ACCEPT, 0, 9)
    assert (group.window(), group.states()) == ((10, 10), [])
    assert group.fetch("c1", 10) == [(10, 19, 1)]


def test_what_came_back_is_delivered_before_what_is_fresh() -> None:
    """KIP-932, In-flight records: a fetch looks for Available records from SPSO on, in offset order, and goes on past
    SPEO only for the rest."""
    group = ShareConsumers()
    group.fetch("c1", 10)
    group.acknowledge(RELEASE, 7)
    group.acknowledge(RELEASE, 2)
    assert group.fetch("c2", 4) == [(2, 2, 2), (7, 7, 2), (10, 11, 1)]


# --- the limit on record locks


def test_a_partition_has_no_more_records_acquired_than_the_limit() -> None:
    """KIP-932, In-flight records: share.partition.max.record.locks bounds what is acquired in a partition, over all
    consumers; what ends a lock makes room."""
    group = ShareConsumers(end=500, share_partition_max_record_locks=100)
    assert group.fetch("c1", 80) == [(0, 79, 1)]
    assert group.fetch("c2", 80) == [(80, 99, 1)]
    assert group.fetch("c3", 80) == []
    group.acknowledge(ACCEPT, 0, 9)
    assert group.fetch("c3", 80) == [(100, 109, 1)]


def test_a_stuck_record_does_not_stall_its_partition() -> None:
    """KIP-932, In-flight records: ours differs. The limit counts records that are Acquired; Kafka's counts the offsets
    from SPSO to SPEO, so that one record which is never done stops its partition there."""
    group = ShareConsumers(end=500, share_partition_max_record_locks=100)
    group.fetch("c1", 100)
    group.acknowledge(ACCEPT, 1, 99)
    assert group.fetch("c2", 500) == [(100, 198, 1)]
    assert group.window() == (0, 199)


def test_the_limit_is_a_partitions_own() -> None:
    """KIP-932, In-flight records: a partition that is full leaves the others of the group alone."""
    group = ShareConsumers(end=500, partitions=2, share_partition_max_record_locks=100)
    assert group.fetch("c1", 500) == [(0, 99, 1), (0, 99, 1)]


# --- fetching


def test_what_is_acquired_is_told_in_ranges_of_one_delivery_count() -> None:
    """KIP-932, ShareFetch API: AcquiredRecords are ranges; neighbours of one count are one, others are apart."""
    group = ShareConsumers(end=12)
    group.fetch("c1", 10)
    group.acknowledge(RELEASE, 0, 1)
    group.acknowledge(RELEASE, 2, 3)
    group.acknowledge(RELEASE, 9)
    assert group.fetch("c2") == [(0, 3, 2), (9, 9, 2), (10, 11, 1)]


def test_a_fetch_with_nothing_to_give_is_empty_and_writes_nothing() -> None:
    """KIP-932, ShareFetch API: an empty answer is no error."""
    group = ShareConsumers(end=0)
    written = len(group.log)
    assert (group.fetch(), group.window(), len(group.log)) == ([], (0, 0), written)


# --- the log


def test_the_start_offset_follows_the_log_start() -> None:
    """KIP-932, Log retention: SPSO is never below the log's first offset; Available records below are Archived."""
    group = ShareConsumers(end=20)
    group.fetch("c1", 10)
    group.acknowledge(RELEASE, 0, 9)
    group.move_log_start(4)
    assert (group.window(), group.states()) == ((4, 10), ["4-9 AVAILABLE 1"])
    assert group.describe().partitions[0].archived_total == 4


def test_a_log_start_beyond_the_window_moves_all_of_it() -> None:
    """KIP-932, Log retention: a log that lost more than was ever delivered is delivered from its first offset on."""
    group = ShareConsumers(end=60)
    group.fetch("c1", 10)
    group.acknowledge(RELEASE, 0, 9)
    group.move_log_start(50)
    assert (group.window(), group.states()) == ((50, 50), [])
    assert group.fetch() == [(50, 59, 1)]


def test_a_log_start_below_the_start_offset_changes_nothing() -> None:
    """KIP-932, Log retention: SPSO does not fall."""
    group = ShareConsumers(start=30)
    written = len(group.log)
    group.move_log_start(20)
    assert (group.window(), len(group.log)) == ((30, 30), written)


def test_a_consumer_keeps_what_the_log_has_lost() -> None:
    """KIP-932, Log retention: a consumer that has a record can finish with it though the log no longer has it, and is
    told of no error."""
    group = ShareConsumers(end=10)
    group.fetch()
    group.move_log_start(4)
    assert (group.window(), group.held()) == ((4, 10), ["0-9 c1"])
    assert group.acknowledge(ACCEPT, 0, 9) == "NONE"
    assert (group.window(), group.states()) == ((10, 10), [])


@each_failure
def test_what_the_log_has_lost_is_not_delivered_again(fail: Failure) -> None:
    """KIP-932, Log retention: a record below the log start whose delivery fails is Archived, whatever its count."""
    group = ShareConsumers(end=5)
    group.fetch("c1", 1)
    group.move_log_start(1)
    assert group.held() == ["0 c1"]
    fail(group, 1)
    assert (group.states(), group.describe().partitions[0].archived_total) == ([], 1)
    assert group.fetch("c2") == [(1, 4, 1)]


def test_gaps_in_the_log_hold_nothing_up() -> None:
    """KIP-932, Log compaction: offsets without a record are acquired with the others; the consumer that finds none
    says GAP, and they are Archived, so that SPSO moves over them."""
    group = ShareConsumers(end=10)
    assert group.fetch() == [(0, 9, 1)]
    assert group.acknowledge_batches(batch(0, 3, ACCEPT, GAP, GAP, ACCEPT), batch(4, 9, GAP)) == "NONE"
    assert (group.window(), group.describe().partitions[0].archived_total) == ((10, 10), 8)


def test_nothing_beyond_the_readable_end_of_the_log_is_acquired() -> None:
    """KIP-932, Reading transactional records: under read_committed a group's records end at the last stable offset,
    else at the high watermark. The core is told which end holds, and goes no further, also with what came back."""
    group = ShareConsumers(end=10)
    assert group.fetch() == [(0, 9, 1)]
    group.acknowledge(RELEASE, 0, 9)
    group.ends[0] = 6
    assert group.fetch() == [(0, 5, 2)]
    assert group.fetch() == []
