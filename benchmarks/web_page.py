"""The page of ``sharegroup web`` beside one coordinator with 2,000 groups, and a group of 200 partitions with very many
runs: how long its requests take, how large its pages are, and what it costs the acknowledgements of members."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import statistics
import subprocess
import tempfile
import time
import urllib.parse
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import psutil

from benchmarks.in_flight import hold
from benchmarks.report import Row
from benchmarks.small_acks import READY_S, p99, paced
from coordinator.client.client import CoordinatorClient
from coordinator.protocol.messages import AcquireRecords, JoinGroup
from tests.support.kafka_broker import KafkaBroker
from tests.support.standalone import command, environment
from tests.support.stopped_process import stop_process
from tests.support.waiting import wait_until

PARTITIONS = 200
OFFERED = 200
"""Acknowledgements a second: fewer than a coordinator serves, so that latencies say what they wait for."""
WINDOWS = 6
"""Windows of the same length, by turns with the page stopped, and with it and a person who looks at one page after the
other."""
LONGEST_MS, LARGEST_BYTES, RATIO_AT_MOST = 300, 100_000, 1.5
LASTING = {"share.session.timeout.ms": "1800000", "share.record.lock.duration.ms": "3600000"}


def web_rows(broker: KafkaBroker, groups: int, runs: int, seconds: int) -> list[Row]:
    """Measure with so many groups of one member, and so many runs, for ``WINDOWS`` windows of so many seconds."""
    large, held, acks, small = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("large", "held", "acks", "small"))
    with tempfile.TemporaryDirectory(prefix="sgw-") as folder, contextlib.ExitStack() as opened:
        store = f"sqlite:{Path(folder) / 'state.db'}"
        client = opened.enter_context(contextlib.closing(CoordinatorClient.connect(broker.bootstrap, {}, store)))
        _fill(broker, held, PARTITIONS, runs)
        _fill(broker, acks, 4, OFFERED * seconds * WINDOWS * 2)
        _fill(broker, small, 1, 10)
        _join(client, groups, small)
        opened.callback(hold(client, large, held, runs).close, leave=True)
        page = opened.enter_context(_page(broker, store, Path(folder)))
        client_of_page = _SignedIn(*page[:2])
        wait_until(
            lambda: f"{groups + 1:,} groups" in client_of_page.get("/").text, timeout_s=1_800, what="a whole look"
        )
        begun: Future[float] = Future()
        with ThreadPoolExecutor(1) as thread:
            asked = thread.submit(
                paced, broker.bootstrap, acks, f"acks-{uuid.uuid4().hex[:8]}", seconds * WINDOWS, begun.set_result,
                store=store, offered=OFFERED,
            )  # fmt: skip
            began_at = begun.result(2 * READY_S)
            looks: list[_Answer] = []
            for window in range(WINDOWS):
                end_at = began_at + (window + 1) * seconds
                if window % 2:
                    page[2].resume()
                    looks += client_of_page.look(_addresses(large, held, runs), end_at)
                else:
                    stop_process(page[2].pid)
                time.sleep(max(0.0, end_at - time.time()))
            found = asked.result()
        page[2].resume()
    ms: tuple[list[float], list[float]] = ([], [])
    for each in found:
        for due_s, took_ms in each.acknowledged:
            ms[min(int(due_s / seconds), WINDOWS - 1) % 2].append(took_ms)
    without, beside = map(p99, ms)
    of_all = f"{groups:,} groups, and one of {PARTITIONS} partitions and {runs:,} runs"
    largest = max(looks, key=lambda answer: answer.size)
    slowest = max(looks, key=lambda answer: answer.ms)
    return [
        Row(
            name="page: 99th percentile of a request",
            value=p99([answer.ms for answer in looks]),
            unit="ms",
            at_most=LONGEST_MS,
            how=f"median {statistics.median(answer.ms for answer in looks):.0f} ms; {len(looks):,} requests beside "
            f"{OFFERED} acknowledgements/s; {of_all}; the slowest: {slowest.ms:.0f} ms ({slowest.path})",
        ),
        Row(
            name="page: largest answer",
            value=largest.size / 1_000,
            unit="kB",
            at_most=LARGEST_BYTES / 1_000,
            how=f"of the same requests: {largest.path}",
        ),
        Row(
            name="page: acknowledgements beside it",
            value=beside / without,
            at_most=RATIO_AT_MOST,
            how=f"99th percentile {beside:.1f} ms (median {statistics.median(ms[1]):.1f}), {without:.1f} ms "
            f"({statistics.median(ms[0]):.1f}) with the page stopped; {len(ms[1]):,} and "
            f"{len(ms[0]):,} acknowledgements in windows of {seconds} s by turns",
        ),
    ]


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


@contextlib.contextmanager
def _page(broker: KafkaBroker, store: str, folder: Path) -> Iterator[tuple[str, str, psutil.Process]]:
    """The page in a process of its own: its address, the token to sign in with, and the process."""
    log = folder / "web.log"
    cluster = ["--bootstrap-server", broker.bootstrap, "--command-property", f"share.state.store={store}"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command(["web", *cluster, "--port", "0"]), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            env=environment(dict(os.environ)),
        )  # fmt: skip
    try:
        wait_until(lambda: "Sign in" in log.read_text() or process.poll() is not None, what="the page is shown")
        (host,) = re.findall(r"The page is at http://([^/]+)/\n", log.read_text())
        (token,) = re.findall(r"Sign in with this token.*: (\S+)\n", log.read_text())
        yield host, token, psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait(timeout=120)


def _addresses(group_id: str, topic: str, runs: int) -> list[str]:
    """The addresses that a person looks at, one after the other."""
    where = {"group": group_id, "topic": topic, "partition": 7}
    middle = runs // PARTITIONS // 2
    pages = [("/", {}), ("/", {"page": 40}), ("/", {"search": "group-19"}), ("/group", {"group": group_id})]
    pages += [("/group", {"group": group_id, "page": 11}), ("/group", {"group": "group-0007"}), ("/partition", where)]
    pages += [
        ("/partition", {**where, "first": middle, "last": middle + 100}),
        ("/record", {**where, "offset": middle}),
    ]
    return [f"{path}?{urllib.parse.urlencode(values)}" for path, values in pages]


class _Answer:
    """An answer of the page, and how long it took."""

    def __init__(self, path: str, status: int, text: str, ms: float) -> None:
        assert status == 200, (path, status, text[:2_000])
        self.path, self.text, self.ms, self.size = path, text, ms, len(text.encode())


class _SignedIn:
    """A browser without scripts that is signed in."""

    def __init__(self, host: str, token: str) -> None:
        self._host = host
        connection = http.client.HTTPConnection(host, timeout=120)
        connection.request("POST", "/login", f"token={token}", {"Origin": f"http://{host}"})
        answer = connection.getresponse()
        assert answer.status == 303
        self._cookie = str(answer.headers["set-cookie"]).partition(";")[0]
        connection.close()

    def get(self, path: str) -> _Answer:
        """The page at this address."""
        began_s = time.perf_counter()
        with contextlib.closing(http.client.HTTPConnection(self._host, timeout=120)) as connection:
            connection.request("GET", path, headers={"Cookie": self._cookie})
            answer = connection.getresponse()
            text = answer.read().decode()
            return _Answer(path.partition("&")[0], answer.status, text, (time.perf_counter() - began_s) * 1000)

    def look(self, paths: list[str], end_at: float) -> list[_Answer]:
        """Look at one page after the other, four a second, until this time."""
        found: list[_Answer] = []
        while time.time() < end_at:
            found.append(self.get(paths[len(found) % len(paths)]))
            time.sleep(max(0.0, 0.25 - found[-1].ms / 1000))
        return found
