"""The rules of deploy/prometheus/rules.yaml over a group's own metrics, scraped every 30 seconds of a played hour."""

import math

import msgspec
import pytest
import yaml

from coordinator.core.commands import AcquireForConsumer, AlterConfigs, AssignPartitions
from coordinator.protocol.messages import Acknowledge, Heartbeat, JoinGroup, LeaveGroup, PartitionBounds
from coordinator.protocol.values import AcknowledgeType
from tests.support.imports import ROOT
from tests.support.measured import Measured
from tests.support.promql import Series
from tests.support.running_service import acks
from tests.support.runtime_service import acquire, start_plan

RULES = [
    rule
    for group in yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules.yaml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]
ALERTS = {rule["alert"]: (rule["expr"], 60 * int(rule.get("for", "0m")[:-1])) for rule in RULES if "alert" in rule}
(NEEDED,) = [rule["expr"] for rule in RULES if rule.get("record") == "share_group:needed_members"]
ACCEPT, RELEASE, RENEW = map(int, (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW))
STEP_S, MINUTE_S = 15, 60
WHO = {"group_id": "billing", "member_id": "c1", "member_epoch": 1}


class Hour:
    """A group with the ShareConsumer c1 and this number of records, and what the rules say of it. ``fired``: the
    minutes after which each alert fired first; ``needed``: by minutes, the members that the rule wants and the lag."""

    def __init__(self, path, records):
        self.ends = {("orders", 0): records}
        self.measured = Measured(path, self.ends)
        self.service, self.series = self.measured.service, Series()
        self.service.ask(LeaveGroup(group_id="billing", member_id="m1", member_epoch=1))
        self.service.ask(
            JoinGroup(group_id="billing", member_id="c1", process_id="c1", query=False, topics=("orders",))
        )
        self.service.ask(AssignPartitions())
        self.members, self.elapsed_s = ["c1"], 0
        self.fired, self.needed, self._true_since = {}, {}, {}

    def close(self):
        self.measured.metrics.close()
        self.service.store.close()

    def play(self, minutes, step=lambda: None):
        """Let time go by: each 15 s the members send heartbeats, and the program makes a step."""
        for _ in range(minutes * MINUTE_S // STEP_S):
            self.elapsed_s += STEP_S
            self.service.now_ms += STEP_S * 1_000
            self.service.runtime.step(self.service.now_ms)
            for member in self.members:
                self.service.ask(Heartbeat(**{**WHO, "member_id": member}))
            step()
            if self.elapsed_s % 30 == 0:
                self._scraped()

    def take(self, records=1):
        """c1 acquires; the first offset and its delivery count."""
        bounds = (PartitionBounds(topic_id="T", partition=0, log_start=0, end=self.ends["orders", 0]),)
        reply = self.service.ask(
            AcquireForConsumer(**WHO, acquire_mode="record_limit", bounds=bounds, max_records=records)
        )
        return next(((r.first, r.delivery_count) for p in reply.partitions for r in p.ranges), None)

    def acknowledge(self, held, kind, records=1):
        first, count = held
        self.service.ask(Acknowledge(**WHO, partitions=acks("T", first, first + records - 1, kind, count)))

    def works(self, seconds):
        """The step of a program whose tasks take this long; it renews its lock each 15 s."""
        held, begun_s = None, 0

        def step():
            nonlocal held, begun_s
            if held is not None and self.elapsed_s - begun_s < seconds:
                self.acknowledge(held, RENEW)
                return
            if held is not None:
                self.acknowledge(held, ACCEPT)
            held, begun_s = self.take(), self.elapsed_s

        return step

    def _scraped(self):
        samples = self.measured.samples()
        self.series.add(self.elapsed_s, ((each.name, each.labels, each.value) for each in samples))
        lag = sum(each.value for each in samples if each.name == "share_partition_lag")
        needed = self.series.ask(NEEDED, self.elapsed_s)
        self.needed[self.elapsed_s / MINUTE_S] = (needed.get(frozenset({("group", "billing")})), lag)
        for name, (expression, for_s) in ALERTS.items():
            if not self.series.ask(expression, self.elapsed_s):
                self._true_since.pop(name, None)
            elif self.elapsed_s - self._true_since.setdefault(name, self.elapsed_s) >= for_s:
                self.fired.setdefault(name, self.elapsed_s / MINUTE_S)


@pytest.fixture
def hour_of(tmp_path):
    made = []

    def begun(records):
        made.append(Hour(tmp_path / f"{len(made)}.db", records))
        return made[-1]

    yield begun
    for each in made:
        each.close()


def test_long_tasks_with_renewals_need_members_by_their_duration(hour_of):
    hour = hour_of(100)
    hour.play(30, hour.works(120))
    assert hour.fired == {}
    for minutes, (needed, lag) in hour.needed.items():
        if minutes > 10:
            assert abs(needed - math.ceil(lag / 600 * 120)) <= 1 + lag * 120 / 600 / 4, (minutes, needed, lag)


def test_more_records_than_one_member_does_need_more_members(hour_of):
    """Ten arrive a minute; the member does four. A record takes it 15 s, so 2.5 members keep up, and more catch up."""
    hour = hour_of(1)
    works = hour.works(15)

    def step():
        hour.ends["orders", 0] = hour.elapsed_s // 6
        works()

    hour.play(30, step)
    for minutes, (needed, lag) in hour.needed.items():
        if minutes > 10:
            assert abs(needed - 15 * (1 / 6 + lag / 600)) <= 1.5, (minutes, needed, lag)


def test_tasks_longer_than_the_window_keep_their_members(hour_of):
    hour = hour_of(10)
    hour.play(30, hour.works(12 * MINUTE_S))
    assert hour.fired == {}
    assert all(needed >= 1 for needed, _ in hour.needed.values()), "no moment without a value while records wait"


def test_a_group_with_nothing_to_do_needs_nobody_and_alerts_nobody(hour_of):
    hour = hour_of(3)
    hour.play(30, hour.works(15))
    assert hour.fired == {}
    assert all(not needed for minutes, (needed, _) in hour.needed.items() if minutes > 12)


def test_a_hanging_consumer_or_query_is_told_of(hour_of):
    renews, query = hour_of(100), hour_of(100)
    renews.play(30, renews.works(86_400))
    assert renews.fired.keys() == {"ShareGroupStalled"}
    query.service.ask(JoinGroup(group_id="billing", member_id="m2", process_id="p2"))
    query.members.append("m2")
    plan = query.service.ask(acquire(limit=10, member="m2")).plan.plan_id
    query.service.ask(msgspec.structs.replace(start_plan(plan), member_id="m2"))
    query.play(65)
    assert query.fired.keys() == {"ShareGroupStalled", "ShareGroupRecordHeldLong"}
    assert query.fired["ShareGroupStalled"] <= 26


def test_a_partition_that_waits_for_an_hour_is_told_of(hour_of):
    hour = hour_of(100)
    two_hours = {f"share.release.backoff.{key}": "7200000" for key in ("ms", "max.ms")}
    hour.service.ask(
        AlterConfigs(configs={"share.order": "partition", "share.release.backoff.jitter": "0", **two_hours})
    )
    hour.acknowledge(hour.take(), RELEASE)
    hour.play(59)
    assert "ShareGroupPartitionWaits" not in hour.fired
    hour.play(3)
    assert hour.fired.keys() == {"ShareGroupStalled", "ShareGroupPartitionWaits"}


def test_a_group_without_members_is_told_of(hour_of):
    hour = hour_of(10)
    hour.service.ask(LeaveGroup(**WHO))
    hour.members.clear()
    hour.play(40)
    assert hour.fired.keys() == {"ShareGroupStalled", "ShareGroupHasNoMembers"}


def test_a_paused_group_needs_nobody_and_alerts_nobody(hour_of):
    hour = hour_of(100)
    hour.play(15, hour.works(15))
    hour.service.ask(AlterConfigs(configs={"share.paused.topics": "*"}))
    hour.play(30)
    hour.service.ask(LeaveGroup(**WHO))
    hour.members.clear()
    hour.play(40)
    assert hour.fired == {}
    assert {needed for minutes, (needed, lag) in hour.needed.items() if minutes > 15 and lag} == {None}


def test_a_limit_that_is_used_up_needs_no_more_members(hour_of):
    hour = hour_of(2_000)
    hour.service.ask(AlterConfigs(configs={"share.max.in.flight.records": "1"}))
    hour.play(30, hour.works(60))
    assert {needed for minutes, (needed, _) in hour.needed.items() if minutes > 5} == {1}


def test_the_first_record_that_is_given_up_is_told_of(hour_of):
    """To Prometheus a counter that begins at 1 has not risen: the counter begins at 0 with the group's first count."""
    hour = hour_of(100)
    hour.play(20, hour.works(60))
    assert hour.fired == {}
    for _ in range(5):
        held = hour.take()
        hour.acknowledge(held, RELEASE)
    hour.play(1)
    assert hour.fired.keys() == {"ShareGroupGivesUpRecords"}
