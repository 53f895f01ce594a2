"""Queries with a sink over many records, while a driver, the coordinator and the broker are killed; then peace.

Outcomes depend on the record and the number of its batch alone, so that each attempt of a batch decides alike: 5 % of
the records are rejected, 15 % released in every third batch, and one may kill the work. The seed chooses the records'
kinds, who is killed, and how long after whom; when that is in the life of a batch is the machine's.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer

from coordinator.protocol.errors import ShareGroupError
from tests.support.coordinator_process import kill_coordinators
from tests.support.dead_letters import Headers, read_records
from tests.support.group_state import GroupState, describe
from tests.support.kafka_broker import KafkaBroker
from tests.support.query_spec import QuerySpec
from tests.support.share_job import ShareJob
from tests.support.spark_program import RunningQuery, SparkProgram
from tests.support.waiting import wait_until

PARTITIONS, DLQ_PARTITIONS = 4, 3
REJECTED, TRANSIENT = 0.05, 0.15
OWN_DELAY_MS, BACKOFF_MS, JITTER = 1_500, 1_200, 0.2
"""The delays after a release, about as long as a batch, and their jitter: an odd record has its own from its row, an
even one the group's."""
CONFIGS = {
    "share.release.backoff.ms": str(BACKOFF_MS),
    "share.release.backoff.multiplier": "1",
    "share.release.backoff.jitter": str(JITTER),
    "share.session.timeout.ms": "300000",  # a restart with a broker that restarts takes a while on a busy machine
}
VICTIMS = ("driver", "coordinator", "broker")
STOP = "stop"
"""Another victim: a driver that is stopped until the group has given its records to another query."""
AFTER_S = (0.5, 3.0)
"""A kill comes a random time between these, in seconds, after a part of the records is written, or after the kill
before."""
NUMBER = "int(substring(text, 2))"
COLUMNS = {
    "acknowledgement": f"""case substring(text, 1, 1)
                           when 'r' then 'reject'
                           when 't' then if((batch + {NUMBER}) % 3 = 0, 'release', 'accept')
                           else 'accept' end""",
    "reason": f"concat('record ', {NUMBER})",
    "releaseDelayMs": f"if({NUMBER} % 2 = 1, {OWN_DELAY_MS}, null)",
}


BY_COUNT = {
    "acknowledgement": f"""case substring(text, 1, 1)
                           when 'r' then 'reject'
                           when 't' then case when deliveryCount < 3 - {NUMBER} % 2 then 'release'
                                              when {NUMBER} % 4 < 2 then 'accept' else 'reject' end
                           else 'accept' end""",
    "reason": f"concat('record ', {NUMBER})",
}
"""The columns of a sink that decides by the delivery count, as most people write it: at the second or third delivery. A
replay raises the count."""


@dataclass
class Happened:
    """The harm that was done to the query, in ms of the wall clock; ``ends`` has its deaths for other reasons too."""

    kills: list[tuple[float, str]] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass
class _Driver:
    """A query's program, and its query if that was started."""

    name: str
    program: SparkProgram
    query: RunningQuery | None = None


def chaos_job(broker: KafkaBroker, folder: Path, **options: str) -> ShareJob:
    """A job over a new topic of this broker."""
    return ShareJob(
        directory=folder,
        bootstrap=broker.bootstrap,
        admin_bootstrap=broker.bootstrap,
        group="billing",
        topics=(broker.create_topic("orders", PARTITIONS),),
        options={**CONFIGS, **options},
    )


class SinkChaos:
    """Use `run()`, then check the outputs (tests.support.sink_reckoning). Each of the ``queries`` has a program, an
    output and an archive of its own. ``in_order``: the sinks defer what follows a release."""

    def __init__(
        self,
        job: ShareJob,
        broker: KafkaBroker,
        start: Callable[[], SparkProgram],
        seed: int,
        queries: Sequence[str] = ("a",),
        *,
        columns: Mapping[str, str] = COLUMNS,
        sink_options: Mapping[str, str] | None = None,
        victims: Sequence[str] = VICTIMS,
        in_order: bool = False,
    ) -> None:
        self.job, self.broker, self.seed = job, broker, seed
        self.dlq = broker.create_topic("dlq", DLQ_PARTITIONS)
        self.archives = {name: str(job.directory / "archive" / name) for name in queries}
        self.happened = Happened()
        self.produced: dict[tuple[int, int], tuple[bytes | None, bytes | None, Headers]] = {}
        self.poison: tuple[str, ...] = ()
        self._columns, self._sink_options = dict(columns), dict(sink_options or {})
        self._all_victims, self._in_order = tuple(victims), in_order
        self._chance = random.Random(seed)
        self._start = start
        self._drivers = [_Driver(name, start()) for name in queries]
        self._spare: SparkProgram | None = None

    @property
    def loses_locks(self) -> bool:
        """Whether a victim stands still until its records are another query's."""
        return STOP in self._all_victims

    def produce(self, count: int, *, poison: bool = True, transient: float = TRANSIENT, hot: int = 0) -> None:
        """The records, scattered, one of them poison; what the topic holds is read back by a plain consumer.

        ``transient``: the share of records that are released at first. ``hot``: every second record has one of so many
        keys, the others have a key each, and the keys choose the partitions."""
        (topic,) = self.job.topics
        poisonous = self._chance.randrange(count)
        self.poison = (f"p{poisonous}",) if poison else ()
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 5, "log_level": 0})
        for number in range(count):
            drawn = self._chance.random()
            kind = "r" if drawn < REJECTED else "t" if drawn > 1 - transient else "a"
            kind = "p" if poison and number == poisonous else kind
            headers = [("n", str(number).encode()), ("n", None)] if kind != "a" else None
            key, partition = None if number % 7 == 0 else f"key {number}", number % PARTITIONS
            if hot:
                key, partition = f"hot {self._chance.randrange(hot)}" if number % 2 else f"cold {number}", -1
            while True:
                try:
                    producer.produce(topic, f"{kind}{number}", key, partition, headers=headers)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert not producer.flush(60)
        for each in read_records(self.broker.bootstrap, topic):
            self.produced[each.partition, each.offset] = each.key, each.value, each.headers
        assert len(self.produced) == count

    def run(self, kills: int, timeout_s: float, then: Callable[[], object] = lambda: None) -> None:
        """Runs until the group is done with all records and ``kills`` kills are over. A query that fails is started
        again. ``then`` is called at the end, while the queries run."""
        began = time.monotonic()
        victims = self._victims(kills)
        self._spare = self._start() if "driver" in victims else None  # it starts while the first one works
        moments = sorted((self._chance.uniform(0, 0.95) * len(self.produced) for _ in victims), reverse=True)
        next_kill: float | None = None

        def through() -> bool:
            nonlocal next_kill
            self._revive()
            if not victims:
                return self._done()
            if next_kill is None and self.job.written() >= moments[-1]:
                next_kill = time.monotonic() + self._chance.uniform(*AFTER_S)
            elif next_kill is not None and time.monotonic() >= next_kill:
                self._kill(victims.pop())
                moments.pop()
                next_kill = None
            return False

        try:
            wait_until(through, timeout_s=timeout_s, interval_s=0.1, what=f"all is done; {self.happened}")
            then()
        finally:
            self.happened.seconds = time.monotonic() - began
            for driver in self._drivers:
                if driver.query is not None and not driver.query.over():
                    driver.query.stop()

    # --- inside

    def _spec(self, name: str) -> QuerySpec:
        own = {"errors.deadletterqueue.topic.name": self.dlq, "archive.path": self.archives[name]}
        return self.job.query(
            name,
            columns=self._columns,
            poison=self.poison,
            sink="acknowledge+replace",
            sink_options=self.job.sink_options(**own, **self._sink_options),
            in_order=self._in_order,
        )

    def _victims(self, kills: int) -> list[str]:
        """Each kind as often as it goes, and chance for the rest; in an order of chance."""
        kinds = self._all_victims
        chosen = [*kinds * (kills // len(kinds)), *self._chance.sample(kinds, kills % len(kinds))]
        self._chance.shuffle(chosen)
        return chosen

    def _kill(self, victim: str) -> None:
        self.happened.kills.append((time.time() * 1000, victim))
        if victim == "driver":
            (self._drivers[0] if len(self._drivers) == 1 else self._chance.choice(self._drivers)).program.kill()
        elif victim == "coordinator":
            kill_coordinators()
        elif victim == STOP:
            self._stop_beyond_its_session(self._chance.choice(self._drivers))
        else:
            self.broker.kill()
            self.broker.start()

    def _stop_beyond_its_session(self, stopped: _Driver) -> None:
        """SIGSTOP of a driver and its workers until its session has ended, and the other query has begun a batch since
        then, or has done all that there is; then SIGCONT."""
        (other,) = (each.query for each in self._drivers if each is not stopped)
        assert other is not None
        stopped.program.pause()
        try:
            others = len(self._drivers) - 1
            other.wait(lambda: describe(self.job).active_members() <= others, "the stopped query's session has ended")
            batches = len(other.events("written")) + 2
            other.wait(lambda: len(other.events("written")) >= batches or self._done(), "it has begun another batch")
        finally:
            stopped.program.resume()

    def _revive(self) -> None:
        """As a job scheduler would: what has ended is started again."""
        for driver in self._drivers:
            if not driver.program.alive:
                driver.program, self._spare = self._spare or self._start(), None
            if driver.query is None or driver.query.over():
                if driver.query is not None:
                    self.happened.ends.append(time.time() * 1000)
                    self.happened.errors.append(driver.query.error())
                driver.query = driver.program.start_query(self._spec(driver.name))

    def _done(self) -> bool:
        try:
            state = describe(self.job)
        except ShareGroupError:
            return False
        return len(state.description.partitions) == PARTITIONS and state.lag() == 0 and state.archiving() == 0


def state_of(chaos: SinkChaos) -> GroupState:
    """The group when all is over."""
    return describe(chaos.job)


def delay_ms(value: str) -> float:
    """How long the record stays away after a release, at least."""
    return OWN_DELAY_MS if int(value[1:]) % 2 else BACKOFF_MS * (1 - JITTER)
