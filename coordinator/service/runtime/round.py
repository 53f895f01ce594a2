"""One round of the runtime: the requests that it answers, what it decided, and the error of what did not become
durable."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from coordinator.core.group_counts import Count
from coordinator.core.records import Record
from coordinator.protocol.errors import CoordinatorNotAvailable, ShareGroupError
from coordinator.protocol.messages import GivenUp
from coordinator.service.runtime.transaction import Access, Transaction
from coordinator.service.stores.store import StoreFenced, StoreRefused


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """A request's transaction that waits for its round."""

    group_id: str
    transaction: Transaction[Any]
    answer: Future[Any]
    access: Access = Access.SERVE


@dataclass(kw_only=True, slots=True)
class Round:
    """The decisions of one round so far. ``broken``: why nothing of it may be appended."""

    now_ms: int
    begun_ms: int = field(init=False)
    records: dict[str, list[Record]] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)
    outcomes: list[tuple[Submission, Any, BaseException | None]] = field(default_factory=list)
    given_up: list[tuple[str, GivenUp]] = field(default_factory=list)
    counts: list[tuple[str, Count]] = field(default_factory=list)
    broken: str = ""

    def __post_init__(self) -> None:
        self.begun_ms = self.now_ms


def error_of(submission: Submission, reason: Exception) -> ShareGroupError:
    """The error of a request whose round did not become durable. Where another owner has the group now, a request that
    claims asks again, and then takes the group; one that peeks asks again, and then reads the log; every other one gets
    the store's own error. The field ``outcome_unknown`` says that the request may have been carried out."""
    if isinstance(reason, StoreFenced) and submission.access is Access.SERVE:
        return reason.error
    text = f"its state could not be written: {reason}"
    if isinstance(reason, (StoreFenced, StoreRefused)):
        return CoordinatorNotAvailable(group_id=submission.group_id, reason=text)
    return CoordinatorNotAvailable(group_id=submission.group_id, reason=text, outcome_unknown=True)
