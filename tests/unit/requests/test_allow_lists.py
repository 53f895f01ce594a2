"""The coordinator's principal reads and writes for a token, and for groups, what the allow lists have."""

import contextlib
import tempfile
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest

from coordinator.config.resolved import ServerConfig
from coordinator.protocol.admin_messages import (
    AlterGroupConfigs,
    AlterOffsets,
    DecideRecords,
    DeleteOffsets,
    GroupListing,
    GroupsListed,
    ListGroups,
    ListInFlight,
    ReadHistory,
)
from coordinator.protocol.allowed_topics import DEAD_LETTER_KEY, SOURCE_KEY, AllowedTopics
from coordinator.protocol.errors import ConfigOutOfBounds, GroupNotAllowed, InvalidToken, TopicNotAllowed
from coordinator.protocol.format_versions import PROTOCOL
from coordinator.protocol.messages import DescribeGroup, Heartbeat, JoinGroup, OpenSink
from coordinator.protocol.rights import Tokens
from coordinator.protocol.wire import TokenHolder, WhoAmI, decode_answer, encode
from coordinator.service.dead_letters.builder import DeadLetterBuilder
from coordinator.service.dead_letters.group_worker import PassResult
from coordinator.service.requests.allow_lists import check_allowed, limited, shown_to
from coordinator.service.requests.asker import Asker
from coordinator.service.requests.requests import Requests
from sharegroup.web.command import _tokens
from tests.support.fake_cluster import FakeCluster
from tests.support.running_service import Running, dead_letter_worker, storing
from tests.support.service_sinks import reject
from tests.support.standalone import write_secret

NAME = "errors.deadletterqueue.topic.name"
ORDERS = AllowedTopics(source="orders.*", dead_letters=r"dlq\.orders.*")
BILLING = r"groups=billing-.* topics=orders-.* dlq=dlq\.billing-.*"
MEMBER, READER, ADMIN, OTHER = (f"{name}-token-0123456789" for name in ("member", "reader", "admin", "other"))
TOKENS = f"""
member billing:{MEMBER} {BILLING}
read looks:{READER} groups=billing-.*
admin ada:{ADMIN} groups=billing-.* topics=orders-.* dlq=dlq\\.billing-.*
"""


def caller(token):
    found = Tokens.parse(TOKENS, "the test").caller(f"Bearer {token}".encode())
    assert found is not None
    return found


# --- the token file


def test_a_line_without_allow_lists_allows_everything():
    (_, first), (_, second) = Tokens.parse(f"member:{MEMBER}\nread x:{READER}", "the test").holders
    assert (first.is_bound, second.is_bound) == (False, False)
    check_allowed(first, JoinGroup(group_id="any", member_id="m", process_id="p", topics=("salaries",)))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (f"member:{MEMBER} topics=orders", "has no groups=: whoever may use a group"),
        (f"member:{MEMBER} dlq=dlq", "has no groups="),
        (f"member:{MEMBER} groups=a groups=b", "line 1 of its tokens has an allow list twice"),
        (f"member:{MEMBER} groups=a topics=orders,payments", "has a comma in topics="),
        (f"member:{MEMBER} groups=(", r"has no valid pattern in groups= "),
        (f"member:{MEMBER} brokers=a", "and after it groups=, topics= and dlq= at most"),
        (f"{MEMBER} groups=a", "one word"),
        ("# nothing\n", "one word"),
        ("admin:short", "less than 16"),
        (f"ann:{MEMBER}", "one word of visible ASCII characters, without a colon"),
        (f"admin:{MEMBER}\nnonsense\n", "line 2 of its tokens is not RIGHTS:TOKEN"),
        (f"admin:{MEMBER}\nread:{MEMBER}\n", "given twice"),
    ],
)
def test_a_wrong_line_of_tokens_is_named_without_the_token(line, reason):
    with pytest.raises(InvalidToken, match=reason) as raised:
        Tokens.parse(line, "the test")
    assert MEMBER not in str(raised.value)


def test_a_wrong_pattern_in_the_properties_is_refused():
    with pytest.raises(ConfigOutOfBounds, match=SOURCE_KEY):
        ServerConfig.parse({SOURCE_KEY: "("})


def test_the_page_refuses_tokens_whose_lists_it_would_not_keep(tmp_path):
    path = write_secret(tmp_path / "tokens", f"read:{READER} groups=billing-.*\n")
    with pytest.raises(InvalidToken, match=r"the page's own tokens can't have groups="):
        _tokens({}, str(path))


# --- what a token may ask


def joins(**fields):
    return JoinGroup(**{"group_id": "billing-eu", "member_id": "m", "process_id": "p", **fields})


RIGHT_JOINS = [
    joins(topics=("orders-eu", "orders-us"), configs={NAME: "dlq.billing-eu"}),
    joins(topics=("orders-eu",), configs={NAME: " "}),
    joins(assign={"orders-eu": (0, 1)}),
    joins(topic_pattern="orders-.*"),
]
WRONG_JOINS = [
    joins(topics=("orders-eu", "salaries")),
    joins(assign={"salaries": (0,)}),
    joins(topic_pattern="orders-.*|salaries"),
    joins(topics=("orders-eu",), configs={NAME: " mine "}),
]


def test_a_token_joins_with_the_topics_that_it_is_allowed_alone():
    for request in RIGHT_JOINS:
        check_allowed(caller(MEMBER), request)
    for request in WRONG_JOINS:
        with pytest.raises(TopicNotAllowed, match=r"of the token member billing allows .* token's line"):
            check_allowed(caller(MEMBER), request)


def test_a_token_sets_the_dead_letter_topics_that_it_is_allowed_alone():
    for wrong in (
        OpenSink(group_id="billing-eu", configs={NAME: "mine"}),
        AlterGroupConfigs(group_id="billing-eu", set={NAME: "mine"}, execute=True),
    ):
        with pytest.raises(TopicNotAllowed, match=r"Topic mine may not be a dead letter topic: dlq= of the token"):
            check_allowed(caller(ADMIN), wrong)
    check_allowed(caller(ADMIN), OpenSink(group_id="billing-eu", configs={NAME: "dlq.billing-eu"}))


OF_SALARIES = [
    AlterOffsets(group_id="billing-eu", topics={"salaries": ()}),
    AlterOffsets(group_id="billing-eu", to="offsets", offsets={"salaries": {"0": 1}}),
    DeleteOffsets(group_id="billing-eu", topics=("salaries",)),
    DecideRecords(group_id="billing-eu", decision="archive", topic="salaries", partition=0, first=0, last=9),
]


@pytest.mark.parametrize("action", OF_SALARIES)
def test_a_token_acts_on_the_topics_that_it_is_allowed_alone(action):
    with pytest.raises(TopicNotAllowed, match="Topic salaries"):
        check_allowed(caller(ADMIN), action)


OF_PAYROLL = [
    joins(group_id="payroll", topics=("orders-eu",)),
    Heartbeat(group_id="payroll", member_id="m", member_epoch=1),
    DescribeGroup(group_id="payroll"),
    OpenSink(group_id="payroll"),
    ListInFlight(group_id="payroll"),
    ReadHistory(group_id="payroll", topic="salaries", partition=0, offset=0),
    AlterOffsets(group_id="payroll"),
    ListGroups(group_ids=("billing-eu", "payroll")),
]


def test_a_token_uses_no_group_that_it_is_not_allowed():
    for request in OF_PAYROLL:
        for token in (MEMBER, READER, ADMIN):
            with pytest.raises(GroupNotAllowed, match=r"Share group payroll .* allows only billing-\.\*.*token file"):
                check_allowed(caller(token), request)


def test_a_list_of_groups_shows_those_that_the_token_may_use():
    listed = GroupsListed(groups=tuple(GroupListing(group_id=g, state="EMPTY") for g in ("billing-eu", "payroll")))
    assert [group.group_id for group in shown_to(caller(READER), listed).groups] == ["billing-eu"]
    assert shown_to(Tokens.parse(MEMBER, "the test").holders[0][1], listed) is listed


@pytest.mark.parametrize(
    ("tokens", "allowed", "keys"),
    [
        (TOKENS, AllowedTopics(), ()),
        (f"{TOKENS}member:{OTHER}\n", AllowedTopics(), (SOURCE_KEY, DEAD_LETTER_KEY)),
        (f"{TOKENS}member:{OTHER} groups=b topics=c\n", AllowedTopics(), (DEAD_LETTER_KEY,)),
        (f"{TOKENS}member:{OTHER}\n", ORDERS, ()),
        (f"member:{OTHER}", AllowedTopics(), ()),
    ],
)
def test_the_open_keys_are_those_that_nothing_limits(tokens, allowed, keys):
    assert Tokens.parse(tokens, "the test").open_keys(allowed) == keys


def test_the_holder_of_a_token_learns_which_keys_are_open():
    limits = ServerConfig.parse({SOURCE_KEY: "orders.*"})
    keys = Tokens.parse(f"{TOKENS}member:{OTHER}\n", "a test").open_keys(limits.allowed_topics)
    asker = Asker(caller(READER), "a peer", str(PROTOCOL))
    answer = Requests(open_keys=keys).answer(WhoAmI.__name__, pa.py_buffer(encode(WhoAmI())), asker)
    held = decode_answer(answer)
    assert isinstance(held, TokenHolder)
    assert held.open_keys == (DEAD_LETTER_KEY,)


# --- tokens with different lists in one group

SOURCES = "errors.deadletterqueue.source.topics"
OWN = "orders-.*"


def test_a_token_limits_what_its_dead_letter_topic_gets():
    named = {NAME: "dlq.billing-eu"}
    for request in (
        JoinGroup(group_id="billing-eu", member_id="m", process_id="p", topics=("orders-eu",), configs=named),
        OpenSink(group_id="billing-eu", configs=named),
        AlterGroupConfigs(group_id="billing-eu", set=named),
    ):
        bound = limited(caller(ADMIN), request)
        assert (bound.set if isinstance(bound, AlterGroupConfigs) else bound.configs) == {**named, SOURCES: OWN}


def test_a_token_lifts_no_limit_of_a_dead_letter_topic():
    check_allowed(caller(ADMIN), AlterGroupConfigs(group_id="billing-eu", set={SOURCES: OWN}))
    for wrong in ({"set": {SOURCES: ".*"}}, {"set": {SOURCES: ""}}, {"unset": (SOURCES,)}):
        with pytest.raises(TopicNotAllowed, match="topics= of the token admin ada"):
            check_allowed(caller(ADMIN), AlterGroupConfigs(group_id="billing-eu", **wrong))


# --- what a coordinator reads and writes for groups


@contextlib.contextmanager
def serving(path, allowed=ORDERS):
    """A service whose coordinator has these keys, on orders, salaries, dlq.orders and mine."""
    cluster = FakeCluster()
    cluster.allowed = allowed
    for topic in ("orders", "salaries", "dlq.orders", "mine"):
        cluster.add(topic, end=10)
    with contextlib.closing(Running(path, cluster)) as running:
        yield running


@contextlib.contextmanager
def served():
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "state.db") as running:
        yield running


def test_a_topic_that_the_key_does_not_allow_is_refused_at_joins():
    with served() as running:
        for fields in ({"topics": ("orders", "salaries")}, {"assign": {"salaries": (0,)}}):
            with pytest.raises(TopicNotAllowed, match=rf"Topic salaries .*{SOURCE_KEY} allows only orders\.\*"):
                running.join(**fields)
        running.join()


def test_a_pattern_gets_the_topics_that_the_coordinator_reads_alone():
    with served() as running:
        running.join(topic_pattern="orders|salaries", starting_offsets="earliest")
        assert {part.topic for part in running.next().partitions} == {"orders"}


def test_topics_that_a_pattern_does_not_get_are_named_once(caplog):
    with served() as running:
        running.join(topic_pattern="orders|salaries", starting_offsets="earliest")
        running.next()
    lines = [record.getMessage() for record in caplog.records if "topics are not read" in record.getMessage()]
    assert lines == [f"topics are not read: group=billing salaries. {SOURCE_KEY} allows orders.* alone."]


def test_a_member_from_before_the_key_is_refused_when_it_comes_back(tmp_path):
    path = tmp_path / "state.db"
    with serving(path, AllowedTopics()) as running:
        epoch = running.join(topics=("orders", "salaries")).member_epoch
    with serving(path) as running, pytest.raises(TopicNotAllowed, match="Topic salaries"):
        running.join(topics=("orders", "salaries"), member_epoch=epoch)


def test_the_coordinator_writes_dead_letters_to_allowed_topics_alone():
    with served() as running:
        running.join(configs={NAME: "dlq.orders"})
        alter = AlterGroupConfigs(group_id="billing", set={NAME: "mine"}, execute=True)
        for attempt in (
            lambda: running.join("m2", configs={NAME: "mine"}),
            lambda: running.service.handle(OpenSink(group_id="billing", configs={NAME: "mine"})),
            lambda: running.admin.handle(alter),
        ):
            with pytest.raises(TopicNotAllowed, match=rf"Topic mine may not be a dead letter topic: {DEAD_LETTER_KEY}"):
                attempt()


LIMITED = {NAME: "dlq.orders", SOURCES: "orders"}


def altered(running, **fields):
    alter = AlterGroupConfigs(group_id="billing", execute=True, **fields)
    return running.admin.handle(alter)


@contextlib.contextmanager
def shared():
    """A coordinator without keys: tokens alone differ."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "state.db", AllowedTopics()) as running:
        yield running


def test_a_member_reads_nothing_that_the_dead_letter_topic_may_not_get():
    with shared() as running:
        running.join(configs=LIMITED)
        for fields in ({"topics": ("salaries",)}, {"assign": {"salaries": (0,)}}, {"topic_pattern": "orders|sal.*"}):
            with pytest.raises(
                TopicNotAllowed, match=f"sal.*dead letter topic dlq.orders of share group billing: {SOURCES}"
            ):
                running.join("m2", **fields, configs={})
        running.join("m2", topic_pattern="orders", configs={})


def test_a_dead_letter_topic_is_refused_that_may_not_get_it_all():
    with shared() as running:
        running.join(topics=("orders", "salaries"))
        for attempt in (
            lambda: running.join("m2", configs=LIMITED),
            lambda: running.service.handle(OpenSink(group_id="billing", configs=LIMITED)),
            lambda: altered(running, set=LIMITED),
        ):
            with pytest.raises(TopicNotAllowed, match="Topic salaries may not be copied"):
                attempt()
        altered(running, set={NAME: "dlq.orders"})


def test_another_dead_letter_topic_has_no_limit_of_the_one_before():
    with shared() as running:
        running.join(configs=LIMITED)
        assert running.join("m2", topics=("salaries",), configs={NAME: "mine"}).configs == {NAME: "mine"}


def test_a_reset_gives_a_group_no_topic_that_is_not_allowed():
    with served() as running:
        running.join()
        reset = AlterOffsets(group_id="billing", topics={"salaries": ()}, execute=True, force=True)
        with pytest.raises(TopicNotAllowed, match="Topic salaries"):
            running.admin.handle(reset)


def test_dead_letters_of_a_stored_topic_that_is_not_allowed_are_held(caplog):
    with served() as running:
        running.join(starting_offsets="earliest")
        running.runtime.call("billing", storing({NAME: "mine"}))
        running.join(process="later", configs={}, starting_offsets="earliest")
        assert running.service.handle(OpenSink(group_id="billing")).dead_letter_topic == ""
        reject(running, 3, 3)
        assert dead_letter_worker(running).work() is PassResult.BLOCKED
        assert running.partitions()["orders", 0].archiving == 1
    assert f"Topic mine may not be a dead letter topic: {DEAD_LETTER_KEY}" in caplog.text


def test_records_of_a_topic_that_is_not_allowed_are_not_copied():
    assert passes_over_salaries("hold") == (PassResult.BLOCKED, 1)


def test_records_that_are_not_copied_are_given_up_if_so_configured():
    assert passes_over_salaries("archive") == (PassResult.DONE, 0)


def passes_over_salaries(on_failure):
    """The result of a pass over one rejected record of a topic that the group got before the key was set, and how many
    records wait afterwards. No original is read."""

    def read(self, backlog, is_up):
        assert not backlog.due
        return iter(())

    with tempfile.TemporaryDirectory() as folder, mock.patch.object(DeadLetterBuilder, "of", read):
        path = Path(folder) / "state.db"
        configs = {NAME: "dlq.orders", "errors.deadletterqueue.on.failure": on_failure}
        with serving(path, AllowedTopics()) as running:
            running.join(topics=("salaries",), configs=configs, starting_offsets="earliest")
            reject(running, 3, 3, topic="salaries")
        with serving(path) as running:
            return dead_letter_worker(running).work(), running.partitions()["salaries", 0].archiving
