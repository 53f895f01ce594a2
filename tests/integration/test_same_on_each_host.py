"""Each door to a group is the same on the host of its owner and on another host: a host here is a runtime folder."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
import os
import re
import tempfile
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from coordinator.client.client import CoordinatorClient
from coordinator.client.session import MemberSession
from coordinator.protocol.admin_messages import Window
from coordinator.protocol.messages import NextPlan, StartPlan
from coordinator.protocol.rights import Tokens
from coordinator.service.brokers.cluster import LATEST, KafkaCluster
from share_sink import task_progress
from share_source.driver import plan_reader
from share_source.views import tables
from share_spark.task_plans import BATCH_ID, QUERY_ID, TaskPlan
from sharegroup import AcknowledgeType, Admin, AsyncShareConsumer, ShareConsumer, views
from sharegroup.__main__ import run
from sharegroup.web.actions import KINDS
from sharegroup.web.app import create_app
from sharegroup.web.command import site_of
from tests.support.command_line import COMMANDS
from tests.support.coordinator_process import kill_coordinators
from tests.support.waiting import wait_until
from tests.support.web_site import ACTOR, HERE, Browser

pytestmark = pytest.mark.broker

GROUP = "billing-of-two-hosts"
RECORDS = 12
TIMES = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?|\b\d+(\.\d+)? ?(ms|s|min|h)\b|"
    r'"(now_ms|at_s|oldest_ms|acquired_rate|done_rate)": [\d.]+|(value|nonce|kept|pending)="[^"]*"|as-shown \S+'
)
"""What differs from one look to the next."""


class Two:
    """Two hosts, the first of which has the coordinator that owns the group."""

    def __init__(self, kafka, folder):
        self.bootstrap, self.folder = kafka.bootstrap, folder
        self.orders, self.dead = (
            kafka.create_topic("orders-of-two-hosts", 2),
            kafka.create_topic("dead-of-two-hosts", 1),
        )
        for name in ("one", "two", "three"):
            (folder / name).mkdir(mode=0o700)

    @contextlib.contextmanager
    def on(self, host):
        """Run as a process of this host."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SHAREGROUP_RUNTIME_DIR", str(self.folder / host))
            yield

    def conf(self, **more):
        return {"bootstrap.servers": self.bootstrap, **more}

    def of_member(self, name, group=GROUP):
        return self.conf(
            **{
                "group.id": group,
                "client.id": name,
                "share.acknowledgement.mode": "explicit",
                "share.auto.offset.reset": "earliest",
                "max.poll.interval.ms": "3600000",
                "share.record.lock.duration.ms": "3600000",
                "errors.deadletterqueue.topic.name": self.dead,
            }
        )

    def admin(self, host):
        """An admin client of the host, which has asked there."""
        with self.on(host):
            admin = Admin(self.conf())
            admin.describe_groups([GROUP])
            return admin

    def logs(self, host, kind="coordinator"):
        return "".join(log.read_text() for log in (self.folder / host).glob(f"{kind}-*.log"))


@pytest.fixture(scope="module")
def two(kafka, runtime_dir):
    """Two hosts with a member each, of a group with records in flight and a dead letter."""
    folder = Path(tempfile.mkdtemp(dir=runtime_dir.parent))
    hosts = Two(kafka, folder)
    with contextlib.ExitStack() as members:
        members.callback(kill_coordinators, folder)
        for name in ("one", "two"):
            for partition in range(2):  # the first member may take all that are there
                kafka.produce(hosts.orders, [f"v{number}" for number in range(RECORDS)], partition=partition)
            with hosts.on(name):
                member = members.enter_context(ShareConsumer(hosts.of_member(name)))
                member.subscribe([hosts.orders])
                got = wait_until(lambda: member.poll(1.0), what="records come")  # noqa: B023
                for number, message in enumerate(got[:3]):
                    kinds = (AcknowledgeType.REJECT, AcknowledgeType.RELEASE, AcknowledgeType.ACCEPT)
                    member.acknowledge(message, kinds[number])
                wait_until(lambda: not member.commit_sync() or True, what="it is acknowledged")  # noqa: B023
        with hosts.on("one"), Admin(hosts.conf()) as admin:

            def is_calm():
                found = admin.describe_groups([GROUP])[GROUP]
                return found.group_epoch == found.assignment_epoch and not sum(p.archiving for p in found.partitions)

            wait_until(is_calm, what="the dead letters are written, the partitions assigned")
        yield hosts


def masked(text):
    return re.sub(r"T( T)+\b", "T", TIMES.sub("T", text))  # a time has one unit, or two


def plain(value):
    return masked(re.sub(r"(now_ms|log_end_at_ms)=\d+", "T", repr(value)))


LOOKS = {
    ("groups",): [
        "--list --state",
        "--describe --group {g} --verbose",
        "--describe --group {g} --members --verbose",
        "--describe --group {g} --state --json",
        "--describe --group {g} --records",
        "--describe --group {g} --in-flight",
        "--delete --group {g} --dry-run",
        "--release-records --group {g} --topic {orders}:0 --offset 3",
    ],
    ("browse",): ["--group {g}", "--group {g} --topic {orders} --partition 0 --max-records 3 --json"],
    ("in-flight",): ["--group {g} --json", "--group {g} --topic {orders}:0 --history 0"],
    ("doctor",): ["--group {g} --json"],
    ("export",): ["--group {g}", "--group {g} --json"],
    ("import",): ["--group {g} --from-consumer-group nobody"],
    ("top",): ["--once --interval 0.2 --group {g} --json"],
    ("configs", "list"): ["--group {g} --all"],
    ("configs", "set"): ["--group {g} share.delivery.count.limit=9 --dry-run"],
    ("configs", "unset"): ["--group {g} share.delivery.count.limit --dry-run"],
    ("dlq", "list"): ["--topic {dead}"],
    ("dlq", "show"): ["--topic {dead} --partition 0 --offset 0"],
    ("dlq", "redrive"): ["--topic {dead} --json"],
}
"""Looks, and dry runs, of each command on a group, by what it asks. The methods of Admin below have the rest."""
NO_GROUP = {(), ("check",), ("configs",), ("consume",), ("coordinator",), ("demo",), ("dlq",), ("perf",)}
NO_GROUP |= {("quickstart",), ("web",)}
"""Commands that look at no group, or that have a test of their own."""


def test_each_command_that_looks_at_a_group_is_here():
    assert {*LOOKS} | NO_GROUP | {path for path in COMMANDS if path[:1] in (("coordinator",), ("demo",))} == {*COMMANDS}


@pytest.mark.parametrize("path", LOOKS, ids=" ".join)
def test_a_command_prints_the_same_on_both_hosts(two, capsys, path):
    names = {"g": GROUP, "orders": two.orders, "dead": two.dead}
    for arguments in LOOKS[path]:
        command = [*path, "--bootstrap-server", two.bootstrap, *arguments.format(**names).split()]
        told = {}
        for host in ("one", "two"):
            with two.on(host):
                status = run(command)
                printed = capsys.readouterr()
                told[host] = (status, masked(printed.out), masked(printed.err))
        assert told["one"] == told["two"], arguments
        assert "No coordinator runs" not in told["two"][2]


def calls(two):
    """Each look, and each action that is not executed, of Admin."""
    part = (GROUP, two.orders, 0)
    return {
        "list_groups": lambda admin: admin.list_groups(),
        "describe_groups": lambda admin: admin.describe_groups([GROUP, "none"]),
        "list_offsets": lambda admin: admin.list_offsets(GROUP),
        "in_flight": lambda admin: admin.in_flight(GROUP),
        "all_in_flight": lambda admin: [*admin.all_in_flight(GROUP, limit=1)],
        "windows_in_flight": lambda admin: admin.windows_in_flight(
            GROUP, [Window(topic_id=admin.list_offsets(GROUP).partitions[0].topic_id, partition=0, first=0, last=99)]
        ),
        "plans": lambda admin: admin.plans(GROUP),
        "history": lambda admin: admin.history(*part, 0),
        "coordinator_of": lambda admin: admin.coordinator_of(GROUP),
        "reset_offsets": lambda admin: admin.reset_offsets(GROUP, "latest", force=True),
        "delete_offsets": lambda admin: error_of(lambda: admin.delete_offsets(GROUP, [two.orders])),
        "delete_group": lambda admin: error_of(lambda: admin.delete_group(GROUP)),
        "alter_configs": lambda admin: admin.alter_configs(GROUP, {"share.delivery.count.limit": "9"}),
        "import_group": lambda admin: error_of(lambda: admin.import_group(GROUP, admin.position(GROUP))),
        "position": lambda admin: admin.position(GROUP),
        "pause": lambda admin: admin.pause(GROUP),
        "resume": lambda admin: admin.resume(GROUP),
        "release_member": lambda admin: admin.release_member(
            GROUP, admin.describe_groups([GROUP])[GROUP].members[0].member_id
        ),
        "archive_records": lambda admin: error_of(lambda: admin.archive_records(*part, range(3, 4), reason="why")),
        "release_records": lambda admin: admin.release_records(*part, range(3, 4)),
    }


def error_of(call):
    with pytest.raises(Exception) as raised:
        call()
    return type(raised.value), str(raised.value)


def test_each_method_of_admin_answers_the_same_on_both_hosts(two):
    public = {name for name, _ in inspect.getmembers(Admin, inspect.isfunction) if not name.startswith("_")}
    assert {*calls(two)} == public - {"close", "who_am_i"}
    with contextlib.closing(two.admin("one")) as one, contextlib.closing(two.admin("two")) as other:
        for name, call in calls(two).items():
            answers = []
            for host, admin in (("one", one), ("two", other)):
                with two.on(host):
                    answers.append(plain(call(admin)))
            assert answers[0] == answers[1], name
    assert " group loaded: group=" not in two.logs("two"), "the owner stays the owner"


@pytest.mark.parametrize("view", tables.SCHEMAS)
def test_a_view_has_the_same_rows_on_both_hosts(two, view):
    look = getattr(views, view.replace("-", "_"))
    found = []
    for host in ("one", "two"):
        with two.on(host):
            found.append(look(two.conf()) if view == "groups" else look(two.conf(), GROUP))
    assert found[0].to_pylist() == found[1].to_pylist()
    assert found[0].num_rows


def paths(two):
    part = f"group={GROUP}&topic={two.orders}&partition=0"
    return [
        f"/?search={GROUP}",
        f"/group?group={GROUP}",
        f"/partition?{part}",
        f"/records?{part}",
        f"/record?{part}&offset=3",
        f"/history?{part}&offset=0",
        f"/deadletters?group={GROUP}",
    ]


def text_of(page):
    """The words of a page without what each page has watched by itself: its last hour, its rates, and how many groups
    of other tests it has scanned so far."""
    watched = r"<h2>The last hour</h2>.*?<h2>|<svg.*?</svg>|<script.*?</script>|<td data-name=.Done/s.>.*?</td>"
    page = re.sub(rf"(?s){watched}| of [\d,]+ groups?|The groups are being looked at\.", "", page)
    return masked(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page)))


@contextlib.contextmanager
def page_on(two, host):
    """The page on this host, and ada's browser."""
    tokens = Tokens.parse(f"admin ada:{ACTOR}", "the test")
    with two.on(host), site_of(two.conf(), tokens, 3_600, is_tls=False) as site:
        browser = Browser(TestClient(create_app(site), base_url=HERE, follow_redirects=False))
        assert browser.post("/login", {"token": ACTOR}).status_code == 303
        yield site, browser


def test_the_page_shows_the_same_on_both_hosts(two):
    pages = {}
    for host in ("one", "two"):
        with page_on(two, host) as (site, browser):
            wait_until(lambda: GROUP in site.watch.snapshot.groups, what="the group is scanned")
            at = f"/group?group={GROUP}"
            wait_until(lambda: "is being examined" not in browser.get(at).text, what="it is examined")  # noqa: B023
            pages[host] = {path: text_of(browser.get(path).text) for path in paths(two)}
    for path, text in pages["one"].items():
        assert text == pages["two"][path], path
    assert "process" in pages["two"][f"/group?group={GROUP}"]


@pytest.fixture
def acted_on(two, topic, kafka, unique):
    """A group of the first host whose member holds all records, and an admin client there."""
    group, orders = unique("page"), topic("orders")
    kafka.produce(orders, [f"v{number}" for number in range(6)])
    with two.on("one"), contextlib.closing(CoordinatorClient.connect(two.bootstrap)) as client:
        session = MemberSession(client, group, "m1", topics=(orders,), starting_offsets="earliest")
        session.call(lambda who: StartPlan(**who, plan_id=session.call(lambda who: NextPlan(**who)).plan.plan_id))
        with contextlib.closing(two.admin("one")) as one:
            yield group, orders, one, session
        session.close()


def done_on(page, path, form):
    """The page after an action's dry run was shown, and confirmed."""
    shown = finished(page, page.post(path, form))
    (pending,) = re.findall(r'name="pending" value="([^"]+)"', shown.text) or [shown.text]
    return finished(page, page.post(f"{path}/confirm", {"pending": pending}))


def finished(page, answer):
    """The page that an answer leads to, when it looks again no more."""

    def found():
        led = page.get(answer.headers["location"]) if answer.status_code == 303 else answer
        return None if "looks again by itself" in led.text else led

    return wait_until(found, what="it is done")


def audited(two, host, group):
    """The done actions in the host's audit log: the class, who, the host from which it came, and its reason."""
    found = []
    lines = [json.loads(line)["message"] for line in two.logs(host, "audit").splitlines()]
    for line in lines:
        if line.startswith(("begun: ", "not here: ")):
            continue
        who, where, text = re.match(r"done: who=(.*) from=(.*) request=(\{.*\}) changed=", line).groups()
        request = json.loads(text)
        found += [(request["type"], who, where, request["reason"])] if request["group_id"] == group else []
    return found


def test_each_action_of_the_page_is_done_by_the_owner_elsewhere(two, acted_on, unique, caplog):
    group, orders, one, session = acted_on
    where, record = (orders, 0), {"topic": orders, "partition": 0, "first": 2, "last": 2}
    dead, limit, name = unique("dead"), "share.delivery.count.limit", "errors.deadletterqueue.topic.name"

    def described():
        return one.describe_groups([group])[group]

    def states():
        return {run.state for run in one.in_flight(group).runs if run.first <= 2 <= run.last}

    acts = [
        ("configs", {"key": limit, "value": "9"}, lambda: described().configs.get(limit) == "9"),
        ("dead_letters", {"name": dead, "create": "yes"}, lambda: described().configs.get(name) == dead),
        ("pause", {"topic": orders}, lambda: described().configs.get("share.paused.topics") == orders),
        ("resume", {"topic": orders}, lambda: "share.paused.topics" not in described().configs),
        ("release", record, lambda: states() == {"AVAILABLE"}),
        ("archive", record, lambda: states() <= {"ARCHIVED"} and not sum(p.archiving for p in described().partitions)),
        ("release_member", {"member": "m1"}, lambda: described().state == "EMPTY"),
        (
            "redrive",
            {"scope": "all"},
            lambda: KafkaCluster(two.bootstrap, {}, 15_000).offsets([where], LATEST) == {where: 7},
        ),
        ("reset", {"to": "latest"}, lambda: one.list_offsets(group).partitions[0].start_offset == 7),
        ("delete", {}, lambda: described().state == "DEAD"),
    ]
    assert {kind for kind, *_ in acts} == {*KINDS, "redrive"}
    caplog.set_level(logging.INFO, "sharegroup.audit")
    with page_on(two, "two") as (_, page):
        for kind, fields, is_done in acts:
            assert not is_done(), kind
            if kind == "release_member":  # its process is gone, and does not come back
                session.close()
            path, form = ("/redrive", {}) if kind == "redrive" else ("/act", {"kind": kind, "reason": f"why {kind}"})
            answer = done_on(page, path, {"group": group, **form, **fields})
            assert answer.status_code == 200, answer.text
            wait_until(is_done, what=kind)
    asked = [kind for kind, *_ in acts if kind != "redrive"]
    told = audited(two, "one", group)
    assert [reason for *_, reason in told] == [f"why {kind} (on the page, by ada)" for kind in asked]
    assert {(who, where) for _, who, where, _ in told} == {("admin,read", f"host {os.uname().nodename}")}
    assert not audited(two, "two", group)
    sent = [each.getMessage() for each in caplog.records if each.name == "sharegroup.audit"]
    assert [line.partition(" request=")[0] for line in sent] == [
        f"{what}: who=admin ada from=the page" for what in ("begun", "done")
    ]


def test_consumers_of_both_kinds_get_records_on_the_other_host(two, kafka, topic, unique):
    group, orders = unique("both"), topic("orders")
    kafka.produce(orders, [str(number) for number in range(6)])
    with two.on("one"), ShareConsumer(two.of_member("owner", group)) as first:
        first.subscribe([orders])
        got = [message.offset() for message in wait_until(lambda: first.poll(1.0), what="records come")]
    kafka.produce(orders, [str(number) for number in range(6)])

    async def rest():
        async with AsyncShareConsumer(two.of_member("async", group)) as consumer:
            await consumer.subscribe([orders])
            found = []
            while len(found) < 12:
                for message in await consumer.poll(1.0):
                    found.append(message.offset())
                    await consumer.acknowledge(message)
            await consumer.commit_sync()
            return found

    with two.on("two"):
        assert sorted(asyncio.run(rest())) == [*range(12)]
    assert got[0] == 0


class Task:
    """Stands for Spark's TaskContext of a query's task."""

    def getLocalProperty(self, name):  # noqa: N802 - Spark's name
        return {QUERY_ID: "q1", BATCH_ID: "4"}.get(name)

    def taskAttemptId(self):  # noqa: N802
        return 11


def test_a_task_s_signal_on_a_host_without_a_coordinator_reaches_the_owner(two, unique, monkeypatch):
    group = unique("signals")
    with two.on("one"), contextlib.closing(CoordinatorClient.connect(two.bootstrap)) as client:
        session = MemberSession(client, group, "m1", topics=(two.orders,), starting_offsets="earliest")
        plan_id = session.call(lambda who: NextPlan(**who, wait_ms=10_000)).plan.plan_id
        plan = TaskPlan(
            group_id=group,
            member_id="m1",
            member_epoch=session.member_epoch,
            plan_id=plan_id,
            configs={},
            cluster_id=session.on_demand.cluster_id,
            state_store="kafka",
        )
        session.close()
    for module in (task_progress, plan_reader):
        monkeypatch.setattr(module.TaskContext, "get", staticmethod(Task))
    monkeypatch.setattr(task_progress, "_senders", [])
    with contextlib.closing(two.admin("one")) as owner, two.on("three"):
        plan_reader._leave_note(plan, {"bootstrap.servers": two.bootstrap})
        assert not [*(two.folder / "three").glob("endpoint-*.json")], "none is started before the first signal"
        task_progress.progress("page 1 of 9")
        tasks = wait_until(lambda: owner.plans(group)[0].tasks, what="the signal has come")
    assert [(task.task, task.hint) for task in tasks] == [(11, "page 1 of 9")]
    assert " group loaded: group=" not in two.logs("three")
