"""An owner replies to the records of other hosts, and an asker tells an owner that lives from one that is gone."""

import pytest

from coordinator.protocol.errors import NotAllowed
from coordinator.protocol.host_records import (
    ADMIN_REQUESTS,
    MOST_BODY_BYTES,
    PART_BYTES,
    REQUESTS,
    Alive,
    Answer,
    Late,
    Moved,
    Tick,
    id_of_request,
    shown_id,
)
from coordinator.service.hosts.owner_requests import MOST_AT_ONCE, MOST_KEPT_BYTES, MOST_RECEIVED_BYTES, STUCK_S
from tests.support.asked_hosts import A_REQUEST, BEGIN_S, AskedOwner, Asker, ask, owner_of, probe

ASKED = owner_of("one", tenure="t1")


def kinds(replies):
    return [type(reply) for reply in replies]


# --- the owner


def test_a_request_after_its_time_is_not_carried_out():
    owner = AskedOwner(now_ms=1_001)
    assert kinds(owner.reads(ask())) == [Late]
    assert not owner.handled


def test_a_process_that_leaves_says_that_its_groups_have_moved():
    owner = AskedOwner(leaving=True)
    assert kinds(owner.reads(probe())) == kinds(owner.reads(ask())) == [Moved]


def test_an_owner_whose_event_loop_is_stuck_answers_nobody():
    owner = AskedOwner()
    owner.stuck = STUCK_S + 1
    assert not owner.reads(probe())
    assert not owner.reads(ask())


def test_time_in_which_no_tick_is_read_counts_against_no_member():
    owner = AskedOwner()
    assert owner.looks_later(1.0) == []
    assert owner.looks_later(9.0) == [8_500]
    owner.reads(Tick(process="p1", secret="another writer's"))
    assert owner.looks_later(1.0) == [1_000]
    owner.reads(Tick(process="p1", secret=owner.requests._secret))
    assert owner.looks_later(1.0) == []


# --- the asker


def test_an_owner_is_gone_only_if_it_says_so_or_was_silent():
    for asker, found in (
        (Asker("alive"), ""),
        (Asker("moved"), "OwnerAway"),
        (Asker("alive", is_late=True), ""),  # the asker had not read the answer
        (Asker("alive", key=b"another key"), "OwnerAway"),  # without the key of the question an answer is none
        (Asker(takes=False), "CoordinatorNotAvailable"),  # no broker took the question
        (Asker(is_anew=True), "CoordinatorNotAvailable"),  # the answers to the topic before are lost
    ):
        assert asker.look(ASKED) == found


def test_a_silent_owner_is_gone_after_its_patience():
    asker = Asker()
    assert asker.look(ASKED) == "OwnerAway"
    assert ASKED.patience_s < asker.time_s - BEGIN_S < ASKED.patience_s + 2
    assert asker.echoes == 1


def test_hosts_find_a_silent_owner_gone_one_after_the_other():
    one, two = Asker(), Asker()
    two.drawn = 400
    assert one.look(ASKED) == two.look(ASKED) == "OwnerAway"
    assert round(two.time_s - one.time_s, 3) == 0.4


def test_who_can_not_read_replies_finds_nobody_gone():
    asker = Asker("alive", reads=False)
    assert asker.look(ASKED) == "CoordinatorNotAvailable"
    assert asker.ensured == 2  # at the start, and once somebody may have deleted the topic for replies


# --- records that somebody else wrote


ANOTHER_BODY = b"another body"


def test_nobody_has_another_body_carried_out_as_a_request() -> None:
    owner, mine = AskedOwner(), ask().id
    for theirs in (shown_id(mine), id_of_request("r1", "Heartbeat", ANOTHER_BODY)):
        owner.reads(ask(id=theirs, part=0, parts=2), ANOTHER_BODY)
    assert kinds(owner.reads(ask())) == [Answer]
    assert owner.handled == [A_REQUEST]


def test_a_body_without_its_requests_digest_is_passed_over() -> None:
    owner = AskedOwner()
    assert owner.reads(ask(), ANOTHER_BODY) == owner.handled == []
    assert kinds(owner.reads(ask())) == [Answer]


@pytest.mark.parametrize("parts", [1, 2])
def test_an_unfinished_part_of_somebody_else_holds_up_no_request(parts: int) -> None:
    """Whoever may also read requests knows the id before the request is sent again."""
    owner, body = AskedOwner(), A_REQUEST
    owner.reads(ask(part=0, parts=3 - parts), ANOTHER_BODY)
    owner.reads(ask(part=0, parts=2), ANOTHER_BODY)
    pieces = [body] if parts == 1 else [body[:9], body[9:]]
    replies = [owner.reads(ask(part=part, parts=parts), piece) for part, piece in enumerate(pieces)]
    assert kinds(replies[-1]) == [Answer]
    assert owner.handled == [A_REQUEST]
    assert not owner.requests._requests[REQUESTS].received_bytes


def test_a_part_among_members_requests_joins_no_action() -> None:
    owner = AskedOwner()
    owner.reads(ask(part=0, parts=2), A_REQUEST[:9])
    assert owner.reads(ask(part=1, parts=2), A_REQUEST[9:], topic=ADMIN_REQUESTS) == owner.handled == []
    owner.reads(ask(part=0, parts=2), A_REQUEST[:9], topic=ADMIN_REQUESTS)
    assert owner.handled == [A_REQUEST]


def test_no_reply_shows_what_a_request_can_be_made_of() -> None:
    request = ask()
    shown = shown_id(request.id)
    for owner, kind in ((AskedOwner(), Answer), (AskedOwner(now_ms=1_001), Late), (AskedOwner(tenure="t2"), Moved)):
        (reply,) = owner.reads(request)
        assert type(reply) is kind
        assert reply.id == shown
        assert request.id not in str(reply)
    (alive,) = AskedOwner().reads(probe(waiting=(shown,)))
    assert isinstance(alive, Alive)
    assert alive.unknown == (shown,)


def test_members_take_neither_ids_nor_room_of_administrators() -> None:
    owner = AskedOwner()
    for number in range(MOST_RECEIVED_BYTES // PART_BYTES + 10):
        owner.reads(ask(id=f"m{number}", part=0, parts=2), bytes(PART_BYTES))
    owner.reads(ask())
    assert kinds(owner.reads(ask(), topic=ADMIN_REQUESTS)) == [Answer]
    assert owner.handled == [A_REQUEST, A_REQUEST], "an administrator gets no member's answer"


def test_unfinished_requests_have_a_bound_and_hold_up_no_whole_one() -> None:
    owner, most = AskedOwner(), MOST_BODY_BYTES // PART_BYTES
    requests, body = owner.requests._requests[REQUESTS], bytes(2 * PART_BYTES)
    for number in range(2 * most):
        owner.reads(ask(id="m", part=number % most, parts=most), body)
        owner.reads(ask(id=f"m{number}", part=0, parts=most), body)
        assert requests.received_bytes <= MOST_RECEIVED_BYTES
    assert kinds(owner.reads(ask())) == [Answer]
    assert sum(each.size for each in requests.received.values()) == requests.received_bytes


def test_answers_have_a_bound() -> None:
    owner = AskedOwner()
    owner.answer = bytes(MOST_KEPT_BYTES // 8)
    for number in range(20):
        owner.reads(ask(id=id_of_request(f"r{number}", "Heartbeat", A_REQUEST)))
    requests = owner.requests._requests[REQUESTS]
    count = len(requests.kept)
    assert count == 7
    assert requests.kept_bytes <= MOST_KEPT_BYTES
    assert not (requests.received_bytes or requests.running)


def test_a_request_that_no_thread_can_handle_is_unknown() -> None:
    owner = AskedOwner()
    requests = owner.requests._requests[REQUESTS]
    requests.running = MOST_AT_ONCE
    assert not owner.reads(ask())
    (alive,) = owner.reads(probe(waiting=(shown_id(ask().id),)))
    assert isinstance(alive, Alive)
    assert alive.unknown
    requests.running = 0
    assert kinds(owner.reads(ask())) == [Answer]


def test_who_writes_administrators_requests_is_no_member() -> None:
    owner = AskedOwner()
    owner.reads(ask(), topic=ADMIN_REQUESTS)
    ((caller, *_),) = owner.askers
    caller.check("ResetOffsets")
    caller.check("DescribeGroup")
    with pytest.raises(NotAllowed):
        caller.check("JoinGroup")
