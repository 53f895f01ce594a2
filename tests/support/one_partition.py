"""A coordinator's runtime on one store, as that of a coordinator with an SQLite file."""

from coordinator.service.process.clock import Clock
from coordinator.service.runtime.event_loop import PartitionedRuntime
from coordinator.service.runtime.runtime import CoordinatorRuntime


def one_partition(runtime: CoordinatorRuntime, clock: Clock | None = None) -> PartitionedRuntime:
    """The runtime with all groups in one partition, whose runtime this is."""
    return PartitionedRuntime(lambda group_id: 0, lambda partition: runtime, clock)
