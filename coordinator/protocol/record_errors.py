"""Named errors of a ShareConsumer's outcomes and signals; their form is that of coordinator.protocol.errors, which has
them too: import them from there."""

from __future__ import annotations

from coordinator.protocol.error_base import ShareGroupError


class InvalidRecordState(ShareGroupError):
    """{what}: the record state is invalid. The acknowledgement of delivery could not be completed."""

    kafka_error = "INVALID_RECORD_STATE"


class RecordNotHeld(InvalidRecordState):
    """Member {member_id} does not hold {offsets}: the lock is over, or the outcome is known. Nothing was changed;
    records without an outcome are delivered again. Decide a record within its lock, or renew the lock, or say in time
    that the work goes on."""


class OlderDelivery(InvalidRecordState):
    """{offsets} was delivered {delivered} times, and the receipt is of delivery {named}: the lock of that delivery is
    over. Nothing was changed; the newest delivery decides."""


class LockExtensionOver(InvalidRecordState):
    """A lock is extended by signals for {longest_ms} ms after the acquisition at most. The record is delivered again;
    if the work takes longer, raise group.share.in.progress.max.lock.extension.ms."""


class HeldByQuery(InvalidRecordState):
    """Plan {plan_id} is of a query, whose locks live as long as its session: signals are for ShareConsumers."""


class RenewalDisabled(InvalidRecordState):
    """The group has share.renew.acknowledge.enable=false: no lock is renewed. Set it to true, or acknowledge the
    record within its lock."""
