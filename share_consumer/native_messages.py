"""Messages that compiled code makes of the records that it reads, for a ShareConsumer."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.protocol.messages import PartitionPlan
from share_consumer.record_runs import RunCollector
from share_source.executor.native import _drain
from share_source.executor.record_batches import BATCH_BYTES, BATCH_RECORDS


class NativeCollector(RunCollector):
    """Collects records in the compiled reader's columns. Makes messages of them when these are full, and at the end."""

    most_records = BATCH_RECORDS
    most_bytes = BATCH_BYTES

    def __init__(self, partitions: Iterable[PartitionPlan]) -> None:
        super().__init__(partitions)
        self.builder = _drain.Builder(include_headers=True, for_messages=True)

    def __len__(self) -> int:
        return super().__len__() + len(self.builder)

    @property
    def room(self) -> int:
        """How many more records fit; 0: call :meth:`build`."""
        return max(self.most_records - len(self.builder), 0) if self.builder.nbytes < self.most_bytes else 0

    def build(self) -> None:
        self.nbytes += self.builder.nbytes
        for topic, partition, first, delivery_count, messages in self.builder.messages():
            self.add_run((topic, partition), first, delivery_count, messages)
