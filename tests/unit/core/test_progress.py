"""Records in progress (the proposal KAFKA-20458): signals of a ShareConsumer that its work on a record goes on."""

from __future__ import annotations

from coordinator.protocol.admin_messages import ListInFlight, RunInFlight
from coordinator.protocol.messages import ProgressBatch
from coordinator.state_log.projection import project
from tests.kip932.consumers import ACCEPT, ShareConsumers


def working(records: int = 10, *, end: int = 100, **configs: object) -> ShareConsumers:
    """c1 holds that many records, and works on the first."""
    group = ShareConsumers(end=end, **configs)
    group.fetch(max_records=records)
    assert group.signal(0, hint="page 1") == "NONE"
    return group


def deadline_ms(group: ShareConsumers, offset: int = 0) -> int:
    """The milliseconds that the lock of this record lasts from now on."""
    held = group.partition().runs.at(offset)
    assert held is not None and held.run.deadline_ms is not None
    return held.run.deadline_ms - group.now_ms


def test_signals_extend_no_lock_beyond_the_longest_extension() -> None:
    """◆ KAFKA-20458: nothing is held longer in all; a signal after that is refused by name and changes nothing."""
    group = working(1, group_share_in_progress_max_lock_extension_ms=100_000)
    group.wait(60_000)
    assert group.signal(0) == "NONE"
    assert deadline_ms(group) == 40_000
    group.now_ms += 40_001
    before = group.states()
    assert "The signal was refused: signals extend a lock until 100000 ms after the acquisition" in group.signal(0)
    assert group.states() == before
    group.pass_time(1)
    assert group.states() == ["0 AVAILABLE 1"]


def test_a_refused_signal_changes_nothing_of_its_partition() -> None:
    """◆ KAFKA-20458: only the holder may signal, with the receipt of its delivery; all or nothing by partition."""
    group = working(10)
    assert group.acknowledge(ACCEPT, 9) == "NONE"
    before = list(group.partition().runs)
    for refused in (
        group.signal(1, member="c2"),
        group.signal(1, count=2),
        group.signal_batches(ProgressBatch(first=1, last=1, delivery_count=1), ProgressBatch(1, 9, 1)),
        group.signal(9),
    ):
        assert refused.startswith("INVALID_RECORD_STATE: "), refused
    for invalid in (group.signal(5, 4), group.signal(10), group.signal(1, hint="é" * 129)):
        assert invalid.startswith("INVALID_REQUEST: "), invalid
    assert list(group.partition().runs) == before


def first_run(group: ShareConsumers) -> RunInFlight:
    return group.run(ListInFlight(group_id="billing", limit=1)).runs[0]


def test_a_hint_that_is_too_long_is_refused_by_name() -> None:
    refused = "INVALID_REQUEST: InvalidRequest: "
    said = working(3).signal(1, 2, hint="é" * 129)
    assert said.startswith(refused) and "The hint of 1-2 has more than 256 bytes" in said


def test_a_hint_is_kept_until_a_signal_brings_another() -> None:
    """KAFKA-20458: the times of the first and of the last signal and the newest hint are shown for each run."""
    group = working(3)
    group.pass_time(1_000)
    assert group.signal(0, 1) == "NONE"
    first, second, third = group.run(ListInFlight(group_id="billing")).runs
    began_ms = group.now_ms - 1_000
    assert (first.state, second.state, third.state) == ("IN_PROGRESS", "IN_PROGRESS", "ACQUIRED")
    assert (first.first_signal_ms, first.last_signal_ms, first.hint) == (began_ms, group.now_ms, "page 1")
    assert (second.first_signal_ms, second.hint) == (group.now_ms, "")
    assert (third.last_signal_ms, third.hint) == (None, "")
    assert group.signal(0, hint="é" * 128) == "NONE"
    assert first_run(group).hint == "é" * 128
    assert group.signal(0, hint="") == "NONE"
    assert first_run(group).hint == ""


def test_kafkas_formatter_is_shown_available_for_work_in_progress() -> None:
    """KAFKA-20458: Kafka's record of share state knows no IN_PROGRESS; the delivery that has begun counts there."""
    group = working(3)
    assert [tuple(batch) for batch in project(group.partition()).state_batches] == [(0, 0, 0, 1)]
