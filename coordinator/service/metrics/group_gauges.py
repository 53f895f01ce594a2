"""Gauges of the groups that a coordinator serves, measured at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from coordinator.core.commands.counts import QUERY, SHARE_CONSUMER
from coordinator.core.looks.measures import GroupMeasures, MeasureGroup
from coordinator.protocol.values import TopicAndPartition
from coordinator.service.runtime.event_loop import PartitionedRuntime
from coordinator.service.runtime.transaction import one

Ends: TypeAlias = Mapping[TopicAndPartition, int]
EndsOf: TypeAlias = Callable[[list[TopicAndPartition], bool], Ends]
"""Returns the known ends of these logs. The second argument: whether the last stable offsets are meant."""

_OF_GROUP = {
    "share_group_members": ("Members with a session.", ("member_type",)),
    "share_group_oldest_in_flight_age_seconds": ("How long the oldest acquired record has been held.", ()),
    "share_group_done_records": ("Records by what became of them, those of deleted topics among them.", ("how",)),
    "share_group_unaccounted_records": ("0: each offset that was acquired is done or still there.", ()),
    "share_group_isolated_records": ("Records that keep failing, by stage of isolation.", ("stage",)),
    "share_group_ending_queries": ("Queries that ended with a named error, or keep ending.", ("error",)),
    "share_group_slowed_queries": ("Queries that acquire less because sinks release most of their records.", ()),
    "share_group_waiting_partitions": ("Partitions that wait for a released or quarantined record (share.order).", ()),
    "share_group_paused_topics": ("1: nothing is acquired from this topic (share.paused.topics).", ("topic",)),
    "share_group_limited": ("1: this limit of the group is used up at the moment of the scrape.", ("key",)),
    "share_group_longest_wait_seconds": ("For how long one of them has waited for its record.", ()),
}
_OF_PARTITION = {
    "share_partition_in_flight_records": "Records in flight (SharePartitionMetrics, InFlightMessageCount).",
    "share_partition_in_flight_runs": "Runs of equal records in flight (SharePartitionMetrics, InFlightBatchCount).",
    "share_partition_acquired_records": "Records that a member holds.",
    "share_partition_held_dead_letters": "Records whose dead letter is not written yet.",
    "share_partition_start_offset": "SPSO: the first offset that is not done.",
    "share_partition_log_end_offset": "The end of the partition's log, once it is known.",
    "share_partition_lag": "Records up to the log's end that are not done (KIP-1226), once the end is known.",
}


class GroupGauges(Collector):
    """Measures each group without changing it. Leaves out a group that does not answer. A group that was unloaded at
    rest is shown as it was then, with the present ends of its logs."""

    def __init__(self, runtime: PartitionedRuntime, ends_of: EndsOf) -> None:
        self._runtime, self._ends_of = runtime, ends_of

    def describe(self) -> Iterable[Metric]:
        """Returns no metric: the registry wants the names without a measurement."""
        return ()

    def collect(self) -> Iterator[Metric]:
        served = self._runtime.call_each(lambda group_id: one(MeasureGroup(group_id=group_id)))
        measured = self._runtime.rested_groups() | served  # so that an alert shows an unloaded group with a lag
        states = Counter(measures.state for measures in measured.values())
        count = GaugeMetricFamily(
            "share_coordinator_groups",
            "Groups that this coordinator serves (group-coordinator-metrics, share-group-count).",
            labels=("state",),
        )
        for state in ("EMPTY", "STABLE", "DEAD"):
            count.add_metric((state,), states[state])
        yield count
        of_group = {
            name: GaugeMetricFamily(name, text, labels=("group", *labels)) for name, (text, labels) in _OF_GROUP.items()
        }
        of_partition = {
            name: GaugeMetricFamily(name, text, labels=("group", "topic", "partition"))
            for name, text in _OF_PARTITION.items()
        }
        ends = {level: self._ends(measured.values(), read_committed=level) for level in (False, True)}
        for group_id, measures in measured.items():
            _add(group_id, measures, ends[measures.read_committed], of_group, of_partition)
        yield from (*of_group.values(), *of_partition.values())

    def _ends(self, measured: Iterable[GroupMeasures], *, read_committed: bool) -> Ends:
        wanted = {(p.topic, p.partition) for m in measured if m.read_committed == read_committed for p in m.partitions}
        return self._ends_of(sorted(wanted), read_committed) if wanted else {}


def _add(
    group_id: str,
    measures: GroupMeasures,
    ends: Ends,
    of_group: dict[str, GaugeMetricFamily],
    of_partition: dict[str, GaugeMetricFamily],
) -> None:
    for kind, number in zip((QUERY, SHARE_CONSUMER), measures.members, strict=True):
        of_group["share_group_members"].add_metric((group_id, kind), number)
    of_group["share_group_oldest_in_flight_age_seconds"].add_metric((group_id,), measures.oldest_ms / 1000)
    of_group["share_group_slowed_queries"].add_metric((group_id,), measures.slowed)
    for error, number in (measures.ending or {"": 0}).items():
        of_group["share_group_ending_queries"].add_metric((group_id, error), number)
    of_group["share_group_waiting_partitions"].add_metric((group_id,), measures.waiting)
    of_group["share_group_longest_wait_seconds"].add_metric((group_id,), measures.longest_wait_ms / 1000)
    for topic in measures.paused:
        of_group["share_group_paused_topics"].add_metric((group_id, topic), 1)
    for limit, is_used_up in measures.limits.items():
        of_group["share_group_limited"].add_metric((group_id, limit), is_used_up)
    records = measures.records
    kafkas = {"removed": records.removed, "deleted": records.deleted}
    done = {"accepted": records.accepted, "skipped": records.skipped, "repeated": records.repeated}
    archived = {"gap" if reason == "none" else reason: number for reason, number in records.archived.items()}
    for how, number in {**done, **kafkas, **archived}.items():
        of_group["share_group_done_records"].add_metric((group_id, how), number)
    of_group["share_group_unaccounted_records"].add_metric((group_id,), records.unaccounted)
    for stage, number in measures.isolated.items():
        of_group["share_group_isolated_records"].add_metric((group_id, stage.value), number)
    for p in measures.partitions:
        end = ends.get((p.topic, p.partition))
        values = {
            "share_partition_in_flight_records": p.in_flight,
            "share_partition_in_flight_runs": p.runs,
            "share_partition_acquired_records": p.acquired,
            "share_partition_held_dead_letters": p.archiving,
            "share_partition_start_offset": p.start_offset,
        }
        if end is not None:
            values["share_partition_log_end_offset"] = end
            values["share_partition_lag"] = p.lag(end)
        for name, value in values.items():
            of_partition[name].add_metric((group_id, p.topic, str(p.partition)), value)
