"""The one table of configuration: group keys, which are stored with a share group and can change while it runs, and the
coordinator's own.

Rule: every key is in this table; ``tools/generate_config_docs.py`` writes conf/ and docs/do/options.md from it. If
Kafka has a key for the purpose, its name is used; other keys are marked ``ours``. "Kafka" in a ``why`` means a broker
of Kafka 4.3 with its defaults. A broker has narrower bounds because it serves many tenants; a sharegroup coordinator
serves its own groups."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from coordinator.config.iso_duration import parse_duration_ms
from coordinator.config.keys import ConfigKey, row, table_of
from coordinator.protocol.addresses import parse_endpoints
from coordinator.protocol.topic_names import EVERYTHING, is_pattern, is_topic_list, is_topic_name

PAUSED, RATE, IN_FLIGHT = "share.paused.topics", "share.max.records.per.second", "share.max.in.flight.records"
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
DEAD_LETTER_SOURCES = "errors.deadletterqueue.source.topics"
DELIVERY_DELAY, RECORD_TTL = "share.delivery.delay.ms", "share.record.ttl.ms"
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


class OffsetReset(NamedTuple):
    """Where a group begins in a partition without a start offset. ``duration_ms``: for ``by_duration`` only."""

    strategy: str
    duration_ms: int = 0


def offset_reset(text: str) -> OffsetReset | None:
    """The reset in ``latest``, ``earliest`` or ``by_duration:PnDTnHnMn.nS`` (KIP-932, KIP-1106); else None."""
    strategy, _, duration = text.partition(":")
    if strategy == "by_duration":
        duration_ms = parse_duration_ms(duration)
        return None if duration_ms is None else OffsetReset(strategy, duration_ms)
    return OffsetReset(text) if text in ("latest", "earliest") else None


def _is_store(text: str) -> bool:
    return text in ("sqlite", "kafka") or re.fullmatch("sqlite:(?!//).+", text, re.DOTALL) is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupValues:
    """A group's configuration, with the row of each key. Attributes are the keys in snake case."""

    # --- sessions and locks
    share_session_timeout_ms: int = row(
        default=45_000,
        between=(1_000, _HOUR_MS),
        kip="KIP-932",
        doc="A member that sends no heartbeat for this long has left. A query that restarts within this time keeps its "
        "batch.",
        why="Kafka: 45,000 to 60,000. A query's locks live as long as its session.",
    )
    share_member_retention_ms: int = row(
        default=7 * _DAY_MS,
        between=(_HOUR_MS, 3_650 * _DAY_MS),
        ours=True,
        doc="How long a member without records may be away before the group forgets it. The group forgets it up to an "
        "eighth of this time later, and never the 1,000 members seen last. The query of a forgotten member needs a new "
        "checkpointLocation (StalePlan, MemberForgotten).",
        why="Kafka has no members that outlive their session; here their plans and epochs do, so that a batch can be "
        "replayed. Like offsets.retention.minutes, this bounds a group's state.",
    )
    share_heartbeat_interval_ms: int = row(
        default=5_000,
        between=(100, 60_000),
        kip="KIP-932",
        doc="Time between two heartbeats of a member. It must be less than share.session.timeout.ms. If this key is "
        "not set: 5000, or a third of the session timeout if that is less.",
        why="Kafka: 5,000 to 15,000.",
    )
    share_record_lock_duration_ms: int = row(
        default=30_000,
        between=(1_000, _HOUR_MS),
        kip="KIP-932",
        doc="How long a ShareConsumer holds a record that it neither acknowledges nor renews.",
        why="Kafka: 15,000 to 60,000.",
    )
    share_max_lock_extension_ms: int = row(
        default=30 * 60_000,
        between=(1_000, _DAY_MS),
        kip="KIP-1222",
        ours=True,
        doc="For how long after a record was acquired a ShareConsumer can renew the lock on it.",
        why="In Kafka a consumer that hangs in a renewing loop keeps its records for ever.",
    )
    share_renew_acknowledge_enable: bool = row(
        default=True, kip="KIP-1222", doc="Whether ShareConsumers may renew their locks (acknowledge type RENEW)."
    )
    group_share_in_progress_staleness_threshold_ms: int = row(
        default=90_000,
        between=(1_000, _HOUR_MS),
        kip="KAFKA-20458",
        doc="How long a ShareConsumer keeps a record in progress without a signal (mark_in_progress).",
    )
    group_share_in_progress_max_lock_extension_ms: int = row(
        default=30 * 60_000,
        between=(1_000, _DAY_MS),
        kip="KAFKA-20458",
        doc="For how long after a record was acquired signals (mark_in_progress) can keep it; a later signal is "
        "refused.",
    )
    group_share_in_progress_rebalance_grace_ms: int = row(
        default=5_000,
        between=(0, _HOUR_MS),
        kip="KAFKA-20458",
        doc="How long a record in progress, whose last signal is fresh, stays with a ShareConsumer that left or was "
        "lost.",
    )
    share_partition_max_record_locks: int = row(
        default=1_000_000,
        between=(100, 100_000_000),
        kip="KIP-1240",
        doc="How many records of one partition can be acquired at the same time. A batch that its query reclaims may "
        "exceed this.",
        why="Kafka: 2,000, at most 10,000. Locks are ranges here, and only acquired records count, not all records "
        "between the start offset and the end offset.",
    )
    # --- deliveries
    share_delivery_count_limit: int = row(
        default=5,
        between=(2, 25),
        kip="KIP-1240",
        doc="How many tries a record has (docs/learn/concepts.md, Tries). After them, a ShareConsumer's record is "
        "archived, and a query's record that failed is quarantined. A record is also archived after this many releases "
        "by queries.",
    )
    share_isolation_base: int = row(
        default=100_000,
        between=(1, 10_000_000),
        ours=True,
        doc="The number from which isolation computes its slices: a record that failed again is delivered in a smaller "
        "slice (docs/learn/concepts.md, Isolation). Set it to about the number of records in a batch.",
        why="Kafka halves the batch that a consumer fetched; a query's batch is too large for that.",
    )
    share_poison_solo_timeout_ms: int = row(
        default=600_000,
        between=(0, 7 * _DAY_MS),
        ours=True,
        doc="With a dead letter topic: for how long a quarantined record, delivered alone, may fail before it goes on "
        "trial although the query has completed nothing since (docs/learn/concepts.md, Isolation).",
        why="While nothing succeeds, an outage can't be told from poison: until this time has passed, such failures "
        "are taken for an outage.",
    )
    share_release_backoff_ms: int | None = row(
        default=None,
        unset="10000 for queries, 0 for ShareConsumers",
        between=(0, _DAY_MS),
        ours=True,
        doc="Time until a released record is available again, after its first release; 0: at once. A value applies to "
        "queries and ShareConsumers alike.",
        why="Kafka delivers a released record again at once. A query releases whole batches while a service is away: "
        "at once, all tries are over within seconds; with the defaults they take some 150 s.",
    )
    share_release_backoff_multiplier: float = row(
        default=2.0,
        between=(1.0, 10.0),
        ours=True,
        doc="Factor by which the release backoff grows with each release.",
        why="Kafka has no backoff of releases.",
    )
    share_release_backoff_max_ms: int = row(
        default=300_000,
        between=(0, _DAY_MS),
        ours=True,
        doc="The longest release backoff.",
        why="Kafka has no backoff of releases.",
    )
    share_release_backoff_jitter: float = row(
        default=0.2,
        between=(0.0, 1.0),
        ours=True,
        doc="The part of a release backoff that is random.",
        why="Kafka has no backoff of releases.",
    )
    share_release_breaker_ratio: float = row(
        default=0.5,
        between=(0.0, 1.0),
        ours=True,
        doc="A query whose sinks release more than this part of its batches is slowed until they release less, and "
        "uses up no tries meanwhile. With 1, or a release backoff of 0, no query is slowed.",
        why="Kafka's consumers release single records; a query releases whole batches while a service is away.",
    )
    # --- what is delivered, and how
    share_order: str = row(
        default="none",
        choices=("none", "partition"),
        ours=True,
        doc="partition: one member at a time holds records of a partition, in offset order (docs/learn/order.md). "
        "none: a record that waits holds up no other.",
        why="Kafka's share groups have no order.",
    )
    share_paused_topics: str = row(
        default="",
        takes="topics separated by commas, or * for all",
        is_valid=is_topic_list,
        ours=True,
        doc="Topics of which nothing is acquired (docs/run/flow.md); empty: none. Members keep the records they hold.",
        why="KIP-1249 discusses it.",
    )
    share_max_records_per_second: int | None = row(
        default=None,
        unset="no limit",
        between=(1, 10_000_000),
        ours=True,
        doc="How many records all members together acquire in any second at most (docs/run/flow.md).",
        why="Kafka has quotas in bytes, of each client.",
    )
    share_max_in_flight_records: int | None = row(
        default=None,
        unset="no limit",
        between=(1, 100_000_000),
        ours=True,
        doc="How many records all members together hold at most; a batch that is reclaimed counts, and is not cut.",
        why="Kafka limits the locks of each partition.",
    )
    share_delivery_delay_ms: int = row(
        default=0,
        between=(0, 365 * _DAY_MS),
        ours=True,
        doc="A record is first delivered when its timestamp is this old, never earlier (docs/run/flow.md).",
        why="KIP-1277 discusses it.",
    )
    share_record_ttl_ms: int | None = row(
        default=None,
        unset="no record",
        between=(1_000, 3_650 * _DAY_MS),
        ours=True,
        doc="A record that waits until its timestamp is older than this is given up (docs/do/dead-letters.md); held "
        "records are not.",
        why="Kafka has the topic's retention, for all its readers alike.",
    )
    share_auto_offset_reset: str = row(
        default="latest",
        takes="latest, earliest or by_duration:PnDTnHnMn.nS (for example by_duration:PT1H), not negative",
        is_valid=lambda text: offset_reset(text) is not None,
        kip="KIP-932",
        doc="Where a new group begins. startingOffsets of a query overrides it. Partitions added later begin at their "
        "earliest offset.",
    )
    share_isolation_level: str = row(
        default="read_uncommitted",
        choices=("read_uncommitted", "read_committed"),
        kip="KIP-932",
        doc="Whether records of open and aborted transactions are delivered.",
    )
    share_acquire_mode: str = row(
        default="batch_optimized",
        choices=("batch_optimized", "record_limit"),
        kip="KIP-1206",
        doc="batch_optimized: a run that was delivered before is acquired whole, even if the batch then exceeds the "
        "limit of records. record_limit: a batch never exceeds the limit.",
        why="Kafka has it as a setting of each consumer; a query's is the group's.",
    )
    share_acknowledgement_mode: str = row(
        default="implicit",
        choices=("implicit", "explicit"),
        kip="KIP-932",
        doc="The outcome of the records of a completed batch that no sink decided: implicit accepts them, explicit "
        "releases them (docs/do/sink.md).",
        why="Kafka has it as a setting of each consumer; a query's is the group's.",
    )
    share_assignment_interval_ms: int = row(
        default=1_000,
        between=(0, _HOUR_MS),
        kip="KIP-1263",
        doc="The least time between two assignments of partitions to a group's ShareConsumers.",
        why="Kafka: at most 15,000, a broker's default.",
    )
    # --- dead letters
    errors_deadletterqueue_topic_name: str = row(
        default="",
        takes="a topic's name that does not begin with __",
        is_valid=lambda text: not text or (is_topic_name(text) and not text.startswith("__")),
        kip="KIP-1191",
        doc="The topic that archived records are written to; empty: none.",
    )
    errors_deadletterqueue_source_topics: str = row(
        default=EVERYTHING,
        takes="an RE2 pattern of the whole name",
        is_valid=is_pattern,
        ours=True,
        doc="The topics that the group may read while it has this dead letter topic; the coordinator sets this key "
        "from topics= of the token with which the dead letter topic was named (docs/run/security.md).",
        why="Kafka has it as ACLs of the brokers, which write with their own rights.",
    )
    errors_deadletterqueue_copy_record_enable: bool = row(
        default=True,
        kip="KIP-1191",
        doc="Whether a dead letter holds the record's key, value and headers, or only headers with its origin.",
        why="Kafka: false. A dead letter without its record can't be redriven once the log has moved on.",
    )
    errors_deadletterqueue_auto_create_topics_enable: bool = row(
        default=False,
        kip="KIP-1191",
        doc="Whether the dead letter topic is created when it is missing.",
        why="Kafka has it as a setting of the broker.",
    )
    errors_deadletterqueue_on_failure: str = row(
        default="hold",
        choices=("hold", "archive"),
        ours=True,
        doc="A record whose dead letter can't be written: hold keeps the record until it can be, archive archives the "
        "record without one.",
        why="Kafka archives without a dead letter, which loses the record.",
    )
    errors_deadletterqueue_max_reject_ratio: float = row(
        default=1.0,
        between=(0.0, 1.0),
        ours=True,
        doc="A query stops after a batch if sinks have then rejected more than this part of the group's last 10,000 "
        "records; fewer than 100 records are not judged. With 1 no query stops.",
        why="Kafka has no breaker.",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class CoordinatorValues:
    """The coordinator's own configuration, with the row of each key."""

    share_state_store: str = row(
        default="kafka",
        takes="kafka, sqlite or sqlite:PATH",
        is_valid=_is_store,
        ours=True,
        doc="Where the groups' state is kept. kafka: in the topic share-group-state. sqlite: a file for each Kafka "
        "cluster in the user's state directory; sqlite:PATH: that file. If two hosts use one group with sqlite, "
        "everything is delivered twice.",
        why="Kafka keeps it in a topic of its own, __share_group_state, which is never touched.",
    )
    share_coordinator_endpoint: str = row(
        default="",
        takes="host:port, or several of them separated by commas",
        is_valid=lambda text: not text or parse_endpoints(text) is not None,
        ours=True,
        doc="A standalone coordinator to use, or several (docs/run/standalone.md). Empty: a coordinator is started on "
        "demand on the driver's host.",
        why="Kafka's brokers are the coordinators.",
    )
    share_coordinator_token_file: str = row(
        default="",
        ours=True,
        doc="A file with the token of a standalone coordinator, which only its user and group may read. Empty: the "
        "token is in the environment variable SHAREGROUP_COORDINATOR_TOKEN.",
        why="Kafka's clients authenticate with SASL.",
    )
    share_coordinator_ssl_ca_location: str = row(
        default="",
        ours=True,
        doc="A PEM file with the authorities that sign the certificate of a standalone coordinator. Empty: TLS with "
        "the system's certificates, and no TLS for a coordinator on loopback.",
        why="Kafka has ssl.truststore.* for its own listeners.",
    )
    share_broker_outage_timeout_ms: int = row(
        default=300_000,
        between=(1_000, _DAY_MS),
        ours=True,
        doc="How long a running query retries while the Kafka brokers, or the coordinator, are unreachable; then it "
        "fails. Each query can set its own value.",
        why="Kafka's consumers retry for ever.",
    )
    share_coordinator_idle_timeout_ms: int = row(
        default=300_000,
        between=(1_000, _DAY_MS),
        ours=True,
        doc="A coordinator on demand exits after this time without members and acquired records. If during this time "
        "only members on other hosts have used a group, its coordinator stops serving it, so that one of those hosts "
        "can own it.",
        why="Kafka's coordinators live as long as their broker.",
    )
    share_coordinator_metadata_refresh_ms: int = row(
        default=10_000,
        between=(100, _HOUR_MS),
        ours=True,
        doc="How often the coordinator looks for new partitions, new topics of a pattern, and topics that were "
        "deleted or created again.",
        why="Kafka's brokers are notified; a client has to ask.",
    )
    share_coordinator_watermark_refresh_ms: int = row(
        default=20,
        between=(1, 60_000),
        ours=True,
        doc="How often the coordinator asks for the end offsets, in one call for all partitions, while a member waits.",
        why="Kafka's brokers know the end offsets.",
    )
    share_coordinator_broker_timeout_ms: int = row(
        default=15_000,
        between=(1_000, 600_000),
        ours=True,
        doc="How long the coordinator tries to reach the Kafka brokers before it answers with an error.",
        why="Kafka's coordinators are the brokers.",
    )
    share_coordinator_write_timeout_ms: int = row(
        default=5_000,
        between=(1, _HOUR_MS),
        kip="KIP-932",
        doc="How long a write to the state topic may take.",
        why="Kafka sets no upper bound.",
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = row(
        default=500,
        between=(0, 500),
        kip="KIP-932",
        doc="How many updates of a share partition are written between two snapshots.",
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int = row(
        default=300_000,
        between=(1, _DAY_MS),
        kip="KIP-932",
        doc="How often share partitions that do not change are written as snapshots again.",
        why="Kafka sets no upper bound.",
    )
    share_coordinator_state_topic_num_partitions: int = row(
        default=50,
        between=(1, 10_000),
        kip="KIP-932",
        doc="The number of partitions with which the state topic is created; a later change has no effect.",
        why="Kafka sets no upper bound.",
    )
    share_coordinator_state_topic_prune_interval_ms: int = row(
        default=300_000,
        between=(1, _DAY_MS),
        kip="KIP-932",
        doc="How often records of the state topic that no group needs are deleted.",
        why="Kafka sets no upper bound.",
    )
    share_coordinator_audit_file: str = row(
        default="",
        ours=True,
        doc="The audit log (docs/run/security.md). Each process on a host needs its own file. Empty: audit-KEY.log "
        "beside the log of a coordinator on demand, or the log of a standalone coordinator.",
        why="Kafka has a log4j appender for kafka.authorizer.logger.",
    )
    share_coordinator_metrics_port: int = row(
        default=0,
        between=(0, 65_535),
        ours=True,
        doc="The port of 127.0.0.1 on which the coordinator shows its metrics to Prometheus, without TLS or a token; "
        "0: none. Needs the extra sharegroup[metrics].",
        why="Kafka's brokers have JMX.",
    )


GROUP_KEYS: dict[str, ConfigKey] = table_of(GroupValues)
COORDINATOR_KEYS: dict[str, ConfigKey] = table_of(CoordinatorValues)
