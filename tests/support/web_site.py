"""The page over a coordinator's service in this process, and a browser without JavaScript."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from starlette.testclient import TestClient

from coordinator.admin.admin import Admin
from coordinator.admin.waiting_records import Bounds
from coordinator.core.log_records import RunsChanged
from coordinator.core.replay import replay
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.messages import DescribeGroup
from coordinator.protocol.rights import Tokens
from coordinator.service.brokers.topic_doubts import TopicDoubts
from coordinator.service.handlers.admin_requests import AdminService
from coordinator.service.stores.sqlite_store import parts_of_file
from share_sink.redrive.dlq_reader import DeadLetter
from share_sink.redrive.report import RedriveReport
from share_source.views.record_rows import Browsed
from sharegroup.doctor.findings import GroupFacts
from sharegroup.doctor.rules import examine
from sharegroup.web.app import create_app
from sharegroup.web.command import MOST_EXAMINED
from sharegroup.web.examinations import Examinations
from sharegroup.web.jobs import Jobs
from sharegroup.web.outages import Outages
from sharegroup.web.public_url import PublicUrl
from sharegroup.web.sessions import Sessions
from sharegroup.web.sign_in_tokens import OwnTokens
from sharegroup.web.site import Site
from sharegroup.web.watch import Watch
from tests.support.fake_cluster import FakeCluster
from tests.support.running_service import Running
from tests.support.waiting import wait_until

HERE = "http://127.0.0.1:9396"
LOOKER, ACTOR, MEMBER = "l" * 20, "a" * 20, "m" * 20
SCRIPT = "<script>alert(1)</script>"
TOKENS = Tokens.parse(f"read lo:{LOOKER}\nadmin ada:{ACTOR}\nmember:{MEMBER}", "the test")


class Stored:
    """No group beside those that are served, and the logs of a file."""

    def __init__(self, path: Any) -> None:
        self._path = path

    def stored_groups(self) -> list[Any]:
        return []

    def log_parts(self, group_id: str) -> Any:
        return parts_of_file(self._path, group_id)


class InProcess(Admin):
    """An admin client whose calls are answered in this process; ``asked`` has their names, ``broken`` their error."""

    def __init__(self, running: Running, service: AdminService) -> None:
        self._running, self._service = running, service
        self.asked: list[str] = []
        self.broken: Exception | None = None

    def close(self) -> None:
        """Does nothing: there is no connection."""

    def coordinator_of(self, group_id: str) -> str:
        return "in this process"

    def _ask(self, request: Any, group_id: str = "") -> Any:
        self.asked.append(type(request).__name__ + ("!" if getattr(request, "execute", False) else ""))
        if self.broken is not None:
            raise self.broken
        if isinstance(request, DescribeGroup):
            return self._running.service.handle(request)
        return self._service.handle(request)

    _look = _ask


@dataclass
class FakeKafka:
    """Records by (topic, partition, offset)."""

    records: dict[tuple[str, int, int], Any] = field(default_factory=dict)
    found: list[DeadLetter] = field(default_factory=list)
    sent: list[tuple[int, int]] = field(default_factory=list)
    read: list[tuple[str, int, int]] = field(default_factory=list)
    error: Exception | None = None
    listed: list[dict[str, Any]] = field(default_factory=list)
    bounds: list[Bounds] = field(default_factory=list)
    """What each list of records was asked for."""

    def waiting(self, admin: Admin, group_id: str, bounds: Bounds) -> Browsed[dict[str, Any]]:
        """The ``listed`` rows, as from offset to offset."""
        self.bounds.append(bounds)
        ((place, start),) = bounds.starts.items()
        most, end = bounds.max_records or 0, bounds.ends[place]
        rows = [each for each in self.listed if start <= each["offset"] < end]
        return Browsed(rows[:most], len(rows) > most, "")

    def record(self, topic: str, partition: int, offset: int) -> Any:
        self.read.append((topic, partition, offset))
        return self.records.get((topic, partition, offset))

    def dead_letters(self, topic: str) -> list[DeadLetter]:
        return list(self.found)

    def dead_letter(self, topic: str, partition: int, offset: int) -> DeadLetter | None:
        return next((each for each in self.found if (each.partition, each.offset) == (partition, offset)), None)

    def redrive(self, topic: str, chosen: Any, *, as_shown: str, origins: Any, watch: Any) -> RedriveReport:
        execute, shown = bool(as_shown), int(as_shown or len(self.found))
        report = RedriveReport(dlq_topic=topic, dry_run=not execute, shown=str(shown))
        report.came_after = len(self.found) - shown
        for each in self.found[:shown]:
            report.read += 1
            watch(report.read)
            if self.error is not None:
                raise self.error
            if chosen(each):
                report.add(each, each.origin_topic)
                self.sent += [(each.partition, each.offset)] if execute else []
        return report


def listed_record(offset: int, **more: Any) -> dict[str, Any]:
    """A record as a list shows it."""
    said = {"state": "AVAILABLE", "deliveryCount": 0, "stage": "normal", "clientId": "", "memberId": ""}
    return {"offset": offset, "timestamp_ms": 1_000, "key": "null", "value": "v", **said, **more}


class Page:
    """The page over one group, ``billing``, of a running service."""

    def __init__(self, path: Any, cluster: FakeCluster | None = None, public: str = "") -> None:
        self.cluster = cluster or FakeCluster()
        if cluster is None:
            self.cluster.add("orders", 2, end=100)
        self.running = Running(path, self.cluster)
        self.admin = InProcess(
            self.running, AdminService(self.running.runtime, self.cluster, Stored(path), TopicDoubts())
        )
        self.kafka = FakeKafka()
        self.watch = Watch(self.admin)
        self.answer = True
        self.outages = Outages("fake:9092", lambda: self.answer, self.watch.waiting, self.watch.notify)
        self.site = Site(
            admin=self.admin,
            sign_in_tokens=OwnTokens(TOKENS, self.admin),
            sessions=Sessions(),
            watch=self.watch,
            examinations=Examinations(self._examined),
            kafka=self.kafka,  # type: ignore[arg-type]
            jobs=Jobs(),
            outages=self.outages,
            cluster="fake:9092",
            public=PublicUrl.parse(public),
        )
        self.app = create_app(self.site)

    def put(self, runs: Any, *, group_id: str = "billing", partitions: Container[int] = range(10_000)) -> None:
        """The share partitions with these numbers get these runs."""

        def transaction(group: ShareGroup) -> Iterator[Any]:
            for key in list(group.partitions):
                if key.partition in partitions:
                    replay(group, RunsChanged(topic_id=key.topic_id, partition=key.partition, runs=tuple(runs)))
            yield from ()

        self.running.runtime.call(group_id, transaction)

    def brokers_answer(self, answer: bool) -> None:
        """Let the brokers answer from now on, or not, and the page notice it."""
        self.answer = answer
        self.outages.ask_brokers()
        self.outages.look()

    def close(self) -> None:
        self.site.jobs.close()
        self.site.examinations.close()
        self.running.close()

    def browser(self, token: str = "", **options: Any) -> Browser:
        """A browser; with a token, one that is signed in."""
        browser = Browser(TestClient(self.app, base_url=HERE, follow_redirects=False, **options))
        if token:
            assert browser.post("/login", {"token": token}).status_code == 303
        return browser

    def _examined(self, group_id: str) -> list[Any]:
        description = self.admin.describe_groups([group_id])[group_id]
        runs = tuple(islice(self.admin.all_in_flight(group_id), MOST_EXAMINED))
        now_ms = self.running.runtime.clock.now_ms()
        return examine(GroupFacts(description=description, runs=runs, plans=self.admin.plans(group_id), now_ms=now_ms))


class Browser:
    """Gets pages and posts forms as a browser does: with its cookies, the page's Origin, and the form's secret."""

    def __init__(self, client: TestClient) -> None:
        self.client = client

    def get(self, path: str, **params: Any) -> Any:
        return self.client.get(path, params=params or None)

    def post(self, path: str, data: Mapping[str, Any], *, origin: str | None = HERE, csrf: str | None = None) -> Any:
        headers = {} if origin is None else {"origin": origin}
        secret = self.secret() if csrf is None else csrf
        answer = self.client.post(path, data={**data, **({"csrf": secret} if secret else {})}, headers=headers)
        is_led = answer.status_code == 303 and path.startswith("/act")
        return self.client.get(answer.headers["location"]) if is_led else answer

    def secret(self) -> str:
        """The CSRF token of the session; empty if nobody is signed in."""
        found = re.search(r'name="csrf" value="([^"]+)"', self.client.get("/").text)
        return found.group(1) if found else ""


def letter(offset: int, group_id: str = "billing", **fields: Any) -> DeadLetter:
    """A dead letter of orders-0, unless the fields say otherwise."""
    base: dict[str, Any] = {
        "partition": 0,
        "timestamp_ms": 1_000,
        "origin_topic": "orders",
        "origin_partition": 0,
        "message": "timeout",
    }
    counts: dict[str, Any] = {"delivery_count": 5, "disposition": "rejected", "key": b"k", "value": SCRIPT.encode()}
    more: dict[str, Any] = {"message": "timeout", "origin_offset": 10, "headers": ((SCRIPT, b"h"),)}
    return DeadLetter(offset=offset, group_id=group_id, **{**base, **counts, **more, **fields})


def pending_of(answer: Any) -> str:
    """The action that the page asks to confirm."""
    assert answer.status_code == 200, answer.text
    found: str
    (found,) = re.findall(r'name="pending" value="([^"]+)"', answer.text)
    return found


def finished(browser: Browser, answer: Any) -> Any:
    """The page of a redrive when it has ended."""
    assert answer.status_code == 303, answer.text

    def page() -> Any:
        found = browser.client.get(answer.headers["location"])
        return None if "looks again by itself" in found.text else found

    return wait_until(page, what="the redrive has ended")
