"""Lists of lost and left-out offsets stay small, however many there are, and their counts stay exact."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from coordinator.core import left_out
from coordinator.core.left_out import FEW, MOST, LeftOutRange, bounded, count, in_reply
from coordinator.core.log_records import RunsChanged
from coordinator.core.looks.snapshot import snapshot_of
from coordinator.core.record_codec import MOST_BYTES, encode_records
from coordinator.core.record_state import RecordState
from coordinator.core.runs import Run
from coordinator.protocol.messages import PlanReply
from coordinator.protocol.wire import encode
from share_source.driver.left_out_lines import NAMED
from tests.support.group_driver import TOPIC_ID, GroupDriver


def entry(first: int, last: int, partition: int = 0, topic: str = "orders", reason: str = "data_loss") -> LeftOutRange:
    return LeftOutRange(
        topic=topic,
        topic_id=f"id-of-{topic}",
        partition=partition,
        first=first,
        last=last,
        count=last - first + 1,
        reason=reason,
    )


def every_second(count: int, partition: int = 0, **fields: str) -> list[LeftOutRange]:
    return [entry(2 * n, 2 * n, partition, **fields) for n in range(count)]


def test_a_few_ranges_are_kept_and_neighbours_are_merged() -> None:
    assert bounded([]) == ()
    assert bounded([entry(5, 9), entry(0, 4), entry(11, 12)]) == (entry(0, 9), entry(11, 12))
    assert bounded(every_second(MOST)) == tuple(every_second(MOST))


def test_offsets_that_are_lost_again_after_a_reset_are_counted_once() -> None:
    assert bounded([entry(2, 20), entry(1, 29)]) == (entry(1, 29),)
    assert bounded([entry(0, 9), entry(5, 14), entry(40, 41)]) == (entry(0, 14), entry(40, 41))
    assert count(bounded([entry(3, 4), entry(3, 4), entry(3, 4, reason="cut")])) == 4


def test_ranges_of_different_reasons_partitions_or_topics_are_not_merged() -> None:
    given = [entry(0, 4), entry(5, 9, reason="cut"), entry(10, 11), entry(10, 14, 1), entry(15, 19, topic="payments")]
    assert bounded(reversed(given)) == (given[0], given[1], given[2], given[3], given[4])
    made_anew = LeftOutRange(topic="orders", topic_id="new", partition=0, first=5, last=9, count=5, reason="data_loss")
    assert bounded([entry(0, 4), made_anew]) == (entry(0, 4), made_anew)


def test_further_ranges_of_a_partition_are_one_count_between_two_offsets() -> None:
    found = bounded([*every_second(100_000), entry(7, 8, 1)])
    assert found[:FEW] == tuple(every_second(FEW))
    assert (found[FEW].first, found[FEW].last, found[FEW].count) == (2 * FEW, 199_998, 100_000 - FEW)
    assert str(in_reply(found)[FEW]) == f"orders-0 {100_000 - FEW} offsets between {2 * FEW} and 199998"
    assert found[FEW + 1 :] == (entry(7, 8, 1),)


def test_of_very_many_partitions_the_last_are_only_counted() -> None:
    found = bounded(out for p in range(1_000) for out in every_second(3, p))
    assert len(found) == MOST
    assert count(found) == 3_000
    assert str(in_reply(found)[0]) == f"{3_000 - 3 * (MOST - 1)} records of other partitions"
    assert str(in_reply(found)[1]) == "orders-0 3 offsets between 0 and 4"


@pytest.mark.parametrize(("other", "reason"), [("data_loss", "data_loss"), ("cut", "several")])
def test_the_entry_of_other_partitions_has_their_only_reason(other: str, reason: str) -> None:
    given = [entry(0, 0, partition) for partition in range(MOST)]
    total = bounded([*given, entry(0, 0, MOST, reason=other)])[0]
    assert total == LeftOutRange(topic="", topic_id="", partition=-1, first=-1, last=-1, count=2, reason=reason)


def test_the_entry_of_other_partitions_takes_in_an_earlier_one() -> None:
    given = bounded(entry(0, 0, partition) for partition in range(MOST + 5))
    again = bounded([*given, entry(7, 9, MOST + 9)])
    assert again[0] == LeftOutRange(
        topic="", topic_id="", partition=-1, first=-1, last=-1, count=6 + 3, reason="data_loss"
    )
    assert again[1:] == given[1:]


@pytest.mark.parametrize("seed", range(20))
def test_the_left_out_counts_stay_exact_for_any_added_ranges(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_out, "MOST", 12)
    monkeypatch.setattr(left_out, "FEW", 2)
    chance, at, kept, added = random.Random(seed), Counter[tuple[str, int]](), tuple[LeftOutRange, ...](), 0
    for _ in range(200):
        topic, partition = chance.choice(["orders", "payments"]), chance.randrange(chance.choice([2, 20]))
        first = at[topic, partition] + chance.randrange(3)
        out = entry(first, first + chance.randrange(4), partition, topic, chance.choice(["cut", "lost"]))
        at[topic, partition] = out.last + 1
        added += out.count
        kept = bounded([*kept, out])
        assert count(kept) == added
        assert len(kept) <= 12
        assert bounded(kept) == kept


def test_scattered_losses_are_small_log_records_and_one_report() -> None:
    lost = 5_000
    group = GroupDriver(records=2 * lost + 10)
    # what a sink leaves behind that released every second record with a delay
    accepted, delayed = (
        Run(RecordState.ACKNOWLEDGED, 1),
        Run(RecordState.AVAILABLE, 1, releases=1, not_before_ms=10**13),
    )
    runs = tuple((n, n, accepted if n % 2 else delayed) for n in range(2 * lost))
    with group.unchecked():
        group.join()
        group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=runs)])
        group.move_log_start(2 * lost)
        assert count(group.group.unreported_losses) == lost
        plan = group.acquire()
        assert group.group.unreported_losses == ()
        told = group.start(plan.plan.plan_id, fail_on_data_loss=True)
    assert count(told.data_loss) == lost
    assert len(told.data_loss) == FEW + 1 > NAMED
    assert all(len(data) < 10_000 for data in group.log[-4:]), "whatever tells of the loss"
    assert len(encode(PlanReply(plan=told.plan, data_loss=told.data_loss))) < 10_000
    assert all(len(data) <= MOST_BYTES for data in encode_records(snapshot_of(group.group)))


def test_a_replay_takes_a_summed_up_range_for_lost() -> None:
    group = GroupDriver(records=4_000)
    group.join()
    number = group.acquire().plan.plan_id
    group.start(number)
    group.pass_time(100_000)
    group.join("m2")
    gone = tuple((n, n, Run(RecordState.ACKNOWLEDGED, 2)) for n in range(0, 1_000, 2))
    group.append([RunsChanged(topic_id=TOPIC_ID, partition=0, runs=gone)])
    group.move_log_start(1_000)
    back = group.restart(number, fail_on_data_loss=False)
    assert count(back.data_loss) == 500
    lost = [entry(2 * n, 2 * n, reason="lost") for n in range(FEW + 1)]
    assert [(out.first, out.last) for out in back.left_out] == [(out.first, out.last) for out in lost]
