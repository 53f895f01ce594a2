"""Several hosts: when a host takes a group from another one, and how a request of another host is carried out."""

from __future__ import annotations

from math import inf
from typing import Any

import msgspec

from coordinator.protocol.host_records import REQUESTS, Ask, Moved, read_request, shown_id
from coordinator.protocol.rights import Caller
from coordinator.service.hosts import owner_requests as owner_module
from coordinator.service.hosts.gateway import Gateway
from coordinator.service.hosts.owner_requests import OwnerRequests, _Received, _Requests
from coordinator.service.requests.asker import Asker
from coordinator.service.requests.requests import Requests
from coordinator.service.runtime.transaction import FromAnotherHost
from coordinator.service.stores.kafka.ownership import LivingOwner
from coordinator.state_log.owner_record import Owner
from tests.mistakes import rules
from tests.mistakes.mistake import Patch, Seeds, SmallWorld, mistake
from tests.protocol.setting import Budget
from tests.protocol.worlds import HOSTS
from tests.simulation.host_topics import SimulatedWriter


@mistake(rules.FENCED_HOST_STAYS_FENCED, simulator=(Seeds("hosts", 2),))
def take_back_what_another_host_has(patch: Patch) -> None:
    right = LivingOwner.check

    def check(self: LivingOwner, group_id: str, owner: Owner | None, **known: Any) -> None:
        if not known["had"]:
            right(self, group_id, owner, **known)

    patch.setattr(LivingOwner, "check", check)


@mistake(rules.LIVING_OWNER_STAYS, simulator=(Seeds("hosts"),))
def have_no_patience(patch: Patch) -> None:
    right = Gateway._look

    def look(self: Gateway, group_id: str, owner: Owner, **shown: Any) -> Any:
        return right(self, group_id, msgspec.structs.replace(owner, patience_s=0.0), **shown)

    patch.setattr(Gateway, "_look", look)


@mistake(
    rules.LIVING_OWNER_STAYS,
    tests=("stores/test_claims::test_a_claim_looks_again_after_its_fence",),
    explorer=(SmallWorld(HOSTS, Budget(1, silences=1)),),
    simulator=(Seeds("hosts", 3),),
)
def take_a_group_whose_owner_writes(patch: Patch) -> None:
    right = LivingOwner.found
    patch.setattr(LivingOwner, "found", lambda self, *found: right(self, *found[:3], inf))


@mistake(
    rules.LIVING_OWNER_STAYS,
    tests=("hosts/test_asked_owners::test_an_owner_is_gone_only_if_it_says_so_or_was_silent",),
    explorer=(SmallWorld(HOSTS, Budget(2, delays=1, silences=1)),),
    simulator=(Seeds("hosts"),),
)
def take_a_group_without_reading_ones_own_record(patch: Patch) -> None:
    patch.setattr(Gateway, "_echo", lambda *_: None)


@mistake(
    rules.LIVING_OWNER_STAYS, tests=("hosts/test_asked_owners::test_an_owner_is_gone_only_if_it_says_so_or_was_silent",)
)
def find_an_owner_gone_by_a_topic_that_was_made_anew(patch: Patch) -> None:
    right = Gateway._on_record

    def on_record(self: Gateway, message: Any) -> None:
        self._next_reply = 0
        right(self, message)

    patch.setattr(Gateway, "_on_record", on_record)


@mistake(rules.LIVING_OWNER_STAYS, simulator=(Seeds("hosts", 11),))
def count_a_question_that_no_broker_took(patch: Patch) -> None:
    right = SimulatedWriter._say

    def say(self: SimulatedWriter, ms: int, written: Any, *, ok: bool) -> None:
        right(self, 1 if not ok else ms, written if ok else lambda _: written(True), ok=True)

    patch.setattr(SimulatedWriter, "_say", say)


@mistake(
    rules.LIVING_OWNER_STAYS,
    tests=("hosts/test_hosts::test_a_group_that_is_loaded_again_has_not_moved",),
    explorer=(SmallWorld(HOSTS, Budget(1, restarts=1)),),
    simulator=(Seeds("hosts"),),
)
def say_moved_of_a_group_that_is_being_loaded(patch: Patch) -> None:
    right = OwnerRequests._on_record

    def on_record(self: OwnerRequests, message: Any) -> None:
        groups = self._groups
        with_patch = type(groups).holds
        type(groups).holds = lambda *_: False  # type: ignore[method-assign]
        try:
            right(self, message)
        finally:
            type(groups).holds = with_patch  # type: ignore[method-assign]

    patch.setattr(OwnerRequests, "_on_record", on_record)


@mistake(
    rules.LIVING_OWNER_STAYS,
    tests=("hosts/test_hosts::test_an_owner_says_nothing_about_the_owner_before_or_after_it",),
    simulator=(Seeds("hosts", 3),),
)
def say_moved_for_another_owner(patch: Patch) -> None:
    """A process that does not know that it was fenced says so of its successor."""
    right = OwnerRequests._on_record

    def on_record(self: OwnerRequests, message: Any) -> None:
        request = read_request(message.headers())
        if isinstance(request, Ask) and request.process != self._me.process:
            if self._groups.tenure(request.group_id):
                self._reply(request, Moved(id=request.id, asker=request.asker))
            return
        right(self, message)

    patch.setattr(OwnerRequests, "_on_record", on_record)


@mistake(
    rules.REQUEST_IS_FOR_ITS_OWNER,
    tests=("hosts/test_hosts::test_a_request_that_comes_twice_is_handled_once",),
    simulator=(Seeds("hosts"),),
)
def carry_out_a_request_as_often_as_it_comes(patch: Patch) -> None:
    patch.setattr(OwnerRequests, "_is_known", lambda self, requests, ask: False)
    patch.setattr(_Requests, "end", _forget)


def _forget(requests: _Requests, received: _Received, answer: bytes | None, now_s: float) -> None:
    """As if the request had never come."""
    requests.running -= 1
    requests._drop(shown_id(received.ask.id))


@mistake(rules.REQUEST_IS_FOR_ITS_OWNER, simulator=(Seeds("hosts", 32),))
def carry_out_a_request_that_is_late(patch: Patch) -> None:
    right = Gateway._heard

    def heard(self: Gateway, group_id: str, *asked: Any) -> Any:
        found = right(self, group_id, *asked)
        if (route := self._routes.get(group_id)) is not None:
            self._routes[group_id] = route._replace(ahead_ms=route.ahead_ms + 60_000)
        return found

    patch.setattr(Gateway, "_heard", heard)


@mistake(
    rules.REQUEST_IS_FOR_ITS_OWNER,
    tests=("stores/test_claims::test_a_request_for_another_tenure_changes_nothing",),
    explorer=(SmallWorld(HOSTS, Budget(2, restarts=1, delays=1)),),
    simulator=(Seeds("hosts", 33),),
)
def carry_out_a_request_for_an_earlier_owner(patch: Patch) -> None:
    """The same process, which has loaded the group again."""
    right = FromAnotherHost.check
    patch.setattr(
        FromAnotherHost, "check", lambda self, group_id, tenure, now_ms: right(self, group_id, self.tenure, now_ms)
    )


@mistake(
    rules.REQUEST_IS_FOR_ITS_OWNER,
    tests=("hosts/test_hosts::test_an_error_that_may_be_retried_is_not_the_answer_for_good",),
)
def repeat_an_error_that_is_over(patch: Patch) -> None:
    from coordinator.service.hosts import owner_requests as owner

    patch.setattr(owner, "asks_again", lambda answer: False)


@mistake(
    rules.REQUEST_IS_ITS_WRITERS,
    tests=("hosts/test_asked_owners::test_a_body_without_its_requests_digest_is_passed_over",),
)
def carry_out_any_body(patch: Patch) -> None:
    patch.setattr(owner_module, "is_whole", lambda ask, body: True)


@mistake(
    rules.REQUEST_IS_ITS_WRITERS, tests=("hosts/test_asked_owners::test_no_reply_shows_what_a_request_can_be_made_of",)
)
def show_the_id_of_a_request(patch: Patch) -> None:
    patch.setattr(owner_module, "_shown", lambda request: request.id)


@mistake(
    rules.REQUEST_IS_ITS_WRITERS,
    tests=("hosts/test_asked_owners::test_who_writes_administrators_requests_is_no_member",),
)
def give_administrators_of_other_hosts_all_rights(patch: Patch) -> None:
    patch.setattr(owner_module, "OF_ADMINISTRATORS", Caller())


@mistake(
    rules.NO_WRITER_SILENCES_OTHERS,
    tests=("hosts/test_asked_owners::test_members_take_neither_ids_nor_room_of_administrators",),
)
def keep_requests_of_all_rights_together(patch: Patch) -> None:
    right = OwnerRequests.__init__

    def init(self: OwnerRequests, *arguments: Any) -> None:
        right(self, *arguments)
        self._requests = dict.fromkeys(self._requests, self._requests[REQUESTS])

    patch.setattr(OwnerRequests, "__init__", init)


@mistake(
    rules.NO_WRITER_SILENCES_OTHERS,
    tests=("hosts/test_asked_owners::test_unfinished_requests_have_a_bound_and_hold_up_no_whole_one",),
)
def keep_parts_without_a_bound(patch: Patch) -> None:
    patch.setattr(_Requests, "_has_room", lambda self, shown, size: True)


@mistake(rules.NO_WRITER_SILENCES_OTHERS, tests=("hosts/test_asked_owners::test_answers_have_a_bound",))
def keep_answers_without_a_bound(patch: Patch) -> None:
    patch.setattr(owner_module, "MOST_KEPT_BYTES", 1 << 60)


@mistake(
    rules.NO_WRITER_SILENCES_OTHERS,
    tests=("hosts/test_hosts::test_parts_are_dropped_in_time_whatever_their_request_says",),
)
def renew_an_unfinished_request_by_each_part(patch: Patch) -> None:
    right = _Requests.add

    def add(self: _Requests, ask: Ask, body: bytes, now_s: float) -> Any:
        found = right(self, ask, body, now_s)
        if (received := self.received.get(shown_id(ask.id))) is not None:
            received.since_s = now_s
        return found

    patch.setattr(_Requests, "add", add)


@mistake(
    rules.NO_WRITER_SILENCES_OTHERS,
    tests=("hosts/test_asked_owners::test_time_in_which_no_tick_is_read_counts_against_no_member",),
)
def take_anybodys_tick(patch: Patch) -> None:
    right = OwnerRequests._on_record

    def on_record(self: OwnerRequests, message: Any) -> None:
        self._secret = getattr(read_request(message.headers()), "secret", self._secret)
        right(self, message)

    patch.setattr(OwnerRequests, "_on_record", on_record)


@mistake(
    rules.NO_WRITER_SILENCES_OTHERS, tests=("requests/test_doors::test_other_hosts_requests_leave_room_for_this_hosts",)
)
def count_other_hosts_requests_as_this_hosts(patch: Patch) -> None:
    right = Requests._handled

    def handled(self: Requests, request: Any, asker: Asker) -> Any:
        return right(self, request, asker._replace(origin=None))

    patch.setattr(Requests, "_handled", handled)
