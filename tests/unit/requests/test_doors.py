"""Whichever door a request comes by, the same is checked, counted and written down of it."""

import contextlib
import logging
import re

import msgspec
import pytest

from coordinator.config.group_keys import DEAD_LETTER_SOURCES
from coordinator.config.group_keys import DEAD_LETTER_TOPIC as DLQ
from coordinator.config.resolved import ServerConfig
from coordinator.protocol.admin_messages import (
    Altered,
    AlterOffsets,
    DeleteGroup,
    GroupListing,
    GroupsListed,
    ListGroups,
    OffsetChanges,
)
from coordinator.protocol.errors import (
    CoordinatorOverloaded,
    CoordinatorVersionMismatch,
    DataLoss,
    GroupNotAllowed,
    InternalError,
    InvalidRequest,
    NotAllowed,
    NotCoordinator,
    RequestTooLarge,
    TopicNotAllowed,
)
from coordinator.protocol.format_versions import PROTOCOL
from coordinator.protocol.messages import DescribeGroup, Done, Heartbeat, JoinGroup, LeaveGroup
from coordinator.protocol.wire import Health, StepDown
from coordinator.service.requests.audit import AUDIT
from coordinator.service.requests.requests import Requests
from tests.support.doors import ADMIN, BOUND, KINDS, MEMBER, door

WHO = {"group_id": "billing", "member_id": "m1", "member_epoch": 1}
BEAT, LOOK = Heartbeat(**WHO), DescribeGroup(group_id="billing")
DELETE = DeleteGroup(group_id="billing", execute=True)
MOST_BYTES = 1 << 16


class Behind:
    """The requests behind doors. ``handle`` is a test's own; ``handled``: what came there; ``passed_on``: what went to
    the owner of the group; ``left``: the reasons to leave."""

    def __init__(self, *kinds):
        self.handle, self.handled, self.passed_on, self.left = lambda request: Done(), [], [], []
        limits = ServerConfig.parse({"queued.max.requests": "4", "socket.request.max.bytes": str(MOST_BYTES)})
        requests = Requests(limits=limits, step_down=self.left.append).begin(self._handle, self)
        self.doors = {kind: door(kind, requests, self._handle) for kind in kinds}

    def answered(self, name, body, head, asker, here):
        self.passed_on.append(name)
        return here()

    def close(self):
        for each in self.doors.values():
            each.close()

    def _handle(self, request):
        self.handled.append(request)
        return self.handle(request)


@pytest.fixture(params=KINDS)
def behind(request):
    with contextlib.closing(Behind(request.param)) as behind:
        yield behind


@pytest.fixture
def at(behind):
    return next(iter(behind.doors.values()))


def audited(caplog):
    return [record.getMessage() for record in caplog.records if record.name == AUDIT]


def test_a_reply_and_a_named_error_come_back(at, behind):
    assert at.ask(BEAT) == Done()
    behind.handle = lambda request: 1 / 0
    with pytest.raises(InternalError, match="DescribeGroup"):
        at.ask(LOOK)

    def lost(request):
        raise DataLoss(group_id=request.group_id, count=3, ranges="orders-0 [1..3]")

    behind.handle = lost
    with pytest.raises(DataLoss, match=r"Share group billing lost 3 record") as raised:
        at.ask(LeaveGroup(**WHO))
    assert raised.value.fields == {"group_id": "billing", "count": 3, "ranges": "orders-0 [1..3]"}


@pytest.mark.parametrize(("given", "shown"), [(str(PROTOCOL + 1),) * 2, ("", "of no version"), ("x" * 30, "x" * 20)])
def test_another_protocol_version_is_refused(at, behind, given, shown):
    with pytest.raises(
        CoordinatorVersionMismatch, match=rf"speaks protocol {PROTOCOL} .* this program protocol {shown}"
    ):
        at.ask(BEAT, protocol=given)
    assert not behind.handled


@pytest.mark.parametrize(
    ("token", "allowed", "refused"), [(MEMBER, (BEAT, LOOK), (DELETE,)), (ADMIN, (DELETE, LOOK, ListGroups()), (BEAT,))]
)
def test_a_right_allows_its_own_requests_alone(at, behind, token, allowed, refused):
    for request in allowed:
        at.ask(request, token)
    assert len(behind.handled) == len(allowed)
    for request in refused:
        with pytest.raises(NotAllowed, match=f"{type(request).__name__} needs a token with the right"):
            at.ask(request, token)
        with pytest.raises(NotAllowed):
            at.send(type(request).__name__, b"\xff", token)  # the right comes before anything is decoded
    assert len(behind.handled) == len(allowed)


def test_a_request_that_is_too_large_is_refused_before_it_is_decoded(at, behind):
    with pytest.raises(RequestTooLarge, match=f"{MOST_BYTES} at most"):
        at.send("Heartbeat", bytes(MOST_BYTES + 1))
    assert not behind.handled


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("Heartbeat", b""),
        ("Heartbeat", b"{"),
        ("Heartbeat", b"\xff\x00\xfe"),
        ("Heartbeat", b"[]"),
        ("Heartbeat", b'{"type": "Heartbeat", "group_id": 7}'),
        ("Heartbeat", b'{"type": "LeaveGroup", "group_id": "g", "member_id": "m", "member_epoch": 1}'),
        ("Heartbeat", b"[" * 60_000),
        ("StageOutcomes", b"{}"),
        ("AcknowledgeRows", b"\xff\xff\xff\xff"),
        ("Done", b'{"type": "Done"}'),
        ("", b""),
        ("__class__", b"{}"),
    ],
)
def test_an_unknown_or_malformed_request_is_refused(at, behind, name, body):
    with pytest.raises(InvalidRequest):
        at.send(name, body)
    assert not behind.handled
    assert at.ask(BEAT) == Done()


def test_a_token_s_allow_lists_hold_wherever_the_owner_is(at, behind, caplog):
    caplog.set_level(logging.INFO, AUDIT)
    join = JoinGroup(group_id="billing-eu", member_id="m", process_id="p", topics=("orders-eu",), configs={DLQ: "dlq"})
    at.ask(join, BOUND)
    (joined,) = behind.handled
    assert joined == msgspec.structs.replace(join, configs={DLQ: "dlq", DEAD_LETTER_SOURCES: "orders-.*"})
    for refused in (DescribeGroup(group_id="payroll"), AlterOffsets(group_id="payroll", execute=True)):
        with pytest.raises(GroupNotAllowed, match="payroll"):
            at.ask(refused, BOUND)
    with pytest.raises(TopicNotAllowed, match="salaries"):
        at.ask(msgspec.structs.replace(join, topics=("salaries",)), BOUND)
    assert len(behind.handled) == 1
    (line,) = audited(caplog)
    assert re.match(r"refused: who=all rights lists from=.* request=AlterOffsets GroupNotAllowed: ", line)
    both = tuple(GroupListing(group_id=group_id, state="EMPTY") for group_id in ("billing-eu", "payroll"))
    behind.handle = lambda request: GroupsListed(groups=both)
    assert at.ask(ListGroups(), BOUND).groups == both[:1]


def test_too_many_requests_at_once_are_refused_but_heartbeats(at, behind):
    """Each request is sent while those before it are handled."""
    most, refused = 2 if at.peer == "host two" else 4, []

    def handle(asked):
        if len(behind.handled) <= most:
            try:
                at.ask(LOOK)
            except CoordinatorOverloaded as error:
                refused.append(str(error))
                at.ask(BEAT)
                assert at.ask(Health()).ready
        return Done()

    behind.handle = handle
    at.ask(LOOK)
    assert [type(each) for each in behind.handled] == [DescribeGroup] * most + [Heartbeat]
    assert len(refused) == 1
    assert f"working on {most} requests" in refused[0]
    behind.handle = lambda request: Done()
    assert at.ask(LOOK) == Done()


def test_the_audit_log_has_the_beginning_and_the_end_of_an_action(at, behind, caplog):
    caplog.set_level(logging.INFO, AUDIT)
    behind.handle = lambda request: OffsetChanges(executed=False)
    at.ask(AlterOffsets(group_id="billing", to="latest"), ADMIN)
    assert not audited(caplog), "a dry run changes nothing"
    behind.handle = lambda request: Altered(executed=True)
    at.ask(DeleteGroup(group_id="billing", execute=True, by="bob", name="bob", reason="two\nlines"), ADMIN)
    begun, done = audited(caplog)
    assert begun == "begun" + done.removeprefix("done").partition(" changed=")[0]
    assert begun.startswith(f"begun: who=admin{',read' * (at.peer == 'host two')} alice from={at.peer}")
    assert "\n" not in done
    asked = behind.handled[-1]
    assert (asked.name, asked.by.partition(" from ")[2][: len(at.peer)]) == ("alice", at.peer)


@pytest.mark.parametrize(
    ("error", "what"),
    [(InvalidRequest(what="no"), "refused"), (NotCoordinator(what="share group billing"), "not here")],
)
def test_the_audit_log_says_why_an_action_was_not_carried_out(at, behind, caplog, error, what):
    caplog.set_level(logging.INFO, AUDIT)

    def handle(request):
        raise error

    behind.handle = handle
    with pytest.raises(type(error)):
        at.ask(DELETE, ADMIN)
    assert [line.partition(":")[0] for line in audited(caplog)] == ["begun", what]
    assert type(error).__name__ in audited(caplog)[1]


# --- this host and others


def test_a_request_goes_to_the_owner_once():
    """One of another host has come to the owner, and is passed on no more."""
    with contextlib.closing(Behind(*KINDS)) as behind:
        for kind, each in behind.doors.items():
            each.ask(BEAT)
            assert behind.passed_on == ([] if kind == "topics" else ["Heartbeat"])
            behind.passed_on.clear()
        assert behind.handled == [BEAT] * len(KINDS)


def test_this_host_alone_ends_its_coordinator():
    with contextlib.closing(Behind(*KINDS)) as behind:
        for kind, each in behind.doors.items():
            each.ask(StepDown(reason=kind), ADMIN)
        assert behind.left == ["socket", "tls"]
        assert not behind.passed_on


def test_other_hosts_requests_leave_room_for_this_hosts():
    """Those of each right have a room of their own. Each request is sent while those before it are handled."""
    asks = [("topics", MEMBER)] * 3 + [("topics", ADMIN)] * 3 + [("socket", MEMBER)] * 5
    refused = []

    def handle(request):
        while asks:
            kind, token = asks.pop(0)
            try:
                behind.doors[kind].ask(LOOK, token)
            except CoordinatorOverloaded:
                refused.append((kind, token))
        return Done()

    with contextlib.closing(Behind("socket", "topics")) as behind:
        behind.handle = handle
        handle(None)
    assert refused == [("topics", MEMBER), ("topics", ADMIN), ("socket", MEMBER)]
