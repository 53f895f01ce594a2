"""Counters of what a coordinator's groups did since the process started, named after Kafka's broker metrics where such
a metric exists (table in docs/run/metrics.md). What a decision counts is computed in
:mod:`coordinator.core.commands.counts`."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram

from coordinator.core.commands.counts import Count
from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.host_errors import OwnedElsewhere
from coordinator.protocol.messages import Request
from coordinator.service.stores.store import StoreFenced, StoreOutcomeUnknown, StorePartlyFailed

LATENCIES_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Bounds of the histograms' buckets, in seconds."""
MOST_MEMBERS = 10_000
"""The last acknowledgement of up to this many members is remembered."""

_COUNTERS = {
    "acquired": ("share_group_acquired_records", "Records that members acquired.", ("group", "member_type")),
    "redelivered": ("share_group_redelivered_records", "Acquired records that had been acquired before.", ("group",)),
    "acknowledged": (
        "share_group_record_acknowledgements",
        "Records that were acknowledged, by outcome (ShareGroupMetrics, RecordAcknowledgementsPerSec).",
        ("group", "ack_type"),
    ),
    "given_up": (
        "share_group_given_up_records",
        "Records that were given up at the delivery limit or for their age, by the reason in their dead letters.",
        ("group", "disposition"),
    ),
    "removed": (
        "share_partition_removed_records",
        "Records that Kafka removed before they were done: retention, or a deletion.",
        ("group", "topic", "partition"),
    ),
    "dead_letters": (
        "share_group_dead_letter_queue_records",
        "Records whose dead letter was written (ShareGroupMetrics, DeadLetterQueueRecordCount).",
        ("group",),
    ),
    "lock_timeouts": (
        "share_partition_acquisition_lock_timeouts",
        "Records whose lock, or holder's session, timed out (SharePartitionMetrics, AcquisitionLockTimeoutPerSec).",
        ("group", "topic", "partition"),
    ),
    "reclaims": ("share_group_plan_reclaims", "Plans of queries that a later process reclaimed.", ("group",)),
    "left_out": (
        "share_group_left_out_records",
        "Records that a reclaimed plan continued without, by reason.",
        ("group", "reason"),
    ),
    "rebalances": (
        "share_group_rebalances",
        "New assignments of partitions to ShareConsumers (group-coordinator-metrics, share-group-rebalance-count).",
        ("group",),
    ),
    "sessions_ended": ("share_group_sessions_ended", "Sessions of members that ended.", ("group", "how")),
    "busy_s": (
        "share_group_busy_seconds",
        "Seconds in which members held records that they have acknowledged since, each second of a member once.",
        ("group",),
    ),
    "write_failures": (
        "share_coordinator_write_failures",
        "Writes of a group's state that failed: refused, fenced by another owner, or of unknown outcome.",
        ("reason",),
    ),
    "requests": (
        "share_coordinator_requests",
        "Requests that were handled (BrokerTopicMetrics, TotalShareFetchRequestsPerSec and "
        "TotalShareAcknowledgementRequestsPerSec).",
        ("request",),
    ),
    "failed_requests": (
        "share_coordinator_failed_requests",
        "Requests that were refused, by error (BrokerTopicMetrics, FailedShareFetchRequestsPerSec and "
        "FailedShareAcknowledgementRequestsPerSec).",
        ("request", "error"),
    ),
    "taken": (
        "share_coordinator_groups_taken",
        "Groups that were taken from another owner, by reason: it gave the group up, was replaced, or is silent.",
        ("reason",),
    ),
    "passed_on": (
        "share_coordinator_passed_on_requests",
        "Requests that were passed on to the owner of their group on another host, by result.",
        ("result",),
    ),
    "of_other_hosts": (
        "share_coordinator_requests_of_other_hosts",
        "Requests of other hosts to groups that this coordinator owns; they count as handled ones as well.",
        ("request",),
    ),
}
"""Each counter's name for Prometheus, its text, and its labels. The first ones have the names of the core's counts."""
_HISTOGRAMS = (
    (
        "share_coordinator_write_latency_seconds",
        "Seconds that writes to the state store took (share-coordinator-metrics, write-latency-avg and -max).",
    ),
    (
        "share_coordinator_group_load_seconds",
        "Seconds that loading a group's state took (ShareGroupMetrics, PartitionLoadTimeMs).",
    ),
)


class Counters:
    """The counters, in ``registry``. Thread-safe."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counters = {
            name: Counter(metric, text, labels, registry=registry) for name, (metric, text, labels) in _COUNTERS.items()
        }
        self._writes, self._loads = (
            Histogram(metric, text, buckets=LATENCIES_S, registry=registry) for metric, text in _HISTOGRAMS
        )
        for reason in ("refused", "fenced", "outcome unknown"):
            self._count("write_failures", reason, number=0)
        self._begun: set[str] = set()
        self._busy_until_ms: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._changing = threading.Lock()

    def add(self, group_id: str, count: Count) -> None:
        """Count what a decision did. With a group's first count the counters that alerts watch begin at 0: to
        Prometheus, a counter that begins at 1 has not risen."""
        if group_id not in self._begun:
            self._begun.add(group_id)
            for ack_type in ("accept", "release", "reject"):
                self._count("acknowledged", group_id, ack_type, number=0)
            for disposition in ("delivery_limit", "expired", "undecided", "ttl"):
                self._count("given_up", group_id, disposition, number=0)
        if count.name == "held":
            self._add_busy(group_id, count)
        elif count.number:
            self._count(count.name, group_id, *count.labels, number=count.number)

    def _count(self, name: str, *labels: str, number: float = 1) -> None:
        self._counters[name].labels(*labels).inc(number)

    def _add_busy(self, group_id: str, count: Count) -> None:
        """Add the time since the acquisition, or since the member's last acknowledgement if that is later."""
        acquired_ms, now_ms = map(int, count.labels[1:])
        with self._changing:
            before_ms = self._busy_until_ms.pop((group_id, count.labels[0]), 0)
            self._busy_until_ms[group_id, count.labels[0]] = now_ms
            if len(self._busy_until_ms) > MOST_MEMBERS:
                self._busy_until_ms.popitem(last=False)
        self._count("busy_s", group_id, number=max(0, now_ms - max(acquired_ms, before_ms)) / 1000)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        begun_s = time.perf_counter()
        try:
            yield
        except StorePartlyFailed as partly:
            for error in partly.failed.values():
                self._count("write_failures", _reason(error))
            raise
        except Exception as error:
            self._count("write_failures", _reason(error))
            raise
        self._writes.observe(time.perf_counter() - begun_s)

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        begun_s = time.perf_counter()
        yield
        self._loads.observe(time.perf_counter() - begun_s)

    def taken(self, why: str) -> None:
        self._count("taken", why)

    def passed_on(self, result: str) -> None:
        self._count("passed_on", result)

    def asked_by_other_host(self, request: str) -> None:
        self._count("of_other_hosts", request)

    @contextlib.contextmanager
    def handling(self, request: Request[Any]) -> Iterator[None]:
        """A context that counts a request, and its error if it is refused. Not counted: those for groups elsewhere."""
        name = type(request).__name__
        try:
            yield
        except OwnedElsewhere:
            raise
        except BaseException as raised:
            error = type(raised).__name__ if isinstance(raised, ShareGroupError) else "InternalError"
            self._count("failed_requests", name, error)
            self._count("requests", name)
            raise
        self._count("requests", name)


def _reason(error: Exception) -> str:
    if isinstance(error, StoreFenced):
        return "fenced"
    return "outcome unknown" if isinstance(error, StoreOutcomeUnknown) else "refused"
