"""A transaction: the commands of one request to one group, which the runtime runs in one round, and what it may do to a
group that this process does not serve yet."""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import Enum, auto
from typing import Any, TypeAlias, TypeVar

from coordinator.core.share_group import ShareGroup
from coordinator.protocol.messages import Reply, Request

T = TypeVar("T")
TransactionSteps: TypeAlias = Generator[Request[Any], Any, T]
Transaction: TypeAlias = Callable[[ShareGroup], TransactionSteps[T]]
"""The work of a request: a generator function that reads its group, yields commands, receives their replies (errors are
raised inside it), and returns the answer. All of it happens in one round."""


class Access(Enum):
    """Says what a transaction may do to a group that this process does not serve yet. A group that it serves is used as
    it is; a peek does not keep the group loaded."""

    SERVE = auto()
    """Load the group, unless another process owns it."""
    CLAIM = auto()
    """Load the group, also from another owner: for a new member, and for a forced action."""
    PEEK = auto()
    """Read a copy of the group, which stays with its owner; where only the owner can read it, as SERVE. For a
    transaction that changes nothing."""


def ask(command: Request[Reply]) -> TransactionSteps[Reply]:
    """The step of a transaction that gives a command to the group and returns its reply: ``yield from ask(command)``.

    Raises:
        ShareGroupError: the command is refused.
    """
    reply: Reply = yield command
    return reply


def one(command: Request[Reply]) -> Transaction[Reply]:
    """The transaction that is a single command."""

    def transaction(group: ShareGroup) -> TransactionSteps[Reply]:
        return (yield from ask(command))

    return transaction
