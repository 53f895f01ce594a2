"""Records in progress (the proposal KAFKA-20458): signals of a ShareConsumer that its work on a record goes on."""

from __future__ import annotations

from coordinator.core.commands import ExtendDeadlines
from coordinator.protocol.admin_messages import ListInFlight, RunInFlight
from coordinator.protocol.messages import ProgressBatch
from coordinator.state_log.projection import project
from tests.kip932.consumers import ACCEPT, RELEASE, RENEW, SESSION_MS, ShareConsumers

STALE_MS, EXTENSION_MS, GRACE_MS = 90_000, 1_800_000, 5_000


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


def test_a_worker_with_signals_keeps_its_record_for_five_minutes() -> None:
    """KAFKA-20458: five minutes of work on a record under a lock of 30 s, with a signal every 10 s."""
    group = working(1, end=1, share_record_lock_duration_ms=30_000)
    for _ in range(30):
        group.wait(10_000)
        assert group.signal(0) == "NONE"
        assert group.fetch("c2") == []
    assert group.acknowledge(ACCEPT, 0) == "NONE"
    assert group.window()[0] == 1


def test_a_stopped_worker_loses_its_record_after_the_staleness_threshold() -> None:
    """◆ KAFKA-20458: no signal for longer than the threshold ends the lock; a late acknowledgement is refused."""
    group = working(1)
    group.wait(STALE_MS)
    assert group.held() == ["0 c1"]
    group.wait(1)
    assert group.states() == ["0 AVAILABLE 1"]
    lost = group.partition().runs.at(0)
    assert lost is not None
    assert (lost.run.failures, lost.run.releases, lost.run.progress) == (1, 0, None)
    assert group.acknowledge(ACCEPT, 0) == "INVALID_RECORD_STATE"
    assert group.fetch("c2", 1) == [(0, 0, 2)]
    assert group.signal(0).startswith("INVALID_RECORD_STATE: RecordNotHeld: Member c1 does not hold 0-0: ")


def test_signals_extend_no_lock_beyond_the_longest_extension() -> None:
    """◆ KAFKA-20458: nothing is held longer in all; a signal after that is refused by name and changes nothing."""
    group = working(1, group_share_in_progress_max_lock_extension_ms=100_000)
    group.wait(60_000)
    assert group.signal(0) == "NONE"
    assert deadline_ms(group) == 40_000
    group.now_ms += 40_001
    before = group.states()
    assert "LockExtensionOver: Signals extend a lock until 100000 ms after the acquisition" in group.signal(0)
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


def test_equal_signals_of_neighbours_stay_one_run() -> None:
    """KAFKA-20458: a worker that signals all that it holds costs one run."""
    group = ShareConsumers()
    group.fetch(max_records=50)
    for _ in range(3):
        group.pass_time(10_000)
        assert group.signal(0, 49, hint="half") == "NONE"
    assert len(group.partition().runs) == 1


def test_a_release_of_work_that_had_begun_counts_as_a_failure() -> None:
    """◆ KAFKA-20458: a release from IN_PROGRESS is a failure, also one of a record that was named unread."""
    group = working(2)
    assert group.acknowledge(RELEASE, 0, 1) == "NONE"
    began, unread = (group.partition().runs.at(offset) for offset in (0, 1))
    assert began is not None and unread is not None
    assert (began.run.failures, began.run.releases) == (1, 0)
    assert (unread.run.failures, unread.run.releases) == (0, 1)


def test_a_member_that_left_keeps_fresh_work_for_the_grace_time() -> None:
    """◆ KAFKA-20458: the acquired records of a member that leaves go at once, fresh work after a while."""
    group = working(3)
    group.leave()
    assert group.states() == ["0 IN_PROGRESS 1", "1-2 AVAILABLE 1"]
    assert not group.group.may_rest(group.now_ms)
    group.pass_time(GRACE_MS)
    assert group.held() == ["0 c1"]
    group.pass_time(1)
    assert group.states() == ["0-2 AVAILABLE 1"]


def test_stale_work_of_a_member_that_leaves_goes_at_once() -> None:
    """◆ KAFKA-20458: the grace time is for fresh signals only."""
    group = working(1)
    group.now_ms += STALE_MS + 1
    group.leave()
    assert group.states() == ["0 AVAILABLE 1"]


def test_an_extended_lock_of_who_leaves_ends_with_its_last_signal() -> None:
    """The lock's end in memory, which lacks the extension, is the same number as its new end."""
    group = working(1)
    group.run(ExtendDeadlines(stalled_ms=10_000))
    group.now_ms += STALE_MS - GRACE_MS + 1
    group.leave()
    left = group.partition().runs.at(0)
    assert left is not None and left.run.deadline_ms is not None
    assert group.group.locks.deadline_ms(left.run.deadline_ms) == group.now_ms + GRACE_MS - 1


def test_a_member_without_time_left_is_not_given_more_by_leaving_twice() -> None:
    """KAFKA-20458: the grace time is counted from the first leave, unless a signal came since."""
    group = working(1)
    group.leave()
    group.join("c1", query=False)
    group.now_ms += GRACE_MS + 1
    group.leave()
    assert group.states() == ["0 AVAILABLE 1"]


def test_work_in_progress_survives_a_takeover_with_its_lock() -> None:
    """◆ KAFKA-20458: signals are durable; a new owner gives the holder a session, or what the last signal gave."""
    group = working(1)
    group.pass_time(10_000)
    group.crash()
    assert first_run(group).hint == "page 1"
    assert deadline_ms(group) == STALE_MS - 10_000
    group.now_ms += 70_000
    group.crash()
    assert deadline_ms(group) == SESSION_MS


def test_a_long_lock_survives_a_takeover() -> None:
    """◆ A lock that is longer than a session keeps what is left of it: an hour's work is not delivered again because
    the coordinator died."""
    group = ShareConsumers(share_record_lock_duration_ms=3_600_000)
    group.fetch(max_records=1)
    group.wait(600_000)
    group.crash()
    assert deadline_ms(group) == 3_000_000
    group.join("c1", "c1-process-1", query=False)
    group.wait(2_990_000)
    assert group.acknowledge(ACCEPT, 0) == "NONE"


def test_a_renewed_lock_lasts_after_a_takeover_as_its_acquisition_gave() -> None:
    """KIP-1222, Proposed Changes: ours. A renewal is not in the log; the least is a session timeout from the load."""
    group = ShareConsumers(share_record_lock_duration_ms=100_000, share_max_lock_extension_ms=300_000)
    group.fetch(max_records=1)
    group.wait(50_000)
    assert group.acknowledge(RENEW, 0) == "NONE"
    assert deadline_ms(group) == 100_000
    group.crash()
    assert deadline_ms(group) == 50_000
    group.join("c1", "c1-process-1", query=False)
    assert group.acknowledge(RENEW, 0) == "NONE"
    assert deadline_ms(group) == 100_000, "the next renewal gives the lock its full time again"


def test_an_admin_sees_how_old_the_last_signal_of_a_run_is() -> None:
    """A stuck worker is found by the age of its last signal; a run without one counts from its acquisition."""
    group = working(2)
    group.wait(40_000)
    group.signal(0)
    group.wait(20_000)

    def stale(ms: int) -> list[tuple[int, int | None, str]]:
        page = group.run(ListInFlight(group_id="billing", progress_staleness_ms=ms))
        return [(run.first, run.last_signal_ms, run.hint) for run in page.runs]

    assert stale(0) == [(0, group.now_ms - 20_000, "page 1")], "the lock of the other record is over"
    assert stale(20_000) == []


def test_a_late_signal_for_a_record_that_another_has_done_is_refused() -> None:
    """KAFKA-20458: not the holder; the start offset is beyond the record by then, and its first worker may stop."""
    group = working(1)
    group.wait(STALE_MS + 1)
    assert group.fetch("c2", 2) == [(0, 0, 2), (1, 1, 1)]
    assert group.acknowledge(ACCEPT, 0, member="c2", count=2) == "NONE"
    assert group.window()[0] == 1
    assert "Member c1 does not hold 0-0" in group.signal(0)
    assert "Member c2 does not hold 0-1" in group.signal(0, 1, member="c2")
    assert group.held() == ["1 c2"]


def test_kafkas_formatter_is_shown_available_for_work_in_progress() -> None:
    """KAFKA-20458: Kafka's record of share state knows no IN_PROGRESS; the delivery that has begun counts there."""
    group = working(3)
    assert [tuple(batch) for batch in project(group.partition()).state_batches] == [(0, 0, 0, 1)]
