"""The steps of a world in which each of two queries is on a host with a coordinator of its own.

A query asks its host's coordinator. That serves the group, or takes it, or passes the request on to the owner that the
group's log names. Held besides the guarantee: a request for an earlier tenure, or after its time, changes nothing; an
owner that has answered, or has written since it was asked, is not replaced; GroupTakenOver comes only where the owner
can't be asked, after a newer claimant's fence.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from coordinator.protocol.errors import GroupTakenOver
from coordinator.protocol.host_errors import OwnedElsewhere
from coordinator.service.runtime.transaction import FromAnotherHost
from coordinator.service.stores.kafka.ownership import LivingOwner
from tests.protocol import hosts as product
from tests.protocol.coordinators import Served
from tests.protocol.explored_world import FAULTS, Asked, Step, Steps, World
from tests.protocol.hosts import Host, Hosts, Look, OwnerRecord
from tests.protocol.members import ASKED_AGAIN
from tests.protocol.requests import Request
from tests.protocol.setting import LOCK_MS, NOW_MS, SESSION_MS, Budget, Setting

ELSEWHERE = ("NotCoordinator", "RequestTooLate", *ASKED_AGAIN)
"""Errors after which a client asks again."""


def hosts_of(world: World) -> Hosts:
    assert world.hosts is not None
    return world.hosts


def with_host(world: World, index: int, host: Host) -> World:
    return world._replace(hosts=hosts_of(world).with_host(index, host))


def grown(world: World, by: int) -> World:
    """After an append of a host to the group's log: the others that have asked may see it."""
    hosts = hosts_of(world)
    for index, host in enumerate(hosts.each):
        hosts = hosts if index == by else hosts.with_host(index, host.seen_growth())
    return world._replace(hosts=hosts)


def complain(world: World, complaint: str) -> World:
    return world._replace(complaint=world.complaint or complaint)


class HostSteps(Steps):
    """The steps of a world with two hosts."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._reply_to_probe = functools.cache(product.reply_to_probe)
        self._reply_to_request = functools.cache(product.reply_to_request)
        self._what_is_found = functools.cache(product.found)

    @property
    def is_asked(self) -> bool:
        return self.setting.hosts == "asked"

    def begin(self) -> World:
        world = super().begin()
        first = Host(memory=world.live, tenure=1, had=True)
        return world._replace(live=0, hosts=Hosts((first, Host()), OwnerRecord(0, 1, 1)))

    def for_one_owner(self, world: World) -> World:
        if world.hosts is None:
            return world
        live = self.coordinators.load(world.log).memory
        for host in world.hosts.each:
            if host.runs and host.memory and not host.fenced:
                live = host.memory
        return world._replace(live=live, hosts=None)

    # --- requests

    def _asks(self, world: World, index: int, budget: Budget) -> Iterator[Step]:
        query, host = world.queries[index], hosts_of(world).each[index]
        request = query.wants(world.log_start, world.topic, world.partitions)
        assert request is not None
        if left := budget.spend("crashes"):
            yield f"{query.name} dies", world.with_query(index, query.died()), left
        yield from self._departs(world, index, budget)
        if not host.runs or host.claim or host.leaving:
            return
        if host.memory:
            yield from self._asked(world, index, index, request, budget)
            return
        claims = request.kind.startswith("join") and not request.epoch
        error = self._refused(world, index, claims=claims)
        if error is None:
            reads = host._replace(claim="read", claims=claims)
            yield f"host {index} reads the log, and may take the group", with_host(world, index, reads), budget
        elif isinstance(error, OwnedElsewhere):
            yield from self._passes_on(world, index, request, budget)
        elif isinstance(error, GroupTakenOver):
            told = self._taken_over(world, index)
            yield f"{query.name} gets GroupTakenOver", told.with_query(index, query.failed()), budget

    def _refused(self, world: World, index: int, *, claims: bool) -> Exception | None:
        return product.refused(hosts_of(world), index, claims=claims, asked=self.is_asked)

    def _taken_over(self, world: World, index: int) -> World:
        """The world in which the host's members get GroupTakenOver, which is a mistake in most worlds."""
        owner = hosts_of(world).owner
        if self.is_asked:
            return complain(world, "members get GroupTakenOver, and the owner can be asked")
        if owner.host == index or owner.released or owner.tenure == 1:
            return complain(world, f"members get GroupTakenOver, and no newer claimant has fenced anybody: {owner}")
        return world

    def _passes_on(self, world: World, index: int, request: Request, budget: Budget) -> Iterator[Step]:
        hosts = hosts_of(world)
        host, record = hosts.each[index], hosts.owner
        owner = hosts.each[record.host]
        if owner.hears and owner.process == record.process:
            yield from self._asked(world, index, record.host, request, budget)
        elif host.look is None:
            asks = host._replace(look=Look(record.tenure))
            yield f"host {index} asks whether the owner lives", with_host(world, index, asks), budget
        copy = request._replace(tenure=record.tenure)
        if (left := budget.spend("delays")) and copy not in world.flight:
            flight = tuple(sorted((*world.flight, copy)))
            yield f"{copy} is under way; it will be asked again", world._replace(flight=flight), left

    def _asked(self, world: World, index: int, at: int, request: Request, budget: Budget) -> Iterator[Step]:
        """The query's request at its own host, or at the owner."""
        if at != index:
            record, host = hosts_of(world).owner, hosts_of(world).each[index]
            does = self._does(world, at, record.tenure, late=False)
            if does == "moved":
                moved = host._replace(gone=(record.tenure, False), look=None)
                after = with_host(world, index, moved)
                if hosts_of(world).each[at].held and not hosts_of(world).each[at].leaving:
                    after = complain(after, "an owner that loads the group again says that it has moved")
                yield f"host {index} hears that the group has moved", after, budget
            if does != "carried out":
                return
        tenure = 0 if at == index else hosts_of(world).owner.tenure
        after, served = self._served(world, at, request, tenure)
        note = f" at host {at}"
        yield Asked(request, served, note), self._heard(after, index, served), budget
        if left := budget.spend("lost"):
            yield Asked(request, served, f"{note}, and the answer is lost"), after, left
        if left := budget.spend("restarts"):
            for fault in FAULTS:
                after, served = self._served(world, at, request, tenure, fault=fault)
                yield Asked(request, served, f"{note} ({fault})"), self._heard(after, index, served), left

    def _heard(self, world: World, index: int, served: Served) -> World:
        if (served.answer is None and not served.error) or served.error in ELSEWHERE:
            return world
        query = world.queries[index]
        plan = query.offsets[-1].rpartition(".")[2] if query.phase == "use" and query.offsets else ""
        mode = self.coordinators.mode_of(world.log, int(plan)) if plan else ""
        return world.with_query(index, query.heard(served.answer, served.error, self.setting, mode))

    def _does(self, world: World, at: int, tenure: int, *, late: bool) -> str:
        """Returns what the host does with a request for this tenure that it reads."""
        host = hosts_of(world).each[at]
        meant = host.tenure == tenure
        return self._reply_to_request(
            serves=host.memory > 0, holds=host.held, leaving=host.leaving, meant=meant, late=late
        )

    def _served(
        self, world: World, at: int, request: Request, tenure: int, *, late: bool = False, fault: str = ""
    ) -> tuple[World, Served]:
        """The request at this host's coordinator. ``tenure``: of the owner that it was sent to from another host; 0: it
        is of this host."""
        host = hosts_of(world).each[at]
        origin = FromAnotherHost(tenure=str(tenure), not_after_ms=NOW_MS - late) if tenure else None
        asked, mine = request._replace(tenure=0), str(host.tenure) if host.memory else ""
        how: dict[str, Any] = {"fenced": host.fenced, "fault": fault, "tenure": mine, "origin": origin}
        served = self.coordinators.serve(host.memory, world.log, asked, **how)
        after = self._after(world, served, old=True)._replace(old=0)
        is_old = late or tenure != host.tenure
        if tenure and is_old and (after.log != world.log or served.memory not in (0, host.memory)):
            after = complain(after, f"{request} has changed the group: it was late, or for another owner")
        after = grown(after, at) if after.log != world.log else after
        if fault.startswith("die"):
            return with_host(after, at, host.ended()), served
        is_mine = (at, host.process) == hosts_of(world).owner[:2]
        if host.fenced and not is_mine and not served.memory:
            error = type(product.lost(hosts_of(world), at, asked=self.is_asked)).__name__
            served = served._replace(answer=None, error=error)
            after = self._taken_over(after, at) if error == GroupTakenOver.__name__ else after
        if fault or (host.fenced and not served.memory):  # the group is dropped; an owner loads it again
            host = host._replace(memory=0, tenure=0, fenced=False, held=is_mine)
        else:
            host = host._replace(memory=served.memory)
        return with_host(after, at, host), served

    def _flight(self, world: World, budget: Budget) -> Iterator[Step]:
        for request in world.flight:
            arrived = world._replace(flight=tuple(other for other in world.flight if other != request))
            asked = request._replace(tenure=0)
            waits = any(
                query.up and query.wants(world.log_start, world.topic, world.partitions) == asked
                for query in world.queries
            )
            for at, host in enumerate(hosts_of(world).each):
                for late in (True, False) if waits else (True,):
                    if host.hears and host.memory:  # it was in time when it was read, and waits for its decision
                        after, served = self._served(arrived, at, request, request.tenure, late=late)
                        yield Asked(request, served, f" at host {at}, {'late' if late else 'in time'}"), after, budget
            yield f"{request} is lost", arrived, budget

    # --- coordinators

    def _coordinators(self, world: World, budget: Budget) -> Iterator[Step]:
        for index, host in enumerate(hosts_of(world).each):
            if not host.up:
                yield f"host {index} starts a coordinator", with_host(world, index, host.begun_anew()), budget
                continue
            if left := budget.spend("restarts"):
                yield f"host {index}'s coordinator dies", with_host(world, index, host.ended()), left
            if host.silent:
                yield f"host {index}'s coordinator goes on", with_host(world, index, host._replace(silent="")), budget
            elif left := budget.spend("silences"):
                for silent in ("stopped", "deaf"):
                    yield f"host {index} is {silent}", with_host(world, index, host._replace(silent=silent)), left
            if host.runs:
                yield from self._leaves(world, index, budget)
                yield from self._looks(world, index, budget)
                yield from self._claims(world, index, budget)
                yield from self._loads_again(world, index, budget)

    def _leaves(self, world: World, index: int, budget: Budget) -> Iterator[Step]:
        host = hosts_of(world).each[index]
        if host.leaving:
            after = world
            if host.memory and not host.fenced:
                owner = hosts_of(world).owner._replace(released=True)
                after = grown(world._replace(hosts=hosts_of(world)._replace(owner=owner)), index)
            yield f"host {index}'s coordinator has given up its group", with_host(after, index, host.ended()), budget
        elif host.memory and (left := budget.spend("releases")):
            yield f"host {index}'s coordinator leaves", with_host(world, index, host._replace(leaving=True)), left

    def _looks(self, world: World, index: int, budget: Budget) -> Iterator[Step]:
        """Yields the ends of the question whether the owner lives."""
        host, hosts = hosts_of(world).each[index], hosts_of(world)
        look = host.look
        if look is None:
            return
        other = hosts.each[1 - index]
        if not look.answer and other.hears:
            answer = self._reply_to_probe(
                serves=other.memory > 0, holds=other.held, leaving=other.leaving, meant=other.tenure == look.tenure
            )
            answered = host._replace(look=look._replace(answer=answer))
            yield f"host {1 - index} answers: {answer}", with_host(world, index, answered), budget
        if look.answer:
            yield "the answer is read", self._found(world, index, late=False), budget
        if not look.answer and not hosts.patience:
            return
        if left := budget.spend("delays") if look.answer else budget:
            yield f"host {index}'s patience is over", self._found(world, index, late=True), left

    def _found(self, world: World, index: int, *, late: bool) -> World:
        """The world in which the host's question has come to its end. ``late``: the patience is over."""
        host = hosts_of(world).each[index]
        assert host.look is not None
        look = host.look
        found = self._what_is_found(look.answer, is_late=late)
        gone = (look.tenure, look.grown) if found == "OwnerAway" else host.gone
        after = with_host(world, index, host._replace(look=None, gone=gone))
        if not look.answer:
            after = after._replace(hosts=hosts_of(after)._replace(patience=hosts_of(after).patience - 1))
        wrong = look.answer == "alive" and found == "OwnerAway"
        return complain(after, "an owner that had answered was found gone") if wrong else after

    def _claims(self, world: World, index: int, budget: Budget) -> Iterator[Step]:
        """A load of the group: it has read the log; it fences; it looks again, and writes itself into the log."""
        hosts = hosts_of(world)
        host = hosts.each[index]
        if host.claim == "read":
            other = hosts.each[1 - index]
            fenced = other._replace(fenced=other.memory > 0, claim="lost" if other.claim == "fenced" else other.claim)
            after = with_host(with_host(world, 1 - index, fenced), index, host._replace(claim="fenced"))
            yield f"host {index} fences", after, budget
        elif host.claim == "lost" or (host.claim and self._refused(world, index, claims=host.claims) is not None):
            yield f"host {index} gives its claim up", with_host(world, index, host._replace(claim="")), budget
        elif host.claim:
            yield f"host {index} takes the group", self._taken(world, index), budget

    def _taken(self, world: World, index: int) -> World:
        hosts = hosts_of(world)
        host, before = hosts.each[index], hosts.owner
        complaint = ""
        may_live = self.is_asked and before.host != index and not before.released
        if may_live and host.gone != (before.tenure, False):
            complaint = "an owner that nobody found gone, or that has written since, was replaced"
        owner = self._new_owner(world, index)
        loaded = self.coordinators.load(world.log)
        taken = host._replace(memory=loaded.memory, tenure=owner.tenure, claim="", look=None, gone=(0, False))
        taken = taken._replace(fenced=False, had=True, held=False)
        after = with_host(world._replace(hosts=hosts._replace(owner=owner)), index, taken)
        return complain(grown(after, index), complaint)

    def _new_owner(self, world: World, index: int) -> OwnerRecord:
        hosts = hosts_of(world)
        host, before = hosts.each[index], hosts.owner
        policy = LivingOwner(product.as_owner(index, host.process))
        earlier = product.newest(hosts, asked=self.is_asked)
        owner = policy.new_owner(earlier, had=host.had)
        is_new = owner.tenure not in ("", earlier.tenure) and not owner.released
        tenure = before.tenure + is_new
        if not self.is_asked:
            tenure = min(tenure, 2)  # nobody names a tenure, and newly started queries take the group without end
        return OwnerRecord(index, host.process, tenure, owner.released)

    def _loads_again(self, world: World, index: int, budget: Budget) -> Iterator[Step]:
        host = hosts_of(world).each[index]
        if host.held and not host.claim and not host.memory and not host.leaving:
            error = self._refused(world, index, claims=False)
            again = host._replace(held=not error, claim="" if error else "read", claims=False)
            yield f"host {index} loads the group again", with_host(world, index, again), budget

    # --- time

    def _time(self, world: World, budget: Budget) -> Iterator[Step]:
        """Time passes for one coordinator that serves the group, while the other one does nothing about it."""
        hosts = hosts_of(world)
        serving = [index for index, host in enumerate(hosts.each) if host.memory]
        if len(serving) != 1:
            return
        host = hosts.each[serving[0]]
        if host.fenced or not host.runs:
            return
        alive = {query.member for query in world.queries if query.up}
        for member in self.coordinators.sessions(host.memory):
            left = budget.spend("expiries", "pauses") if member in alive else budget.spend("expiries")
            if left is not None:
                yield f"the session of {member} ends", self._later(world, serving[0], frozenset({member})), left
        locks = any(run.deadline_ms is not None for run in self.coordinators.runs(host.memory).values())
        if locks and (left := budget.spend("expiries")):
            yield "a lock duration passes", self._later(world, serving[0], frozenset()), left

    def _later(self, world: World, index: int, silent: frozenset[str]) -> World:
        host = hosts_of(world).each[index]
        ms = (SESSION_MS if silent else LOCK_MS) + 1
        served = self.coordinators.time_passes(host.memory, world.log, ms, silent)
        after = with_host(
            self._after(world, served, old=True)._replace(old=0), index, host._replace(memory=served.memory)
        )
        return grown(after, index) if after.log != world.log else after
