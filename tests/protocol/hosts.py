"""The coordinators of two hosts as values, and what the product decides about the ownership of their group.

Real are the decisions: who may take the group (LivingOwner), who its new owner is, what an owner replies to a record of
the other host (OwnerRequests), and what an asker makes of the replies (Gateway). Time is not counted: an owner that can
hear answers a question before the patience is over, if nothing else is paid for.
"""

from __future__ import annotations

from typing import NamedTuple

from coordinator.protocol.errors import ShareGroupError
from coordinator.protocol.host_records import VERSION, Answer, Moved
from coordinator.service.stores.kafka.ownership import LivingOwner
from coordinator.state_log.owner_record import Owner
from coordinator.state_log.owner_state import OwnerState
from tests.support.asked_hosts import GROUP, AskedOwner, Asker, ask, owner_of, probe


class Look(NamedTuple):
    """A host's question whether the owner of this tenure lives. ``grown``: the group's log has grown since. ``answer``:
    what the owner has written; the asker has not read it."""

    tenure: int
    grown: bool = False
    answer: str = ""


class Host(NamedTuple):
    """A coordinator. ``silent``: it is "stopped", or "deaf": it does not hear the other host. ``memory``, ``tenure``:
    of the group that it serves; 0: it serves none. ``fenced``: another one has taken its transactional id since.
    ``held``: it is to load the group again by itself. ``had``: it has served the group. ``gone``: the tenure of the
    owner that it found gone, and whether the log has grown since it asked. ``claim``: a load that has "read" the log,
    or has "fenced" the owner, or was "lost" to another one's fence; ``claims``: it is for a new member."""

    up: bool = True
    silent: str = ""
    leaving: bool = False
    process: int = 1
    memory: int = 0
    tenure: int = 0
    fenced: bool = False
    held: bool = False
    had: bool = False
    gone: tuple[int, bool] = (0, False)
    look: Look | None = None
    claim: str = ""
    claims: bool = False

    @property
    def runs(self) -> bool:
        return self.up and self.silent != "stopped"

    @property
    def hears(self) -> bool:
        return self.up and not self.silent

    def begun_anew(self) -> Host:
        """The next process of the host."""
        return Host(process=self.process + 1)

    def ended(self) -> Host:
        """The host without a process."""
        return Host(up=False, process=self.process)

    def seen_growth(self) -> Host:
        """After an append to the group's log."""
        look = self.look and self.look._replace(grown=True)
        return self._replace(look=look, gone=(self.gone[0], self.gone[0] > 0))


class OwnerRecord(NamedTuple):
    """The newest owner record of the group's log."""

    host: int
    process: int
    tenure: int
    released: bool = False


class Hosts(NamedTuple):
    """Both hosts, and the owner that the group's log names. ``patience``: how often an owner may still be found silent:
    one that does not hear the other host, and serves its own, can be for ever."""

    each: tuple[Host, Host]
    owner: OwnerRecord
    patience: int = 1

    def with_host(self, index: int, host: Host) -> Hosts:
        one, two = self.each
        return self._replace(each=(host, two) if index == 0 else (one, host))


def as_owner(host: int, process: int, *, tenure: int = 0, released: bool = False, asked: bool = True) -> Owner:
    """A process as the product's owner."""
    text = str(tenure) if tenure else ""
    answers = VERSION if asked else 0
    return owner_of(f"host {host}", f"{host}-{process}", tenure=text, released=released, answers=answers)


def refused(hosts: Hosts, index: int, *, claims: bool, asked: bool) -> ShareGroupError | None:
    """The error with which the host may not take the group now; None: it may."""
    host = hosts.each[index]
    policy = LivingOwner(as_owner(index, host.process, asked=asked))
    tenure, has_grown = host.gone
    if tenure:
        policy.found(GROUP, str(tenure), OwnerState.SILENT, 1)
    try:
        policy.check(GROUP, newest(hosts, asked=asked), had=host.had, claims=claims, end=1 + has_grown)
    except ShareGroupError as error:
        return error
    return None


def newest(hosts: Hosts, *, asked: bool) -> Owner:
    """The owner that the log names."""
    owner = hosts.owner
    return as_owner(owner.host, owner.process, tenure=owner.tenure, released=owner.released, asked=asked)


def lost(hosts: Hosts, index: int, *, asked: bool) -> ShareGroupError:
    """The error for members of this host after another one has fenced it."""
    policy = LivingOwner(as_owner(index, hosts.each[index].process, asked=asked))
    return policy.lost(GROUP, newest(hosts, asked=asked))


def reply_to_probe(*, serves: bool, holds: bool, leaving: bool, meant: bool) -> str:
    """The owner's reply to a question: "alive" or "moved". ``meant``: it is of the tenure that the question names."""
    owner = AskedOwner(tenure="t1" if serves else "", holds=serves or holds, leaving=leaving)
    replies = owner.reads(probe(tenure="t1" if meant else "t0"))
    return "moved" if any(isinstance(reply, Moved) for reply in replies) else "alive" if replies else ""


def reply_to_request(*, serves: bool, holds: bool, leaving: bool, meant: bool, late: bool) -> str:
    """Returns what the owner does with a request: it is "carried out", or "moved", or "refused" or passed over ("")."""
    owner = AskedOwner(tenure="t1" if serves else "", holds=serves or holds, leaving=leaving)
    replies = owner.reads(ask(tenure="t1" if meant else "t0", not_after_ms=owner.now_ms - late))
    if any(isinstance(reply, Answer) for reply in replies):
        return "carried out"
    return "moved" if any(isinstance(reply, Moved) for reply in replies) else "refused" if replies else ""


def found(answer: str, *, is_late: bool) -> str:
    """Returns what an asker finds that gets this answer, or none: the name of the error; empty: the owner lives."""
    return Asker(answer, is_late=is_late).look(owner_of("one", tenure="t1"))
