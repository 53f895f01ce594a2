"""`sharegroup groups` and `configs`: resets, deletions and configs on a real broker, and nothing in a dry run."""

from __future__ import annotations

import contextlib
import json
import re

import pytest

from coordinator.client.client import CoordinatorClient
from coordinator.protocol.messages import JoinGroup, NextPlan
from sharegroup import ShareConsumer
from sharegroup.__main__ import run
from tests.support.command_line import mistake
from tests.support.coordinator_process import kill_coordinators
from tests.support.waiting import wait_until

pytestmark = pytest.mark.broker


@pytest.fixture
def told(kafka, capsys):
    """The output of a command on the broker, with status 0."""

    def tell(command, *arguments):
        assert run([*command.split(), "--bootstrap-server", kafka.bootstrap, *arguments]) == 0
        return capsys.readouterr().out

    return tell


@pytest.fixture
def group(kafka, topic, unique):
    """An empty group that has accepted 6 records of each of two partitions, and its topic."""
    orders, group_id, left = topic("orders", partitions=2), unique("billing"), 12
    for partition in range(2):
        kafka.produce(orders, ["v"] * 6, partition=partition)
    earliest = {"bootstrap.servers": kafka.bootstrap, "share.auto.offset.reset": "earliest", "group.id": group_id}
    with ShareConsumer(earliest) as consumer:
        consumer.subscribe([orders])
        got = []
        wait_until(lambda: got.extend(consumer.poll(1.0)) or len(got) == left, what="all records come")
        consumer.commit_sync()
    return group_id, orders


def starts(told, group_id):
    """The start offsets by partition."""
    described = told("groups --describe", "--group", group_id)
    return {int(p): int(start) for p, start in re.findall(rf"^{group_id} +\S+ +(\d+) +(\d+) ", described, re.MULTILINE)}


def test_offsets_are_reset_only_with_execute(group, told, tmp_path):
    group_id, orders = group
    reset = ("groups --reset-offsets", "--group", group_id)
    planned = told(*reset, "--all-topics", "--to-earliest", "--dry-run")
    assert re.search(rf"^GROUP +TOPIC +PARTITION +NEW-OFFSET\n{group_id} +{orders} +0 +0\n", planned, re.MULTILINE)
    assert starts(told, group_id) == {0: 6, 1: 6}
    told(*reset, "--all-topics", "--to-earliest", "--execute", "--reason", "a new model")
    assert starts(told, group_id) == {0: 0, 1: 0}
    told(*reset, "--topic", f"{orders}:1", "--to-offset", "4", "--execute")
    assert starts(told, group_id) == {0: 0, 1: 4}
    told(*reset, "--topic", orders, "--shift-by", "2", "--execute")
    assert starts(told, group_id) == {0: 2, 1: 6}
    path = tmp_path / "offsets.csv"
    path.write_text(f"{orders},0,5\n{orders},1,1\n")
    told(*reset, "--from-file", str(path), "--execute")
    assert starts(told, group_id) == {0: 5, 1: 1}
    told(*reset, "--topic", orders, "--to-datetime", "2020-01-01T00:00:00.000", "--execute")
    assert starts(told, group_id) == {0: 0, 1: 0}
    told(*reset, "--topic", orders, "--to-latest", "--execute")
    told(*reset, "--topic", orders, "--by-duration", "PT1H", "--execute")
    assert starts(told, group_id) == {0: 0, 1: 0}


def test_configs_are_set_listed_and_unset(group, told, kafka, capsys):
    at = ("--group", group[0])
    key = "share.session.timeout.ms"
    told("configs set", *at, f"{key}=60000", "--dry-run")
    assert key not in told("configs list", *at)
    assert f"{key}: " in told("configs set", *at, f"{key}=60000")
    assert f"{key}=60000\n" in told("configs list", *at)
    assert json.loads(told("configs list", *at, "--json"))[key] == "60000"
    told("configs unset", *at, key)
    assert key not in told("configs list", *at)
    assert f"{key}=45000  (default)" in told("configs list", *at, "--all")
    command = ["configs", "set", "--bootstrap-server", kafka.bootstrap, *at]
    assert f"ConfigOutOfBounds: {key}=1" in mistake([*command, f"{key}=1"], capsys)
    assert "UnknownConfig: " in mistake([*command, "no.such.key=1"], capsys)


def test_a_paused_group_gets_nothing_until_it_is_resumed(group, told, kafka, capsys):
    group_id, orders = group
    at, conf = ("--group", group_id), {"bootstrap.servers": kafka.bootstrap, "group.id": group_id}
    told("groups --pause", *at, "--topic", orders, "--dry-run")
    assert "share.paused.topics" not in told("configs list", *at)
    effect = f"share.paused.topics: - -> {orders}\n"
    assert told("groups --pause", *at, "--topic", orders, "--reason", "the service is away") == effect
    kafka.produce(orders, ["w"], partition=0)
    with ShareConsumer(conf) as consumer:
        consumer.subscribe([orders])
        assert not consumer.poll(3.0)
        wait_until(lambda: f"{orders}-0 wait: their topics are paused" in told("doctor", *at), what="the doctor tells")
        assert told("groups --resume", *at) == f"share.paused.topics: {orders} -> -\n"
        got = []
        wait_until(lambda: got.extend(consumer.poll(1.0)) or len(got) == 1, what="the record comes")
        consumer.commit_sync()
    said = mistake(["groups", "--bootstrap-server", kafka.bootstrap, "--pause", *at, "--topic", "nope"], capsys)
    assert "UnknownSharePartition: " in said


def test_offsets_and_groups_are_deleted(group, told, kafka, capsys):
    group_id, orders = group
    told("groups --delete-offsets", "--group", group_id, "--topic", orders, "--dry-run")
    assert starts(told, group_id) == {0: 6, 1: 6}
    assert f"{orders} Successful" in re.sub(
        " +", " ", told("groups --delete-offsets", "--group", group_id, "--topic", orders)
    )
    assert starts(told, group_id) == {}
    told("groups --delete", "--group", group_id, "--dry-run")
    assert group_id in told("groups --list").splitlines()
    deleted = told("groups --delete", "--group", group_id)
    assert deleted == f"Deletion of requested share groups ('{group_id}') was successful.\n"
    assert group_id not in told("groups --list").splitlines()
    delete = ["groups", "--bootstrap-server", kafka.bootstrap, "--delete", "--group", group_id]
    assert "GroupIdNotFound: " in mistake(delete, capsys)


@pytest.mark.slow
def test_a_reset_waits_until_a_new_coordinator_knows_the_members(group, told, kafka, capsys):
    group_id, _ = group
    told("configs set", "--group", group_id, "share.session.timeout.ms=6000")
    assert kill_coordinators()
    reset = ["--reset-offsets", "--group", group_id, "--all-topics", "--to-earliest", "--execute"]
    said = mistake(["groups", "--bootstrap-server", kafka.bootstrap, *reset], capsys)
    assert "MembersNotKnown: " in said
    assert kill_coordinators()
    assert run(["groups", "--bootstrap-server", kafka.bootstrap, *reset, "--wait"]) == 0
    assert f"members of {group_id} that may be there" in capsys.readouterr().err
    assert starts(told, group_id) == {0: 0, 1: 0}


@pytest.fixture
def holder(kafka, topic, unique):
    """A member that holds 6 records of one partition and asks for nothing more: its group, and the topic."""
    orders, group_id = topic("orders"), unique("billing")
    kafka.produce(orders, ["v"] * 6)
    with contextlib.closing(CoordinatorClient.connect(kafka.bootstrap)) as client:
        joined = client.call(
            JoinGroup(
                group_id=group_id, member_id="m1", process_id="p1", topics=(orders,), starting_offsets="earliest",
                configs={"share.session.timeout.ms": "3600000"},
            )
        )  # fmt: skip
        client.call(NextPlan(group_id=group_id, member_id="m1", member_epoch=joined.member_epoch))
    return group_id, orders


def test_members_and_records_are_released_and_archived_by_hand(holder, told, kafka, capsys):
    group_id, orders = holder
    at, record = ("--group", group_id), ("--topic", f"{orders}:0", "--offset")
    command = ["groups", "--bootstrap-server", kafka.bootstrap, *at]

    def states():
        """The states of the offsets from 0 to 5, by their first two characters each."""
        runs = json.loads(told("in-flight", *at, "--json"))["runs"]
        return "".join(run["state"][:2] for run in runs for _ in range(run["first"], run["last"] + 1))

    assert "6 -> 6 available to others" in told("groups --release-member", *at, "--member", "m1")
    assert states() == "AC" * 6
    refused = mistake([*command, "--archive-records", *record, "4", "--reason", "broken", "--execute"], capsys)
    assert f"RecordsHeld: Offsets 4 to 4 of {orders}-0 are held by member m1" in refused
    assert "offsets 4 to 4: ACQUIRED -> AVAILABLE" in told("groups --release-records", *at, *record, "4", "--execute")
    assert states() == "AC" * 4 + "AVAC"
    told("groups --release-member", *at, "--member", "m1", "--execute", "--reason", "it hangs")
    assert states() == "AV" * 6

    archive = ["--archive-records", *record, "0-2", "--reason", "broken"]
    assert run([*command, *archive]) == 0
    planned = capsys.readouterr()
    assert planned.err.startswith("3 of 3 record(s) are given up and not delivered again; ")
    assert planned.err.endswith("Dry run: nothing was changed. Use --execute to change it.\n")
    assert states() == "AV" * 6
    assert json.loads(told("groups", *at, *archive, "--execute", "--json"))["executed"] is True
    assert states() == "AV" * 3, "the start offset is 3"
