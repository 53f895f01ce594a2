"""An owner replies to the records of other hosts, and an asker tells an owner that lives from one that is gone."""

from __future__ import annotations

from coordinator.protocol.host_records import Alive, Answer, Late, Moved, Tick
from coordinator.service.hosts.owner import STUCK_S
from tests.support.asked_hosts import BEGIN_S, AskedOwner, Asker, ask, owner_of, probe

ASKED = owner_of("one", tenure="t1")


def kinds(replies):
    return [type(reply) for reply in replies]


# --- the owner


def test_an_owner_in_its_tenure_lives_and_carries_requests_out():
    owner = AskedOwner()
    assert kinds(owner.reads(probe())) == [Alive]
    assert kinds(owner.reads(ask())) == [Answer]
    assert len(owner.handled) == 1


def test_a_request_for_an_earlier_tenure_is_not_carried_out():
    owner = AskedOwner(tenure="t2")
    assert kinds(owner.reads(probe())) == kinds(owner.reads(ask())) == [Moved]
    assert not owner.handled


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


def test_ticks_get_no_reply():
    assert not AskedOwner().reads(Tick(process="p1"))


def test_time_in_which_no_tick_is_read_counts_against_no_member():
    owner = AskedOwner()
    assert owner.looks_later(1.0) == []
    assert owner.looks_later(9.0) == [8_500]
    owner.reads(Tick(process="p1"))
    assert owner.looks_later(1.0) == []


# --- the asker


def test_an_owner_that_answers_lives():
    assert not Asker("alive").look(ASKED)


def test_an_owner_that_says_so_has_moved():
    assert Asker("moved").look(ASKED) == "OwnerGone"


def test_a_silent_owner_is_gone_after_its_patience():
    asker = Asker()
    assert asker.look(ASKED) == "OwnerGone"
    assert ASKED.patience_s < asker.time_s - BEGIN_S < ASKED.patience_s + 2
    assert asker.echoes == 1


def test_hosts_find_a_silent_owner_gone_one_after_the_other():
    one, two = Asker(), Asker()
    two.drawn = 400
    assert one.look(ASKED) == two.look(ASKED) == "OwnerGone"
    assert round(two.time_s - one.time_s, 3) == 0.4


def test_an_owner_is_not_gone_whose_answer_the_asker_had_not_read():
    assert not Asker("alive", is_late=True).look(ASKED)


def test_who_can_not_ask_finds_nobody_gone():
    assert Asker(takes=False).look(ASKED) == "CoordinatorNotAvailable"


def test_who_can_not_read_replies_finds_nobody_gone():
    asker = Asker("alive", reads=False)
    assert asker.look(ASKED) == "CoordinatorNotAvailable"
    assert asker.ensured == 2  # at the start, and once somebody may have deleted the topic for replies


def test_who_reads_a_topic_made_anew_since_finds_nobody_gone():
    """The owner's answers to the topic before are lost, or could not be written."""
    assert Asker(is_anew=True).look(ASKED) == "CoordinatorNotAvailable"


def test_an_answer_without_the_key_of_the_question_counts_for_nothing():
    assert Asker("alive", key=b"another key").look(ASKED) == "OwnerGone"
