"""The metrics of a coordinator: what a scrape shows after a scripted history is what the history says."""

import contextlib
import json
import re
import threading
import urllib.request

import msgspec
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from coordinator.config.group_keys import COORDINATOR_KEYS
from coordinator.core.commands import AcquireForConsumer, AlterConfigs, AssignPartitions, MarkDeadLettersWritten
from coordinator.core.commands import DeadLettersWritten as Written
from coordinator.core.commands.counts import Count
from coordinator.protocol.admin_messages import DeleteGroup, ReleaseMember
from coordinator.protocol.errors import CoordinatorNotAvailable, FencedMemberEpoch, GroupTakenOver
from coordinator.protocol.messages import Acknowledge, DescribeGroup, Heartbeat, JoinGroup, LeaveGroup
from coordinator.protocol.values import AcknowledgeType, OffsetRange
from coordinator.service.metrics import counters
from coordinator.service.metrics.endpoint import Metrics
from coordinator.service.stores.sqlite_store import SqliteStore
from tests.support.imports import ROOT
from tests.support.measured import Measured
from tests.support.running_service import acks
from tests.support.runtime_service import BOUNDS, acquire, complete, join, start_plan
from tests.support.waiting import wait_until

ACCEPT, RELEASE, REJECT = map(int, (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT))
LOCK_MS = 30_000
LIMIT = 5


def key(name, *labels):
    """A sample of ``scrape``."""
    return (name, *sorted(labels))


@pytest.fixture
def measured(tmp_path):
    made = Measured(tmp_path / "state.db", {("orders", 0): 500})
    yield made
    made.metrics.close()
    made.service.store.close()


def take(service, records, member="c1"):
    mode = {"acquire_mode": "record_limit", "bounds": BOUNDS, "max_records": records}
    return service.ask(AcquireForConsumer(group_id="billing", member_id=member, member_epoch=1, **mode))


def ack(service, first, last, kind, delivery_count=1, member="c1"):
    partitions = acks("T", first, last, kind, delivery_count)
    return service.ask(Acknowledge(group_id="billing", member_id=member, member_epoch=1, partitions=partitions))


class Ticking:
    """A time module whose clock goes on by a quarter of a second with each look."""

    def __init__(self):
        self.now_s = 0.0

    def perf_counter(self):
        self.now_s += 0.25
        return self.now_s


@pytest.fixture
def told(tmp_path, monkeypatch):
    """A runtime with metrics whose writes and loads take a quarter of a second each; ``writes`` has those confirmed."""
    writes, append = [], SqliteStore.append

    def counted(self, *records):
        append(self, *records)
        writes.append(records)

    monkeypatch.setattr(SqliteStore, "append", counted)
    monkeypatch.setattr(counters, "time", Ticking())
    made = Measured(tmp_path / "state.db", {("orders", 0): 500})
    made.writes = writes
    yield made
    made.metrics.close()
    made.service.store.close()


def failed_writes(service):
    """Each kind of failure once: the group is loaded again after each of them."""
    for fault, error in {
        "refuse": CoordinatorNotAvailable,
        "doubt, not written": CoordinatorNotAvailable,
        "fence": GroupTakenOver,
    }.items():
        service.store.fault = fault
        with pytest.raises(error):
            service.ask(AlterConfigs(configs={"share.session.timeout.ms": "50000"}))
    service.ask(AlterConfigs(configs={"errors.deadletterqueue.topic.name": "dlq"}))
    service.ask(join(epoch=1))


def members_that_go(service):
    """m2 leaves, c2 is released by an administrator, and c3 is not heard of again."""
    for member in ("c1", "c2", "c3"):
        service.ask(JoinGroup(group_id="billing", member_id=member, process_id=member, query=False, topics=("orders",)))
    service.ask(AssignPartitions())
    service.ask(join("m2", "p2"))
    service.ask(LeaveGroup(group_id="billing", member_id="m2", member_epoch=1))
    for execute in (False, True):
        service.ask(ReleaseMember(group_id="billing", member_id="c2", execute=execute))
    for _ in range(4):
        service.now_ms += 15_000
        for member in ("c1", "m1"):
            service.ask(Heartbeat(group_id="billing", member_id=member, member_epoch=1))


def consumed(service):
    """c1 accepts, releases and rejects offsets 100 to 149, gives up 150, and its locks of 151 to 160 run out."""
    take(service, 50)
    service.now_ms += 1_000
    ack(service, 100, 119, ACCEPT)
    ack(service, 120, 124, RELEASE)
    ack(service, 125, 129, REJECT)
    letters = Written(offsets=OffsetRange("T", 0, 125, 127), delivery_count=1)
    service.ask(MarkDeadLettersWritten(written=(letters,)))
    take(service, 5)
    ack(service, 120, 124, ACCEPT, 2)
    ack(service, 130, 149, ACCEPT)
    for attempt in range(1, LIMIT + 1):
        take(service, 1)
        ack(service, 150, 150, RELEASE, attempt)
    take(service, 10)
    for _ in range(3):
        service.now_ms += LOCK_MS // 2
        for member in ("c1", "m1"):
            service.ask(Heartbeat(group_id="billing", member_id=member, member_epoch=1))


def failing_batch(service, plan):
    """m1 comes back to its batch of offsets 151 to 160 until the first one has failed alone; the others are sliced."""
    batch = service.ask(acquire(plan, limit=10)).plan.plan_id
    for epoch in range(1, LIMIT + 1):
        service.ask(msgspec.structs.replace(start_plan(batch), member_epoch=epoch))
        service.ask(join(process=f"p1-{epoch}"))
    service.ask(msgspec.structs.replace(start_plan(batch), member_epoch=LIMIT + 1))


OF_PARTITION = {
    "in_flight_records": 3
    + 10,  # rejected or given up without a dead letter; the failing batch, whose second record c1 holds
    "in_flight_runs": 6,  # 128 to 129, 130 to 149 (done), 150, 151, 152, 153 to 160
    "acquired_records": 1,
    "held_dead_letters": 3,
    "start_offset": 128,
    "log_end_offset": 500,
    "lag": 500 - 128 - 20,
    "acquisition_lock_timeouts_total": 10,
}
OF_GROUP = {
    ("acquired_records_total", "query"): 100 + 10,
    ("acquired_records_total", "share consumer"): 50 + 5 + LIMIT + 10 + 1,
    ("redelivered_records_total",): 5 + (LIMIT - 1) + 10 + 1,
    ("record_acknowledgements_total", "accept"): 100 + 20 + 5 + 20,
    ("record_acknowledgements_total", "release"): 5 + LIMIT,
    ("record_acknowledgements_total", "reject"): 5,
    ("given_up_records_total", "delivery_limit"): 1,
    ("given_up_records_total", "expired"): 0,
    ("given_up_records_total", "undecided"): 0,
    ("given_up_records_total", "ttl"): 0,
    ("dead_letter_queue_records_total",): 3,
    ("plan_reclaims_total",): LIMIT,
    ("left_out_records_total", "cut"): 9,
    ("left_out_records_total", "quarantined"): 1,
    ("sessions_ended_total", "left"): 1,
    ("sessions_ended_total", "released"): 1,
    ("sessions_ended_total", "timed out"): 1,
    ("rebalances_total",): 1,
    ("busy_seconds_total",): 2 + 1,
    ("members", "query"): 1,
    ("members", "share consumer"): 1,
    ("oldest_in_flight_age_seconds",): 3,
    ("done_records", "accepted"): 100 + 20 + 5 + 20,
    ("done_records", "rejected"): 3,
    ("done_records", "removed"): 0,
    ("done_records", "deleted"): 0,
    ("done_records", "skipped"): 0,
    ("done_records", "repeated"): 0,
    ("unaccounted_records",): 0,
    ("isolated_records", "sliced"): 9,
    ("isolated_records", "failed alone"): 1,
    ("slowed_queries",): 0,
    ("ending_queries", ""): 1,
    ("waiting_partitions",): 0,
    ("longest_wait_seconds",): 0,
    ("paused_topics", "orders"): 1,
    ("limited", "share.max.in.flight.records"): 1,
}
OF_COORDINATOR = {
    ("groups", "EMPTY"): 0,
    ("groups", "STABLE"): 1,
    ("groups", "DEAD"): 0,
    ("write_failures_total", "refused"): 1,
    ("write_failures_total", "outcome unknown"): 1,
    ("write_failures_total", "fenced"): 1,
    ("group_load_seconds_count",): 4,
    ("group_load_seconds_sum",): 4 / 4,
    ("requests_total", "DescribeGroup"): 1,
    ("requests_total", "Heartbeat"): 1,
    ("failed_requests_total", "Heartbeat", "FencedMemberEpoch"): 1,
}


def test_a_scrape_equals_the_history_value_by_value(told):
    service = told.service
    failed_writes(service)
    members_that_go(service)
    plan = service.ask(acquire(limit=100)).plan.plan_id
    service.ask(start_plan(plan))
    service.now_ms += 2_000
    service.ask(complete(plan))
    consumed(service)
    failing_batch(service, plan)
    take(service, 1)
    service.now_ms += 3_000
    service.ask(AlterConfigs(configs={"share.paused.topics": "orders,unknown", "share.max.in.flight.records": "1"}))
    for request in (DescribeGroup(group_id="billing"), Heartbeat(group_id="billing", member_id="m1", member_epoch=1)):
        with contextlib.suppress(FencedMemberEpoch), told.metrics.counters.handling(request):
            service.ask(request)
    writes = len(told.writes)
    of_coordinator = OF_COORDINATOR | {
        ("write_latency_seconds_count",): writes,
        ("write_latency_seconds_sum",): writes / 4,
    }
    assert told.scrape() == (
        {key(f"share_partition_{name}", "billing", "orders", "0"): value for name, value in OF_PARTITION.items()}
        | {key(f"share_group_{name}", "billing", *labels): value for (name, *labels), value in OF_GROUP.items()}
        | {key(f"share_coordinator_{name}", *labels): value for (name, *labels), value in of_coordinator.items()}
    )
    seen = {name for name, *_ in told.scrape()}
    between_hosts = {"passed_on_requests", "requests_of_other_hosts", "groups_taken"}
    not_here = {f"share_coordinator_{name}_total" for name in between_hosts}
    not_here |= {"share_partition_removed_records_total"}  # the next test's
    assert counted_or_measured(told) - seen == not_here, "the history moves every metric"


def test_records_that_kafka_removed_are_counted(told):
    told.metrics.counters.add("billing", Count("removed", ("orders", "0"), 3))
    assert told.scrape()[key("share_partition_removed_records_total", "billing", "orders", "0")] == 3


def families(measured):
    """All metrics, also counters that were never counted."""
    with urllib.request.urlopen(f"http://127.0.0.1:{measured.metrics.port}/metrics", timeout=60) as answer:
        found = text_string_to_metric_families(answer.read().decode())
        return [each for each in found if each.name.startswith("share_") and not each.name.endswith("_created")]


def counted_or_measured(measured):
    """The names of all metrics but of those parts of a histogram that ``scrape`` leaves out."""
    ends = {"counter": "_total", "histogram": "_count"}
    return {f"{family.name}{ends.get(family.type, '')}" for family in families(measured)}


def test_a_decision_that_did_not_become_durable_is_not_counted(measured):
    service = measured.service
    service.store.fault = "refuse"
    with pytest.raises(CoordinatorNotAvailable):
        service.ask(acquire(limit=100))
    seen = measured.scrape()
    assert key("share_group_acquired_records_total", "billing", "query") not in seen
    assert seen[key("share_coordinator_write_failures_total", "refused")] == 1


def test_a_group_unloaded_at_rest_is_shown_until_it_is_deleted(measured):
    service = measured.service
    service.ask(LeaveGroup(group_id="billing", member_id="m1", member_epoch=1))
    before = gauges(measured.scrape())
    assert before[key("share_partition_lag", "billing", "orders", "0")] == 500
    for _ in range(15):
        service.now_ms += 60_000
        assert gauges(measured.scrape()) == before
        service.runtime.step(service.now_ms)
    assert "billing" not in service.runtime.groups
    service.ask(DescribeGroup(group_id="billing"))
    service.now_ms += 60_000  # a member might come back for as long as a session lasts
    service.ask(DeleteGroup(group_id="billing", execute=True))
    assert key("share_partition_lag", "billing", "orders", "0") not in measured.scrape()


def gauges(seen):
    """The samples of groups and partitions that are no counters."""
    counted = ("_total", "_count", "_sum")
    return {sample: value for sample, value in seen.items() if not sample[0].endswith(counted)}


def test_a_closed_endpoint_leaves_no_thread(measured):
    before = set(threading.enumerate())
    more = Metrics("127.0.0.1", 0)
    serving = set(threading.enumerate()) - before
    assert serving
    more.close()
    wait_until(lambda: not any(thread.is_alive() for thread in serving), what="its threads have ended")


@pytest.mark.parametrize(
    "path", ["deploy/prometheus/rules.yaml", "deploy/grafana/share-groups.json", "docs/run/metrics.md"], ids=str
)
def test_rules_dashboard_and_docs_name_metrics_that_exist(measured, path):
    text = (ROOT / path).read_text(encoding="utf-8")
    named = set(re.findall(r"\bshare_(?:group|partition|coordinator)_\w+", text))
    assert len(named) > 8
    assert (
        named - {f"{family.name}{end}" for family in families(measured) for end in ("", "_total", "_bucket")} == set()
    )


def test_the_docs_name_every_metric(measured):
    named = (ROOT / "docs" / "run" / "metrics.md").read_text(encoding="utf-8")
    assert {family.name for family in families(measured) if f"`{family.name}" not in named} == set()


def test_the_collectors_configuration_is_whole_and_names_the_port():
    page = (ROOT / "docs" / "run" / "metrics.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    config = yaml.safe_load(block)
    (pipeline,) = config["service"]["pipelines"].values()
    for part in ("receivers", "processors", "exporters"):
        assert pipeline[part]
        assert set(pipeline[part]) == set(config[part])
    (scraped,) = config["receivers"]["prometheus"]["config"]["scrape_configs"]
    (key,) = re.findall(r"# the port is (\S+)", block)
    (port,) = re.findall(rf"{key}=(\d+)", page)
    assert key in COORDINATOR_KEYS
    assert scraped["static_configs"] == [{"targets": [f"127.0.0.1:{port}"]}]


def test_the_rules_and_the_dashboard_can_be_read():
    groups = yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules.yaml").read_text(encoding="utf-8"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert all(rule["expr"].strip() and ("record" in rule or rule["annotations"]["summary"]) for rule in rules)
    recorded = {rule["record"] for rule in rules if "record" in rule}
    keda = yaml.safe_load((ROOT / "deploy" / "keda" / "scaled-object.yaml").read_text(encoding="utf-8"))
    assert keda["spec"]["triggers"][0]["metadata"]["query"].split("{")[0] in recorded
    panels = json.loads((ROOT / "deploy" / "grafana" / "share-groups.json").read_text(encoding="utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) == 12
