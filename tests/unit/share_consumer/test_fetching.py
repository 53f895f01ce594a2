"""How a ShareConsumer acquires and reads; the coordinator and the brokers are stubs."""

from __future__ import annotations

import gc
import math
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from coordinator.client.client import CoordinatorClient
from coordinator.client.session import RequestOf
from coordinator.protocol.errors import FencedMemberEpoch, GroupTakenOver, ShareGroupError
from coordinator.protocol.messages import (
    AckBatch,
    Acknowledge,
    AcknowledgeReply,
    AcquiredReply,
    AcquireRecords,
    LeaveGroup,
    MemberRequest,
    PartitionPlan,
)
from coordinator.protocol.values import AcknowledgeType, AcquiredRange
from share_consumer import fetching, membership, silent_partitions
from share_consumer.acknowledgements import acknowledged
from share_consumer.ahead import Ahead
from share_consumer.fetching import Fetcher, Wanted
from share_consumer.implicit import ImplicitInFlight
from share_consumer.membership import Membership
from share_consumer.options import ConsumerOptions
from share_consumer.reading import NotRead
from share_consumer.sending import Sending
from share_source.executor.range_reader import ReadTask
from sharegroup import ShareConsumer
from tests.support.share_members import CONFIG, run_of
from tests.support.waiting import wait_until

ORDERS = ("orders",)
WANTED = Wanted(ORDERS, 500)
OPTIONS = ConsumerOptions.parse(CONFIG)
FENCED = FencedMemberEpoch(member_id="m", group_id="billing", holder="h", current_epoch=2, member_epoch=1)


class StubSession:
    """A session that notes what it is asked, in the list of all sessions."""

    isolation_level = "read_uncommitted"

    def __init__(self, client: Any, group: str, member: str, *, topics: tuple[str, ...], **_: Any) -> None:
        if client.join_error is not None:
            raise client.join_error
        self.fenced, self.member_epoch, self.rejoins = False, len(client.sessions), 0
        self.lives_until_s, self.lock_s = math.inf, 0.0
        self.client, self.topics = client, topics
        self.joined = SimpleNamespace(missing=tuple(topic for topic in topics if topic in client.missing))
        client.sessions.append(self)

    def call(self, request_of: RequestOf[Any]) -> Any:
        request = request_of({"group_id": "billing", "member_id": "m", "member_epoch": self.member_epoch})
        if self is not self.client.sessions[-1] or self.client.is_fenced:
            self.fenced, self.client.is_fenced = True, False
            raise FENCED
        self.client.calls.append((request, self.topics))
        if isinstance(request, AcquireRecords):
            self.client.when_asked()
        return AcknowledgeReply() if isinstance(request, Acknowledge) else self.client.acquired

    def close(self, *, leave: bool = False) -> bool:
        if leave:
            leave_group = LeaveGroup(group_id="billing", member_id="m", member_epoch=self.member_epoch)
            self.client.calls.append((leave_group, self.topics))
        return True


class StubClient:
    def __init__(self) -> None:
        self.sessions: list[StubSession] = []
        self.calls: list[tuple[MemberRequest[Any], tuple[str, ...]]] = []
        self.join_error: ShareGroupError | None = None
        self.is_fenced = False
        self.missing: set[str] = set()
        self.when_asked: Callable[[], object] = lambda: None
        plan = PartitionPlan(topic="orders", topic_id="T", partition=0, ranges=(AcquiredRange(0, 4, 1),))
        self.acquired = AcquiredReply(plan_id="1", partitions=(plan,), lock_timeout_ms=30_000)

    def end_retries(self, in_s: float) -> None: ...

    def close(self) -> None: ...

    def asked(self) -> list[str]:
        return [type(request).__name__ for request, _ in self.calls]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> StubClient:
    client = StubClient()
    monkeypatch.setattr(CoordinatorClient, "connect", lambda *_, **__: client)
    monkeypatch.setattr(membership, "MemberSession", StubSession)
    monkeypatch.setattr(fetching, "read_records", lambda *_, **__: NotRead({}, {}))
    return client


def outcomes() -> Sending:
    in_flight = ImplicitInFlight()
    in_flight.add([run_of(7, 1)])
    in_flight.hand_out(1)
    in_flight.accept_all()
    return in_flight.take()


def refuse(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def read(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(fetching, "read_records", read)


@pytest.mark.parametrize("error", [GroupTakenOver(group_id="g", owner="o"), LookupError("error_cb"), SystemExit(1)])
def test_any_error_in_a_read_gives_the_records_back(client, monkeypatch, error) -> None:
    refuse(monkeypatch, error)
    told: list[Any] = []
    fetcher = Fetcher(OPTIONS, Membership(OPTIONS), Ahead(), lambda _: None)
    fetched = fetcher.fetch(WANTED, outcomes(), told.append)
    assert fetched.error is error and fetched.acquired is None and told == [{}]
    assert client.asked() == ["AcquireRecords", "Acknowledge"]
    assert client.calls[-1][0].unread, "no try is counted"
    assert not fetcher._ahead.renewals()


@pytest.mark.parametrize(("told", "read_at"), [("read_committed", "read_committed"), ("", "read_uncommitted")])
def test_records_are_read_at_the_level_of_their_acquisition(client, monkeypatch, told, read_at) -> None:
    """The group's level may have changed since the member's last heartbeat; a coordinator of before tells none."""
    levels: list[str] = []

    def read(task: ReadTask, *_: object, **__: object) -> NotRead:
        levels.append(task.isolation_level)
        return NotRead({}, {})

    monkeypatch.setattr(fetching, "read_records", read)
    client.acquired = msgspec.structs.replace(client.acquired, isolation_level=told)
    Fetcher(OPTIONS, Membership(OPTIONS), Ahead(), lambda _: None).fetch(WANTED, Sending(), lambda _: None)
    assert levels == [read_at]


def test_after_a_failed_read_the_next_acquisition_waits(client, monkeypatch) -> None:
    refuse(monkeypatch, LookupError("READ is denied"))
    fetcher = Fetcher(OPTIONS, Membership(OPTIONS), Ahead(), lambda _: None)
    fetcher.fetch(WANTED, Sending(), lambda _: None)
    monkeypatch.setattr(fetcher, "_pause_s", 3600.0)
    told = threading.Event()
    waiting = threading.Thread(target=fetcher.fetch, args=(WANTED, outcomes(), lambda _: told.set()))
    waiting.start()
    assert told.wait(60), "outcomes do not wait"
    assert client.asked() == ["AcquireRecords", "Acknowledge", "Acknowledge"]
    fetcher.close()
    waiting.join(60)
    assert client.asked() == ["AcquireRecords", "Acknowledge", "Acknowledge"]


def test_the_pause_doubles_and_ends_with_a_read(client, monkeypatch) -> None:
    fetcher = Fetcher(OPTIONS, Membership(OPTIONS), Ahead(), lambda _: None)
    monkeypatch.setattr(fetcher._closed, "wait", lambda _: False)
    refuse(monkeypatch, LookupError("READ is denied"))
    pauses = []
    for _ in range(7):
        fetcher.fetch(WANTED, Sending(), lambda _: None)
        pauses.append(fetcher._pause_s)
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    monkeypatch.setattr(fetching, "read_records", lambda *_, **__: NotRead({}, {}))
    fetcher.fetch(WANTED, Sending(), lambda _: None)
    assert fetcher._pause_s == 0


def test_outcomes_are_sent_although_the_new_subscription_is_refused(client) -> None:
    fetcher = Fetcher(OPTIONS, Membership(OPTIONS), Ahead(), lambda _: None)
    fetcher.fetch(WANTED, Sending(), lambda _: None)
    client.join_error = GroupTakenOver(group_id="g", owner="o")
    told: list[Any] = []
    fetched = fetcher.fetch(Wanted(("other",), 500), outcomes(), told.append)
    assert fetched.error is client.join_error and told == [{}]
    assert client.asked()[-1] == "Acknowledge" and client.calls[-1][1] == ORDERS


def test_an_outcome_that_a_join_overtakes_is_sent_again(client) -> None:
    member = Membership(OPTIONS)
    old = member.session(ORDERS)
    new = member.session(("other",))
    member._session = old  # type: ignore[assignment]  # as a request sees it that began before

    def late(request_of: RequestOf[Any]) -> Any:
        member._session = new
        raise FENCED

    old.call = late  # type: ignore[method-assign]
    member._topics = ("other",)
    member.call(lambda who: Acknowledge(**who, partitions=()))
    ((request, topics),) = client.calls
    assert isinstance(request, Acknowledge) and topics == ("other",)
    assert request.member_epoch == new.member_epoch > old.member_epoch
    assert len(client.sessions) == 2


@pytest.mark.parametrize(
    ("subscriptions", "lines"),
    [
        ([("ordrs",)], ["ordrs"]),
        ([("orders",)], []),
        ([("ordrs", "orders")], ["ordrs"]),
        ([("ordrs",), ("ordrs", "paymets"), ("orders",), ("ordrs",)], ["ordrs", "paymets"]),
    ],
)
def test_a_misspelt_topic_is_logged_once(client, caplog, subscriptions, lines) -> None:
    client.missing = {"ordrs", "paymets"}
    member = Membership(OPTIONS)
    for topics in subscriptions:
        member.session(topics)
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [
        f"topic {name}, to which this ShareConsumer subscribes, does not exist" in line
        for name, line in zip(lines, told, strict=True)
    ] == [True] * len(lines)


@pytest.mark.parametrize("request_type", [Acknowledge, AcquireRecords])
def test_a_member_that_a_lost_join_fenced_joins_again(client, request_type) -> None:
    member = Membership(OPTIONS)
    fetcher = Fetcher(OPTIONS, member, Ahead(), lambda _: None)
    member.session(ORDERS)
    client.is_fenced = True
    if request_type is Acknowledge:
        member.call(lambda who: Acknowledge(**who, partitions=()))
    else:
        assert fetcher.fetch(WANTED, Sending(), lambda _: None).error is None
    assert len(client.sessions) == 2 and client.asked()[0] == request_type.__name__
    wait_until(lambda: member.session(ORDERS) is client.sessions[-1], what="the new session stays")


def test_close_gives_back_records_of_an_acquisition_in_flight(client, monkeypatch) -> None:
    """The answer comes while the consumer leaves."""
    monkeypatch.setattr(fetching, "LAST_ANSWER_S", 60.0)
    consumer = ShareConsumer(CONFIG)
    consumer.subscribe(["orders"])
    asked, leaving = threading.Event(), threading.Event()
    client.when_asked = lambda: (asked.set(), leaving.wait(60))
    consumer.poll(0)
    assert asked.wait(60)
    wait = consumer._supply._fetcher.wait_for_answer

    def waits(seconds: float) -> None:
        leaving.set()
        wait(seconds)

    consumer._supply._fetcher.wait_for_answer = waits  # type: ignore[method-assign]
    consumer.close()
    assert client.asked() == ["AcquireRecords", "Acknowledge", "LeaveGroup"]
    assert client.calls[1][0].unread, "no try is counted"


def test_unsubscribe_leaves_the_group_and_a_poll_joins_it_again(client) -> None:
    consumer = ShareConsumer(CONFIG)
    consumer.subscribe(["orders"])
    consumer.poll(0)
    wait_until(client.asked, what="the consumer has joined")
    consumer.unsubscribe()
    consumer.commit_sync()
    wait_until(lambda: "LeaveGroup" in client.asked(), what="the consumer leaves")
    assert client.asked() == ["AcquireRecords", "Acknowledge", "LeaveGroup"]
    wait_until(lambda: consumer._membership.joined is None, what="it has left")
    consumer.subscribe(["orders"])
    consumer.commit_sync()
    assert consumer._membership.joined is None, "the next poll joins"
    consumer.poll(0)
    wait_until(lambda: client.asked()[3:] == ["AcquireRecords"], what="it asks again")
    assert len(client.sessions) == 2
    consumer.commit_sync()
    consumer._supply._worker.submit(lambda: None).result(60)
    assert "LeaveGroup" not in client.asked()[3:], "a consumer with a subscription stays"
    consumer.close()


def test_an_outcome_after_the_leaving_is_of_a_lock_that_ended(client) -> None:
    member = Membership(OPTIONS)
    member.session(())
    member.leave()
    assert acknowledged(member, outcomes()) == {("orders", 0): "INVALID_RECORD_STATE"}


def drop_a_consumer_with_records() -> None:
    consumer = ShareConsumer(CONFIG)
    consumer.subscribe(["orders"])
    consumer.poll(0)
    wait_until(lambda: consumer._supply.has_come, what="the records are read")


def test_a_dropped_consumer_gives_back_records_that_no_poll_returned(client) -> None:
    drop_a_consumer_with_records()
    gc.collect()
    wait_until(lambda: "LeaveGroup" in client.asked(), what="the consumer leaves")
    assert client.asked() == ["AcquireRecords", "Acknowledge", "LeaveGroup"]
    assert client.calls[1][0].unread, "no try is counted"


def test_a_closed_consumer_acquires_nothing_more_and_sends_its_outcomes(client) -> None:
    fetcher = Fetcher(OPTIONS, Membership(OPTIONS), Ahead(), lambda _: None)
    fetcher.close()
    told: list[Any] = []
    assert fetcher.fetch(WANTED, outcomes(), told.append).acquired is None
    assert client.asked() == ["Acknowledge"] and told == [{}]


def test_records_of_a_silent_broker_are_given_back_and_left_out(client, monkeypatch) -> None:
    monkeypatch.setattr(silent_partitions, "PAUSE_S", 3_600.0)
    monkeypatch.setattr(fetching, "read_records", lambda *_, **__: NotRead({}, {("orders", 0): [(2, 4)]}))
    consumer = ShareConsumer(CONFIG)
    consumer.subscribe(["orders"])
    assert not consumer.poll(0)
    wait_until(lambda: consumer._supply.has_come, what="the records are read")
    assert consumer._supply._asked.answer.result().records == 2, "no question ahead counts the others"  # type: ignore
    client.acquired = AcquiredReply()
    assert not consumer.poll(0)
    wait_until(lambda: client.asked().count("AcquireRecords") > 1, what="the consumer asks again")
    (given_back,) = [request for request, _ in client.calls if isinstance(request, Acknowledge)]
    ((batch,),) = [part.batches for part in given_back.partitions]
    assert (batch.first, batch.last, batch.types) == (2, 4, (int(AcknowledgeType.RELEASE),)) and given_back.unread
    asked = [request.without for request, _ in client.calls if isinstance(request, AcquireRecords)]
    assert asked[:2] == [(), (("T", 0),)]
    consumer.close()


def test_records_that_the_log_lost_are_given_back_at_no_try(client, monkeypatch) -> None:
    monkeypatch.setattr(fetching, "read_records", lambda *_, **__: NotRead({("orders", 0): [(0, 2)]}, {}))
    client.when_asked = lambda: setattr(client, "acquired", AcquiredReply()) if len(client.calls) > 1 else None
    consumer = ShareConsumer(CONFIG)
    consumer.subscribe(["orders"])
    assert not consumer.poll(0)
    wait_until(lambda: consumer._supply.has_come, what="the records are read")
    assert not consumer.poll(0)
    wait_until(lambda: "Acknowledge" in client.asked(), what="they are given back")
    (given_back,) = [request for request, _ in client.calls if isinstance(request, Acknowledge)]
    ((batch,),) = [part.batches for part in given_back.partitions]
    assert (batch.first, batch.last, batch.types) == (0, 2, (int(AcknowledgeType.RELEASE),)) and given_back.unread

    def outcomes_asked() -> list[AckBatch]:
        questions = [request for request, _ in client.calls if isinstance(request, AcquireRecords)]
        return [b for question in questions for part in question.acknowledgements for b in part.batches]

    (gap,) = wait_until(outcomes_asked, what="the next request has what was never there")
    assert (gap.first, gap.last, gap.types) == (3, 4, (int(AcknowledgeType.GAP),))
    consumer.close()


class Parts:
    """Reads 2 records of orders-0 at a time: offset 0 to 4 in three parts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read: list[tuple[int, int]] = []
        monkeypatch.setattr(fetching, "read_records", self._read)

    def _read(self, task: ReadTask, into: Any, **_: object) -> NotRead:
        (part,) = task.partitions
        (held,) = part.ranges
        self.read.append((held.first, held.last))
        last = min(held.last, held.first + 1)
        into.add_run(("orders", 0), held.first, 1, run_of(held.first, last - held.first + 1).messages)
        return NotRead({}, {}, left={} if last == held.last else {("orders", 0): last + 1})


def test_the_rest_of_an_acquisition_is_read_before_another_one(client, monkeypatch) -> None:
    parts, ahead = Parts(monkeypatch), Ahead()
    fetcher = Fetcher(OPTIONS, Membership(OPTIONS), ahead, lambda _: None)
    came = []
    for _ in range(4):
        fetched = fetcher.fetch(WANTED, outcomes(), lambda _: None)
        assert fetched.acquired is not None and fetched.lock_timeout_ms == 30_000
        assert not ahead.take_in(fetched.acquired, 0.0), "what is not read yet is no gap"
        came.append((fetched.records, fetched.is_part))
    assert came == [(2, True), (2, True), (1, True), (2, True)]
    assert parts.read == [(0, 4), (2, 4), (4, 4), (0, 4)]
    assert client.asked() == ["AcquireRecords", "Acknowledge", "Acknowledge", "AcquireRecords"], "outcomes go on"


@pytest.mark.parametrize("end", ["close", "fail", "subscribe"])
def test_the_rest_of_an_acquisition_is_renewed_and_given_back(client, monkeypatch, end) -> None:
    Parts(monkeypatch)
    ahead = Ahead()
    fetcher = Fetcher(OPTIONS, Membership(OPTIONS), ahead, lambda _: None)
    fetched = fetcher.fetch(WANTED, Sending(), lambda _: None)
    assert fetched.acquired is not None
    ahead.take_in(fetched.acquired, 0.0)
    offsets = [(batch.first, batch.last) for acks in ahead.renewals() for batch in acks.batches]
    assert offsets == [(0, 1), (2, 4)]
    if end == "close":
        fetcher.close()
        fetcher.leave()
    elif end == "fail":
        refuse(monkeypatch, LookupError("READ is denied"))
        assert fetcher.fetch(WANTED, Sending(), lambda _: None).error is not None
    else:
        ahead.clear_waiting()
        fetcher.give_back()
    given_back = client.calls[-1][0]
    assert isinstance(given_back, Acknowledge) and given_back.unread
    assert (2, 4) in [(batch.first, batch.last) for acks in given_back.partitions for batch in acks.batches]
    assert not ahead.has_rest


def test_the_rest_of_an_acquisition_whose_locks_ended_is_not_read(client, monkeypatch) -> None:
    parts, ahead = Parts(monkeypatch), Ahead()
    fetcher = Fetcher(OPTIONS, Membership(OPTIONS), ahead, lambda _: None)
    fetched = fetcher.fetch(WANTED, Sending(), lambda _: None)
    assert fetched.acquired is not None and ahead._rest is not None
    ahead.take_in(fetched.acquired, 0.0)
    ahead._rest.until_s = 0.0
    fetcher.fetch(WANTED, Sending(), lambda _: None)
    assert parts.read == [(0, 4), (0, 4)] and client.asked() == ["AcquireRecords"] * 2


def test_a_poll_that_returns_a_part_has_the_rest_read(client, monkeypatch) -> None:
    Parts(monkeypatch)
    consumer = ShareConsumer(CONFIG)
    consumer.subscribe(["orders"])
    client.when_asked = lambda: setattr(client, "acquired", AcquiredReply()) if len(client.calls) > 1 else None
    assert [message.offset() for message in consumer.poll()] == [0, 1]
    wait_until(lambda: consumer._supply.has_come, what="the next part is read")
    assert client.asked() == ["AcquireRecords"]
    assert [message.offset() for message in consumer.poll()] == [2, 3]
    assert [message.offset() for message in consumer.poll()] == [4]
    assert client.asked().count("AcquireRecords") == 1
    consumer.close()


def test_a_consumer_is_told_once_why_it_gets_no_records(client, caplog):
    """An answer in between, to outcomes alone, says nothing of it."""
    caplog.set_level("INFO")
    fetcher, records = Fetcher(OPTIONS, Membership(OPTIONS), Ahead(), lambda _: None), client.acquired
    held_back = [AcquiredReply(held_back=7), AcquiredReply(), AcquiredReply(held_back=8)]
    waits = [AcquiredReply(holders=holders) for holders in (("c1 (etl)",), ("c1 (etl)",), ("c2 (etl)",))]
    for reply in (*held_back, records, records, *waits, records, waits[0]):
        client.acquired = reply
        fetcher.fetch(WANTED, Sending(), lambda _: None)
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("the ShareConsumer")]
    warned, again, line = said
    assert warned.startswith("the ShareConsumer gets no records, because 7 archived records of the group wait")
    assert again == "the ShareConsumer gets records again: dead letters are written"
    assert line.startswith("the ShareConsumer waits for partitions of the ordered share group")
    assert "c1 (etl)" in line
