"""A query starts with what `sharegroup check` calls ok: each check is paired with a start, on a broker with ACLs."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
from confluent_kafka.admin import ResourceType

from coordinator.protocol.errors import ShareGroupError
from coordinator.service.stores.kafka.state_topic import STATE_TOPIC
from pyspark_sharegroup import DefaultSource
from share_source.driver.reader import ShareGroupStreamReader
from share_source.options import SourceOptions
from sharegroup.__main__ import run
from sharegroup.check.cluster import LeaderNotReachable
from sharegroup.check.options import of_source
from tests.support.coordinator_process import kill_coordinators
from tests.support.guarded_broker import ALICE, grant, guarded_broker, revoke
from tests.support.standalone import TOKEN, StandaloneProcess, write_secret

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("runtime")]

TOPIC, TRANSACTIONS = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
NEEDED = [
    *((TOPIC, STATE_TOPIC, each) for each in ("CREATE", "DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE", "DELETE")),
    *((TRANSACTIONS, f"{STATE_TOPIC}-", each) for each in ("DESCRIBE", "WRITE")),
    *((TOPIC, "orders", each) for each in ("DESCRIBE", "READ")),
    *((TOPIC, "dlq", each) for each in ("DESCRIBE", "WRITE")),
]
IMPLIED = "DESCRIBE"
"""Kafka implies this right by the others on the same resource: no query lacks it alone."""
DLQ = "errors.deadletterqueue.topic.name"


@pytest.fixture(scope="module")
def guarded():
    with guarded_broker() as broker:
        for topic, partitions in (("orders", 2), ("dlq", 1)):
            broker.create_topic(topic, partitions)
        broker.produce("orders", [b"x"] * 3)
        yield broker


def checked(tmp_path, capsys, options):
    """The names of the errors that the command prints."""
    path = tmp_path / "options.json"
    path.write_text(json.dumps(options))
    status = run(["check", "--options", str(path), "--json"])
    found = [each["error"] for each in json.loads(capsys.readouterr().out) if each["error"]]
    assert status == bool(found)
    return found


def started(options):
    """The name of the error with which the query's first batch fails; empty if it is read."""
    try:
        DefaultSource({name.lower(): value for name, value in options.items()}).schema()
        reader = ShareGroupStreamReader(SourceOptions.parse(options))
        try:
            start = reader.initialOffset()
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            for task in reader.partitions(start, end):
                assert sum(batch.num_rows for batch in reader.read(task)) > 0
        finally:
            reader.stop()
    except ShareGroupError as error:
        return type(error).__name__
    return ""


def options_of(bootstrap, group_id, **options):
    given = {"kafka.bootstrap.servers": bootstrap, "kafka.group.id": group_id, "startingOffsets": "earliest"}
    return {**given, "subscribe": "orders", **options}


@pytest.mark.slow
def test_no_right_is_missing_where_check_says_ok(guarded, tmp_path, capsys, unique):
    alice = {f"kafka.{key}": value for key, value in ALICE.items()}
    found = {}
    for missing in [*(right for right in NEEDED if right[2] != IMPLIED), None]:
        granted = [
            acl
            for kind, name, op in NEEDED
            if (kind, name, op) != missing
            for acl in grant(guarded, kind, name, op, prefix=kind is TRANSACTIONS)
        ]
        options = options_of(guarded.proxied_bootstrap, unique("group"), **alice, **{DLQ: "dlq"})
        names = checked(tmp_path, capsys, options)
        error = started(options)
        found[missing and (missing[1], missing[2])] = (names, error)
        kill_coordinators()
        revoke(guarded, granted)
    wrong_yet_ok = {missing: said for missing, said in found.items() if said[1] and said[1] not in said[0]}
    assert wrong_yet_ok == {}
    assert found[None] == ([], "")
    fails = {missing for missing, (_, error) in found.items() if error}
    assert {(STATE_TOPIC, "CREATE"), ("orders", "READ"), ("dlq", "WRITE"), (f"{STATE_TOPIC}-", "WRITE")} <= fails


@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": '{"orders":{"0":1}}'},
        {"startingOffsets": '{"orders":{"0":1,"1":900}}'},
        {"startingOffsets": "latest"},
        {DLQ: "nosuch"},
        {DLQ: "made", "errors.deadletterqueue.auto.create.topics.enable": "true"},
        {DLQ: "orders"},
        {"subscribe": "nosuch"},
        {"kafka.acks": "1", "kafka.retries": "0", "kafka.request.timeout.ms": "5000"},
        pytest.param({"share.state.store": "sqlite:/"}, marks=pytest.mark.slow),
        pytest.param({"share.state.store": "sqlite:/etc/hostname"}, marks=pytest.mark.slow),
        {"share.state.store": "sqlite:/dev/null/file.db"},
    ],
    ids=str,
)
def test_what_check_calls_ok_starts(guarded, tmp_path, capsys, unique, given):
    options = options_of(guarded.bootstrap, unique("group"), **given)
    names = checked(tmp_path, capsys, options)
    error = started(options)
    assert names[:1] == ([error] if error else [])


def test_check_names_a_leader_that_is_out_of_reach_by_its_address(kafka, topic, unique):
    orders = topic("orders", 3)
    options = options_of(kafka.records_proxied_bootstrap, unique("group"), subscribe=orders)
    kafka.proxy.cut()
    try:
        told = next(str(found) for found in of_source(options) if isinstance(found, LeaderNotReachable))
    finally:
        kafka.proxy.heal()
    assert f"The leader of {orders}-0, {orders}-1, {orders}-2 can't be reached" in told
    assert f"advertises {kafka.proxied_bootstrap}" in told


def test_check_names_another_hosts_coordinator_and_a_position_that_stays(
    guarded, tmp_path, capsys, unique, monkeypatch
):
    options = options_of(guarded.bootstrap, unique("group"))
    assert started(options) == ""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    monkeypatch.setenv("SHAREGROUP_RUNTIME_DIR", str(elsewhere))
    path = tmp_path / "options.json"
    path.write_text(json.dumps(options))
    assert run(["check", "--options", str(path)]) == 0
    kill_coordinators(elsewhere)
    lines = capsys.readouterr().out.splitlines()
    (note,) = [line for line in lines if line.startswith("note")]
    assert "startingOffsets=earliest has no effect: the group has begun all of these partitions" in note
    (owner,) = [line for line in lines if line.endswith("owns the group; this host asks it over Kafka")]
    assert owner.startswith("ok     source: the coordinator on ")


@pytest.mark.parametrize(("rights", "results"), [("member", {"ok", "note"}), ("read,member", {"ok"})])
def test_a_token_of_a_query_is_enough_to_check(guarded, tmp_path, capsys, rights, results):
    """Starting offsets of a group that the token may not look at are no error: the group may have begun."""
    tokens = write_secret(tmp_path / "tokens", f"{rights}:{TOKEN}\n")
    token = {"share.coordinator.token.file": str(tokens)}
    state = {"bootstrap.servers": guarded.bootstrap, "share.state.store": f"sqlite:{tmp_path / 'state.db'}"}
    with closing(StandaloneProcess(tmp_path, {**state, **token})) as running:
        endpoint = {"share.coordinator.endpoint": running.wait_ready().endpoint, **token}
        offsets = {"startingOffsets": '{"orders":{"0":-2,"1":-1}}'}
        path = tmp_path / "options.json"
        path.write_text(json.dumps({**options_of(guarded.bootstrap, "g"), **offsets, **endpoint}))
        assert run(["check", "--options", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {each["result"] for each in found if each["side"] == "source"} == results
