"""Requests between hosts: an owner and a gateway on a simulated clock, with records that are lost or come twice."""

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from coordinator.protocol import host_records
from coordinator.protocol.errors import (
    BrokerNotReachable,
    CoordinatorNotAvailable,
    GroupMaxSizeReached,
    GroupNotEmpty,
    ShareGroupError,
    StateTopicNotAuthorized,
)
from coordinator.protocol.host_errors import OwnedElsewhere
from coordinator.protocol.host_records import (
    ADMIN_REQUESTS,
    REQUESTS,
    VERSION,
    Alive,
    Answer,
    Ask,
    Late,
    Moved,
    Probe,
    headers_of_reply,
    headers_of_request,
    id_of_request,
    shown_id,
)
from coordinator.protocol.messages import Done
from coordinator.protocol.rights import Caller
from coordinator.protocol.wire import decode_answer, encode, encode_error
from coordinator.service.hosts import gateway
from coordinator.service.hosts.gateway import Gateway, OwnerAway
from coordinator.service.hosts.hosts import Hosts
from coordinator.service.hosts.owner_requests import PARTS_KEPT_S, RESTS_AFTER_S, OwnerRequests
from coordinator.service.hosts.topics import request_partition_of
from coordinator.service.requests.asker import Asker
from coordinator.service.requests.decoding import Head
from coordinator.service.stores.kafka import ownership
from coordinator.service.stores.kafka.ownership import LOOK_LASTS_S, LivingOwner
from coordinator.state_log.owner_record import Owner
from coordinator.state_log.owner_state import OwnerState
from tests.simulation.fiber import Fiber
from tests.simulation.host_topics import HostTopics, SimulatedTransport
from tests.simulation.simulated_world import Process, Task, World
from tests.support.asked_hosts import record

GROUP = "billing"
MINE = ("share-group-requests", request_partition_of(GROUP))
OWNER = Owner(installation_id="one", process="owner", host="one", pid=1, tenure="t1", answers=VERSION)
SHOWN = shown_id(id_of_request("r1", "Done", b"x"))
BUSY = CoordinatorNotAvailable(group_id=GROUP, reason="its state can't be loaded")
Message = Any


class OwnersGroups:
    """The one group of an owner."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.clock = SimpleNamespace(now_ms=now_ms)
        self.now, self.is_loading = OWNER.tenure, False
        self.unheard_ms = 0

    def held_groups(self) -> set[str]:
        return {GROUP} if self.now else set()

    def tenure(self, group_id: str) -> str:
        return "" if self.is_loading else self.now

    def holds(self, group_id: str) -> bool:
        return bool(self.now)

    def unheard(self, group_ids: Iterable[str], ms: int) -> None:
        self.unheard_ms += ms

    def stuck_s(self, group_id: str) -> float:
        return 0.0


class TwoHosts:
    """An owner of the group, and the gateway of another host. ``drops`` says which messages no broker has; they take
    ``far_ms`` more to a broker. ``is_patient``: the owner is waited for as long as its patience."""

    def __init__(self) -> None:
        self.far_ms, self.is_patient = 0, True
        self.world = world = World(0)
        self.topics = HostTopics(world, Mock(), lost=0.0, doubled=0.0, late=0.0)
        self.drops: Callable[[Message], bool] = lambda message: False
        self.messages: list[Message] = []
        self.topics.append = self._append  # type: ignore[method-assign]
        self.asker, self.owner = Process(world, "asker"), Process(world, "owner")
        self.groups = OwnersGroups(lambda: world.now_ms + 77_000)
        self.answers: list[bytes] = []
        self.handled: list[bytes] = []
        transport = SimulatedTransport(self.owner, self.topics, self.groups.clock.now_ms, lambda: 0)
        self.requests = OwnerRequests(transport, self.groups, OWNER, self._handle)  # type: ignore[arg-type]
        self.gateway = Gateway(
            SimulatedTransport(self.asker, self.topics, lambda: world.now_ms, lambda: 0),  # type: ignore[arg-type]
            Owner(installation_id="two", process="asker", host="two", pid=2),
        )
        self.outcomes: list[Any] = []
        self.pass_s(1.5)  # the ends of the topics are known now

    def _append(self, where: Any, key: str, headers: Any, body: bytes) -> None:
        message = host_records.read_request(headers) or host_records.read_reply(headers)
        self.messages.append(message)
        if not self.drops(message):
            self.world.after(self.far_ms, lambda: HostTopics.append(self.topics, where, key, headers, body))

    def _handle(self, name: str, body: Any, *_: Any) -> bytes:
        self.handled.append(body.to_pybytes())
        return self.answers.pop(0) if self.answers else encode(Done())

    def pass_s(self, seconds: float) -> None:
        self.world.run_until(self.world.now_ms + int(seconds * 1000))

    def ask(self, request_id: str = "r1", body: bytes = b"x", is_gone: Callable[[], bool] = lambda: False) -> None:
        """Begins to pass a request on. Its answer or error is in ``outcomes``."""

        def ask() -> bytes:
            return self.gateway.pass_on(
                GROUP, OWNER, "Done", body, request_id=request_id, protocol="4", is_action=False, waits_s=0.0,
                is_patient=self.is_patient, is_gone=is_gone,
            )  # fmt: skip

        def task() -> Task:
            try:
                self.outcomes.append(decode_answer((yield from Fiber(ask).run())))
            except Exception as error:  # noqa: BLE001 - the test looks at it
                self.outcomes.append(error)

        self.asker.spawn(task())

    def of(self, kind: type) -> list[Message]:
        return [message for message in self.messages if isinstance(message, kind)]

    def told(self, message: Ask | Probe) -> list[Any]:
        """The replies to a record that comes now to the owner."""
        before = len(self.messages)
        self.topics.append(MINE, GROUP, headers_of_request(message), b"x")
        self.pass_s(0.5)
        return [reply for reply in self.messages[before:] if isinstance(reply, Alive | Answer | Moved | Late)]

    def record(self, **fields: Any) -> Ask:
        fields["id"] = id_of_request(fields.get("id", "r1"), "Done", b"x")
        ask = Ask(
            id="", asker="asker", group_id=GROUP, reply_to=0, reply_key=b"k", process="owner", tenure="t1",
            not_after_ms=self.groups.clock.now_ms() + 20_000, protocol="4", name="Done", host="two",
        )  # fmt: skip
        return host_records.msgspec.structs.replace(ask, **fields)

    def probe(self, **fields: Any) -> Probe:
        probe = Probe(
            id="p1", asker="asker", group_id=GROUP, reply_to=0, reply_key=b"k", process="owner", tenure="t1"
        )  # fmt: skip
        return host_records.msgspec.structs.replace(probe, **fields)


def reading() -> TwoHosts:
    """Two hosts, of which the owner reads the requests."""
    hosts = TwoHosts()
    hosts.told(hosts.probe())
    hosts.pass_s(1.5)
    assert hosts.of(Alive)
    return hosts


# --- the owner


def test_an_error_that_may_be_retried_is_not_the_answer_for_good() -> None:
    hosts = reading()
    hosts.answers = [encode_error(BUSY)]
    hosts.told(hosts.record())
    hosts.told(hosts.record())
    assert len(hosts.handled) == 2


def test_a_request_that_comes_twice_is_handled_once() -> None:
    hosts = reading()
    assert [type(reply) for reply in hosts.told(hosts.record())] == [Answer]
    assert [type(reply) for reply in hosts.told(hosts.record())] == [Answer]
    assert len(hosts.handled) == 1


@pytest.mark.parametrize("ends", ["moved", "late"])
def test_what_was_carried_out_is_answered_so_when_it_comes_again_afterwards(ends: str) -> None:
    hosts = reading()
    hosts.told(hosts.record())
    if ends == "moved":
        hosts.groups.now = ""
    hosts.pass_s(PARTS_KEPT_S)
    again = hosts.record(not_after_ms=0) if ends == "late" else hosts.record()
    assert [type(reply) for reply in hosts.told(again)] == [Answer]
    assert [type(reply) for reply in hosts.told(hosts.record(id="r2", not_after_ms=0))] != [Answer]


def test_a_group_that_is_loaded_again_has_not_moved() -> None:
    """A host that hears so takes the group."""
    hosts = reading()
    hosts.groups.is_loading = True
    assert hosts.told(hosts.record()) == []
    (alive,) = hosts.told(hosts.probe(waiting=(SHOWN,)))
    assert alive.unknown == (SHOWN,)
    hosts.groups.is_loading = False
    assert [type(reply) for reply in hosts.told(hosts.record())] == [Answer]


def test_an_owner_says_nothing_about_the_owner_before_or_after_it() -> None:
    """A process that does not know that it was replaced would give away the group of its successor."""
    hosts = reading()
    assert hosts.told(hosts.record(process="another", tenure="t2")) == []
    assert hosts.told(hosts.probe(process="another", tenure="t2")) == []
    assert [type(reply) for reply in hosts.told(hosts.record(tenure="t0"))] == [Moved]


def test_parts_are_dropped_in_time_whatever_their_request_says() -> None:
    """Their time is that of the first one: the next ones renew nothing."""
    hosts = reading()
    requests = hosts.requests._requests[REQUESTS]
    hosts.told(hosts.record(part=0, parts=3, not_after_ms=10**15))
    hosts.pass_s(PARTS_KEPT_S - 2)
    hosts.told(hosts.record(part=1, parts=3, not_after_ms=10**15))
    assert requests.received_bytes
    hosts.pass_s(4)
    assert not requests.received
    assert not requests.received_bytes


def test_a_partition_that_rests_is_read_when_a_record_comes() -> None:
    hosts = reading()
    hosts.pass_s(RESTS_AFTER_S + 5)
    assert not hosts.requests._last_s
    hosts.requests._on_record(hosts.topics.records[MINE][0])  # one that the reader had when it was told to stop
    assert not hosts.requests._last_s
    hosts.pass_s(100)
    hosts.told(hosts.probe())
    hosts.pass_s(3)
    assert len(hosts.of(Alive)) > 1
    assert hosts.groups.unheard_ms == 0


def test_a_group_that_is_being_loaded_for_long_is_heard_of() -> None:
    """Nobody has asked its owner before."""
    hosts = TwoHosts()
    hosts.groups.is_loading = True
    hosts.pass_s(1.5)
    hosts.told(hosts.probe())
    hosts.pass_s(1.5)
    assert hosts.of(Alive)


def test_an_owner_reads_nothing_that_came_before_it_took_the_group_back() -> None:
    """A partition has ten minutes of another owner's requests: who reads them all answers nobody meanwhile."""
    hosts = reading()
    hosts.pass_s(RESTS_AFTER_S + 5)
    hosts.groups.now = ""
    hosts.pass_s(2)
    hosts.told(hosts.record(process="another"))
    hosts.groups.now = "t2"
    hosts.pass_s(2)
    assert not hosts.requests._last_s
    hosts.told(hosts.probe(tenure="t2"))
    hosts.pass_s(2)
    assert [alive.tenure for alive in hosts.of(Alive)] == ["t1", "t2"]


def test_an_owner_that_takes_a_group_back_soon_has_missed_no_member() -> None:
    hosts = reading()
    hosts.groups.now = ""
    hosts.pass_s(20)
    hosts.groups.now = "t2"
    hosts.pass_s(5)
    assert hosts.requests._last_s
    assert hosts.groups.unheard_ms == 0


def test_an_outage_of_the_brokers_counts_against_no_member_of_another_host() -> None:
    """The owner's questions to the brokers get no answer either. Sessions are 10 s in the chaos runs that found it."""
    hosts = reading()
    transport: Any = hosts.requests._transport

    def ends(partitions: Any, timeout_s: float = 15.0) -> None:
        transport.event().wait(min(timeout_s, 15.0))
        raise BrokerNotReachable(addresses="b:9092", timeout_ms=15_000, reason="_TIMED_OUT")

    transport.ends, hosts.drops = ends, lambda message: True
    hosts.pass_s(8.0)
    assert hosts.groups.unheard_ms > 2_000


def test_a_far_owner_is_waited_for_as_long_as_its_answers_take() -> None:
    hosts = TwoHosts()
    hosts.ask()
    hosts.pass_s(1.0)
    hosts.is_patient, hosts.far_ms = False, 600
    hosts.ask("r2")
    hosts.pass_s(5.0)
    assert hosts.outcomes.pop().found is None
    hosts.is_patient = True
    hosts.ask("r3")
    hosts.pass_s(5.0)
    hosts.is_patient, probes = False, len(hosts.of(Probe))
    hosts.ask("r4")
    hosts.pass_s(5.0)
    assert hosts.outcomes == [Done(), Done(), Done()]
    assert len(hosts.of(Probe)) == probes


def test_a_late_first_answer_makes_nobody_wait_longer_later() -> None:
    hosts = TwoHosts()
    hosts.far_ms = 1_000
    hosts.ask()
    hosts.pass_s(0.9)
    hosts.far_ms = 0
    hosts.pass_s(5.0)
    hosts.ask("r2")
    hosts.pass_s(1.0)
    hosts.is_patient, hosts.drops = False, lambda message: True
    hosts.ask("r3")
    hosts.pass_s(2.5)
    assert [type(outcome) for outcome in hosts.outcomes] == [Done, Done, OwnerAway]


@pytest.mark.parametrize("process", ["owner", "asker"])
def test_a_reader_whose_client_ignores_a_new_topic_begins_anew(process: str) -> None:
    """Of the owner by its ticks, which it does not read; of the asker by its echo."""
    hosts = TwoHosts()
    hosts.ask()
    hosts.pass_s(2.0)
    (reader,) = [reader for reader in hosts.topics.readers if reader.process.name == process]
    reader.is_outdated = True
    hosts.ask("r2")
    hosts.pass_s(30.0)
    hosts.ask("r3")
    hosts.pass_s(2.0)
    assert hosts.outcomes[0] == hosts.outcomes[-1] == Done()
    assert not reader.is_outdated


def test_an_owner_whose_reader_begins_anew_is_not_found_gone() -> None:
    hosts = TwoHosts()
    hosts.ask()
    hosts.pass_s(2.0)
    (reader,) = [reader for reader in hosts.topics.readers if reader.process is hosts.owner]
    reader.is_outdated = True
    hosts.ask("r2")
    hosts.pass_s(8.0)
    assert hosts.outcomes == [Done(), Done()]


def test_a_reader_keeps_its_client_while_no_broker_takes_a_tick() -> None:
    hosts = TwoHosts()
    hosts.ask()
    hosts.pass_s(2.0)
    (reader,) = [reader for reader in hosts.topics.readers if reader.process is hosts.owner]
    hosts.topics.mute["owner"] = hosts.world.now_ms + 21_000
    hosts.pass_s(1.0)
    reader.is_outdated = True
    hosts.pass_s(20.0)
    assert reader.is_outdated


def test_an_owner_needs_no_right_to_write_administrators_requests() -> None:
    hosts, theirs = reading(), (ADMIN_REQUESTS, MINE[1])
    hosts.topics.append(theirs, GROUP, headers_of_request(hosts.record()), b"x")
    hosts.pass_s(10)
    assert theirs in hosts.requests._last_s
    assert len(hosts.topics.records[theirs]) == 1
    assert len(hosts.topics.records[MINE]) > 9


# --- the gateway


def test_after_a_request_that_came_too_late_the_clocks_are_compared_anew() -> None:
    """One of the machines stood still, and with it its clock: all further requests would come too late."""
    hosts = reading()
    hosts.ask("r1")
    hosts.pass_s(2)
    route = hosts.gateway._routes[GROUP]
    hosts.gateway._routes[GROUP] = route._replace(ahead_ms=route.ahead_ms - 60_000)
    hosts.ask("r2")
    hosts.pass_s(2)
    hosts.ask("r3")
    hosts.pass_s(2)
    assert [type(each).__name__ for each in hosts.outcomes] == ["Done", "RequestTooLate", "Done"]


@pytest.mark.parametrize("kind", [Ask, Answer])
def test_a_lost_part_of_a_request_or_an_answer_is_sent_again(kind: type) -> None:
    hosts = reading()
    lost = iter([True])
    hosts.drops = lambda message: isinstance(message, kind) and message.part == message.parts - 1 and next(lost, False)
    hosts.ask(body=b"x" * (host_records.PART_BYTES + 1))
    hosts.pass_s(5)
    assert hosts.outcomes == [Done()]
    assert [len(body) for body in hosts.handled] == [host_records.PART_BYTES + 1]


def test_parts_of_two_answers_are_not_put_together() -> None:
    """An owner that has dropped its answer computes another one for the same request."""
    hosts = reading()
    hosts.drops = lambda message: isinstance(message, Answer)
    hosts.ask()
    hosts.pass_s(0.5)
    (waiting,) = (each for each in hosts.gateway._waiting.values() if each.is_asked)
    asker = hosts.gateway._me.process
    for written, part, body in (("one", 0, b"a"), ("two", 1, b"d"), ("two", 0, b"c")):
        assert not waiting.done.is_set()
        answer = Answer(id=waiting.shown, asker=asker, written=written, part=part, parts=2)
        headers = headers_of_reply(answer, waiting.reply_key, body)
        hosts.gateway._on_record(record(headers, body, key=asker, offset=100))
    assert waiting.body == b"cd"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (BUSY, "On host one (process 1): The coordinator of share group billing"),
        (
            StateTopicNotAuthorized(what="write to it", topic="t"),
            "On host one (process 1): The Kafka principal may not",
        ),
        (GroupMaxSizeReached(group_id=GROUP, limit=2), "On host one (process 1): Share group billing has 2 members"),
        (GroupNotEmpty(group_id=GROUP, members=2, force=""), "Share group billing has 2 member(s)"),
    ],
)
def test_an_error_about_the_owner_itself_names_its_host(error: ShareGroupError, says: str) -> None:
    hosts = reading()
    hosts.answers = [encode_error(error)]
    hosts.ask()
    hosts.pass_s(5)
    (raised,) = hosts.outcomes
    assert type(raised) is type(error)
    assert str(raised).startswith(says)


def test_a_second_try_through_the_same_gateway_gets_the_answer() -> None:
    hosts = reading()
    lost = iter([True])
    hosts.drops = lambda message: isinstance(message, Ask) and next(lost, False)
    hosts.ask()
    hosts.pass_s(0.5)
    hosts.ask()
    hosts.pass_s(10)
    assert sorted(type(each).__name__ for each in hosts.outcomes) == ["CoordinatorNotAvailable", "Done"]
    assert len(hosts.handled) == 1


def test_a_request_is_not_sent_again_for_a_client_that_is_gone() -> None:
    hosts = reading()
    hosts.drops = lambda message: isinstance(message, Ask)
    hosts.ask(is_gone=lambda: True)
    hosts.pass_s(5)
    (error,) = hosts.outcomes
    assert "waits no longer" in str(error)
    assert len(hosts.of(Ask)) == 1


def test_a_silent_owner_is_found_gone_though_the_client_is_gone() -> None:
    hosts = reading()
    hosts.drops = lambda message: isinstance(message, Answer | Alive)
    hosts.ask(is_gone=lambda: True)
    hosts.pass_s(15)
    (gone,) = hosts.outcomes
    assert isinstance(gone, OwnerAway)
    assert gone.found is OwnerState.SILENT


def test_a_request_that_no_owner_takes_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = reading()
    monkeypatch.setattr(gateway, "MOST_BODY_BYTES", 3)
    hosts.ask("r1", b"123")
    hosts.ask("r2", b"1234")
    hosts.pass_s(1)
    assert sorted(type(each).__name__ for each in hosts.outcomes) == ["Done", "RequestTooLarge"]


def test_whoever_waits_for_another_host_hears_at_once_that_the_gateway_ends() -> None:
    hosts = reading()
    hosts.drops = lambda message: isinstance(message, Answer)
    hosts.ask()
    hosts.pass_s(0.5)
    hosts.gateway.close()
    hosts.pass_s(0.1)
    (error,) = hosts.outcomes
    assert "it is leaving" in str(error)


def test_all_requests_of_a_group_ask_as_one_whether_its_owner_lives() -> None:
    hosts = reading()
    hosts.drops = lambda message: isinstance(message, Answer)
    for number in range(20):
        hosts.ask(f"r{number}")
        hosts.pass_s(0.05)
    before = len(hosts.of(Probe))
    hosts.pass_s(10)
    assert len(hosts.of(Probe)) - before < 60  # not 200


def test_an_answer_to_another_request_shows_that_the_owner_lives() -> None:
    """The patience begins anew for all requests that wait for the owner."""
    hosts = reading()
    hosts.drops = silent = lambda message: isinstance(message, Answer | Alive)
    hosts.ask("r1")
    hosts.pass_s(4.5)
    hosts.ask("r2")
    hosts.pass_s(0.9)
    hosts.drops = lambda message: isinstance(message, Answer)  # when only the second one asks whether it lives
    hosts.pass_s(0.3)
    hosts.drops = silent
    hosts.pass_s(3.5)
    assert hosts.outcomes == []


@pytest.mark.parametrize(("by", "name"), [("alice", "alice"), ("", ""), ("alice\nbob", ""), ("a" * 81, "")])
def test_an_owner_knows_the_name_of_a_token_as_it_was_told(by: str, name: str) -> None:
    hosts, callers = reading(), []

    def handle(_: str, body: Any, asker: Asker) -> bytes:
        callers.append(asker.caller)
        return encode(Done())

    hosts.requests._answer_to = handle
    assert [type(reply) for reply in hosts.told(hosts.record(by=by))] == [Answer]
    assert [caller.name for caller in callers] == [name]


def test_looks_wait_once_for_all_groups_of_a_silent_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of groups of a host that is gone are listed in the time of one; none is taken unasked."""
    hosts = TwoHosts()
    transport: Any = SimulatedTransport(hosts.asker, hosts.topics, lambda: hosts.world.now_ms, lambda: 7)
    living = LivingOwner(Owner(installation_id="two", process="asker", host="two", pid=2))
    nothing: Any = SimpleNamespace(
        tenure=lambda group_id: "", holds=lambda group_id: False, held_groups=set, clock=hosts.groups.clock
    )
    passing = Hosts(transport, nothing, living, lambda *_: b"")
    asked: list[tuple[str, bool]] = []

    def silent(group_id: str, *_: Any, is_patient: bool, **__: Any) -> bytes:
        asked.append((group_id, is_patient))
        raise OwnerAway(OwnerState.SILENT, 7) if is_patient else OwnerAway

    passing.gateway.pass_on = silent  # type: ignore[method-assign]

    def here(group_id: str) -> bytes:
        living.check_look(group_id, OWNER, 7)
        return b"the log's copy"

    def look(group_id: str) -> None:
        asker = Asker(Caller(), "a peer", "4")
        shown = passing.answered("DescribeGroup", pa.py_buffer(b""), Head(group_id), asker, lambda: here(group_id))
        assert shown == b"the log's copy"
        assert passing.is_unknown(group_id)

    for group_id in ("g1", "g2", "g3"):
        look(group_id)
    assert asked == [("g1", True)]
    living.check("g1", OWNER, had=False, claims=True, end=7)
    with pytest.raises(OwnedElsewhere):
        living.check("g2", OWNER, had=False, claims=True, end=7)
    monkeypatch.setattr(ownership, "now_s", lambda: LOOK_LASTS_S + 1e9)
    hosts.pass_s(LOOK_LASTS_S + 1)
    for group_id in ("g2", "g1", "g3"):
        look(group_id)
    assert asked == [("g1", True), ("g2", False)], "later looks wait for one question"
