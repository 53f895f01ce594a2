"""Actions on a running service: resets with the brokers' offsets, deletion, configs; rights and the audit log."""

import errno
import json
import logging
import os
import re
from datetime import datetime, timedelta, timezone

import pytest

from coordinator.client.connection import Connection
from coordinator.client.offset_resets import reset_of
from coordinator.config.secret_files import read_token
from coordinator.protocol.admin_messages import AlterGroupConfigs, AlterOffsets, DeleteGroup, ListGroups, ListOffsets
from coordinator.protocol.errors import (
    ConfigOutOfBounds,
    CoordinatorNotAvailable,
    DeadLetterTopicMissing,
    DiskFull,
    InvalidReset,
    InvalidToken,
    NotAllowed,
    OrderInUse,
    UnknownConfig,
    UnknownPartition,
    UnknownTopic,
    UnusableFile,
)
from coordinator.protocol.messages import DescribeGroup, Done, Heartbeat, LeaveGroup
from coordinator.protocol.rights import RIGHT_OF, Right, Tokens
from coordinator.protocol.wire import Endpoint, _requests
from coordinator.service.requests import audit
from coordinator.service.requests.audit import AUDIT
from coordinator.service.requests.requests import Requests
from coordinator.service.server.flight_server import FlightServer
from coordinator.service.stores.store import StoreOutcomeUnknown, StoreRefused
from sharegroup import offsets_from_file
from tests.support.fake_cluster import FakeCluster

GROUP = {"group_id": "billing"}
NOW = {**GROUP, "execute": True}


@pytest.fixture
def cluster():
    cluster = FakeCluster()
    cluster.add("orders", 2, end=100, start=10)
    return cluster


@pytest.fixture
def empty(running):
    """A group whose only member has completed nothing, and has left."""
    running.join(starting_offsets="earliest")
    running.next(max_records=1_000)
    running.ask(LeaveGroup)
    return running


def starts(running):
    return {(p.topic, p.partition): p.start_offset for p in running.admin.handle(ListOffsets(**GROUP)).partitions}


# --- resets


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"to": "earliest"}, (10, 10)),
        ({"to": "latest"}, (100, 100)),
        ({"to": "offset", "value": 40}, (40, 40)),
        ({"to": "offset", "value": 5}, (10, 10)),
        ({"to": "offset", "value": 900}, (100, 100)),
        ({"to": "shift", "value": 7}, (17, 17)),
        ({"to": "timestamp", "value": 1_000}, (30, 100)),
        ({"to": "offsets", "offsets": {"orders": {"1": 55}}}, (10, 55)),
        ({"to": "latest", "topics": {"orders": (0,)}}, (100, 10)),
        ({"to": "latest", "topics": {"orders": ()}}, (100, 100)),
    ],
)
def test_a_reset_sets_the_start_offsets_within_the_logs(empty, fields, expected):
    empty.cluster.timestamps = {("orders", 0): {1_000: 30}, ("orders", 1): {}}
    reply = empty.admin.handle(AlterOffsets(**NOW, **fields))
    assert reply.executed
    assert starts(empty) == {("orders", 0): expected[0], ("orders", 1): expected[1]}


def test_a_reset_without_execute_returns_all_changes_and_applies_none(empty):
    reply = empty.admin.handle(AlterOffsets(**GROUP, to="latest"))
    assert not reply.executed
    assert [(p.partition, p.before, p.after) for p in reply.partitions] == [(0, 10, 100), (1, 10, 100)]
    assert starts(empty) == {("orders", 0): 10, ("orders", 1): 10}


def test_a_reset_may_bring_a_topic_to_the_group(empty):
    empty.cluster.add("payments", end=9)
    reply = empty.admin.handle(AlterOffsets(**NOW, to="latest", topics={"payments": ()}))
    assert [(p.topic, p.before, p.after) for p in reply.partitions] == [("payments", None, 9)]
    assert starts(empty)["payments", 0] == 9


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"topics": {"none": ()}}, UnknownTopic, "none"),
        ({"topics": {"orders": (7,)}}, UnknownPartition, "no partition 7"),
        ({"to": "newest"}, InvalidReset, "no such reset"),
        ({"to": "offsets"}, InvalidReset, "there are none"),
        ({"to": "offsets", "offsets": {"orders": {}}}, InvalidReset, "a topic has none"),
        ({"to": "offsets", "offsets": {"orders": {"00": 7}}}, InvalidReset, "no partition '00'"),
        ({"to": "shift", "value": 1, "topics": {"payments": ()}}, InvalidReset, "no start offset to shift"),
    ],
)
def test_an_impossible_reset_is_refused_by_name(empty, fields, error, text):
    empty.cluster.add("payments", end=9)
    with pytest.raises(error, match=text):
        empty.admin.handle(AlterOffsets(**NOW, **fields))


# --- deletion


def test_a_deleted_group_leaves_no_records_and_may_come_again(empty):
    empty.admin.handle(DeleteGroup(**NOW))
    assert list(empty.store.load("billing")) == []
    assert empty.admin.handle(ListGroups()).groups == ()
    assert empty.join(process="another", starting_offsets="latest").created
    assert starts(empty) == {("orders", 0): 100, ("orders", 1): 100}


# --- configs, members, records


def test_configs_are_checked_before_they_are_set_or_unset(empty):
    limit = "share.delivery.count.limit"
    assert empty.admin.handle(AlterGroupConfigs(**GROUP, set={limit: "7"})).effects[0].after == "7"
    assert empty.service.handle(DescribeGroup(**GROUP)).configs == {}
    empty.admin.handle(AlterGroupConfigs(**NOW, set={limit: "7"}))
    assert empty.service.handle(DescribeGroup(**GROUP)).configs == {limit: "7"}
    (effect,) = empty.admin.handle(AlterGroupConfigs(**NOW, unset=(limit,))).effects
    assert (effect.what, effect.before, effect.after) == (limit, "7", "")
    for wrong, error in (({limit: "0"}, ConfigOutOfBounds), ({"share.nonsense": "1"}, UnknownConfig)):
        with pytest.raises(error):
            empty.admin.handle(AlterGroupConfigs(**NOW, set=wrong))
    for key, says in (("share.coordinator.idle.timeout.ms", "a key of the coordinator"), ("maxOffsets", "of a query")):
        with pytest.raises(UnknownConfig, match=says):
            empty.admin.handle(AlterGroupConfigs(**GROUP, set={key: "5"}))
    with pytest.raises(UnknownConfig, match=r"nearest known one is share\.delivery\.count\.limit"):
        empty.admin.handle(AlterGroupConfigs(**NOW, unset=("share.delivery.count.limt",)))
    with pytest.raises(DeadLetterTopicMissing):
        empty.admin.handle(AlterGroupConfigs(**NOW, set={"errors.deadletterqueue.topic.name": "dlq"}))


@pytest.mark.parametrize("given", [GROUP, NOW], ids=["dry run", "execution"])
def test_a_dry_run_is_refused_as_its_execution_would_be(running, given):
    running.join(starting_offsets="earliest")
    running.next(max_records=1_000)
    with pytest.raises(OrderInUse):
        running.admin.handle(AlterGroupConfigs(**given, set={"share.order": "partition"}))


# --- what a person writes


def test_a_reset_names_a_time_an_offset_a_shift_or_a_file(tmp_path):
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    assert reset_of(at) == ("timestamp", 1_767_225_600_000, {})
    assert reset_of(timedelta(hours=1))[0] == "timestamp"
    assert reset_of(17) == ("offset", 17, {})
    assert reset_of("earliest", shift_by=-3) == ("shift", -3, {})
    (tmp_path / "offsets.csv").write_text("orders,0,17\norders,1,4\n")
    assert reset_of(offsets_from_file(str(tmp_path / "offsets.csv")))[2] == {"orders": {"0": 17, "1": 4}}


@pytest.mark.parametrize("to", ["newest", -1, timedelta(seconds=-1), datetime(2026, 1, 1), {}, {"orders": {}}])
def test_an_unparsable_reset_is_refused_by_name(to):
    with pytest.raises(InvalidReset):
        reset_of(to)


@pytest.mark.parametrize(("text", "reason"), [("", "no offsets"), ("orders,0\n", "line 1"), ("a,b,c\n", "line 1")])
def test_an_unreadable_file_of_offsets_is_refused_by_line(tmp_path, text, reason):
    (tmp_path / "offsets.csv").write_text(text)
    with pytest.raises(InvalidReset, match=reason):
        offsets_from_file(str(tmp_path / "offsets.csv"))
    with pytest.raises(InvalidReset, match="No such file"):
        offsets_from_file(str(tmp_path / "none.csv"))


# --- rights and the audit log


TOKENS = "# of billing\nadmin alice:alices-secret-token\nread:a-token-for-looks\nmember:a-token-for-queries\n"


@pytest.fixture
def server(empty):
    def handle(request):
        return empty.admin.handle(request) if type(request) in empty.admin.handlers else Done()

    server = FlightServer(Requests().begin(handle), Tokens.parse(TOKENS, "a test"))
    yield server
    server.shutdown()


def called(server, token, request):
    connection = Connection(Endpoint(host="127.0.0.1", port=server.port, token=token, pid=0))
    try:
        return connection.call(request)
    finally:
        connection.close()


BEAT = Heartbeat(**GROUP, member_id="m1", member_epoch=1)


def test_every_request_has_a_right_or_needs_none():
    assert set(_requests) - set(RIGHT_OF) == {"Health", "WhoAmI"}
    assert {RIGHT_OF[name] for name in ("AlterOffsets", "DecideRecords")} == {Right.ADMIN}


def test_an_action_without_the_right_is_in_the_audit_log(server, caplog):
    caplog.set_level(logging.INFO, AUDIT)
    for request in (DeleteGroup(**NOW), DeleteGroup(**NOW), AlterOffsets(**NOW), ListGroups(), BEAT):
        token = "a-token-for-queries" if request != BEAT else "a-token-for-looks"
        with pytest.raises(NotAllowed):
            called(server, token, request)
    deleted, altered = (record.getMessage() for record in caplog.records if record.name == AUDIT)
    assert re.match(r"refused: who=member from=ipv4:127\.0\.0\.1:\d+ request=DeleteGroup NotAllowed: ", deleted)
    assert "request=AlterOffsets " in altered, "of one kind a line a minute, and none of looks and members"


def test_an_action_of_unknown_outcome_is_not_audited_as_refused(server, empty, caplog):
    caplog.set_level(logging.INFO, AUDIT)
    errors = [StoreOutcomeUnknown("no answer of the broker"), StoreRefused("no room")]

    def fails(appends, now_ms):
        raise errors.pop(0)

    empty.store.append, append = fails, empty.store.append
    for _ in range(2):
        with pytest.raises(CoordinatorNotAvailable):
            called(server, "alices-secret-token", DeleteGroup(**NOW))
    empty.store.append = append
    _, unknown, _, refused = (record.getMessage() for record in caplog.records if record.name == AUDIT)
    assert unknown.startswith("unknown outcome: who=admin alice") and "no answer of the broker" in unknown
    assert refused.startswith("refused: who=admin alice")


def test_the_audit_log_has_a_rotated_file_of_its_own(server, caplog, tmp_path, monkeypatch):
    monkeypatch.setattr(audit, "MOST_BYTES", 600)
    path = tmp_path / "audit.log"
    end = audit.audit_to(str(path))
    try:
        for to in ("earliest", "latest", "earliest"):
            called(server, "alices-secret-token", AlterOffsets(**NOW, to=to))
    finally:
        end()
    files = sorted(tmp_path.glob("audit.log*"), reverse=True)
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert len(files) > 1 and {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert [line["message"].partition(":")[0] for line in lines] == ["begun", "done"] * 3
    assert [line["message"].partition(" changed=")[2] for line in lines[1::2]] == [
        '[["orders-0","10","10"],["orders-1","10","10"]]',
        '[["orders-0","10","100"],["orders-1","10","100"]]',
        '[["orders-0","100","10"],["orders-1","100","10"]]',
    ]
    assert all(line["time"] and ": who=admin alice from=" in line["message"] for line in lines)
    assert not [record for record in caplog.records if record.name == AUDIT], "no line among others"
    with pytest.raises(UnusableFile, match=r"audit\.file"):
        audit.audit_to(str(tmp_path / "none" / "audit.log"))


def test_an_action_whose_beginning_can_not_be_written_is_not_carried_out(server, empty, caplog, small_disk):
    """On a full disk: the administrator and the coordinator's log are told, and later lines are whole."""
    path = small_disk / "audit.log"
    end = audit.audit_to(str(path))
    try:
        before, space = starts(empty), os.statvfs(small_disk)
        path.write_bytes(b"x" * 4_000 + b"\n")  # the page has room for a part of a line
        (small_disk / "fill").write_bytes(b"x" * (space.f_bavail - 1) * space.f_frsize)
        with pytest.raises(DiskFull, match=r"audit\.log can't be written, because its disk is full"):
            called(server, "alices-secret-token", AlterOffsets(**NOW, to="latest"))
        assert starts(empty) == before
        (small_disk / "fill").unlink()
        assert "an action of admin alice was refused: the audit log can't record its beginning" in caplog.text
        called(server, "alices-secret-token", AlterOffsets(**NOW, to="latest"))
    finally:
        end()
    lines = [json.loads(line)["message"] for line in path.read_text().splitlines()[1:]]
    assert [line.partition(":")[0] for line in lines] == ["begun", "done"]


def test_an_end_that_the_audit_log_lacks_is_in_the_log(server, empty, caplog, tmp_path, monkeypatch):
    end = audit.audit_to(str(tmp_path / "audit.log"))
    handle = empty.admin.handle

    def fails(path):
        raise OSError(errno.ENOSPC, "No space left on device")

    def done_on_a_full_disk(request):
        monkeypatch.setattr(os.path, "getsize", fails)
        return handle(request)

    monkeypatch.setattr(empty.admin, "handle", done_on_a_full_disk)
    try:
        assert called(server, "alices-secret-token", AlterOffsets(**NOW, to="latest")).executed
    finally:
        monkeypatch.undo()
        end()
    (line,) = [record.getMessage() for record in caplog.records if "the audit log lacks a line" in record.getMessage()]
    assert "disk is full" in line and "The line: done: who=admin alice" in line


def test_a_client_takes_the_token_with_the_needed_right(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(TOKENS)
    path.chmod(0o600)
    assert read_token(str(path), {}) == "a-token-for-queries"
    assert read_token(str(path), {}, (Right.ADMIN, Right.READ)) == "alices-secret-token"
    path.write_text("read:a-token-for-looks")
    assert read_token(str(path), {}, (Right.ADMIN, Right.READ)) == "a-token-for-looks"
    with pytest.raises(InvalidToken, match="right `member`"):
        read_token(str(path), {})
    path.write_text("one-token-for-everything")
    assert read_token(str(path), {}, (Right.ADMIN,)) == read_token(str(path), {}) == "one-token-for-everything"
