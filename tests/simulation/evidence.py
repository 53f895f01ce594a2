"""The members' side of what the ledger checks: their actions and answers, and each plan as its records tell it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tests.simulation.broker import Record


class Evidence(Protocol):
    """The interface to the members: their actions, and the answers that they got."""

    def committed(self, member_id: str, number: int) -> bool:
        """Spark committed the batch of this plan."""

    def asked_for(self, record: Record, count: int, *kinds: int) -> bool:
        """A ShareConsumer sent one of these outcomes with this receipt."""

    def was_unread(self, number: int, record: Record) -> bool:
        """Kafka had removed the record when the tasks of the plan's committed batch read."""

    def was_said(self, record: Record, count: int, outcome: int) -> bool:
        """A query's sink sent a row with this receipt and outcome."""

    def own_mode(self, number: int, member_epoch: int) -> str:
        """The acknowledgement mode that the query named when it started the plan; empty: the group's."""

    def has_left(self, member_id: str) -> bool:
        """A ShareConsumer sent that it leaves."""

    def signalled(self, member_id: str, record: Record, count: int) -> bool:
        """This ShareConsumer signalled that it works on this delivery."""

    def is_gone(self, member_id: str, at_ms: int) -> bool:
        """Whether the member's session may have ended by then."""

    def may_lose(self, member_id: str, record: Record, count: int) -> bool:
        """Whether the member's lock may be over by now."""

    def trial_broke_off(self, number: int) -> bool:
        """A process of the query died or was away while it had this plan."""


@dataclass
class KnownPlan:
    """A plan as its acquisition appended it."""

    plan_id: int
    member_id: str
    query: bool
    trial: bool
    acquired_ms: int
    """When it was acquired, by the coordinator's clock."""
    started: bool = False
    explicit: bool = False
    """Whether the last attempt at its batch was in explicit mode; ``was_explicit``: whether any was."""
    was_explicit: bool = False
    replaces: bool | None = None
    """Whether all sinks of the last attempt sent that their target replaces its output."""
    epoch: int = 0
