"""Undecided records are looked for in the log a part at a time; no part is read again."""

import random
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from coordinator.client.session import Identity, RequestOf
from coordinator.core.looks.view import LogRange
from coordinator.protocol.errors import BrokerNotReachable
from coordinator.protocol.messages import Heartbeat, NextPlan, PlanReply
from coordinator.protocol.values import AcknowledgeType, OffsetRange
from coordinator.service.questions import plan_gaps
from coordinator.service.questions.plan_gaps import KEPT_S, UndecidedLook, UndecidedLooks
from share_source.driver.plan_offset import initial_offset
from share_source.driver.reader import ShareGroupStreamReader
from share_source.options import SourceOptions
from tests.support.fake_cluster import FakeCluster
from tests.support.service_sinks import EXPLICIT, begin, stage, states
from tests.support.source_driver import OPTIONS
from tests.support.waiting import wait_until

ASKED = ("billing", "m1", "i.1")


class SlowCluster(FakeCluster):
    """Answers ``at_once`` offsets a call; ``asked_for``: all that it was asked for and answered."""

    def __init__(self, at_once: int = 3) -> None:
        super().__init__()
        self.at_once = at_once
        self.asked_for: list[tuple[str, int, int]] = []

    def absent(self, where: Any, offsets: Any, **how: Any) -> tuple[list[int], int]:
        answered = list(offsets[: self.at_once])
        self.asked_for += [(*where, offset) for offset in answered]
        return super().absent(where, answered, **how)


def at(first: int, last: int, partition: int = 0) -> LogRange:
    return LogRange("orders", OffsetRange("id", partition, first, last))


def test_each_offset_is_read_once_and_every_gap_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(30):
        chance = random.Random(seed)
        monkeypatch.setattr(plan_gaps, "AT_ONCE", chance.choice([1, 2, 7, 100]))
        ranges, offset = [], 0
        for partition in range(3):
            offset = 0
            for _ in range(chance.randrange(1, 12)):
                offset += chance.randrange(1, 4)
                ranges.append(at(offset, last := offset + chance.randrange(9), partition))
                offset = last + 1
        cluster = SlowCluster(chance.choice([1, 2, 5, 1_000]))
        cluster.gaps = {n for n in range(200) if chance.random() < 0.4}
        look, calls = UndecidedLook(tuple(ranges), read_committed=False), 0
        while not look.is_done:
            before = look.read
            look.read_on(cluster, until_s=0.0)
            assert look.read > before, "each call makes progress"
            calls += 1
        all_offsets = [("orders", h.offsets.partition, n) for h in ranges for n in h.offsets.as_range()]
        assert cluster.asked_for == all_offsets
        found = [("orders", gap.partition, n) for gap in look.gaps for n in gap.as_range()]
        assert found == [place for place in all_offsets if place[2] in cluster.gaps]


def test_offsets_read_before_an_outage_are_not_read_again() -> None:
    cluster = SlowCluster()
    looks = UndecidedLooks(cluster, call_s=0.0)
    assert looks.go_on(ASKED, (at(0, 9),), read_committed=False).read == 3
    cluster.unreachable = True
    with pytest.raises(BrokerNotReachable):
        looks.go_on(ASKED, (at(0, 9),), read_committed=False)
    cluster.unreachable = False
    assert looks.go_on(ASKED, (at(0, 9),), read_committed=False).read == 6
    assert [offset for _, _, offset in cluster.asked_for[-3:]] == [3, 4, 5]


def test_other_ranges_and_another_isolation_level_are_another_look() -> None:
    looks = UndecidedLooks(SlowCluster(), call_s=0.0)
    assert looks.go_on(ASKED, (at(0, 9),), read_committed=False).read == 3
    assert looks.go_on(ASKED, (at(1, 9),), read_committed=False).read == 3
    assert looks.go_on(ASKED, (at(1, 9),), read_committed=True).read == 3
    looks.forget(ASKED)
    assert looks.go_on(ASKED, (at(1, 9),), read_committed=True).read == 3


def test_any_number_of_plans_is_read_to_the_end() -> None:
    looks = UndecidedLooks(SlowCluster(), call_s=0.0)
    for read in (3, 6, 9, 10):  # all plans take turns, as readers that ask again at once
        for n in range(1_000):
            look = looks.go_on(("billing", f"m{n}", "i.1"), (at(0, 9),), read_committed=False)
            assert look.read == read


def test_a_reading_that_nobody_asks_for_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    looks, now_s = UndecidedLooks(SlowCluster(), call_s=0.0), [0.0]
    monkeypatch.setattr(plan_gaps, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    looks.go_on(ASKED, (at(0, 9),), read_committed=False)
    looks.go_on(("billing", "m2", "i.1"), (at(0, 9),), read_committed=False)
    now_s[0] = KEPT_S
    assert looks.go_on(ASKED, (at(0, 9),), read_committed=False).read == 6, "it was asked for in time"
    now_s[0] = KEPT_S + 1
    assert looks.go_on(ASKED, (at(0, 9),), read_committed=False).read == 9
    assert list(looks._looks) == [ASKED]


def test_two_requests_for_one_plan_do_not_read_concurrently() -> None:
    inside, leave = threading.Event(), threading.Event()

    class Hanging(SlowCluster):
        def absent(self, where: Any, offsets: Any, **how: Any) -> tuple[list[int], int]:
            inside.set()
            assert leave.wait(30)
            return super().absent(where, offsets, **how)

    cluster = Hanging(10)
    looks = UndecidedLooks(cluster, call_s=0.0)
    first = threading.Thread(target=looks.go_on, args=(ASKED, (at(0, 9),)), kwargs={"read_committed": False})
    first.start()
    assert inside.wait(30)
    assert not looks.go_on(ASKED, (at(0, 9),), read_committed=False).is_done, "it is told to ask again"
    leave.set()
    first.join(30)
    wait_until(lambda: looks.go_on(ASKED, (at(0, 9),), read_committed=False).is_done)
    assert len(cluster.asked_for) == 10


# --- the service


@pytest.fixture
def cluster() -> SlowCluster:
    slow = SlowCluster()
    slow.add("orders", end=10)
    return slow


def asked(running: Any, number: str) -> PlanReply:
    reply = running.ask(NextPlan, start=number, wait_ms=0)
    assert isinstance(reply, PlanReply)
    return reply


def committed_and_undecided(running: Any) -> str:
    """Batch 0 to 9, of which a sink decided 0; the others it passed over."""
    running.service._plan_gaps._undecided = UndecidedLooks(running.cluster, call_s=0.0)
    number = begin(running, **EXPLICIT)
    stage(running, (0, 0, 1, AcknowledgeType.ACCEPT))
    return str(number)


def test_a_batch_that_takes_long_to_read_is_completed_by_several_requests(running, cluster):
    cluster.gaps = {4, 9}
    number = committed_and_undecided(running)
    assert [asked(running, number).undecided_left for _ in range(2)] == [6, 3]
    assert states(running) == ["0-9 ACQUIRED 1"], "nothing is completed, and nothing acquired"
    running.ask(Heartbeat)
    running.join(process="the query is started again")
    reply = asked(running, number)
    assert (reply.undecided_left, bool(reply.plan.plan_id)) == (0, True)
    assert [offset for _, _, offset in cluster.asked_for] == list(range(1, 10))
    assert [line for line in states(running) if "ARCHIVED" in line] == ["4-4 ARCHIVED 1", "9-9 ARCHIVED 1"]


def test_a_coordinator_that_takes_over_reads_from_the_beginning_to_the_end(running, cluster):
    number = committed_and_undecided(running)
    assert asked(running, number).undecided_left == 6
    running.service._plan_gaps._undecided = UndecidedLooks(cluster, call_s=0.0)
    assert [asked(running, number).undecided_left for _ in range(3)] == [6, 3, 0]


def test_the_reader_asks_until_completion_and_logs_the_rest(running, cluster, monkeypatch, caplog):
    number = committed_and_undecided(running)

    class Session:
        member_id, closed = "m1", False

        def call(self, request_of: RequestOf[Any]) -> Any:
            who: Identity = {"group_id": "billing", "member_id": "m1", "member_epoch": running.epochs["m1"]}
            return running.service.handle(request_of(who))

    reader = ShareGroupStreamReader(SourceOptions.parse(OPTIONS))
    monkeypatch.setattr(reader, "_joined_as", lambda member_id: Session())
    start = {**initial_offset("billing", "m1"), "plan_id": number}
    end = reader.latestOffset(start, ReadMaxRows(10))
    assert end["plan_id"] != number
    said = [record.getMessage() for record in caplog.records if "offset(s) left" in record.getMessage()]
    assert [line.rpartition(": ")[2] for line in said] == ["6 offset(s) left to check", "3 offset(s) left to check"]
