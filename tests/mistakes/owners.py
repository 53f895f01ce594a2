"""Several hosts: who owns a group, and what members are told of it. Found by unit tests and the explorer;
:mod:`tests.mistakes.hosts` has those that the simulator finds."""

from __future__ import annotations

from typing import Any

import msgspec

from coordinator.protocol import host_records
from coordinator.protocol.errors import GroupTakenOver
from coordinator.service.hosts import gateway
from coordinator.service.hosts.owner_requests import OwnerRequests
from coordinator.service.requests.requests import Requests
from coordinator.service.runtime.transaction import FromAnotherHost
from coordinator.service.stores.kafka.kafka_store import KafkaStore
from coordinator.service.stores.kafka.ownership import LivingOwner
from coordinator.state_log.owner_record import Owner
from tests.mistakes import rules
from tests.mistakes.mistake import Patch, SmallWorld, mistake
from tests.protocol.setting import Budget
from tests.protocol.worlds import HOSTS, HOSTS_NOT_ASKED

GROWTH = "stores/test_group_ownership::test_hosts_that_find_each_other_silent_in_turn_grow_the_patience"
NOBODY_KNOWS = "stores/test_claims::test_an_owner_that_nobody_found_gone_keeps_its_group"
SILENT = SmallWorld(HOSTS, Budget(1, silences=1))


@mistake(rules.LIVING_OWNER_STAYS, tests=(NOBODY_KNOWS,), explorer=(SmallWorld(HOSTS, Budget(0)),))
def take_a_group_without_a_question(patch: Patch) -> None:
    patch.setattr(LivingOwner, "check", lambda *a, **k: None)


@mistake(rules.LIVING_OWNER_STAYS, tests=(NOBODY_KNOWS,))
def take_a_group_whose_earlier_owner_was_silent(patch: Patch) -> None:
    right = LivingOwner.check

    def check(self: LivingOwner, group_id: str, owner: Owner, **known: Any) -> None:
        found = self._found.get(group_id)
        tenure = owner.tenure if found is None else found.tenure
        right(self, group_id, msgspec.structs.replace(owner, tenure=tenure), **known)

    patch.setattr(LivingOwner, "check", check)


@mistake(
    rules.LIVING_OWNER_STAYS,
    tests=(
        "stores/test_claims::test_a_claim_looks_again_just_before_its_fence",
        "stores/test_claims::test_a_claim_looks_again_after_its_fence",
    ),
)
def look_at_the_owner_once(patch: Patch) -> None:
    right = KafkaStore._inspect
    patch.setattr(
        KafkaStore, "_inspect", lambda self, group_id, seen=None, **given: seen or right(self, group_id, **given)
    )


@mistake(rules.LIVING_OWNER_STAYS, tests=("stores/test_claims::test_a_group_that_is_given_up_is_taken_at_once",))
def wait_for_an_owner_that_has_given_up(patch: Patch) -> None:
    right = LivingOwner.check

    def check(self: LivingOwner, group_id: str, owner: Owner, **known: Any) -> None:
        right(self, group_id, msgspec.structs.replace(owner, released=False), **known)

    patch.setattr(LivingOwner, "check", check)


@mistake(rules.LIVING_OWNER_STAYS, tests=(GROWTH,))
def never_grow_the_patience(patch: Patch) -> None:
    right = LivingOwner.new_owner
    patch.setattr(LivingOwner, "new_owner", lambda self, before, *, had: right(self, before, had=False))


@mistake(rules.LIVING_OWNER_STAYS, tests=(GROWTH,))
def grow_the_patience_at_a_first_takeover(patch: Patch) -> None:
    right = LivingOwner.new_owner
    patch.setattr(LivingOwner, "new_owner", lambda self, before, *, had: right(self, before, had=True))


@mistake(
    rules.ASKED_OWNERS_TAKE_NOTHING_OVER,
    tests=("stores/test_group_ownership::test_members_are_told_of_an_owner_that_can_t_be_asked",),
    explorer=(SILENT,),
)
def tell_members_of_a_takeover_by_an_owner_that_can_be_asked(patch: Patch) -> None:
    patch.setattr(LivingOwner, "lost", lambda self, group_id, owner: GroupTakenOver(group_id=group_id, owner="another"))


@mistake(rules.ASKED_OWNERS_TAKE_NOTHING_OVER, explorer=(SmallWorld(HOSTS_NOT_ASKED, Budget(0)),))
def tell_members_of_a_takeover_after_a_claim_that_was_given_up(patch: Patch) -> None:
    """The owner was fenced, and its own record is still the newest one."""
    right = LivingOwner.check

    def check(self: LivingOwner, group_id: str, owner: Owner, *, had: bool, **known: Any) -> None:
        if had and not known["claims"] and owner.process == self.me.process:
            raise GroupTakenOver(group_id=group_id, owner="another")
        right(self, group_id, owner, had=had, **known)

    patch.setattr(LivingOwner, "check", check)


@mistake(
    rules.REQUEST_IS_FOR_ITS_OWNER,
    tests=("stores/test_claims::test_a_request_that_waited_until_after_its_time_changes_nothing",),
    explorer=(SmallWorld(HOSTS, Budget(1, delays=1)),),
)
def look_at_the_time_of_a_request_only_when_it_is_read(patch: Patch) -> None:
    right = FromAnotherHost.check
    patch.setattr(FromAnotherHost, "check", lambda self, group_id, tenure, now_ms: right(self, group_id, tenure, 0))


@mistake(
    rules.REQUEST_IS_FOR_ITS_OWNER,
    tests=("hosts/test_asked_owners::test_an_owner_is_gone_only_if_it_says_so_or_was_silent",),
)
def take_answers_of_whoever_writes_them(patch: Patch) -> None:
    patch.setattr(gateway, "is_proven", lambda *a: True)


@mistake(
    rules.REQUEST_IS_FOR_ITS_OWNER, tests=("protocol/test_host_records::test_a_reply_is_proven_only_as_it_was_written",)
)
def prove_the_body_of_an_answer_alone(patch: Patch) -> None:
    """An answer of an earlier request is one of a later request, under another header."""
    right = host_records._proof
    patch.setattr(host_records, "_proof", lambda reply_key, content, body: right(reply_key, b"", body))


@mistake(
    rules.STALL_IS_NOBODYS_SILENCE,
    tests=("hosts/test_asked_owners::test_time_in_which_no_tick_is_read_counts_against_no_member",),
)
def end_sessions_while_heartbeats_lie_unread(patch: Patch) -> None:
    patch.setattr(OwnerRequests, "_tick", lambda *a: None)


@mistake(
    rules.REQUEST_IS_FOR_ITS_OWNER,
    tests=(
        "requests/test_doors::test_a_request_goes_to_the_owner_once",
        "requests/test_doors::test_this_host_alone_ends_its_coordinator",
    ),
)
def take_requests_of_other_hosts_for_those_of_this_one(patch: Patch) -> None:
    right = Requests.answer
    patch.setattr(
        Requests, "answer", lambda self, name, body, asker: right(self, name, body, asker._replace(origin=None))
    )
