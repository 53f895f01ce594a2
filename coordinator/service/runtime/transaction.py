"""Transactions: the commands of one request to one group, and what they may do to a group that this process does not
serve yet. Rounds: the requests that the runtime decides and answers together, and their errors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol, TypeAlias, TypeVar

from coordinator.core.commands.counts import Count
from coordinator.core.left_out import LeftOutRange
from coordinator.core.log_records import Record
from coordinator.core.members import Member
from coordinator.core.share_group import ShareGroup
from coordinator.protocol.errors import BrokerNotReachable, CoordinatorNotAvailable, NotCoordinator, ShareGroupError
from coordinator.protocol.host_errors import RequestTooLate
from coordinator.protocol.messages import GivenUp, Reply, Request
from coordinator.service.stores.store import StoreFenced, StoreRefused

T = TypeVar("T")
TransactionSteps: TypeAlias = Generator[Request[Any], Any, T]
Transaction: TypeAlias = Callable[[ShareGroup], TransactionSteps[T]]
"""The work of a request: a generator function that reads its group, yields commands, receives their replies (errors are
raised inside it), and returns the answer. All of it happens in one round."""


class Access(Enum):
    """What a transaction may do to a group that this process does not serve yet. A group that is served here is used as
    it is; a peek does not keep the group loaded."""

    SERVE = auto()
    """Load the group, unless another process owns it."""
    CLAIM = auto()
    """Load the group, also from another owner: for a new member, and for a forced action."""
    UPKEEP = auto()
    """As SERVE, to write a snapshot, so that pruning can go on: a group loaded for it is unloaded at rest."""
    PEEK = auto()
    """Read a copy of the group, which stays with its owner; where only the owner can read it, as SERVE. For a
    transaction that changes nothing."""


class Groups(Protocol):
    """The groups of a store that transactions run on: those that a coordinator serves, or those that are only read."""

    def served_groups(self) -> dict[str, bool]:
        """Returns the groups that are served now, and whether each has a member with a session."""

    def call(self, group_id: str, transaction: Transaction[T], access: Access = Access.SERVE) -> T:
        """The answer of the transaction once it is durable. Raises ShareGroupError if the transaction, or a command of
        it, is refused, or the group can't be loaded."""


def ask(command: Request[Reply]) -> TransactionSteps[Reply]:
    """The step of a transaction that gives a command to the group and returns its reply: ``yield from ask(command)``.
    Raises ShareGroupError if the command is refused."""
    reply: Reply = yield command
    return reply


def one(command: Request[Reply]) -> Transaction[Reply]:
    """The transaction that is a single command."""

    def transaction(group: ShareGroup) -> TransactionSteps[Reply]:
        return (yield from ask(command))

    return transaction


def looking(look: Callable[[ShareGroup], T]) -> Transaction[T]:
    """The transaction that returns what ``look`` finds in the group. It gives no command."""

    def transaction(group: ShareGroup) -> TransactionSteps[T]:
        yield from ()  # a transaction is a generator
        return look(group)

    return transaction


@dataclass(frozen=True, kw_only=True, slots=True)
class FromAnotherHost:
    """The bounds of a request that came from another host. Only the group's owner with this tenure carries it out, and
    only up to ``not_after_ms`` on the clock of the event loops: after that, its asker waits no longer, and may have
    sent another request."""

    tenure: str
    not_after_ms: int
    group_id: str = ""

    def check(self, group_id: str, tenure: str, now_ms: int) -> None:
        """Check that the request may be carried out now, by the owner with this tenure (empty: none).

        Raises:
            NotCoordinator: it is for an earlier or later owner.
            RequestTooLate: its time is over."""
        if self.tenure != tenure:
            raise NotCoordinator(what=f"share group {group_id}")
        if now_ms > self.not_after_ms:
            raise RequestTooLate(group_id=group_id)


ORIGIN: ContextVar[FromAnotherHost | None] = ContextVar("origin", default=None)
"""The origin of the request that the thread handles; None: this host."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """A request's transaction that waits for its round."""

    group_id: str
    transaction: Transaction[Any]
    answer: Future[Any]
    access: Access = Access.SERVE
    origin: FromAnotherHost | None = None


@dataclass(kw_only=True, slots=True)
class Round:
    """The decisions of one round so far. ``broken``: why nothing of it may be appended. ``away``: the error of brokers
    that did not answer a question of this round. ``ended``: the sessions that ended, and how. ``expired``: by group,
    the plans whose locks timed out."""

    now_ms: int
    begun_ms: int = field(init=False)
    records: dict[str, list[Record]] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)
    outcomes: list[tuple[Submission, Any, BaseException | None]] = field(default_factory=list)
    given_up: list[tuple[str, GivenUp]] = field(default_factory=list)
    removed: list[tuple[str, list[LeftOutRange]]] = field(default_factory=list)
    ended: list[tuple[str, Member, str]] = field(default_factory=list)
    expired: dict[str, set[int]] = field(default_factory=dict)
    counts: list[tuple[str, Count]] = field(default_factory=list)
    broken: str = ""
    away: BrokerNotReachable | None = None

    def __post_init__(self) -> None:
        self.begun_ms = self.now_ms

    @contextlib.contextmanager
    def asking_brokers(self) -> Iterator[None]:
        """A context for a question to the store's brokers. A round waits for unreachable brokers once, not for each
        request. Raises BrokerNotReachable if the brokers do not answer, or did not in this round before."""
        if self.away is not None:
            raise self.away
        try:
            yield
        except BrokerNotReachable as error:
            self.away = error
            raise


def error_of(submission: Submission, reason: Exception) -> ShareGroupError:
    """The error of a request whose round did not become durable. If another owner has the group now, a client of a
    claim or a peek asks again; other requests get the store's own error. ``outcome_unknown``: the request may have been
    carried out."""
    if isinstance(reason, StoreFenced) and submission.access in (Access.SERVE, Access.UPKEEP):
        return reason.error
    text = f"its state could not be written: {reason}"
    if isinstance(reason, (StoreFenced, StoreRefused)):
        return CoordinatorNotAvailable(group_id=submission.group_id, reason=text)
    return CoordinatorNotAvailable(group_id=submission.group_id, reason=text, outcome_unknown=True)
