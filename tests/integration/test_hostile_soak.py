"""An owner and members on two hosts, beside a writer of random records in every topic that they read.

``HOSTILE_MINUTES=60 HOSTILE_SEED=7 make soak ARGS="-s tests/integration/test_hostile_soak.py"`` runs for an hour.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from confluent_kafka import KafkaException, Producer

from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.host_records import (
    ADMIN_REQUESTS,
    PART_BYTES,
    REPLIES,
    REQUESTS,
    Alive,
    Answer,
    Ask,
    Late,
    Moved,
    Probe,
    Tick,
    headers_of_reply,
    headers_of_request,
    id_of_request,
)
from coordinator.protocol.messages import AckBatch, Acknowledge, AcquireRecords, Heartbeat, JoinGroup, PartitionAcks
from coordinator.protocol.wire import encode
from coordinator.service.hosts.topics import request_partition_of
from coordinator.state_log.owner_record import Owner
from tests.support.host import Host
from tests.support.kafka_broker import BrokerError, KafkaBroker
from tests.support.process_memory import memory
from tests.support.raw_headers import produce_raw_headers

MINUTES = float(os.environ.get("HOSTILE_MINUTES", "3"))
SEED = int(os.environ.get("HOSTILE_SEED", "1"))
GROUP = "billing"
MOST_MORE_BYTES = 700 << 20
"""The process, with both hosts, takes at most this much more memory: both rights' requests, twice."""

pytestmark = [pytest.mark.broker, pytest.mark.soak, pytest.mark.timeout(int(MINUTES * 60) + 600)]


class Hostile:
    """Writes random records until it is closed. ``sent``: how many of each kind."""

    def __init__(self, kafka: KafkaBroker, owner: Owner, orders: str) -> None:
        self._kafka, self._owner, self._orders, self._chance = kafka, owner, orders, Random(SEED)
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 5, "log_level": 0})
        self.sent: Counter[str] = Counter()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._is_closed.set()
        self._thread.join()

    def _run(self) -> None:
        kinds: list[Callable[[], None]] = [self._ask, self._probe, self._tick, self._bytes, self._reply, self._part]
        rare: list[Callable[[], None]] = [self._name, self._bomb, self._transaction]
        while not self._is_closed.is_set():
            kind = self._chance.choice(rare if self._chance.random() < 0.01 else kinds)
            self.sent[kind.__name__.strip("_")] += 1
            with contextlib.suppress(BufferError, BrokerError, KafkaException):
                kind()
            self._producer.poll(0.001)
        self._producer.flush(30)

    def _where(self) -> tuple[str, int]:
        return self._chance.choice([REQUESTS, REQUESTS, ADMIN_REQUESTS]), request_partition_of(GROUP)

    def _request(self, kind: type, **fields: Any) -> Any:
        of_both = {"asker": self._text(), "group_id": GROUP, "reply_to": self._chance.randrange(12) - 1}
        known = {"process": self._owner.process, "tenure": self._owner.tenure, "reply_key": b"k"}
        return kind(**{"id": self._text(), **of_both, **known, **fields})

    def _write(self, message: Any, body: bytes = b"") -> None:
        topic, partition = self._where()
        self._producer.produce(topic, body, GROUP, partition, headers=[*headers_of_request(message)])

    def _asked(self, name: str, body: bytes, **fields: Any) -> Ask:
        host = self._text() * self._chance.choice([1, 1, 1_000])
        made: Ask = self._request(Ask, not_after_ms=2**60, protocol="4", name=name, host=host, **fields)
        return made

    def _ask(self) -> None:
        """A request with a right digest, of a known name, whose body has some bytes changed."""
        request = self._chance.choice([Heartbeat, JoinGroup, AcquireRecords, Acknowledge])
        body = bytearray(encode(Heartbeat(group_id="another", member_id=self._text(), member_epoch=1)))
        for _ in range(self._chance.randrange(4)):
            body[self._chance.randrange(len(body))] = self._chance.randrange(256)
        request_id = id_of_request(self._text(), request.__name__, bytes(body))
        self._write(self._asked(request.__name__, bytes(body), id=request_id), bytes(body))

    def _part(self) -> None:
        """A part of a request that never becomes whole."""
        parts = self._chance.choice([2, 200, 2**40])
        fields = {"part": self._chance.randrange(-1, 3), "parts": parts}
        self._write(self._asked("StageOutcomes", b"", **fields), bytes(self._chance.choice([0, 100, PART_BYTES])))

    def _probe(self) -> None:
        waiting = tuple(self._text() for _ in range(self._chance.choice([0, 3, 5_000])))
        self._write(self._request(Probe, waiting=waiting))

    def _tick(self) -> None:
        self._write(Tick(process=self._owner.process, secret=self._text()))

    def _bytes(self) -> None:
        header = ("sharegroup", self._chance.randbytes(self._chance.choice([0, 1, 40, 100_000])))
        topic, partition = self._chance.choice([self._where(), (REPLIES, self._chance.randrange(10))])
        self._producer.produce(topic, self._chance.randbytes(40), None, partition, headers=[header])

    def _reply(self) -> None:
        who: dict[str, Any] = {"id": self._text(), "asker": self._text()}
        reply: Any = self._chance.choice(
            [
                Answer(**who, parts=2**40),
                Moved(**who),
                Late(**who, clock_ms=0),
                Alive(**who, tenure=self._owner.tenure, clock_ms=2**60),
            ]
        )
        headers = headers_of_reply(reply, b"another key", b"x")
        self._producer.produce(REPLIES, b"x", self._text(), self._chance.randrange(10), headers=[*headers])

    def _name(self) -> None:
        """A header whose name is no text; also in the members' records."""
        topic = self._chance.choice([REPLIES, REQUESTS, self._orders])
        produce_raw_headers(self._kafka.bootstrap, topic, (b"\xff\xfe",))

    def _bomb(self) -> None:
        large: dict[str, Any] = {
            "message_max_bytes": 60_000_000,
            "compression_type": self._chance.choice(["zstd", "gzip"]),
        }
        self._kafka.produce(REQUESTS, [bytes(30_000_000)], partition=self._where()[1], **large)

    def _transaction(self) -> None:
        self._open = self._kafka.open_transaction(*self._where()[:1], [b"x"], partition=self._where()[1])

    def _text(self) -> str:
        return f"{self._chance.getrandbits(128):032x}"


class Member:
    """A member that acquires and accepts records. ``accepted``: how often it was told so, by offset."""

    def __init__(self, host: Host, orders: str, name: str) -> None:
        self._host, self._member = host, host.join(GROUP, orders, name)
        self.accepted: Counter[int] = Counter()
        self.answered = 0

    def work(self) -> None:
        """Ask once for each of what a member asks for. An error that passes is asked about again."""
        with contextlib.suppress(ShareGroupError):
            self._host.ask(Heartbeat(**self._member))
            reply = self._host.ask(AcquireRecords(**self._member, max_records=20))
            self.answered += 2
            for part in reply.partitions:
                batches = tuple(
                    AckBatch(first=each.first, last=each.last, delivery_count=each.delivery_count, types=(1,))
                    for each in part.ranges
                )
                acks = PartitionAcks(topic_id=part.topic_id, partition=part.partition, batches=batches)
                told = self._host.ask(Acknowledge(**self._member, partitions=(acks,)))
                assert not told.errors
                self.answered += 1
                self.accepted.update(n for each in part.ranges for n in range(each.first, each.last + 1))


def test_members_go_on_beside_any_records(kafka: KafkaBroker, topic: Any, tmp_path: Path) -> None:
    orders, sent = topic("orders"), 0
    with contextlib.ExitStack() as ends:
        one, two = (ends.enter_context(Host(kafka.bootstrap, tmp_path / n)) for n in ("one", "two"))
        members = [Member(one, orders, "a"), Member(two, orders, "b")]
        tenure, before = one.coordinator.runtime.tenure(GROUP), memory().resident
        assert one.coordinator.hosts is not None
        owner = msgspec.structs.replace(one.coordinator.hosts.requests._me, tenure=tenure)
        hostile = Hostile(kafka, owner, orders)
        ends.callback(hostile.close)
        most, until_s = before, time.monotonic() + MINUTES * 60
        while time.monotonic() < until_s:
            kafka.produce(orders, [b"x"] * 10, partition=0)
            for member in members:
                member.work()
            most, sent = max(most, memory().resident), sent + 10
        hostile.close()
        accepted, known = Counter[int](), -1
        while known < len(accepted) or len(accepted) < sent:  # up to the last record
            known = len(accepted)
            for member in members:
                member.work()
            accepted = members[0].accepted + members[1].accepted
        restarts = int(one.coordinator.runtime.tenure(GROUP) != tenure)
        offsets = range(max(accepted) + 1)
        lost, doubled = set(offsets) - set(accepted), [n for n, count in accepted.items() if count > 1]
        print(
            f"\nhostile soak: seed={SEED} minutes={MINUTES:g} sent={sum(hostile.sent.values())} {dict(hostile.sent)} "
            f"answered={[member.answered for member in members]} records={len(accepted)} restarts={restarts} "
            f"lost={len(lost)} doubled={len(doubled)} memory={(most - before) >> 20} MiB more"
        )
        assert (restarts, lost, doubled) == (0, set(), [])
        assert len(accepted) >= sent
        assert members[1].answered
        assert most - before < MOST_MORE_BYTES
