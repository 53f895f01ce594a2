"""The records that a ShareConsumer holds, and what it sends about them; without a coordinator."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError

from coordinator.kafka.damaged_batch import Damage
from coordinator.protocol.messages import PartitionPlan
from coordinator.protocol.values import AcknowledgeType, AcquiredRange
from share_consumer.errors import RecordNotInFlight
from share_consumer.hand_over import HandOver
from share_consumer.implicit import ImplicitInFlight
from share_consumer.in_flight import InFlight
from share_consumer.record_runs import HeldRange, RecordRun, RunCollector, Unread
from share_consumer.sending import Sending

GAP, ACCEPT, RELEASE, REJECT, RENEW, _ = AcknowledgeType
ORDERS = ("orders", 0)
Delivered = tuple[list[RecordRun], list[Unread]]
AnyInFlight = InFlight | ImplicitInFlight


def delivered(*offsets: int, count: int = 1, gaps: tuple[tuple[int, int], ...] = (), topic_id: str = "T") -> Delivered:
    """Records of one delivery of orders-0, and the offsets among them that have none."""
    plan = PartitionPlan(topic="orders", topic_id=topic_id, partition=0, ranges=())
    collector = RunCollector([plan])
    read = [confluent_kafka.Message(topic="orders", partition=0, offset=offset, value=b"v") for offset in offsets]
    collector.add(ORDERS, read, [(count, len(read))], [])
    missing = [Unread(ORDERS, topic_id, HeldRange(first, last, count), GAP) for first, last in gaps]
    return collector.runs(), missing


def holding(*each: Delivered, into: AnyInFlight | None = None) -> Any:
    """The records in flight of a consumer in explicit mode after polls that returned these, or of ``into``."""
    in_flight: Any = InFlight() if into is None else into
    for runs, missing in each:
        in_flight.add(runs)
        in_flight.add_unread(missing)
        if into is not None:
            in_flight.hand_out(sum(map(len, runs)))
    return in_flight


def implicitly(*each: Delivered) -> ImplicitInFlight:
    found: ImplicitInFlight = holding(*each, into=ImplicitInFlight())
    return found


def sent(sending: Sending) -> list[tuple[int, int, int, tuple[int, ...]]]:
    return [(b.first, b.last, b.delivery_count, b.types) for p in sending.partitions for b in p.batches]


def test_neighbours_with_one_outcome_and_count_are_one_batch() -> None:
    in_flight = implicitly(delivered(0, 1), delivered(2), delivered(3, 4, count=2), delivered(7, count=2))
    in_flight.accept_all()
    assert sent(in_flight.take()) == [(0, 2, 1, (1,)), (3, 4, 2, (1,)), (7, 7, 2, (1,))]
    assert not in_flight.take()


def test_the_newest_outcome_counts_until_it_is_sent() -> None:
    in_flight = holding(delivered(0, 1))
    assert in_flight.decide(ORDERS, 0, RELEASE)
    assert in_flight.decide(ORDERS, 0, REJECT)
    assert sent(in_flight.take()) == [(0, 0, 1, (3,))]
    assert not in_flight.decide(ORDERS, 0, ACCEPT)
    assert in_flight.undecided == 1


def test_gaps_are_sent_beside_the_records_and_take_no_outcome() -> None:
    assert not holding(delivered(0, 3, gaps=((1, 2),))).decide(ORDERS, 1, ACCEPT)
    in_flight = implicitly(delivered(0, 3, gaps=((1, 2),)))
    in_flight.accept_all()
    sending = in_flight.take()
    assert sorted(sent(sending)) == [(0, 0, 1, (1,)), (1, 2, 1, (0,)), (3, 3, 1, (1,))]
    assert sending.offsets == {ORDERS: {0, 3}}


def test_offsets_that_could_not_be_read_are_released() -> None:
    lost = Unread(ORDERS, "T", HeldRange(1, 4, 1), RELEASE)
    for in_flight in (holding(delivered(0)), implicitly(delivered(0))):
        in_flight.add_unread([lost])
        sending = in_flight.take()
        assert (sent(sending), sending.offsets) == ([(1, 4, 1, (2,))], {})


def test_a_renewed_record_comes_with_the_next_poll() -> None:
    in_flight = holding(delivered(0, 1))
    in_flight.decide(ORDERS, 0, ACCEPT)
    in_flight.decide(ORDERS, 1, RENEW)
    sending = in_flight.take()
    assert sent(sending) == [(0, 0, 1, (1,)), (1, 1, 1, (4,))]
    in_flight.renew(sending, ())
    assert in_flight.undecided == 0
    assert [message.offset() for message in in_flight.take_renewed()] == [1]
    assert in_flight.undecided == 1


def test_a_record_whose_renewal_is_refused_is_not_in_flight() -> None:
    in_flight = holding(delivered(0))
    in_flight.decide(ORDERS, 0, RENEW)
    in_flight.renew(in_flight.take(), [ORDERS])
    assert in_flight.take_renewed() == []
    assert not in_flight.decide(ORDERS, 0, ACCEPT)


def test_records_that_the_program_does_not_have_yet_are_not_accepted() -> None:
    in_flight = ImplicitInFlight()
    for runs, _ in (delivered(0, 1, 2), delivered(7)):
        in_flight.add(runs)
    in_flight.accept_all()
    assert sent(in_flight.take()) == []
    in_flight.hand_out(1)
    in_flight.accept_all()
    assert sent(in_flight.take()) == [(0, 0, 1, (1,))]
    in_flight.hand_out(2)
    in_flight.accept_all()
    assert sent(in_flight.take()) == [(1, 2, 1, (1,))]
    in_flight.hand_out(1)
    in_flight.accept_all()
    assert sent(in_flight.take()) == [(7, 7, 1, (1,))]


def test_records_that_are_added_again_are_held_once() -> None:
    """A poll that was interrupted takes its records again."""
    in_flight, (runs, _) = ImplicitInFlight(), delivered(0, 1)
    for _ in range(2):
        in_flight.add(runs)
    in_flight.hand_out(9)
    in_flight.accept_all()
    assert sent(in_flight.take()) == [(0, 1, 1, (1,))]


def test_implicit_records_are_renewed_until_they_are_accepted() -> None:
    in_flight = ImplicitInFlight()
    for runs, _ in (delivered(0, 1, 2), delivered(5)):
        in_flight.add(runs)
    in_flight.hand_out(2)
    in_flight.accept_all()
    (refused,) = in_flight.renewals()
    assert [(b.first, b.last, b.types) for b in refused.batches] == [(2, 2, (4,)), (5, 5, (4,))]
    in_flight.hand_out(1)
    in_flight.accept_all()
    in_flight.forget_lock(refused)
    assert in_flight.renewals() == ()


def test_renewals_name_every_record_whose_outcome_is_not_being_sent() -> None:
    in_flight = holding(delivered(0, 1, 2, gaps=((3, 3),)))
    in_flight.decide(ORDERS, 1, ACCEPT)
    (partition,) = in_flight.renewals()
    assert [(b.first, b.last, b.types) for b in partition.batches] == [(0, 2, (4,))]
    in_flight.take()
    (partition,) = in_flight.renewals()
    assert [(b.first, b.last) for b in partition.batches] == [(0, 0), (2, 2)]


def test_a_lock_that_is_lost_is_not_renewed() -> None:
    in_flight = holding(delivered(0, 1, 2, 3))
    refused = in_flight.renewals()[0]
    in_flight.decide(ORDERS, 3, ACCEPT)
    in_flight.take()
    in_flight.forget_lock(refused)  # refused for the outcome of 3 alone
    (partition,) = in_flight.renewals()
    assert [(b.first, b.last) for b in partition.batches] == [(0, 2)]
    in_flight.forget_lock(partition)
    assert in_flight.renewals() == ()
    in_flight.add(delivered(0, count=2)[0])
    assert [(b.first, b.last) for b in in_flight.renewals()[0].batches] == [(0, 0)]


def test_a_recreated_topic_drops_the_old_topics_records() -> None:
    explicit = holding(delivered(0, 1), delivered(0, topic_id="U"))
    assert explicit.decide(ORDERS, 0, ACCEPT) and explicit.undecided == 0
    assert [p.topic_id for p in explicit.take().partitions] == ["U"]
    in_flight = implicitly(delivered(0, 1), delivered(0, topic_id="U"))
    in_flight.accept_all()
    sending = in_flight.take()
    assert [p.topic_id for p in sending.partitions] == ["U"]
    assert sent(sending) == [(0, 0, 1, (1,))]


def damaged(code: int) -> Delivered:
    """Offsets 0 to 3, of which 1 and 2 are of a batch that can't be read."""
    plan = PartitionPlan(topic="orders", topic_id="T", partition=0, ranges=(AcquiredRange(0, 3, 1),))
    collector = RunCollector([plan])
    read = [confluent_kafka.Message(topic="orders", partition=0, offset=offset, value=b"v") for offset in (0, 3)]
    collector.add(ORDERS, read, [(1, 2)], [])
    collector.add_damaged({ORDERS: [Damage(1, 2, code, "changed on the disk")]})
    assert collector.unread([plan], {}) == []
    return collector.runs(), []


@pytest.mark.parametrize(
    ("code", "outcome"),
    [(KafkaError._BAD_MSG, REJECT), (KafkaError._BAD_COMPRESSION, RELEASE), (KafkaError.INVALID_RECORD, REJECT)],
)
def test_a_record_that_cannot_be_read_is_never_accepted(code: int, outcome: AcknowledgeType) -> None:
    runs, _ = damaged(code)
    assert [m.error() and m.error().code() for run in runs for m in run.messages] == [None, code, code, None]
    implicit = implicitly((runs, []))
    implicit.accept_all()
    assert sent(implicit.take()) == [(0, 0, 1, (ACCEPT,)), (1, 2, 1, (outcome,)), (3, 3, 1, (ACCEPT,))]
    explicit = holding(damaged(code))
    assert explicit.undecided == 2
    explicit.decide(ORDERS, 0, ACCEPT)
    explicit.decide(ORDERS, 3, ACCEPT)
    explicit.decide(ORDERS, 2, RELEASE if outcome == REJECT else REJECT)
    explicit.decide_unreadable()
    decided = {(first, last): types for first, last, _, types in sent(explicit.take())}
    assert decided[1, 1] == (outcome,)
    assert decided[2, 2] == (RELEASE if outcome == REJECT else REJECT,), "the program's own outcome counts"


def test_a_record_that_cannot_be_read_is_not_deserialized() -> None:
    deserialized = []
    hand_over = HandOver(None, lambda value, _: deserialized.append(value) or "an object")
    hand_over.add([message for run in damaged(KafkaError._BAD_MSG)[0] for message in run.messages])
    messages = list(hand_over.messages())
    assert [m.error() and m.error().code() for m in messages] == [None, KafkaError._BAD_MSG, KafkaError._BAD_MSG, None]
    assert deserialized == [b"v", b"v"]


# --- an ordered group: a release gives back what follows


def ordered(*each: Delivered) -> InFlight:
    in_flight: InFlight = holding(*each)
    in_flight.ordered = True
    return in_flight


def test_a_release_in_order_gives_back_later_records_without_an_outcome() -> None:
    in_flight = ordered(delivered(0, 1, 2, 3))
    assert in_flight.decide(ORDERS, 2, ACCEPT) and in_flight.decide(ORDERS, 1, RELEASE)
    assert in_flight.undecided == 1, "record 0: 3 is given back, and 2 was accepted before"
    assert not in_flight.decide(ORDERS, 3, ACCEPT) and in_flight.decide(ORDERS, 3, RELEASE)
    assert in_flight.decide(ORDERS, 0, ACCEPT)
    assert sent(in_flight.take()) == [(0, 0, 1, (1,)), (1, 1, 1, (2,)), (2, 2, 1, (1,))]
    assert (in_flight.undecided, in_flight.holds_records, in_flight.renewals()) == (0, False, ())
    assert not in_flight.decide(ORDERS, 3, ACCEPT) and in_flight.decide(ORDERS, 3, RELEASE)
    assert not in_flight.take(), "nothing names a record that is given back"


def test_a_release_in_order_that_is_taken_back_gives_nothing_back() -> None:
    in_flight = ordered(delivered(0, 1))
    assert in_flight.decide(ORDERS, 0, RELEASE) and in_flight.undecided == 0
    assert in_flight.decide(ORDERS, 0, ACCEPT) and in_flight.undecided == 1
    assert in_flight.decide(ORDERS, 1, ACCEPT)
    assert sent(in_flight.take()) == [(0, 1, 1, (1,))]


def test_a_record_that_was_given_back_and_comes_again_takes_an_outcome() -> None:
    in_flight = ordered(delivered(0, 1))
    in_flight.decide(ORDERS, 0, RELEASE)
    in_flight.take()
    in_flight.add(delivered(0, 1, count=2)[0])
    assert in_flight.decide(ORDERS, 1, ACCEPT) and in_flight.decide(ORDERS, 0, ACCEPT)


def test_renewed_records_and_work_after_a_release_in_order_are_given_back() -> None:
    in_flight = ordered(delivered(0, 1, 2))
    for offset in (1, 2):
        in_flight.decide(ORDERS, offset, RENEW)
    in_flight.renew(in_flight.take(), ())
    (message,) = delivered(2)[0][0].messages
    in_flight.decide(ORDERS, 0, RELEASE)
    with pytest.raises(RecordNotInFlight):
        in_flight.mark_in_progress(message, None)
    assert sent(in_flight.take()) == [(0, 0, 1, (2,))]
    assert in_flight.take_renewed() == []


def test_without_an_order_a_release_gives_back_nothing_else() -> None:
    in_flight = holding(delivered(0, 1))
    in_flight.decide(ORDERS, 0, RELEASE)
    assert in_flight.undecided == 1 and in_flight.decide(ORDERS, 1, ACCEPT)


def test_a_batch_that_a_release_gave_back_gets_no_second_outcome() -> None:
    in_flight = ImplicitInFlight()
    in_flight.ordered = True
    in_flight.add(damaged(KafkaError._BAD_COMPRESSION)[0][:2])
    for handed_out, outcomes in ((2, [(0, 0, 1, (ACCEPT,)), (1, 1, 1, (RELEASE,))]), (1, [])):
        in_flight.hand_out(handed_out)
        in_flight.accept_all()
        assert sent(in_flight.take()) == outcomes
        assert in_flight.renewals() == (), "the release gave the others back"
