"""How a ShareConsumer without a subscription leaves the group.

Rule: leaving overtakes no outcome. Pending outcomes are sent first, since a member that has left can't send them. A
consumer whose program holds records stays a member, since leaving would release these records."""

from __future__ import annotations

import threading

from share_consumer.acknowledgements import Acknowledgements
from share_consumer.implicit import ImplicitInFlight
from share_consumer.in_flight import InFlight
from share_consumer.membership import Membership


class Departure:
    """The leaving of one consumer. It holds no reference to the consumer itself: a thread that leaves keeps no consumer
    alive. ``changing`` guards ``in_flight``."""

    def __init__(
        self,
        membership: Membership,
        acknowledgements: Acknowledgements,
        in_flight: InFlight | ImplicitInFlight,
        changing: threading.Lock,
    ) -> None:
        self._membership, self._acknowledgements = membership, acknowledgements
        self._in_flight, self._changing = in_flight, changing

    def holds_records(self) -> bool:
        """Send the outcomes that need no commit of the program. Returns whether the program holds records. Called in a
        thread of its own."""
        with self._changing:
            is_due = isinstance(self._in_flight, ImplicitInFlight) or self._acknowledgements.lingers
            sending = self._in_flight.take() if is_due else self._in_flight.take_unread()
            holds = self._in_flight.holds_records
        if sending:
            self._acknowledgements.send(sending)
        return holds

    def leave(self) -> None:
        """Leave the group after all pending outcomes, if the consumer has joined it."""
        self._acknowledgements.call(lambda: None).result()
        self._membership.leave()
