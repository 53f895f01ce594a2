"""A member shows a name beside its id wherever people meet it; a name is data of any client."""

from __future__ import annotations

import logging

import msgspec
import pytest
from confluent_kafka import KafkaException
from hypothesis import given
from hypothesis import strategies as st

from coordinator.client.options import LONGEST_NAME
from coordinator.core.looks.snapshot import snapshot_of
from coordinator.core.replay import replay
from coordinator.core.share_group import ShareGroup
from coordinator.protocol import admin_messages, messages
from coordinator.protocol.admin_messages import HistoryEntry, ListInFlight, ListPlans, PlanInFlight, RunInFlight
from coordinator.protocol.errors import ConfigOutOfBounds, FencedMemberEpoch, InvalidRequest
from coordinator.protocol.messages import AwaitedRecord, DescribeGroup, JoinGroup, MemberDescription
from coordinator.protocol.values import MOST_CLIENT_TEXT, client_text
from coordinator.protocol.wire import decode_request, encode
from share_consumer import membership
from share_consumer.options import ConsumerOptions
from share_source.application import name_in
from share_source.options import SourceOptions
from share_spark.task_plans import query_name
from sharegroup import group_line, groups, in_flight, kafka_tables
from tests.support.fake_cluster import FakeCluster
from tests.support.group_driver import GroupDriver
from tests.support.running_service import Running
from tests.support.sink_driver import ACCEPT, said

BILLING = {"group_id": "billing"}
OF_APPLICATION = {"client_id": "nightly", "client_host": "host-1", "client_pid": 4711}
HOSTILE = "a\nb\x1b[2J [red]" + "x" * 600
QUERY_ID = "5d0a36ff-0a8c-4b3f-9a3c-6a6d0c1b7e11"
SOURCE = {"kafka.bootstrap.servers": "localhost:9092", "kafka.group.id": "billing", "subscribe": "orders"}
CONSUMER = {"bootstrap.servers": "localhost:9092", "group.id": "billing"}
SHOWN = (AwaitedRecord, HistoryEntry, MemberDescription, PlanInFlight, RunInFlight)


# --- where names come from


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("java|org.apache.spark.deploy.SparkSubmit|--conf|spark.app.name=my app|pyspark-shell", "my app"),
        ("java|org.apache.spark.deploy.SparkSubmit|--name|nightly|--conf|a=b|job.py", "nightly"),
        ("java|org.apache.spark.deploy.SparkSubmit|--name|nightly|--conf|spark.app.name=etl|job.py", "etl"),
        ("java|org.apache.spark.deploy.SparkSubmit|--py-files|deps.py|/jobs/job.py|x", "job.py"),
        ("java|-Dspark.app.name=etl|Main", "etl"),
        ("java|--name", ""),
        ("java|--properties-file|/nowhere|Main", ""),
        ("java|Main", ""),
        ("", ""),
    ],
)
def test_the_command_line_of_a_driver_names_its_application(line: str, name: str) -> None:
    assert name_in(line.split("|")) == name


def test_a_file_of_properties_names_the_application(tmp_path) -> None:
    path = tmp_path / "spark.properties"
    path.write_text("spark.master=k8s\nspark.app.name = nightly\n")
    assert name_in(["java", "SparkSubmit", "--properties-file", str(path), "local:///job.py"]) == "nightly"


@given(st.text())
def test_spark_s_description_of_a_job_names_the_query(name: str) -> None:
    rest = f"id = {QUERY_ID}\nrunId = {QUERY_ID}\nbatch = 7"
    assert query_name(f"{name}\n{rest}", QUERY_ID) == name
    for description in (rest, None, "", name.rstrip("\n") + rest):
        assert query_name(description, QUERY_ID) == ""


@pytest.mark.parametrize(
    ("config", "argument", "joined"),
    [
        ({"member.name": "etl 1", "client.id": "c"}, "/jobs/etl.py", ("etl 1", "c")),
        ({"client.id": "c"}, "/jobs/etl.py", ("", "c")),
        ({}, "/jobs/etl.py", ("", "etl.py")),
        ({"member.name": None}, "/jobs/etl.py", ("", "etl.py")),
        ({}, "-c", ("", "")),
        ({}, "", ("", "")),
    ],
)
def test_a_share_consumer_joins_by_its_config_client_id_or_program(monkeypatch, config, argument, joined) -> None:
    monkeypatch.setattr("sys.argv", [argument])
    monkeypatch.setattr(membership, "MemberSession", lambda *given, **fields: fields)
    fields = membership.Membership(ConsumerOptions.parse({**CONSUMER, **config}))._join(None, ("orders",))
    assert (fields["member_name"], fields["client_id"]) == joined


@pytest.mark.parametrize("name", ["x" * (LONGEST_NAME + 1), "a\nb", "a\x1b[2J"])
def test_a_name_that_is_too_long_or_cannot_be_printed_is_refused(name: str) -> None:
    with pytest.raises(KafkaException, match=r"member\.name"):
        ConsumerOptions.parse({**CONSUMER, "member.name": name})
    with pytest.raises(ConfigOutOfBounds, match=r"member\.name"):
        SourceOptions.parse({**SOURCE, "member.name": name})


def test_a_query_s_option_names_its_member() -> None:
    assert SourceOptions.parse({**SOURCE, "MEMBER.NAME": "etl 1"}).member_name == "etl 1"


def test_a_coordinator_refuses_a_longer_text_than_clients_send() -> None:
    assert len(client_text(HOSTILE)) == MOST_CLIENT_TEXT and "\n" not in client_text(HOSTILE)
    join = {**BILLING, "member_id": "m1", "process_id": "p"}
    decode_request("JoinGroup", encode(JoinGroup(**join, client_id=client_text(HOSTILE))))
    for field in ("member_name", "client_id", "client_host"):
        with pytest.raises(InvalidRequest):
            decode_request("JoinGroup", encode(JoinGroup(**join, **{field: HOSTILE})))


# --- which name holds, and where it stands


def named(*, member_name: str = "", query: str = "", checkpoint: str = ""):
    """A group whose member m1 holds 0 to 2, joined so, and whose sink staged so."""
    group = GroupDriver(records=3)
    group.join(member_name=member_name, **OF_APPLICATION)
    group.start(group.acquire().plan.plan_id)
    group.stage(said(0, 0, ACCEPT), query_id=QUERY_ID, query_name=query, checkpoint=checkpoint)
    return group


def shown(group) -> list[MemberDescription | RunInFlight | PlanInFlight]:
    found = [group.run(DescribeGroup(**BILLING)).members[0], *group.run(ListPlans(**BILLING)).plans]
    return [*found, *(run for run in group.run(ListInFlight(**BILLING)).runs if run.member_id)]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({}, "nightly"),
        ({"query": "etl"}, "etl"),
        ({"query": "etl", "member_name": "mine"}, "mine"),
        ({"member_name": "mine"}, "mine"),
    ],
)
def test_everything_that_shows_a_member_has_the_same_name(given, name) -> None:
    group = named(**given, checkpoint="/checkpoints/etl")
    assert {each.client_id for each in shown(group)} == {name}
    assert len(shown(group)) >= 3
    member = shown(group)[0]
    assert (member.client_host, member.client_pid, member.checkpoint) == ("host-1", 4711, "/checkpoints/etl")
    again = ShareGroup("billing")
    for record in snapshot_of(group.group):
        replay(again, record)
    assert (again.members["m1"].name, again.members["m1"].checkpoint) == (name, "/checkpoints/etl")


def test_every_message_that_shows_a_member_has_a_name_for_it() -> None:
    structs = [each for module in (messages, admin_messages) for each in vars(module).values()]
    rows = {s for s in structs if isinstance(s, type) and issubclass(s, msgspec.Struct) and not s.__struct_config__.tag}
    assert {s for s in rows if {"member_id", "client_id"} <= set(s.__struct_fields__)} == set(SHOWN)
    assert {s for s in rows if "member_id" in s.__struct_fields__ and "client_id" not in s.__struct_fields__} == set()


def test_a_fenced_process_learns_who_has_its_place() -> None:
    group = named()
    with pytest.raises(FencedMemberEpoch, match=r"another process \(nightly, process 4711 on host-1\) joined"):
        group.run(messages.Heartbeat(**BILLING, member_id="m1", member_epoch=7))


def test_an_administrator_s_action_names_the_member() -> None:
    (effect,) = named(query="etl").run(admin_messages.ReleaseMember(**BILLING, member_id="m1", execute=False)).effects
    assert effect.what == "records that member m1 (etl, process 4711 on host-1) holds"


def test_a_coordinator_s_log_names_members_that_join_and_whose_sessions_end(tmp_path, caplog) -> None:
    cluster = FakeCluster()
    cluster.add("orders", end=10)
    running = Running(tmp_path / "state.db", cluster)
    with caplog.at_level(logging.INFO):
        running.join(starting_offsets="earliest", **OF_APPLICATION)
        running.ask(messages.LeaveGroup)
        running.close()
    told = [line for line in caplog.messages if "client=(nightly, process 4711 on host-1)" in line]
    assert [line.partition(":")[0] for line in told] == ["member joined", "session ended"]


# --- names are data


@pytest.mark.parametrize("kind", SHOWN, ids=lambda kind: kind.__name__)
def test_a_hostile_name_stays_one_short_line(kind) -> None:
    fields = {each.name: each.type() for each in msgspec.structs.fields(kind) if each.required}
    text = group_line.who(kind(**{**fields, "member_id": "m1", "client_id": HOSTILE}))
    assert text.isprintable() and len(text) < 2 * group_line.LONGEST_NAME and text.endswith(" (m1)")


def test_a_hostile_name_makes_no_line_of_its_own_in_tables() -> None:
    member = MemberDescription(member_id="m1", member_epoch=1, active=True, client_id=HOSTILE, checkpoint=HOSTILE)
    assert all(line.isprintable() for line in kafka_tables.members("billing", [member], verbose=True))
    assert group_line.in_words(member, messages.QueryEnding(1, 0, 0, error=HOSTILE)).isprintable()
    run = RunInFlight(topic="t", topic_id="i", partition=0, first=0, last=0, state="ACQUIRED", client_id=HOSTILE)
    cells = list(in_flight.row(run, admin_messages.InFlightPage(), all_stale=False))
    assert all(cell.isprintable() for cell in cells)


def test_with_verbose_the_command_says_which_checkpoint_a_query_has(capsys) -> None:
    query = MemberDescription(member_id="m1", member_epoch=1, active=True, client_id="etl", checkpoint="/c/\x1b[2J")
    described = messages.GroupDescription(group_id="billing", state="STABLE", incarnation="i", members=(query,))
    asked = {"state": None, "members": True, "verbose": True}
    assert "etl" in "".join(groups._lines(None, described, asked))  # type: ignore[arg-type]
    assert capsys.readouterr().err == "\nQuery 'etl (m1)' has the checkpoint /c/\\x1b[2J.\n"
