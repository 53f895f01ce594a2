"""The records of a group are shown without being acquired: the view ``records`` in plain Python, on a broker."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import sqlite3

import pytest

from coordinator.admin.waiting_records import Bounds, plan
from coordinator.protocol.errors import GroupIdNotFound, InvalidRequest, UnknownSharePartition
from coordinator.protocol.option_errors import MissingOption
from share_source.views.record_rows import read
from sharegroup import AcknowledgeType, Admin, ShareConsumer, views
from sharegroup.__main__ import run
from tests.support.coordinator_process import kill_coordinators
from tests.support.kafka_log import state_log
from tests.support.standalone import TOKEN, StandaloneProcess, write_secret
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker

OF_MEMBER = {
    "share.acknowledgement.mode": "explicit",
    "share.auto.offset.reset": "earliest",
    "share.release.backoff.ms": "3600000",
    "share.record.lock.duration.ms": "3600000",
    "share.acquire.mode": "record_limit",
    "max.poll.records": "6",
}
STATES = {
    1: ("ACQUIRED", 1),
    2: ("ACQUIRED", 1),
    3: ("AVAILABLE", 1),
    5: ("ACQUIRED", 1),
    **dict.fromkeys(range(6, 10), ("AVAILABLE", 0)),
}
"""State and delivery count of those of ten records that are not done: 0 was accepted, 3 released, 4 rejected."""


class Group:
    """A group whose member holds three of a topic's ten records."""

    def __init__(self, kafka, orders, name, store, *, acknowledges=True, **configs):
        self.kafka, self.orders, self.name, self._store = kafka, orders, name, store
        ours = {key: value for key, value in configs.items() if key.startswith("share.coordinator")}
        self.conf = {"bootstrap.servers": kafka.bootstrap, **ours}
        if store != "kafka":
            self.conf["share.state.store"] = store
        self.consumer = ShareConsumer({**self.conf, **OF_MEMBER, **configs, "group.id": name})
        self.consumer.subscribe([orders])
        self._got = wait_until(lambda: self.consumer.poll(1.0), what="records come")
        if acknowledges:
            self.acknowledge()

    def acknowledge(self):
        for message, outcome in ((0, "ACCEPT"), (3, "RELEASE"), (4, "REJECT")):
            self.consumer.acknowledge(self._got[message], AcknowledgeType[outcome])
        self.consumer.commit_sync()

    def rows(self, **bounds):
        return views.records(self.conf, self.name, **bounds).to_pylist()

    def states(self, **bounds):
        return {row["offset"]: (row["state"], row["deliveryCount"]) for row in self.rows(**bounds)}

    def state_log(self):
        """What the SQLite file holds, or the records of the state topic."""
        kind, _, path = self._store.partition(":")
        if kind == "sqlite":
            with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as file:
                return list(file.iterdump())
        return state_log(self.kafka.bootstrap)

    def described(self):
        with Admin(self.conf) as admin:
            found = admin.describe_groups([self.name])[self.name]
        return found.partitions, found.records, found.configs, found.group_epoch


@pytest.fixture
def begin(kafka, topic, unique, runtime, tmp_path):
    """Starts a group: `begin("sqlite")` with its state in a file, else in the state topic."""
    begun = []

    def start(store="kafka", **how):
        orders = topic("orders")
        kafka.produce(orders, [f"v{number}" for number in range(10)])
        place = f"sqlite:{tmp_path / 'state.db'}" if store == "sqlite" else store
        begun.append(Group(kafka, orders, unique("group"), place, **how))
        return begun[-1]

    yield start
    for group in begun:
        group.consumer.close()


@pytest.mark.parametrize("store", ["kafka", "sqlite"])
def test_records_are_shown_with_their_states_and_nothing_is_written(begin, store, tmp_path):
    group = begin(store)
    before = group.state_log(), group.described()
    rows = group.rows()
    assert {row["offset"]: (row["state"], row["deliveryCount"]) for row in rows} == STATES
    assert [row["value"] for row in rows] == [b"v%d" % offset for offset in STATES]
    held, released, waiting = rows[0], rows[2], rows[-1]
    assert (held["topic"], held["partition"], held["group"]) == (group.orders, 0, group.name)
    assert held["memberId"] and held["lockDeadline"] and released["notBefore"] and not waiting["memberId"]
    assert (group.state_log(), group.described()) == before
    if store == "kafka":
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SHAREGROUP_RUNTIME_DIR", str(tmp_path))
            assert group.states() == STATES, "on a host that is not the owner's"
    kill_coordinators()
    assert group.states() == STATES, "no coordinator runs"
    assert group.state_log() == before[0]


def test_bounds_choose_topics_partitions_offsets_states_and_a_number(begin):
    group = begin()
    place = (group.orders, 0)
    assert [*group.states(partitions={group.orders: (0,)}, starts={place: 2}, ends={place: 8})] == [2, 3, 5, 6, 7]
    assert [*group.states(starts={place: 8})] == [8, 9]
    assert [*group.states(states=("acquired",))] == [1, 2, 5]
    assert [*group.states(states=("AVAILABLE",), max_records=3)] == [3, 6, 7]
    assert group.states(states=("ARCHIVING",)) == {}
    for wrong in ({"partitions": {"none": ()}}, {"partitions": {group.orders: (0, 1)}}, {"starts": {("none", 0): 1}}):
        with pytest.raises(UnknownSharePartition, match=rf"no state of (topic none|none-0|{group.orders}-1)"):
            group.rows(**wrong)
    for wrong in ({"states": ("ARCHIVED",)}, {"max_records": 0}):
        with pytest.raises(InvalidRequest, match=r"AVAILABLE, ACQUIRED, IN_PROGRESS, ARCHIVING|ask for 1 at least"):
            group.rows(**wrong)
    with pytest.raises(GroupIdNotFound):
        views.records(group.conf, "nobody")


def test_offsets_without_a_record_give_no_row_and_isolation_is_the_groups(kafka, begin):
    group = begin(**{"share.isolation.level": "read_committed"})
    kafka.produce_transaction(group.orders, ["t1", "t2"])
    kafka.produce_transaction(group.orders, ["a1"], commit=False)
    kafka.produce(group.orders, ["last"])
    hanging = kafka.open_transaction(group.orders, ["open"])
    assert [row["value"] for row in group.rows()][-3:] == [b"t1", b"t2", b"last"]
    hanging.abort_transaction(30)


def test_a_given_up_record_without_its_dead_letter_yet_is_shown(kafka, begin, topic):
    dead = topic("dead")
    group = begin(**{"errors.deadletterqueue.topic.name": dead}, acknowledges=False)
    kafka.delete_topic(dead)
    group.acknowledge()
    wait_until(lambda: group.states(states=("ARCHIVING",)) == {4: ("ARCHIVING", 1)}, what="no dead letter is written")
    (row,) = group.rows(states=("ARCHIVING",))
    assert (row["disposition"], row["value"]) == ("rejected", b"v4")


def test_records_that_kafka_removed_are_gone_without_a_failure(kafka, begin, caplog):
    group = begin()
    with Admin(group.conf) as admin:
        planned = plan(admin, {"bootstrap.servers": kafka.bootstrap}, group.name, Bounds())
        kafka.delete_records(group.orders, 7)
        with caplog.at_level(logging.WARNING, "share_source"):
            (batch,) = read(planned, {"bootstrap.servers": kafka.bootstrap})
    assert batch.column("offset").to_pylist() == [7, 8, 9]
    assert f"{group.orders}-0 can't be read any more, offsets 1 to 6" in caplog.text


def test_a_topic_that_was_created_again_shows_nothing_of_the_old_one(kafka, begin, caplog):
    group = begin()
    group.consumer.close()
    kill_coordinators()  # a coordinator would notice
    kafka.delete_topic(group.orders)
    kafka.create_topic(group.orders)
    kafka.produce(group.orders, ["new"] * 8)
    with caplog.at_level(logging.WARNING, "coordinator.admin"):
        assert group.rows() == []
    assert f"{group.orders}-0 shows no records: the topic was deleted" in caplog.text


def test_a_standalone_coordinator_is_asked_and_the_brokers_are_read(kafka, begin, tmp_path):
    process = StandaloneProcess(tmp_path, {"bootstrap.servers": kafka.bootstrap}).wait_ready()
    with contextlib.closing(process):
        endpoint = {"share.coordinator.endpoint": ":".join(map(str, process.address))}
        group = begin(**endpoint, **{"share.coordinator.token.file": str(write_secret(tmp_path / "token", TOKEN))})
        before = group.state_log(), group.described()
        assert group.states() == STATES
        assert (group.state_log(), group.described()) == before
        with pytest.raises(MissingOption, match=r"bootstrap\.servers"):
            views.records({key: value for key, value in group.conf.items() if key.startswith("share.")}, group.name)


def test_the_command_prints_the_same_rows_and_a_few_at_first(kafka, begin, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)  # pytest's workers have it
    group = begin()
    command = ["browse", "--bootstrap-server", kafka.bootstrap, "--group", group.name]
    at = ["--topic", group.orders, "--partition", "0"]
    assert run([*command, *at, "--from-offset", "2", "--to-offset", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["offset"], each["value"]) for each in found["records"]] == [(n, f"v{n}") for n in (2, 3, 5, 6, 7)]
    assert (found["records"][0]["state"], found["records"][0]["delivery_count"], found["more"]) == (
        "ACQUIRED",
        1,
        False,
    )
    assert found["records"][0]["lock_deadline_ms"] > found["records"][0]["timestamp_ms"] > 1_700_000_000_000
    assert run([*command, "--max-records", "3"]) == 0
    told = capsys.readouterr().out
    assert re.findall(r"@(\d+) .* (ACQUIRED|AVAILABLE) +(\d+)", told) == [
        ("1", "ACQUIRED", "1"),
        ("2", "ACQUIRED", "1"),
        ("3", "AVAILABLE", "1"),
    ]
    assert told.endswith("… and more: --max-records or --from-offset shows more\n")
    assert run([*command, "--state", "archiving"]) == 0
    assert capsys.readouterr().out == f"No record of {group.name} waits as asked.\n"


def test_a_value_is_printed_without_control_characters_and_cut(kafka, begin, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    group = begin()
    kafka.produce(group.orders, [b"\x1b[31mred", b"\xff\x00", b"x" * 9_000, "[bold]"])
    command = ["browse", "--bootstrap-server", kafka.bootstrap, "--group", group.name]
    assert run([*command, "--topic", group.orders, "--partition", "0", "--from-offset", "10"]) == 0
    told = capsys.readouterr().out
    assert all(text in told for text in ("1b 5b 33 31 6d", "ff 00", "x" * 80 + " … (9000 bytes)", "[bold]"))
    assert "\x1b" not in told
