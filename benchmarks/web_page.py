"""The page of ``sharegroup web`` beside one coordinator with 2,000 groups, a group of 200 partitions with very many
runs, and a group with strange records and dead letters: how long its requests take, how large its pages are, and what
it costs the acknowledgements of members."""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.report import Row
from benchmarks.small_acks import ASSIGNED_MS, CONFIGS, READY_S, Paced, p99, paced
from benchmarks.web_browser import Address, Answer, Browser, open_page, page_at
from coordinator.client.client import CoordinatorClient
from coordinator.client.session import MemberSession
from coordinator.protocol.messages import AckBatch, Acknowledge, AcquireRecords, JoinGroup, PartitionAcks
from tests.support.kafka_broker import KafkaBroker
from tests.support.rejecting import Rejecting
from tests.support.stopped_process import stop_process
from tests.support.waiting import wait_until

PARTITIONS = 200
A_REQUEST = 10_000
OFFERED = 200
"""The number of acknowledgements sent a second. A coordinator can serve more: latencies show waits."""
PAIRS = 5
"""The number of windows of each kind, all of one length: alternately with the page stopped, and with a person who opens
one address after the other. One window before them warms up and does not count; in one after them the person sends the
heavy dry run alone."""
WINDOWS = 1 + 2 * PAIRS + 1
SETTLE_S = 2.0
"""Acknowledgements of the first seconds after the page was stopped do not count: they wait for its last requests."""
LONGEST_MS, LARGEST_BYTES, RATIO_AT_MOST = 300, 100_000, 1.5
LASTING = {"share.session.timeout.ms": "1800000", "share.record.lock.duration.ms": "3600000"}
STRANGE = "a/../b 🚀 <script>"
"""The id of the group with the strange records."""
LARGE_VALUE, REJECTED = 8_000_000, 500
_RELEASE = (2,)
SCRIPT, LARGE, RANDOM = range(3)
"""The offsets of the strange records."""


@dataclass(frozen=True, kw_only=True)
class _Names:
    """Topics and groups of one run. ``holder``: the member that holds the runs of ``large``."""

    large: str
    held: str
    acks: str
    acks_group: str
    small: str
    strange: str
    holder: str = ""


def web_rows(broker: KafkaBroker, groups: int, runs: int, seconds: int) -> list[Row]:
    """Measures with ``groups`` groups of one member and one of ``runs`` runs, in ``WINDOWS`` windows of ``seconds``."""
    kinds = ("large", "held", "acks", "acks_group", "small", "strange")
    names = {kind: f"{kind}-{uuid.uuid4().hex[:8]}" for kind in kinds}
    with tempfile.TemporaryDirectory(prefix="sgw-") as folder, contextlib.ExitStack() as opened:
        store = f"sqlite:{Path(folder) / 'state.db'}"
        client = opened.enter_context(contextlib.closing(CoordinatorClient.connect(broker.bootstrap, {}, store)))
        _fill(broker, names["held"], PARTITIONS, runs)
        _fill(broker, names["acks"], 4, OFFERED * seconds * WINDOWS * 2)
        _fill(broker, names["small"], 1, 10)
        _join(client, groups, names["small"])
        _reject_strange(broker, client, names["strange"])
        holder = _hold(client, names["large"], names["held"], runs)
        opened.callback(holder.close, leave=True)
        browser, process = opened.enter_context(open_page(broker, store, Path(folder)))
        began_s = time.monotonic()
        every, home = f"{groups + 2:,} groups", page_at("all groups", "/")
        wait_until(lambda: every in browser.get(home).text, timeout_s=1_800, what="a whole look")
        first_look_s = time.monotonic() - began_s
        known = _Names(**names, holder=holder.member_id)
        turns = _Turns(broker, known, runs, seconds, browser, process)
        looked, found = turns.take(store)
        # The page sends this coordinator nothing: its acknowledgements wait for the machine alone.
        control = turns.take(f"sqlite:{Path(folder) / 'control.db'}")
    of_all = f"{groups:,} groups, and one of {PARTITIONS} partitions and {runs:,} runs"
    return [
        *_request_rows(looked, of_all, first_look_s),
        *_acknowledgement_rows(_Latencies.of(looked, found, seconds), _Latencies.of(*control, seconds)),
    ]


@dataclass(frozen=True, kw_only=True)
class _Looked:
    """The answers that a person got in one window; none while the page was stopped. ``from_s``: the acknowledgements
    of this window count from this second after the first acknowledgement on."""

    answers: list[Answer]
    from_s: float


@dataclass(frozen=True)
class _Turns:
    """Runs the windows: stops and continues the page, and sends the person's requests."""

    broker: KafkaBroker
    names: _Names
    runs: int
    seconds: int
    browser: Browser
    process: psutil.Process

    def take(self, store: str) -> tuple[list[_Looked], list[Paced]]:
        """Runs all windows. Returns what was measured in each, and the acknowledgements of all windows, which the
        coordinator of this store decides."""
        begun: Future[float] = Future()
        seconds, names = self.seconds * WINDOWS, self.names
        with ThreadPoolExecutor(1) as thread:
            asked = thread.submit(
                paced, self.broker.bootstrap, names.acks, names.acks_group, seconds, begun.set_result,
                store=store, offered=OFFERED,
            )  # fmt: skip
            try:
                return self._look(begun.result(2 * READY_S)), asked.result()
            finally:
                self.process.resume()

    def _look(self, began_at: float) -> list[_Looked]:
        """Sends the person's requests in every second window; the page is stopped in the others."""
        addresses = _addresses(self.names, self.runs)
        looked: list[_Looked] = []
        begin = 0
        for window in range(WINDOWS):
            end_at = began_at + (window + 1) * self.seconds
            if window % 2:
                self.process.resume()
                which = [_heavy(self.names)] if window == WINDOWS - 1 else addresses
                answers = self.browser.look(which, end_at, begin=begin)
                begin += len(answers)
                looked.append(_Looked(answers=answers, from_s=window * self.seconds))
            else:
                stop_process(self.process.pid)
                looked.append(_Looked(answers=[], from_s=time.time() - began_at + SETTLE_S))
            time.sleep(max(0.0, end_at - time.time()))
        return looked


# --- what was measured


def _request_rows(looked: Sequence[_Looked], of_all: str, first_look_s: float) -> list[Row]:
    answers = [answer for window in looked[:-1] for answer in window.answers]
    every = [*answers, *looked[-1].answers]
    by_name: dict[str, list[float]] = defaultdict(list)
    for answer in every:
        by_name[answer.name].append(answer.ms)
    medians = sorted(((statistics.median(ms), name) for name, ms in by_name.items()), reverse=True)
    slow_ms, slow = medians[0]
    largest, slowest = max(every, key=lambda each: each.size), max(answers, key=lambda each: each.ms)
    all_ms = [answer.ms for answer in answers]
    return [
        Row(
            name="page: 99th percentile of a request",
            value=p99(all_ms),
            unit="ms",
            at_most=LONGEST_MS,
            how=f"median {statistics.median(all_ms):.0f} ms, 95th percentile {_p95(all_ms):.0f} ms; {len(answers):,} "
            f"requests of {len(by_name) - 1} addresses beside {OFFERED} acknowledgements/s; {of_all}; the slowest: "
            f"{slowest.ms:.0f} ms ({slowest.name})",
        ),
        Row(
            name="page: slowest address, its median",
            value=slow_ms,
            unit="ms",
            at_most=LONGEST_MS,
            how=f"{slow} (of {len(by_name[slow])}, at most {max(by_name[slow]):.0f} ms); all, with the most: "
            + "; ".join(f"{name} {ms:.0f}, {max(by_name[name]):.0f}" for ms, name in medians),
        ),
        Row(
            name="page: largest answer",
            value=largest.size / 1_000,
            unit="kB",
            at_most=LARGEST_BYTES / 1_000,
            how=f"of the same requests, with an hour of numbers of each group: {largest.name}",
        ),
        Row(name="page: first look at all groups", value=first_look_s, unit="s", how="four fifths of it is rest"),
    ]


@dataclass(frozen=True, kw_only=True)
class _Latencies:
    """How long acknowledgements took, in milliseconds, by window. ``dry_runs``: the number of heavy dry runs."""

    beside: list[list[float]]
    without: list[list[float]]
    heavy: list[float]
    dry_runs: int

    @classmethod
    def of(cls, looked: Sequence[_Looked], found: Sequence[Paced], seconds: int) -> _Latencies:
        """The latencies of the acknowledgements that count, by window."""
        windows: list[list[float]] = [[] for _ in looked]
        for each in found:
            for due_s, took_ms in each.acknowledged:
                at = min(int(due_s / seconds), len(looked) - 1)
                if due_s >= looked[at].from_s:
                    windows[at].append(took_ms)
        dry_runs = len(looked[-1].answers)
        return cls(beside=windows[1:-1:2], without=windows[2:-1:2], heavy=windows[-1], dry_runs=dry_runs)

    @property
    def ratios(self) -> list[float]:
        """The 99th percentile of each window beside the page, to that of the next."""
        return [p99(one) / p99(other) for one, other in zip(self.beside, self.without, strict=True)]

    @property
    def stopped_ms(self) -> float:
        """The median of the 99th percentiles of the windows in which the page is stopped."""
        return statistics.median(map(p99, self.without))

    def __str__(self) -> str:
        return (
            f"99th percentile of a window to that of the next, median of {len(self.ratios)} ({min(self.ratios):.2f} to "
            f"{max(self.ratios):.2f}); medians of the windows: beside it {_told(self.beside)}; with the page stopped "
            f"{_told(self.without)}; {sum(map(len, self.beside)):,} and {sum(map(len, self.without)):,} "
            f"acknowledgements by turns"
        )


def _acknowledgement_rows(asked: _Latencies, control: _Latencies) -> list[Row]:
    beside, machine = statistics.median(asked.ratios), statistics.median(control.ratios)
    return [
        Row(name="page: acknowledgements beside it", value=beside, at_most=RATIO_AT_MOST, how=str(asked)),
        Row(name="page: … of a coordinator that it asks nothing", value=machine, how=str(control)),
        Row(
            name="page: … the one to the other",
            value=beside / machine,
            how=f"{min(asked.ratios) / max(control.ratios):.2f} to {max(asked.ratios) / min(control.ratios):.2f}; the "
            "coordinator that the page asks takes CPU time from the other, too",
        ),
        Row(
            name="page: acknowledgements beside the heavy dry run",
            value=p99(asked.heavy) / asked.stopped_ms,
            at_most=RATIO_AT_MOST,
            how=f"one window of it alone, {asked.dry_runs} times: {_told([asked.heavy])}; to the windows with the page "
            f"stopped; of a coordinator that it asks nothing {p99(control.heavy) / control.stopped_ms:.2f}",
        ),
    ]


def _told(windows: Sequence[list[float]]) -> str:
    parts = ((word, statistics.median(map(of_window, windows))) for word, of_window in _SHARES)
    return ", ".join(f"{word} {ms:.1f} ms" for word, ms in parts)


def _p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


_SHARES = (("median", statistics.median), ("95th percentile", _p95), ("99th", p99))


# --- the addresses that a person requests


def _fill(broker: KafkaBroker, topic: str, partitions: int, records: int) -> None:
    broker.create_topic(topic, partitions)
    for partition in range(partitions):
        broker.produce(topic, [b""] * (records // partitions + 1), partition=partition)


def _join(client: CoordinatorClient, groups: int, topic: str) -> None:
    """Groups of one member each, which holds the topic's records."""

    def one(number: int) -> None:
        who = {"group_id": f"group-{number:04}", "member_id": f"member-{number}"}
        request = JoinGroup(
            **who, process_id="p", query=False, topics=(topic,), starting_offsets="earliest", configs=LASTING
        )
        joined = client.call(request)
        client.call(AcquireRecords(**who, member_epoch=joined.member_epoch, max_records=10, wait_ms=1_000))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(one, range(groups)))


def _hold(client: CoordinatorClient, group_id: str, topic: str, runs: int) -> MemberSession:
    """A member that holds every second record of the topic, and has released the others: each record is a run."""
    session = MemberSession(
        client, group_id, uuid.uuid4().hex, query=False, topics=(topic,), starting_offsets="earliest", configs=CONFIGS
    )
    left = runs
    while left:
        most = left
        reply = session.call(lambda who, most=most: AcquireRecords(**who, max_records=most, wait_ms=ASSIGNED_MS))
        assert reply.partitions, "the topic has too few records"
        for part in reply.partitions:
            for first, last, count in part.ranges:
                left -= last - first + 1
                for start in range(first, last + 1, 2 * A_REQUEST):
                    offsets = range(start, min(start + 2 * A_REQUEST, last + 1), 2)
                    batches = tuple(AckBatch(first=at, last=at, delivery_count=count, types=_RELEASE) for at in offsets)
                    acks = PartitionAcks(topic_id=part.topic_id, partition=part.partition, batches=batches)
                    _acknowledge(session, acks)
    return session


def _acknowledge(session: MemberSession, acks: PartitionAcks) -> None:
    reply = session.call(lambda who: Acknowledge(**who, partitions=(acks,)))
    assert not reply.errors, reply.errors


def _reject_strange(broker: KafkaBroker, client: CoordinatorClient, topic: str) -> None:
    """The group STRANGE, which has rejected all records of the topic: three strange ones, and others; each has a dead
    letter with a copy of it."""
    most = 2 * LARGE_VALUE
    queue = broker.create_topic(None, 2, max_message_bytes=most)
    broker.create_topic(topic, 1, max_message_bytes=most)
    values = (b"<script>alert(1)</script>", b"\xf0\x9f" * (LARGE_VALUE // 2), os.urandom(100_000))
    broker.produce(topic, (*values, *[b"{}"] * (REJECTED - len(values))), partition=0, message_max_bytes=most)
    group = Rejecting(
        broker.bootstrap, "", STRANGE, topic, client=client,
        dlq_topic_name=queue, dlq_copy_record_enable=True, share_session_timeout_ms=1_800_000,
    )  # fmt: skip
    group.reject_all(REJECTED)
    group.wait_filed(REJECTED)


def _addresses(names: _Names, runs: int) -> list[Address]:
    """The addresses that a person requests, in order; of an action, its dry run."""
    return [*_looks(names, runs), *_strange_looks(names), *_dry_runs(names, runs)]


def _looks(names: _Names, runs: int) -> list[Address]:
    where = {"group": names.large, "topic": names.held, "partition": 7}
    middle = runs // PARTITIONS // 2
    acks = {"group": names.acks_group, "topic": names.acks, "partition": 0, "offset": 0}
    return [
        page_at("all groups", "/"),
        page_at("all groups, page 40", "/", page=40),
        page_at("search", "/", search="group-19"),
        page_at("group of 200 partitions", "/group", group=names.large),
        page_at("group of 200 partitions, page 11", "/group", group=names.large, page=11),
        page_at("small group", "/group", group="group-0007"),
        page_at("partition", "/partition", **where),
        page_at("partition, 100 offsets", "/partition", **where, first=middle, last=middle + 100),
        page_at("record", "/record", **where, offset=middle),
        page_at("history of a held record", "/history", **where, offset=middle),
        page_at("history of an acknowledged record", "/history", **acks),
    ]


def _strange_looks(names: _Names) -> list[Address]:
    group = {"group": STRANGE}
    where = {**group, "topic": names.strange, "partition": 0}
    return [
        page_at("strange group", "/group", **group),
        page_at("content: <script>", "/content", **where, offset=SCRIPT),
        page_at("content: 8 MB", "/content", **where, offset=LARGE),
        page_at("content: 8 MB as hex", "/content", **where, offset=LARGE, form="hex"),
        page_at("content: random bytes", "/content", **where, offset=RANDOM),
        page_at("history of a rejected record", "/history", **where, offset=LARGE),
        page_at("dead letters", "/deadletters", **group),
        page_at("dead letters, page 10", "/deadletters", **group, page=10),
        page_at("dead letter", "/deadletter", **group, at="0@0"),
    ]


def _dry_runs(names: _Names, runs: int) -> list[Address]:
    where = {"topic": names.held, "partition": 7, "first": 0, "reason": "r"}
    some, one = {**where, "last": runs // PARTITIONS - 1}, {**where, "last": 0}
    act = "/act"
    of_large: dict[str, object] = {"group": names.large}
    return [
        Address(name="release of a partition's records", path=act, form={**of_large, "kind": "release", **some}),
        Address(name="archiving of a record that nobody holds", path=act, form={**of_large, "kind": "archive", **one}),
        Address(
            name="alter a config",
            path=act,
            form={**of_large, "kind": "configs", "key": "share.record.lock.duration.ms", "value": "50000"},
        ),
        Address(name="redrive", path="/redrive", form={"group": STRANGE, "scope": "all"}),
    ]


def _heavy(names: _Names) -> Address:
    """The dry run that concerns the most records: half of all runs."""
    form = {"group": names.large, "kind": "release_member", "member": names.holder}
    return Address(name="release of a member's records", path="/act", form=form)
