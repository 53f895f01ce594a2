"""The scenario of a seed of the service's simulation: its members, its configuration, and its faults."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.simulation.faults import NO_FAULTS, RETENTION_MS, Faults
from tests.simulation.service_query import QueryOptions
from tests.simulation.service_sink import SinkScenario

OUTAGE_MS = 3_600_000
"""In scenarios of outages, the service behind the sinks is down for this many milliseconds."""
NEVER_MS = 10**15
"""Events with this mean time between them, in milliseconds, come in no run."""
CALM: dict[str, Any] = {
    **dict.fromkeys(("lost", "doubled", "late", "store_faults", "steps_die", "coordinator_steps_die"), 0.0),
    **dict.fromkeys(("member_dies_ms", "member_stops_ms", "coordinator_dies_ms", "coordinator_stops_ms"), NEVER_MS),
    "queries_stop": 0.0,
}
"""Fields of a scenario in which neither network nor store fails, and no process dies or stands still."""


@dataclass(frozen=True, kw_only=True)
class ServiceScenario:
    """The scenario of a seed; its repr is printed with a failure."""

    seed: int
    trouble_ms: int
    partitions: int
    records: int
    poison: int
    queries: int
    consumers: int
    query_options: tuple[QueryOptions, ...]
    starting_offsets: str
    configs: dict[str, str]
    snapshot_after: int
    fence: str
    lost: float
    doubled: float
    late: float
    store_faults: float
    steps_die: float
    coordinator_steps_die: float
    member_dies_ms: int
    member_stops_ms: int
    coordinator_dies_ms: int
    coordinator_stops_ms: int
    log_moves_ms: int
    restart_ms: tuple[int, int]
    queries_stop: float
    sinks: SinkScenario | None = None
    faults: Faults = NO_FAULTS

    @classmethod
    def of(cls, seed: int) -> ServiceScenario:
        """Every third one has sinks."""
        plain = cls.without_sinks(seed)
        return cls.of_sinks(seed) if seed % 3 == 2 and plain.queries else plain

    @classmethod
    def of_sinks(cls, seed: int) -> ServiceScenario:
        """Queries with sinks, of which some are ShareConsumers' neighbours, and a group that may want dead letters."""
        of, sinks = cls.without_sinks(seed), SinkScenario.of(seed)
        queries = max(1, of.queries)
        alone = QueryOptions(
            max_records=10, available_now=False, fail_on_data_loss=True, starting_offsets=of.starting_offsets
        )
        share = sinks.executor_dead_letters if sinks.dead_letters else 0.0
        options = tuple(
            dataclasses.replace(
                o, skips=skips, replaces=says and not skips, writes_first=first, executor_dead_letters=share
            )
            for o, skips, says, first in zip(
                of.query_options or (alone,), sinks.skips, sinks.replaces, sinks.writes_first, strict=False
            )
        )
        configs = {**of.configs, **sinks.configs}
        return dataclasses.replace(of, queries=queries, query_options=options, configs=configs, sinks=sinks)

    @classmethod
    def without_sinks(cls, seed: int) -> ServiceScenario:
        chance = random.Random(f"scenario {seed}")
        session_ms = chance.choice((20_000, 45_000))
        queries = chance.choice((0, 1, 2, 2, 3))
        starting = chance.choice(("earliest", "earliest", "earliest", "latest"))
        never = NEVER_MS
        return cls(
            seed=seed,
            trouble_ms=chance.choice((60_000, 180_000, 300_000)),
            partitions=chance.choice((1, 1, 2, 3)),
            records=int(60 ** chance.random()),
            poison=chance.choice((0, 0, 0, 1, 2)),
            queries=queries,
            consumers=chance.choice((0, 0, 1, 2)) if queries else chance.choice((1, 2)),
            query_options=tuple(
                QueryOptions(
                    max_records=chance.choice((None, 3, 10, 40)),
                    available_now=chance.random() < 0.2,
                    fail_on_data_loss=chance.random() < 0.5,
                    starting_offsets=starting,
                    batch_ms=chance.choice(((10, 500), (100, 8_000), (5_000, 60_000))),
                )
                for _ in range(queries)
            ),
            starting_offsets=starting,
            configs={
                "share.session.timeout.ms": str(session_ms),
                "share.heartbeat.interval.ms": str(session_ms // 3),
                "share.record.lock.duration.ms": str(chance.choice((5_000, 20_000))),
                "share.delivery.count.limit": str(chance.choice((2, 3, 4, 5, 5, 8))),
                "share.isolation.base": str(chance.choice((5, 30, 100_000))),
                "share.acquire.mode": chance.choice(("batch_optimized", "record_limit")),
            },
            snapshot_after=chance.choice((3, 10, 30, 500)),
            fence=chance.choice(("owner", "owner", "sequence")),
            lost=chance.choice((0.0, 0.02, 0.15)),
            doubled=chance.choice((0.0, 0.1, 0.4)),
            late=chance.choice((0.0, 0.05, 0.2)),
            store_faults=chance.choice((0.0, 0.03, 0.15)),
            steps_die=chance.choice((0.0, 0.02, 0.1)),
            coordinator_steps_die=chance.choice((0.0, 0.0, 0.01, 0.05)),
            member_dies_ms=chance.choice((15_000, 60_000, never)),
            member_stops_ms=chance.choice((60_000, never)),
            coordinator_dies_ms=chance.choice((10_000, 40_000, never)),
            coordinator_stops_ms=chance.choice((30_000, 90_000, never)),
            log_moves_ms=chance.choice((30_000, never, never)),
            restart_ms=chance.choice(((100, 3_000), (100, 60_000), (40_000, 90_000))),
            queries_stop=chance.choice((0.0, 0.0, 0.2, 0.5)),
        )

    @classmethod
    def of_stalls(cls, seed: int) -> ServiceScenario:
        """Coordinators stand still for as long as they like; nothing else goes wrong."""
        of = cls.of_stopped_drivers(seed)
        chance = random.Random(f"stalls {seed}")
        options = tuple(
            dataclasses.replace(o, batch_ms=chance.choice(((10, 500), (5_000, 30_000), (20_000, 60_000))))
            for o in of.query_options
        )
        stores = chance.choice((0.0, 0.0, 0.1))
        faults = Faults(
            stalls_ms=chance.choice((40_000, 90_000)),
            slow_appends_ms=chance.choice((10_000, 60_000)),
            brokers_stop=chance.choice((0.0, 0.001, 0.005)),
        )
        return dataclasses.replace(
            of, query_options=options, queries_stop=0.0, store_faults=stores, fence="owner", faults=faults
        )

    @classmethod
    def of_configs(cls, seed: int) -> ServiceScenario:
        """Queries with sinks, and group configs that change with each process that starts."""
        of = cls.of_sinks(seed)
        return dataclasses.replace(of, fence="owner", faults=Faults(configs=True))

    @classmethod
    def of_opened_sinks(cls, seed: int) -> ServiceScenario:
        """Queries with sinks; other sinks are opened between any two steps, and change the group's configs."""
        chance = random.Random(f"opened sinks {seed}")
        faults = Faults(configs=True, sinks_at_steps=chance.choice((0.005, 0.02)))
        return dataclasses.replace(cls.of_configs(seed), faults=faults)

    @classmethod
    def of_removals(cls, seed: int) -> ServiceScenario:
        """Queries, with sinks or without, and ShareConsumers, whose logs lose records between any two steps."""
        of = cls.of_sinks(seed) if seed % 2 else cls.without_sinks(seed)
        chance = random.Random(f"removals {seed}")
        options = tuple(dataclasses.replace(o, fail_on_data_loss=chance.random() < 0.3) for o in of.query_options)
        faults = Faults(removed_at_steps=chance.choice((0.002, 0.01, 0.03)))
        return dataclasses.replace(of, query_options=options, fence="owner", faults=faults)

    @classmethod
    def of_hosts(cls, seed: int) -> ServiceScenario:
        """Two or three hosts; queries, with sinks or without, and ShareConsumers are started again on any of them."""
        of = cls.of_sinks(seed) if seed % 2 else cls.without_sinks(seed)
        chance = random.Random(f"hosts {seed}")
        options = tuple(dataclasses.replace(o, available_now=False) for o in of.query_options)
        faults = Faults(
            hosts=chance.choice((2, 3)),
            cuts_ms=chance.choice((20_000, 60_000)),
            slow_loads_ms=chance.choice((50, 3_000)),
            records_lost=chance.choice((0.0, 0.05, 0.4)),
            records_doubled=chance.choice((0.0, 0.1)),
            records_late=chance.choice((0.0, 0.05, 0.2)),
        )
        return dataclasses.replace(of, query_options=options, fence="owner", faults=faults)

    @classmethod
    def of_packet_loss(cls, seed: int) -> ServiceScenario:
        """Hosts most of whose records are lost; nothing else goes wrong, so that no owner is ever away."""
        of = cls.of_hosts(seed)
        return dataclasses.replace(
            of,
            **CALM,
            sinks=None if of.sinks is None else dataclasses.replace(of.sinks, dies=0.0),
            faults=dataclasses.replace(of.faults, cuts_ms=0, records_lost=0.6),
        )

    @classmethod
    def of_topics(cls, seed: int) -> ServiceScenario:
        """Queries, with sinks or without, on a pattern whose topics come and go; in every fourth run with
        ShareConsumers, from the earliest offsets on."""
        of, chance = cls.of_sinks(seed) if seed % 2 else cls.without_sinks(seed), random.Random(f"topics {seed}")
        options = of.query_options or cls.of_sinks(seed).query_options
        has_consumers = seed % 4 == 3
        starting = "earliest" if chance.choice((True, False)) or has_consumers else "latest"
        return dataclasses.replace(
            of,
            queries=len(options),
            query_options=tuple(
                dataclasses.replace(o, available_now=False, starting_offsets=starting) for o in options
            ),
            consumers=2 if has_consumers else 0,
            starting_offsets=starting,
            fence="owner",
            faults=Faults(topics_ms=chance.choice((15_000, 60_000)), topics_at_steps=chance.choice((0.0, 0.005, 0.02))),
        )

    @classmethod
    def of_members(cls, seed: int) -> ServiceScenario:
        """Queries, with sinks or without, whose members are forgotten, and return or never do."""
        of, chance = cls.of_sinks(seed) if seed % 2 else cls.without_sinks(seed), random.Random(f"members {seed}")
        options = of.query_options or cls.of_sinks(seed).query_options
        return dataclasses.replace(
            of,
            queries=len(options),
            query_options=options,
            configs={**of.configs, "share.member.retention.ms": str(RETENTION_MS)},
            fence="owner",
            faults=Faults(rests=chance.choice((1, 2, 3)), checkpoints_change=chance.choice((0.1, 0.3, 0.6))),
        )

    @classmethod
    def of_signals(cls, seed: int) -> ServiceScenario:
        """ShareConsumers that say what they work on, beside queries or among themselves."""
        of, chance = cls.without_sinks(seed), random.Random(f"signals {seed}")
        queries = min(of.queries, chance.choice((0, 1, 1)))
        configs = {
            **of.configs,
            "share.record.lock.duration.ms": str(chance.choice((5_000, 20_000, 60_000))),
            "group.share.in.progress.staleness.threshold.ms": str(chance.choice((3_000, 10_000, 40_000))),
            "group.share.in.progress.max.lock.extension.ms": str(chance.choice((15_000, 60_000, 600_000))),
            "group.share.in.progress.rebalance.grace.ms": str(chance.choice((0, 2_000, 15_000))),
        }
        return dataclasses.replace(
            of,
            queries=queries,
            query_options=of.query_options[:queries],
            consumers=chance.choice((1, 2, 3)),
            configs=configs,
            fence="owner",
            faults=Faults(signals=True),
        )

    @classmethod
    def of_outages(cls, seed: int) -> ServiceScenario:
        """The service behind all sinks is away for an hour. Processes die now and then; attempts do not disagree."""
        of, chance = cls.of_sinks(seed), random.Random(f"outages {seed}")
        assert of.sinks is not None
        most = chance.choice((10, 40, None))
        backoff = chance.choice(("3000", ""))
        return dataclasses.replace(
            of,
            trouble_ms=OUTAGE_MS + 60_000,
            records=chance.choice((30, 60)),
            poison=0,
            consumers=0,
            query_options=tuple(dataclasses.replace(o, max_records=most) for o in of.query_options),
            configs={**of.configs, "share.delivery.count.limit": "5", "share.release.backoff.ms": backoff},
            member_dies_ms=chance.choice((600_000, NEVER_MS)),
            member_stops_ms=NEVER_MS,
            coordinator_dies_ms=chance.choice((600_000, NEVER_MS)),
            coordinator_stops_ms=NEVER_MS,
            log_moves_ms=NEVER_MS,
            steps_die=0.0,
            coordinator_steps_die=0.0,
            store_faults=0.0,
            queries_stop=0.0,
            fence="owner",
            sinks=dataclasses.replace(of.sinks, fickle=False, dies=0.0),
            faults=Faults(outage_ms=OUTAGE_MS),
        )

    @classmethod
    def of_administration(cls, seed: int) -> ServiceScenario:
        """Queries and ShareConsumers in a group that an administrator changes: every other seed with signals, and of
        the others every other one with sinks."""
        of = cls.of_signals(seed) if seed % 2 else cls.of_sinks(seed) if seed % 4 else cls.without_sinks(seed)
        chance = random.Random(f"administration {seed}")
        faults = Faults(administration_ms=chance.choice((3_000, 15_000)), signals=bool(seed % 2))
        return dataclasses.replace(of, fence="owner", faults=faults)

    @classmethod
    def of_order(cls, seed: int) -> ServiceScenario:
        """A group in order by partition, in a scenario of another kind."""
        kinds = (
            cls.without_sinks,
            cls.of_sinks,
            cls.of_signals,
            cls.of_hosts,
            cls.of_removals,
            cls.of_members,
            cls.of_administration,
            cls.of_topics,
        )
        of = kinds[seed % len(kinds)](seed)
        return dataclasses.replace(of, configs={**of.configs, "share.order": "partition"})

    @classmethod
    def of_flow(cls, seed: int) -> ServiceScenario:
        """A group with limits, in a scenario of another kind; in some an administrator pauses its topic."""
        kinds = (cls.without_sinks, cls.of_hosts, cls.of_administration, cls.of_signals)
        of, chance = kinds[seed % len(kinds)](seed), random.Random(f"flow {seed}")
        limits = {"share.max.records.per.second": chance.choice(("2", "5", "20"))}
        faults = dataclasses.replace(of.faults, pauses=bool(of.faults.administration_ms))
        return dataclasses.replace(of, fence="owner", configs={**of.configs, **limits}, faults=faults)

    @classmethod
    def of_ttl(cls, seed: int) -> ServiceScenario:
        """A group whose records wait for a limited time, in a scenario of another kind; some groups are in order, but
        none with an administrator, who may reset what was delivered in the same append."""
        kinds = (cls.of_signals, cls.of_hosts, cls.of_administration, cls.of_removals, cls.of_topics)
        of, chance = kinds[seed % len(kinds)](seed), random.Random(f"ttl {seed}")
        ttl = {"share.record.ttl.ms": chance.choice(("15000", "40000", "120000"))}
        order = {"share.order": "partition"} if seed % 3 == 1 and not of.faults.administration_ms else {}
        return dataclasses.replace(of, configs={**of.configs, **ttl, **order})

    @classmethod
    def of_deferrals(cls, seed: int) -> ServiceScenario:
        """Queries whose sinks defer records, in a scenario of another kind; four of eight groups are in order."""
        kinds = (cls.of_sinks, cls.of_hosts, cls.of_removals, cls.of_members)
        of, chance = kinds[seed % len(kinds)](2 * seed + 1), random.Random(f"deferrals {seed}")
        assert of.sinks is not None
        is_ordered = seed // len(kinds) % 2 == 1
        configs = {
            **of.configs,
            "share.release.backoff.ms": chance.choice(("0", "1000", "3000")),
            "share.order": "partition" if is_ordered else "none",
        }
        sinks = dataclasses.replace(of.sinks, defers=True, fickle=of.sinks.fickle and not is_ordered)
        return dataclasses.replace(of, seed=seed, configs=configs, sinks=sinks)

    @classmethod
    def of_stopped_drivers(cls, seed: int) -> ServiceScenario:
        """Two queries, whose drivers are stopped now and then before they log a plan; nothing else goes wrong."""
        of = cls.without_sinks(seed)
        options = QueryOptions(
            max_records=3, available_now=False, fail_on_data_loss=True, starting_offsets="earliest", batch_ms=(10, 500)
        )
        return dataclasses.replace(
            of,
            trouble_ms=300_000,
            records=60,
            poison=0,
            queries=2,
            consumers=0,
            query_options=(options, options),
            starting_offsets="earliest",
            configs={**of.configs, "share.session.timeout.ms": "20000", "share.heartbeat.interval.ms": "6666"},
            restart_ms=(100, 3_000),
            **{**CALM, "log_moves_ms": NEVER_MS, "queries_stop": 0.5},
        )

    @classmethod
    def of_crashing_owners(cls, seed: int) -> ServiceScenario:
        """Two queries whose coordinators crash about once a session, also at any step; nothing else goes wrong."""
        of = cls.of_stopped_drivers(seed)
        session_ms = int(of.configs["share.session.timeout.ms"])
        return dataclasses.replace(
            of,
            trouble_ms=20 * session_ms,
            queries_stop=0.0,
            coordinator_dies_ms=session_ms,
            coordinator_steps_die=random.Random(f"owners {seed}").choice((0.0, 0.05)),
            fence="owner",
            faults=Faults(slow_loads_ms=50),
        )


KINDS: dict[str, Callable[[int], ServiceScenario]] = {
    "": ServiceScenario.of,
    "stalls": ServiceScenario.of_stalls,
    "configs": ServiceScenario.of_configs,
    "opened-sinks": ServiceScenario.of_opened_sinks,
    "topics": ServiceScenario.of_topics,
    "removals": ServiceScenario.of_removals,
    "hosts": ServiceScenario.of_hosts,
    "members": ServiceScenario.of_members,
    "signals": ServiceScenario.of_signals,
    "administration": ServiceScenario.of_administration,
    "outages": ServiceScenario.of_outages,
    "order": ServiceScenario.of_order,
    "flow": ServiceScenario.of_flow,
    "ttl": ServiceScenario.of_ttl,
    "deferrals": ServiceScenario.of_deferrals,
}
"""Scenarios by the kind of faults that they add to those of every run."""
