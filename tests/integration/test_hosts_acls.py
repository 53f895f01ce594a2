"""The ACLs that hosts need which share groups: each row of the table in docs/run/state-topic.md suffices for what it
names, and allows no more."""

import contextlib
import logging
import re
import uuid
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from coordinator.admin.admin import Admin
from coordinator.protocol.admin_messages import DeleteGroup
from coordinator.protocol.errors import CoordinatorNotAvailable, GroupNotEmpty, NotAllowed, StateTopicNotAuthorized
from coordinator.protocol.host_errors import HostTopicNotAuthorized, HostTopicUnfit, OwnerMissing
from coordinator.protocol.host_records import ADMIN_REQUESTS, PARTITIONS, REPLIES, REQUESTS
from coordinator.protocol.messages import Heartbeat
from coordinator.service.hosts import gateway
from coordinator.service.hosts.topics import ALL, ensure
from coordinator.service.requests.audit import AUDIT
from coordinator.service.stores.kafka import ownership
from coordinator.service.stores.kafka.partition_count import prepared
from coordinator.service.stores.kafka.state_topic import STATE_TOPIC
from sharegroup.check.options import of_source
from tests.support.coordinator_process import kill_coordinators
from tests.support.guarded_broker import acl, client_of, grant, grant_all, guarded_broker
from tests.support.host import Host, acquired
from tests.support.state_topics import state_topic
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.usefixtures("runtime")]

PAGE = Path(__file__).parents[2] / "docs" / "run" / "state-topic.md"
OWNER, MEMBER, COPY, READER, ADMINISTRATOR = "owner", "member", "copy", "reader", "administrator"
ROWS = {
    OWNER: "host that may own groups",
    MEMBER: "member, or read-only client",
    READER: "member, or read-only client",
    ADMINISTRATOR: "administrator",
    COPY: "read-only client that reads only the state topic",
}
"""The row of each principal in the page's table."""
WITHOUT = {"without1": (STATE_TOPIC, "READ"), "without2": (REQUESTS, "WRITE"), "without3": (REPLIES, "READ")}
"""Each of these members lacks an ACL of its row."""
OLD, DEAF = "old", "deaf"
"""A host with the ACLs of the state topic alone, and one that lacks Write on share-group-replies."""


def table():
    """The ACLs of each row, as the page has them: (topic, operation)."""
    lines = [line.strip("| ").split("|") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line] for line in lines]
    (head,) = [row for row in cells if row[0] == "principal"]
    topics = [name.strip("`") for name in head[1:]]
    found = {}
    for row in cells:
        if row[0] in ROWS.values():
            each = zip(topics, [*row[1:], *[""] * 4], strict=False)
            found[row[0]] = {(topic, what.upper()) for topic, cell in each for what in re.findall(r"\w+", cell)}
    return found


@pytest.fixture(scope="module")
def guarded():
    with guarded_broker(*ROWS, *WITHOUT, OLD, DEAF, auto_create_topics_enable="false") as broker:
        grant_all(broker, acls())
        prepared(state_of(broker))
        yield broker


def acls():
    """What each principal may do."""
    rows = table()
    rights = {user: rows[row] for user, row in ROWS.items()}
    rights |= {user: rows[ROWS[MEMBER]] - {lacking} for user, lacking in WITHOUT.items()}
    rights[OLD] = {right for right in rows[ROWS[OWNER]] if right[0] == STATE_TOPIC}
    rights[DEAF] = rows[ROWS[OWNER]] - {(REPLIES, "WRITE")}
    return [
        *(acl(ResourceType.TOPIC, *right, user=user) for user, named in rights.items() for right in named),
        *(
            acl(ResourceType.TRANSACTIONAL_ID, f"{STATE_TOPIC}-", "WRITE", prefix=True, user=user)
            for user in (OWNER, OLD, DEAF)
        ),
        *(acl(ResourceType.TOPIC, "orders", "READ", prefix=True, user=user) for user in (OWNER, OLD, DEAF, MEMBER)),
    ]


def state_of(broker):
    """The state topic as an administrator of the cluster has it."""
    return state_topic(broker, STATE_TOPIC, 4, write_timeout_ms=5_000)


def delete(broker, *names):
    for done in broker.admin.delete_topics(list(names)).values():
        done.result(60)
    wait_until(lambda: not set(names) & set(broker.admin.list_topics(timeout=15).topics), what="the topics are gone")


@pytest.fixture
def hosts(guarded, tmp_path):
    """Starts the host of a principal; the topics are there."""
    ensure(state_of(guarded), {})
    with contextlib.ExitStack() as started:

        def start(user):
            folder = tmp_path / f"{user}-{uuid.uuid4().hex[:4]}"
            return started.enter_context(Host(guarded.proxied_bootstrap, folder, client_of(user)))

        yield start


@pytest.fixture
def orders(guarded):
    name = guarded.create_topic(f"orders-{uuid.uuid4().hex[:8]}")
    guarded.produce(name, [str(number) for number in range(20)], partition=0)
    return name


@pytest.fixture
def owned(hosts, orders, unique):
    """A host that owns a group, in which it has a member; the group; the member."""
    group, one = unique("group"), hosts(OWNER)
    first = one.join(group, orders, "a")
    assert one.owns(group)
    return one, group, first


def test_a_member_passes_requests_on_and_waits_for_an_owner(owned, hosts, orders):
    one, group, first = owned
    two = hosts(MEMBER)
    second = two.join(group, orders, "b")
    taken = acquired(one, first), acquired(two, second)
    assert sorted(taken[0] + taken[1]) == list(range(20))
    one.close()
    with pytest.raises(OwnerMissing, match=f"may not write to {STATE_TOPIC} as {STATE_TOPIC}-{group}.*on a host that"):
        two.client.call(Heartbeat(**second))
    assert not two.owns(group)
    three = hosts(OWNER)
    three.rejoin(orders, first)
    assert two.rejoin(orders, second) == second
    assert three.owns(group)


@pytest.mark.slow
def test_a_member_takes_nothing_from_an_owner_that_is_silent(owned, hosts, orders, monkeypatch):
    monkeypatch.setattr(gateway, "FIRST_S", 5.0)
    one, group, _ = owned
    two = hosts(MEMBER)
    second = two.join(group, orders, "b")
    one.be_silent()
    with pytest.raises(OwnerMissing, match=f"may not write to {REPLIES}"):
        two.client.call(Heartbeat(**second))
    assert one.owns(group)


def test_a_member_alone_is_told_that_it_may_not_own(hosts, orders, unique):
    two = hosts(MEMBER)
    with pytest.raises(StateTopicNotAuthorized, match="write to it as"):
        two.join(unique("group"), orders, "b")


def test_a_member_is_told_each_acl_that_it_lacks(owned, hosts, orders):
    _, group, _ = owned
    for user, (topic, operation) in WITHOUT.items():
        if topic == STATE_TOPIC:
            with pytest.raises(StateTopicNotAuthorized):
                hosts(user)
            continue
        with pytest.raises(HostTopicNotAuthorized, match=rf"may not .*(see|{operation.lower()}).*\(topic {topic}\)"):
            hosts(user).join(group, orders, "b")


def test_a_member_may_not_administer_and_owners_decide_an_administrator_s_action(guarded, owned, hosts, orders, caplog):
    one, group, _ = owned
    two = hosts(MEMBER)
    two.join(group, orders, "b")
    action = DeleteGroup(group_id=group, action_id=uuid.uuid4().hex, execute=True)
    with pytest.raises(HostTopicNotAuthorized, match=rf"\(topic {ADMIN_REQUESTS}\)"):
        two.client.call(action)
    with pytest.raises(NotAllowed):  # a hand-made record among the members' requests
        two.pass_on(group, action)
    assert written(guarded, MEMBER, ADMIN_REQUESTS) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert written(guarded, MEMBER, REPLIES) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert written(guarded, MEMBER, REQUESTS) is None
    assert read(guarded, MEMBER, REQUESTS) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(HostTopicNotAuthorized):
        hosts(READER).client.call(action)

    three = hosts(ADMINISTRATOR)
    caplog.clear()
    with caplog.at_level(logging.INFO, AUDIT), pytest.raises(GroupNotEmpty):
        three.client.call(DeleteGroup(group_id=group, action_id=uuid.uuid4().hex, execute=True))
    assert one.owns(group)
    *before, line = [record.getMessage() for record in caplog.records if record.name == AUDIT]
    assert [each.partition(":")[0] for each in before] == ["begun", "not here", "begun"]
    assert line.startswith("refused: ")
    assert f" from=host {three.gateway._me.host} " in line


def test_an_unfit_topic_is_configured_or_named_with_the_command(guarded, owned, hosts, orders):
    """Only who may describe the configuration is told. An owner answers either way."""
    _, group, _ = owned
    unfit = ConfigResource(ConfigResource.Type.TOPIC, REQUESTS)
    entry = ConfigEntry("compression.type", "producer", incremental_operation=AlterConfigOpType.SET)
    unfit.incremental_configs = [entry]

    def kind():
        return guarded.admin.describe_configs([unfit])[unfit].result(60)["compression.type"].value

    guarded.admin.incremental_alter_configs([unfit])[unfit].result(60)
    wait_until(lambda: kind() == "producer", what="the topic is unfit")
    hosts(MEMBER).join(group, orders, "b")
    grant(guarded, ResourceType.TOPIC, REQUESTS, "DESCRIBE_CONFIGS", user=ADMINISTRATOR)
    three = hosts(ADMINISTRATOR)
    with pytest.raises(HostTopicUnfit, match=f"name {REQUESTS} --add-config compression.type=uncompressed"):
        wait_until(lambda: three.join(group, orders, "c"), what="the ACL is there")
    ensure(state_of(guarded), dict.fromkeys(ALL, "READ"))
    wait_until(lambda: kind() == "uncompressed", what="the topic is configured")
    three.join(group, orders, "c")


@pytest.mark.slow
def test_a_host_s_name_can_t_look_like_words_of_ours(owned, hosts, orders, caplog):
    _, group, _ = owned
    two = hosts(MEMBER)
    two.join(group, orders, "b")
    two.gateway._me = msgspec.structs.replace(two.gateway._me, host="x who=admin\ndone: y" + "z" * 1000)
    with caplog.at_level(logging.INFO, AUDIT), pytest.raises(NotAllowed):
        two.pass_on(group, DeleteGroup(group_id=group, action_id=uuid.uuid4().hex, execute=True))
    (line,) = [record.getMessage() for record in caplog.records if record.name == AUDIT]
    assert " from=host x?who?admin?done:?yzzz" in line
    assert len(line) < 600


def looked_at(broker, group, user):
    """What the user is shown of the group, by a coordinator of the user's own."""
    with Admin({**client_of(user), "bootstrap.servers": broker.proxied_bootstrap}) as admin:
        seen = admin.describe_groups([group])[group]
    kill_coordinators()
    return seen


def test_who_looks_sees_the_log_s_copy_or_the_owner_s_answer(guarded, owned, orders):
    _, group, _ = owned
    seen = {user: looked_at(guarded, group, user) for user in (COPY, READER)}
    assert STATE_TOPIC in seen[COPY].read_from
    assert [part.topic for part in seen[COPY].partitions] == [part.topic for part in seen[READER].partitions]
    assert not seen[READER].read_from
    assert [member.member_id for member in seen[READER].members] == ["a"]

    options = source_options(guarded, MEMBER, orders)
    assert any(isinstance(found, StateTopicNotAuthorized) for found in of_source(options))
    lines = [str(line) for line in of_source({**options, "kafka.group.id": group})]
    assert any("may not write it (share-group-state): another host owns its groups" in line for line in lines), lines


def test_missing_topics_are_named_with_the_command_to_create_them(guarded, owned, hosts, orders):
    _, group, _ = owned
    two = hosts(MEMBER)
    delete(guarded, *ALL)
    with pytest.raises(HostTopicNotAuthorized) as raised:
        two.join(group, orders, "b")
    assert all(name in str(raised.value) for name in (*ALL, "kafka-topics.sh --create --partitions 10"))
    for topic in ALL:  # as brokers create them by themselves
        guarded.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    wait_until(lambda: {*ALL} <= {*guarded.admin.list_topics(timeout=60).topics}, what="the topics are seen")
    with pytest.raises(HostTopicNotAuthorized, match="add partitions to it, which has 1"):
        wait_until(lambda: two.join(group, orders, "b"), what="the topics are seen")
    ensure(state_of(guarded), {})

    def counts():
        found = guarded.admin.list_topics(timeout=15).topics
        return [len(found[topic].partitions) for topic in ALL]

    wait_until(lambda: counts() == [PARTITIONS] * 3, what="each topic has its partitions")
    two.join(group, orders, "b")


def test_requests_go_on_when_the_topics_are_deleted_and_made_anew(guarded, owned, hosts, orders):
    one, group, first = owned
    two = hosts(MEMBER)
    second = two.join(group, orders, "b")
    delete(guarded, *ALL)
    ensure(state_of(guarded), {})
    assert two.ask(Heartbeat(**second)).member_epoch == second["member_epoch"]
    assert sorted(acquired(one, first) + acquired(two, second)) == list(range(20))
    assert one.owns(group)


def test_a_host_with_the_acls_of_the_state_topic_alone_serves_itself(hosts, orders, unique, caplog):
    one, group = hosts(OLD), unique("group")
    first = one.join(group, orders, "a")
    wait_until(lambda: "other hosts are not answered" in caplog.text, what="the log says that others are not heard")
    assert acquired(one, first) == list(range(10))
    assert all(name in caplog.text for name in ALL)


def test_an_owner_that_may_not_answer_says_so_when_it_is_asked(hosts, orders, unique, caplog):
    one, group = hosts(DEAF), unique("group")
    first = one.join(group, orders, "a")
    with pytest.raises(CoordinatorNotAvailable):
        hosts(MEMBER).client.call(Heartbeat(**first))
    wait_until(lambda: "other hosts are not answered" in caplog.text, what="the owner's log says so")
    assert f"(topic {REPLIES})" in caplog.text


def test_check_says_what_a_host_may_do_with_other_hosts(guarded, hosts, orders):
    hosts(OWNER)  # the topics are there
    lacks = ["Write on share-group-requests, Read on share-group-replies", "Read on share-group-admin-requests"]
    for user, said in ((OWNER, ["this host may ask owners on other hosts, and answer them"]), (OLD, lacks)):
        lines = [line for line in of_source(source_options(guarded, user, orders)) if "other host" in str(line)]
        assert len(lines) == len(said), lines
        assert all(words in str(line) for words, line in zip(said, lines, strict=True)), lines


def source_options(broker, user, topic):
    named = {f"kafka.{key}": value for key, value in client_of(user).items()}
    return {**named, "kafka.bootstrap.servers": broker.proxied_bootstrap, "kafka.group.id": "g", "subscribe": topic}


def written(broker, user, topic):
    """The code of the error with which a record of the user is refused; None: it is taken."""
    codes = []
    producer = Producer({**client_of(user), "bootstrap.servers": broker.proxied_bootstrap, "log_level": 0})
    producer.produce(topic, b"{}", partition=0, on_delivery=lambda error, _: codes.append(error and error.code()))
    producer.flush(30)
    return codes[0]


def read(broker, user, topic):
    """The code of the error with which a read of the user is refused."""
    config = {**client_of(user), "bootstrap.servers": broker.proxied_bootstrap, "group.id": "x", "log_level": 0}
    with contextlib.closing(Consumer(config)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])

        def code():
            message = consumer.poll(1.0)
            error = None if message is None else message.error()
            passes = error is None or error.code() in {KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError._TRANSPORT}
            return None if passes else error.code()

        return wait_until(code, what="the read is refused")


@pytest.fixture(autouse=True)
def little_patience(monkeypatch):
    monkeypatch.setattr(ownership, "PATIENCE_S", 3.0)


@pytest.mark.slow
def test_topics_of_more_partitions_are_used(guarded, owned, hosts, orders):
    _, group, _ = owned
    delete(guarded, *ALL)
    for topic in ALL:
        guarded.admin.create_topics([NewTopic(topic, PARTITIONS + 2, 1)])[topic].result(60)
    wait_until(lambda: {*ALL} <= {*guarded.admin.list_topics(timeout=60).topics}, what="the topics are seen")
    hosts(MEMBER).join(group, orders, "b")
    delete(guarded, *ALL)
